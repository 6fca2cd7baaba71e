"""Loops taken apart where a condition is known: which forms are, and that no result changes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.cpu.interpreter.launch import launch

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation
from tests.unit.opt.schedule.decided import from_source

FOR, DOT = "tessera.schedule.for", "tessera.schedule.dot"
ATTENTION = """\
@op.kernel
def kernel(q: bf16[h, s, d], k: bf16[h, t, d], v: bf16[h, t, d], w: i32) -> f32[h, s, d]:
    o = op.empty((h, s, d), f32)
    for hi, i in op.tile_range(h, s, step=(1, 64)):
        top = op.full((64,), -1000000.0, f32)
        total = op.zeros((64,), f32)
        acc = op.zeros((64, d), f32)
        rows = i + op.arange(64)
        for j in {range}:
            columns = j + op.arange(64)
            x = q[hi, i:i+64, :] @ k[hi, j:j+64, :].T
            {mask}
            new = max(top, op.max(x, axis=1))
            p = exp(x - new[:, None])
            shrink = exp(top - new)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p.to(bf16) @ v[hi, j:j+64, :]
            top = new
        o[hi, i:i+64, :] = acc / total[:, None]
    return o
"""
ALL, UP_TO = "op.tile_range(t, step=64)", "op.tile_range(min(t, i + 64), step=64)"
FORMS = {
    # the loop, the mask, what is seen, and how many loops it becomes
    "where": (UP_TO, "x = op.where(rows[:, None] >= columns[None, :], x, -inf)",
              lambda r, c, w: r >= c, 2),
    "causal": (ALL, "x = op.causal(x, row=i, column=j)", lambda r, c, w: r >= c, 2),
    "the other arm": (UP_TO, "x = op.where(rows[:, None] < columns[None, :], -inf, x)",
                      lambda r, c, w: r >= c, 2),
    "added": (UP_TO, "x = x + op.where(columns[None, :] > rows[:, None], -inf, 0.0)",
              lambda r, c, w: r >= c, 2),
    "window": (ALL, "x = op.where((columns[None, :] <= rows[:, None]) & "
               "(columns[None, :] + w > rows[:, None]), x, -inf)",
               lambda r, c, w: (c <= r) & (c + w > r), 3),
    "an end of the call": ("op.tile_range(min(t, i + 64 + w), step=64)",
                           "x = op.where(columns[None, :] <= rows[:, None] + w, x, -inf)",
                           lambda r, c, w: c <= r + w, 2),
    "far": (ALL, "x = op.where(columns[None, :] + w < rows[:, None], x, -30.0)",
            lambda r, c, w: None, 2),
    "not affine": (ALL, "x = op.where(rows[:, None] * columns[None, :] >= 0, x, -inf)",
                   lambda r, c, w: r >= -1 + 0 * c, 1),
    "none": (ALL, "x = x", lambda r, c, w: r >= -1 + 0 * c, 1),
}  # fmt: skip
SIZES = "q: bf16[{h}, {s}, 64], k: bf16[{h}, {t}, 64], v: bf16[{h}, {t}, 64], w: i32"


def text(name: str) -> str:
    return ATTENTION.format(range=FORMS[name][0], mask=FORMS[name][1])


def arguments(h: int, s: int, t: int) -> tuple[Any, ...]:
    r = np.random.default_rng(h + s + t)
    return tuple(
        (r.standard_normal((h, n, 64)) * 0.3).astype(ml_dtypes.bfloat16) for n in (s, t, t)
    )


def reference(name: str, q: Any, k: Any, v: Any, w: int) -> Any:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    x = q @ k.swapaxes(1, 2)
    rows, columns = np.arange(x.shape[1])[:, None], np.arange(x.shape[2])[None, :]
    if name == "far":
        x = np.where(columns + w < rows, x, -30.0)
    else:
        seen = FORMS[name][2](rows, columns, w)
        x = np.where(seen, x, -np.inf)
    e = np.exp(x - x.max(axis=2, keepdims=True))
    return e @ v / e.sum(axis=2, keepdims=True)


def loops(kernel: Operation) -> list[Operation]:
    found = [o for o in kernel.walk() if o.name == FOR and "grid" not in o.strings("mapping")]
    return [o for o in found if o.holds(DOT)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", FORMS)
def test_loops_of_each_form(name: str) -> None:
    found = from_source(text(name), SIZES.format(h=4, s=2048, t=2048))
    made = loops(found.schedule.operations[0])
    assert len(made) == FORMS[name][3]
    whole = [o for o in made if not o.attributes.get("remainder")]
    assert len(whole) == 1
    if FORMS[name][3] > 1:
        assert not any(o.name in ("tile.cmp", "tile.select") for o in whole[0].walk())
    said = [x.message for x in found.remarks if "holds for whole tiles" in x.message]
    assert bool(said) is (FORMS[name][3] > 1)
    if name == "an end of the call":  # which nobody knows, and most iterations are before it
        assert any("the products of this loop overlap" in x.message for x in found.remarks)
    stays = [x.message for x in found.remarks if "in every iteration of the loop" in x.message]
    assert bool(stays) is (name == "not affine")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("h", "s", "t", "w"), [(1, 256, 256, 100), (2, 200, 330, 64)])
@pytest.mark.sample(1)
def test_they_give_what_one_loop_gives(name: str, h: int, s: int, t: int, w: int) -> None:
    q, k, v = arguments(h, s, t)
    wanted = reference(name, q, k, v, w)
    found = tessera.compile(text(name), target="cpu").kernel(q, k, v, w)
    np.testing.assert_allclose(np.asarray(found), wanted, atol=2e-2)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.sample(1)
def test_code_for_a_gpu_gives_the_same(name: str) -> None:
    """On the machine in which everything asynchronous comes as late as possible."""
    h, s, t, w = 1, 128, 192, 70
    session = Session(overlay={"kernel.tessera": text(name)})
    shapes = SIZES.format(h=h, s=s, t=t)
    wanted = session.signature("kernel.tessera", "kernel", shapes)
    machine = session.machine("cuda", "sm_90a")
    program, plan = session.tile("kernel.tessera", "kernel", wanted, machine)
    q, k, v = arguments(h, s, t)
    (out,) = launch(program, plan, q, k, v, w)
    np.testing.assert_allclose(out, reference(name, q, k, v, w), atol=2e-2)


BRANCHES = """\
@op.kernel
def kernel(x: f32[n, m], w: i32) -> f32[n, 64]:
    out = op.empty((n, 64), f32)
    for i in op.tile_range(n, step=64):
        a = op.zeros((64, 64), f32)
        for j in op.tile_range(m, step=64):
            t = x[i:i+64, j:j+64]
            if j {test} i + w:
                a = a + t * 2.0
            else:
                a = a - t
        out[i:i+64, :] = a
    return out
