"""Mutation test of the check of shared memory: clean kernels, and the same with a planted fault.

Kernels are made of pieces whose barriers and permutations are right by construction. Whether a
planted fault really makes two lanes meet (or leaves a read without a write) is decided here,
apart from the compiler, by running every lane's accesses. The tables in ``docs/checker.md``,
this one and that of the verdicts on the library and the examples, are written by:

    python -m tests.fuzz.checker --kernels 300 --seed 1
"""

from __future__ import annotations

import argparse
import copy
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tessera_lang.analysis import check_shared
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Program
from tessera_lang.target.launch_plan import LaunchPlan
from tests.unit.lowering import lower_source

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "checker.md"
ROUNDS = 4  # of a loop whose length is a size, when lanes are run here
FAULTS = ("barrier removed", "index shifted", "guard swapped", "write removed")

Event = tuple[str, str, int, int]
"""``read``, ``write`` or ``barrier``; the buffer; the cell; which access of the text."""


Names: TypeAlias = dict[str, Any]


class Node:
    def lines(self) -> list[str]:
        raise NotImplementedError

    def events(self, names: Names) -> Iterator[Event]:
        raise NotImplementedError


@dataclass
class Touch(Node):
    kind: str
    buffer: str
    index: str

    def lines(self) -> list[str]:
        place = f"{self.buffer}[{self.index}]"
        return [f"{place} = acc" if self.kind == "write" else f"acc += {place}"]

    def events(self, names: Names) -> Iterator[Event]:
        yield self.kind, self.buffer, eval(self.index, {"min": min}, names), id(self)


@dataclass
class Barrier(Node):
    def lines(self) -> list[str]:
        return ["tbarrier()"]

    def events(self, names: Names) -> Iterator[Event]:
        yield "barrier", "", 0, 0


@dataclass
class Guard(Node):
    condition: str
    body: list[Node]

    def lines(self) -> list[str]:
        return [f"if {self.condition}:", *indented(self.body)]

    def events(self, names: Names) -> Iterator[Event]:
        if eval(self.condition, {}, names):
            for node in self.body:
                yield from node.events(names)


@dataclass
class Loop(Node):
    """``before`` and ``head`` are text, ``after`` ends the body; ``values`` are what ``name``
    takes when lanes are run here."""

    head: str
    name: str
    values: list[int]
    body: list[Node]
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [*self.before, self.head, *indented(self.body), *(f"    {a}" for a in self.after)]

    def events(self, names: Names) -> Iterator[Event]:
        values = self.values if self.name != "m" else self.values[: names.get("rounds", ROUNDS)]
        for value in values:
            for node in self.body:
                yield from node.events({**names, self.name: value})


def indented(body: list[Node]) -> list[str]:
    return [f"    {line}" for node in body for line in node.lines()] or ["    acc += 0.0"]


@dataclass
class Kernel:
    lanes: int
    body: list[Node]
    scalars: str = ""

    def text(self) -> str:
        lines = [
            f"@kernel tile[({self.lanes},)] shared(8_KiB)",
            f"def k(x: f32[n], {self.scalars}out: mut f32[grid_groups]):",
            f"    a = tshared.alloc(({self.lanes},), f32)",
            f"    b = tshared.alloc(({self.lanes},), f32)",
            "    t = tile_linear_id()",
            "    acc = 0.0",
            "    if t < n: acc = x[t]",
            *indented(self.body),
            "    if t == 0: out[group_linear_id()] = acc",
        ]
        return "\n".join(lines) + "\n"


# --- what is right by construction -----------------------------------------------------------


def permutation(r: random.Random, lanes: int) -> str:
    """An index that is another number below ``lanes`` in each lane."""
    width = r.choice([4, 8])
    return r.choice(
        [
            "t", f"{lanes - 1} - t", f"t ^ {r.randrange(1, lanes)}",
            f"(t + {r.randrange(1, lanes)}) % {lanes}", f"t * {r.randrange(3, 16, 2)} % {lanes}",
            f"t % {width} * {lanes // width} + t // {width}",
        ]
    )  # fmt: skip


