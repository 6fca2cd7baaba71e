"""What the code of the documents' kernels looks like: vectors, no calls, the same each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.elf import ElfObject
from tessera_backend.cpu.entry import emit_kernel
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.cpu.llvm_codegen import compile_text

from tessera_lang.driver.commands import group
from tests.unit.backend.cpu.kernels import add, histogram, sum_reduce
from tests.unit.backend.tile_kernels import Runner

PACKED = r"vaddps\s.*[yz]mm" if host_machine() == "x86_64" else r"fadd\s+v\d+\.4s"
SCALAR = r"vaddss" if host_machine() == "x86_64" else r"fadd\s+s\d+"


def assembly(runner: Runner) -> str:
    return runner.artifact.texts["asm"]


def test_add_is_packed() -> None:
    text = assembly(Runner(add("proved", condition=True), stages=("asm",)))
    assert re.search(PACKED, text)
    assert len(re.findall(SCALAR, text)) <= 1


def test_guarded_add_has_a_packed_version() -> None:
    assert re.search(PACKED, assembly(Runner(add("guarded", condition=False), stages=("asm",))))


def test_sum_reduce_is_interchanged_and_packed() -> None:
    """The loop over the array adds whole vectors; no lane walks it alone."""
    text = assembly(Runner(sum_reduce("proved"), stages=("asm",)))
    assert len(re.findall(PACKED, text)) >= 16
    # Scalar additions are left for the last lanes of the tree and the atomic only.
    assert len(re.findall(SCALAR, text)) <= 4
    assert "512(%r" in text or host_machine() != "x86_64"


def test_sum_reduce_is_right() -> None:
    for bounds in ("proved", "guarded"):
        run = Runner(sum_reduce(bounds))
        for n, g in ((0, 1), (1, 1), (127, 1), (128, 2), (100000, 4), (1000003, 3)):
            x = np.random.default_rng(n).random(n, np.float32)
            out = np.zeros(g, np.float32)
            run(x, out, groups=(g,), threads=2)
            np.testing.assert_allclose(out, np.full(g, x.sum(dtype=np.float64)), rtol=1e-5)
            assert run.fault[0] == 0


def test_the_object_needs_nothing_from_outside() -> None:
    for built in (add("guarded", condition=True), sum_reduce("guarded")):
        for optimize in (0, 3):
            artifact = Runner(built, optimize).artifact
            # Raises where a symbol is undefined.
            assert "k" in ElfObject(artifact.code, host_machine()).image().entries


def test_llvm_says_nothing() -> None:
    """No warnings of the vectorizer reach the user's terminal."""
    program = (
        "from tests.unit.backend.cpu.kernels import sum_reduce, add, histogram\n"
        "from tests.unit.backend.tile_kernels import Runner\n"
        "Runner(sum_reduce('guarded')); Runner(add('guarded', condition=True)); "
        "Runner(histogram())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr == b""


def test_same_bytes_under_other_hash_seeds() -> None:
    program = (
        "import hashlib\n"
        "from tests.unit.backend.cpu.kernels import sum_reduce\n"
        "from tests.unit.backend.tile_kernels import Runner\n"
        "a = Runner(sum_reduce('guarded'), stages=('llvm', 'asm')).artifact\n"
        "print(hashlib.sha256(a.code).hexdigest(), list(a.texts))\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


@pytest.mark.parametrize("cpu", ["generic", "neoverse-n1", "apple-m1"])
@pytest.mark.sample(1)
def test_objects_for_arm_resolve(cpu: str) -> None:
    """Made here for another machine: every relocation is one that the loader knows."""
    binding = pytest.importorskip("llvmlite.binding")
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = CodeTarget("aarch64-unknown-none-elf", cpu, "+reserve-x18", True)
    for program, plan in (add("guarded", condition=True), sum_reduce("guarded"), histogram()):
        module = emit_kernel(program.operations[0], plan, target)
        for level in (0, 3):
            compiled = compile_text(module.text, target, level, ("asm",))
            image = ElfObject(compiled.code, "aarch64").image()
            image.resolve(bytearray(image.content), 0x7F0000000000)
            assert not re.search(r"\b[xw]18\b", compiled.assembly)  # the system's on some


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("cpu", "wide"), [("sapphirerapids", True), ("skylake-avx512", False), ("x86-64-v4", False)]
)
def test_width_of_vectors(cpu: str, wide: bool) -> None:
    """LLVM is asked for whole registers where they cost no clock; what it makes of them counts."""
    if host_machine() != "x86_64":
        return
    text = """
@kernel tile[(256,)] grid[(ceil_div(n, 256),)]
def k(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[i] * 2.0 + 1.0
"""
    asked = ["emit", "-", "--stage=llvm", "--target=cpu", f"--arch={cpu}"]
    done = CliRunner().invoke(group, asked, input=text)
    assert done.exit_code == 0, done.output
    assert ("<16 x float>" in done.output) == wide
    assert wide or "<8 x float>" in done.output
