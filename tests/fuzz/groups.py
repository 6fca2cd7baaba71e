"""Random lane programs of several groups, and who touches what in launches of them.

    python -m tests.fuzz.groups --from 0 --count 500

A program has arrays of several shapes, loops, conditions of ids, sizes, data and numbers of the
call, barriers and atomics. Its text is Python too: every lane is run by Python, for several sizes,
groups and data, and its accesses are compared here, apart from the compiler. What the check calls
proved must not meet in any of these launches, and what it calls an error must in one.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from types import CodeType
from typing import ClassVar

from tessera_lang.analysis import check_arrays, check_barriers, uniformity
from tessera_lang.analysis.races.array_races import open_arrays, several_groups
from tessera_lang.analysis.races.group_owned_arrays import owned_arrays
from tessera_lang.record import dataclass, field
from tests.unit.lowering import lower_source

LANES = 8
SIZES = tuple(
    {"m": m, "n": n} for m, n in ((1, 1), (2, 3), (3, 8), (5, 4), (2, 17), (17, 2), (9, 33))
)
CALLS = ({"h": 0, "data": 1}, {"h": 2, "data": 2}, {"h": 9, "data": 3})
SHAPES = ("n", "m, n", "m * n", "n, m", "m, 16", "m * 8")
GRIDS = ("(m,)", "(m,)", "(1,)", "(2,)", "(ceil_div(n, 8),)", "(m, n)")
NAMES = "uv"
_STEPS = 12_000  # accesses of a launch
_SLOW = 200_000  # of one that the check names


@dataclass(frozen=True, slots=True)
class Program:
    """``body``: the lines of the kernel behind its ids, ``shapes``: of its arrays, ``tile``: its
    group."""

    body: tuple[str, ...]
    shapes: Mapping[str, str]
    grid: str
    tile: str

    @property
    def text(self) -> str:
        arrays = ", ".join(f"{n}: mut f32[{s}]" for n, s in self.shapes.items())
        lines = "".join(f"    {line}\n" for line in (*self._ids(), *self.body))
        head = f"@kernel tile[{self.tile}] grid[{self.grid}]\n"
        return f"{head}def f(x: i32[m, n], h: index, {arrays}):\n{lines}"

    def _ids(self) -> Iterator[str]:
        yield "t, q, i = tile_linear_id(), group_linear_id(), grid_tile_linear_id()"
        yield f"a, b = tile_id(0), {'t % 2' if self.tile == '(8,)' else 'tile_id(1)'}"
        yield f"c, d = group_id(0), {'group_id(1)' if self.grid == '(m, n)' else 'm - 1'}"
        yield "y: f32 = 0.0"


# --- programs ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Maker:
    r: random.Random
    shapes: dict[str, str] = field(default_factory=dict[str, str])
    flat: bool = True
    loops: list[str] = field(default_factory=list[str])

    def program(self) -> Program:
        r = self.r
        grid, tile = r.choice(GRIDS), r.choice(("(8,)", "(8,)", "(4, 2)"))
        self.shapes = {n: r.choice(SHAPES) for n in NAMES[: r.choice((1, 1, 2))]}
        body = self.statements(2, True)
        return Program(tuple(body), dict(self.shapes), grid, tile)

    def statements(self, depth: int, uniform: bool) -> Iterator[str]:
        r = self.r
        for _ in range(r.choice((1, 1, 2, 3))):
            kind = r.random()
            if depth and kind < 0.3:
                yield from self.loop(depth, uniform)
            elif depth and kind < 0.55:
                alike = uniform and r.random() < 0.3
                yield f"if {self.condition(alike)}:"
                yield from _indented(self.statements(depth - 1, alike))
            else:
                yield self.access()
            if uniform and r.random() < 0.4:
                yield "tbarrier()"

    def loop(self, depth: int, uniform: bool) -> Iterator[str]:
        r, name = self.r, f"k{len(self.loops)}"
        alike = uniform and r.random() < 0.5
        ranges = ("range(3)", "range(h)", "range(n)", "range(0, 8, 4)", "range(m)")
        if not alike:
            ranges += ("range(t, n, 8)", "range(q, n, 2)", "range(i, m * n, 8 * m)", "range(a)",
                       "range(t, 32, 8)", "range(t, h, 8)", "range(i, n, 24)")  # fmt: skip
        self.loops.append(name)
        inner = list(self.statements(depth - 1, alike))
        self.loops.pop()
        if r.random() < 0.2 and not alike:
            yield f"{name} = {r.choice(('t', 'i', '0', 'q'))}"
            yield f"while {name} < {r.choice(('n', 'h', '9'))}:"
            yield from _indented([*inner, f"{name} += {r.choice(('8', '3', '1'))}"])
            return
        yield f"for {name} in {r.choice(ranges)}:"
        yield from _indented(inner)

    def condition(self, alike: bool) -> str:
        r = self.r
        if alike:
            return r.choice(("q == 0", "q % 2 == 0", "q < h", "h > 1", "x[0, 0] > 1", "m < n",
                             f"x[q % m, 0] == {r.randrange(3)}"))  # fmt: skip
        some = [f"t < {r.randrange(9)}", "t == 0", "t == 7", "i < n", "i < m", "t < h", "b == 0",
                "t % 2 == 0", "q % 2 == t % 2", "x[c % m, t % n] > 1", "c < m and a < n",
                "i < m * n", "i == h", f"{self.number()} < {r.choice(('n', '8'))}"]  # fmt: skip
        found = r.choice(some)
        return f"{found} and {r.choice(some)}" if r.random() < 0.3 else found

    def access(self) -> str:
        r, name = self.r, self.r.choice(tuple(self.shapes))
        place = ", ".join(self.index(axis) for axis in self.shapes[name].split(", "))
        at = f"{name}[{place}]"
        return r.choice((f"{at} = f32(i) + 1.5", f"{at} = f32(i) + 1.5", f"{at} = 2.0",
                         f"y += {at}", f"{at} += 1.0", f"atomic_add({at}, 1.0)"))  # fmt: skip

    def index(self, axis: str) -> str:
        """Mostly one that has to do with the size of the axis."""
        r = self.r
        known = {
            "n": ("t", "i", "a", "i % n", "(q + t) % n", "n - 1 - t", "t + 8 * {k}", "{k}"),
            "m": ("q", "c", "d", "q % m", "{k}", "m - 1 - q", "c // 2"),
            "m * n": ("i", "q * n + t", "c * n + {k}", "t * m + q", "q * n + {k} % n", "i + {k}"),
            "16": ("t", "t + 8", "2 * t", "2 * t + 1", "t ^ 3", "(t + 5) % 8", "t + {k}", "t // 2"),
            "m * 8": ("i", "q * 8 + t", "q * 8 + 7 - t", "t * m + q", "8 * c + (t ^ 1)", "i // 2"),
        }
        if r.random() < 0.8:
            return r.choice(known[axis]).format(k=self.counter())
        return self.number()

    def counter(self) -> str:
        return self.r.choice(self.loops) if self.loops else self.r.choice(("0", "1", "h"))

    def number(self) -> str:
        r, k = self.r, self.counter()
        return r.choice((
            "t", "q", "i", "a", "b", k, "h", "q * 8 + t", "i // 2", "t * 2", "t * 2 + 1",
            "2 * a + b", f"t + {k}", f"q + {k}", f"i + {k}", f"{k} * 8 + t", f"({k} + t) % 8",
            "7 - t", "t ^ 5", "i // n", "i % n", "n - 1 - t", f"c * n + {k}", f"t + 8 * {k}",
            "x[c % m, t % n]", "c + d", f"4 * a + {k}", f"{k} * {k}", "t * h", "q * n + t",
            f"c * 16 + 2 * t + {k} % 2", "m * n - 1",
        ))  # fmt: skip


class Reflecting(Maker):
    """Programs whose lanes read and write opposite places, exchange axes, are held to one number of
    the launch, or begin loops at quotients of their numbers."""

    shown = ("n", "m", "n, n", "m, n", "m, m", "16", "8, 8", "n, 4", "m, 4", "m, 8")
    places: ClassVar = {
        "n": ("t", "n - 1 - t", "i", "n - 1 - i", "a", "n - 1 - a", "c", "{k}", "n - 1 - {k}"),
        "m": ("q", "m - 1 - q", "c", "m - 1 - c", "d", "t", "{k}", "a", "m - 1 - a", "i // 4"),
        "16": ("t", "15 - t", "t + 8", "2 * t", "15 - 2 * t", "c", "t // 4", "{k}"),
        "8": ("t", "7 - t", "a", "b", "7 - a", "c", "t // 2", "{k}"),
        "4": ("t % 4", "t % 2", "3 - t % 4", "b", "t // 2", "t // 4", "a"),
    }  # fmt: skip
    conditions = (
        "t < n // 2", "i < n // 2", "q < m // 2", "c * 2 < m", "t < a", "a < c", "c < a",
        "c <= a", "i * 2 < n - 1", "i * 2 < n", "q == x[0, 0]", "c == x[0, 0]", "t == x[0, 1]",
        "q == h", "t == h", "i == h", "d == h", "a == x[0, 0] and q == h", "t % 4 == 0",
        "i % 4 == 0", "t % 2 == 0", "c == x[c % m, 0]", "t < c", "c < t", "2 * t <= n", "t < 4",
        "i < n", "q + 1 == h", "t * 2 < n", "2 * t + 1 < n", "c == x[1, 1]", "a < 8 - a",
        "b < a", "q == x[0, 0] + h",
    )  # fmt: skip

    def program(self) -> Program:
        r = self.r
        grid, tile = r.choice(GRIDS), r.choice(("(8,)", "(8,)", "(4, 2)"))
        self.shapes = {"u": r.choice(self.shown)}
        return Program(tuple(self.statements(2, True)), dict(self.shapes), grid, tile)

    def loop(self, depth: int, uniform: bool) -> Iterator[str]:
        if uniform or self.r.random() < 0.3:
            yield from super().loop(depth, uniform)
            return
        r, name = self.r, f"k{len(self.loops)}"
        start, step = r.choice(("t // 2", "t // 4", "q", "t", "t // 2 + 1")), r.choice((2, 4, 8))
        self.loops.append(name)
        inner = list(self.statements(depth - 1, False))
        self.loops.pop()
        yield f"for {name} in range({start}, {r.choice(('n', 'm', '8'))}, {step}):"
        yield from _indented(inner)

    def condition(self, alike: bool) -> str:
        if alike:
            return super().condition(alike)
        some = [self.r.choice(self.conditions) for _ in range(self.r.choice((1, 1, 2)))]
        return " and ".join(some)

    def index(self, axis: str) -> str:
        return self.r.choice(self.places[axis]).format(k=self.counter())


def _indented(lines: Iterator[str] | list[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def program(seed: int, maker: type[Maker] = Maker) -> Program:
    return maker(random.Random(seed)).program()


# --- launches ---------------------------------------------------------------------------------

Access = tuple[str, int, int, int, object]
"""Kind, group, lane, barriers passed, and what is stored (None: a number of the lane)."""


class Done(Exception):
    """The launch is too long to be run."""


@dataclass(slots=True)
class Memory:
    """An array, as Python sees it: who touches which element."""

    shape: tuple[int, ...]
    lane: list[int]
    touched: dict[tuple[int, ...], list[Access]] = field(
        default_factory=dict[tuple[int, ...], list[Access]]
    )

    def touch(self, kind: str, at: int | tuple[int, ...], value: object = None) -> None:
        place = at if isinstance(at, tuple) else (at,)
        if all(0 <= p < n for p, n in zip(place, self.shape, strict=True)):
            group, lane, interval, left = self.lane
            self.lane[3] = left - 1
            if left < 0:
                raise Done
            self.touched.setdefault(place, []).append((kind, group, lane, interval, value))

    def __getitem__(self, place: int | tuple[int, ...]) -> float:
        self.touch("read", place)
        return 0.0

    def __setitem__(self, place: int | tuple[int, ...], value: float) -> None:
        self.touch("write", place, 2.0 if value == 2.0 else None)

    def meets(self) -> bool:
        return any(map(_meet, self.touched.values()))


@dataclass(slots=True)
class Data:
    """What is only read: an index outside reads 0."""

    numbers: dict[tuple[int, int], int]

    def __getitem__(self, place: tuple[int, int]) -> int:
        return self.numbers.get(place, 0)


def _meet(accesses: list[Access]) -> bool:
    if all(kind == "read" for kind, *_ in accesses) or len(accesses) < 2:
        return False
    for a, b in itertools.combinations(dict.fromkeys(accesses), 2):
        apart = a[1] != b[1] or (a[2] != b[2] and a[3] == b[3])
        if not apart or a[0] == b[0] != "write":
            continue
        if a[0] == b[0] == "write" and a[4] is not None and a[4] == b[4]:
            continue
        return True
    return False


def compiled(made: Program) -> CodeType:
    """The body for Python: an atomic touches the element that it names."""
    text = "\n".join(made.body)
    text = re.sub(r"atomic_add\((\w)\[(.*)\], 1\.0\)", r"\1.touch('atomic', (\2))", text)
    return compile(text, "kernel", "exec")


def launch(
    made: Program, code: CodeType, sizes: Mapping[str, int], call: Mapping[str, int],
    most: int = _STEPS,
) -> dict[str, Memory] | None:  # fmt: skip
    """The memory of each array behind a launch; None where it is too long."""
    m, n = sizes["m"], sizes["n"]
    grid = {"(m,)": (m,), "(1,)": (1,), "(2,)": (2,), "(m, n)": (m, n)}.get(
        made.grid, (-(-n // LANES),)
    )  # fmt: skip
    state = [0, 0, 0, most]
    shapes = {k: eval(f"({s},)", {"m": m, "n": n}) for k, s in made.shapes.items()}
    memory = {name: Memory(shape, state) for name, shape in shapes.items()}
    r = random.Random(call["data"])
    data = Data({(p, j): r.randrange(4) for p in range(m) for j in range(n)})

    def barrier() -> None:
        state[2] += 1

    for q, t in itertools.product(range(prod(grid)), range(LANES)):
        state[:3] = [q, t, 0]
        a, b = (t, t % 2) if made.tile == "(8,)" else (t // 2, t % 2)
        c, d = divmod(q, n) if len(grid) > 1 else (q, m - 1)
        names: dict[str, object] = {
            "m": m, "n": n, "h": call["h"], "x": data, "f32": float, "tbarrier": barrier, "y": 0.0,
            "t": t, "q": q, "i": q * LANES + t, "a": a, "b": b, "c": c, "d": d, **memory,
        }  # fmt: skip
        try:
            exec(code, names)
        except Done:
            return None
    return memory


def meetings(
    made: Program, launches: Sequence[Mapping[str, int]] = SIZES, most: int = _STEPS
) -> dict[str, str]:
    """The arrays in which lanes meet, with the launch."""
    found: dict[str, str] = {}
    code = compiled(made)
    for sizes, call in itertools.product(launches, CALLS):
        memory = launch(made, code, sizes, call, most)
        for name, array in (memory or {}).items():
            if name not in found and array.meets():
                found[name] = f"{sizes} {call}"
    return found


# --- what is said -----------------------------------------------------------------------------


def verdicts(text: str) -> dict[str, tuple[str, str]] | None:
    """Of each array: "error", "warning", "open" or "proved", and the launch that is named; None
    where the program is refused for something else."""
    made, plan, _ = lower_source(text)
    kernel = made.operations[0]
    uniform = uniformity(kernel)
    if check_barriers(kernel, uniform):
        return None
    several = several_groups(kernel, plan) is not None
    own = owned_arrays(kernel, uniform, several, plan.grid or ())
    found = {v.name: ("proved", "") for v in kernel.regions[0].arguments if v.name in NAMES}
    for d in check_arrays(kernel, plan, uniform, own):
        (name,) = re.findall(r"`(\w)\[", d.message)[:1]
        found[name] = d.severity, " ".join(d.notes)
    for pointer in open_arrays(kernel, plan, uniform):
        if found[pointer.name][0] == "proved":
            found[pointer.name] = "open", ""
    return found


def disagreement(
    seed: int, say: Callable[[str], object] = print, maker: type[Maker] = Maker
) -> Counter[str]:
    """What is said of each array beside what meets: "proved" and "error" are never wrong."""
    made = program(seed, maker)
    said = verdicts(made.text)
    counts: Counter[str] = Counter()
    if said is None:
        return Counter({"refused": 1})
    met = meetings(made)
    for name, (verdict, notes) in said.items():
        if verdict == "error" and name not in met:  # in larger launches than these
            sizes = {k: int(v) for k, v in re.findall(r"\b([mn]) = (\d+)", notes)}
            most = _SLOW if sizes.keys() == {"m", "n"} and prod(sizes.values()) < _SLOW else 0
            met |= meetings(made, [sizes], most) if most else {name: "not run"}
        what = f"{verdict}, {'meets' if name in met else 'does not'}"
        counts[what] += 1
        if what in ("proved, meets", "error, does not"):
            say(f"seed {seed}: `{name}` {what} {met.get(name, '')}\n{made.text}")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--reflecting", action="store_true")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    maker = Reflecting if given.reflecting else Maker
    for seed in range(given.first, given.first + given.count):
        counts += disagreement(seed, maker=maker)
    print(dict(counts.most_common()))
    return int(counts["proved, meets"] > 0)


if __name__ == "__main__":
    sys.exit(main())
