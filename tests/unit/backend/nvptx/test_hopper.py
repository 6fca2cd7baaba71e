"""Code for Hopper: what ptxas and the PTX say, without a device."""

from __future__ import annotations

import functools
import re

import pytest
from tessera_backend.llvm import control_flow
from tessera_backend.llvm.emitter import NotLowered
from tessera_backend.nvptx.backend import BACKEND
from tessera_backend.nvptx.hopper import rules
from tessera_backend.nvptx.kernel import emit_kernel
from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate
from tessera_backend.nvptx.toolchain.ptxas import Assembly, assemble, find_ptxas

from tessera_lang.ir.core import Program
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tessera_lang.target.arch import architecture_named
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import F32, I8, U8
from tests.unit.backend.nvptx.hopper_attention import attention
from tests.unit.backend.nvptx.hopper_gemm import FULL, Form, gemm
from tests.unit.backend.nvptx.hopper_product import CASES, E4M3, Case, product

FORMS: dict[str, Form] = {
    "one warp group": Form(64, 128, 4, 1, roles=False, persistent=False, cluster=1),
    "two warp groups": Form(roles=False, persistent=False, cluster=1),
    "roles": Form(persistent=False, cluster=1),
    "persistent": Form(cluster=1),
    "cluster": FULL,
}


def ptx(made: tuple[Program, LaunchPlan]) -> str:
    program, plan = made
    text = print_program(program)
    parsed = verify(parse_program(text))
    assert print_program(parsed) == text
    arch = architecture_named("sm_90a")
    return translate(emit_kernel(parsed.operations[0], plan, arch).text, arch).ptx


@functools.cache
def form_ptx(name: str) -> str:
    return ptx(gemm(FORMS[name]))


def assembled(text: str) -> Assembly:
    tool = find_ptxas()
    if tool is None:
        pytest.skip("no ptxas")
    return assemble(tool, text, "sm_90a")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.sample(1)
def test_ptxas_takes_every_form_without_a_note(name: str) -> None:
    made = assembled(form_ptx(name))
    assert made.diagnostics == ()
    assert made.resources.spill_bytes == 0
    if FORMS[name].roles:
        assert made.resources.registers == 168


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(6)
def test_ptxas_takes_every_product_without_a_note(name: str) -> None:
    made = assembled(ptx(product(CASES[name])))
    assert made.diagnostics == ()
    assert made.resources.spill_bytes == 0


def test_the_whole_kernel_is_what_it_should_be() -> None:
    text = form_ptx("cluster")
    assert ".reqnctapercluster 2, 1, 1" in text
    assert ".reqntid 384" in text
    assert text.count(".param .align 64 .b8") == 3
    assert text.count("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16") % 4 == 0
    assert "cp.async.bulk.tensor.2d.shared::cluster.global.tile" in text
    assert ".multicast::cluster" in text
    assert "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group" in text
    assert "setmaxnreg.dec.sync.aligned.u32 \t40" in text
    assert "setmaxnreg.inc.sync.aligned.u32 \t232" in text
    assert "stmatrix.sync.aligned.m8n8.x4" in text
    assert ".local" not in text
    assert not re.search(r"^\s*call", text, re.MULTILINE)


def test_an_arrival_across_the_cluster_costs_no_fence() -> None:
    text = form_ptx("cluster")
    assert "mbarrier.arrive.shared::cluster.b64 _" in text
    assert "mbarrier.arrive.release" not in text


def test_descriptors_move_by_constants_along_the_contraction() -> None:
    """One address a stage and a stage's four products: none is computed anew."""
    loop = form_ptx("roles").split("wgmma.fence.sync.aligned")[-1].split("commit_group")[0]
    assert loop.count("wgmma.mma_async") == 4
    assert "mul" not in loop


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", CASES)
def test_no_addition_carries_into_the_high_word_of_a_descriptor(name: str) -> None:
    """ptxas 13.0 lost that word of a sum of 64 bits, and the rows of a tile were wrong."""
    text = ptx(product(CASES[name]))
    used = re.findall(r"%rd\d+", " ".join(re.findall(r"wgmma\.mma_async[^;]*;", text)))
    assert used
    made = {to: word for word, to in re.findall(r"^\s*([\w.]+)\s+(%rd\d+),", text, re.M)}
    assert {made[register] for register in used} <= {"or.b64", "mov.b64"}


def test_an_accumulator_made_on_several_ways_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ptxas says of a serialised product is a warning that says why."""
    monkeypatch.setitem(rules.RULES, "tile.for", control_flow.RULES["tile.for"])
    (found,) = assembled(ptx(gemm(FULL))).diagnostics
    assert (found.code, found.severity) == ("T0881", "warning")
    assert "C7515" in found.message
    assert "wait for each other" in found.notes[0]


def test_registers_that_do_not_suffice_are_reported() -> None:
    form = Form(rows=256, columns=256, stages=2, groups=2, persistent=False, cluster=1)
    found = assembled(ptx(gemm(form))).diagnostics
    assert found
    assert {d.code for d in found} == {"T0881"}


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case(a=E4M3, b=E4M3, k=128, across_b=True), "16 bits"),
        (Case(a=I8, b=U8, k=128), "i8 by u8"),
        (Case(swizzle=0, across_a=True), "without a swizzle"),
        (Case(row=4), "68 lines are no multiple of 8"),
        (Case(column=32, across_b=True, n=96), "32 of a line, no multiple of 64"),
    ],
)
def test_what_the_matrix_unit_cannot_read_is_refused(case: Case, why: str) -> None:
    program, plan = product(case)
    with pytest.raises(NotLowered, match=why):
        emit_kernel(program.operations[0], plan, architecture_named("sm_90a"))


@pytest.mark.parametrize(
    ("name", "lacks"), [("sm_80", "barriers"), ("sm_90", "products"), ("sm_100", "products")]
)
def test_an_architecture_without_the_operations_is_refused(name: str, lacks: str) -> None:
    program, plan = product(Case())
    with pytest.raises(NotLowered, match=f"{name}, which lacks .*{lacks}"):
        emit_kernel(program.operations[0], plan, architecture_named(name))


def test_chained_products_overlap() -> None:
    """The next first product is issued before the second one is waited for; nothing serialises."""
    text = ptx(attention())
    made = assembled(text)
    assert made.diagnostics == ()
    assert made.resources.spill_bytes == 0
    loop = text.split("wgmma.wait_group.sync.aligned 1;")[0].rsplit("wgmma.wait_group", 1)[-1]
    assert loop.count("wgmma.commit_group") == 2


def test_f32_is_not_rounded_unasked() -> None:
    program, plan = product(Case(a=F32, b=F32, k=32))
    text = print_program(program).replace('precision = "tf32"', 'precision = "exact"')
    exact = parse_program(text)
    with pytest.raises(NotLowered, match="f32 exact"):
        emit_kernel(exact.operations[0], plan, architecture_named("sm_90a"))


def test_the_backend_makes_code_for_the_architecture_that_has_the_operations() -> None:
    if find_ptxas() is None:
        pytest.skip("no ptxas")
    made = BACKEND.compile(*gemm(FULL), TargetOptions("cuda", "sm_90"), ())
    assert ".target sm_90a" in made.texts["ptx"]
    assert made.resources.shared_bytes == 229_440
