"""A schedule prints what was built: unit, copy, stages, warps, cluster and grid of every kernel of
the library and the examples, and of generated tile programs, on three architectures."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.target.backend import TargetOptions
from tests.fuzz.tile_programs import large, signature_text
from tests.fuzz.tile_programs_generate import generate
from tests.printed import differences, unexplained
from tests.run.emitted import signature_of_a_launch
from tests.run.emitted_cases import TileCase, tile_cases

ARCHITECTURES = ("sm_80", "sm_90a", "sm_120")
PATH = "kernel.tessera"
CASES = [c for c in tile_cases() if c.where.startswith(("std.", "examples.", "benchmarks."))]
SAMPLE = (0, 8, 20, 33, 45, 60)
FAULTS = {
    "roles are declined": (
        "@op.kernel\ndef kernel(a, b):\n    schedule.warp_specialize(False)\n    return a @ b\n",
        "a: bf16[1024, 1024], b: bf16[1024, 1024]",
    ),
    "a product that feeds itself": (
        "@op.kernel\ndef kernel(x: bf16[n, n]) -> bf16[n, n]:\n    y = op.empty((n, n), bf16)\n"
        "    for i in op.tile_range(n, step=64):\n        t = x[i:i+64, 0:64]\n"
        "        for j in range(4): t = (t @ t).to(bf16)\n        y[i:i+64, 0:64] = t\n"
        "    return y\n",
        "x: bf16[512, 512]",
    ),
    "one operand of an odd pitch": (
        "@op.kernel\ndef kernel(q: bf16[m, d], k: bf16[n, d], v: bf16[n, e]) -> f32[m, e]:\n"
        "    y = op.empty((m, e), f32)\n    for i in op.tile_range(m, step=128):\n"
        "        acc = op.zeros((128, 64), f32)\n        for j in op.tile_range(n, step=64):\n"
        "            s = q[i:i+128, 0:64] @ k[j:j+64, 0:64].T\n"
        "            acc += s.to(bf16) @ v[j:j+64, 0:64]\n        y[i:i+128, 0:64] = acc\n"
        "    return y\n",
        "q: bf16[1024, 64], k: bf16[1024, 64], v: bf16[1024, 65]",
    ),
    "an odd pitch that no copy mends": (
        "@op.kernel\ndef kernel(q: bf16[m, d], k: bf16[n, d], v: bf16[n, e]) -> f32[m, e]:\n"
        "    y = op.empty((m, e), f32)\n    for i in op.tile_range(m, step=128):\n"
        "        acc = op.zeros((128, 64), f32)\n        for j in op.tile_range(n, step=64):\n"
        "            s = q[i:i+128, 0:64] @ k[j:j+64, 0:64].T\n"
        "            acc += s.to(bf16) @ v[j:j+64, 0:64]\n        y[i:i+128, 0:64] = acc\n"
        "    return y\n",
        "q: bf16[128, 64], k: bf16[1024, 64], v: bf16[1024, 65]",
    ),
    "a computed operand": (
        "@op.kernel\ndef kernel(a, b):\n    return (a * 2.0).to(bf16) @ op.gelu(b).to(bf16)\n",
        "a: bf16[1024, 1024], b: bf16[1024, 1024]",
    ),
    "f8 sums in parts": (
        "@op.kernel\ndef kernel(a, b, s):\n    schedule.tile((128, 256, 128))\n"
        "    return ((a @ b.T) * s[None, :]).to(bf16)\n",
        "a: f8e4m3[2048, 4096], b: f8e4m3[4096, 4096], s: f32[4096]",
    ),
    "padded lines": (
        "@op.kernel\ndef kernel(a, b):\n    schedule.use_shared_memory(True, padding=8)\n"
        "    schedule.warp_specialize(False)\n    return a @ b\n",
        "a: bf16[1024, 1024], b: bf16[1024, 1024]",
    ),
    "a swizzle that is said": (
        "@op.kernel\ndef kernel(a, b):\n    schedule.swizzle(32)\n"
        "    schedule.warp_specialize(False)\n    return a @ b\n",
        "a: bf16[1024, 1024], b: bf16[1024, 1024]",
    ),
    "more buffers than there is memory": (
        "@op.kernel\ndef kernel(a, b):\n    schedule.tile((128, 256, 64))\n"
        "    return op.gelu(a @ b)\n",
        "a: f32[1024, 1024], b: f32[1024, 1024]",
    ),
    "warps that are no power of two": (
        "@op.kernel\ndef kernel(a, b):\n    schedule.warps(6)\n    return a @ b\n",
        "a: bf16[1000, 1000], b: bf16[1000, 1000]",
    ),
    "copies that are declined": (
        "@op.kernel\ndef kernel(a, b):\n    schedule.async_copy(False)\n    return a @ b\n",
        "a: bf16[1024, 1024], b: bf16[1024, 1024]",
    ),
    "tiles that only the kernel can count": (
        "@op.kernel\ndef kernel(x: f32[n], count: i64[1]) -> f32[n]:\n"
        "    y = op.empty((n,), f32)\n    k = count[0] + 0\n"
        "    for i in op.tile_range(k, step=256): y[i:i+256] = x[i:i+256] * 2.0\n    return y\n",
        "x: f32[100000], count: i64[1]",
    ),
    "a bias that is read before the loop": (
        "@op.kernel\ndef kernel(a, b, c):\n    return op.gelu(a @ b + c[None, :]).to(bf16)\n",
        "a: bf16[2048, 4096], b: bf16[4096, 4096], c: bf16[4096]",
    ),
    "a residual with few registers beside it": (
        "@op.kernel\ndef kernel(a, b, r, s):\n    return ((a @ b) * s[None, :] + r).to(bf16)\n",
        "a: f8e4m3[2048, 4096], b: f8e4m3[4096, 4096], r: f32[2048, 4096], s: f32[4096]",
    ),
    "work of a result whose rows are columns of a product": (
        "@op.kernel\ndef kernel(a, b, c):\n    return op.gelu(a @ b + c[None, :]).to(bf16)\n",
        "a: bf16[16, 4096], b: bf16[4096, 4096], c: bf16[4096]",
    ),
    "two results of one product": (
        "@op.kernel\ndef kernel(a, b):\n    x = a @ b\n"
        "    return x.to(bf16), op.gelu(x).to(bf16)\n",
        "a: bf16[2048, 2048], b: bf16[2048, 2048]",
    ),
    "exact products by one role": (
        "@op.kernel\ndef kernel(a, b):\n    schedule.warp_specialize(True)\n"
        "    schedule.tile((64, 64, 16))\n    return a @ b\n",
        "a: f32[512, 512], b: f32[512, 512]",
    ),
    "odd lines": (
        "@op.kernel\ndef kernel(a, b):\n    return a @ b\n", "a: f16[333, 77], b: f16[77, 55]",
    ),
    "products of two kinds": (
        "@op.kernel\ndef kernel(a: bf16[m, k], b: bf16[k, n], c: f32[n, n]) -> f32[m, n]:\n"
        "    return (a @ b).to(f32) @ c\n",
        "a: bf16[256, 64], b: bf16[64, 64], c: f32[64, 64]",
    ),
}  # fmt: skip
"""Kernels whose code was another than the schedule said, and their neighbours."""


def made_for(
    text: str, path: str, kernel: str, signature: object, arch: str, code: bool
) -> tuple[ForMachine, Sequence[str]]:
    """A kernel for a machine, and its PTX where it is asked for."""
    session = Session(overlay={PATH: text} if text else {})
    wanted = session.signature(path, kernel, signature) if isinstance(signature, str) else (
        signature_of_a_launch(session, path, signature, arch)  # type: ignore[arg-type]
    )  # fmt: skip
    machine = session.machine("cuda", arch)
    made = session.for_machine(path, kernel, wanted, machine)
    if not code or made.lowered is None:
        return made, ()
    options = TargetOptions("cuda", machine.arch)
    artifact = session.compile_kernel(path, kernel, wanted, options, ("ptx",))
    # Registers that spill are a reason to decide again: the last is what is there.
    made = session.for_machine(path, kernel, wanted, machine)
    return made, [_first_entry(a.texts["ptx"]) for a in (artifact, *artifact.then)]


def _first_entry(ptx: str) -> str:
    """The text of the first launch has that of the others behind it."""
    head, *entries = re.split(r"(?=\.visible \.entry )", ptx)
    return head + entries[0]


@pytest.fixture(autouse=True)
def without_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_PTXAS", "none")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sample(1)
def test_what_was_told_otherwise(name: str, arch: str) -> None:
    text, signature = FAULTS[name]
    made, ptx = made_for(text, PATH, "kernel", signature, arch, True)
    assert not differences(made, ptx)
    assert not unexplained(made, "wgmma" if arch == "sm_90a" else "mma")


def _checked(case: TileCase, arch: str) -> None:
    made, ptx = made_for(case.text, case.path or PATH, case.kernel, case, arch, True)
    assert not differences(made, ptx)
    assert not unexplained(made, "wgmma" if arch == "sm_90a" else "mma")


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("number", SAMPLE)
@pytest.mark.sample(1)
def test_some_kernels(number: int, arch: str) -> None:
    _checked(CASES[number], arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.where} {c.kernel} {c.signature}")
def test_all_kernels(case: TileCase, arch: str) -> None:
    _checked(case, arch)


def _generated(seed: int, arch: str) -> None:
    program = generate(seed)
    sizes = large(program, (64, 8, 1)[seed % 3])
    signature = signature_text(program, sizes)
    try:
        made, ptx = made_for(program.text(), PATH, "kernel", signature, arch, seed % 4 == 0)
    except TesseraError:
        return  # a program that means nothing at these sizes; the fuzzer looks at those
    assert not differences(made, ptx), program.text()
    assert not unexplained(made, "wgmma" if arch == "sm_90a" else "mma"), program.text()


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(2)
def test_some_generated_programs(seed: int, arch: str) -> None:
    _generated(seed, arch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_generated_programs(seed: int) -> None:
    for arch in ARCHITECTURES:
        _generated(seed, arch)
