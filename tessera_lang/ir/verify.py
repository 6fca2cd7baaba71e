"""Checks that a program keeps the rules of its level.

Owns the order of the checks and the message of a fault. One check, one job: each
``check_*`` raises VerifyError at the first operation that breaks its rule. Operation sets
bring their tables (``TABLES``) and type rules; this file must not know single operations
beyond the exits of structured control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tessera_lang.ir.core import Attribute, Operation, Program, Region, Value, VerifyError
from tessera_lang.ir.printer import print_operations
from tessera_lang.ir.schedule.ops import SCHEDULE_OPS
from tessera_lang.ir.schedule.rules import SCHEDULE_RULES
from tessera_lang.ir.tile.nesting_rules import PLACED, check_exits, check_placement, check_views
from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.rules import check_types as check_types_by
from tessera_lang.types.dtype import DType

T = TypeVar("T")


Sound = dict[int, Operation]
"""Operations that keep the rules of their own, by identity. A pass makes anew what it changes, and
what holds it; all else is the same operation before and after."""


def verify(program: Program, sound: Sound | None = None) -> Program:
    """``program`` itself where it keeps every rule. Raises VerifyError, a fault of ours.

    The message holds the faulty operation between its neighbours. ``sound``: operations that were
    verified before, whose own rules are not looked at again; those of this program are added.
    """
    if program.level not in KERNELS:
        raise VerifyError(f"no operations are defined for level '{program.level}' yet")
    known: Sound = sound if sound is not None else {}
    every = tuple(program.walk())
    _checked(check_names, (program, every), program)
    new = [o for o in every if id(o) not in known]
    for check in OWN_CHECKS:
        _checked(check, new, program)
    for whole in WHOLE_CHECKS:
        _checked(whole, program, program)
    if any(o.name in PLACED for o in every):
        _checked(check_placement, program, program)
    _checked(check_views, every, program)
    known.update((id(o), o) for o in new)
    return program


def _checked(check: Callable[[T], None], what: T, program: Program) -> None:
    try:
        check(what)
    except VerifyError as error:
        if error.operation is None:
            raise
        where = neighbourhood(program, error.operation)
        message = f"{check.__name__}: {error}\n{where}"
        raise VerifyError(message, error.operation) from None


def neighbourhood(program: Program, faulty: Operation, around: int = 3) -> str:
    """The faulty operation, marked, between its neighbours."""
    siblings = _siblings(program.operations, faulty)
    at = next(i for i, o in enumerate(siblings) if o is faulty)
    lines: list[str] = []
    first = max(0, at - around)
    for i, text in enumerate(print_operations(siblings[first : at + around + 1]), first):
        rows = text.splitlines()
        shown = rows if len(rows) <= 2 * around else [*rows[:around], "  ...", *rows[-1:]]
        lines += [f"{'>' if i == at else ' '} {line}" for line in shown]
    return "\n".join(lines)


def _siblings(operations: Sequence[Operation], faulty: Operation) -> Sequence[Operation]:
    if any(o is faulty for o in operations):
        return operations
    for operation in operations:
        for region in operation.regions:
            found = _siblings(region.operations, faulty)
            if found:
                return found
    return ()


# --- checks over the tables ------------------------------------------------------------------

TABLES: dict[str, dict[str, OpDef]] = {
    "schedule": {**TILE_OPS, **SCHEDULE_OPS},
    "tile": TILE_OPS,
}
"""Operations by level, but for Graph IR, whose table few programs need. Schedule IR takes scalars,
views and control flow from Tile IR."""

KERNELS = {
    "graph": "graph.function", "schedule": "tessera.schedule.kernel", "tile": "tile.kernel",
}  # fmt: skip
_KERNEL_NAMES = frozenset(KERNELS.values())


def table_of(level: str) -> dict[str, OpDef]:
    """The operations of a level."""
    if level == "graph":
        from tessera_lang.ir.graph.operators import GRAPH_OPS

        return GRAPH_OPS
    return TABLES[level]


def definition_of(operation: Operation) -> OpDef:
    """The table's row of an operation whose name was checked."""
    name = operation.name
    return TILE_OPS.get(name) or SCHEDULE_OPS.get(name) or table_of("graph")[name]


def check_types(operations: Sequence[Operation]) -> None:
    """Types of operands, results and region arguments."""
    graph = [o for o in operations if o.name.startswith("graph.")]
    if not graph:
        check_types_by(operations, SCHEDULE_OPS, SCHEDULE_RULES)
        return
    from tessera_lang.ir.graph.operators import GRAPH_OPS, GRAPH_RULES

    for operation in graph:
        GRAPH_RULES[GRAPH_OPS[operation.name].rule](operation)


def check_names(given: tuple[Program, Sequence[Operation]]) -> None:
    """Every operation is in the table; only kernels stand at the top, and only there. ``given``:
    the program with all of its operations."""
    program, every = given
    table, kernel = table_of(program.level), KERNELS[program.level]
    if not {operation.name for operation in every} <= table.keys():
        unknown = next(operation for operation in every if operation.name not in table)
        raise VerifyError(f"unknown operation {unknown.name}", unknown)
    kernels = [operation for operation in every if operation.name in _KERNEL_NAMES]
    seen: set[str] = set()
    for operation in program.operations:
        if operation.name != kernel:
            raise VerifyError(f"only {kernel} stands at the top", operation)
        for inner in kernels if len(kernels) != len(program.operations) else ():
            if not any(inner is top for top in program.operations):
                raise VerifyError("a kernel inside a kernel", inner)
        name = str(operation.attributes.get("sym_name"))
        if name in seen:
            raise VerifyError(f"two kernels are called {name}", operation)
        seen.add(name)