"""


@pytest.mark.parametrize("test", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("w", [-1000, -64, -1, 0, 1, 63, 64, 1000])
@pytest.mark.sample(10)
def test_a_branch_is_taken_out(test: str, w: int) -> None:
    r = np.random.default_rng(0)
    x = r.integers(-50, 50, (256, 256)).astype(np.float32)
    wanted = np.zeros((256, 64), np.float32)
    for i in range(0, 256, 64):
        for j in range(0, 256, 64):
            t = x[i : i + 64, j : j + 64]
            true = {"<": j < i + w, "<=": j <= i + w, ">": j > i + w, ">=": j >= i + w}[test]
            wanted[i : i + 64] += t * 2 if true else -t
    found = tessera.compile(BRANCHES.format(test=test), target="cpu").kernel(x, w)
    np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize(
    ("dtype", "test", "w"),
    [
        ("i64", "<=", -(2**63)), ("i64", ">", 2**63 - 320), ("i64", ">=", 2**63 - 320),
        ("i64", "<", -(2**63)), ("i32", "<=", -(2**31)), ("i32", ">", 2**31 - 1),
    ],
)  # fmt: skip
@pytest.mark.sample(3)
def test_limits_that_do_not_fit_are_left_alone(dtype: str, test: str, w: int) -> None:
    """``i + w`` fits 64 bits; the first iteration in which it is passed need not."""
    text = BRANCHES.replace("w: i32", f"w: {dtype}").format(test=test)
    x = np.random.default_rng(0).integers(-50, 50, (256, 256)).astype(np.float32)
    true = test.startswith("<") is (w > 0)
    sums = x.reshape(256, 4, 64).sum(1)
    found = tessera.compile(text, target="cpu").kernel(x, w)
    np.testing.assert_array_equal(np.asarray(found), sums * 2 if true else -sums)


def test_a_branch_leaves_no_condition() -> None:
    found = from_source(BRANCHES.format(test="<"), "x: f32[65536, 4096], w: i32")
    made = [o for o in found.schedule.operations[0].walk() if o.name == FOR]
    assert len(made) == 3
    assert not any(o.name == "tile.if" for o in found.schedule.operations[0].walk())
