"""What the passes that decide a schedule ask of a kernel: loops, loads, products and sizes.

Owns the walk over a kernel and the records it gives; every pass reads these, none walks by
itself. Must not decide anything, and must not know a machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value
from tessera_lang.ir.definitions import ARRAY_READS, ARRAY_WRITES, LOOPS
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.record import dataclass, field

KERNEL, FOR, LOAD, STORE, DOT = (PREFIX + n for n in ("kernel", "for", "load", "store", "dot"))
PREFETCH, TRANSPOSE, PARAMETER = (PREFIX + n for n in ("prefetch", "transpose", "parameter"))
MASK, GATHER, SCATTER = PREFIX + "mask", PREFIX + "gather", PREFIX + "scatter"
REDUCE = PREFIX + "reduce"


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """A load or gather of a tile: the operation, what it reads, and the operations around it
    (outermost first, the kernel left out). A start of a gather may be a tile."""

    operation: Operation
    view: Value
    inside: tuple[Operation, ...]

    @property
    def tile(self) -> TileType:
        return self.operation.result.tile_type

    @property
    def starts(self) -> tuple[Value, ...]:
        return self.operation.operands[1 : 1 + len(self.view.view_type.shape)]

    @property
    def extents(self) -> tuple[Value, ...]:
        return self.operation.operands[1 + len(self.view.view_type.shape) :]

    @property
    def loop(self) -> Operation | None:
        """The innermost loop around it that is no grid."""
        return next((o for o in reversed(self.inside) if o.name in LOOPS and not is_grid(o)), None)


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """What a product multiplies: a load (seen through transposes and prefetches) or a
    computed tile. ``swapped``: the last two axes are the load's in the other order."""

    value: Value
    load: Load | None
    swapped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Dot:
    operation: Operation
    a: Operand
    b: Operand
    inside: tuple[Operation, ...]

    @property
    def shape(self) -> tuple[int | str, int | str, int | str]:
        """m, n, k; a name where the size is open."""
        a, b = self.operation.operands[0].tile_type, self.operation.operands[1].tile_type
        return a.shape[-2], b.shape[-1], a.shape[-1]


@dataclass(slots=True, eq=False)
class Facts:
    """One kernel, seen once. ``definitions``: what defines a value; ``users``: what reads it;
    ``reads``: loads and gathers."""

    kernel: Operation
    loads: list[Load] = field(default_factory=list[Load])
    reads: list[Load] = field(default_factory=list[Load])
    stores: list[tuple[Operation, tuple[Operation, ...]]] = field(
        default_factory=list[tuple[Operation, tuple[Operation, ...]]]
    )
    dots: list[Dot] = field(default_factory=list[Dot])
    loops: list[tuple[Operation, tuple[Operation, ...]]] = field(
        default_factory=list[tuple[Operation, tuple[Operation, ...]]]
    )
    definitions: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    users: dict[Value, list[Operation]] = field(default_factory=dict[Value, list[Operation]])

    @property
    def arguments(self) -> tuple[Value, ...]:
        return self.kernel.regions[0].arguments

    @property
    def grid(self) -> Operation | None:
        """The loop whose iterations become groups; None where there is none or several."""
        found = [o for o, _ in self.loops if is_grid(o)]
        return found[0] if len(found) == 1 else None

    def argument_numbers(
        self, view: Value
    ) -> tuple[int, tuple[int | None, ...], tuple[int | None, ...]]:
        """The argument numbers of a view's pointer, sizes and strides; None for a number that
        is no argument, -1 for a pointer that is none."""
        definition = self.definitions[view]
        rank = len(view.view_type.shape)
        pointer, *numbers = definition.operands
        places = {a: i for i, a in enumerate(self.arguments)}
        found = [places.get(v) for v in numbers]
        return places.get(pointer, -1), tuple(found[:rank]), tuple(found[rank:])

    def constant(self, value: Value) -> int | None:
        """The number a value is, where it is a constant."""
        definition = self.definitions.get(value)
        if definition is None or definition.name != "tile.constant":
            return None
        number = definition.attributes["value"]
        return int(number) if isinstance(number, int) else None

    def same(self, a: Value, b: Value) -> bool:
        """Whether two numbers are surely equal: computed in the same way from the same."""
        if a is b:
            return True
        x, y = self.definitions.get(a), self.definitions.get(b)
        if x is None or y is None or x.name != y.name or x.attributes != y.attributes:
            return False
        if x.regions or x.name == "tile.load" or len(x.operands) != len(y.operands):
            return False
        return all(self.same(p, q) for p, q in zip(x.operands, y.operands, strict=True))


def is_grid(operation: Operation) -> bool:
    """Whether all axes of a loop are groups."""
    mapping = operation.attributes.get("mapping")
    return operation.name == FOR and isinstance(mapping, tuple) and set(mapping) == {"grid"}


