"""Code that spills: another schedule is taken where one spills less, and the rest is reported."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Program
from tessera_lang.target.backend import Artifact, Resources, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan
from tests.fuzz.tile_programs import large, signature_text
from tests.fuzz.tile_programs_generate import generate
from tests.unit.backend.nvptx.kernels import needs_ptxas

PATH = "m.tessera"
TEXT = """
@op.kernel
def f(A: f32[1024, 1024], B: f32[1024, 1024], O: mut f32[1024, 1024]):
    for i, j in op.tile_range(1024, 1024, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(1024, step=16):
            acc += A[i:i+64, p:p+16] @ B[p:p+16, j:j+64]
        O[i:i+64, j:j+64] = acc
"""


def group_of(program: Program) -> int:
    (lanes,) = program.operations[0].attributes["group"]  # type: ignore[misc]
    assert isinstance(lanes, int)
    return lanes


class Spilling:
    """A backend that spills some bytes for each number of lanes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bytes_: dict[int, int]) -> None:
        self.bytes, self.asked = bytes_, list[int]()
        monkeypatch.setattr("tessera_lang.driver.session.backend_named", lambda name: self)

    def default_arch(self) -> str:
        return "sm_90a"

    def compile(
        self, program: Program, plan: LaunchPlan, options: TargetOptions, stages: tuple[str, ...]
    ) -> Artifact:
        lanes = group_of(program)
        self.asked.append(lanes)
        return Artifact("cubin", b"", "f", plan, options, Resources(255, self.bytes[lanes]))


def compiled(session: Session) -> Artifact:
    signature = session.signature(PATH, "f")
    return session.compile_kernel(PATH, "f", signature, TargetOptions("cuda", "sm_90a"))


@pytest.mark.parametrize(
    ("bytes_", "asked", "left"),
    [
        ({128: 0}, [128], 0),
        ({128: 8, 256: 0}, [128, 256], 0),
        ({128: 100, 256: 60, 512: 0}, [128, 256, 512], 0),
        ({128: 100, 256: 60, 512: 70}, [128, 256, 512], 60),
        ({128: 100, 256: 100}, [128, 256], 100),
    ],
)
def test_the_schedule_that_spills_least_is_taken(
    monkeypatch: pytest.MonkeyPatch, bytes_: dict[int, int], asked: list[int], left: int
) -> None:
    backend = Spilling(monkeypatch, bytes_)
    session = Session(overlay={PATH: TEXT})
    artifact = compiled(session)
    assert backend.asked == asked
    assert artifact.resources.spill_bytes == left
    warnings = [d for d in artifact.diagnostics if d.code == "T0881"]
    assert len(warnings) == (left > 0)
    # What is shown afterwards is the schedule that was taken.
    made = session.for_machine(
        PATH, "f", session.signature(PATH, "f"), session.machine("cuda", "sm_90a")
    )
    assert made.lowered is not None
    best = min(bytes_, key=lambda lanes: (bytes_[lanes], lanes))
    assert group_of(made.lowered[0]) == best
    origins = made.schedule.operations[0].attributes["origins"]
    assert isinstance(origins, tuple)
    assert ("warps=legality" in origins) == (best != 128)


def test_a_warning_has_a_line_and_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    Spilling(monkeypatch, {128: 8, 256: 8})
    (warning,) = compiled(Session(overlay={PATH: TEXT})).diagnostics
    assert warning.severity == "warning" and warning.span is not None
    assert any(re.search(r"\d+ x \d+ f32 = ", note) for note in warning.notes) and warning.helps


def test_what_the_user_says_of_warps_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Spilling(monkeypatch, {128: 8})
    text = TEXT.replace("    for i, j", "    schedule.warps(4)\n    for i, j")
    artifact = compiled(Session(overlay={PATH: text}))
    assert backend.asked == [128]
    assert [d.code for d in artifact.diagnostics] == ["T0881"]


SPILLED = [1, 5, 7, 13, 46, 54, 67, 102, 107, 119, 129, 173, 177, 248, 273, 278, 288, 308, 316, 338]
"""Programs that once spilled, up to 18 thousand bytes, without a word."""


@needs_ptxas
@pytest.mark.parametrize("seeds", [[seed] for seed in SPILLED])
@pytest.mark.sample(1)
def test_no_code_spills_in_silence(seeds: Sequence[int]) -> None:
    for seed in seeds:
        artifact = code_of(seed)
        said = [d for d in artifact.diagnostics if "are spilled" in d.message]
        spilled = artifact.resources.spill_bytes
        assert len(said) == (spilled > 0), f"seed {seed}"
        assert all(d.span is not None for d in said)
        assert spilled <= 2000, f"seed {seed}: {spilled} bytes are spilled"


@needs_ptxas
@pytest.mark.slow
def test_the_registers_of_roles_are_set() -> None:
    """ptxas has to know how many a lane begins with, whatever the code happens to need."""
    moved = 0
    for seed in (41, 115, 118, 300, 312):
        artifact = code_of(seed)
        moved += "setmaxnreg" in artifact.texts["ptx"]
        assert not [d.message for d in artifact.diagnostics if "C75" in d.message], f"seed {seed}"
    assert moved >= 3


def code_of(seed: int) -> Artifact:
    program = generate(seed)
    session = Session(overlay={PATH: program.text()})
    signature = session.signature(PATH, "kernel", signature_text(program, large(program)))
    return session.compile_kernel(
        PATH, "kernel", signature, TargetOptions("cuda", "sm_90a"), ("ptx",)
    )
