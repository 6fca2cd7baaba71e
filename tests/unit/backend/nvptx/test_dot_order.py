"""Products by multiply-adds: operands are read when they are needed, not all of them first."""

from __future__ import annotations

import itertools
import re

import pytest
from tessera_backend.nvptx.backend import CudaBackend

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.machine import machine_named

PATH = "m.tessera"
CLIPPED = """
@op.kernel
def f(A: {dtype}[m, k], B: {dtype}[k, n], C: {dtype}[n, e], O: mut {dtype}[m, e]):
    for i in op.tile_range(m, step={rows}):
        acc = op.zeros(({rows}, 64), {dtype})
        for p in range(0, k, 32):
            acc += A[i:i+{rows}, p:p+32] @ B[p:p+32, 0:64]
        for y in op.tile_range(e, step=40):
            O[i:i+{rows}, y:y+40] = acc @ C[0:64, y:y+40]
"""
"""The second product is stored under conditions: each row and column may lie beyond the end."""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("rows", [32, 64])
@pytest.mark.sample(1)
def test_reads_stay_beside_the_multiply_adds(dtype: str, rows: int) -> None:
    text = ptx_of(CLIPPED.format(dtype=dtype, rows=rows))
    kinds = re.findall(r"ld\.(?:volatile\.)?shared|\bfma\.rn", text)
    longest, run = 0, 0
    for kind in kinds:
        run = run + 1 if kind.startswith("ld") else 0
        longest = max(longest, run)
    assert len(kinds) > 200
    assert longest <= 64, f"{longest} reads of operands before any of them is used"


@pytest.mark.parametrize("second", ["b", "b.T"])
@pytest.mark.sample(1)
def test_each_multiply_add_has_a_factor_of_the_one_before(second: str) -> None:
    """A lane reads two registers in a cycle; the third it must have kept."""
    text = f"""
@op.kernel
def f(a: f32[m, k], b: f32[{"k, n" if second == "b" else "n, k"}]) -> f32[m, n]:
    schedule.tile((128, 256, 16))
    return a @ {second}
"""
    session = Session(overlay={PATH: text})
    signature = session.signature(PATH, "f", "a: f32[4096, 4096], b: f32[4096, 4096]")
    made = session.for_machine(PATH, "f", signature, machine_named("cuda", "sm_90a"))
    assert made.lowered is not None
    options = TargetOptions("cuda", "sm_90a")
    ptx = CudaBackend().compile(*made.lowered, options, ("ptx",)).texts["ptx"]
    factors = re.findall(r"fma\.rn\.f32\s+\S+, (\S+), (\S+), \S+;", ptx)
    kept = sum(a == c or b == d for (a, b), (c, d) in itertools.pairwise(factors))
    assert len(factors) >= 2048 and kept > 0.95 * len(factors)


@pytest.mark.parametrize("depth", [64, 128])
def test_products_of_a_loop_are_no_more_code_than_its_cache_holds(depth: int) -> None:
    """Two products, of which each alone might be written out, in one loop: the instructions of an
    iteration that are more than the cache of instructions come from memory, each time."""
    text = f"""
@op.kernel
def f(A: f32[m, {depth}], B: f32[k, {depth}], C: f32[k, 128], O: mut f32[m, 128]):
    for i in op.tile_range(m, step=64):
        acc = op.zeros((64, 128), f32)
        for p in range(0, k, 64):
            acc += op.exp(A[i:i+64, :] @ B[p:p+64, :].T) @ C[p:p+64, :]
        O[i:i+64, :] = acc
"""
    assert len(re.findall(r"\bfma\.rn\.f32", ptx_of(text))) < 4096


def ptx_of(text: str) -> str:
    session = Session(overlay={PATH: text})
    machine = machine_named("cuda", "sm_90a")
    given = re.findall(r"\w+: (?:mut )?\w+\[[^\]]*\]", text)
    sizes = {"m": "1000", "n": "64", "k": "1000", "e": "1000"}
    shapes = ", ".join(
        re.sub(r"\b([mnke])\b(?=[,\]])", lambda x: sizes[x.group(1)], g.replace("mut ", ""))
        for g in given
    )
    signature = session.signature(PATH, "f", shapes)
    made = session.for_machine(PATH, "f", signature, machine)
    assert made.lowered is not None
    options = TargetOptions("cuda", "sm_90a")
    return CudaBackend().compile(*made.lowered, options, ("ptx",)).texts["ptx"]
