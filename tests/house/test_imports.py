"""What an import may cost: parts that most commands do not need stay out of the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("lark", "llvmlite", "numpy", "cuda", "rich", "ml_dtypes", "pygls", "tessera_backend")


def loaded(code: str) -> tuple[str, list[str]]:
    """What a fresh process prints, and which heavy packages it then holds."""
    script = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', *[n for n in {HEAVY!r} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    printed, _, names = done.stdout.rpartition("heavy:")
    return printed, names.split()


def test_the_face_is_light() -> None:
    assert loaded("import tessera_lang")[1] == []


def test_version_is_light() -> None:
    command = (
        "from tessera_lang.driver.cli import main; sys.argv = ['tesserac', '--version']; main()"
    )
    printed, names = loaded(command)
    assert names == []
    assert "0." in printed


@pytest.mark.parametrize("module", ["tessera_lang.driver.session", "tessera_lang.driver.pipeline"])
def test_the_compiler_is_light(module: str) -> None:
    assert loaded(f"import {module}")[1] == []


SLOW = ("dataclasses", "difflib", "importlib.metadata", "inspect", "pathlib", "tempfile",
        "tessera_lang.diagnostics.human", "tessera_lang.evaluate.host")  # fmt: skip


def test_the_compiler_loads_nothing_slow() -> None:
    script = f"import tessera_lang.driver.session, sys; print(*set({SLOW!r}) & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, timeout=60,
        check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout.split() == []


def test_a_kernel_in_the_cache_loads_nothing_slow() -> None:
    slow = ("importlib.metadata", "llvmlite", "ml_dtypes", "numpy.ma", "platformdirs",
            "tessera_lang.driver.session", "tessera_lang.syntax")  # fmt: skip
    script = (
        "import sys, numpy, tessera_lang; there = set(sys.modules)\n"
        "x = numpy.ones(8, numpy.float32)\n"
        'tessera_lang.load("std.elementwise", target="cpu").add(x, x, numpy.ones_like(x))\n'
        f"print(*(set({slow!r}) & set(sys.modules)) - there)"
    )
    for cold in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
        )
        assert cold or done.stdout.split() == []


def test_the_server_touches_no_llvm() -> None:
    pytest.importorskip("pygls")
    names = loaded("import tessera_lsp.server.main")[1]
    assert not {"llvmlite", "cuda", "numpy", "lark", "tessera_backend"} & set(names)
