"""The machine code of the kernels that are to be fast: the units they use, and nothing spilled.

SASS needs a disassembler (nvdisasm or cuobjdump); machines with a GPU have one with the toolkit.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tessera_backend.nvptx.backend import CudaBackend
from tessera_backend.nvptx.toolchain.nvidia_tools import find_tool

from tessera_lang.driver.modules import standard_library
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import Artifact, TargetOptions
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.backend.nvptx.test_product_reports import N, empty
from tests.unit.lower.schedule_to_tile.test_dtypes import PLAIN, SCALED, TF32, compiled

pytestmark = [
    needs_ptxas,
    pytest.mark.skipif(
        find_tool("nvdisasm") is None and find_tool("cuobjdump") is None,
        reason="no disassembler on this machine",
    ),
]

ATTENTION = """
@op.kernel
def attention(Q: bf16[m, d], K: bf16[n, d], V: bf16[n, d]) -> bf16[m, d]:
    y = op.empty((m, d), bf16)
    for i in op.tile_range(m, step=128):
        top = op.full((128,), -inf, f32)
        total = op.zeros((128,), f32)
        acc = op.zeros((128, d), f32)
        for j in op.tile_range(n, step=128):
            s = Q[i:i+128, :] @ K[j:j+128, :].T * 0.125
            higher = max(top, op.max(s, axis=1))
            w = exp(s - higher[:, None])
            shrink = exp(top - higher)
            total = total * shrink + op.sum(w, axis=1)
            acc = acc * shrink[:, None] + w.to(bf16) @ V[j:j+128, :]
            top = higher
        y[i:i+128, :] = (acc / total[:, None]).to(bf16)
    return y
"""
ROWS = """
@op.kernel
def rows(x: bf16[m, n]) -> bf16[m, n]:
    y = op.empty((m, n), bf16)
    for i in op.tile_range(m, step=1):
        t = x[i:i+1, :].to(f32)
        y[i:i+1, :] = (t / sqrt(op.mean(t * t, axis=1) + 1e-6)[:, None]).to(bf16)
    return y
"""


def library(kernel: str, given: str, module: str = "linalg") -> Artifact:
    folder = standard_library()
    assert folder is not None
    path = str(Path(folder, f"{module}.tessera"))
    return made(Session(), path, kernel, given)


def made(session: Session, path: str, kernel: str, given: str) -> Artifact:
    wanted = session.signature(path, kernel, given)
    return session.compile_kernel(path, kernel, wanted, TargetOptions("cuda", "sm_90a"), ("sass",))


def written(text: str, kernel: str, given: str) -> Artifact:
    return made(Session(overlay={"kernel.tessera": text}), "kernel.tessera", kernel, given)


def instructions(artifact: Artifact) -> Counter[str]:
    """How often each instruction occurs, without its modifiers."""
    found = re.findall(
        r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]+)", artifact.texts["sass"], re.M
    )
    assert found, artifact.texts["sass"][:500]
    return Counter(found)


def nothing_spilled(artifact: Artifact) -> Counter[str]:
    assert not [d.message for d in artifact.diagnostics]
    assert artifact.resources.spill_bytes == 0
    found = instructions(artifact)
    assert not found["LDL"] + found["STL"], "memory of lanes"
    return found


@pytest.mark.parametrize(("dtype", "out"), [("bf16", "bf16"), ("f16", "f16"), ("bf16", "f32")])
@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (8192, 28672, 8192), (2048, 2048, 2048)])
@pytest.mark.sample(1)
def test_products(dtype: str, out: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    found = nothing_spilled(
        library("_matmul", f"OUT={out}, a: {dtype}[{m}, {k}], b: {dtype}[{k}, {n}]")
    )
    assert found["HGMMA"] and found["UTMALDG"] and found["UTMASTG"], found
    assert not found["HMMA"] and not found["FFMA"]


@pytest.mark.parametrize(("text", "dtype", "unit"), [
    (SCALED, "f8e4m3", "QGMMA"), (TF32, "f32", "HGMMA"), (PLAIN, "i8", "IGMMA"),
])  # fmt: skip
@pytest.mark.sample(1)
def test_products_of_other_dtypes(text: str, dtype: str, unit: str) -> None:
    """Both factors with the contraction along lines, as the unit wants them."""
    vectors = [np.empty(N, np.float32)] * (2 if text is SCALED else 0)
    lowered = compiled(text, empty(dtype), empty(dtype).T, *vectors).lowered
    assert lowered is not None
    options = TargetOptions("cuda", "sm_90a")
    found = nothing_spilled(CudaBackend().compile(*lowered, options, ("sass",)))
    assert found[unit] and found["UTMALDG"] and found["UTMASTG"], found


@pytest.mark.parametrize("how", ["none", "relu", "gelu", "silu"])
@pytest.mark.sample(1)
def test_a_product_with_a_bias_and_an_activation(how: str) -> None:
    found = nothing_spilled(library(
        "_linear", f"T=bf16, W=bf16, B=bf16, OUT=bf16, how='{how}', x: bf16[4096, 4096], "
        "w: bf16[4096, 4096], bias: bf16[4096]",
    ))  # fmt: skip
    assert found["HGMMA"] and found["UTMALDG"] and found["UTMASTG"], found


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.sample(1)
def test_attention(d: int) -> None:
    given = ", ".join(f"{name}: bf16[4096, {d}]" for name in "QKV")
    found = nothing_spilled(written(ATTENTION, "attention", given))
    assert found["HGMMA"] and found["UTMALDG"], found


def test_rows() -> None:
    found = nothing_spilled(written(ROWS, "rows", "x: bf16[8192, 8192]"))
    assert found["STG"] + found["UTMASTG"] + found["UBLKCP"], found
