"""Flags, counts, locks and fences at random: what is called proved has no race in any order of the
lanes that is tried, and what is an error has one or waits for ever, by vector clocks that follow
the memory model and nothing of the compiler."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tessera_lang.analysis import check_shared, unproved
from tessera_lang.record import dataclass, field
from tests.unit.lowering import lower_source

LANES = 4
ORDERS = ("relaxed", "acquire", "release", "acq_rel")
COMPARED = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One statement: ``kind`` with numbers and words; ``inner`` are accesses within it."""

    kind: str
    what: tuple[object, ...]
    inner: tuple[Step, ...] = ()

    def lines(self) -> list[str]:
        w = self.what
        inner = [line for step in self.inner for line in step.lines()]
        match self.kind:
            case "write":
                return [f"s[{w[0]}] = f32(t) + {w[1]}.0"]
            case "read":
                return [f"acc += s[{w[0]}]"]
            case "put":
                return [f'atomic_store(f[{w[0]}], {w[1]}, order="{w[2]}", scope="group")']
            case "wait":
                load = f'atomic_load(f[{w[0]}], order="{w[3]}", scope="group")'
                return [f"while {load} {w[1]} {w[2]}:", "    pass"]
            case "add":
                return [f'atomic_add(f[{w[0]}], 1, order="{w[1]}", scope="group")']
            case "last":
                add = f'old{w[3]} = atomic_add(f[{w[0]}], 1, order="{w[1]}", scope="group")'
                return [add, f"if old{w[3]} == {w[2]}:", *(f"    {x}" for x in inner)]
            case "fence":
                return ['tfence("group")']
            case "lock":
                cas = f'atomic_cas(f[{w[0]}], 0, 1, order="{w[1]}", scope="group")'
                free = f'atomic_store(f[{w[0]}], 0, order="{w[2]}", scope="group")'
                return [
                    f"done{w[3]} = False", f"while not done{w[3]}:", f"    if {cas} == 0:",
                    *(f"        {x}" for x in inner), f"        {free}",
                    f"        done{w[3]} = True",
                ]  # fmt: skip
            case _:
                return [f"if t {w[0]} {w[1]}:", *(f"    {x}" for x in inner)]


def text(steps: list[Step]) -> str:
    head = (
        f"@kernel tile[({LANES},)]\ndef k(out: mut f32[{LANES}]):\n"
        "    s = tshared.alloc((4,), f32)\n    f = tshared.alloc((3,), i32)\n"
        "    t = tile_linear_id()\n    s[t] = 0.0\n    if t < 3: f[t] = 0\n    tbarrier()\n"
        "    acc = 0.0\n"
    )
    body = "".join(f"    {line}\n" for step in steps for line in step.lines())
    return head + body + "    out[t] = acc\n"


# --- a run by vector clocks ---------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    r: random.Random
    clocks: list[list[int]] = field(default_factory=lambda: [[0] * LANES for _ in range(LANES)])
    seen: list[list[int]] = field(default_factory=lambda: [[0] * LANES for _ in range(LANES)])
    fenced: list[list[int]] = field(default_factory=lambda: [[0] * LANES for _ in range(LANES)])
    values: list[int] = field(default_factory=lambda: [0] * 3)
    given: list[list[int]] = field(default_factory=lambda: [[0] * LANES for _ in range(3)])
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    read: dict[int, dict[int, int]] = field(default_factory=dict)
    raced: bool = False
    stuck: bool = False

    def go(self, steps: list[Step]) -> bool:
        """Whether a race shows in a run of one order; lanes that wait for ever end it."""
        for lane in range(LANES):
            self.clocks[lane][lane] = 1
        running = {lane: self.steps(lane, steps) for lane in range(LANES)}
        for _ in range(600):
            if not running:
                break
            lane = self.r.choice(sorted(running))
            if next(running[lane], "end") == "end":
                del running[lane]
        self.stuck = bool(running)
        return self.raced

    def steps(self, lane: int, steps: list[Step] | tuple[Step, ...]) -> Iterator[None]:
        for step in steps:
            w = step.what
            match step.kind:
                case "write" | "read":
                    self.access(lane, lane if w[0] == "t" else int(str(w[0])), step.kind == "write")
                    yield
                case "put":
                    self.put(lane, int(str(w[0])), int(str(w[1])), str(w[2]), False)
                    yield
                case "wait":
                    while COMPARED[str(w[1])](self.get(lane, int(str(w[0])), str(w[3])), w[2]):
                        yield
                    yield
                case "add" | "last":
                    old = self.get(lane, int(str(w[0])), str(w[1]))
                    self.put(lane, int(str(w[0])), old + 1, str(w[1]), True)
                    yield
                    if step.kind == "last" and old == w[2]:
                        yield from self.steps(lane, step.inner)
                case "fence":
                    self.join(self.clocks[lane], self.seen[lane])
                    self.fenced[lane] = list(self.clocks[lane])
                    self.clocks[lane][lane] += 1
                    yield
                case "lock":
                    at = int(str(w[0]))
                    while self.get(lane, at, str(w[1])) != 0:
                        yield
                    self.put(lane, at, 1, str(w[1]), True)
                    yield
                    yield from self.steps(lane, step.inner)
                    self.put(lane, at, 0, str(w[2]), False)
                    yield
                case _:
                    if COMPARED[str(w[0])](lane, w[1]):
                        yield from self.steps(lane, step.inner)

    def join(self, into: list[int], other: list[int]) -> None:
        into[:] = [max(a, b) for a, b in zip(into, other, strict=True)]

    def get(self, lane: int, at: int, order: str) -> int:
        self.join(self.seen[lane], self.given[at])
        if order in ("acquire", "acq_rel"):
            self.join(self.clocks[lane], self.given[at])
        return self.values[at]

    def put(self, lane: int, at: int, value: int, order: str, update: bool) -> None:
        handed = self.clocks[lane] if order in ("release", "acq_rel") else self.fenced[lane]
        before = self.given[at] if update else [0] * LANES
        self.given[at] = [max(a, b) for a, b in zip(before, handed, strict=True)]
        self.values[at] = value
        self.clocks[lane][lane] += 1

    def access(self, lane: int, cell: int, writes: bool) -> None:
        mine = self.clocks[lane]
        if cell in self.written:
            other, time = self.written[cell]
            self.raced |= other != lane and mine[other] < time
        if writes:
            for other, time in self.read.get(cell, {}).items():
                self.raced |= other != lane and mine[other] < time
            self.written[cell] = (lane, mine[lane])
        else:
            self.read.setdefault(cell, {})[lane] = mine[lane]


