"""For tests: kernels of the standard library as code for a GPU, which ptxas has taken."""

from __future__ import annotations

from functools import cache

import pytest
from tessera_backend.nvptx.toolchain.ptxas import find_ptxas

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.house.places import PACKAGES

needs_ptxas = pytest.mark.skipif(find_ptxas() is None, reason="no ptxas on this machine")
ARCHS = ["sm_80", pytest.param("sm_90a", marks=pytest.mark.slow)]


@cache
def _session() -> Session:
    return Session()


def assembles(file: str, kernel: str, signature: str, arch: str, spills: bool = False) -> None:
    """A kernel for these arguments has a form for the architecture; ptxas takes it without a
    warning, but of registers that spill where ``spills`` says so."""
    path = str(PACKAGES["tessera_stdlib"] / f"{file}.tessera")
    wanted = _session().signature(path, kernel, signature)
    made = _session().compile_kernel(path, kernel, wanted, TargetOptions("cuda", arch), ("ptx",))
    assert all(part.kind == "cubin" for part in (made, *made.then)), made.kind
    said = [d for d in made.diagnostics if not (spills and d.code == "T0881")]
    assert not said, said