def piece(r: random.Random, lanes: int) -> list[Node]:
    """Begins and ends with every lane done with both buffers, which are full."""
    one, other = r.sample(["a", "b"], 2)
    p, q = permutation(r, lanes), permutation(r, lanes)
    exchange: list[Node] = [
        Touch("read", one, q), Barrier(), Touch("write", one, p), Barrier(),
    ]  # fmt: skip
    halves = Guard("t < s", [Touch("read", one, "t + s"), Touch("write", one, "t")])
    powers = [lanes >> i for i in range(1, lanes.bit_length())]
    step = r.choice(["s //= 2", "s >>= 1"])
    match r.randrange(7):
        case 0:
            return [Touch("write", one, p), Barrier(), Touch("read", one, q), Barrier()]
        case 1:
            return exchange
        case 2:
            body: list[Node] = [halves, Barrier()]
            return [
                Loop("while s > 0:", "s", powers, body, [f"s = {lanes // 2}"], [step]),
            ]
        case 3:
            return [Loop("for r in range(3):", "r", [0, 1, 2], exchange)]
        case 4:
            rounds = [i * lanes for i in range(ROUNDS)]
            return [Loop(f"for m in range(0, n, {lanes}):", "m", rounds, exchange)]
        case 5:
            half = lanes // 2
            low = Guard(f"t < {half}", [Touch("write", other, "t"), Touch("read", one, "t")])
            return [low, Barrier(), Touch("read", other, f"t % {half}"), Barrier()]
        case _:
            back = Guard("t >= d", [Touch("read", one, "t - d")])
            body = [back, Barrier(), Touch("write", one, "t"), Barrier()]
            ds = sorted(powers)
            return [Loop(f"while d < {lanes}:", "d", ds, body, ["d = 1"], ["d *= 2"])]


def clean_kernel(r: random.Random) -> Kernel:
    lanes = r.choice([32, 64, 128])
    start: list[Node] = [
        Touch("write", "a", permutation(r, lanes)), Touch("write", "b", permutation(r, lanes)),
        Barrier(),
    ]  # fmt: skip
    body = [node for _ in range(r.randrange(1, 4)) for node in piece(r, lanes)]
    return copy.deepcopy(Kernel(lanes, start + body))


# --- faults ----------------------------------------------------------------------------------


def bodies(nodes: list[Node]) -> Iterator[list[Node]]:
    yield nodes
    for node in nodes:
        if isinstance(node, Guard | Loop):
            yield from bodies(node.body)


def with_fault(kernel: Kernel, fault: str, r: random.Random) -> Kernel | None:
    """The kernel with one fault of a kind; None where it has no place for it."""
    made = copy.deepcopy(kernel)
    kinds = {"barrier removed": Barrier, "guard swapped": Guard}
    places = [
        (body, i)
        for body in bodies(made.body)
        for i, node in enumerate(body)
        if isinstance(node, kinds.get(fault, Touch))
        and not (fault == "write removed" and isinstance(node, Touch) and node.kind == "read")
    ]
    if not places:
        return None
    body, i = r.choice(places)
    node = body[i]
    if fault == "index shifted" and isinstance(node, Touch):
        shifted = f"{node.index} + {r.randrange(1, 4)}"
        last = kernel.lanes - 1
        node.index = r.choice([f"({shifted}) % {kernel.lanes}", f"min({shifted}, {last})"])
    elif isinstance(node, Guard):
        swap = {"<": ">=", ">=": "<"}
        node.condition = re.sub("<|>=", lambda m: swap[m[0]], node.condition, count=1)
    else:
        del body[i]
    return made


@dataclass
class Ran:
    """What running every lane shows."""

    races: bool = False
    unwritten: bool = False
    always_outside: bool = False


def run_lanes(kernel: Kernel, names: Names | None = None) -> Ran:
    """Every access of every lane, in its order; ``names`` are scalars and arrays of the call."""
    done: dict[tuple[int, str, int], list[tuple[int, str]]] = {}
    written: dict[tuple[str, int], dict[int, int]] = {}
    reads: list[tuple[int, int, str, int]] = []
    inside: dict[int, bool] = {}
    for lane in range(kernel.lanes):
        interval = 0
        mine = {**(names or {}), "t": lane}
        for kind, buffer, cell, access in (e for node in kernel.body for e in node.events(mine)):
            if kind == "barrier":
                interval += 1
                continue
            inside[access] = inside.get(access, False) or 0 <= cell < kernel.lanes
            if 0 <= cell < kernel.lanes:
                done.setdefault((interval, buffer, cell), []).append((lane, kind))
                by = written.setdefault((buffer, cell), {})
                if kind == "write":
                    by.setdefault(lane, interval)
                elif lane not in by:
                    reads.append((lane, interval, buffer, cell))
    ran = Ran(always_outside=not all(inside.values()))
    for accesses in done.values():
        writes = any(kind == "write" for _, kind in accesses)
        if writes and len({lane for lane, _ in accesses}) > 1:
            ran.races = True
    for reader, interval, buffer, cell in reads:
        others = (at for lane, at in written[buffer, cell].items() if lane != reader)
        ran.unwritten |= all(at > interval for at in others)
    return ran


