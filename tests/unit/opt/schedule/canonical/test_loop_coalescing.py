"""Nests that only add to a product as one loop: which they are, and that nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation
from tests.fuzz.test_convolutions import ran

FOR = "tessera.schedule.for"
CONV = """
@op.kernel
def kernel[T: dtype](x: T[ci, h, w], f: T[kh, kw, co, ci]) -> f32[co, h - kh + 1, w - kw + 1]:
    oh = h - kh + 1
    ow = w - kw + 1
    y = op.empty((co, oh, ow), f32)
    for p, m, q in op.tile_range(oh, co, ow, step=(1, 64, 64)):
        acc = op.zeros((64, 64), f32)
        for r in range(kh):
            for s in range(kw):
                for c in op.tile_range(ci, step=32):
                    acc += f[r, s, m:m+64, c:c+32] @ x[c:c+32, p+r+SHIFT, q+s:min(q+64, ow)+s]
        y[m:m+64, p, q:q+64] = acc
    return y
"""


def scheduled(text: str, signature: str, arch: str = "sm_90a") -> tuple[Operation, list[str]]:
    session = Session(overlay={"k.tessera": text})
    machine = session.machine("cuda", arch)
    wanted = session.signature("k.tessera", "kernel", signature)
    made = session.for_machine("k.tessera", "kernel", wanted, machine)
    return made.launches[-1].schedule.operations[0], [d.message for d in made.remarks]


def loops(kernel: Operation) -> list[tuple[str, ...]]:
    return [o.strings("axes") for o in kernel.walk()
            if o.name == FOR and "grid" not in o.strings("mapping")]  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_taps_and_channels_are_one_loop(arch: str, dtype: str) -> None:
    text = CONV.replace("+SHIFT", "")
    kernel, said = scheduled(text, f"x: {dtype}[64, 40, 200], f: {dtype}[3, 3, 64, 64]", arch)
    assert loops(kernel) == [("r_s_c",)]
    assert not kernel.nested("tile.assert")
    assert any("`r`, `s`, `c` run as one" in m for m in said)


def test_the_role_that_moves_tiles_divides_nothing() -> None:
    text = CONV.replace("+SHIFT", "")
    kernel, _ = scheduled(text, "x: bf16[64, 100, 600], f: bf16[3, 3, 64, 64]")
    (loop,) = (o for o in kernel.walk() if o.name == FOR and o.strings("axes") == ("r_s_c",))
    assert not loop.nested("tile.floordiv")
    assert len(loop.results) == 4  # the sums, and the places of the channels and taps


def test_long_loops_are_left() -> None:
    text = CONV.replace("+SHIFT", "")
    kernel, _ = scheduled(text, "x: bf16[1024, 40, 200], f: bf16[3, 3, 64, 1024]")
    assert loops(kernel) == [("r",), ("s",), ("c",)]


INNER, S_LOOP = "                    ", "            for s in range(kw):"
OTHERS = {
    "no rectangle": ("for s in range(kw):", "for s in range(r, kw):"),
    "sums that change": ("acc += f", f"acc = acc * 2.0\n{INNER}acc += f"),
    "sums that change between": (S_LOOP, f"            acc = acc * 2.0\n{S_LOOP}"),
}


@pytest.mark.parametrize("changed", OTHERS.values(), ids=OTHERS)
@pytest.mark.sample(1)
def test_other_nests_stay_right(changed: tuple[str, str]) -> None:
    text = CONV.replace("+SHIFT", "").replace(*changed)
    r = np.random.default_rng(1)
    x, f = (r.integers(-2, 3, s).astype(np.float16) for s in ((40, 5, 20), (2, 3, 8, 40)))
    assert same(text, x, f)


def same(text: str, *arrays: Any) -> bool:
    on_cpu, *others = (np.asarray(ran(text, arrays, w)) for w in ("cpu", "sm_90a", "sm_80"))
    return all(np.array_equal(on_cpu, other) for other in others)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("shape", [(0, 2, 2), (40, 0, 3), (40, 2, 0), (1, 1, 1), (65, 3, 2)])
@pytest.mark.sample(1)
def test_loops_that_are_empty(shape: tuple[int, int, int], dtype: type) -> None:
    ci, kh, kw = shape
    r = np.random.default_rng(1)
    x, f = (r.integers(-2, 3, s).astype(dtype) for s in ((ci, 5, 70), (kh, kw, 8, ci)))
    assert same(CONV.replace("+SHIFT", ""), x, f)


@pytest.mark.parametrize("where", ["cpu", "sm_90a", "sm_80"])
@pytest.mark.parametrize("shift", ["+1", "-1"])
@pytest.mark.sample(1)
def test_places_outside_are_still_found(where: str, shift: str) -> None:
    """``p + r + 1`` is a row behind the last one; nothing says that it is not."""
    x, f = np.ones((32, 5, 70), np.float16), np.ones((2, 2, 8, 32), np.float16)
    with pytest.raises(TesseraError):
        ran(CONV.replace("+SHIFT", shift), (x, f), where)
