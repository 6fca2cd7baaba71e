"""Two groups of one consumer beside each other: where lanes work between products."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

CAUSAL = """\
@op.kernel
def kernel(x: bf16[b, n, c3]) -> f32[b, n, c3 // 3] where c3 % 6 == 0:
    c = c3 // 3
    y = op.empty((b, n, c), f32)
    d = c // 2
    for z, h, i in op.tile_range(b, 2, n, step=(1, 1, 64)):
        q = x[z, i:i+64, h*d:h*d+d]
        top = op.full((64,), -inf, f32)
        total = op.zeros((64,), f32)
        acc = op.zeros((64, d), f32)
        for j in range(0, min(i + 64, n), 64):
            s = op.causal((q @ x[z, j:j+64, c+h*d:c+h*d+d].T) * 0.125, row=i, column=j)
            new = max(top, op.max(s, axis=1))
            p = exp(s - new[:, None])
            shrink = exp(top - new)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p.to(bf16) @ x[z, j:j+64, 2*c+h*d:2*c+h*d+d]
            top = new
        y[z, i:i+64, h*d:h*d+d] = acc / total[:, None]
    return y
"""
PRODUCT = """\
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n]) -> f32[m, n]:
    out = op.empty((m, n), f32)
    schedule.warps(4)
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+64, p:p+64] @ b[p:p+64, j:j+64]
        out[i:i+64, j:j+64] = acc
    return out
"""


def attributes(text: str, sizes: str) -> dict[str, Any]:
    return dict(from_source(text, sizes).schedule.operations[0].attributes)


@pytest.mark.sample(1)
@pytest.mark.parametrize("d", [32, 64, 96])
def test_half_of_everything(d: int) -> None:
    made = from_source(CAUSAL, f"x: bf16[128, 512, {6 * d}]")
    kernel = made.schedule.operations[0]
    assert kernel.attributes["residents"] == 2
    producer, consumer = kernel.integers("registers")
    assert 2 * 128 * (producer + consumer) <= 65536
    staged = [o for o in kernel.walk() if "stages" in o.attributes]
    taken: dict[Any, int] = {}
    for o in staged:
        t = o.result.tile_type
        bytes_ = t.dtype.bytes * int(np.prod(t.sizes)) * o.integer("stages")
        taken[o.attributes.get("ring", id(o))] = bytes_
    assert 2 * sum(taken.values()) < 227 * 1024
    assert made.lowered is not None
    assert made.lowered[0].operations[0].attributes["registers"] == 128


@pytest.mark.sample(1)
@pytest.mark.parametrize(("text", "sizes"), [
    (PRODUCT, "a: bf16[4096, 4096], b: bf16[4096, 4096]"),
    (CAUSAL, "x: bf16[2, 512, 576]"),
    (CAUSAL, "x: bf16[128, 512, 1536]"),
])  # fmt: skip
def test_products_alone_few_tiles_and_large_sums(text: str, sizes: str) -> None:
    found = attributes(text, sizes)
    assert found["roles"] == (4, 4)
    assert "residents" not in found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_other_machines(arch: str) -> None:
    found = from_source(CAUSAL, "x: bf16[128, 512, 576]", arch).schedule.operations[0]
    assert "residents" not in found.attributes


def test_loops_that_grow_are_not_taken_for_one_iteration() -> None:
    """Their rings have places for more, and their products overlap."""
    made = from_source(CAUSAL, "x: bf16[128, 512, 576]")
    stages = [o.integer("stages") for o in made.schedule.operations[0].walk()
              if "stages" in o.attributes]  # fmt: skip
    assert max(stages) >= 3
    assert any("products of this loop overlap" in r.message for r in made.remarks)


@pytest.mark.parametrize("target", ["sm_90a", GPU])
@pytest.mark.parametrize("shape", [(70, 128), (140, 64)])
@pytest.mark.sample(1)
def test_causal_attention(shape: tuple[int, int], target: str) -> None:
    b, n = shape
    g = np.random.default_rng(n)
    x = g.standard_normal((b, n, 96)).astype(ml_dtypes.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = np.asarray(loaded(CAUSAL, target).kernel(x)).astype(float)
    q, k, v = (y.reshape(b, n, 2, 16).transpose(0, 2, 1, 3)
               for y in np.split(x.astype(float), 3, -1))  # fmt: skip
    s = np.where(np.tri(n), q @ k.swapaxes(-1, -2) * 0.125, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    want = (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(b, n, 32)
    assert np.linalg.norm(got - want) <= 5e-3 * np.linalg.norm(want)
