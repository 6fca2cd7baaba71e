"""Where Tile operations may stand, and what the exits of control flow carry.

Owns the rules that look at an operation's surroundings. Must not know types of operands
beyond the values that exits hand over.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import IRType, Operation, Program, Region, VerifyError
from tessera_lang.ir.tile.op_definition import Trait
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.rules import types_of
from tessera_lang.record import dataclass, replace
from tessera_lang.types.dtype import BOOL

Types = tuple[IRType, ...]


@dataclass(frozen=True, slots=True)
class _Targets:
    """What the exits of a region hand over; None where an exit has no target there."""

    yields: Types | None = None
    loop: Types | None = None
    scope: Types | None = None
    condition: Types | None = None


_EXITS = frozenset({"tile.yield", "tile.break", "tile.continue", "tile.leave", "tile.condition"})


def check_exits(program: Program) -> None:
    """Exits stand inside what they leave and hand over the right types."""
    for kernel in program.operations:
        _check_region(kernel.regions[0], _Targets())


def _check_region(region: Region, targets: _Targets) -> None:
    for operation in region.operations:
        if not operation.regions:
            if operation.name in _EXITS:
                _check_exit(operation, targets)
            continue
        types = types_of(operation.results)
        match operation.name:
            case "tile.for" | "tessera.schedule.for":
                inner = replace(targets, yields=types, loop=types, condition=None)
                _check_region(operation.regions[0], inner)
            case "tile.while":
                # A condition is no place to leave the loop from, nor one around it.
                _check_region(operation.regions[0], _Targets(condition=types))
                inner = replace(targets, yields=types, loop=types, condition=None)
                _check_region(operation.regions[1], inner)
            case "tile.if":
                inner = replace(targets, yields=types, condition=None)
                for side in operation.regions:
                    _check_region(side, inner)
                _check_results(operation)
            case "tile.once" | "tile.roles":
                inner = replace(targets, yields=(), condition=None)
                for side in operation.regions:
                    _check_region(side, inner)
            case "tile.scope":
                inner = replace(targets, yields=None, scope=types, condition=None)
                _check_region(operation.regions[0], inner)
            case _:
                pass


def _check_results(operation: Operation) -> None:
    falls_out = any(r.terminator.name == "tile.yield" for r in operation.regions)
    if operation.results and not falls_out:
        raise VerifyError("has results but no side that falls out", operation)


def _check_exit(operation: Operation, targets: _Targets) -> None:
    expected: Types | None
    match operation.name:
        case "tile.yield":
            expected = targets.yields
        case "tile.break" | "tile.continue":
            expected = targets.loop
        case "tile.leave":
            expected = targets.scope
        case "tile.condition":
            carried = targets.condition
            expected = None if carried is None else (BOOL, *carried)
        case _:
            return
    if expected is None:
        raise VerifyError("an exit without anything around it to leave", operation)
    if types_of(operation.operands) != expected:
        raise VerifyError("hands over values of other types than its target takes", operation)


def _with(trait: Trait) -> frozenset[str]:
    return frozenset(name for name, one in TILE_OPS.items() if trait in one.traits)


_ALLOCATIONS = _with("allocation")
_BY_ONE_LANE, _BY_ALL_LANES = _with("one lane"), _with("all lanes")
_AT_THE_TOP = _ALLOCATIONS | {"tile.roles"}
PLACED = _AT_THE_TOP | _BY_ONE_LANE | _BY_ALL_LANES
"""What ``check_placement`` looks at."""


def check_placement(program: Program) -> None:
    """Shared memory is allocated at the top of a kernel, under distinct names; one lane alone
    gives orders to the tensor memory accelerator; roles stand at the top."""
    for kernel in program.operations:
        top = kernel.regions[0].operations
        placed = [operation for operation in kernel.walk() if operation.name in PLACED]
        if any(operation.name not in _AT_THE_TOP for operation in placed):
            _check_lanes(kernel.regions[0], single=False)
        names: set[str] = set()
        for operation in placed:
            if operation.name not in _AT_THE_TOP:
                continue
            is_top = any(operation is o for o in top)
            if operation.name == "tile.roles":
                if not is_top:
                    raise VerifyError("roles begin at the top of a kernel", operation)
                continue
            if not is_top:
                raise VerifyError("shared memory is allocated at the top of a kernel", operation)
            name = str(operation.attributes["name"])
            if name in names:
                raise VerifyError(f"two shared buffers are called {name}", operation)
            names.add(name)


def _check_lanes(region: Region, *, single: bool) -> None:
    for operation in region.operations:
        if operation.name in _BY_ONE_LANE and not single:
            raise VerifyError("stands in `tile.once`", operation)
        if operation.name in _BY_ALL_LANES and single:
            raise VerifyError("stands outside `tile.once`: all lanes take part", operation)
        for inner in operation.regions:
            _check_lanes(inner, single=single or operation.name == "tile.once")


def check_views(operations: Sequence[Operation]) -> None:
    """An array that a kernel writes is written memory under every view: what is read through a
    view that is not `mut` may be taken for constant, and brought by loads that see no store.
    ``operations``: all of the program."""
    made = [o for o in operations if o.name == "tile.view"]
    written = {o.operands[0] for o in made if o.result.view_type.mut}
    for o in made:
        if o.operands[0] in written and not o.result.view_type.mut:
            raise VerifyError("a view of written memory that is not mut", o)
