"""Two reductions across warps that do not depend on each other meet one barrier.

A reduction across warps writes what each warp has to scratch, meets a barrier, and reads. Two in
a row meet two, and the shuffles of the second wait for the first. A variance whose mean is
corrected, a sum beside a maximum: ``tile.reduce_tiles`` reduces both tiles at once, each in the
order in which it would be reduced alone, so the bits stay. Owns the search for pairs. Must not
know what is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.resources.tile_layouts import reduce_scratch, scratch_buffer
from tessera_lang.ir.core import BufferType, Operation, Program, Value
from tessera_lang.ir.definitions import BARRIERS, effect_of
from tessera_lang.lower.schedule_to_tile.common.memory_plan import has_roles
from tessera_lang.opt.tile.shared_budget import buffer_bytes
from tessera_lang.record import replace
from tessera_lang.target.tuning import SCRATCH_APART

_REDUCE = "tile.reduce_tile"
_STAYS = ("none", "fault", "read")
_MOVES = ("none", "fault")


def pair_reductions(program: Program) -> Program:
    """The program with pairs reduced at once; itself where there are none, or where warps have
    roles, which share no scratch."""
    (kernel,) = program.operations
    if has_roles(kernel) or len(kernel.nested(_REDUCE)) < 2:
        return program
    scratches: list[Operation] = []
    made = _in(kernel, scratches)
    if not scratches:
        return program
    (body,) = made.regions
    body = replace(body, operations=(*scratches, *body.operations))
    return replace(program, operations=(replace(made, regions=(body,)),))


def _in(operation: Operation, scratches: list[Operation]) -> Operation:
    if not operation.regions:
        return operation
    regions = tuple(
        replace(r, operations=_paired([_in(o, scratches) for o in r.operations], scratches))
        for r in operation.regions
    )
    before = [o for r in operation.regions for o in r.operations]
    after = [o for r in regions for o in r.operations]
    if len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True)):
        return operation
    return replace(operation, regions=regions)


def _paired(operations: Sequence[Operation], scratches: list[Operation]) -> tuple[Operation, ...]:
    found = list(operations)
    at = 0
    while at < len(found):
        second = _partner(found, at)
        if second is not None:
            after, before = _parted(found[at + 1 : second], found[at])
            both = _both(found[at], found[second], scratches)
            found[at : second + 1] = [*before, both, *after]
            at += len(before)
        at += 1
    return tuple(found)


def _partner(operations: Sequence[Operation], at: int) -> int | None:
    """Where the reduction stands that the one at ``at`` may be done with."""
    first = operations[at]
    if not _is_alone(first):
        return None
    late: set[Value] = set(first.results)
    for number in range(at + 1, len(operations)):
        operation = operations[number]
        waits = any(v in late for v in operation.operands)
        if _is_alone(operation) and not waits and _alike(first, operation):
            return number
        effect = effect_of(operation)
        if operation.regions or operation.name in BARRIERS or effect not in _STAYS:
            return None
        if waits:
            if effect not in _MOVES:
                return None
            late.update(operation.results)
    return None


def _is_alone(operation: Operation) -> bool:
    """Whether it is a reduction across warps that exchange little, and gives no places."""
    return (
        operation.name == _REDUCE
        and len(operation.operands) == 2
        and isinstance(operation.operands[1].type, BufferType)
        and buffer_bytes(operation.operands[1].type) <= SCRATCH_APART
        and not str(operation.attributes["kind"]).startswith("arg")
    )


def _alike(a: Operation, b: Operation) -> bool:
    one, other = a.operands[0].tile_type, b.operands[0].tile_type
    same = one.sizes == other.sizes and one.layout == other.layout
    return same and a.attributes["axis"] == b.attributes["axis"]


def _parted(
    operations: Sequence[Operation], first: Operation
) -> tuple[list[Operation], list[Operation]]:
    """Those that wait for ``first``, and the others."""
    late: set[Value] = set(first.results)
    after: list[Operation] = []
    before: list[Operation] = []
    for operation in operations:
        if any(v in late for v in operation.operands):
            late.update(operation.results)
            after.append(operation)
        else:
            before.append(operation)
    return after, before


def _both(first: Operation, second: Operation, scratches: list[Operation]) -> Operation:
    axis = first.integer("axis")
    kinds = tuple(str(o.attributes["kind"]) for o in (first, second))
    tiles = (first.operands[0], second.operands[0])
    needed = sum(
        reduce_scratch(t.tile_type, axis, kind) for t, kind in zip(tiles, kinds, strict=True)
    )
    name = f"pair_{len(scratches)}"
    scratch = Value(scratch_buffer(needed), name)
    scratches.append(Operation("tile.shared.alloc", (), (scratch,), {"name": name}))
    return Operation(
        "tile.reduce_tiles", (*tiles, scratch), (*first.results, *second.results),
        {"kinds": kinds, "axis": axis}, span=second.span,
    )  # fmt: skip
