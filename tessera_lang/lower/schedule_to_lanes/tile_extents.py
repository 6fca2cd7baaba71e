"""How much of each tile has to be computed: its extent along every axis, where that is known.

An extent is a number of the program, a constant, or None: *open*, defined everywhere at no cost
(``full``, ``iota``). What is beyond it is unspecified by the rules of Schedule IR, so nobody has
to compute it. Must not know loops over elements or buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.lower.schedule_to_lanes.def_use import Source, is_tile, tile_type
from tessera_lang.lower.schedule_to_lanes.equal_numbers import Numbers

Extent = int | Value | None
Domain = tuple[Extent, ...]

_KEEPS_ZEROS = ("tile.cast", "tile.neg", "tile.abs", f"{PREFIX}prefetch")


class Domains:
    """Domains of all tiles of a kernel, found in one walk over it."""

    def __init__(self, source: Source, numbers: Numbers) -> None:
        self._source = source
        self._numbers = numbers
        self._domains: dict[Value, Domain] = {}
        self._regions(source.kernel)

    def of(self, value: Value) -> Domain:
        return self._domains[value]

    def known(self, value: Value) -> tuple[int | Value, ...]:
        """The domain with the capacity where it is open."""
        sizes = tile_type(value).sizes
        return tuple(n if e is None else e for e, n in zip(self.of(value), sizes, strict=True))

    def at(self, value: Value, op: Operation) -> tuple[int | Value, ...]:
        """The domain as far as its numbers can be seen at ``op``."""
        sizes = tile_type(value).sizes
        return tuple(
            n if e is None or (isinstance(e, Value) and not self._source.visible(e, op)) else e
            for e, n in zip(self.of(value), sizes, strict=True)
        )

    # --- the walk ---------------------------------------------------------------------------

    def _regions(self, op: Operation) -> None:
        for region in op.regions:
            for inner in region.operations:
                self._operation(inner)

    def _operation(self, op: Operation) -> None:
        if op.name in LOOPS:
            self._loop(op)
            return
        self._regions(op)
        if not any(map(is_tile, op.results)):
            return
        if op.regions:
            self._branches(op)
            return
        sizes = tile_type(op.result).sizes
        found = self._find(op, sizes)
        self._domains[op.result] = tuple(
            self._clipped(e, n) for e, n in zip(found, sizes, strict=True)
        )

    def _clipped(self, extent: Extent, capacity: int) -> Extent:
        if isinstance(extent, Value):
            constant = self._numbers.constant(extent)
            extent = extent if constant is None else constant
        return min(extent, capacity) if isinstance(extent, int) else extent

    def _find(self, op: Operation, sizes: tuple[int, ...]) -> Sequence[Extent]:
        match op.name.removeprefix(PREFIX):
            case "load" | "gather" if op.attributes.get("filled"):
                return sizes
            case "load" | "gather":
                return op.operands[len(op.operands) - len(sizes) :]
            case "full" | "iota":
                return [None] * len(sizes)
            case "mask" | "insert":
                return sizes
            case "reduce":
                axis = _axis(op)
                inner = self.of(op.operands[0])
                return [*inner[:axis], *inner[axis + 1 :]]
            case "expand":
                inner = self.of(op.operands[0])
                return [*inner[: _axis(op)], None, *inner[_axis(op) :]]
            case "broadcast":
                before = tile_type(op.operands[0]).sizes
                inner = self.of(op.operands[0])
                return [None if a != b else e for a, b, e in zip(before, sizes, inner, strict=True)]
            case "transpose":
                inner = self.of(op.operands[0])
                return [inner[p] for p in op.integers("permutation")]
            case "extract":
                return self._extract(op, sizes)
            case "dot":
                return self._dot(op)
            case _:
                tiles = [self.of(v) for v in op.operands if is_tile(v)]
                return self._meet_all(tiles, sizes)

    def _extract(self, op: Operation, sizes: tuple[int, ...]) -> list[Extent]:
        inner, before = self.of(op.operands[0]), tile_type(op.operands[0]).sizes
        found: list[Extent] = []
        for axis, start in enumerate(op.operands[1:]):
            whole = self._numbers.constant(start) == 0 and before[axis] == sizes[axis]
            found.append(inner[axis] if whole or inner[axis] is None else sizes[axis])
        return found

    def _dot(self, op: Operation) -> list[Extent]:
        a, b, c = map(self.of, op.operands)
        sizes = tile_type(op.result).sizes
        batch = [self._meet(x, y, n) for x, y, n in zip(a[:-2], b[:-2], sizes, strict=False)]
        product = [*batch, a[-2], b[-1]]
        return [self._meet(x, y, n) for x, y, n in zip(product, c, sizes, strict=True)]

    # --- several values ---------------------------------------------------------------------

    def _meet(self, a: Extent, b: Extent, capacity: int) -> Extent:
        """What both define: elements beyond either are unspecified."""
        if a is None or a == capacity:
            return a if b is None else b
        if b is None or b == capacity:
            return a
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return a

    def _meet_all(self, domains: Sequence[Domain], sizes: tuple[int, ...]) -> list[Extent]:
        found: list[Extent] = [None] * len(sizes)
        for domain in domains:
            found = [self._meet(x, y, n) for x, y, n in zip(found, domain, sizes, strict=True)]
        return found

    def _join(self, a: Domain, b: Domain, sizes: tuple[int, ...]) -> Domain:
        """What either may define: one of the two values is it, depending on the way here."""
        found: list[Extent] = []
        for x, y, n in zip(a, b, sizes, strict=True):
            if x is None or y is None:
                found.append(x if y is None else y)
            else:
                found.append(x if self._numbers.key(x) == self._numbers.key(y) else n)
        return tuple(found)

    def _visible(self, domain: Domain, op: Operation, sizes: tuple[int, ...]) -> Domain:
        return tuple(
            n if isinstance(e, Value) and not self._source.visible(e, op) else e
            for e, n in zip(domain, sizes, strict=True)
        )

    def _branches(self, op: Operation) -> None:
        """Results of an ``if`` or a scope."""
        given = handed_values(op)
        for number, result in enumerate(op.results):
            if not is_tile(result):
                continue
            sizes = tile_type(result).sizes
            domain: Domain | None = None
            for values in given:
                one = self._visible(self.of(values[number]), op, sizes)
                domain = one if domain is None else self._join(domain, one, sizes)
            self._domains[result] = domain or tuple(sizes)

    def _loop(self, op: Operation) -> None:
        """Carried tiles: begin with what goes in, then widen until the body agrees."""
        carried, initial = carried_values(op)
        for number, value in enumerate(initial):
            if is_tile(value):
                sizes = tile_type(value).sizes
                self._carry(op, carried, number, self._visible(self.of(value), op, sizes))
        for attempt in range(3):
            self._regions(op)
            changed = False
            for values in handed_values(op):
                for number, value in enumerate(values):
                    if is_tile(value):
                        changed |= self._widen(op, carried, number, value, attempt == 2)
            if not changed:
                break
        else:
            self._regions(op)

    def _carry(
        self, op: Operation, carried: Sequence[Sequence[Value]], number: int, domain: Domain
    ) -> None:
        for values in carried:
            self._domains[values[number]] = domain

    def _widen(
        self, op: Operation, carried: Sequence[Sequence[Value]], number: int, value: Value,
        give_up: bool,
    ) -> bool:  # fmt: skip
        sizes = tile_type(value).sizes
        before = self._domains[carried[0][number]]
        after = self._join(before, self._visible(self.of(value), op, sizes), sizes)
        if _same(before, after):
            return False
        self._carry(op, carried, number, tuple(sizes) if give_up else after)
        return True

    # --- zeros ------------------------------------------------------------------------------

    def zeros_beyond(self, value: Value, axis: int) -> int | Value | None:
        """The number along ``axis`` from which on all elements are known to be 0, or None."""
        op = self._source.definition.get(value)
        if op is None:
            return None
        match op.name.removeprefix(PREFIX):
            case "load" | "gather":
                rank = len(tile_type(value).sizes)
                return op.operands[len(op.operands) - rank + axis]
            case "mask":
                return op.operands[2 + axis] if self._is_zero(op.operands[1]) else None
            case "transpose":
                permutation = op.integers("permutation")
                inner = permutation[axis]
                return self.zeros_beyond(op.operands[0], inner)
            case _:
                return self.zeros_beyond(op.operands[0], axis) if op.name in _KEEPS_ZEROS else None

    def _is_zero(self, value: Value) -> bool:
        op = self._source.definition.get(value)
        return op is not None and op.name == "tile.constant" and op.attributes["value"] == 0


def _same(a: Domain, b: Domain) -> bool:
    return all(x is y or (isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True))


def _axis(op: Operation) -> int:
    return op.integer("axis")


def carried_values(op: Operation) -> tuple[list[Sequence[Value]], Sequence[Value]]:
    """Region arguments and results of a loop that hold what is carried; what goes in first."""
    match op.name:
        case "tile.while":
            before, body = op.regions
            return [before.arguments, body.arguments, op.results], op.operands
        case "tile.for":
            return [op.regions[0].arguments[1:], op.results], op.operands[3:]
        case _:
            axes = op.strings("axes")
            n = len(axes)
            return [op.regions[0].arguments[n:], op.results], op.operands[3 * n :]


def handed_values(op: Operation) -> list[tuple[Value, ...]]:
    """What the terminators that end or repeat a construct hand over."""
    found: list[tuple[Value, ...]] = []

    def visit(inner: Operation, loops: int, scopes: int, direct: bool) -> None:
        match inner.name:
            case "tile.yield" if direct:
                found.append(inner.operands)
            case "tile.condition" if direct:
                found.append(inner.operands[1:])
            case "tile.break" | "tile.continue" if not loops and is_loop:
                found.append(inner.operands)
            case "tile.leave" if not scopes and op.name == "tile.scope":
                found.append(inner.operands)
            case _:
                pass
        loops += inner.name in LOOPS
        scopes += inner.name == "tile.scope"
        for region in inner.regions:
            for nested in region.operations:
                visit(nested, loops, scopes, False)

    is_loop = op.name in LOOPS
    for region in op.regions:
        for nested in region.operations:
            visit(nested, 0, 0, True)
    return found
