"""Updates of an element: `place = f(place, ...)` in one store.

Owns which atomic does an update, which updates give the same once and twice, and what an atomic
leaves. Must not know what orders lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from tessera_lang.analysis.lanes.concrete_lane import Trace
from tessera_lang.analysis.lanes.lane_rules import INTEGERS, wrap
from tessera_lang.analysis.races.stored_values import is_view
from tessera_lang.ir.core import Operation, Value
from tessera_lang.types.dtype import DType

_ATOMIC = frozenset(f"tile.{name}" for name in ("add", "sub", "min", "max", "and", "or", "xor"))
_LIMITS = frozenset({"tile.min", "tile.max"})
_MASKS = frozenset({"tile.and", "tile.or"})
_MOST = 500  # operations of one value

Definitions = Mapping[Value, Operation]


def atomic_of(store: Operation, load: Operation, definitions: Definitions) -> str:
    """The atomic that does what a store does to the element that ``load`` reads: the element is
    an operand of the last operation, and the other operand has nothing to do with the array.
    Empty where none does."""
    made = definitions.get(store.operands[0])
    if made is None or made.name not in _ATOMIC:
        return ""
    old, *others = made.operands
    if old is not load.result:
        if made.name == "tile.sub" or made.operands[-1] is not load.result:
            return ""
        others = [old]
    name = made.name.removeprefix("tile.")
    dtype = load.result.type
    if name in ("add", "sub") and (not isinstance(dtype, DType) or dtype.is_float8):
        return ""  # no atomic sums 8-bit floats
    return "" if _reads_too(others, load, definitions) else name


def is_made_of(store: Operation, load: Operation, definitions: Definitions) -> bool:
    """Whether what is stored is computed from what a load reads."""
    return _comes_from(store.operands[0], load, definitions)


def is_limit(
    kernel: Operation, store: Operation, load: Operation, definitions: Definitions
) -> bool:
    """Whether a store limits the element that ``load`` reads, by `min` and `max` or by masks,
    and nothing else uses what was read. Such a function gives the same once and twice."""
    value = store.operands[0]
    allowed: frozenset[str] | None = None
    uses = Counter(v for o in kernel.walk() for v in o.operands)
    if value is load.result:
        return False
    while True:
        if uses[value] != 1:
            return False
        if value is load.result:
            return True
        made = definitions.get(value)
        if made is None or made.name not in _LIMITS | _MASKS:
            return False
        family = _LIMITS if made.name in _LIMITS else _MASKS
        if allowed not in (None, family):
            return False
        allowed = family
        inner = [v for v in made.operands if _comes_from(v, load, definitions)]
        others = [v for v in made.operands if v not in inner]
        if len(inner) != 1 or _reads_too(others, load, definitions):
            return False
        value = inner[0]


def _reads_too(values: Iterable[Value], load: Operation, definitions: Definitions) -> bool:
    """Whether values are made of elements of the array that ``load`` reads."""
    array = _array(load.operands[0], definitions)
    used = (u for v in values for o in _made_of(v, definitions) for u in o.operands)
    return any(is_view(u) and _array(u, definitions) is array for u in used)


def _comes_from(value: Value, load: Operation, definitions: Definitions) -> bool:
    return any(o is load for o in _made_of(value, definitions))


def _made_of(value: Value, definitions: Definitions) -> Iterator[Operation]:
    """The operations that a value is computed by, those within loops and branches too."""
    todo, seen = [value], set[Operation]()
    while todo and len(seen) < _MOST:
        made = definitions.get(todo.pop())
        if made is None or made in seen:
            continue
        for operation in made.walk():
            seen.add(operation)
            todo.extend(operation.operands)
            yield operation


def _array(view: Value, definitions: Definitions) -> Value:
    made = definitions.get(view)
    return made.operands[0] if made is not None and made.name == "tile.view" else view


def value_after(trace: Trace, operation: Operation, old: int | None) -> object:
    """What an atomic leaves of an element that a lane finds, None where it is not known."""
    match operation.name:
        case "tile.atomic_store":
            return trace.values.get(operation.operands[0])
        case "tile.atomic_cas":
            expected, new = trace.numbers(operation.operands[:2])
            if old is None or not isinstance(expected, int):
                return None
            return new if old == expected else old
        case "tile.atomic":
            given = trace.number(operation.operands[0])
            kind = cast("str", operation.attributes["kind"])
            if kind == "exchange":
                return given
            dtype = operation.operands[0].type
            if old is None or given is None or kind not in INTEGERS:
                return None
            if not isinstance(dtype, DType) or not dtype.is_integer:
                return None
            return wrap(INTEGERS[kind](old, given, dtype.bits), dtype)
        case _:
            return old
