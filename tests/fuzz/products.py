"""Where the products of a program went on Hopper: to which unit, and whether through a ring.

A product of the source is one place in its text, however often the schedule holds it (a peeled
iteration, a loop in two parts, a function called twice). It counts as in a ring only if every
copy is, so that one good copy does not hide another.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

DOT = "tessera.schedule.dot"
LOADS = ("tessera.schedule.load", "tessera.schedule.gather")


@dataclass
class Placed:
    """How many products the source of one kernel has; of how many a matrix unit knows the dtypes,
    how many of those are wgmma, and in a ring; what the compiler says where not all are.
    ``copies``: how many products there are in the schedule. ``silent``: places of those that are
    in no ring, and of which, and of whose operands, nothing is said."""

    asked: int
    legal: int
    wgmma: int
    ring: int
    copies: int
    lanes: bool
    why: list[str]
    silent: list[int]

    @property
    def missing(self) -> int:
        """Products that do not run asynchronously out of a ring."""
        return self.asked - self.ring


def placed(made: Any, text: str) -> Placed:
    """Of a kernel for Hopper, all launches of a call, with the PTX."""
    remarks = [d.message for d in made.remarks]
    lanes = any("not lowered to register tiles" in m for m in remarks)
    units = not lanes and "wgmma.mma_async" in text
    copies: defaultdict[Any, list[Any]] = defaultdict(list)
    fed: set[Any] = set()
    read: defaultdict[Any, set[Any]] = defaultdict(set)
    for launch in made.launches:
        schedule, deep = _Schedule(launch.schedule), _deepest(launch.lowered[0]) > 1
        for o in schedule.dots:
            copies[o.span].append(o)
            read[o.span] |= {o.span, *(x.span for x in schedule.factors(o))}
            if deep and schedule.is_fed_by_a_ring(o):
                fed.add(o)
    legal = [same for same in copies.values() if all(map(_is_legal, same))]
    wgmma = [x for x in legal if units and all(o.attributes.get("unit") == "wgmma" for o in x)]
    ring = [x for x in wgmma if all(o in fed for o in x)]
    why = [m for m in remarks if _says_why(m)]
    told = {d.span for d in made.remarks if _says_why(d.message)}
    apart = [] if lanes else [x[0].span for x in legal if x not in ring]
    silent = [x.start for x in apart if told.isdisjoint(read[x])]
    return Placed(
        len(copies), len(legal), len(wgmma), len(ring), sum(map(len, copies.values())), lanes, why,
        silent,
    )  # fmt: skip


def _is_legal(dot: Any) -> bool:
    """Whether a matrix unit knows the dtypes of a product."""
    a, b = (v.type.dtype.name for v in dot.operands[:2])
    eight = ("f8e4m3", "f8e5m2")
    return (a == b and a in ("f16", "bf16", "i8")) or (a in eight and b in eight)


def _deepest(program: Any) -> int:
    """The most buffers that a ring of Tile IR has."""
    rings = [o.result.type for o in program.walk() if o.name == "tile.mbarrier.alloc"]
    return max((t.count for t in rings), default=0)


def _says_why(message: str) -> bool:
    words = r"wgmma|TMA|tma|brought ahead|register tiles|producer|pipelined|stage"
    return bool(re.search(words, message))


def _is_ring(load: Any) -> bool:
    return load.attributes.get("stage") == "shared" and load.attributes.get("stages", 1) > 1


def _is_vector(load: Any) -> bool:
    return sum(n > 1 for n in getattr(load.result.type, "shape", ())) < 2


class _Schedule:
    """Who makes a value, and in which loop."""

    def __init__(self, program: Any) -> None:
        self.dots: list[Any] = []
        self._maker: dict[Any, tuple[Any, tuple[Any, ...]]] = {}
        self._loops: dict[int, tuple[Any, ...]] = {}
        for o in program.operations:
            self._enter(o, ())

    def _enter(self, o: Any, loops: tuple[Any, ...]) -> None:
        self._maker.update((v, (o, loops)) for v in o.results)
        if o.name == DOT:
            self.dots.append(o)
            self._loops[id(o)] = loops
        inner = (*loops, o) if o.name.endswith(("for", "while")) else loops
        for region in o.regions:
            for nested in region.operations:
                self._enter(nested, inner)

    def is_fed_by_a_ring(self, dot: Any) -> bool:
        """Whether the matrices that its loop brings for it come through rings of two buffers or
        more, each of them, and there is one.

        What was there before the loop (a query's rows) need not, nor what lanes read beside a
        matrix (a scale, a mask or a number of each row). Outside of loops, as a peeled iteration
        is, everything is brought once, and one ring is enough.
        """
        loops = self._loops[id(dot)]
        found = self.factors(dot)
        rings = [x for x in found if _is_ring(x)]
        if not loops or set(loops[-1].attributes.get("mapping", ())) == {"grid"}:
            return bool(rings)
        return bool(rings) and all(x in rings or _is_vector(x) for x in found)

    def factors(self, dot: Any) -> list[Any]:
        """The loads that its loop brings for a product."""
        return [x for v in dot.operands[:2] for x in self._brought(v, self._loops[id(dot)])]

    def _brought(self, value: Any, loops: tuple[Any, ...]) -> list[Any]:
        """The loads of the innermost loop that a value is computed from."""
        found: list[Any] = []
        seen: set[Any] = set()
        pending = [value]
        while pending:
            v = pending.pop()
            if v in seen or v not in self._maker:
                continue
            seen.add(v)
            o, where = self._maker[v]
            if where[: len(loops)] != loops:
                continue
            if o.name in LOADS:
                found.append(o)
            elif o.name != DOT:
                pending += o.operands
        return found


@dataclass
class Products:
    """What became of the products of programs on Hopper."""

    programs: int = 0
    products: int = 0
    legal: int = 0
    ring: int = 0
    without_ring: int = 0
    other: int = 0
    lanes: int = 0
    silent: list[int] = field(default_factory=list[int])
    why: Counter[str] = field(default_factory=Counter[str])
    spills: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    notes: Counter[str] = field(default_factory=Counter[str])

    def add(self, seed: int, dtype: str, made: Any, artifact: Any) -> None:
        """A program that was compiled for Hopper."""
        self.programs += 1
        spill = artifact.resources.spill_bytes
        if spill > 0:
            self.spills.append((seed, dtype, spill))
        for d in artifact.diagnostics:
            self.notes[d.code + " " + d.message[:60]] += 1
        found = placed(made, artifact.texts["ptx"])
        self.products += found.asked
        self.lanes += found.lanes
        if dtype not in ("f16", "bf16", "i8"):
            return
        self.legal += found.legal
        self.ring += found.ring
        self.without_ring += found.wgmma - found.ring
        self.other += found.legal - found.wgmma
        if found.ring < found.legal:
            if not found.why:
                self.silent.append(seed)
            for message in dict.fromkeys(re.sub(r"`[^`]*`|\d+", "_", m)[:150] for m in found.why):
                self.why[message] += 1

    def __str__(self) -> str:
        share = 100 * self.ring / self.legal if self.legal else 0.0
        lines = [
            f"{self.programs} programs, {self.products} products, {self.legal} of f16, bf16 or i8: "
            f"{self.ring} are wgmma in a ring of two stages or more ({share:.0f} %), "
            f"{self.without_ring} wgmma without, {self.other} otherwise, "
            f"{self.lanes} programs in lanes; without a remark: {self.silent or 'none'}",
            *(f"  {n:4} {text}" for text, n in self.why.most_common(25)),
        ]
        if self.spills or self.notes:
            lines.append(f"  spills: {self.spills[:20]}; notes: {dict(self.notes)}")
        return "\n".join(lines)
