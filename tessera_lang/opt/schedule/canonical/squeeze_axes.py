"""Takes away axes of one element, so that nobody behind asks how a tile was written.

A tile ``1 x 128 x 64`` whose first axis runs along a batch is a matrix for everybody behind: for
units, copies and layouts. Where a kernel has no products every such axis goes: ``x[i:i+1, :]`` is
the row that ``x[i, :]`` is, and what is left without axes is a number. Axes that meet are taken
together; one is kept where an operation looks at it (a reduction along it, a mask of it).
Schedule IR to Schedule IR, for every target.

Owns the rewriting. Must not know machines.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, Operation, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.definitions import EXITS, LOOPS
from tessera_lang.ir.disjoint_sets import DisjointSets
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites
from tessera_lang.record import replace
from tessera_lang.types.dtype import INDEX

Axis = tuple[Value, int]
_FOR = f"{PREFIX}for"
_OF_ACCESSES = frozenset(("dims", "steps"))
"""Attributes of an access that say nothing of a single element."""


@rewrites
def squeeze_axes(program: Program, context: Context) -> Program:
    """The program without axes of one element; on a CPU they do not matter."""
    return program if context.machine.target == "cpu" else squeeze(program)


def squeeze(program: Program) -> Program:
    """The program with matrices where it had stacks of one, and rows where it had matrices of one
    row; itself where it had none."""
    (kernel,) = program.operations
    axes = Axes(kernel)
    gone = axes.gone()
    if not gone:
        return program
    made = _Rewriter(axes, gone).kernel(kernel)
    return replace(program, operations=(made,))


def _rank(value: Value) -> int:
    return len(value.type.shape) if isinstance(value.type, TileType) else 0


def _numbers(operation: Operation, name: str) -> tuple[int, ...]:
    held = operation.attributes.get(name, ())
    return tuple(n for n in held if isinstance(n, int)) if isinstance(held, tuple) else ()


def _axis(operation: Operation) -> int:
    return operation.integer("axis")


def accessed(operation: Operation) -> tuple[Value, tuple[Value, ...], tuple[Value, ...]]:
    """The tile of a load, store or accumulation; the view with where it starts; the extents."""
    at = next(i for i, v in enumerate(operation.operands) if isinstance(v.type, ViewType))
    view = operation.operands[at].view_type
    head = at + 1 + len(view.shape)
    tile = operation.results[0] if operation.results else operation.operands[0]
    return tile, operation.operands[at:head], operation.operands[head:]


class Axes:
    """Which axes of tiles meet, and which of them are to stay."""

    def __init__(self, kernel: Operation) -> None:
        self._classes = DisjointSets[Axis]()
        self._kept: set[Axis] = set()
        self._wanted: list[Axis] = []
        self._values: list[Value] = []
        self.definitions: dict[Value, Operation] = {}
        self.loops: dict[Value, tuple[Value, Value, Value]] = {}
        self._all = not kernel.holds(f"{PREFIX}dot")
        self._region(kernel.regions[0])

    def find(self, at: Axis) -> Axis:
        return self._classes.representative(at)

    def gone(self) -> set[Axis]:
        """Representatives of the classes that are taken away."""
        kept = {self.find(a) for a in self._kept}
        wide: set[Axis] = set()
        for value in self._values:
            t = value.tile_type
            for axis, size in enumerate(t.shape):
                if size != 1:
                    wide.add(self.find((value, axis)))
                elif self._all:
                    self._wanted.append((value, axis))
        return {self.find(a) for a in self._wanted} - kept - wide

    def unite(self, a: Axis, b: Axis) -> None:
        self._classes.unite(a, b)

    def _same(self, a: Value, b: Value) -> None:
        for axis in range(min(_rank(a), _rank(b))):
            self.unite((a, axis), (b, axis))

    def _region(self, region: Region) -> None:
        self._values += [v for v in region.arguments if _rank(v)]
        for operation in region.operations:
            self.definitions.update(dict.fromkeys(operation.results, operation))
            self._values += [v for v in operation.results if _rank(v)]
            if operation.name == _FOR:
                self._variables(operation)
            for nested in operation.regions:
                self._region(nested)
            self._relate(operation)

    def _variables(self, loop: Operation) -> None:
        names = loop.strings("axes")
        n = len(names)
        for i, variable in enumerate(loop.regions[0].arguments[:n]):
            self.loops[variable] = (
                loop.operands[i],
                loop.operands[n + i],
                loop.operands[2 * n + i],
            )

    def _relate(self, operation: Operation) -> None:
        match operation.name.removeprefix(PREFIX):
            case "for" | "tile.while" | "tile.if" | "tile.scope":
                self._control(operation)
            case "load" | "store" | "accumulate":
                self._access(operation)
            case "full" | "iota":
                pass
            case "gather":
                self._kept.update((operation.result, i) for i in range(_rank(operation.result)))
            case "scan" | "sort" if self._all:
                self._same(operation.operands[0], operation.result)
                self._kept.add((operation.result, _axis(operation)))
            case "extract" | "insert" | "scan" | "sort" | "scatter":
                self._keep(operation)
            case "reduce":
                tile, axis = operation.operands[0], _axis(operation)
                self._kept.add((tile, axis))
                for i in range(_rank(operation.result)):
                    self.unite((tile, i + (i >= axis)), (operation.result, i))
            case "expand":
                axis = _axis(operation)
                for i in range(_rank(operation.operands[0])):
                    self.unite((operation.operands[0], i), (operation.result, i + (i >= axis)))
            case "broadcast":
                self._broadcast(operation)
            case "transpose":
                for i, old in enumerate(_numbers(operation, "permutation")):
                    self.unite((operation.operands[0], old), (operation.result, i))
            case "mask":
                self._mask(operation)
            case "dot":
                self._dot(operation)
            case _ if operation.results or operation.name in EXITS:
                for value in operation.operands if operation.results else ():
                    self._same(value, operation.results[0])
            case _:
                self._keep(operation)

    def _keep(self, operation: Operation) -> None:
        for value in (*operation.operands, *operation.results):
            self._kept.update((value, i) for i in range(_rank(value)))

    def _access(self, operation: Operation) -> None:
        """One element is accessed as a number only where it surely is there."""
        tile, _, extents = accessed(operation)
        one = isinstance(tile.type, TileType) and all(n == 1 for n in tile.type.shape)
        plain = set(operation.attributes) <= _OF_ACCESSES
        # A schedule has reads of single elements, and no writes of them.
        plain = plain and operation.name == f"{PREFIX}load"
        if one and not (plain and all(map(self.is_one, extents))):
            self._kept.update((tile, i) for i in range(_rank(tile)))

    def _broadcast(self, operation: Operation) -> None:
        small, big = operation.operands[0], operation.result
        for i in range(_rank(small)):
            if small.type.shape[i] == big.type.shape[i]:  # type: ignore[union-attr]
                self.unite((small, i), (big, i))
            elif not self._all:
                self._kept.add((small, i))

    def _mask(self, operation: Operation) -> None:
        tile, _, *extents = operation.operands
        self._same(tile, operation.result)
        for i, extent in enumerate(extents):
            if not self.is_one(extent):
                self._kept.add((tile, i))

    def _dot(self, operation: Operation) -> None:
        a, b, accumulator = operation.operands
        self._same(accumulator, operation.result)
        rank = _rank(accumulator)
        for value in (a, b):
            for i in range(rank - 2):
                self.unite((value, i), (accumulator, i))
        self.unite((a, rank - 2), (accumulator, rank - 2))
        self.unite((b, rank - 1), (accumulator, rank - 1))
        self.unite((a, rank - 1), (b, rank - 2))
        self._wanted += [(accumulator, i) for i in range(rank - 2)]
        for value in (a, b, accumulator):
            self._kept.update(((value, rank - 2), (value, rank - 1)))

    def _control(self, operation: Operation) -> None:
        names = operation.attributes.get("axes", ())
        n = len(names) if isinstance(names, tuple) else 0
        if operation.name in LOOPS:
            for value, result in zip(operation.operands[3 * n :], operation.results, strict=True):
                self._same(value, result)
            for region in operation.regions:
                for value, result in zip(region.arguments[n:], operation.results, strict=True):
                    self._same(value, result)
        for region in operation.regions:
            for inner in region.operations:
                for nested in inner.walk():
                    if nested.name not in EXITS:
                        continue
                    values = nested.operands[nested.name == "tile.condition" :]
                    if [v.type for v in values] == [r.type for r in operation.results]:
                        for value, result in zip(values, operation.results, strict=True):
                            self._same(value, result)

    def is_one(self, extent: Value) -> bool:
        """Whether an extent of at most one element surely is one."""
        operation = self.definitions.get(extent)
        if operation is None:
            return False
        if operation.name == "tile.constant":
            return operation.attributes["value"] == 1
        if operation.name == "tile.min":
            return all(self.is_one(v) or self._is_rest(v) for v in operation.operands)
        if operation.name == "tile.max":
            return any(self.is_one(v) for v in operation.operands)
        return False

    def _is_rest(self, value: Value) -> bool:
        """``upper - variable`` of a loop: at least one."""
        operation = self.definitions.get(value)
        if operation is None or operation.name != "tile.sub":
            return False
        total, start = operation.operands
        loop = self.loops.get(start)
        return loop is not None and loop[1] is total


class _Rewriter:
    def __init__(self, axes: Axes, gone: set[Axis]) -> None:
        self.axes = axes
        self._gone = gone
        self._values: dict[Value, Value] = {}

    def kernel(self, kernel: Operation) -> Operation:
        return replace(kernel, regions=tuple(self._region(r) for r in kernel.regions))

    def gone(self, value: Value) -> tuple[int, ...]:
        """The axes that a value loses."""
        return tuple(i for i in range(_rank(value)) if self.axes.find((value, i)) in self._gone)

    def _new(self, value: Value) -> Value:
        lost, t = self.gone(value), value.type
        if not lost or not isinstance(t, TileType):
            return value
        shape = tuple(n for i, n in enumerate(t.shape) if i not in lost)
        kind = replace(t, shape=shape) if shape else t.dtype
        made = self._values[value] = Value(kind, value.name)
        return made

    def value(self, value: Value) -> Value:
        return self._values.get(value, value)

    def _region(self, region: Region) -> Region:
        arguments = tuple(self._new(v) for v in region.arguments)
        out: list[Operation] = []
        for operation in region.operations:
            self._operation(operation, out)
        return Region(arguments, tuple(out))

    def _operation(self, operation: Operation, out: list[Operation]) -> None:
        operands = tuple(self.value(v) for v in operation.operands)
        tiles = (*operation.operands, *operation.results)
        if not operation.regions and not any(self.gone(v) for v in tiles):
            out.append(replace(operation, operands=operands))
            return
        if self._is_other(operation, operands, out):
            return
        match operation.name.removeprefix(PREFIX):
            case "load" | "store" | "accumulate":
                operands = self._access(operation, out)
                attributes = self._attributes(operation)
            case "mask":
                lost = self.gone(operation.result)
                kept = [v for i, v in enumerate(operands[2:]) if i not in lost]
                operands, attributes = (*operands[:2], *kept), operation.attributes
            case _:
                attributes = self._attributes(operation)
        regions = tuple(self._region(r) for r in operation.regions)
        results = tuple(self._new(v) for v in operation.results)
        out.append(
            replace(operation, operands=operands, results=results, attributes=attributes,
                    regions=regions)
        )  # fmt: skip

    # --- what becomes another operation, or none ----------------------------------------------

    def _is_other(
        self, operation: Operation, operands: tuple[Value, ...], out: list[Operation]
    ) -> bool:
        """Writes an operation that is none without its axes, or one of another kind."""
        if len(operation.results) > 1 or operation.regions:
            return False
        name = operation.name.removeprefix(PREFIX)
        if name == "load":
            return self._is_element(operation, out)
        if name not in ("full", "expand", "broadcast", "transpose", "mask", "iota"):
            return False
        result, span = operation.result, operation.span
        lost = self.gone(result)
        left = _rank(result) - len(lost)
        made: Value | None = None
        if name == "iota" and _axis(operation) in lost:
            made = Value(result.tile_type.dtype)
            zero: dict[str, Attribute] = {"value": 0}
            out.append(Operation("tile.constant", (), (made,), zero, (), span))
        elif name == "broadcast":
            made = self._stretched(operation, operands[0], out)
        elif operands and self._is_same(operation, name, operands[0]):
            made = operands[0]
        if made is None:
            return False
        self._values[result] = made
        if left and not _rank(made):
            filled = self._values[result] = self._new(result)
            out.append(Operation(f"{PREFIX}full", (made,), (filled,), {}, (), span))
        return True

    def _is_same(self, operation: Operation, name: str, operand: Value) -> bool:
        """Whether nothing is left to do, but that a number is stretched over a tile."""
        lost = self.gone(operation.result)
        match name:
            case "full" | "mask":
                return len(lost) == _rank(operation.result)
            case "expand":
                return _axis(operation) in lost or not _rank(operand)
            case "transpose":
                left = _rank(operation.result) - len(lost)
                return left < 2 or _is_sorted(self._attributes(operation))
            case _:
                return False

    def _stretched(self, operation: Operation, small: Value, out: list[Operation]) -> Value | None:
        """The operand of a broadcast with the axes that its result keeps; None where that is to be
        broadcast."""
        source, result = operation.operands[0], operation.result
        lost, kept = self.gone(source), self.gone(result)
        if not _rank(small):
            return small
        at = 0
        for axis in range(_rank(source)):
            if axis in kept:
                continue
            if axis in lost:
                shape = (*small.tile_type.shape[:at], 1, *small.tile_type.shape[at:])
                wide = Value(replace(small.tile_type, shape=shape))
                where: dict[str, Attribute] = {"axis": at}
                out.append(
                    Operation(f"{PREFIX}expand", (small,), (wide,), where, (), operation.span)
                )
                small = wide
            at += 1
        made = self._new(result)
        if made.type != small.type:
            out.append(replace(operation, operands=(small,), results=(made,)))
            return made
        return small

    def _is_element(self, operation: Operation, out: list[Operation]) -> bool:
        tile, place, _ = accessed(operation)
        if len(self.gone(tile)) < _rank(tile):
            return False
        attributes: dict[str, Attribute] = {"bounds": "guarded", "site": -1}
        there = tuple(map(self.value, place))
        made = self._new(tile)
        out.append(Operation("tile.load", there, (made,), attributes, (), operation.span))
        return True

    def _attributes(self, operation: Operation) -> dict[str, Attribute]:
        """With the axes counted anew."""
        attributes = dict(operation.attributes)
        loads = bool(operation.results) and operation.name != f"{PREFIX}reduce"
        tile = operation.results[0] if loads else operation.operands[0]
        lost = self.gone(tile)
        for name in ("dims", "steps"):
            if name in attributes:
                held = _numbers(operation, name)
                attributes[name] = tuple(n for i, n in enumerate(held) if i not in lost)
        if "axis" in attributes and operation.name != _FOR:
            axis = _axis(operation)
            attributes["axis"] = axis - sum(i < axis for i in lost)
        if "permutation" in attributes:
            held = _numbers(operation, "permutation")
            old = self.gone(operation.operands[0])
            kept = [n for i, n in enumerate(held) if i not in lost]
            attributes["permutation"] = tuple(n - sum(i < n for i in old) for n in kept)
        return attributes

    def _access(self, operation: Operation, out: list[Operation]) -> tuple[Value, ...]:
        """Operands of an access with fewer axes; an extent that may be 0 moves to another axis."""
        tile, _, extents = accessed(operation)
        head = len(operation.operands) - len(extents)
        lost = self.gone(tile)
        kept = [self.value(v) for i, v in enumerate(extents) if i not in lost]
        for axis in lost:
            if not self.axes.is_one(extents[axis]):
                made = Value(INDEX)
                operands = (kept[0], extents[axis])
                out.append(Operation("tile.mul", operands, (made,), {}, (), operation.span))
                kept[0] = made
        return (*(self.value(v) for v in operation.operands[:head]), *kept)


def _is_sorted(attributes: dict[str, Attribute]) -> bool:
    order = attributes["permutation"]
    return isinstance(order, tuple) and order == tuple(range(len(order)))
