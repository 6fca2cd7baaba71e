"""Programs written by hand, as somebody would who has read nothing but the manual."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.fuzz.tile_programs import placed
from tests.on_device import call
from tests.tile_programs_by_hand import (
    algebra,
    attention,
    chosen,
    functions,
    layers,
    loops,
    narrow,
    others,
    rows,
    scores,
    sparse,
    stacks,
    steps,
)
from tests.tile_programs_by_hand.program import Program

FILES = (
    attention, layers, algebra, others, functions, loops, chosen, sparse, narrow, scores, stacks,
    rows, steps,
)  # fmt: skip
PROGRAMS = {p.name: p for file in FILES for p in file.PROGRAMS}
QUICK = (
    "paged decoding", "low rank adapter", "mixture of experts", "weights of four bits",
    "block sparse rows", "both factors turned", "one product by units, one exact",
    "two matrices of a stack at a time", "rows as long as the longest of a tile",
    "a function of two results, a kernel of two results", "one of two products",
    "nothing to do", "weights looked up in a table", "blocks of zeros are left out",
    "a mask that a function of numbers makes", "a contraction in four parts",
    "interleaved complex numbers", "scaled and added to what was there", "broadcast batches, whole",
    "block tridiagonal", "layernorm of a whole array",
)  # fmt: skip
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS if name not in QUICK]


def wrong(program: Program, target: str) -> str:
    arch_as, target = (target, "cpu") if target.startswith("sm_") else ("", target)
    options = replace(options_from_environment(), target=target, arch_as=arch_as)
    provider = SessionProvider("<source>", options, text=program.text)
    module = Module("<source>", provider, target)
    before = program.made(program.small)
    after = {name: array.copy() for name, array in before.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = call(module.kernel, list(after.values()), target)
    if isinstance(result, tuple):
        after.update({f"result{i}": np.asarray(r) for i, r in enumerate(result)})
    elif result is not None:
        after["result"] = np.asarray(result)
    return program.wrong(before, after)


@pytest.mark.parametrize("name", [*QUICK, *OTHERS])
@pytest.mark.parametrize("target", ["cpu", "sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_results(name: str, target: str) -> None:
    assert not wrong(PROGRAMS[name], target)


NOT_IN_RINGS = {
    "one product by units, one exact": 1,  # of exact f32
    "a small matrix taken whole, again and again": 1,  # of a computed matrix with itself
    "lora with a rank of eight in a second loop": 1,  # of a small matrix that is brought once
    "rope on the fly, then scores": 2,  # of computed matrices, once a tile
    "trailing update of a factorization": 1,  # reads the array that it writes
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_products_are_asynchronous_and_in_rings(name: str) -> None:
    program = PROGRAMS[name]
    session = Session(overlay={"k.tessera": program.text})
    machine = session.machine("cuda", "sm_90a")
    wanted = session.signature("k.tessera", "kernel", program.signature(program.large))
    made = session.for_machine("k.tessera", "kernel", wanted, machine)
    options = TargetOptions("cuda", machine.arch)
    artifact = session.compile_kernel("k.tessera", "kernel", wanted, options, ("ptx",))
    found = placed(made, artifact.texts["ptx"])
    missing = program.products - min(found.ring, program.products)
    assert missing == NOT_IN_RINGS.get(name, 0), (found, [d.message for d in made.remarks])
    assert not missing or found.why
    assert artifact.resources.spill_bytes == 0
    assert not [d for d in artifact.diagnostics if "C75" in d.message]
