"""``tile.assume`` in the range analysis: what the launch has seen to hold.

The launch computes with exact numbers and the kernel with 64 bits, so a premise is taken only of
numbers that surely did not wrap, or that cannot have since they are one of such. Must not know
who made it.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.operation_rules import relate
from tessera_lang.analysis.ranges.state import State
from tessera_lang.ir.core import Operation, Value

_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def see_premise(state: State, operation: Operation) -> None:
    """Facts that hold from here on."""
    a, b = operation.operands
    predicate = cast("str", operation.attributes["predicate"])
    if not _exact(state, a):
        a, b, predicate = b, a, _SWAPPED[predicate]
    if not _exact(state, a):
        return
    if not _exact(state, b) and not _bounded(state, predicate, a, b):
        return
    _take(state, predicate, state.form(a), state.form(b))
    factors = _factors(state, b)
    if predicate == "eq" and factors is not None and state.range(a)[0] >= 1:
        _product(state, state.form(a), *factors)


def _take(state: State, predicate: str, a: Linear, b: Linear) -> None:
    """An equation of an atom replaces it: proofs need one step less for each."""
    for one, other in ((a, b), (b, a)):
        single = len(one.terms) == 1 and one.terms[0][1] == 1 and one.constant == 0
        if predicate == "eq" and single and not other.coefficient(one.terms[0][0]):
            state.replace(one.terms[0][0], other)
            return
    relate(state, predicate, a, b)


def _exact(state: State, value: Value) -> bool:
    """Whether a value is what exact numbers give."""
    operation = state.definitions.get(value)
    if value in state.wrapped:
        return False
    return operation is None or all(_exact(state, v) for v in operation.operands)


def _factors(state: State, value: Value) -> tuple[Linear, Linear] | None:
    """The exact factors of a product, neither of them negative or a number."""
    operation = state.definitions.get(value)
    if operation is None or operation.name != "tile.mul":
        return None
    x, y = operation.operands
    if not (_exact(state, x) and _exact(state, y)):
        return None
    known = state.form(x).terms and state.form(y).terms
    positive = state.range(x)[0] >= 0 and state.range(y)[0] >= 0
    return (state.form(x), state.form(y)) if known and positive else None


def _bounded(state: State, predicate: str, a: Value, b: Value) -> bool:
    """``a <predicate> x * y``: a product that is at most an exact number has not wrapped."""
    if predicate not in ("eq", "gt", "ge") or _factors(state, b) is None:
        return False
    high = state.range(a)[1] - (predicate == "gt")
    if high < 0:
        return False
    state.wrapped.discard(b)
    state.define(b, state.form(a) if predicate == "eq" else state.atom(b, (0, high)))
    return True


def _product(state: State, product: Linear, x: Linear, y: Linear) -> None:
    """``product = x * y``, and at least 1."""
    state.products.append((product, x, y))
    for factor in (x, y):
        state.known.holds(factor.shifted(-1))
        state.known.holds(product - factor)
