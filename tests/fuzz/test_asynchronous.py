"""Code for Hopper on the CPU: random schedules, and kernels with one ordering operation less."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tessera_backend.cpu.interpreter import serialized_kernel as asynchronous_kernel

from tests.fuzz.asynchronous import (
    BEGIN,
    CASES,
    DOCUMENT,
    END,
    Planted,
    line,
    measured,
    sums,
)
from tests.fuzz.asynchronous_schedules import compared


def documented() -> list[str]:
    """The lines of the table in docs/checker.md."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip().splitlines()


@pytest.mark.parametrize("seeds", [7, pytest.param(62, marks=pytest.mark.slow)])
def test_random_schedules_change_nothing(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are refused; half of the others are split into roles."""
    monkeypatch.setenv("TESSERA_CACHE", "off")
    split: list[bool] = []
    run = asynchronous_kernel.run

    def noted(program: Any, *rest: Any) -> Any:
        split.append(any(o.name == "tile.roles" for o in program.walk()))
        return run(program, *rest)

    monkeypatch.setattr(asynchronous_kernel, "run", noted)
    outcomes = [compared(seed) for seed in range(seeds)]
    assert not [o for o in outcomes if o not in ("equal", "refused")]
    assert outcomes.count("equal") >= seeds - 2
    assert len(split) >= seeds - 2 and sum(split) >= seeds // 2 - 1


@pytest.mark.parametrize("planted", CASES, ids=lambda p: f"{p.kernel}-{p.arch}")
@pytest.mark.sample(1)
def test_what_is_removed_is_found(planted: Planted) -> None:
    """Without a report the bits stay those of the whole kernel, in every order of events tried."""
    row = measured(planted)
    assert not row.wrong
    assert sum(row.reported.values()) + len(row.harmless) == sum(row.removed.values())
    assert sum(row.reported.values()) > len(row.harmless)
    if "stay" in planted.title or planted.arch == "sm_80":
        assert not row.harmless  # every buffer is used again and again
    assert line(row) in documented(), "run python -m tests.fuzz.asynchronous --write"


def test_the_table_is_the_documents() -> None:
    """A line for each kernel, compared above, and sums that are those of its lines."""
    lines = documented()
    rows = [x for x in lines if x.startswith("| ")][1:]
    assert [x.split(" | ")[0].removeprefix("| ") for x in rows] == [p.title for p in CASES]
    counts = [[int(n) for pair in re.findall(r"(\d+) of (\d+)", x) for n in pair] for x in rows]
    harmless = [int(x.strip("| ").split(" | ")[-1]) for x in rows]
    assert lines[0] == sums(
        sum(sum(c[1::2]) for c in counts), sum(sum(c[::2]) for c in counts), sum(harmless), 0
    )
