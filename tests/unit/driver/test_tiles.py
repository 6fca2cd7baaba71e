"""Tile kernels through the session and the command line: signatures, stages, remarks."""

from __future__ import annotations

import pytest

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.advice import remarks_of
from tessera_lang.driver.session import Session
from tessera_lang.ir.printer import print_program
from tessera_lang.sema.side_tables import Signature, TensorArgument
from tessera_lang.target.backend import TargetOptions

PATH = "m.tessera"
PRODUCT = """
@op.kernel
def product(A, B):
    schedule.warps(4)
    return A @ B
"""
CAPACITY = """
@op.kernel
def f(x, y: mut f32[m, k]):
    for i in op.tile_range(x.shape[0], step=16):
        acc = op.zeros((16, x.shape[1]), f32)
        acc += x[i:i+16, :]
        y[i:i+16, :] = acc
"""
SHAPES = "A: bf16[256, 512], B: bf16[512, 384]"


def session(text: str) -> Session:
    return Session(overlay={PATH: text})


def arrays(signature: Signature) -> list[TensorArgument]:
    return [a for a in signature if isinstance(a, TensorArgument)]


def test_sizes_of_a_signature_become_facts() -> None:
    a, b = arrays(session(PRODUCT).signature(PATH, "product", "A: bf16[100, 512], B: bf16[k, 24]"))
    assert (a.sizes, a.hints, a.divisors) == ((None, None), (104, 512), (4, 128))
    assert a.aligned and a.contiguous and a.unit == 1 and a.pitches
    assert (b.hints, b.divisors, b.pitches) == ((0, 24), (1, 8), True)


def test_a_lane_kernel_is_told_of_sizes_that_they_are_small() -> None:
    lanes = "@kernel tile[(1,)] grid[(1,)]\ndef f(x: f32[n], out: mut f32[n]):\n    out[0] = x[0]\n"
    large = f"x: f32[{2**29 + 1}], out: f32[5]"
    for text, small in (("x: f32[5]", True), ("", False), (large, False)):
        for a in arrays(session(lanes).signature(PATH, "f", text)):
            assert a == TensorArgument(a.dtype, 1, small=small)


def test_a_capacity_is_asked_for() -> None:
    s = session(CAPACITY)
    bare = s.signature(PATH, "f", "x: f32[m, k]")
    needed, _ = s.asked(PATH, "f", bare)
    assert ("x", 1) in needed
    (x, _) = arrays(s.signature(PATH, "f", "x: f32[100, 48]"))
    assert x.sizes == (None, 48)
    with pytest.raises(TesseraError, match="T0650"):
        s.tile(PATH, "f", bare)


def test_schedules_are_shown_with_their_origins() -> None:
    s = session(PRODUCT)
    signature = s.signature(PATH, "product", SHAPES)
    built = print_program(s.scheduled(PATH, "product", signature)[0])
    assert "$0" in built and '"warps=user"' in built
    decided = print_program(
        s.for_machine(PATH, "product", signature, s.machine("cuda", "sm_90")).schedule
    )
    assert "$0" not in decided and '"warps=user"' in decided and "=cost model" in decided


def test_code_of_a_tile_kernel_is_for_the_very_architecture() -> None:
    s = session(PRODUCT)
    assert s.machine("cuda", "sm_90").arch == "sm_90a"
    with pytest.raises(TesseraError, match="T0880"):
        s.machine("cuda", "sm_70")
    signature = s.signature(PATH, "product", SHAPES)
    artifact = s.compile_kernel(
        PATH, "product", signature, TargetOptions("cuda", "sm_90"), ("ptx",)
    )
    assert ".target sm_90a" in artifact.texts["ptx"]
    assert [p.divisors for p in artifact.plan.parameters] == [(128, 128), (128, 128)]


def test_each_machine_is_lowered_once() -> None:
    s = session(PRODUCT)
    signature = s.signature(PATH, "product", SHAPES)
    machine = s.machine("cuda", "sm_80")
    assert s.tile(PATH, "product", signature, machine) is s.tile(
        PATH, "product", signature, machine
    )
    assert s.counts["lower"] == 1


def test_remarks_are_those_of_the_calls() -> None:
    s = session(PRODUCT)
    s.check(PATH, ["A: bf16[256, 511], B: bf16[511, 384]"])
    said = [d.message for d in remarks_of(s, PATH, s.machine("cuda", "sm_90"))]
    assert any("the row pitch of `A` is no multiple of 16" in m for m in said)
    assert not any("of `B`" in m for m in said)


def test_results_have_a_shape_in_a_check() -> None:
    calls = "y = product(op.zeros((3, 4)), op.zeros((4, 5)))\nz: f32[3, 6] = y\n"
    (found,) = session(PRODUCT + calls).check(PATH)
    assert found.code == "T0834" and "size 5 along axis 1" in found.message


def test_sizes_that_differ_are_found_in_a_check() -> None:
    (found,) = session(PRODUCT + "product(op.zeros((3, 4)), op.zeros((5, 6)))\n").check(PATH)
    assert found.code == "T0838"
    assert "`A.shape[1]` is 4 and `B.shape[0]` is 5" in found.message