def is_faulty(kernel: Kernel, rounds: tuple[int, ...] = (ROUNDS, 0)) -> bool:
    """Whether two lanes meet, a lane reads what nobody wrote, or an access is always outside.
    ``rounds``: of loops over a size, in each launch that is tried."""
    ran = [run_lanes(kernel, {"rounds": n}) for n in rounds]
    return any(r.races or r.unwritten for r in ran) or ran[0].always_outside


# --- the table -------------------------------------------------------------------------------


@dataclass
class Row:
    planted: int = 0
    faulty: int = 0
    caught: int = 0
    harmless: int = 0
    blamed: int = 0


@dataclass
class Outcome:
    clean: int = 0
    clean_blamed: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    blamed: list[str] = field(default_factory=list)
    rows: dict[str, Row] = field(default_factory=lambda: {f: Row() for f in FAULTS})


def is_blamed(kernel: Kernel) -> bool:
    return any(d.severity == "error" for d in lower_source(kernel.text())[2])


def measure(kernels: int, seed: int) -> Outcome:
    """Every clean kernel is checked as it is, and with one fault of each kind."""
    r = random.Random(seed)
    out = Outcome()
    for _ in range(kernels):
        kernel = clean_kernel(r)
        assert not is_faulty(kernel), kernel.text()
        out.clean += 1
        if is_blamed(kernel):
            out.clean_blamed.append(kernel.text())
        for fault, row in out.rows.items():
            made = with_fault(kernel, fault, r)
            if made is None:
                continue
            row.planted += 1
            blamed = is_blamed(made)
            if is_faulty(made):
                row.faulty += 1
                row.caught += blamed
                if not blamed:
                    out.missed.append(made.text())
            else:
                row.harmless += 1
                row.blamed += blamed
                if blamed:
                    out.blamed.append(made.text())
    return out


def table(out: Outcome, seed: int) -> str:
    lines = [
        f"{out.clean} generated kernels, seed {seed}. Blamed without a fault: "
        f"{len(out.clean_blamed)}.",
        "",
        "| planted | kernels | of these faulty | caught | harmless | harmless, but blamed |",
        "|---|---|---|---|---|---|",
    ]
    for fault, row in out.rows.items():
        lines.append(
            f"| {fault} | {row.planted} | {row.faulty} | {row.caught} | {row.harmless} | "
            f"{row.blamed} |"
        )
    return "\n".join(lines)


# --- verdicts --------------------------------------------------------------------------------


def library_files() -> list[Path]:
    library = sorted(ROOT.glob("stdlib/tessera_stdlib/*.tessera"))
    return [*library, *sorted(EXAMPLES.glob("*.tessera"))]


def lowered_kernels(path: Path) -> tuple[list[Diagnostic], list[tuple[str, Program, LaunchPlan]]]:
    """What a check of a file says, and the kernels it lowers, with those of its imports."""
    session = Session()
    found = list(session.check(str(path)))
    kernels = [
        (Path(other).name, program, plan)
        for other in session.closure(str(path))
        for program, plan in session.lowered(other)
    ]
    return found, kernels


def verdict_table() -> str:
    """One line for each kernel; several instances of one count as the worst of them."""
    order = ("none", "proved", "not proved", "witness")
    rows: dict[tuple[str, str], list[int]] = {}
    for path in library_files():
        for file, program, plan in lowered_kernels(path)[1]:
            found = check_shared(program.operations[0], plan)
            row = rows.setdefault((file, plan.kernel), [0, 0])
            row[0] = max(row[0], order.index(found.races))
            row[1] = max(row[1], order.index(found.unwritten))
    lines = ["| file | kernel | races | reads of what nobody wrote |", "|---|---|---|---|"]
    for (file, kernel), (races, unwritten) in sorted(rows.items()):
        if races:
            lines.append(f"| {file} | `{kernel}` | {order[races]} | {order[unwritten]} |")
    without = sum(1 for races, _ in rows.values() if not races)
    return "\n".join([*lines, "", f"{without} more kernels have no shared memory."])


def write_page(name: str, text: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} table -->", f"<!-- end of {name} table -->"
    start, stop = page.index(begin) + len(begin), page.index(end)
    PAGE.write_text(f"{page[:start]}\n\n{text}\n\n{page[stop:]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    out = measure(given.kernels, given.seed)
    text = table(out, given.seed)
    print(text)
    for name, texts in (("missed", out.missed), ("blamed", [*out.clean_blamed, *out.blamed])):
        for source in texts[:3]:
            print(f"\n{name}:\n{source}")
    write_page("mutation", text)
    write_page("verdict", verdict_table())


if __name__ == "__main__":
    main()
