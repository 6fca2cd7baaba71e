"""Checked mode: what a run shows that no analysis can, and no false alarm where there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.cli import run as tesserac

HEAD = "@kernel tile[(64,)] grid[({groups},)]\ndef k({parameters}):\n    i = tile_linear_id()\n"
LANES = np.arange(64)


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CHECKED", "1")


def kernel(parameters: str, body: str, groups: int = 1) -> Any:
    head = HEAD.format(groups=groups, parameters=parameters)
    text = head + "".join(f"    {line}\n" for line in body.splitlines())
    return tessera.compile(text, target="cpu").k


def found(call: Any, *arguments: Any) -> str:
    with pytest.raises(tessera.TesseraError) as caught:
        call(*arguments)
    (d,) = caught.value.diagnostics
    assert d.code == "T0853"
    return str(caught.value)


def index(values: Any) -> Any:
    return np.asarray(values, np.int32)


EXCHANGE = "s = tshared.alloc((64,), i32)\ns[p[i]] = i32(i)\n{between}out[i] = s[q[i]]"
THREE = "p: i32[64], q: i32[64], out: mut i32[64]"


def test_a_race_in_shared_memory_that_depends_on_data() -> None:
    k = kernel(THREE, EXCHANGE.format(between=""))
    out = np.zeros(64, np.int32)
    k(index(LANES), index(LANES), out)  # each lane its own element
    assert out.tolist() == LANES.tolist()
    text = found(k, index(LANES), index(LANES[::-1]), out)
    assert re.search(r"a race: lane (\d+) of group 0 writes s\[\1\], which was read by lane", text)
    assert "no barrier stands between them" in text
    k = kernel(THREE, EXCHANGE.format(between="tbarrier()\n"))
    k(index(LANES), index(LANES[::-1]), out)
    assert out.tolist() == LANES[::-1].tolist()


def test_two_lanes_write_one_element() -> None:
    k = kernel(THREE, EXCHANGE.format(between="tbarrier()\n"))
    out = np.zeros(64, np.int32)
    text = found(k, index(LANES // 2 * 2), index(LANES // 2 * 2), out)
    assert re.search(r"lane \d+ of group 0 writes s\[(\d+)\], which was written by lane", text)
    same = kernel("p: i32[64], out: mut i32[64]", "out[p[i]] = 7")
    same(index(LANES // 2), out)  # one and the same value does no harm


def test_shared_memory_that_nobody_wrote() -> None:
    k = kernel(THREE, EXCHANGE.format(between="tbarrier()\n"))
    out = np.zeros(64, np.int32)
    text = found(k, index(np.zeros(64)) + index(LANES // 64), index(LANES), out)
    assert "race" in text or "nobody has written" in text
    k = kernel(
        "n: index, out: mut i32[64]",
        "s = tshared.alloc((64,), i32)\nif i < n: s[i] = 1\ntbarrier()\nout[i] = s[63 - i]",
    )
    k(64, out)
    assert "lane 0 of group 0 reads s[63], which nobody has written" in found(k, 63, out)


def test_a_write_wraps_around_a_loop() -> None:
    """The barrier of one turn is missing before the next."""
    body = (
        "s = tshared.alloc((64,), i32)\nacc = i32(0)\nfor t in range(n):\n"
        "    s[p[i]] = i32(t)\n    tbarrier()\n    acc += s[q[i]]\n{end}out[i] = acc"
    )
    parameters = "p: i32[64], q: i32[64], n: index, out: mut i32[64]"
    out = np.zeros(64, np.int32)
    arguments = (index(LANES), index(LANES[::-1]))
    k = kernel(parameters, body.format(end=""))
    k(*arguments, 1, out)
    assert "was read by" in found(k, *arguments, 2, out)
    kernel(parameters, body.format(end="    tbarrier()\n"))(*arguments, 5, out)
    assert out.tolist() == [10] * 64


def test_groups_race_in_global_memory() -> None:
    k = kernel("p: i32[m], out: mut i32[n]", "g = grid_tile_linear_id()\nout[p[g]] = i32(g)", 4)
    out = np.zeros(256, np.int32)
    k(index(np.arange(256)), out)
    wrong = index(np.arange(256))
    wrong[200] = 3
    text = found(k, wrong, out)
    assert "writes out[3]" in text and "lane 3 of group 0" in text and "lane 8 of group 3" in text
    assert "nothing orders different groups" in text


@pytest.mark.parametrize("turn", [slice(None, None, 2), slice(None, None, -2)])
def test_elements_of_arrays_with_strides_are_named_by_their_indices(turn: slice) -> None:
    head = "@kernel tile[(16,)] grid[(1,)]\ndef k(p: i32[n], out: mut i32[m, w]):\n"
    text = head + "    i = tile_linear_id()\n    out[p[i], 3] = i32(i)\n"
    k = tessera.compile(text, target="cpu").k
    wide = np.zeros((64, 10), np.int32)
    out = wide[turn, ::2]
    k(index(np.arange(16)), out)
    assert out[:16, 3].tolist() == list(range(16)) and np.count_nonzero(wide) == 15
    wrong = index(np.arange(16))
    wrong[9] = 4
    assert "out[4, 3]" in found(k, wrong, out)


def test_groups_read_what_others_write() -> None:
    k = kernel("p: i32[m], x: mut i32[n], out: mut i32[n]",
               "g = grid_tile_linear_id()\nx[g] = i32(g)\nout[g] = x[p[g]]", 2)  # fmt: skip
    x, out = np.zeros(128, np.int32), np.zeros(128, np.int32)
    k(index(np.arange(128)), x, out)
    assert "of group" in found(k, index(np.arange(128)[::-1]), x, out)


def test_a_lane_and_an_atomic_meet() -> None:
    body = "if p[i] >= 0: atomic_add(c[p[i]], 1)\nelse: c[0] = 5"
    k = kernel("p: i32[64], c: mut i32[64]", body)
    c = np.zeros(64, np.int32)
    k(index(np.zeros(64)), c)
    assert c[0] == 64
    wrong = index(np.zeros(64))
    wrong[9] = -1
    assert "was updated by an atomic" in found(k, wrong, c)


@pytest.mark.parametrize(("scope", "wrong"), [("device", False), ("group", True)])
def test_the_scope_of_an_atomic(scope: str, wrong: bool) -> None:
    """Where the element is data: otherwise the compiler says it."""
    k = kernel("p: i32[64], c: mut i32[1]", f'atomic_add(c[p[i]], 1, scope="{scope}")', 3)
    p, c = np.zeros(64, np.int32), np.zeros(1, np.int32)
    if wrong:
        assert 'write `scope="device"`' in found(k, p, c)
        with pytest.raises(tessera.TesseraError, match="T0414"):
            kernel("c: mut i32[1]", f'atomic_add(c[0], 1, scope="{scope}")', 3)
    else:
        k(p, c)
        assert c[0] == 192


PASSED_ON = """
@kernel tile[(64,)] grid[(3,)]
def k(x: mut i32[n], flag: mut i32[4], out: mut i32[n]):
    i = tile_linear_id()
    g = group_linear_id()
    if g > 0 and i == 0:
        while atomic_load(flag[g], {acquire}) == 0:
            pass
    tbarrier()
    before = x[(g - 1) * 64 + i] if g > 0 else i32(0)
    x[g * 64 + i] = before + 1
    tbarrier()
    if i == 0:
        atomic_store(flag[g + 1], 1, {release})
    out[g * 64 + i] = before
