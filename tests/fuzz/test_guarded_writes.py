"""Random programs that write shared memory under conditions and read it under others: what the
check calls written is so in every launch, run lane by lane in Python."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tessera_lang.analysis import check_shared
from tests.unit.lowering import lower_source

LANES = 8
SIZES = ((1, 1), (2, 5), (3, 8), (5, 4), (8, 8), (9, 3), (4, 17))
CALLS = (0, 1, 4, 7, 9)
LANE = ("i < n", "j < m", "i < m", "j < n", "i + 1 < n", "i >= 1", "t < h", "t < 6", "b < h",
        "j + 1 <= m", "t + h < 8", "not i >= n", "i < n + 1", "t % 2 == 0", "x[q, t] > 1",
        "t == h", "i != 3", "t * 2 < h")  # fmt: skip
GROUP = ("q < m", "q + 1 < m", "c * 2 < n", "h > 2", "h >= 3", "x[q, 0] > 1", "m > 2")
PLACES = ("t", "t", "7 - t", "t ^ 1", "t + 1", "t - 1", "2 * t", "b * 4 + a", "a * 2 + b")


class _Maker:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def text(self) -> str:
        head = "@kernel tile[(4, 2)] grid[(m,)]\ndef f(x: i32[m, 8], y: f32[n], h: index):\n"
        start = ["s = tshared.alloc((8,), f32)", "y0: f32 = 0.0", "t = tile_linear_id()",
                 "a, b, q = tile_id(0), tile_id(1), group_id(0)", "c = q",
                 "i, j = q * 4 + a, q * 2 + b"]  # fmt: skip
        body = [*start, *self.block(2, True)]
        return head + "".join(f"    {line}\n" for line in body)

    def condition(self, of: tuple[str, ...]) -> str:
        r = self.r
        parts = [r.choice(of) for _ in range(r.choice((1, 1, 2)))]
        return r.choice((" and ", " and ", " or ")).join(parts)

    def block(self, depth: int, uniform: bool) -> Iterator[str]:
        r = self.r
        for _ in range(r.choice((1, 2, 2, 3))):
            kind = r.random()
            if depth and kind < 0.5:
                alike = uniform and r.random() < 0.35
                yield f"if {self.condition(GROUP if alike else LANE)}:"
                yield from self.indented(depth, alike)
                if r.random() < 0.2:
                    yield "else:"
                    yield from self.indented(depth, alike)
            elif depth and uniform and kind < 0.65:
                name = f"k{depth}"
                yield f"for {name} in range({r.choice(('h', '2', 'n'))}):"
                yield from self.indented(depth, True)
                if r.random() < 0.3:
                    yield f"    if {self.condition(GROUP)}: {r.choice(('break', 'continue'))}"
                    yield from self.indented(depth, True)
            else:
                place = r.choice(PLACES)
                yield r.choice((f"s[{place}] = f32(t)", f"y0 += s[{place}]"))
            if uniform and r.random() < 0.7:
                yield "tbarrier()"

    def indented(self, depth: int, uniform: bool) -> Iterator[str]:
        return (f"    {line}" for line in self.block(depth - 1, uniform))


class _Buffer:
    """What Python sees: reads of what no lane has written so far, by intervals between barriers."""

    def __init__(self) -> None:
        self.written: dict[int, list[tuple[int, int]]] = {}
        self.reads: list[tuple[int, int, int]] = []
        self.lane = self.interval = 0

    def __setitem__(self, place: int, value: float) -> None:
        if 0 <= place < LANES:
            self.written.setdefault(place, []).append((self.interval, self.lane))

    def __getitem__(self, place: int) -> float:
        mine = any(lane == self.lane for _, lane in self.written.get(place, ()))
        if 0 <= place < LANES and not mine:
            self.reads.append((place, self.interval, self.lane))
        return 0.0

    def faults(self) -> bool:
        """A write in the same interval is a race, which is told apart from this."""
        return any(
            not any(
                at < interval or (at == interval and by != lane)
                for at, by in self.written.get(place, ())
            )
            for place, interval, lane in self.reads
        )


class _Data:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __getitem__(self, place: tuple[int, int]) -> int:
        return random.Random(f"{self.seed} {place}").randrange(3)


def unwritten(text: str) -> bool:
    """Whether some launch reads what nobody has written."""
    lines = [line[4:] for line in text.splitlines()[3:]]
    body = "\n".join(line for line in lines if not line.startswith(("t =", "a, b")))
    code = compile(body, "kernel", "exec")
    for (m, n), h, seed in itertools.product(SIZES, CALLS, (1, 2)):
        data = _Data(seed)
        for q in range(m):
            s = _Buffer()
            for t in range(LANES):
                s.lane, s.interval = t, 0

                def barrier(s: _Buffer = s) -> None:
                    s.interval += 1

                exec(code, {"m": m, "n": n, "h": h, "x": data, "s": s, "t": t, "a": t // 2,
                            "b": t % 2, "q": q, "f32": float, "tbarrier": barrier})  # fmt: skip
            if s.faults():
                return True
    return False


class _Counted:
    """Cells that count, as Python sees them."""

    def __init__(self) -> None:
        self.cells = [0, 0]

    def add(self, place: int, number: int) -> int:
        self.cells[place] += number
        return self.cells[place] - number

    def __getitem__(self, place: int) -> int:
        return self.cells[place]

    def __setitem__(self, place: int, number: int) -> None:
        self.cells[place] = number


def counting(seed: int) -> str:
    """Lanes count, store at the numbers that they get, and read below the count, or nearly so."""
    r = random.Random(seed)
    maker = _Maker(seed)
    add = f"atomic_add(c[{r.choice('00001')}], {r.choice('1111112')})"
    number = r.choice(("p", "p", "p", "p", "p + 1", "p * 1", "t", "7 - p"))
    store = [f"p = {add}", f"s[{number}] = f32(t)"]
    if r.random() < 0.15:
        store.insert(1, f"if {r.choice(LANE)}: p += 1")
    if r.random() < 0.15:
        store[-1] = f"if {r.choice(LANE)}: {store[-1]}"
    lines = [f"if t < 2: c[t] = {r.choice('0000001')}", "tbarrier()"]
    for _ in range(r.choice((1, 1, 2))):
        lines += [f"if {maker.condition(LANE)}:", *(f"    {line}" for line in store)]
    if r.random() < 0.1:
        lines.append("if t == 0: atomic_add(c[0], 1)")
    lines.append("tbarrier()")
    if r.random() < 0.15:
        lines += ["if t == 0: c[0] = 5", "tbarrier()"]
    if r.random() < 0.1:
        lines += ["if t < h: atomic_add(c[0], 1)", "tbarrier()"]
    count = r.choice(("c[0]", "c[0]", "c[0]", "c[1]"))
    lines += r.choice((
        [f"if t < {count}: y0 += s[t]"],
        [f"if t + 1 < {count}: y0 += s[t + 1]"],
        [f"if t <= {count}: y0 += s[t]"],
        [f"for k in range(t, {count}, 8): y0 += s[k]"],
        [f"for k in range({count}): y0 += s[k]"],
        [f"for k in range(t, {count}, 8): y0 += s[k + 1]"],
        [f"count = {count}", "if count > 7 - t: y0 += s[7 - t]"],
        [f"if t - 1 < {count}: y0 += s[t - 1]"],
        [f"if {count} > 3: y0 += s[3]"],
        [f"for k in range(1, {count}): y0 += s[k] - s[k - 1]"],
    ))  # fmt: skip
    head = "@kernel tile[(4, 2)] grid[(m,)]\ndef f(x: i32[m, 8], y: f32[n], h: index):\n"
    start = ["s, c = tshared.alloc((8,), f32), tshared.alloc((2,), i32)", "y0: f32 = 0.0",
             "t = tile_linear_id()", "a, b, q = tile_id(0), tile_id(1), group_id(0)",
             "i, j = q * 4 + a, q * 2 + b"]  # fmt: skip
    return head + "".join(f"    {line}\n" for line in (*start, *lines))


def reads_beyond(text: str) -> bool:
    """The same as ``unwritten``, of programs that count."""
    lines = [line for line in text.splitlines()[3:] if not re.match(r"    (t|a, b, q) =", line)]
    body = "\n".join(lines).replace("tbarrier()", "yield")
    body = re.sub(r"atomic_add\(c\[(\d)\], (\d)\)", r"c.add(\1, \2)", body)
    code = compile("def lane(t, a, b, q):\n" + body, "kernel", "exec")
    for (m, n), h, seed in itertools.product(SIZES, CALLS, (1, 2)):
        for q in range(m):
            s = _Buffer()
            names: dict[str, Any] = {"m": m, "n": n, "h": h, "x": _Data(seed), "s": s,
                                     "c": _Counted(), "f32": float}  # fmt: skip
            exec(code, names)
            lanes = [names["lane"](t, t // 2, t % 2, q) for t in range(LANES)]
            alive = True
            while alive:
                alive = False
                for s.lane, lane in enumerate(lanes):
                    alive |= next(lane, "its end") is None
                s.interval += 1
            if s.faults():
                return True
    return False


def held_counts(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        text = counting(seed)
        made, plan, diagnostics = lower_source(text)
        if any(d.severity == "error" and d.code not in ("T0410", "T0411") for d in diagnostics):
            seen["refused"] += 1
            continue
        found, wrong = check_shared(made.operations[0], plan), reads_beyond(text)
        seen[f"{found.unwritten}, {'wrong' if wrong else 'right'}"] += 1
        assert found.unwritten != "proved" or not wrong, text
    return seen


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in range(1, 6))]
)
def test_what_is_read_below_a_count_is_written(block: int) -> None:
    seen = held_counts(range(block * 200, block * 200 + (200 if block else 30)))
    assert seen["proved, right"] > 2
    assert seen["not proved, wrong"] + seen["witness, wrong"] > 3


def held(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        text = _Maker(seed).text()
        made, plan, diagnostics = lower_source(text)
        if any(d.severity == "error" and d.code not in ("T0410", "T0411") for d in diagnostics):
            seen["refused"] += 1
            continue
        found = check_shared(made.operations[0], plan)
        wrong = unwritten(text)
        seen[f"{found.unwritten}, {'wrong' if wrong else 'right'}"] += 1
        assert found.unwritten != "proved" or not wrong, text
        assert found.unwritten != "witness" or wrong, text
    return seen


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in range(1, 21))]
)
def test_what_is_called_written_is_written(block: int) -> None:
    seen = held(range(block * 100, block * 100 + (100 if block else 40)))
    assert seen["proved, right"] > 3
    assert seen["witness, wrong"] + seen["not proved, wrong"] > 3


def test_conditions_of_other_lanes() -> None:
    """Conditions that the writer has where the reader has them, and some that it has not."""

    def verdict(write: str, read: str) -> str:
        text = (
            "@kernel tile[(4, 2)] grid[(m,)]\n"
            "def f(x: i32[m, 8], y: mut f32[n], h: index):\n"
            "    s = tshared.alloc((8,), f32)\n"
            "    t, q = tile_linear_id(), group_id(0)\n"
            "    i, a, b = q * 8 + t, tile_id(0), tile_id(1)\n"
            f"    {write}\n    tbarrier()\n    {read}\n"
        )
        made, plan, _ = lower_source(text)
        return check_shared(made.operations[0], plan).unwritten

    assert verdict("if i < n: s[t] = 1.0", "if i < n: y[i] = s[t]") == "proved"
    assert verdict("if i < n: s[t] = 1.0", "if i + 1 < n and t < 7: y[i] = s[t + 1]") == "proved"
    assert verdict("if i < n: s[t] = 1.0", "if i < n and t < 7: y[i] = s[t + 1]") != "proved"
    assert verdict("if h > t: s[t] = 1.0", "if t < h and t > 0: y[i] = s[t - 1]") == "proved"
    assert verdict("if q < n and t < h: s[t] = 1.0", "if t < h: y[i] = s[t]") != "proved"
    assert verdict("if q < n:\n        if t < h: s[t] = 1.0",
                   "if q < n:\n        if t < h: y[i] = s[t]") == "proved"  # fmt: skip
    assert verdict("if x[q, t] > 0 and i < n: s[t] = 1.0", "if i < n: y[i] = s[t]") != "proved"
    assert verdict("if i < n or t < h: s[t] = 1.0", "if i < n: y[i] = s[t]") != "proved"
    assert verdict("if not (i >= n or t >= h): s[t] = 1.0",
                   "if t < h and i < n: y[i] = s[t]") == "proved"  # fmt: skip
