"""Rebuilding programs: the walk that every pass shares.

Owns identity: what a rewrite leaves alone stays the same object, so a pass that finds
nothing gives back the program it got. Must not know any operation set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.record import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Replacement:
    """What stands in for an operation: ``operations``, and ``values`` for its results."""

    operations: tuple[Operation, ...] = ()
    values: tuple[Value, ...] = ()


Step = Callable[[Operation], Replacement | Operation | None]
"""Looks at one operation whose operands and regions are rewritten already.

None leaves it. An Operation with the same results (the same objects) takes its place. A
Replacement puts any operations in its place and gives values for all of its results.
"""


def rewrite_program(program: Program, step: Step) -> Program:
    """``program`` with ``step`` applied bottom-up, in order; itself if nothing changed."""
    operations = _Rewriter(step).operations(program.operations)
    return program if operations is program.operations else replace(program, operations=operations)


def rewrite_operation(operation: Operation, step: Step) -> Operation:
    """One operation with ``step`` applied to everything inside it, not to itself."""
    return _Rewriter(step).inside(operation)


@dataclass(slots=True)
class _Rewriter:
    step: Step
    replaced: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def operations(self, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        out: list[Operation] = []
        changed = False
        for operation in operations:
            before = len(out)
            self._one(operation, out)
            changed = changed or len(out) != before + 1 or out[-1] is not operation
        return tuple(out) if changed else operations

    def _one(self, operation: Operation, out: list[Operation]) -> None:
        rebuilt = self.inside(operation)
        made = self.step(rebuilt)
        if made is None:
            out.append(rebuilt)
        elif isinstance(made, Operation):
            if made.results != rebuilt.results:
                raise ValueError(f"{made.name} takes the place of {rebuilt.name}: other results")
            out.append(made)
        else:
            if len(made.values) != len(rebuilt.results):
                raise ValueError(f"{len(made.values)} values for the results of {rebuilt.name}")
            out.extend(made.operations)
            self.replaced.update(zip(rebuilt.results, made.values, strict=True))

    def inside(self, operation: Operation) -> Operation:
        operands = substitute(operation.operands, self.replaced)
        regions = self._regions(operation.regions)
        if operands is operation.operands and regions is operation.regions:
            return operation
        return replace(operation, operands=operands, regions=regions)

    def _regions(self, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        out = tuple(self._region(region) for region in regions)
        return regions if all(a is b for a, b in zip(out, regions, strict=True)) else out

    def _region(self, region: Region) -> Region:
        operations = self.operations(region.operations)
        return region if operations is region.operations else replace(region, operations=operations)


def substitute(values: tuple[Value, ...], to: Mapping[Value, Value]) -> tuple[Value, ...]:
    """``values`` with replacements followed to their end; the same tuple if none applies."""
    out = tuple(_resolve(value, to) for value in values)
    return values if all(a is b for a, b in zip(out, values, strict=True)) else out


def _resolve(value: Value, to: Mapping[Value, Value]) -> Value:
    while (next_value := to.get(value)) is not None and next_value is not value:
        value = next_value
    return value


def replace_values(
    operations: tuple[Operation, ...], to: Mapping[Value, Value]
) -> tuple[Operation, ...]:
    """``operations``, nested ones included, reading other values; the same if none applies."""
    rewriter = _Rewriter(lambda operation: None, dict(to))
    return rewriter.operations(operations)


def replace_values_in_program(program: Program, to: Mapping[Value, Value]) -> Program:
    operations = replace_values(program.operations, to)
    return program if operations is program.operations else replace(program, operations=operations)


# --- copies ----------------------------------------------------------------------------------


def clone_value(value: Value, to: MutableMapping[Value, Value]) -> Value:
    """A new value like ``value``; the pair is added to ``to``."""
    fresh = to[value] = Value(value.type, value.name)
    return fresh


def clone_operation(operation: Operation, to: MutableMapping[Value, Value]) -> Operation:
    """A copy that defines new values; operands are looked up in ``to``, which grows."""
    operands = tuple(_resolve(value, to) for value in operation.operands)
    regions = tuple(clone_region(region, to) for region in operation.regions)
    results = tuple(clone_value(value, to) for value in operation.results)
    return replace(operation, operands=operands, regions=regions, results=results)


def clone_operations(
    operations: Iterable[Operation], to: MutableMapping[Value, Value]
) -> tuple[Operation, ...]:
    return tuple(clone_operation(operation, to) for operation in operations)


def clone_region(region: Region, to: MutableMapping[Value, Value] | None = None) -> Region:
    """A copy of a region that defines new values.

    ``to`` says what stands in for values of outside (and for arguments that are dropped:
    an argument found in ``to`` gets no new one); it grows by the pairs of the copy.
    """
    known: MutableMapping[Value, Value] = {} if to is None else to
    arguments = tuple(clone_value(v, known) for v in region.arguments if v not in known)
    return Region(arguments, clone_operations(region.operations, known))