"""


def test_release_and_acquire_order_groups() -> None:
    both = {"acquire": 'order="acquire"', "release": 'order="release"'}
    x, flag, out = (np.zeros(n, np.int32) for n in (192, 4, 192))
    tessera.compile(PASSED_ON.format(**both), target="cpu").k(x, flag, out)
    assert out.tolist() == [0] * 64 + [1] * 64 + [2] * 64
    relaxed = {"acquire": 'order="relaxed"', "release": 'order="relaxed"'}
    with pytest.raises(tessera.TesseraError, match="T0414"):
        tessera.compile(PASSED_ON.format(**relaxed), target="cpu")
    own = "x[g * 64 + i]"
    by_data = PASSED_ON.format(**relaxed).replace(f"{own} =", f"x[g * 64 + i + {own}] =")
    x, flag, out = (np.zeros(n, np.int32) for n in (192, 4, 192))
    k = tessera.compile(by_data, target="cpu").k
    assert "of group 1 reads x[" in found(k, x, flag, out)


def test_a_loop_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera_backend.cpu.checked.checked_launch.MOST_WAITS", 1000)
    k = kernel("flag: mut i32[1]", "while atomic_load(flag[0]) == 0:\n    pass")
    assert "a loop does not end" in found(k, np.zeros(1, np.int32))
    k(np.ones(1, np.int32))


def test_an_index_that_leaves_64_bits() -> None:
    k = kernel("x: f32[n], out: mut f32[n], far: index",
               "j = i * far\nif j < n and j >= 0: out[i] = x[j]")  # fmt: skip
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    k(x, out, 1)
    assert out.all()
    assert "an index leaves 64 bits" in found(k, x, out, 2**62)


def test_an_index_that_wraps_in_a_loop() -> None:
    body = "j = i\nfor t in range(3):\n    j += by\n    if 0 <= j < n: out[i] = x[j]"
    k = kernel("x: f32[n], out: mut f32[n], by: index", body)
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    k(x, out, 1)
    assert "an index leaves 64 bits" in found(k, x, out, 2**62)
    other = kernel("out: mut i64[64], by: i64", "out[i] = i64(i) * by")
    other(np.zeros(64, np.int64), 2**62)  # a number, and no index


def test_a_narrow_number_that_wraps_and_is_an_index() -> None:
    """It would be an element that exists; an unsigned number may wrap."""
    body = "j = {dtype}(i) * far + {dtype}(0)\nout[i] = x[j{after}]"
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    signed = kernel("x: f32[n], out: mut f32[n], far: i32", body.format(dtype="i32", after=""))
    signed(x, out, 1)
    assert "an index leaves 32 bits" in found(signed, x, out, 1 << 28)
    hashed = kernel("x: f32[n], out: mut f32[n], far: u32",
                    body.format(dtype="u32", after=" % u32(64)"))  # fmt: skip
    hashed(x, out, 2654435761)


def test_bounds_and_assertions_are_reported_as_ever() -> None:
    k = kernel("x: f32[n], out: mut f32[n], at: index", "out[i] = x[i + at]")
    x, out = np.ones(64, np.float32), np.full(64, 5, np.float32)
    with pytest.raises(tessera.TesseraError) as caught:
        k(x, out, 1)
    assert caught.value.diagnostics[0].code == "T0845" and "index 64" in str(caught.value)
    assert out.tolist() == [1.0] * 63 + [0.0]


def test_a_run_says_what_it_has_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.tessera"
    file.write_text(
        "@kernel tile[(32,)] grid[(1,)]\ndef k(out: mut i32[n]):\n    i = tile_linear_id()\n"
        "    if i < n: out[i] = i32(i)\n\nout = op.zeros((5,), i32)\nk(out)\nprint(out)\n"
    )
    assert tesserac(["run", "--checked", str(file)]) == 0
    said = capsys.readouterr()
    assert said.out == "[0, 1, 2, 3, 4]\n"
    assert re.search(r"checked: `k` \d+x", said.err) and "not looked at" in said.err
    assert tesserac(["run", "--checked", "--target", "cuda", str(file)]) == 2
    assert "--checked runs on the CPU" in capsys.readouterr().err


def test_the_first_group_with_a_fault_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that share nothing that is looked at run on all cores."""
    monkeypatch.setenv("TESSERA_LANE_ORDER", "forward")
    monkeypatch.setattr("tessera_backend.cpu.checked.checked_launch.thread_count", lambda: 4)
    body = ("g = grid_tile_linear_id()\ns = tshared.alloc((64,), i32)\ns[i] = 1\ntbarrier()\n"
            "out[g] = s[p[g]]\ntbarrier()\ns[p[g]] = i32(i)")  # fmt: skip
    k = kernel("p: i32[n], out: mut i32[n]", body, groups=40)
    right = index(np.tile(LANES, 40))
    out = np.zeros(2560, np.int32)
    k(right, out)
    assert out.all()
    for wrong in (39, 20, 3):
        right[wrong * 64 + 9] = 8
        assert f"lane 9 of group {wrong} writes s[8]" in found(k, right, out)


