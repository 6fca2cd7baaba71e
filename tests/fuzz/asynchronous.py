"""Kernels with one wait, fence, arrival or barrier less, run as code for a GPU on the CPU.

``python -m tests.fuzz.asynchronous`` writes the table in docs/checker.md. A removal that the
machine does not report counts as harmless only if nothing in the launch depends on it: no two
accesses meet unordered, and the results are the same bits in the latest order of events and in
others drawn at random.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tessera_backend.cpu.interpreter.faults import AsynchronousFault
from tessera_backend.cpu.interpreter.launch import launch

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.rewrite import Replacement, rewrite_program
from tessera_lang.target.launch_plan import LaunchPlan
from tests.fuzz.tile_programs import signature_text
from tests.fuzz.tile_schedules import KERNELS, arguments, program_of

KINDS = {
    "wait": ("tile.mbarrier.wait", "tile.mma.wait", "tma.wait", "tile.memcpy.wait"),
    "fence": ("tile.fence_async",),
    "arrival": ("tile.mbarrier.arrive", "tile.mbarrier.expect", "tile.mma.commit", "tma.commit",
                "tile.memcpy.commit"),
    "barrier": ("tile.barrier", "tile.named_barrier", "tile.cluster_barrier"),
}  # fmt: skip
ORDERS = (None, 1, 2, 3)
DOCUMENT = Path(__file__).parents[2] / "docs" / "checker.md"
BEGIN, END = "<!-- asynchronous table -->", "<!-- end of asynchronous table -->"


@dataclass(frozen=True)
class Planted:
    """A kernel of ``tile_schedules`` under a schedule, for an architecture."""

    title: str
    kernel: str
    arch: str
    lines: tuple[str, ...]
    sizes: dict[str, int]


_RING = ("schedule.pipeline_stages(2)", "schedule.warp_specialize(True)")
CASES = (
    Planted("product, two warp groups, persistent", "product", "sm_90a",
            ("schedule.tile((128, 128, 64))", "schedule.persistent(True)", *_RING),
            {"m": 512, "n": 256, "k": 256}),
    Planted("product, clusters of two", "product", "sm_90a",
            ("schedule.tile((64, 64, 64))", "schedule.cluster((2, 1))", *_RING),
            {"m": 256, "n": 128, "k": 256}),
    Planted("two sums", "two_sums", "sm_90a", _RING, {"m": 128, "n": 64, "k": 256}),
    Planted("attention", "attention", "sm_90a", _RING, {"m": 64, "n": 64, "k": 256, "d": 64}),
    Planted("chain of two products", "chain", "sm_90a", _RING,
            {"m": 64, "n": 64, "k": 192, "d": 64}),
    Planted("product, copies of lanes", "product", "sm_80",
            ("schedule.tile((64, 64, 32))", "schedule.pipeline_stages(3)"),
            {"m": 64, "n": 64, "k": 256}),
)  # fmt: skip


@dataclass
class Case:
    """A lowered kernel, its arguments, and the bits that it gives."""

    planted: Planted
    program: Program = field(init=False)
    plan: LaunchPlan = field(init=False)
    arrays: list[Any] = field(init=False)
    right: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        p = self.planted
        source = program_of(next(k for k in KERNELS if k.name == p.kernel), "bf16", p.lines)
        session, path = Session(overlay={"kernel.tessera": source.text()}), "kernel.tessera"
        wanted = session.signature(path, "kernel", signature_text(source, p.sizes))
        machine = session.machine("cuda", p.arch)
        self.program, self.plan = session.tile(path, "kernel", wanted, machine)
        self.arrays = list(arguments(source, p.sizes, False, 5))
        self.right = self.run(self.program, None)

    def run(self, program: Program, seed: int | None) -> list[bytes]:
        arrays = [a.copy() for a in self.arrays]
        found = launch(program, self.plan, *arrays, seed=seed, most=1)
        return [np.asarray(a).tobytes() for a in (*arrays, *found)]

    def removals(self) -> Iterator[tuple[str, str, int]]:
        """Kind, name and number of every operation that orders something."""
        seen = Counter[str]()
        for o in self.program.walk():
            for kind, names in KINDS.items():
                if o.name in names:
                    yield kind, o.name, seen[o.name]
                    seen[o.name] += 1

    def outcome(self, name: str, number: int) -> str:
        """``reported``, ``wrong`` (other bits without a report) or ``harmless``."""
        program = without(self.program, name, number)
        for seed in ORDERS:
            try:
                if self.run(program, seed) != self.right:
                    return "wrong"
            except AsynchronousFault:
                return "reported"
        return "harmless"


def without(program: Program, name: str, number: int) -> Program:
    """The program less one operation of a name; what it gives is what it took."""
    seen = -1

    def step(operation: Operation) -> Replacement | None:
        nonlocal seen
        if operation.name != name:
            return None
        seen += 1
        given = operation.operands if operation.results else ()
        return Replacement((), given) if seen == number else None

    return rewrite_program(program, step)


@dataclass
class Row:
    """Of one kernel: by kind how many were removed, reported and harmless."""

    case: Case
    removed: Counter[str] = field(default_factory=Counter[str])
    reported: Counter[str] = field(default_factory=Counter[str])
    harmless: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])


def measured(planted: Planted) -> Row:
    row = Row(Case(planted))
    for kind, name, number in row.case.removals():
        row.removed[kind] += 1
        outcome = row.case.outcome(name, number)
        row.reported[kind] += outcome == "reported"
        if outcome != "reported":
            (row.wrong if outcome == "wrong" else row.harmless).append(f"{name} {number}")
    return row


def line(row: Row) -> str:
    """A kernel's line of the table."""
    counts = " | ".join(f"{row.reported[k]} of {row.removed[k]}" for k in KINDS)
    planted = row.case.planted
    return f"| {planted.title} | {planted.arch} | {counts} | {len(row.harmless)} |"


def sums(removed: int, reported: int, harmless: int, wrong: int) -> str:
    return (f"{removed} removals: {reported} reported, {harmless} harmless, {wrong} with "
            "other results and no report.")  # fmt: skip


def table(rows: list[Row]) -> str:
    total = sums(
        sum(sum(r.removed.values()) for r in rows), sum(sum(r.reported.values()) for r in rows),
        sum(len(r.harmless) for r in rows), sum(len(r.wrong) for r in rows),
    )  # fmt: skip
    head = " | ".join(f"{kind}s" for kind in KINDS)
    lines = [total, "", f"| kernel | target | {head} | harmless |"]
    lines += ["|---" * (len(KINDS) + 3) + "|", *(line(row) for row in rows)]
    return "\n".join(lines)


def main() -> int:
    rows = [measured(p) for p in CASES]
    made = table(rows)
    print(made)
    for row in rows:
        print(row.case.planted.title, "harmless:", row.harmless, "wrong:", row.wrong)
    if "--write" in sys.argv:
        text = DOCUMENT.read_text(encoding="utf-8")
        pattern = re.compile(f"{BEGIN}.*{END}", re.DOTALL)
        DOCUMENT.write_text(pattern.sub(f"{BEGIN}\n\n{made}\n\n{END}", text), encoding="utf-8")
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
