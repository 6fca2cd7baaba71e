"""The pass ``narrow``: index arithmetic in 32 bits where the values surely fit.

Needs ranges; meant for machines whose registers have 32 bits. A value of type index whose range
fits gets a twin of 32 bits that is computed in its place, and is itself the twin, widened: who
needs 64 bits finds them, and the next ``simplify`` drops what nobody needs. Must not know targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera_lang.analysis import ranges
from tessera_lang.analysis.ranges.state import Ranges
from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.definitions import EXITS, LOOPS, carried_from
from tessera_lang.record import dataclass, field, replace
from tessera_lang.types.dtype import I32, INDEX, DType, integer_range

_LOW, _HIGH = integer_range(I32)
_RING = ("tile.add", "tile.sub", "tile.mul")
_SAME = (
    *_RING, "tile.floordiv", "tile.mod", "tile.min", "tile.max", "tile.neg", "tile.abs",
    "tile.and", "tile.or", "tile.xor", "tile.not",
)  # fmt: skip
"""Operations on integers whose result is the same in any width that holds it and the operands."""
_SHIFTS = ("tile.shl", "tile.shr")


@dataclass(slots=True)
class _Narrower:
    """One walk from top to bottom. ``twins``: the 32-bit form of values, where there is one.
    ``exits``: which of the values are narrow that an exit takes along, innermost last."""

    known: Ranges
    twins: dict[Value, Value] = field(default_factory=dict[Value, Value])
    exits: list[tuple[str, tuple[bool, ...]]] = field(
        default_factory=list["tuple[str, tuple[bool, ...]]"]
    )

    # --- values -------------------------------------------------------------------------------

    def fits(self, value: Value) -> bool:
        """Whether an index is in the range of 32 bits, always."""
        if value.type != INDEX:
            return False
        low, high = self.known.interval(value)
        return low >= _LOW and high <= _HIGH

    def all_fit(self, values: Iterable[Value]) -> bool:
        return all(self.fits(v) for v in values)

    def twin(self, value: Value, out: list[Operation]) -> Value:
        """The 32-bit form of a value that fits."""
        found = self.twins.get(value)
        if found is None:
            found = Value(I32, value.name)
            out.append(Operation("tile.cast", (value,), (found,)))
        return found

    def twins_of(self, values: Sequence[Value], out: list[Operation]) -> tuple[Value, ...]:
        return tuple(self.twin(v, out) for v in values)

    def _widened(self, value: Value, out: list[Operation]) -> Value:
        """A new twin; the value is made of it."""
        made = self.twins[value] = Value(I32, value.name)
        out.append(Operation("tile.cast", (made,), (value,)))
        return made

    # --- operations ---------------------------------------------------------------------------

    def region(self, region: Region, narrow: Sequence[bool]) -> Region:
        """A region, its arguments narrow where it says so."""
        out: list[Operation] = []
        arguments = tuple(
            self._widened(a, out) if small else a
            for a, small in zip(region.arguments, narrow, strict=True)
        )
        for operation in region.operations:
            self.operation(operation, out)
        return Region(arguments, tuple(out))

    def operation(self, operation: Operation, out: list[Operation]) -> None:
        name = operation.name
        if name in EXITS and name != "tile.return":
            out.append(self._exit(operation, out))
        elif name in LOOPS:
            self._loop(operation, out)
        elif operation.regions:
            self._branches(operation, out)
        elif name == "tile.cmp" and self.all_fit(operation.operands):
            out.append(replace(operation, operands=self.twins_of(operation.operands, out)))
        elif name == "tile.cast" and operation.operands[0] in self.twins:
            twin = self.twins[operation.operands[0]]
            same = operation.result.type == I32  # that a cast back gives the twin, targets know
            out.append(operation if same else replace(operation, operands=(twin,)))
        elif len(operation.results) == 1 and self._narrows(operation):
            self._pure(operation, out)
        else:
            out.append(operation)

    def _narrows(self, operation: Operation) -> bool:
        if not self.fits(operation.result):
            return False
        name, operands = operation.name, operation.operands
        if name in _SAME:
            return self.all_fit(operands)
        if name in _SHIFTS:
            low, high = self.known.interval(operands[1])
            return self.all_fit(operands) and low >= 0 and high < I32.bits
        if name == "tile.select":
            return self.all_fit(operands[1:])
        source = operands[0].type if operands else None
        whole = isinstance(source, DType) and (source.is_integer or source.kind == "bool")
        return name == "tile.constant" or (name == "tile.cast" and whole)

    def _pure(self, operation: Operation, out: list[Operation]) -> None:
        operands, attributes = operation.operands, operation.attributes
        if operation.name == "tile.select":
            operands = (operands[0], *self.twins_of(operands[1:], out))
        elif operation.name != "tile.cast":
            operands = self.twins_of(operands, out)
        if operation.name in _RING:
            attributes = {**attributes, "exact": True}
        made = Value(I32, operation.result.name)
        out.append(replace(operation, operands=operands, results=(made,), attributes=attributes))
        self.twins[operation.result] = made
        out.append(Operation("tile.cast", (made,), (operation.result,)))

    # --- control ------------------------------------------------------------------------------

    def _exit(self, operation: Operation, out: list[Operation]) -> Operation:
        lead = 1 if operation.name == "tile.condition" else 0
        narrow = self._taken_by(operation.name)
        operands = tuple(
            self.twin(v, out) if small else v
            for v, small in zip(operation.operands[lead:], narrow, strict=True)
        )
        return replace(operation, operands=(*operation.operands[:lead], *operands))

    def _taken_by(self, name: str) -> tuple[bool, ...]:
        """Of the values of an exit, which are narrow where it leads."""
        kinds = {
            "tile.break": LOOPS, "tile.continue": LOOPS, "tile.leave": ("tile.scope",),
        }.get(name)  # fmt: skip
        if kinds is None:
            return self.exits[-1][1]
        return next(narrow for kind, narrow in reversed(self.exits) if kind in kinds)

    def _loop(self, operation: Operation, out: list[Operation]) -> None:
        lead = carried_from(operation)
        arguments = [region.arguments[1 if lead else 0 :] for region in operation.regions]
        narrow = tuple(
            self.all_fit((operation.results[i], operation.operands[lead + i],
                          *(a[i] for a in arguments)))
            for i in range(len(operation.results))
        )  # fmt: skip
        counted = (
            lead > 0
            and self.all_fit(operation.operands[:lead])
            and self.fits(operation.regions[0].arguments[0])
        )
        operands = tuple(
            self.twin(v, out) if small else v
            for v, small in zip(operation.operands, (counted,) * lead + narrow, strict=True)
        )
        self.exits.append((operation.name, narrow))
        first = (counted,) if lead else ()
        regions = tuple(self.region(r, (*first, *narrow)) for r in operation.regions)
        self.exits.pop()
        self._close(replace(operation, operands=operands, regions=regions), narrow, out)

    def _branches(self, operation: Operation, out: list[Operation]) -> None:
        """An ``if`` or a ``scope``: what its sides give."""
        narrow = tuple(self.fits(v) for v in operation.results)
        self.exits.append((operation.name, narrow))
        regions = tuple(self.region(r, ()) for r in operation.regions)
        self.exits.pop()
        self._close(replace(operation, regions=regions), narrow, out)

    def _close(self, operation: Operation, narrow: Sequence[bool], out: list[Operation]) -> None:
        made = tuple(
            Value(I32, v.name) if small else v
            for v, small in zip(operation.results, narrow, strict=True)
        )
        out.append(replace(operation, results=made))
        for value, twin in zip(operation.results, made, strict=True):
            if twin is not value:
                self.twins[value] = twin
                out.append(Operation("tile.cast", (twin,), (value,)))


def narrow(program: Program) -> Program:
    """Kernels with their index arithmetic in 32 bits, as far as it fits."""
    return replace(program, operations=tuple(_kernel(kernel) for kernel in program.operations))


def _kernel(kernel: Operation) -> Operation:
    if kernel.name != "tile.kernel":
        return kernel
    (region,) = kernel.regions
    narrower = _Narrower(ranges(kernel, wanted={"values"}))
    out: list[Operation] = []
    for argument in region.arguments:
        if narrower.fits(argument):
            narrower.twins[argument] = narrower.twin(argument, out)
    for operation in region.operations:
        narrower.operation(operation, out)
    return replace(kernel, regions=(Region(region.arguments, tuple(out)),))
