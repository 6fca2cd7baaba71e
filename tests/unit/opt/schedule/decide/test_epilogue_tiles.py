"""How results leave, and where the work before them stands: decided, printed, and as built."""

from __future__ import annotations

from functools import partial

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Attribute, Operation
from tessera_lang.ir.rewrite import rewrite_program
from tessera_lang.lower.schedule_to_tile import NotHonoured, lower_to_tile
from tessera_lang.opt.schedule.decide.epilogue_tiles import settle_stores
from tessera_lang.opt.schedule.query.decision_context import Context, Refusal, with_decisions
from tessera_lang.opt.schedule.query.epilogue_work import epilogue_work
from tessera_lang.opt.schedule.query.kernel_facts import facts_of
from tessera_lang.record import replace
from tests.printed import differences

PATH = "kernel.tessera"
STORE = "tessera.schedule.store"
SIZES = "a: {t}[4096, 4096], b: {t}[4096, 4096]"


def made(body: str, more: str = "", dtype: str = "bf16", tile: str = "128, 256, 64") -> ForMachine:
    names = "".join(f", {x.partition(':')[0]}" for x in more.split("; ") if x)
    text = f"@op.kernel\ndef kernel(a, b{names}):\n    schedule.tile(({tile}))\n    return {body}\n"
    session = Session(overlay={PATH: text})
    signature = SIZES.format(t=dtype) + "".join(f", {x}" for x in more.split("; ") if x)
    wanted = session.signature(PATH, "kernel", signature)
    return session.for_machine(PATH, "kernel", wanted, session.machine("cuda", "sm_90a"))


def kernel_of(found: ForMachine) -> Operation:
    return found.schedule.operations[0]


VECTOR, MATRIX = "c: bf16[4096]", "r: bf16[4096, 4096]"
FORMS = {
    "a product alone": ("(a @ b).to(bf16)", "", "bf16", "parts"),
    "nothing to do": ("a @ b", "", "i8", "whole"),
    "a bias": ("op.gelu(a @ b + c[None, :]).to(bf16)", VECTOR, "bf16", "prefetch"),
    "a residual": ("(a @ b + r).to(bf16)", MATRIX, "bf16", "prefetch"),
    "several reads": ("((a @ b) * c[None, :] + r).to(bf16)", f"{VECTOR}; {MATRIX}", "bf16",
                      "prefetch"),
    "f8 sums take registers twice": ("((a @ b) * c[None, :]).to(bf16)", "c: f32[4096]", "f8e4m3",
                                     "parts"),
    "more than is held": ("((a @ b) + r + s).to(bf16)", "r: f32[4096, 4096]; s: f32[4096, 4096]",
                          "bf16", "parts"),
}  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_an_epilogue(name: str) -> None:
    body, more, dtype, form = FORMS[name]
    found = made(body, more, dtype)
    assert kernel_of(found).attributes["epilogue"] == form
    assert not differences(found)


@pytest.mark.parametrize(
    ("refused", "form"),
    [(("epilogue_prefetch",), "parts"), (("epilogue_prefetch", "epilogue_parts"), "whole"),
     (("subtile",), None)],
)  # fmt: skip
def test_what_has_no_form_is_decided_otherwise(refused: tuple[str, ...], form: str | None) -> None:
    kernel = kernel_of(made("(a @ b + r).to(bf16)", MATRIX))
    session = Session()
    machine = session.machine("cuda", "sm_90a")
    refusals = {name: Refusal("it has none") for name in refused}
    again = settle_stores(kernel, Context(machine, refusals=refusals))
    assert again.attributes.get("epilogue") == form
    assert (again.attributes.get("subtile") is None) == (form is None)
    ways = {o.attributes["leaves"] for o in again.walk() if o.name == STORE}
    assert ways == ({"tma"} if form else {"tile"})


def test_the_lowering_refuses_what_it_cannot_build() -> None:
    """Nothing is read before the loop of a product alone, and it is not built as if it were."""
    session = Session(
        overlay={PATH: "@op.kernel\ndef kernel(a, b):\n    return (a @ b).to(bf16)\n"}
    )
    wanted = session.signature(PATH, "kernel", SIZES.format(t="bf16"))
    machine = session.machine("cuda", "sm_90a")
    found = session.for_machine(PATH, "kernel", wanted, machine)
    assert found.lowered is not None
    kernel = with_decisions(kernel_of(found), {"epilogue": "prefetch"})
    program = replace(found.schedule, operations=(kernel,))
    plan = replace(
        found.lowered[1], slots=found.lowered[1].slots[: len(kernel.regions[0].arguments)]
    )
    with pytest.raises(NotHonoured) as error:
        lower_to_tile(program, plan, machine, [])
    assert error.value.decision == "epilogue_prefetch"


def test_a_print_that_is_not_built_is_seen() -> None:
    found = made("(a @ b).to(bf16)")
    for wrong in ({"leaves": "lines"}, {"columns": 32}):
        told = rewrite_program(found.schedule, partial(_told, wrong))
        assert differences(replace(found, schedule=told)), wrong


def _told(wrong: dict[str, Attribute], operation: Operation) -> Operation | None:
    if operation.name != STORE:
        return None
    return replace(operation, attributes={**operation.attributes, **wrong})


def test_what_work_reads() -> None:
    """The residual is read for the work; the sum of the product is where it begins."""
    kernel = kernel_of(made("(a @ b + r).to(bf16)", MATRIX))
    facts = facts_of(kernel)
    ((store, _),) = facts.stores
    work = epilogue_work(store, facts)
    assert [o.name for o in work.reads] == ["tessera.schedule.load"]
    assert set(work.sources.values()) == {1}
