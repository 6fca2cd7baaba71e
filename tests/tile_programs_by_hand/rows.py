"""Whole arrays of which each row is needed several times."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Array, Program, of, rows_softmax


def _layernorm(x: Array) -> Array:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


NORM = Program(
    "layernorm of a whole array", 0, """
@op.kernel
def kernel(x: bf16[m, n], w: bf16[n], b: bf16[n]) -> bf16[m, n]:
    d = x.to(f32) - op.mean(x.to(f32), axis=1)[:, None]
    scale = 1.0 / math.sqrt(op.mean(d * d, axis=1) + 1e-5)[:, None]
    return (d * scale * w[None, :].to(f32) + b[None, :].to(f32)).to(bf16)
""",
    of(x=("bf16", "m n"), w=("bf16", "n"), b=("bf16", "n")),
    lambda a: of(result=_layernorm(a["x"]) * a["w"] + a["b"]),
    of(m=3, n=1500), of(m=4096, n=8192),
)  # fmt: skip

LONG = Program(
    "softmax of a whole array of long rows", 0, """
@op.kernel
def kernel(x: f32[m, n]) -> f32[m, n]:
    return op.softmax(x * 8.0)
""",
    of(x=("f32", "m n")),
    lambda a: of(result=rows_softmax(a["x"] * 8.0)),
    of(m=3, n=40000), of(m=1024, n=40000),
)  # fmt: skip

PROGRAMS = (NORM, LONG)