# --- programs -----------------------------------------------------------------------------------


def accesses(r: random.Random) -> tuple[Step, ...]:
    return tuple(
        Step(r.choice(["write", "read", "read"]), (r.choice(["0", "0", "1", "t"]), r.randrange(3)))
        for _ in range(r.choice([1, 1, 2]))
    )


def program(r: random.Random) -> list[Step]:
    """Near to a pattern, with a piece of it changed at random."""
    good = r.random() < 0.5

    def order(right: str) -> str:
        return right if good or r.random() < 0.6 else r.choice(ORDERS)

    def one(lane: int, *steps: Step) -> Step:
        return Step("if", (r.choice(["==", "==", "==", "!="]) if not good else "==", lane), steps)

    loads, stores = ("relaxed", "acquire"), ("relaxed", "release")

    def load(right: str) -> str:
        return right if good or r.random() < 0.6 else r.choice(loads)

    def store(right: str) -> str:
        return right if good or r.random() < 0.6 else r.choice(stores)

    n = LANES if good else r.choice([LANES, LANES - 1])
    match r.choice(["flag", "flag", "count", "last", "lock", "fences"]):
        case "flag":
            flag, other = 0, 0 if good else r.choice([0, 0, 1])
            return [
                one(0, *accesses(r), Step("put", (flag, 1, store("release")))),
                one(
                    r.choice([1, 2]), Step("wait", (other, "==", 0, load("acquire"))), *accesses(r)
                ),
                *([] if good else [one(3, *accesses(r))] * r.choice([0, 0, 1])),
            ]
        case "count":
            return [
                *accesses(r), Step("add", (0, order("release"))),
                Step("wait", (0, r.choice(["<", "!="]), n, load("acquire"))), *accesses(r),
            ]  # fmt: skip
        case "last":
            return [*accesses(r), Step("last", (0, order("acq_rel"), n - 1, 0), accesses(r))]
        case "lock":
            first = Step("lock", (0, order("acquire"), store("release"), 0), accesses(r))
            where = 0 if good else r.choice([0, 0, 1])
            second = Step("lock", (where, order("acquire"), store("release"), 1), accesses(r))
            return [first, *r.choice([[], [second], [one(1, *accesses(r))]])]
        case _:
            begin = [*accesses(r), Step("fence", ()), Step("put", (0, 1, "relaxed"))]
            end = [Step("wait", (0, "==", 0, "relaxed")), Step("fence", ()), *accesses(r)]
            if not good:
                r.choice([begin, end]).pop(r.randrange(2))
            return [one(0, *begin), one(1, *end)]


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sample(1)
def test_what_is_proved_has_no_race_and_what_is_an_error_has_one(seed: int) -> None:
    r = random.Random(seed)
    proved = checked = 0
    for _ in range(12):
        steps = program(r)
        lowered, plan, said = lower_source(text(steps))
        found = check_shared(lowered.operations[0], plan)
        runs = [Run(random.Random(n)) for n in range(40)]
        for run in runs:
            run.go(steps)
        raced = any(run.raced for run in runs)
        assert not (found.races == "proved" and raced), text(steps)
        if any(d.code == "T0410" for d in said):
            assert raced or any(run.stuck for run in runs), text(steps)
        codes = {d.code for d in unproved(lowered.operations[0], plan)}
        if any(d.severity == "error" for d in said):
            continue
        checked += "T0416" in codes
        assert not raced or codes & {"T0410", "T0412"}, text(steps)
        if "T0410" in codes:
            assert raced or any(run.stuck for run in runs), text(steps)
        proved += found.races == "proved"
    assert proved or checked
