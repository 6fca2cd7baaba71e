"""Kernels for every architecture and member of a family: PTX for its name, which ptxas takes."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest
from tessera_backend.nvptx.toolchain.ptxas import find_ptxas

from tessera_lang.driver.session import Session
from tessera_lang.target.arch import MEMBERS, ROWS, architecture_named, specific_to
from tessera_lang.target.backend import Artifact, TargetOptions
from tests.unit.backend.nvptx.kernels import needs_ptxas

TEXT = """
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def add(x: f32[n], y: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: y[i] += x[i]

@op.kernel
def product(a: bf16[m, k], b: bf16[k, n]) -> bf16[m, n]:
    return op.cast(a @ b, bf16)

@op.kernel
def short_product(a: f8e4m3[m, k], b: f8e4m3[k, n]) -> f32[m, n]:
    return a @ b

@op.kernel
def softmax(x: f32[m, n]) -> f32[m, n]:
    y = op.empty((m, n), f32)
    for i in op.tile_range(m, step=1):
        e = op.exp(x[i, :] - op.max(x[i, :]))
        y[i, :] = e / op.sum(e)
    return y

@op.kernel
def attention(Q: bf16[m, d], K: bf16[n, d], V: bf16[n, d]) -> bf16[m, d]:
    y = op.empty((m, d), bf16)
    for i in op.tile_range(m, step=64):
        top = op.full((64,), -inf, f32)
        total = op.zeros((64,), f32)
        acc = op.zeros((64, d), f32)
        for j in op.tile_range(n, step=64):
            s = Q[i:i+64, :] @ K[j:j+64, :].T * 0.125
            higher = max(top, op.max(s, axis=1))
            w = exp(s - higher[:, None])
            shrink = exp(top - higher)
            total = total * shrink + op.sum(w, axis=1)
            acc = acc * shrink[:, None] + w.to(bf16) @ V[j:j+64, :]
            top = higher
        y[i:i+64, :] = (acc / total[:, None]).to(bf16)
    return y
"""
SIGNATURES = {
    "add": "",
    "product": "a: bf16[512, 512], b: bf16[512, 512]",
    "short_product": "a: f8e4m3[256, 256], b: f8e4m3[256, 256]",
    "softmax": "x: f32[64, 4096]",
    "attention": "Q: bf16[1024, 64], K: bf16[1024, 64], V: bf16[1024, 64]",
}
UNLISTED = {"sm_82": "sm_80", "sm_91": "sm_90", "sm_105": "sm_103", "sm_123": "sm_121"}
"""Members of which PTX knows nothing either, and the target of the code that they get."""
FAMILIES = ["sm_86", "sm_89", "sm_91", "sm_100", "sm_120"]
"""One name for each set of features and limits but that of sm_80, which has few of either, and of
sm_90a, which have tests of their own."""
MODELS = [m.name for row in ROWS.values() for m in row.models]


@cache
def session() -> Session:
    return Session(overlay={"kernels.tessera": TEXT})


@cache
def made(kernel: str, arch: str) -> Artifact:
    wanted = session().signature("kernels.tessera", kernel, SIGNATURES[kernel])
    options = TargetOptions("cuda", arch)
    return session().compile_kernel("kernels.tessera", kernel, wanted, options, ("ptx",))


@cache
def known_to_ptxas() -> frozenset[str]:
    tool = find_ptxas()
    assert tool is not None
    said = subprocess.run([tool.path, "--help"], capture_output=True, text=True, check=True)
    return frozenset(re.findall(r"'(sm_\w+)'", said.stdout))


def check(artifact: Artifact, target: str, ptx: int) -> None:
    """The code is for that target, of that PTX, and assembles without spills."""
    text = artifact.texts["ptx"]
    assert text.startswith(f".version {ptx // 10}.{ptx % 10}\n.target {target}\n")
    assert artifact.options.arch == target
    if target in known_to_ptxas():
        assert artifact.kind == "cubin" and not artifact.diagnostics
        assert artifact.resources.spill_bytes == 0
    else:
        assert artifact.kind == "ptx"
        assert [d.code for d in artifact.diagnostics] == ["T0878"]


@needs_ptxas
def test_ptxas_knows_every_row() -> None:
    """The ptxas that the project asks for; names that it has dropped stay with the driver."""
    assert set(ROWS) <= known_to_ptxas()
    assert set(MEMBERS) - known_to_ptxas() <= {"sm_101", "sm_101a", "sm_101f"}


@pytest.mark.sample(14)
@needs_ptxas
@pytest.mark.parametrize("name", [*ROWS, *MEMBERS, *UNLISTED])
def test_a_lane_kernel(name: str) -> None:
    row = architecture_named(name)
    check(made("add", name), UNLISTED.get(name, name), row.ptx)


@needs_ptxas
@pytest.mark.parametrize("name", [*ROWS, *MEMBERS, *UNLISTED, *MODELS])
@pytest.mark.sample(1)
def test_a_product(name: str) -> None:
    row = specific_to(architecture_named(name))
    artifact = made("product", name)
    check(artifact, row.name, row.ptx)
    text = artifact.texts["ptx"]
    assert ("wgmma.mma_async" in text) == row.has("wgmma")
    assert "wgmma.mma_async" in text or "mma.sync" in text


@needs_ptxas
@pytest.mark.parametrize("kernel", ["softmax", "attention", "short_product"])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.sample(1)
def test_other_tile_kernels_of_each_family(kernel: str, name: str) -> None:
    row = specific_to(architecture_named(name))
    artifact = made(kernel, name)
    check(artifact, row.name, row.ptx)
    assert artifact.plan.shared_bytes <= row.shared_limit


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["softmax", "attention", "short_product"])
@pytest.mark.parametrize("name", [*ROWS, *MEMBERS, *UNLISTED, *MODELS])
def test_other_tile_kernels_of_every_name(kernel: str, name: str) -> None:
    test_other_tile_kernels_of_each_family(kernel, name)
