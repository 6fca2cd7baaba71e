"""Programs of trials that were refused, crashed or took too long, each with its neighbours.

Each test says the kind in its docstring; those that have a file of their own are not here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS

_R: Any = np.random.default_rng(3)

GUARDED = """
@kernel tile[(64,)]
def k(s: mut i32[n, n], r0: i32, lo: i32):
    t = tile_linear_id()
    c0 = group_linear_id() + lo
    a = s[r0+t+1, c0]
    b = s[r0, c0+t+1]
    tbarrier()
    for i in range({rounds}):
        s[r0+i, c0+t+1] = {value}
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize("value", ["5", "a + b"])
@pytest.mark.parametrize("rounds", [1, 16])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_loops_in_two_versions_hold_together(arch: str, rounds: int, value: str) -> None:
    """A pass that makes a guarded and an unguarded version of a loop uses only what is there."""
    session = Session(overlay={"p.tessera": GUARDED.format(rounds=rounds, value=value)})
    signature = session.signature("p.tessera", "k")
    made = session.compile_kernel("p.tessera", "k", signature, TargetOptions("cuda", arch))
    assert made.code


DEEP = "@op.kernel\ndef f(x: f32[m, n]) -> f32[m, n]:\n    t = x\n{}    return {}\n"


@pytest.mark.slow
@pytest.mark.parametrize(("line", "last"), [
    ("t = t * t", "t"), ("t = op.sin(t) + t", "t"), ("t = op.where(t > 0.0, t, -t)", "op.cos(t)"),
])  # fmt: skip
def test_values_used_twice_do_not_double_the_work(line: str, last: str) -> None:
    """What is computed of a value that is used twice is walked once: twice the lines take a few
    times as long, not thousands of times."""

    def seconds(lines: int) -> float:
        text = DEEP.format(f"    {line}\n" * lines, last)
        x = np.ones((3, 5), np.float32)
        begun = time.process_time()
        tessera.compile(text, target="cpu").f(x)
        return time.process_time() - begun

    seconds(2)
    short = seconds(6)
    assert seconds(15) < 12 * short + 2


def test_code_of_two_launches_has_one_header(tmp_path: Path) -> None:
    """What ``emit`` writes of a kernel with several launches is a file that ptxas takes."""
    text = """
@op.kernel
def f(x: f32[m, n], y: mut f32[m]):
    h = op.empty((m, n), f32)
    for i in op.tile_range(m, step=1):
        h[i, :] = x[i, :] / (1.0 + op.sum(x[i, :] * x[i, :]))
    for i in op.tile_range(m, step=1):
        y[i] = op.max(h[i, :] + h[0, :])
"""
    from tessera_lang.driver.cli import main

    file, out = tmp_path / "p.tessera", tmp_path / "p.ptx"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["emit", str(file), "--stage=ptx", "--arch=sm_90", "-o", str(out)])
    assert not ended.value.code
    made = out.read_text()
    assert made.count(".version") == 1 and made.count(".entry") >= 2


