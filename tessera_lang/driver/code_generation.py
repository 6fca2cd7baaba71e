"""Code of a launch, begun and waited for: another program may work on it meanwhile.

ptxas takes as long as all else, and is a process of its own: it assembles a launch while the next
one is decided and written. Must not know a target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.driver import pipeline
from tessera_lang.driver.kernel_instances import Scheduled
from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.driver.spill_retry import without_spills
from tessera_lang.ir.core import Program
from tessera_lang.target.backend import Artifact, Backend, BeginsCode, TargetOptions, one_call
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import Machine

Begin = Callable[[Program, LaunchPlan], Callable[[], Artifact]]
Given = tuple[Program, LaunchPlan, TargetOptions, tuple[str, ...]]


def begin_code(runner: PassRunner, backend: Backend, given: Given) -> Callable[[], Artifact]:
    """What waits for the code. Both raise as ``compile`` of a backend does."""
    if not isinstance(backend, BeginsCode):
        made = runner.step(pipeline.GENERATE_CODE, lambda: backend.compile(*given), None)
        return lambda: made
    finish = runner.step(pipeline.GENERATE_CODE, lambda: backend.begin(*given), None)
    return lambda: runner.step(pipeline.GENERATE_CODE, finish, None)


def begin_launches(
    launches: Sequence[Scheduled], machine: Machine, begun: Begin, runner: PassRunner
) -> Callable[[], Artifact]:
    """What waits for the code of a tile kernel: of each of its launches, with few registers in
    memory."""
    running: list[Callable[[], Artifact]] = []
    for launch in launches:
        lowered = launch.machines[machine].lowered
        assert lowered is not None
        running.append(begun(*lowered))

    def finished() -> Artifact:
        found: list[Artifact] = []
        for launch, finish in zip(launches, running, strict=True):
            artifact = finish()
            if artifact.resources.spill_bytes > 0:
                artifact = without_spills(
                    launch, machine, artifact, lambda program, plan: begun(program, plan)(), runner
                )
            found.append(artifact)
        return one_call(found)

    return finished
