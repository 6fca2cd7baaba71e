"""``print`` in lanes on both targets: the same lines in the same order, and what is too much."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.target.launch_plan import PRINT_WORDS

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LINES = """
NAME = "x"

def twice(v: f32):
    print("twice", v)
    return v * 2.0

@kernel tile[(2, 3)] grid[(2,)]
def k(x: f32[n], out: mut f32[n]) where n == 12:
    i = grid_tile_linear_id()
    if i % 5 == 0:
        print(f"{NAME}[{i:>2}] = {x[i]:.3f},", i > 2, i8(-3))
    tbarrier()
    out[i] = twice(x[i])
    for j in range(i % 3):
        print(f"{j}")
"""


@pytest.fixture(params=[*TARGETS, "checked"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """``checked``: the CPU in checked mode."""
    if request.param == "checked":
        monkeypatch.setenv("TESSERA_CHECKED", "1")
        return "cpu"
    return str(request.param)


def test_lines_stand_by_group_and_lane(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    m = tessera.compile(LINES, target=target)
    x = np.arange(12, dtype=np.float32) / 3
    for _ in range(3):  # cold, warm, and through the short way
        m.k(x, np.zeros_like(x))
        tessera.synchronize()
        expected = ""
        for i in range(12):
            if i % 5 == 0:
                expected += f"x[{i:>2}] = {x[i]:.3f}, {i > 2} -3\n"
            expected += f"twice {x[i]!s}\n"
            expected += "".join(f"{j}\n" for j in range(i % 3))
        assert capsys.readouterr().out == expected


DTYPES = """
@kernel tile[(1,)] grid[(1,)]
def k(v: i64, w: f64):
    print(bool(v), i8(v), u8(v), i16(v), u16(v), i32(v), u32(v), v, u64(v), index(v))
    print(f16(w), bf16(w), f32(w), w, f8e4m3(w), f8e5m2(w))
"""


def test_numbers_of_every_dtype(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    tessera.compile(DTYPES, target=target).k(np.int64(-2), np.float64(0.1))
    tessera.synchronize()
    integers = "True -2 254 -2 65534 -2 4294967294 -2 18446744073709551614 -2\n"
    floats = "0.1 0.100098 0.1 0.1 0.101562 0.09375\n"
    assert capsys.readouterr().out == integers + floats
    tessera.compile(DTYPES, target=target).k(np.int64(-2), np.float64(-448))
    tessera.synchronize()
    assert capsys.readouterr().out == integers + "-448.0 " * 5 + "-448.0\n"


def test_uniform_lines_are_printed_by_every_lane(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "@kernel tile[(64,)] grid[(3,)]\ndef k(n: index):\n    print(n)\n"
    tessera.compile(text, target=target).k(7)
    tessera.synchronize()
    assert capsys.readouterr().out == "7\n" * 192


@pytest.mark.parametrize("target", TARGETS)
def test_what_finds_no_room_is_counted(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "@kernel tile[(128,)] grid[(128,)]\ndef k(n: index):\n    for i in range(n): print(i)\n"
    room = (PRINT_WORDS - 2) // 4
    m = tessera.compile(text, target=target)
    for n in (5, 1):
        m.k(n)
        tessera.synchronize()
        lines = capsys.readouterr().out.splitlines()
        if n == 1:
            assert lines == ["0"] * (128 * 128)
            continue
        lost = 128 * 128 * n - room
        assert lines[-1] == f"[{lost} more lines of `k` found no room: it printed too much]"
        assert len(lines) == room + 1


def test_a_fault_comes_behind_the_lines(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        "@kernel tile[(1,)] grid[(1,)]\ndef k(x: f32[n], out: mut f32[n], at: index):\n"
        '    print("at", at)\n    out[0] = x[at]\n'
    )
    k = tessera.compile(text, target=target).k

    def call() -> None:
        k(np.ones(2, np.float32), np.ones(2, np.float32), 5)
        tessera.synchronize()

    with pytest.raises(tessera.TesseraError, match="reads outside"):
        call()
    assert capsys.readouterr().out == "at 5\n"


@pytest.mark.parametrize(("call", "message"), [
    ("print(x)", "takes text and numbers, not `f32[n]`"),
    ("print(f\"{x[i]:d}\")", "the format `d` does not fit `f32`"),
    (f"print({', '.join('i' * 33)})", "takes 32 numbers at most"),
])  # fmt: skip
def test_what_cannot_be_printed(call: str, message: str) -> None:
    text = (
        "@kernel tile[(64,)] grid[(1,)]\ndef k(x: f32[n]):\n    i = tile_linear_id()\n"
        f"    if i < n: {call}\n"
    )
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text, target="cpu").check()
    (found,) = caught.value.diagnostics
    assert found.code == "T0207" and message in found.message


def test_a_tile_kernel_prints_numbers_and_no_tiles(capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        'def f(v, i):\n    print("part", i)\n    return v\n\n'
        "@op.kernel\ndef k(x: f32[n], out: mut f32[n]):\n"
        "    for i in op.tile_range(n, step=64):\n        out[i:i+64] = f(x[i:i+64], i)\n"
    )
    x = np.ones(100, np.float32)
    tessera.compile(text, target="cpu").k(x, x.copy())
    said = capfd.readouterr()
    assert sorted((said.out + said.err).split("\n")[:2]) == ["part 0", "part 64"]
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text.replace('"part", i', '"part", v'), target="cpu").k(x, x)
    assert caught.value.diagnostics[0].code == "T0207"
