"""Axes that must have one size: classes of the axes of all tiles of a kernel, and their padding.

Every operation on register tiles needs equal shapes, and layouts need sizes of which they are
made up. So each class of axes that meet somewhere has one capacity and one padded size, the
least one that satisfies whatever was asked of it. Extents keep what is beyond right.
"""

from __future__ import annotations

from math import lcm

from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import (
    COUNTED_LOOPS,
    ENDS,
    LOOP_EXITS,
    LOOPS,
)
from tessera_lang.ir.disjoint_sets import DisjointSets
from tessera_lang.opt.schedule.query.scalar_facts import FOR, axes_of, is_tile
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.tuned_constants import POWER_SIZES

Axis = tuple[Value, int]


class Axes:
    """Classes of (value, axis) of equal sizes, and what each is a multiple of."""

    def __init__(self, kernel: Operation, exact: bool = False) -> None:
        """``exact``: nothing is padded that no product pads."""
        self._exact = exact
        self._classes = DisjointSets[Axis]()
        self._multiples: dict[Axis, int] = {}
        self._hard: set[Axis] = set()
        for operation in kernel.walk():
            if operation is not kernel:
                self._relate(operation)

    def find(self, value: Value, axis: int) -> Axis:
        return self._classes.representative((value, axis))

    def unite(self, a: Axis, b: Axis) -> None:
        self._classes.unite(a, b)

    def require(self, value: Value, axis: int, multiple: int, hard: bool = False) -> None:
        """Padded sizes of this class are multiples of it; a hard one is a product's."""
        at = self.find(value, axis)
        self._multiples[at] = lcm(self._multiples.get(at, 1), multiple)
        if hard:
            self._hard.add(at)

    def is_hard(self, value: Value, axis: int) -> bool:
        return self.find(value, axis) in self._hard

    def padded(self, value: Value) -> tuple[int, ...]:
        """The sizes a value has in registers."""
        t = value.tile_type
        return tuple(self._size(value, axis, n) for axis, n in enumerate(t.sizes))

    def _size(self, value: Value, axis: int, capacity: int) -> int:
        multiple = self._multiples.get(self.find(value, axis), 1)
        if multiple == 1 and capacity <= POWER_SIZES and not self._exact:
            return 1 << (capacity - 1).bit_length()
        return -(-capacity // multiple) * multiple

    # --- which axes meet ----------------------------------------------------------------------

    def _same(self, a: Value, b: Value) -> None:
        if is_tile(a) and is_tile(b):
            for axis in range(len(a.type.shape)):  # type: ignore[union-attr]
                self.unite((a, axis), (b, axis))

    def _relate(self, operation: Operation) -> None:
        name = operation.name.removeprefix("tessera.schedule.")
        match name:
            case "for" | "tile.while" | "tile.if" | "tile.scope":
                self._control(operation)
            case "reduce" | "expand":
                self._one_more(operation, name == "expand")
            case "broadcast":
                a, b = operation.operands[0], operation.result
                for axis, (n, m) in enumerate(zip(a.type.shape, b.type.shape, strict=True)):  # type: ignore[union-attr]
                    if n == m:
                        self.unite((a, axis), (b, axis))
            case "transpose":
                permutation = operation.integers("permutation")
                for i, old in enumerate(permutation):
                    self.unite((operation.operands[0], old), (operation.result, i))
            case "dot":
                self._dot(operation)
            case "extract" | "load" | "store" | "full" | "iota":
                pass
            case "combine":
                for total, part in zip(operation.regions[0].arguments, operation.operands[6:],
                                       strict=True):  # fmt: skip
                    self._same(total, part)
            case "insert":
                self._same(operation.operands[0], operation.result)
            case "gather" | "scatter":
                self._rows(operation)
            case _:
                for value in operation.operands:
                    if operation.results:
                        self._same(value, operation.results[0])

    def _one_more(self, operation: Operation, expand: bool) -> None:
        small, big = operation.operands[0], operation.result
        if not expand:
            small, big = big, small
        if not is_tile(small):
            return
        axis = operation.integer("axis")
        for i in range(len(small.tile_type.shape)):
            self.unite((small, i), (big, i + (i >= axis)))

    def _dot(self, operation: Operation) -> None:
        a, b, accumulator = operation.operands
        rank = len(accumulator.type.shape)  # type: ignore[union-attr]
        self._same(accumulator, operation.result)
        self.unite((a, rank - 2), (accumulator, rank - 2))
        self.unite((b, rank - 1), (accumulator, rank - 1))
        self.unite((a, rank - 1), (b, rank - 2))
        for axis in range(rank - 2):
            self.unite((a, axis), (accumulator, axis))
            self.unite((b, axis), (accumulator, axis))

    def _rows(self, operation: Operation) -> None:
        dims = operation.integers("dims")
        *_, tile = (*operation.operands[:1], *operation.results)
        for dim, value in enumerate(access_of(operation).starts):
            if is_tile(value):
                self.unite((value, 0), (tile, dims.index(dim)))

    def _control(self, operation: Operation) -> None:
        skipped = 3 * axes_of(operation) if operation.name == FOR else 0
        if operation.name in LOOPS:
            for value, result in zip(operation.operands[skipped:], operation.results, strict=True):
                self._same(value, result)
        for region in operation.regions:
            if operation.name in LOOPS:
                arguments = region.arguments[skipped // 3 :]
                for value, result in zip(arguments, operation.results, strict=True):
                    self._same(value, result)
            for inner in exits_to(operation, region):
                values = inner.operands[inner.name == "tile.condition" :]
                for value, result in zip(values, operation.results, strict=True):
                    self._same(value, result)


def exits_to(operation: Operation, region: Region) -> list[Operation]:
    """The exits inside a region that hand over the results of ``operation``."""
    own = {
        "tile.if": ("tile.yield",),
        "tile.scope": ("tile.leave",),
        "tile.while": (*ENDS, *LOOP_EXITS),
    }.get(operation.name, ("tile.yield",))
    found: list[Operation] = []
    _collect(region, own, found)
    return found


def _collect(region: Region, own: tuple[str, ...], found: list[Operation]) -> None:
    for inner in region.operations:
        if inner.name in own:
            found.append(inner)
        if inner.name in COUNTED_LOOPS:
            continue
        passed = own
        if inner.name == "tile.while":
            passed = tuple(n for n in own if n == "tile.leave")
        elif inner.name == "tile.if" or inner.name == "tessera.schedule.combine":
            passed = tuple(n for n in own if n not in ENDS)
        elif inner.name == "tile.scope":
            passed = tuple(n for n in own if n in LOOP_EXITS)
        if passed:
            for nested in inner.regions:
                _collect(nested, passed, found)
