"""Programs written by hand, as somebody would who has read nothing but the manual."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.driver.session import Session
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation
from tessera_lang.ir.rewrite import Replacement, rewrite_program
from tessera_lang.record import replace as replace_record
from tessera_lang.target.backend import TargetOptions
from tests.fuzz.products import DOT, placed
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
# Code for Hopper comes through nearly all passes that code for a CPU does, and others.
TARGETS = ("cpu", "sm_90a", "cuda")
EACH_TIME = [("sm_90a", name) for name in QUICK] + [("cpu", name) for name in QUICK[::3]]


def marks(target: str, name: str) -> list[pytest.MarkDecorator]:
    quick = (target, name) in EACH_TIME or (target == "cuda" and name in QUICK)
    on_gpu = [pytest.mark.gpu] if target == "cuda" else []
    return on_gpu if quick else [*on_gpu, pytest.mark.slow]


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


@pytest.mark.parametrize(
    ("target", "name"),
    [pytest.param(t, n, marks=marks(t, n)) for t in TARGETS for n in PROGRAMS],
)
@pytest.mark.sample(2)
def test_results(target: str, name: str) -> None:
    assert not wrong(PROGRAMS[name], target)


NOT_IN_RINGS = {
    "one product by units, one exact": 1,  # of exact f32
    "a small matrix taken whole, again and again": 2,  # one of a computed matrix, one brought once
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
    assert found.copies >= program.products
    said = (found, [d.message for d in made.remarks])
    assert found.missing == NOT_IN_RINGS.get(name, 0), said
    if found.missing:
        assert found.why, said
    assert artifact.resources.spill_bytes == 0
    assert not [d for d in artifact.diagnostics if "C75" in d.message]


def for_hopper(program: Program) -> ForMachine:
    session = Session(overlay={"k.tessera": program.text})
    wanted = session.signature("k.tessera", "kernel", program.signature(program.large))
    return session.for_machine("k.tessera", "kernel", wanted, session.machine("cuda", "sm_90a"))


def with_less(made: ForMachine, taken: Operation, **attributes: Any) -> ForMachine:
    """The same with other attributes of one operation of the schedule."""

    def step(o: Operation) -> Replacement | None:
        if o is not taken:
            return None
        less = replace_record(o, attributes={**o.attributes, **attributes})
        return Replacement((less,), less.results)

    return replace_record(made, schedule=rewrite_program(made.schedule, step))


def test_a_copy_does_not_hide_a_product_outside_of_a_ring() -> None:
    """Both products stand twice in this schedule, since an iteration is peeled."""
    made = for_hopper(PROGRAMS["softmax of columns then product"])
    whole = placed(made, "wgmma.mma_async")
    assert (whole.asked, whole.copies, whole.missing) == (2, 4, 0)
    for taken in [o for o in made.schedule.walk() if o.name == DOT]:
        found = placed(with_less(made, taken, unit="mma"), "wgmma.mma_async")
        assert (found.asked, found.copies, found.missing) == (2, 4, 1)


@pytest.mark.parametrize("attributes", [{"stage": "registers"}, {"stages": 1}], ids=str)
def test_one_factor_in_a_ring_is_not_enough(attributes: dict[str, Any]) -> None:
    made = for_hopper(PROGRAMS["both factors turned"])
    assert placed(made, "wgmma.mma_async").missing == 0
    loads = [o for o in made.schedule.walk() if o.attributes.get("stages", 1) > 1]
    assert len(loads) == 2
    for taken in loads:
        assert placed(with_less(made, taken, **attributes), "wgmma.mma_async").missing == 1


@pytest.mark.parametrize(
    ("name", "scale", "off"),
    [
        ("attention in f8", "* 0.125", "* 0.135"),
        ("attention in f8", "(acc / dn[:, None])", "(acc / dn[:, None] * 1.01)"),
        ("attention in f8", "dn * c", "dn"),
        ("attention in f8", "acc * c[:, None]", "acc"),
        ("weights of four bits", "(acc * scale", "(1.004 * acc * scale"),
        ("swiglu", ").to(bf16)", " * 1.004).to(bf16)"),
    ],
)
@pytest.mark.sample(1)
def test_a_scale_that_is_off_is_seen(name: str, scale: str, off: str) -> None:
    program = PROGRAMS[name]
    assert program.text.count(scale) == 1
    assert wrong(replace(program, text=program.text.replace(scale, off)), "cpu")