def kernel_of(program: Program) -> Operation:
    """The one kernel of a program of level schedule."""
    (kernel,) = program.operations
    return kernel


def facts_of(kernel: Operation) -> Facts:
    facts = Facts(kernel)
    _walk(kernel.regions[0], (), facts)
    loads = {x.operation.result: x for x in facts.reads if _is_seen(x.operation)}
    for operation, inside in _walked(kernel.regions[0], ()):
        if operation.name == DOT:
            a, b = (_operand(v, loads, facts) for v in operation.operands[:2])
            facts.dots.append(Dot(operation, a, b, inside))
    return facts


def _walked(
    region: Region, inside: tuple[Operation, ...]
) -> Iterator[tuple[Operation, tuple[Operation, ...]]]:
    pending = [(operation, inside) for operation in reversed(region.operations)]
    while pending:
        operation, around = pending.pop()
        yield operation, around
        if operation.regions:
            within = (*around, operation)
            for inner in reversed(operation.regions):
                pending.extend([(o, within) for o in reversed(inner.operations)])


def _walk(region: Region, inside: tuple[Operation, ...], facts: Facts) -> None:
    for operation, around in _walked(region, inside):
        for value in operation.results:
            facts.definitions[value] = operation
        for value in operation.operands:
            facts.users.setdefault(value, []).append(operation)
        if operation.name in ARRAY_READS:
            read = Load(operation, operation.operands[0], around)
            facts.reads.append(read)
            if operation.name == LOAD:
                facts.loads.append(read)
        elif operation.name in ARRAY_WRITES:
            facts.stores.append((operation, around))
        elif operation.name in LOOPS:
            facts.loops.append((operation, around))


def read_behind(value: Value, facts: Facts) -> Load | None:
    """The load or gather that an operand is, seen through what moves no data."""
    return _operand(value, {x.operation.result: x for x in facts.reads}, facts).load


def _is_seen(read: Operation) -> bool:
    """Whether a product may find what was read in memory: a gather is computed until it is
    staged."""
    return read.name == LOAD or read.attributes.get("stage") == "shared"


def _operand(value: Value, loads: Mapping[Value, Load], facts: Facts) -> Operand:
    """Looks through what moves no data: prefetches, and transposes of the last two axes."""
    swapped, at = False, value
    while True:
        if at in loads:
            return Operand(value, loads[at], swapped)
        definition = facts.definitions.get(at)
        if definition is None:
            return Operand(value, None)
        if definition.name == TRANSPOSE and swaps_last(definition):
            swapped = not swapped
        elif definition.name != PREFETCH and not _masks_nothing(definition, loads, facts):
            return Operand(value, None)
        at = definition.operands[0]


def _masks_nothing(operation: Operation, loads: Mapping[Value, Load], facts: Facts) -> bool:
    """Whether an operation puts zeros only where the load behind it gave zeros."""
    if operation.name != MASK:
        return False
    value, fill, *extents = operation.operands
    zero = facts.definitions.get(fill)
    if zero is None or zero.name != "tile.constant" or zero.attributes["value"] != 0:
        return False
    behind = _operand(value, loads, facts)
    if behind.load is None:
        return False
    have = behind.load.extents
    if behind.swapped:
        have = (*have[:-2], have[-1], have[-2])
    capacity = value.type.shape if isinstance(value.type, TileType) else ()
    return all(
        facts.same(a, b) or facts.constant(b) == n
        for a, b, n in zip(have, extents, capacity, strict=True)
    )


def swaps_last(transpose: Operation) -> bool:
    """Whether a transpose exchanges the last two axes and leaves the others."""
    permutation = transpose.integers("permutation")
    rank = len(permutation)
    return rank >= 2 and permutation == (*range(rank - 2), rank - 1, rank - 2)


# --- sizes -----------------------------------------------------------------------------------


def open_names(kernel: Operation) -> tuple[str, ...]:
    """The sizes that are still open, in the order of their numbers."""
    names = {str(o.attributes["name"]) for o in kernel.walk() if o.name == PARAMETER}
    for operation in kernel.walk():
        values = [*operation.results, *(a for r in operation.regions for a in r.arguments)]
        for value in values:
            if isinstance(value.type, TileType):
                names.update(n for n in value.type.shape if isinstance(n, str))
    return tuple(sorted(names, key=lambda n: (len(n), n)))


