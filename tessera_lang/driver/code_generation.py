"""Code of a launch, begun and waited for: another program may work on it meanwhile.

ptxas takes as long as all else, and is a process of its own: it assembles a launch while the next
one is decided and written. Must not know a target.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.driver import pipeline
from tessera_lang.driver.pass_runner import PassRunner
from tessera_lang.ir.core import Program
from tessera_lang.target.backend import Artifact, Backend, BeginsCode, TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan

Begin = Callable[[Program, LaunchPlan], Callable[[], Artifact]]
Given = tuple[Program, LaunchPlan, TargetOptions, tuple[str, ...]]


def begin_code(runner: PassRunner, backend: Backend, given: Given) -> Callable[[], Artifact]:
    """What waits for the code. Both raise as ``compile`` of a backend does."""
    if not isinstance(backend, BeginsCode):
        made = runner.step(pipeline.GENERATE_CODE, lambda: backend.compile(*given), None)
        return lambda: made
    finish = runner.step(pipeline.GENERATE_CODE, lambda: backend.begin(*given), None)
    return lambda: runner.step(pipeline.GENERATE_CODE, finish, None)
