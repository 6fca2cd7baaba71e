"""The pass ``simplify``: fold, merge equal operations, drop what nothing reads.

Needs verified Tile IR and keeps its meaning bit for bit, faults included: an access or a
division that may report stays. Hoisting out of loops is left to the target's compiler.
"""

from __future__ import annotations

import math

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.definitions import DIVISIONS, is_pure
from tessera_lang.ir.rewrite import substitute
from tessera_lang.opt.tile.constant_evaluation import Number
from tessera_lang.opt.tile.dead_code import drop_unused
from tessera_lang.opt.tile.fold_rules import Known, fold, held
from tessera_lang.record import dataclass, field, replace

_ROUNDS = 8


@dataclass(slots=True)
class _Folder:
    """One walk from top to bottom. ``seen``: pure operations in sight, by what they are; those of
    the regions that are open stand in ``added``, in order."""

    seen: dict[object, Value] = field(default_factory=dict[object, Value])
    added: list[object] = field(default_factory=list[object])
    replaced: dict[Value, Value] = field(default_factory=dict[Value, Value])
    constants: dict[Value, Number] = field(default_factory=dict[Value, Number])

    def operations(self, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        out: list[Operation] = []
        for operation in operations:
            self._operation(operation, out)
        same = len(out) == len(operations) and all(
            a is b for a, b in zip(out, operations, strict=True)
        )
        return operations if same else tuple(out)

    def _operation(self, operation: Operation, out: list[Operation]) -> None:
        operands = substitute(operation.operands, self.replaced)
        if operands is not operation.operands:
            operation = replace(operation, operands=operands)
        if operation.regions:
            self._nested(operation, out)
            return
        operation = self._without_site(operation)
        if len(operation.results) != 1 or not _repeatable(operation):
            out.append(operation)
            return
        folded = fold(operation, self.constants)
        if isinstance(folded, Value):
            self.replaced[operation.result] = folded
            return
        if folded is not None:
            operation = _constant(operation, folded)
        if operation.name == "tile.constant":
            self.constants[operation.result] = held(operation)
        key = _key(operation)
        if key in self.seen:
            self.replaced[operation.result] = self.seen[key]
            return
        self.seen[key] = operation.result
        self.added.append(key)
        out.append(operation)

    def _without_site(self, operation: Operation) -> Operation:
        """A division by a constant other than 0 reports nothing."""
        if operation.name not in DIVISIONS:
            return operation
        if operation.attributes["site"] == -1 or not self.constants.get(operation.operands[1]):
            return operation
        return replace(operation, attributes={**operation.attributes, "site": -1})

    def _nested(self, operation: Operation, out: list[Operation]) -> None:
        known = self.constants.get(operation.operands[0]) if operation.name == "tile.if" else None
        if known is not None:
            taken = operation.regions[0 if known else 1]
            if taken.terminator.name == "tile.yield":
                for inner in taken.operations[:-1]:
                    self._operation(inner, out)
                values = substitute(taken.terminator.operands, self.replaced)
                self.replaced.update(zip(operation.results, values, strict=True))
                return
        regions = tuple(self._region(region) for region in operation.regions)
        if any(a is not b for a, b in zip(regions, operation.regions, strict=True)):
            operation = replace(operation, regions=regions)
        out.append(operation)

    def _region(self, region: Region) -> Region:
        open_ = len(self.added)
        operations = self.operations(region.operations)
        for key in self.added[open_:]:
            del self.seen[key]  # nothing behind the region sees it
        del self.added[open_:]
        return region if operations is region.operations else replace(region, operations=operations)


def _repeatable(operation: Operation) -> bool:
    """Whether equal ones in sight may be merged."""
    return is_pure(operation)


def _key(operation: Operation) -> object:
    attributes = tuple((k, _exact(v)) for k, v in sorted(operation.attributes.items()))
    types = tuple(value.type for value in operation.results)
    return operation.name, operation.operands, attributes, types


def _exact(value: object) -> object:
    """Equal only if printed alike: 1 is not True, 0.0 is not -0.0, NaN is NaN."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    return type(value).__name__, value


def _constant(operation: Operation, known: Known) -> Operation:
    value: Number = known.value
    if known.dtype.is_float:
        value = float(value)
    return Operation("tile.constant", (), operation.results, {"value": value}, (), operation.span)


def simplify(program: Program) -> Program:
    """The program without what can be known now or is never read."""
    for _ in range(_ROUNDS):
        folder = _Folder()
        operations = folder.operations(program.operations)
        operations = tuple(drop_unused(operation) for operation in operations)
        if all(a is b for a, b in zip(operations, program.operations, strict=True)):
            return program
        program = replace(program, operations=operations)
    return program