AFTER_A_RELEASE = """
@kernel tile[(2,)] grid[(2,)]
def k(x: mut i32[n], flag: mut i32[1], out: mut i32[n]):
    i = tile_linear_id()
    g = group_linear_id()
    if g == 0:
        if x[i] == 0: x[i] = 5
        if i == 0: atomic_store(flag[0], 1, order="release")
    else:
        while atomic_load(flag[0], order="acquire") == 0:
            pass
        out[i] = x[i]
"""


@pytest.mark.parametrize(("order", "wrong"), [("forward", True), ("reverse", False), ("all", True)])
def test_orders_show_what_one_of_them_hides(
    order: str, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane releases what another has not written yet, if that one comes later."""
    monkeypatch.setenv("TESSERA_LANE_ORDER", order)
    k = tessera.compile(AFTER_A_RELEASE, target="cpu").k
    x, flag, out = (np.zeros(n, np.int32) for n in (2, 1, 2))
    if wrong:
        assert "reads x[1], which was written by lane 1 of group 0" in found(k, x, flag, out)
    else:
        k(x, flag, out)
        assert out.tolist() == [5, 5]


def test_a_seed_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_LANE_ORDER", "random")
    monkeypatch.setenv("TESSERA_LANE_SEED", "12")
    k = kernel(THREE, EXCHANGE.format(between=""))
    out = np.zeros(64, np.int32)
    text = found(k, index(LANES), index(LANES[::-1]), out)
    assert "lanes in random order, seed 12" in text
    monkeypatch.setenv("TESSERA_LANE_SEED", "odd")
    with pytest.raises(tessera.TesseraError, match="TESSERA_LANE_SEED"):
        k(index(LANES), index(LANES), out)


def test_what_a_call_leaves_is_of_the_forward_order() -> None:
    """All orders run on what the call was given."""
    k = kernel("out: mut i32[64], last: mut i32[1]",
               'out[i] += 1\natomic_exchange(last[0], i32(i))')  # fmt: skip
    out, last = np.zeros(64, np.int32), np.zeros(1, np.int32)
    k(out, last)
    assert out.tolist() == [1] * 64 and last[0] == 63


def test_arrays_of_a_lane_are_read_after_they_are_written() -> None:
    k = kernel("p: i32[64], out: mut i32[64]",
               "a = tlocal.alloc((4,), i32)\na[p[i]] = 1\nout[i] = a[0]")  # fmt: skip
    out = np.zeros(64, np.int32)
    k(index(np.zeros(64)), out)
    wrong = index(np.zeros(64))
    wrong[9] = 2
    assert "lane 9 of group 0 reads a[0], which nobody has written" in found(k, wrong, out)


def std(name: str) -> Any:
    return tessera.load(f"std.{name}", target="cpu")


def test_no_false_alarm_in_reductions_and_transposition() -> None:
    x = np.random.default_rng(0).standard_normal(3001).astype(np.float32)
    assert np.allclose(np.asarray(std("reduce").sum(x)), x.sum(), atol=1e-3)
    square = x[: 30 * 70].reshape(30, 70)
    assert np.array_equal(np.asarray(std("transpose").transpose(square)), square.T)


@pytest.mark.slow
def test_no_false_alarm_in_the_library() -> None:
    r = np.random.default_rng(0)
    x = r.standard_normal(3001).astype(np.float32)
    assert np.allclose(np.asarray(std("scan").inclusive(x)), np.cumsum(x), atol=1e-3)
    assert np.asarray(std("reduce").argmax(x)) == x.argmax()
    assert np.array_equal(np.asarray(std("sort").sort(x)), np.sort(x))
    words = r.integers(0, 256, 3001).astype(np.uint8)
    counts = np.asarray(std("histogram").histogram(words))
    assert counts.tolist() == np.bincount(words, minlength=256).tolist()
    square = x[: 30 * 70].reshape(30, 70)
    np.asarray(std("stencil").laplace2d(square))
    np.asarray(std("nn").softmax(square))
    product = np.asarray(std("linalg").matmul(square, np.ascontiguousarray(square.T)))
    assert np.allclose(product, square @ square.T, atol=1e-3)