class Estimate:
    """Numbers that index values probably have: from the hints of the launch.

    ``sizes`` are the values given to the open names. A value that cannot be followed is 0
    at its least: loop variables count as 0, so that extents come out full. ``last``: they count
    as in the last iteration.
    """

    def __init__(self, facts: Facts, sizes: Mapping[str, int], last: bool = False) -> None:
        hints = facts.kernel.integers("hints")
        self._known: dict[Value, int | None] = {}
        for i, argument in enumerate(facts.arguments):
            self._known[argument] = hints[i] if i < len(hints) and hints[i] else None
        self._facts = facts
        self._sizes = sizes
        self._last = last
        self._at_end: Estimate | None = None

    def value(self, value: Value) -> int | None:
        if value not in self._known:
            self._known[value] = None  # what refers to itself is not known
            self._known[value] = self._compute(value)
        return self._known[value]

    def _compute(self, value: Value) -> int | None:
        operation = self._facts.definitions.get(value)
        if operation is None:
            return self._variable(value) if self._last else 0
        if operation.name == "tile.constant":
            return self._facts.constant(value)
        if operation.name == PARAMETER:
            return self._sizes.get(str(operation.attributes["name"]))
        if operation.name == "tile.cast":
            return self.value(operation.operands[0])
        if operation.name not in _ARITHMETIC:
            return None
        a, b = (self.value(v) for v in operation.operands)
        if a is None or b is None:
            return self._one_known(operation.name, b if a is None else a)
        return _arithmetic(operation.name, a, b)

    def _one_known(self, name: str, other: int | None) -> int | None:
        """A minimum or maximum of which one side is unknown is probably the other side, but no
        maximum where the most is asked for."""
        return other if name == "tile.min" or (name == "tile.max" and not self._last) else None

    def _variable(self, value: Value) -> int | None:
        """The last number that the variable of a loop is; 0 for others."""
        for loop, _ in self._facts.loops:
            n = len(loop.strings("axes")) if loop.name == FOR else 0
            if value in loop.regions[0].arguments[:n]:
                at = loop.regions[0].arguments.index(value)
                upper, step = (self.value(loop.operands[i * n + at]) for i in (1, 2))
                return None if upper is None or not step else max(0, (upper - 1) // step * step)
        return 0

    def trips(self, loop: Operation) -> int | None:
        """How often the body of a loop probably runs, at most where that depends on others."""
        product = 1
        for count in self.trips_along(loop) or (None,):
            if count is None:
                return None
            product *= count
        return product

    def trips_along(self, loop: Operation) -> list[int | None]:
        """How often a loop probably goes on along each of its axes; none of a ``while``."""
        if loop.name == "tile.for":
            bounds = [loop.operands[:3]]
        elif loop.name == FOR:
            n = len(loop.strings("axes"))
            bounds = [(loop.operands[i], loop.operands[n + i], loop.operands[2 * n + i])
                      for i in range(n)]  # fmt: skip
        else:
            return []
        if self._at_end is None and not self._last:
            self._at_end = Estimate(self._facts, self._sizes, last=True)
        found: list[int | None] = []
        for bound in bounds:
            first = _count(*map(self.value, bound))
            last = first if self._at_end is None else _count(*map(self._at_end.value, bound))
            found.append(None if first is None or last is None else max(first, last))
        return found


def _count(low: int | None, high: int | None, by: int | None) -> int | None:
    """Iterations of a loop with these bounds."""
    return None if low is None or high is None or not by else max(0, -(-(high - low) // by))


def view_bytes(view: Value, facts: Facts, estimate: Estimate) -> int | None:
    """Bytes of an array, where its sizes are probably known."""
    t = view.view_type
    sizes = [estimate.value(v) for v in facts.definitions[view].operands[1 : 1 + len(t.shape)]]
    known = [n for n in sizes if n is not None]
    return math.prod(known) * t.dtype.bytes if len(known) == len(sizes) else None


def covers(facts: Facts, loop: Operation, name: str) -> list[int | None]:
    """For each axis of a loop whose step is the open size ``name`` a power of two that covers it;
    None where its length is not known."""
    if loop.name != FOR:
        return []
    n, estimate = len(loop.strings("axes")), Estimate(facts, {})
    found: list[int | None] = []
    for upper, step in zip(loop.operands[n : 2 * n], loop.operands[2 * n : 3 * n], strict=True):
        definition = facts.definitions.get(step)
        if definition is not None and definition.attributes.get("name") == name:
            known = estimate.value(upper)
            found.append(1 << (known - 1).bit_length() if known else None)
    return found


_ARITHMETIC = ("tile.add", "tile.sub", "tile.mul", "tile.floordiv", "tile.min", "tile.max")


def _arithmetic(name: str, a: int, b: int) -> int | None:
    match name:
        case "tile.add":
            return a + b
        case "tile.sub":
            return a - b
        case "tile.mul":
            return a * b
        case "tile.floordiv":
            return a // b if b else None
        case "tile.min":
            return min(a, b)
        case _:
            return max(a, b)
