"""Test modules are imported by the processes of a run from different places on.

The first import of a module rewrites its assertions and compiles it, for which the others find the
bytecode. All processes collect the same modules in the same order: in a fresh checkout each would
do that work for all of them, at the same time. Here each begins in another part of them.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def order(count: int, process: int, processes: int) -> list[int]:
    """Numbers of all ``count`` modules, from the part of a process on."""
    first = count * process // processes
    return [*range(first, count), *range(first)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    config = session.config
    told: dict[str, object] | None = getattr(config, "workerinput", None)
    whole = {(config.invocation_params.dir / a).resolve() for a in config.args} == {TESTS}
    if told is None or not whole:
        return
    process, processes = int(str(told["workerid"])[2:]), int(str(told["workercount"]))
    paths = [p.relative_to(TESTS.parent) for p in sorted(TESTS.rglob("test_*.py"))]
    for i in order(len(paths), process, processes):
        name = ".".join(paths[i].with_suffix("").parts)
        # What cannot be imported is told by the collection.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)
