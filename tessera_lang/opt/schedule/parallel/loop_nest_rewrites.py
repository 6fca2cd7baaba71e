"""Reshaping loop nests: join, fuse, split. Whether it is right to do so is asked elsewhere.

Owns where the operations between two loops go. Must not know accesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import cast

from tessera_lang.ir.core import Attribute, Operation, Program, Region, Value
from tessera_lang.ir.definitions import is_number, is_pure
from tessera_lang.ir.rewrite import replace_values
from tessera_lang.opt.schedule.parallel.dead_code import is_silent
from tessera_lang.opt.schedule.query.array_dependence import FOR, accesses_in
from tessera_lang.record import replace

_FULL = "tessera.schedule.full"


def names_of(loop: Operation) -> tuple[str, ...]:
    return cast("tuple[str, ...]", loop.attributes["axes"])


def bounds_of(loop: Operation) -> tuple[tuple[Value, ...], tuple[Value, ...], tuple[Value, ...]]:
    """Lower bounds, upper bounds and steps."""
    n = len(names_of(loop))
    return loop.operands[:n], loop.operands[n : 2 * n], loop.operands[2 * n : 3 * n]


def with_region(program: Program, region: Region) -> Program:
    """The program whose kernel has this region; itself where it holds the same operations."""
    (kernel,) = program.operations
    old = kernel.regions[0].operations
    if len(old) == len(region.operations) and all(map(is_, old, region.operations)):
        return program
    return replace(program, operations=(replace(kernel, regions=(region,)),))


# --- join ----------------------------------------------------------------------------------------


def join_loops(program: Program) -> Program:
    """The program whose perfect nests at the top are loops of several axes."""
    (kernel,) = program.operations
    region = kernel.regions[0]
    made = [x for o in region.operations for x in _joined_behind(o)]
    return with_region(program, Region(region.arguments, tuple(made)))


def _joined_behind(o: Operation) -> list[Operation]:
    """``joined``, behind the numbers that no iteration changes."""
    front: list[Operation] = []
    while o.name == FOR and (found := _join_once(o)) is not None:
        numbers, o = found
        front += numbers
    return [*front, o]


def joined(o: Operation) -> Operation:
    """A loop whose body is one loop, and numbers it needs, as one loop of more axes."""
    while o.name == FOR and (found := _join_once(o)) is not None and not found[0]:
        o = found[1]
    return o


def _join_once(outer: Operation) -> tuple[list[Operation], Operation] | None:
    """The numbers that are to stand in front, and the two loops as one."""
    found = _loop_and_rest(outer)
    if found is None:
        return None
    inner, numbers = found
    if bool(inner.attributes.get("plain")) != bool(outer.attributes.get("plain")):
        return None
    variables = outer.regions[0].arguments[: len(names_of(outer))]
    moved = _tainted(numbers, variables)
    if not all(map(is_number, numbers)) or any(
        v in variables or v in moved for v in inner.operands
    ):
        return None  # its bounds depend on the outer loop
    front = [x for x in numbers if not moved.intersection(x.results)]
    rest = [x for x in numbers if moved.intersection(x.results)]
    return front, _one_loop(outer, inner, rest)


def _loop_and_rest(outer: Operation) -> tuple[Operation, list[Operation]] | None:
    """The only loop in a loop that carries nothing, as the loop around, and what else is there."""
    *operations, end = outer.regions[0].operations
    loops = [x for x in operations if x.name == FOR and not x.results]
    if len(loops) != 1 or outer.results or end.operands:
        return None
    if loops[0].attributes.get("independent") and not _is_promised(outer):
        return None  # that is a promise for one iteration of the outer loop
    return loops[0], [x for x in operations if x is not loops[0]]


def _is_promised(loop: Operation) -> bool:
    """Whether no two iterations of a loop meet, as its program says."""
    return set(cast("tuple[str, ...]", loop.attributes.get("independent", ()))) == set(
        names_of(loop)
    )


def sunk(outer: Operation, arrays: Mapping[Value, Value]) -> Operation | None:
    """A loop around one loop as one of more axes, with all that stands beside the inner loop in
    each of its iterations; None where that may not be."""
    if outer.name != FOR or (found := _loop_and_rest(outer)) is None:
        return None
    inner, rest = found
    own = {v for x in rest for v in x.results}
    own.update(outer.regions[0].arguments)
    written = {a.array for a in accesses_in(inner, arrays) if a.writes}
    read = {a.array for x in rest for a in accesses_in(x, arrays)}
    if own.intersection(inner.operands) or written & read or not all(map(is_quiet, rest)):
        return None
    return joined(_one_loop(outer, inner, rest))


def is_quiet(o: Operation) -> bool:
    """Whether an operation may be done again, and what stands behind it may stand in front."""
    return o.name == "tile.load" or is_silent(o)


def _one_loop(outer: Operation, inner: Operation, rest: Sequence[Operation]) -> Operation:
    """One loop over the axes of both; ``rest`` goes into its body."""
    body = Region(
        (*outer.regions[0].arguments, *inner.regions[0].arguments),
        (*rest, *inner.regions[0].operations),
    )
    a, b = bounds_of(outer), bounds_of(inner)
    operands = tuple(v for x, y in zip(a, b, strict=True) for v in (*x, *y))
    attributes = {**inner.attributes, **outer.attributes}
    named = _apart(names_of(outer), names_of(inner))
    attributes["axes"] = (*names_of(outer), *named.values())
    attributes["mapping"] = ("open",) * (len(operands) // 3)
    promised = list(cast("tuple[str, ...]", outer.attributes.get("independent", ())))
    promised += [named[n] for n in cast("tuple[str, ...]", inner.attributes.get("independent", ()))]
    if promised:
        attributes["independent"] = tuple(promised)
    return replace(outer, operands=operands, attributes=attributes, regions=(body,))


def _apart(outer: Sequence[str], inner: Sequence[str]) -> dict[str, str]:
    """Names for the inner axes of one loop that are not those of the outer ones."""
    made: dict[str, str] = {}
    for name in inner:
        taken = {*outer, *inner[inner.index(name) + 1 :], *made.values()}
        found = (name, *(f"{name}{k}" for k in range(2, len(taken) + 3)))
        made[name] = next(n for n in found if n not in taken)
    return made


def _tainted(operations: Sequence[Operation], variables: Sequence[Value]) -> set[Value]:
    """What is computed from the variables of a loop."""
    found: set[Value] = set(variables)
    for o in operations:
        if any(v in found for v in o.operands):
            found.update(o.results)
    return found - set(variables)


# --- fuse ----------------------------------------------------------------------------------------


def fused(
    first: Operation, second: Operation, definitions: Mapping[Value, Operation]
) -> Operation | None:
    """Two loops over the same numbers as one; None where they are not over the same."""
    if first.results or second.results:
        return None
    a, b = bounds_of(first), bounds_of(second)
    if len(a[0]) != len(b[0]):
        return None
    for x, y in zip((*a[0], *a[1], *a[2]), (*b[0], *b[1], *b[2]), strict=True):
        if not _same_number(x, y, definitions):
            return None
    to = dict(zip(second.regions[0].arguments, first.regions[0].arguments, strict=True))
    more = replace_values(second.regions[0].operations, to)
    body = Region(first.regions[0].arguments, (*first.regions[0].operations[:-1], *more))
    attributes = dict(first.attributes)
    if not second.attributes.get("plain"):
        attributes.pop("plain", None)
    promised = cast("tuple[str, ...]", attributes.pop("independent", ()))
    too = cast("tuple[str, ...]", second.attributes.get("independent", ()))
    pairs = zip(names_of(first), names_of(second), strict=True)
    if kept := tuple(a for a, b in pairs if a in promised and b in too):
        attributes["independent"] = kept  # what is promised of one says nothing of the other
    return replace(first, attributes=attributes, regions=(body,))


def _same_number(a: Value, b: Value, definitions: Mapping[Value, Operation]) -> bool:
    if a is b:
        return True
    x, y = definitions.get(a), definitions.get(b)
    if x is None or y is None or x.name != y.name or x.attributes != y.attributes:
        return False
    if not is_pure(x) or x.regions or len(x.operands) != len(y.operands):
        return False
    return all(_same_number(p, q, definitions) for p, q in zip(x.operands, y.operands, strict=True))


# --- split ---------------------------------------------------------------------------------------


def split(
    loop: Operation, grid: Sequence[int], rest: Sequence[int], reasons: Mapping[int, str]
) -> Operation:
    """The loop over the axes of ``grid`` (as groups) around one loop for each of the others."""
    if not rest:
        names = names_of(loop)
        return replace(
            loop, attributes={**loop.attributes, "mapping": ("grid",) * len(names)}
        )  # fmt: skip
    if loop.results or len(rest) == len(names_of(loop)) == 1:
        mapping = tuple("loop" for _ in names_of(loop))
        reason = next((reasons[i] for i in rest if reasons[i]), "")
        more: dict[str, Attribute] = {"mapping": mapping}
        if reason:
            more["reason"] = reason
        return replace(loop, attributes={**loop.attributes, **more})
    levels = ([tuple(grid)] if grid else []) + [(i,) for i in rest]
    arguments = loop.regions[0].arguments
    placed = _placed(loop, [[arguments[i] for i in axes] for axes in levels])
    inner: list[Operation] = [*placed[-1]]
    made: Operation | None = None
    for depth in reversed(range(len(levels))):
        axes = levels[depth]
        body = Region(tuple(arguments[i] for i in axes), tuple(inner))
        made = _loop(loop, axes, body, "grid" if grid and depth == 0 else "loop", reasons)
        if depth:
            end = Operation("tile.yield", span=loop.span)
            inner = [*placed[depth - 1], made, end]
    assert made is not None
    return made


def _loop(
    loop: Operation, axes: Sequence[int], body: Region, how: str, reasons: Mapping[int, str]
) -> Operation:
    bounds, names = bounds_of(loop), names_of(loop)
    attributes = dict(loop.attributes)
    attributes["axes"] = tuple(names[i] for i in axes)
    attributes["mapping"] = (how,) * len(axes)
    promised = cast("tuple[str, ...]", attributes.pop("independent", ()))
    kept = tuple(n for n in promised if n in [names[i] for i in axes])
    if kept:
        attributes["independent"] = kept
    reason = next((reasons[i] for i in axes if reasons.get(i)), "")
    if reason:
        attributes["reason"] = reason
    if how == "grid":
        for name in ("pipeline_stages", "unroll"):
            attributes.pop(name, None)
    operands = tuple(part[i] for part in bounds for i in axes)
    return Operation(FOR, operands, (), attributes, (body,), loop.span)


def _placed(loop: Operation, levels: Sequence[Sequence[Value]]) -> list[list[Operation]]:
    """The body's operations by the loop they go into: numbers as far out as they can."""
    level_of: dict[Value, int] = {v: i for i, own in enumerate(levels) for v in own}
    placed: list[list[Operation]] = [[] for _ in levels]
    last = len(levels) - 1
    for o in loop.regions[0].operations:
        movable = is_pure(o) and not o.regions and (is_number(o) or o.name == _FULL)
        level = max((level_of.get(v, 0) for v in o.operands), default=0) if movable else last
        for v in o.results:
            level_of[v] = level
        placed[level].append(o)
    return placed
