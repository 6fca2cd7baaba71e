"""A sample of random schedules, and decisions with a fault, which the comparison must find.

``python -m tests.fuzz.tile_schedules`` tries more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.cache import forget_shared_cache

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.lower.schedule_to_tile.common import shared_memory_reuse, tile_counts
from tessera_lang.lower.schedule_to_tile.hopper import pipeline_state
from tessera_lang.lower.schedule_to_tile.hopper.pipeline_state import RingUse
from tessera_lang.opt.schedule.query.scalar_facts import Facts
from tests.fuzz import tile_schedules
from tests.fuzz.tile_programs import Array
from tests.fuzz.tile_schedules import Case, case_of, tried
from tests.fuzz.tile_schedules_cases import MOST_INTERPRETED

# Each kernel comes once in eleven seeds.
TARGETS = [
    ("sm_80", 8), ("sm_90a", 14), pytest.param("cpu", 24, marks=pytest.mark.slow),
    *(pytest.param(t, n, marks=pytest.mark.slow) for t, n in (("sm_80", 44), ("sm_90a", 66))),
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is compiled here is compiled now, and nobody finds it later."""
    monkeypatch.setenv("TESSERA_CACHE", "off")
    forget_shared_cache()
    yield
    forget_shared_cache()


@pytest.mark.parametrize(("target", "count"), TARGETS)
@pytest.mark.sample(1)
def test_schedules_change_nothing(target: str, count: int) -> None:
    refused = 0
    for seed in range(count):
        case = case_of(seed, MOST_INTERPRETED)
        outcome = tried(case, target)
        assert not outcome.wrong, f"{outcome.wrong}\n{case}"
        refused += bool(outcome.refused)
    assert count - refused >= count * 9 // 10


def test_only_a_lack_of_resources_is_a_reason() -> None:
    """A schedule that fits is never refused, whatever the code."""
    large, tight = case_of(0), case_of(34)  # of 330 cases, 0 and 34 are the first that do not fit
    assert [tried(c, "sm_90a").refused for c in (large, tight)] == ["T0741", "T0741"]
    said = "the products need 512 registers of each lane; there are 231 for them"
    for target, code, message, right in (
        ("sm_90a", "T0741", said, "T0741"), ("cpu", "T0741", said, ""),
        ("sm_90a", "T0740", "the schedule needs 9 bytes of shared memory; sm_90 has 9", ""),
        ("sm_90a", "T0742", said, ""), ("sm_90a", "T0608", said, ""),
    ):  # fmt: skip
        error = tessera.TesseraError([Diagnostic(code, message)])
        outcome = tile_schedules.refusal(large, target, error)
        assert outcome.refused == right and bool(outcome.wrong) == (not right)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(500, 560))
def test_schedules_change_nothing_on_a_gpu(seed: int) -> None:
    outcome = tried(case_of(seed), "cuda")
    assert not outcome.wrong, f"{outcome.wrong}\n{case_of(seed)}"


# --- decisions with a fault --------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def _one_tile_less(patch: pytest.MonkeyPatch) -> None:
    """Tiles at the edge are left out."""
    dim_op = tile_counts.dim_op

    def floor(name: str, *operands: Any) -> Any:
        return dim_op("//" if name == "ceil_div" else name, *operands)

    patch.setattr(tile_counts, "dim_op", floor)


def _every_tile_is_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Facts, "is_full", lambda self, extent, size: True)


def _buffers_never_meet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shared_memory_reuse._Use, "meets", lambda self, other: False)


def _a_ring_keeps_its_phase(patch: pytest.MonkeyPatch) -> None:
    advance = pipeline_state._advance

    def kept(use: RingUse) -> Any:
        operations = advance(use)
        use.next = (use.next[0], use.phase)
        return operations

    patch.setattr(pipeline_state, "_advance", kept)


def _all_arrays_are_aligned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Facts, "vector_bytes", lambda self, access: 16)


PLANTED: tuple[tuple[Plant, str], ...] = (
    (_one_tile_less, "are wrong"), (_every_tile_is_whole, "are wrong"),
    (_buffers_never_meet, "writes what"), (_a_ring_keeps_its_phase, "T0904"),
    (_all_arrays_are_aligned, "bytes are aligned"),
)  # fmt: skip


@pytest.mark.parametrize(("plant", "said"), PLANTED, ids=[p.__name__[1:] for p, _ in PLANTED])
@pytest.mark.sample(3)
def test_a_wrong_decision_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, said: str
) -> None:
    plant(monkeypatch)
    outcomes = (tried(case_of(seed, MOST_INTERPRETED), "sm_90a").wrong for seed in range(44))
    assert any(said in wrong for wrong in outcomes)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.sample(1)
def test_other_bits_are_found(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """A difference within the rounding, where nothing is rounded."""
    called = tile_schedules.called

    def off(case: Case, target: str) -> list[Array]:
        found = called(case, target)
        if case.lines:
            last = found[-1]
            last.view(np.uint8)[..., 0] ^= 1
        return found

    monkeypatch.setattr(tile_schedules, "called", off)
    exact = [c for c in map(case_of, range(22)) if c.kernel.name == "into" and c.lines]
    outcome = tried(exact[0], target)
    assert outcome.wrong == "the bits are others than without a schedule"


# --- many processes ----------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "said"), [
    ("os._exit(3)", "the process ended"), ("time.sleep(60)", "it does not end"),
])  # fmt: skip
def test_a_process_that_dies_costs_one_seed(
    monkeypatch: pytest.MonkeyPatch, ending: str, said: str
) -> None:
    """Seed 2 does; those behind it are tried by another process."""
    text = (
        "import json, os, sys, time\n"
        "for seed in range(int(sys.argv[1]), int(sys.argv[2])):\n"
        f"    if seed == 2: {ending}\n"
        "    print(json.dumps({'equal': 1, 'tried': [seed]}), flush=True)\n"
    )

    def started(seeds: range, chosen: argparse.Namespace) -> tile_schedules.Child:
        command = [sys.executable, "-c", text, str(seeds.start), str(seeds.stop)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)  # fmt: skip
        return tile_schedules.Child(seeds, process, time.monotonic() + 2)

    monkeypatch.setattr(tile_schedules, "started", started)
    chosen = argparse.Namespace(seed=0, seconds=30, count=5, jobs=1, chunk=6, target="cpu")
    total = tile_schedules.many(chosen)
    assert total.tried == [0, 1, 2, 3, 4, 5] and total.equal == 5
    assert list(total.wrong) == [2] and total.wrong[2].startswith(said)


def test_seeds_in_few_words() -> None:
    assert tile_schedules.spans([5, 1, 2, 3, 9, 8]) == ["1-3", "5", "8-9"]
