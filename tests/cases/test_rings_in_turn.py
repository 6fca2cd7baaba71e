"""Loops that follow or exclude each other, whose tiles have no room for rings of their own: the
rings take the same bytes, and whoever fills them waits until the one before is empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.launch import launch

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.lower.schedule_to_tile.hopper.producer_pipeline import Producer

pytest.importorskip("llvmlite")

Array = np.ndarray[Any, np.dtype[Any]]
HEAD = """
@op.kernel
def k(a: bf16[m, p], b: bf16[p, n], c: bf16[m, q], d: bf16[q, n], e: i32[m]) -> f32[m, n]:
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
{}
        out[i:i+128, j:j+128] = acc
    return out
"""
FIRST = """
for x in op.tile_range(p, step=128):
    acc += a[i:i+128, x:x+128] @ b[x:x+128, j:j+128]"""
SECOND = """
for y in op.tile_range(q, step=128):
    acc += c[i:i+128, y:y+128] @ d[y:y+128, j:j+128]"""
AGAIN = """
for z in op.tile_range(p, step=128):
    acc += a[i:i+128, z:z+128] @ b[z:z+128, j:j+128].to(f32).to(bf16)"""


def indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.strip("\n").splitlines())


def arm(head: str, text: str) -> str:
    return f"{head}\n{indented(text, 4)}"


FORMS = {
    "two loops": (FIRST + SECOND, 1, "both"),
    "three loops": (FIRST + SECOND + AGAIN, 2, "both"),
    "arms": (arm("if e[i] > 0:", FIRST) + "\n" + arm("else:", SECOND), 1, "one"),
    "an arm between": (FIRST + "\n" + arm("if e[i] > 0:", SECOND) + AGAIN, 2, "perhaps"),
    "in a loop": (arm("for r in range(2):", FIRST + SECOND), 2, "twice"),
}
"""Loops, how often the first product is in the sum, and how the second."""


def right(form: str, x: Array, y: Array, e: Array) -> Array:
    _, times, second = FORMS[form]
    if second == "one":
        return np.where(e, x, y)
    return times * x + {"both": y, "twice": 2 * y, "perhaps": np.where(e, y, 0)}[second]


SIGNATURE = ", ".join([*(f"{name}: bf16[1024, 1024]" for name in "abcd"), "e: i32[1024]"])


def source(form: str) -> str:
    return HEAD.format(indented(FORMS[form][0], 8))


def compared(form: str, target: str, sizes: tuple[int, int, int, int]) -> None:
    import ml_dtypes

    m, n, p, q = sizes
    kernel = tessera.compile(source(form), target=target).k  # type: ignore[arg-type]
    r = np.random.default_rng(5)
    a, b, c, d = (
        r.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for s in ((m, p), (p, n), (m, q), (q, n))
    )
    e = np.repeat(r.integers(0, 2, -(-m // 128)), 128)[:m].astype(np.int32)
    x, y = (s.astype(np.float32) @ t.astype(np.float32) for s, t in ((a, b), (c, d)))
    np.testing.assert_array_equal(kernel(a, b, c, d, e), right(form, x, y, e[:, None] > 0))


@pytest.mark.parametrize("sizes", [(200, 136, 520, 264), (128, 256, 128, 1032)])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(1)
def test_rings_that_take_turns(
    form: str, sizes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", "sm_90a")
    compared(form, "cpu", sizes)


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
def test_rings_that_take_turns_on_a_gpu(form: str) -> None:
    compared(form, "cuda", (2000, 2056, 1032, 776))


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", FORMS)
def test_every_product_has_a_ring(form: str) -> None:
    session = Session(overlay={"k.tessera": source(form)})
    machine = session.machine("cuda", "sm_90a")
    made = session.for_machine(
        "k.tessera", "k", session.signature("k.tessera", "k", SIGNATURE), machine
    )
    kernel = made.schedule.operations[0]
    loads = [o for o in kernel.walk() if o.attributes.get("stage") == "shared"]
    assert kernel.attributes.get("turns") and len(loads) >= 4
    assert all(o.integer("stages") >= 2 for o in loads)


def in_orders(form: str) -> list[str]:
    """What is wrong in each of some orders of events."""
    import ml_dtypes

    session = Session(overlay={"k.tessera": source(form)})
    machine = session.machine("cuda", "sm_90a")
    wanted = session.signature("k.tessera", "k", SIGNATURE)
    program, plan = session.tile("k.tessera", "k", wanted, machine)
    r = np.random.default_rng(5)
    m, n, p, q = 128, 128, 520, 392
    a, b, c, d = (
        r.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for s in ((m, p), (p, n), (m, q), (q, n))
    )
    e = np.ones(m, np.int32)
    x, y = (s.astype(np.float32) @ t.astype(np.float32) for s, t in ((a, b), (c, d)))
    sums = right(form, x, y, e[:, None] > 0)
    found: list[str] = []
    for seed in (None, *range(4)):
        try:
            (got,) = launch(program, plan, a, b, c, d, e, seed=seed, most=1)
        except AsynchronousFault as fault:
            found.append(str(fault))
        else:
            found.append("" if np.array_equal(np.asarray(got), sums) else "other numbers")
    return found


@pytest.mark.parametrize("form", ["three loops", "in a loop"])
@pytest.mark.sample(1)
def test_a_turn_that_is_not_waited_for_is_found(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(in_orders(form))

    def at_once(*_: object) -> None: ...

    monkeypatch.setattr(Producer, "_drain", at_once)
    assert any(in_orders(form))


def test_what_lanes_wrote_the_copy_engine_may_overwrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that lanes gather, then tiles of another loop at the same place; and once more."""
    import ml_dtypes

    monkeypatch.setenv("TESSERA_ARCH_AS", "sm_90a")
    first = FIRST.replace("a[i:i+128,", "a[e[i:i+128],")
    text = HEAD.format(indented(first + SECOND + first, 8))
    r = np.random.default_rng(5)
    a, b, c, d = (
        r.integers(-2, 3, s).astype(ml_dtypes.bfloat16)
        for s in ((128, 264), (264, 128), (128, 392), (392, 128))
    )
    rows = r.integers(0, 128, 128).astype(np.int32)
    got = tessera.compile(text, target="cpu").k(a, b, c, d, rows)
    x, y, z, w = (v.astype(np.float32) for v in (a, b, c, d))
    np.testing.assert_array_equal(got, 2 * (x[rows] @ y) + z @ w)