def check_counts(operations: Sequence[Operation]) -> None:
    """Numbers of operands, results and regions."""
    for operation in operations:
        definition = definition_of(operation)
        fixed = [n for n in definition.operands if not n.endswith("...")]
        found = len(operation.operands)
        if found < len(fixed) or (found > len(fixed) and len(fixed) == len(definition.operands)):
            raise VerifyError(f"takes {', '.join(definition.operands) or 'nothing'}", operation)
        if definition.results >= 0 and len(operation.results) != definition.results:
            raise VerifyError(f"gives {definition.results} results", operation)
        few = len(operation.regions) < definition.regions
        if few or (len(operation.regions) > definition.regions and not definition.variadic):
            raise VerifyError(f"has {definition.regions} regions", operation)


def check_attributes(operations: Sequence[Operation]) -> None:
    """Every attribute of the table is there, of its kind and among its values; no other is."""
    by_name: dict[str, dict[str, AttributeDef]] = {}
    for operation in operations:
        definitions = by_name.get(operation.name)
        if definitions is None:
            row = definition_of(operation)
            definitions = by_name[operation.name] = {a.name: a for a in row.attributes}
        for name in operation.attributes:
            if name not in definitions:
                raise VerifyError(f"has no attribute {name}", operation)
        for name, definition in definitions.items():
            if name not in operation.attributes:
                if definition.optional:
                    continue
                raise VerifyError(f"lacks attribute {name}", operation)
            _check_attribute(operation, definition, operation.attributes[name])


def _is_kind(value: Attribute, kind: str) -> bool:
    match value:
        case bool():
            return kind in ("bool", "scalar")
        case int():
            return kind in ("int", "scalar")
        case float():
            return kind == "scalar"
        case str():
            return kind == "str"
        case tuple():
            return kind in ("ints", "strs") and all(_is_kind(v, kind[:-1]) for v in value)
        case DType():
            return kind == "dtype"


def _check_attribute(operation: Operation, definition: AttributeDef, value: Attribute) -> None:
    if not _is_kind(value, definition.kind):
        raise VerifyError(f"attribute {definition.name} is no {definition.kind}", operation)
    if definition.allowed and value not in definition.allowed:
        allowed = ", ".join(map(str, definition.allowed))
        raise VerifyError(f"attribute {definition.name} is not one of {allowed}", operation)


def check_terminators(operations: Sequence[Operation]) -> None:
    """Every region ends in a terminator its operation allows; none stands elsewhere."""
    for operation in operations:
        definition = definition_of(operation)
        for i, region in enumerate(operation.regions):
            _check_terminator(operation, definition, i, region)


def _check_terminator(operation: Operation, definition: OpDef, i: int, region: Region) -> None:
    if not region.operations:
        raise VerifyError(f"region {i} is empty", operation)
    for inner in region.operations[:-1]:
        if definition_of(inner).is_terminator:
            raise VerifyError("a terminator before the end of its region", inner)
    allowed_names = definition.terminators[min(i, len(definition.terminators) - 1)]
    if region.terminator.name not in allowed_names:
        allowed = ", ".join(allowed_names)
        message = f"region {i} of {operation.name} does not end in one of {allowed}"
        raise VerifyError(message, region.terminator)


def check_dominance(program: Program) -> None:
    """Values are defined once, before their use and where it can be seen."""
    for operation in program.operations:
        _check_dominance(operation, set(), set())


def _check_dominance(operation: Operation, visible: set[int], defined: set[int]) -> None:
    for value in operation.operands:
        if id(value) not in visible:
            raise _not_defined(value, operation)
    for region in operation.regions:
        inside = [id(value) for value in region.arguments]
        _define(operation, region.arguments, visible, defined)
        for inner in region.operations:
            if inner.regions:
                _check_dominance(inner, visible, defined)
            else:
                for value in inner.operands:
                    if id(value) not in visible:
                        raise _not_defined(value, inner)
                _define(inner, inner.results, visible, defined)
            inside += map(id, inner.results)
        visible.difference_update(inside)
    _define(operation, operation.results, visible, defined)


def _not_defined(value: Value, operation: Operation) -> VerifyError:
    name = f"%{value.name}" if value.name else "an operand"
    return VerifyError(f"{name} is not defined here", operation)


def _define(
    operation: Operation, values: Sequence[Value], visible: set[int], defined: set[int]
) -> None:
    for value in values:
        name = id(value)
        if name in defined:
            raise VerifyError(f"defines %{value.name or '?'} a second time", operation)
        defined.add(name)
        visible.add(name)


OWN_CHECKS: tuple[Callable[[Sequence[Operation]], None], ...] = (
    check_counts,
    check_attributes,
    check_terminators,
    check_types,
)
"""What an operation says of itself, wherever it stands. In order: later ones rely on earlier ones,
and all on ``check_names``."""

WHOLE_CHECKS: tuple[Callable[[Program], None], ...] = (
    check_dominance,
    check_exits,
)
"""What hangs on the place of an operation, beside ``check_placement`` and ``check_views``, which
look at few."""
