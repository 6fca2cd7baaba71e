"""Dead code of Graph IR: every operator is pure, so what nothing uses goes, of control flow too."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.graph.regions import FOR, IF, WHILE, counted
from tessera_lang.record import replace


def remove_dead_code(program: Program) -> Program:
    """Without the operations that no result needs; the program itself where all are needed."""
    functions = tuple(map(without_unused, program.operations))
    same = all(a is b for a, b in zip(functions, program.operations, strict=True))
    return program if same else replace(program, operations=functions)


def without_unused(function: Operation) -> Operation:
    """A function without the operations that no result needs."""
    (body,) = function.regions
    region = _cleaned(body, body.terminator.operands)
    return function if region is body else replace(function, regions=(region,))


def _cleaned(body: Region, results: Sequence[Value]) -> Region:
    """A region that gives these results alone, of all its arguments; itself where nothing goes."""
    needed = set[Value](results)
    kept: list[Operation] = []
    for operation in reversed(body.operations[:-1]):
        if needed.intersection(operation.results):
            own = _narrowed(operation, needed)
            needed.update(own.operands)
            kept.append(own)
    same = len(kept) + 1 == len(body.operations) and tuple(results) == body.terminator.operands
    if same and all(a is b for a, b in zip(reversed(kept), body.operations, strict=False)):
        return body
    end = replace(body.terminator, operands=tuple(results))
    return Region(body.arguments, (*reversed(kept), end))


def _narrowed(operation: Operation, needed: Collection[Value]) -> Operation:
    """Control flow without results that nothing needs, and without operands that these alone
    need; any other operation as it is."""
    if operation.name == FOR:
        return _narrowed_for(operation, needed)
    if operation.name not in (IF, WHILE):
        return operation
    first = int(operation.name == IF)  # the condition
    carried = len(operation.results) if operation.name == WHILE else 0
    keep = [i for i, v in enumerate(operation.results) if v in needed]
    while True:
        regions = [_cleaned(r, [r.terminator.operands[i] for i in keep])
                   for r in operation.regions[carried > 0 :]]  # fmt: skip
        if carried:
            goes_on = operation.regions[0]
            regions.insert(0, _cleaned(goes_on, goes_on.terminator.operands))
        used = _used(regions)
        more = sorted({*keep, *(i for i in used if i < carried)})
        if more == keep:
            break
        keep = more
    places = sorted({*used, *(keep if carried else ())})
    if len(places) == len(operation.operands) - first and len(keep) == len(operation.results):
        same = all(a is b for a, b in zip(regions, operation.regions, strict=True))
        return operation if same else replace(operation, regions=tuple(regions))
    operands = tuple(operation.operands[first + i] for i in places)
    made = tuple(Region(tuple(r.arguments[i] for i in places), r.operations) for r in regions)
    return replace(
        operation, operands=(*operation.operands[:first], *operands), regions=made,
        results=tuple(operation.results[i] for i in keep),
        attributes={"carried": len(keep)} if carried else operation.attributes,
    )  # fmt: skip


def _narrowed_for(operation: Operation, needed: Collection[Value]) -> Operation:
    loop = counted(operation)
    count = len(loop.carried)
    keep = [i for i, v in enumerate(operation.results) if v in needed]
    while True:
        given = [loop.region.terminator.operands[i] for i in keep]
        region = _cleaned(loop.region, given)
        used = _used([region])
        more = sorted({*keep, *(i - 1 for i in used if 1 <= i <= count)})
        if more == keep:
            break
        keep = more
    carried = [i for i in keep if i < count]
    places = sorted({*carried, *(i - 1 for i in used if i > 0)})
    given = (*loop.carried, *loop.sliced, *loop.rest)
    if len(places) == len(given) and len(keep) == len(operation.results):
        return operation if region is loop.region else replace(operation, regions=(region,))
    arguments = (region.arguments[0], *(region.arguments[1 + i] for i in places))
    sliced = sum(count <= i < count + len(loop.sliced) for i in places)
    first = () if loop.count is None else (loop.count,)
    return replace(
        operation, operands=(*first, *(given[i] for i in places)),
        regions=(Region(arguments, region.operations),),
        results=tuple(operation.results[i] for i in keep),
        attributes={**operation.attributes, "carried": len(carried), "sliced": sliced},
    )  # fmt: skip


def _used(regions: Sequence[Region]) -> set[int]:
    """The numbers of the arguments that regions read."""
    return {
        i for r in regions for i, v in enumerate(r.arguments)
        if any(v in o.operands for o in r.operations)
    }  # fmt: skip
