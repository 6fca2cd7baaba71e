"""What the check of shared memory calls proved has no fault in any launch; what it calls an
error has one in every launch. On kernels that are right only by chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tessera_lang.analysis import check_shared
from tests.fuzz.checker import (
    Barrier,
    Event,
    Guard,
    Kernel,
    Loop,
    Names,
    Node,
    Touch,
    run_lanes,
)
from tests.unit.lowering import lower_source

LANES = 32
SCALARS = (-3, 0, 1, 2, 3, 5, 16, 31, 32, 33, 100)


@dataclass
class Counted(Loop):
    """``for r in range(h)``: as long as a scalar of the call says, here at most 4."""

    def events(self, names: Names) -> Iterator[Event]:
        self.values = list(range(max(0, min(names["h"], 4))))
        yield from super().events(names)


@dataclass
class Halved(Loop):
    """``while s > 0`` from a scalar of the call on."""

    def events(self, names: Names) -> Iterator[Event]:
        self.values = []
        s = names["h"]
        while s > 0:
            self.values.append(s)
            s //= 2
        yield from super().events(names)


@dataclass
class Leaving(Loop):
    """``for r in range(3)`` whose body ends with a ``continue`` or ``break`` in the middle."""

    exit: str = "continue"
    when: str = "t < 3"
    at: int = 0

    def lines(self) -> list[str]:
        inner = [line for n in self.body[: self.at] for line in n.lines()]
        inner += [f"if {self.when}: {self.exit}"]
        inner += [line for n in self.body[self.at :] for line in n.lines()]
        return [self.head, *(f"    {line}" for line in inner)]

    def events(self, names: Names) -> Iterator[Event]:
        for value in self.values:
            inner = {**names, self.name: value}
            for node in self.body[: self.at]:
                yield from node.events(inner)
            if eval(self.when, {}, inner):
                if self.exit == "break":
                    return
                continue
            for node in self.body[self.at :]:
                yield from node.events(inner)


def index(r: random.Random, loops: list[str]) -> str:
    k = r.randrange(LANES)
    plain = ["t", f"{LANES - 1} - t", f"t ^ {k}", f"(t + {k}) % {LANES}", f"t + {k}", "t // 2",
             f"{k}", "t - 1", "t + h", "h", "h - t", "t % 4"]  # fmt: skip
    inner = [f"t + {v}" for v in loops] + [f"(t + {v}) % {LANES}" for v in loops] + loops
    return r.choice(plain + inner * 3 if loops else [*plain, *["t"] * 6])


def condition(r: random.Random, loops: list[str]) -> str:
    k = r.randrange(LANES)
    some = [f"t < {k}", f"t >= {k}", "t % 2 == 0", "t == 0", "t < h", "t >= h", "t + h < 20",
            "x[t] > 0.5", f"x[{k}] > 0.5"]  # fmt: skip
    return r.choice([*some, *(f"t < {v}" for v in loops), *(f"t > {v}" for v in loops)])


def touches(r: random.Random, loops: list[str]) -> list[Node]:
    made: list[Node] = []
    for _ in range(r.randrange(1, 3)):
        kind = r.choice(["read", "write"])
        made.append(Touch(kind, r.choice("ab"), index(r, loops)))
    return made


def statements(r: random.Random, depth: int, loops: list[str], uniform: bool) -> list[Node]:
    made: list[Node] = []
    for _ in range(r.randrange(1, 4)):
        made.append(r.choice([Guard(condition(r, loops), touches(r, loops)), *touches(r, loops)]))
        if uniform and r.random() < 0.75:
            made.append(Barrier())
        if depth and r.random() < 0.5:
            made.append(nested(r, depth, loops, uniform))
    return made


def nested(r: random.Random, depth: int, loops: list[str], uniform: bool) -> Node:
    name = f"r{depth}"
    inner = statements(r, depth - 1, [*loops, name], uniform)
    match r.randrange(6):
        case 0:
            either = r.choice(["h > 2", "h < 1", "x[3] > 0.5"])
            return Guard(either, statements(r, depth - 1, loops, uniform))
        case 1:
            return Loop(f"for {name} in range(3):", name, [0, 1, 2], inner)
        case 2:
            return Counted(f"for {name} in range(min(h, 4)):", name, [], inner)
        case 3:
            return Halved(f"while {name} > 0:", name, [], inner, [f"{name} = h"], [f"{name} //= 2"])
        case 4:
            when = r.choice(["h > 1", f"{name} == 1", "x[5] > 0.5"])
            exit_ = r.choice(["continue", "break"])
            at = r.randrange(len(inner) + 1)
            head = f"for {name} in range(3):"
            return Leaving(head, name, [0, 1, 2], inner, [], [], exit_, when, at)
        case _:
            body = statements(r, 0, [*loops, name], False)
            when = r.choice(["t < 3", f"t == {name}", "x[t] > 0.5"])
            exit_ = r.choice(["continue", "break"])
            head = f"for {name} in range(3):"
            return Leaving(head, name, [0, 1, 2], body, [], [], exit_, when, r.randrange(2))


def wild_kernel(r: random.Random) -> Kernel:
    body = statements(r, 2, [], True)
    if r.random() < 0.7:
        start: list[Node] = [Touch("write", "a", "t"), Touch("write", "b", "t"), Barrier()]
        body = start + body
    return Kernel(LANES, body, "h: index, ")


def data(r: random.Random) -> list[list[float]]:
    some = [r.random() for _ in range(LANES)]
    return [some, [float(r.randrange(2))] * LANES]


def check(seed: int, kernels: int) -> Counter[str]:
    r = random.Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(kernels):
        kernel = wild_kernel(r)
        program, plan, diagnostics = lower_source(kernel.text())
        codes = {d.code for d in diagnostics if d.severity == "error"}
        if codes & {"T0401", "T0402"}:
            continue
        found = check_shared(program.operations[0], plan)
        ran = [run_lanes(kernel, {"h": h, "x": x}) for h in SCALARS for x in data(r)]
        seen[f"races {found.races}"] += 1
        seen[f"unwritten {found.unwritten}"] += 1
        if found.races == "proved":
            assert not any(x.races for x in ran), kernel.text()
        if "T0410" in codes:
            assert all(x.races for x in ran), kernel.text()
        if found.unwritten == "proved":
            assert not any(x.unwritten for x in ran), kernel.text()
        if "T0411" in codes:
            assert all(x.unwritten for x in ran), kernel.text()
    return seen


def test_verdicts_hold() -> None:
    seen = check(seed=5, kernels=12)
    assert min(seen["races proved"], seen["races witness"], seen["unwritten proved"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_many_verdicts_hold(seed: int) -> None:
    check(seed, 200)


def test_events_are_of_the_text() -> None:
    """The kernels' own meaning, on one that is known."""
    events: list[Event] = list(Counted("", "r", [], [Touch("read", "a", "r + t")]).events(
        {"h": 2, "t": 1}
    ))  # fmt: skip
    assert [(kind, cell) for kind, _, cell, _ in events] == [("read", 1), ("read", 2)]
