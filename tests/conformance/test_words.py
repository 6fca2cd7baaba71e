"""What the cases of the documents say in words (``also``, ``emits``), each as a test."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import BufferType, Program
from tessera_lang.target.backend import TargetOptions
from tests.conformance.test_conformance import CASES, compare, numpy_dtype, source_of

pytestmark = pytest.mark.skipif(not CASES, reason="no conformance folder")
TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def random(rng: np.random.Generator, *shape: int, dtype: str = "f32") -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(numpy_dtype(dtype))


def module(source: str, target: str) -> Any:
    return tessera.compile(source, target=target)


# --- also ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tile_size", [16, 48])
@pytest.mark.sample(1)
def test_tiled_matmul_with_other_tiles(target: str, tile_size: int) -> None:
    k = module(source_of("tiled_matmul"), target).tiled_matmul
    rng = np.random.default_rng(0)
    for m, n, depth in ((32, 32, 32), (33, 65, 31), (1, 1, 1), (100, 50, 200)):
        a, b, c = random(rng, m, depth), random(rng, depth, n), random(rng, m, n)
        before = {"A": a.copy(), "B": b.copy(), "C": c.copy()}
        k(a, b, c, tile_size=tile_size)
        compare(c, "C + A @ B", before, {"check": {}}, {}, "f32")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tile_size", [8, 16, 64])
def test_an_accumulation_is_rounded_once(target: str, tile_size: int) -> None:
    """Rounded at each of the 64 steps, 256 + 0.5 would be 256 for ever."""
    k = module(source_of("tiled_matmul"), target).tiled_matmul
    bf16 = numpy_dtype("bf16")
    a, b = np.full((16, 1024), 1 / 32, bf16), np.full((1024, 16), 1, bf16)
    c = np.full((16, 16), 256, bf16)
    k(a, b, c, tile_size=tile_size)
    assert (c.astype(np.float32) == 288).all()


@pytest.mark.parametrize("target", TARGETS)
def test_inner_sizes_that_differ_are_refused(target: str) -> None:
    k = module(source_of("tiled_matmul"), target).tiled_matmul
    a, b, c = (np.zeros(s, np.float32) for s in ((32, 16), (17, 32), (32, 32)))
    with pytest.raises(tessera.TesseraError) as caught:
        k(a, b, c)
    text = str(caught.value)
    for word in ("`A.shape[1]`", "`B.shape[0]`", "16", "17", "<source>:"):
        assert word in text, text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.sample(1)
def test_pipelined_attention_block_by_block(target: str, dtype: str) -> None:
    source = source_of("pipelined_attention").replace("Q, K, V, block", "Q, K, V, O, block")
    source = source.rstrip("\n") + "\n        O[start:start+block] = out\n"
    k = module(source, target).pipelined_attention
    rng = np.random.default_rng(0)
    for s, d in ((128, 64), (300, 32)):
        q, key, v = (random(rng, s, d, dtype=dtype) for _ in range(3))
        o = np.full((s, d), np.nan, numpy_dtype(dtype))
        k(q, key, v, o)
        for start in range(0, s, 128):
            rows = slice(start, start + 128)
            a, b, c = (x[rows].astype(np.float64) for x in (q, key, v))
            e = np.exp(a @ b.T - (a @ b.T).max(axis=1, keepdims=True))
            want = e / e.sum(axis=1, keepdims=True) @ c
            error = np.linalg.norm(o[rows].astype(np.float64) - want) / np.linalg.norm(want)
            assert error < (1e-5 if dtype == "f32" else 2e-2)


# --- emits -----------------------------------------------------------------------------------


class Compiled:
    """One kernel of a case for an architecture: its Tile IR, PTX and remarks."""

    def __init__(self, case: str, kernel: str, signature: str, arch: str) -> None:
        session = Session(overlay={"case.tessera": source_of(case)})
        path = "case.tessera"
        wanted = session.signature(path, kernel, signature)
        machine = session.machine("cuda", arch)
        made = session.for_machine(path, kernel, wanted, machine)
        self.remarks = " ".join(d.message for d in made.remarks)
        self.program: Program = session.tile(path, kernel, wanted, machine)[0]
        options = TargetOptions("cuda", machine.arch)
        artifact = session.compile_kernel(path, kernel, wanted, options, ("ptx",))
        self.ptx: str = artifact.texts["ptx"]
        self.resources = artifact.resources

    def buffers(self) -> list[BufferType]:
        values = (v for o in self.program.walk() for v in o.results)
        return [v.type for v in values if isinstance(v.type, BufferType)]

    def count(self, pattern: str) -> int:
        return len(re.findall(pattern, self.ptx))


ASYNCHRONOUS = r"cp\.async\.(?:c[ag]\.shared|bulk\.tensor)"
MATRIX_UNITS = r"\b(?:mma\.sync|wgmma\.mma_async)"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_vec_add_moves_16_bytes_a_lane(arch: str) -> None:
    arrays = ", ".join(f"{x}: f32[1048576]" for x in "ABC")
    made = Compiled("vec_add", "vec_add", arrays, arch)
    assert made.count(r"ld\.global[.\w]*\.v4\.(?:f32|b32|u32)") >= 2
    assert made.count(r"st\.global[.\w]*\.v4\.(?:f32|b32|u32)") >= 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.sample(2)
def test_matmul_schedule_stages_with_a_pitch(dtype: str, arch: str) -> None:
    shapes = f"A: {dtype}[1024, 1024], B: {dtype}[1024, 1024], C: {dtype}[1024, 1024]"
    made = Compiled("matmul_schedule", "matmul", shapes, arch)
    assert len(made.buffers()) >= 2, "A and B are staged in shared memory"
    assert made.count(ASYNCHRONOUS)
    layouts = [b.layout for b in made.buffers() if b.layout is not None]
    padded = [x for x in layouts if x.pitch > x.panel]
    assert padded or "padding" in made.remarks


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_flash_attention_schedule_is_one_kernel(dtype: str, size: int) -> None:
    """Nothing of the size of the scores is in memory. Of three stages a remark says where they do
    not fit."""
    session = Session(overlay={"case.tessera": source_of("flash_attention_schedule")})
    shapes = ", ".join(f"{x}: {dtype}[4096, {size}]" for x in "QKV")
    wanted = session.signature("case.tessera", "attention", shapes)
    made = session.for_machine(
        "case.tessera", "attention", wanted, session.machine("cuda", "sm_90")
    )
    assert made.lowered is not None and len(made.launches) == 1
    _, plan = made.lowered
    assert not any(slot.kind == "scratch" for slot in plan.slots), plan.slots
    stages = {o.attributes.get("stages") for o in made.schedule.walk() if o.name.endswith(".load")}
    remarks = [d.message for d in made.remarks if "pipeline_stages(3)" in d.message]
    assert 3 in stages or any("232448" in text for text in remarks), stages


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_pipeline_prefetch_mma_is_double_buffered(dtype: str, arch: str) -> None:
    shapes = f"A: {dtype}[512, 1024], B: {dtype}[1024, 384], C: {dtype}[512, 384]"
    made = Compiled("pipeline_prefetch_mma", "gemm", shapes, arch)
    rings = [b for b in made.buffers() if len(b.shape) == 3 and b.shape[0] == 2]
    assert len(rings) >= 2, "two shared buffers an operand"
    assert made.count(ASYNCHRONOUS)
    assert made.count(MATRIX_UNITS)
