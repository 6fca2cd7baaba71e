"""Facts about the scalars of a Schedule kernel: constants, divisors, extents that fill a tile.

Owns the walk over definitions. Must not know layouts or Tile operations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import copysign, gcd

from tessera_lang.ir.core import Operation, Region, TileType, Value, ViewType
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.opt.schedule.query.tile_access import TileAccess
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType

MOST = 1 << 20  # divisors beyond it are of no interest

FOR = "tessera.schedule.for"


@dataclass(frozen=True, slots=True)
class Loop:
    """The bounds of one loop variable."""

    lower: Value
    upper: Value
    step: Value
    operation: Operation


class Facts:
    """Questions about the values of one Schedule kernel."""

    def __init__(self, kernel: Operation, key: Callable[[Value], Hashable] | None = None) -> None:
        """``key`` is equal for numbers that the launch checks to be equal."""
        self.kernel = kernel
        self._key = key
        self.definitions: dict[Value, Operation] = {}
        self.loops: dict[Value, Loop] = {}
        self._constants: dict[Value, int | None] = {}
        self._powers: dict[Value, int] = {}
        self.depth: dict[Value, int] = {}
        self.uses: dict[Value, list[Operation]] = {}
        self._parents: dict[Operation, Operation] = {}
        given = kernel.attributes.get("divisors", ())
        numbers = given if isinstance(given, tuple) else ()
        self._divisors: dict[Value, int] = {
            v: n
            for v, n in zip(kernel.regions[0].arguments, numbers, strict=False)
            if isinstance(n, int) and n > 0
        }
        self._region(kernel.regions[0], 0, kernel)

    def _region(self, region: Region, depth: int, parent: Operation) -> None:
        for value in region.arguments:
            self.depth[value] = depth
        for operation in region.operations:
            self._parents[operation] = parent
            for value in operation.operands:
                self.uses.setdefault(value, []).append(operation)
            for value in operation.results:
                self.definitions[value] = operation
                self.depth[value] = depth
            if operation.name == FOR:
                self._variables(operation)
            inner = depth + (operation.name in LOOPS)
            for nested in operation.regions:
                self._region(nested, inner, operation)

    def _variables(self, operation: Operation) -> None:
        axes = axes_of(operation)
        lower, upper, step = (operation.operands[i * axes : (i + 1) * axes] for i in range(3))
        for i, variable in enumerate(operation.regions[0].arguments[:axes]):
            self.loops[variable] = Loop(lower[i], upper[i], step[i], operation)

    # --- where things stand ---------------------------------------------------------------

    def parent(self, operation: Operation) -> Operation | None:
        """The operation whose region holds it."""
        return self._parents.get(operation)

    def operation(self, value: Value) -> Operation | None:
        """What defines it; None for an argument of a region."""
        return self.definitions.get(value)

    def used_by(self, value: Value) -> Sequence[Operation]:
        return self.uses.get(value, ())

    # --- scalars ----------------------------------------------------------------------------

    def constant(self, value: Value) -> int | None:
        """The number a scalar always is."""
        if value not in self._constants:
            self._constants[value] = self._constant(value)
        return self._constants[value]

    def _constant(self, value: Value) -> int | None:
        operation = self.operation(value)
        if operation is None:
            return None
        if operation.name == "tile.constant":
            held = operation.attributes["value"]
            return held if isinstance(held, int) and not isinstance(held, bool) else None
        if operation.name == "tile.cast":
            return self.constant(operation.operands[0])
        if operation.name not in ("tile.add", "tile.sub", "tile.mul", "tile.min", "tile.max"):
            return None
        a, b = (self.constant(v) for v in operation.operands)
        if a is None or b is None:
            return None
        match operation.name:
            case "tile.add":
                return a + b
            case "tile.sub":
                return a - b
            case "tile.mul":
                return a * b
            case "tile.min":
                return min(a, b)
            case _:
                return max(a, b)

    def divisor(self, value: Value) -> int:
        """A power of two that divides it."""
        if value not in self._powers:
            self._powers[value] = self._divisor(value)
        return self._powers[value]

    def _divisor(self, value: Value) -> int:
        if value in self._divisors:
            return _power(self._divisors[value])
        if value in self.loops:
            loop = self.loops[value]
            return min(self.divisor(loop.lower), self.divisor(loop.step))
        operation = self.operation(value)
        if operation is None:
            return 1
        constant = self.constant(value)
        if constant is not None:
            return _power(constant)
        if not all(isinstance(v.type, DType) and v.type.is_integer for v in operation.operands):
            if operation.name == "tile.select":
                return min(self.divisor(v) for v in operation.operands[1:])
            return 1
        match operation.name:
            case "tile.add" | "tile.sub" | "tile.min" | "tile.max":
                return min(self.divisor(v) for v in operation.operands)
            case "tile.mul":
                a, b = operation.operands
                return min(MOST, self.divisor(a) * self.divisor(b))
            case "tile.cast" | "tile.neg":
                return self.divisor(operation.operands[0])
            case "tile.floordiv":
                by = self.constant(operation.operands[1])
                if by is None or by <= 0 or by & (by - 1):
                    return 1
                return max(1, self.divisor(operation.operands[0]) // by)
            case _:
                return 1

    def is_full(self, extent: Value, size: int) -> bool:
        """Whether an extent is ``size`` whatever the sizes of the arrays are."""
        return self._at_least(extent, size)

    def _at_least(self, value: Value, size: int) -> bool:
        constant = self.constant(value)
        if constant is not None:
            return constant >= size
        operation = self.operation(value)
        if operation is None:
            return False
        match operation.name:
            case "tile.min":
                return all(self._at_least(v, size) for v in operation.operands)
            case "tile.max":
                return any(self._at_least(v, size) for v in operation.operands)
            case "tile.sub":
                total, start = operation.operands
                return self._rest_is_whole(total, start, size)
            case _:
                return False

    def _rest_is_whole(self, total: Value, start: Value, size: int) -> bool:
        """Whether ``total - start`` is at least ``size``: a loop variable below ``total`` in steps
        of a multiple of ``size`` that divides both."""
        loop = self.loops.get(start)
        if loop is None or not self.same(loop.upper, total):
            return False
        return self.divides(size, total) and self.divides(size, start)

    def divides(self, size: int, value: Value) -> bool:
        constant = self.constant(value)
        if constant is not None:
            return constant % size == 0
        if value in self.loops:
            loop = self.loops[value]
            return self.divides(size, loop.lower) and self.divides(size, loop.step)
        return size & (size - 1) == 0 and self.divisor(value) >= size

    def same(self, a: Value, b: Value) -> bool:
        """Whether two scalars are surely equal."""
        if a is b or (self._key is not None and self._key(a) == self._key(b)):
            return True
        x, y = self.operation(a), self.operation(b)
        if x is None or y is None or x.name != y.name or x.attributes != y.attributes:
            return False
        if x.name == "tile.load" or len(x.operands) != len(y.operands) or x.regions:
            return False
        return all(self.same(p, q) for p, q in zip(x.operands, y.operands, strict=True))

    # --- arrays -----------------------------------------------------------------------------

    def strides(self, view: Value) -> tuple[int, ...] | None:
        """For each axis of a view a power of two that divides its stride in elements, 0 for a
        stride of 1; None where the view is no operation here."""
        operation, t = self.operation(view), view.type
        if operation is None or not isinstance(t, ViewType) or operation.name != "tile.view":
            return None
        rank = len(t.shape)
        if not t.contiguous:
            given = operation.operands[1 + rank : 1 + 2 * rank]
            return tuple(0 if self.constant(v) == 1 else self.divisor(v) for v in given)
        out, product = [0] * rank, 1
        for axis in reversed(range(rank)):
            out[axis] = 0 if axis == rank - 1 else product
            size = self.divisor(operation.operands[1 + axis])
            product = min(MOST, product * size)
        return tuple(out)

    def unit_axis(self, view: Value) -> int | None:
        """The axis of a view along which elements lie next to each other."""
        strides = self.strides(view)
        if strides is None:
            t = view.type
            contiguous = isinstance(t, ViewType) and t.contiguous and t.shape
            return len(t.shape) - 1 if contiguous else None  # type: ignore[union-attr]
        return next((i for i in reversed(range(len(strides))) if strides[i] == 0), None)

    def base_divisor(self, view: Value) -> int:
        """A power of two that divides the byte address of a view's first element."""
        operation, t = self.operation(view), view.type
        if not isinstance(t, ViewType):
            return 1
        known = 16 if t.aligned else t.dtype.bytes
        if operation is not None and operation.name == "tile.view":
            known = max(known, self._divisors.get(operation.operands[0], 1))
        return _power(known)

    def vector_bytes(self, access: TileAccess) -> int:
        """Bytes, at most 16, such that pieces of so many along the unit axis are aligned."""
        t = access.view.view_type
        element = t.dtype.bytes
        axis = self.tile_unit_axis(access)
        strides = self.strides(access.view)
        if axis is None or strides is None:
            return element
        unit = access.dims[axis]
        known = min(16, self.base_divisor(access.view))
        known = gcd(known, min(16, self.divisor(access.starts[unit]) * element))
        for i, stride in enumerate(strides):
            if i != unit and not self._stays(access, i):
                known = gcd(known, min(16, (stride or 1) * element))
        return max(element, known)

    def _stays(self, access: TileAccess, axis: int) -> bool:
        """Whether an axis of the view is at 0 for every element of the tile."""
        return axis not in access.dims and self.constant(access.starts[axis]) == 0

    def tile_unit_axis(self, access: TileAccess) -> int | None:
        """The axis of the tile along which elements lie next to each other in memory."""
        unit = access.lines if access.lines >= 0 else self.unit_axis(access.view)
        for axis, dim in enumerate(access.dims):
            if dim == unit and access.steps[axis] == 1:
                return axis
        return None

    def is_whole(self, access: TileAccess, vector: int) -> bool:
        """Whether the extent along the unit axis ends no piece of ``vector`` bytes."""
        axis = self.tile_unit_axis(access)
        if axis is None:
            return False
        t = access.view.view_type
        return self.divides(max(1, vector // t.dtype.bytes), access.extents[axis])


def is_positive_zero(number: object) -> bool:
    """Whether a number is the zero that memory is cleared to: by its bits, not by its value."""
    return isinstance(number, int | float) and number == 0 and copysign(1.0, number) > 0


def axes_of(loop: Operation) -> int:
    """Number of variables of a ``tessera.schedule.for``."""
    return len(loop.strings("axes"))


def is_tile(value: Value) -> bool:
    return isinstance(value.type, TileType)


def _power(n: int) -> int:
    """The greatest power of two that divides ``n``."""
    return MOST if n == 0 else min(MOST, n & -n)