PARTS = {
    "x[0:4] * c[0:4]": "x[0:4] * c[0:4]", "x[2:5] + c[1:4]": "x[2:5] + c[1:4]",
    "x[0:4] @ c[0:4]": "x[0:4] @ c[0:4]",
    "op.where(x[1:4] > 0.0, c[0:3], x[5:8])": "np.where(x[1:4] > 0.0, c[0:3], x[5:8])",
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", PARTS)
@pytest.mark.parametrize("declared", ["x, c", "x: f32[n], c: f32[v]"])
@pytest.mark.sample(2)
def test_extents_must_agree_not_arrays(declared: str, text: str, target: str) -> None:
    """Equal parts of arrays of unequal sizes."""
    x, c = (_R.integers(-3, 3, n).astype(np.float32) for n in (8, 4))
    found = module_for(target, f"@op.kernel\ndef f({declared}):\n    return {text}\n").f(x, c)
    np.testing.assert_array_equal(np.asarray(found), eval(PARTS[text], {"np": np, "x": x, "c": c}))


WINDOW = """
@op.kernel
def f(x: f32[m, n], y: mut f32[m, n]):
    for i in op.tile_range(m, step=1):
        acc = op.window(x[i, :], -1, {width})
        for q in range(1):
            y[i, 0:n] = acc[0:n]
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [64, 256, 300, 512])
def test_a_window_that_one_or_several_tiles_hold(n: int, target: str) -> None:
    """A window of a row as long as the row, whether one tile has all of it or not."""
    x = _R.normal(size=(3, n)).astype(np.float32)
    y = np.zeros_like(x)
    module_for(target, WINDOW.format(width=512)).f(x, y)
    want = np.concatenate((np.zeros((3, 1), np.float32), x[:, :-1]), axis=1)
    np.testing.assert_array_equal(y, want)


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [8192, 8193, 20000])
def test_scans_of_rows_of_any_length(n: int, target: str) -> None:
    """One more element than a tile of a sort has is no limit of a scan."""
    x = _R.integers(-2, 3, (2, n)).astype(np.float32)
    y = np.zeros_like(x)
    text = """
@op.kernel
def f(x: f32[m, n], y: mut f32[m, n]):
    for i in op.tile_range(m, step=1):
        y[i, :] = op.cumsum(x[i, :])
"""
    module_for(target, text).f(x, y)
    np.testing.assert_array_equal(y, np.cumsum(x, axis=1))


SMALL = {
    "return op.argmax(x)": "np.argmax(x)", "return op.argmin(x * 2.0)": "np.argmin(x)",
    "return op.sum(x[max(index(x[0]), 0):])": "x[2:].sum()",
    "return -(-op.arange(7) // 2)": "-(-np.arange(7) // 2)",
    "return ceil_div(op.arange(7), 2)": "-(-np.arange(7) // 2)",
    "y = op.zeros((13,))\n    for i in op.tile_range(2, 13, step=3):\n        y[i:i+3] = x[i:i+3]\n"
    "    return y": "np.concatenate(([0, 0], x[2:]))",
}  # fmt: skip


@pytest.mark.sample(9)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", SMALL)
def test_small_forms(body: str, target: str) -> None:
    """Forms that a reader of the manual writes first."""
    x = np.concatenate(([2.0], _R.integers(-5, 6, 12))).astype(np.float32)
    found = module_for(target, f"@op.kernel\ndef f(x: f32[n]):\n    {body}\n").f(x)
    np.testing.assert_array_equal(np.asarray(found), eval(SMALL[body], {"np": np, "x": x}))


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_of_rank_0_is_stored_into(target: str) -> None:
    """``out: mut f32[]`` takes a number."""
    x, out = _R.normal(size=9).astype(np.float32), np.zeros((), np.float32)
    module_for(
        target, "@op.kernel\ndef f(x: f32[n], out: mut f32[]):\n    out[()] = op.max(x)\n"
    ).f(x, out)
    assert out == x.max()


BRACKETS = """
@op.kernel
def f[D: int](x: f32[n, D], y: f32[3*c]) -> f32[n]:
    return op.sum(x, axis=1) * D + op.sum(y) * c

@kernel tile[(64,)] grid[(1,)]
def k[D: int, T: dtype](x: T[n, D], out: mut T[n]):
    i = tile_linear_id()
    if i < n:
        total = T(0.0)
        for j in range(D): total += x[i, j]
        out[i] = total

def g(x, y):
    return f(x, y)
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_say_brackets_and_multiples(target: str) -> None:
    """A bracket that is an axis of an array has its size, and a size may be said by a multiple."""
    m = module_for(target, BRACKETS)
    for d in (6, 3):
        x, y = _R.integers(-3, 3, (4, d)).astype(np.float32), np.ones(9, np.float32)
        want, out = x.sum(1) * d + 27, np.zeros(4, np.float32)
        for found in (m.f(x, y), m.f(x, y, D=d), m.g(x, y)):
            np.testing.assert_array_equal(np.asarray(found), want)
        m.k(x, out)
        np.testing.assert_array_equal(out, x.sum(1))
        with pytest.raises(tessera.TesseraError, match="axis 1"):
            m.f(x, y, D=d + 1)


def test_check_knows_brackets_by_sizes() -> None:
    """As the launch does."""
    text = f"{BRACKETS}print(f(op.ones((2, 3), f32), op.ones((9,), f32)))\n"
    assert not Session(overlay={"p.tessera": text}).check("p.tessera")


SHIFTED = """
@op.kernel
def f(x: f32[m, n], y: mut f32[m, n]):
    for i in op.tile_range(m, step=1):
        for q in range(0, n, {width}):
            acc = op.window(x[i, :], q - 1, {width})
            y[i, q:q+{width}] = acc[0:n-q]
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [64, 256])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 256, 300, 512])
@pytest.mark.sample(5)
def test_parts_of_a_row_by_windows_where_one_tile_is_enough_or_not(
    n: int, width: int, target: str
) -> None:
    """A loop of one round is a loop: what holds for several tiles holds for one."""
    x = _R.normal(size=(3, n)).astype(np.float32)
    y = np.zeros_like(x)
    module_for(target, SHIFTED.format(width=width)).f(x, y)
    want = np.concatenate((np.zeros((3, 1), np.float32), x[:, :-1]), axis=1)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", ["i8", "i32", "u16", "f32", "f64"])
@pytest.mark.parametrize("head", ["@op.kernel\n", "@kernel tile[(32,)] grid[(1,)]\n"])
@pytest.mark.sample(4)
def test_a_dtype_that_has_a_name_takes_a_literal(head: str, dtype: str) -> None:
    """``T = i32`` in the file, then ``a: T`` of a variable that begins as a literal."""
    body = "a: T = 3\n    y[0] = a + T(2)\n" if "op" in head else (
        "if tile_linear_id() == 0:\n        a: T = 3\n        y[0] = a + T(2)\n")  # fmt: skip
    text = f"T = {dtype}\n\n\n{head}def f(y: mut T[n]):\n    {body}"
    y = np.zeros(2, {"i": "int", "u": "uint", "f": "float"}[dtype[0]] + dtype[1:])
    module_for("cpu", text).f(y)
    assert y[0] == 5


@pytest.mark.parametrize("dtype", ["i32", "i8", "u8", "f32"])
def test_a_parameter_whose_dtype_has_a_name_takes_a_literal_of_the_host(dtype: str) -> None:
    text = f"T = {dtype}\n\n\n@op.kernel\ndef f(x: T[n], a: T):\n    return x + a\n"
    text += f"\n\ny = f(op.full((3,), 2, dtype={dtype}), 3)\nprint(y[1])\n"
    session = Session(overlay={"p.tessera": text})
    assert not session.check("p.tessera")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["u8", "u32", "u64", "i8", "i32", "i64"])
@pytest.mark.sample(4)
def test_quotients_are_rounded_up_in_every_integer_type(dtype: str, target: str) -> None:
    kind = {"i": "int", "u": "uint"}[dtype[0]] + dtype[1:]
    x = np.array([0, 1, 2, 5, 6, 7, 100, np.iinfo(kind).max], kind)
    text = f"@op.kernel\ndef f(x: {dtype}[n], y: mut {dtype}[n]):\n    y[:] = ceil_div(x, 3)\n"
    y = np.zeros_like(x)
    module_for(target, text).f(x, y)
    assert y.tolist() == [-(-int(v) // 3) for v in x]
