"""What each Tile operation does to integer ranges, and what a condition tells.

A rule either keeps a value linear or makes an atom of it with bounds; where the exact
result might not fit its type, the atom gets the whole range of the type. Must not know
loops or regions: ``integer_ranges.py`` walks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_lang.analysis.ranges import intervals
from tessera_lang.analysis.ranges.linear import Interval, Linear, join
from tessera_lang.analysis.ranges.state import State
from tessera_lang.ir.core import Operation, Value
from tessera_lang.types.dtype import DType, integer_range

_FAR = 1 << 16

_Rule = Callable[[State, Operation], None]


def apply_rule(state: State, operation: Operation) -> None:
    """Give the results of an operation their ranges; no rule: the range of the type."""
    rule = _RULES.get(operation.name)
    if rule is None or not operation.results:
        return
    if isinstance(operation.result.type, DType) and operation.result.type.is_integer:
        rule(state, operation)


def _dtype(value: Value) -> DType:
    return cast("DType", value.type)


def _linear(state: State, operation: Operation, form: Linear) -> None:
    """The exact result is ``form``, unless it might wrap."""
    dtype = _dtype(operation.result)
    if intervals.fits(dtype, state.known.range(form)):
        state.define(operation.result, form)
    else:
        state.wrapped.add(operation.result)
        _atom(state, operation, None)


def _atom(state: State, operation: Operation, bounds: Interval | None) -> Linear:
    """The result is an unknown within ``bounds``, or within its type."""
    dtype = _dtype(operation.result)
    if bounds is None or not intervals.fits(dtype, bounds):
        state.wrapped.add(operation.result)
        bounds = integer_range(dtype)
    form = state.atom(operation.result, bounds)
    state.define(operation.result, form)
    return form


# --- ids and constants --------------------------------------------------------------------


def _constant(state: State, operation: Operation) -> None:
    state.define(operation.result, Linear((), int(cast("int", operation.attributes["value"]))))


def _lane(state: State, axis: int) -> Linear:
    return state.atom(("lane", axis), (0, state.group[axis] - 1))


def _lane_linear(state: State, operation: Operation) -> None:
    form = Linear()
    for axis, extent in enumerate(state.group):
        form = form.scaled(extent) + _lane(state, axis)
    state.define(operation.result, form)


def _lane_index(state: State, operation: Operation) -> None:
    axis = cast("int", operation.attributes["axis"])
    form = _lane(state, axis) if axis < len(state.group) else Linear()
    state.define(operation.result, form)


def _grid_axis(state: State, axis: int) -> int:
    """In a grid of one axis the linear id is the index along it."""
    return 0 if state.grid_rank == 1 and axis == -1 else axis


def _count(state: State, axis: int) -> Linear:
    return state.atom(("count", _grid_axis(state, axis)), (1, state.most_groups))


def _group(state: State, axis: int) -> Linear:
    form = state.atom(("group", _grid_axis(state, axis)), (0, state.most_groups - 1))
    state.known.holds((_count(state, axis) - form).shifted(-1))
    return form


def _group_linear(state: State, operation: Operation) -> None:
    state.define(operation.result, _group(state, -1))


def _group_index(state: State, operation: Operation) -> None:
    state.define(operation.result, _group(state, cast("int", operation.attributes["axis"])))


def _group_count(state: State, operation: Operation) -> None:
    state.define(operation.result, _count(state, cast("int", operation.attributes["axis"])))


# --- arithmetic ---------------------------------------------------------------------------


def _add(state: State, operation: Operation) -> None:
    a, b = operation.operands
    _linear(state, operation, state.form(a) + state.form(b))


def _sub(state: State, operation: Operation) -> None:
    a, b = operation.operands
    _linear(state, operation, state.form(a) - state.form(b))


def _neg(state: State, operation: Operation) -> None:
    _linear(state, operation, state.form(operation.operands[0]).scaled(-1))


def _mul(state: State, operation: Operation) -> None:
    a, b = (state.form(v) for v in operation.operands)
    if not a.terms:
        _linear(state, operation, b.scaled(a.constant))
    elif not b.terms:
        _linear(state, operation, a.scaled(b.constant))
    else:
        _product(state, operation, a, b)


def _product(state: State, operation: Operation, a: Linear, b: Linear) -> None:
    """Of two unknowns. What has wrapped is less than the exact product of what is not negative, so
    that ``products`` holds of it too. Sizes of one array make a number of its elements, or 0."""
    x, y = state.known.range(a), state.known.range(b)
    bounds = intervals.multiply(x, y)
    factors = _sorted((*state.factors.get(a, (a,)), *state.factors.get(b, (b,))))
    dtype = _dtype(operation.result)
    above: list[tuple[Linear, Linear, int]] = []
    if any(_is_part(factors, volume) for volume in state.volumes):
        bounds = (0, state.most_elements)
    elif x[0] < 0 or y[0] < 0:
        _atom(state, operation, bounds)
        return
    else:
        above = _above(state, dtype, a, b)
        bounds = bounds[0], min((bounds[1], *(state.known.range(w)[1] for w, _, _ in above)))
    exact = intervals.fits(dtype, bounds)
    if not exact:
        state.wrapped.add(operation.result)
        bounds = integer_range(dtype)
    form = _product_of(state, dtype, factors, bounds, a, b)
    for whole, factor, room in above:
        state.known.holds_once((whole - form).plus(factor, -room))
    for least, other in ((x[0], b), (y[0], a)):
        if exact and least > 0:
            state.known.holds_once(form.plus(other, -least))
    state.define(operation.result, form)


def _product_of(
    state: State, dtype: DType, factors: tuple[Linear, ...], bounds: Interval, a: Linear, b: Linear
) -> Linear:
    form = state.atom(("product", dtype, factors), bounds)
    state.factors[form] = factors
    if (form, a, b) not in state.products:
        state.products.append((form, a, b))
    return form


def _above(state: State, dtype: DType, a: Linear, b: Linear) -> list[tuple[Linear, Linear, int]]:
    """Of ``a * b``, neither negative, where an array has a size ``b`` and another ``s >= a``: the
    number of its elements, ``b``, and how often that is left at least."""
    found: list[tuple[Linear, Linear, int]] = []
    for volume in state.volumes:
        if len(volume) != 2 or not all(size.terms for size in volume):
            continue
        for size, other in (volume, volume[::-1]):
            for factor, rest in ((a, b), (b, a)):
                room = state.known.lower(size - factor, 1) if rest == other else -1
                if room >= 0:
                    bounds = 0, state.most_elements
                    whole = _product_of(state, dtype, _sorted(volume), bounds, size, other)
                    found.append((whole, other, room))
    return found


def _is_part(factors: tuple[Linear, ...], volume: tuple[Linear, ...]) -> bool:
    return all(factors.count(factor) <= volume.count(factor) for factor in factors)


def _sorted(forms: tuple[Linear, ...]) -> tuple[Linear, ...]:
    return tuple(sorted(forms, key=lambda form: (form.terms, form.constant)))


def _floordiv(state: State, operation: Operation) -> None:
    a, b = (state.form(v) for v in operation.operands)
    if not b.terms and b.constant >= 1:
        state.define(operation.result, _quotient(state, a, b.constant))
        return
    bounds = intervals.floor_divide(state.known.range(a), state.known.range(b))
    form = _atom(state, operation, bounds)
    if state.known.range(b)[0] >= 0 and state.known.range(a)[0] >= 0:
        state.known.holds(a - form)
        _part_of_product(state, a, b, form)


def _quotient(state: State, a: Linear, divisor: int) -> Linear:
    """``a // divisor``, the same unknown wherever it is asked for:
    ``divisor * q <= a <= divisor * q + divisor - 1``."""
    if not a.terms:
        return Linear((), a.constant // divisor)
    low, high = state.known.range(a)
    quotient = state.atom(("quotient", a, divisor), (low // divisor, high // divisor))
    rest = a - quotient.scaled(divisor)
    for fact in (rest, rest.scaled(-1).shifted(divisor - 1)):
        if fact not in state.known.facts:
            state.known.holds(fact)
    return quotient


def _part_of_product(state: State, a: Linear, b: Linear, quotient: Linear) -> None:
    """``a // x < y`` for ``0 <= a < x * y``, where x is not 0; and one less where there is room for
    one more ``x`` above or below ``a``."""
    for product, x, y in state.products:
        for one, other in ((x, y), (y, x)):
            room = (product - a).shifted(-1)
            if one == b and state.known.proves(room):
                more = state.known.proves(room - one)
                state.known.holds((other - quotient).shifted(-2 if more else -1))
                if state.known.proves(a - one):
                    state.known.holds(quotient.shifted(-1))


def divides_something(state: State, b: Linear) -> bool:
    """Whether a factor is at least 1 since its product is."""
    return any(
        b in factors and state.known.proves(product.shifted(-1), 1)
        for product, *factors in state.products
    )


def _mod(state: State, operation: Operation) -> None:
    a, b = (state.form(v) for v in operation.operands)
    left, right = state.known.range(a), state.known.range(b)
    if not b.terms and b.constant >= 1 and left[1] - left[0] >= _FAR:
        # Of a size it matters what it is together with the quotient, of a lane how large it is.
        rest = a - _quotient(state, a, b.constant).scaled(b.constant)
        state.define(operation.result, rest)
        return
    form = _atom(state, operation, intervals.modulo(left, right))
    if right[0] >= 1 or divides_something(state, b):
        state.known.holds((b - form).shifted(-1))
        if left[0] >= 0:
            state.known.holds(a - form)


def _min(state: State, operation: Operation) -> None:
    a, b = (state.form(v) for v in operation.operands)
    x, y = state.known.range(a), state.known.range(b)
    form = _atom(state, operation, (min(x[0], y[0]), min(x[1], y[1])))
    state.known.holds(a - form)
    state.known.holds(b - form)
    state.known.split(form.terms[0][0], ((a, (b - a,)), (b, (a - b,))))


def _max(state: State, operation: Operation) -> None:
    a, b = (state.form(v) for v in operation.operands)
    x, y = state.known.range(a), state.known.range(b)
    form = _atom(state, operation, (max(x[0], y[0]), max(x[1], y[1])))
    state.known.holds(form - a)
    state.known.holds(form - b)
    state.known.split(form.terms[0][0], ((a, (a - b,)), (b, (b - a,))))


def _select(state: State, operation: Operation) -> None:
    condition, a, b = operation.operands
    x, y = state.form(a), state.form(b)
    if x == y:
        state.define(operation.result, x)
        return
    sides: list[tuple[Linear, tuple[Linear, ...]]] = []
    bounds: list[Interval] = []
    for form, truth in ((x, True), (y, False)):
        facts = facts_of(state, condition, truth)
        mark = len(state.known.facts)
        state.known.facts.extend(facts)
        bounds.append(state.known.range(form))
        del state.known.facts[mark:]
        sides.append((form, facts))
    result = _atom(state, operation, join(bounds))
    state.known.split(result.terms[0][0], tuple(sides))


# --- bits ---------------------------------------------------------------------------------


def _and(state: State, operation: Operation) -> None:
    a, b = operation.operands
    x, y = state.range(a), state.range(b)
    form = _atom(state, operation, intervals.bit_and(x, y))
    for operand, bounds in ((a, x), (b, y)):
        if bounds[0] >= 0:
            state.known.holds(state.form(operand) - form)


def _or(state: State, operation: Operation) -> None:
    a, b = operation.operands
    _atom(state, operation, intervals.bit_or(state.range(a), state.range(b)))


def _not(state: State, operation: Operation) -> None:
    form = state.form(operation.operands[0]).scaled(-1)
    dtype = _dtype(operation.result)
    top = -1 if dtype.is_signed else integer_range(dtype)[1]
    _linear(state, operation, form.shifted(top))


def _shl(state: State, operation: Operation) -> None:
    a, count = (state.form(v) for v in operation.operands)
    bits = _dtype(operation.result).bits
    if not count.terms and 0 <= count.constant < bits:
        _linear(state, operation, a.scaled(1 << count.constant))
        return
    bounds = intervals.shift_left(state.known.range(a), state.known.range(count), bits)
    _atom(state, operation, bounds)


def _shr(state: State, operation: Operation) -> None:
    a, count = (state.form(v) for v in operation.operands)
    bits = _dtype(operation.result).bits
    if not count.terms and 0 <= count.constant < bits:
        state.define(operation.result, _quotient(state, a, 1 << count.constant))
        return
    bounds = intervals.shift_right(state.known.range(a), state.known.range(count), bits)
    _atom(state, operation, bounds)


def _abs(state: State, operation: Operation) -> None:
    (a,) = operation.operands
    bounds = state.range(a)
    if bounds[0] >= 0:
        state.define(operation.result, state.form(a))
    else:
        _atom(state, operation, intervals.absolute(bounds))


def _cast(state: State, operation: Operation) -> None:
    (a,) = operation.operands
    if _dtype(a).kind == "bool":
        state.define(operation.result, _bit(state, a))
    elif _dtype(a).is_integer:
        _linear(state, operation, state.form(a))
    else:
        _atom(state, operation, None)


def _bit(state: State, condition: Value) -> Linear:
    """A bool as a number. Of ``a != b`` where ``0 <= a - b <= most``: ``bit <= a - b`` and
    ``a - b <= most * bit``, so that a quotient rounded up is not below what it is made of."""
    definition = state.definitions.get(condition)
    if definition is None or definition.name != "tile.cmp":
        return state.form(condition)
    a, b = definition.operands
    if definition.attributes["predicate"] != "ne" or not _dtype(a).is_integer:
        return state.form(condition)
    difference = state.form(a) - state.form(b)
    low, most = state.known.range(difference)
    if low < 0 or most <= 0:
        return state.form(condition)
    bit = state.atom(("unequal", difference), (0, 1))
    for fact in (difference - bit, bit.scaled(most) - difference):
        if fact not in state.known.facts:
            state.known.holds(fact)
    return bit


def _unknown(state: State, operation: Operation) -> None:
    _atom(state, operation, None)


_RULES: dict[str, _Rule] = {
    "tile.constant": _constant,
    "tile.lane_linear": _lane_linear,
    "tile.lane_index": _lane_index,
    "tile.group_linear": _group_linear,
    "tile.group_index": _group_index,
    "tile.group_count": _group_count,
    "tile.add": _add,
    "tile.sub": _sub,
    "tile.neg": _neg,
    "tile.mul": _mul,
    "tile.floordiv": _floordiv,
    "tile.mod": _mod,
    "tile.min": _min,
    "tile.max": _max,
    "tile.select": _select,
    "tile.and": _and,
    "tile.or": _or,
    "tile.xor": _or,
    "tile.not": _not,
    "tile.shl": _shl,
    "tile.shr": _shr,
    "tile.abs": _abs,
    "tile.cast": _cast,
    "tile.bitcast": _unknown,
}


# --- conditions ---------------------------------------------------------------------------

_NEGATED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


_LONGEST = 256  # of conditions that each hold the next one: the last ones of such a chain count


def assume(state: State, condition: Value, truth: bool) -> None:
    """Push what follows from a condition being true, or false. Chains may be long: no
    recursion."""
    waiting = [(condition, truth)]
    left = _LONGEST
    while waiting:
        value, holds = waiting.pop()
        operation = state.definitions.get(value)
        if operation is None:
            continue
        match operation.name:
            case "tile.cmp":
                _compared(state, operation, holds)
            case "tile.and" if holds:
                waiting.extend((operand, True) for operand in operation.operands)
            case "tile.or" if not holds:
                waiting.extend((operand, False) for operand in operation.operands)
            case "tile.not":
                waiting.append((operation.operands[0], not holds))
            case "tile.if" if left:
                left -= 1
                waiting.extend(_short_circuit(state, operation, holds))
            case _:
                pass


def facts_of(state: State, condition: Value, truth: bool) -> tuple[Linear, ...]:
    """The facts that ``assume`` would push."""
    mark = len(state.known.facts)
    assume(state, condition, truth)
    facts = tuple(state.known.facts[mark:])
    del state.known.facts[mark:]
    return facts


def _compared(state: State, operation: Operation, truth: bool) -> None:
    a, b = operation.operands
    if not (_dtype(a).is_integer and _dtype(b).is_integer):
        return
    predicate = cast("str", operation.attributes["predicate"])
    if not truth:
        predicate = _NEGATED[predicate]
    relate(state, predicate, state.form(a), state.form(b))


def relate(state: State, predicate: str, a: Linear, b: Linear) -> None:
    """Push what ``a <predicate> b`` tells."""
    difference = b - a
    match predicate:
        case "lt":
            state.known.holds(difference.shifted(-1))
        case "le":
            state.known.holds(difference)
        case "gt":
            state.known.holds(difference.scaled(-1).shifted(-1))
        case "ge":
            state.known.holds(difference.scaled(-1))
        case "eq":
            state.known.holds(difference)
            state.known.holds(difference.scaled(-1))
        case _:
            low, high = state.known.range(difference)
            if low == 0:
                state.known.holds(difference.shifted(-1))
            elif high == 0:
                state.known.holds(difference.scaled(-1).shifted(-1))


def _short_circuit(state: State, operation: Operation, truth: bool) -> list[tuple[Value, bool]]:
    """``a and b`` as an ``if`` whose other side is the constant False (``or``: True)."""
    terminators = [region.terminator for region in operation.regions]
    if len(operation.results) != 1 or any(t.name != "tile.yield" for t in terminators):
        return []
    for i, terminator in enumerate(terminators):
        definition = state.definitions.get(terminator.operands[0])
        if definition is None or definition.name != "tile.constant":
            continue
        if bool(definition.attributes["value"]) != truth:
            return [(terminators[1 - i].operands[0], truth), (operation.operands[0], i == 1)]
    return []
