"""``op.*`` of each element as operators of a graph.

Owns which there are, and what each is made of. Must not know how arguments are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_lang.ir.graph.elementwise import FUNCTIONS
from tessera_lang.lower.ast_to_graph.integer_operands import in_floats
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, is_double
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.target.host_world import WorldFault
from tessera_lang.types.dtype import BOOL, F64, I32, I64

Given = dict[str, object]
"""Arguments by the names of parameters; those that are not given are not there."""
ArrayFunction = Callable[[GraphWorld, Given], object]


def elementwise(name: str) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        x = given["x"]
        value = w.lifted(x)
        if isinstance(x, GraphNumber):
            return w.like(x)(w.op(name, w.builder.cast(value, F64)))
        return GraphArray(w.op(name, value if name in _OF_INTEGERS else in_floats(w, value)))

    return function


_OF_INTEGERS = ("relu", "floor", "ceil", "trunc", "round")  # which integers remain integers of


def _pair(name: str, first: str, second: str) -> ArrayFunction:
    def function(w: GraphWorld, given: Given) -> object:
        a, b = w.meet(given[first], given[second])
        if name != "pow":
            a, b = in_floats(w, a), in_floats(w, b)
        return GraphArray(w.op(name, a, b))

    return function


def _signbit(w: GraphWorld, given: Given) -> object:
    """Below 0, or the zero of which the reciprocal is."""
    b, x = w.builder, w.lifted(given["x"])
    below = b.op("lt", x, b.zeros(x))
    if not x.tensor_type.dtype.is_float:
        return GraphArray(below)
    turned = b.op("lt", b.op("div", b.like(x, 1.0), x), b.zeros(x))
    return GraphArray(b.op("or", below, b.op("and", b.op("eq", x, b.zeros(x)), turned)))


def _hypot(w: GraphWorld, given: Given) -> object:
    a, b = (in_floats(w, v) for v in w.meet(given["a"], given["b"]))
    return GraphArray(w.op("sqrt", w.builder.add(w.builder.mul(a, a), w.builder.mul(b, b))))


def _where(w: GraphWorld, given: Given) -> object:
    condition, a, b = given["condition"], given["a"], given["b"]
    if not any(w.is_array(v) and not isinstance(v, GraphNumber) for v in (condition, a, b)):
        raise WorldFault("`op.where` takes an array, not numbers alone", code="T0818")
    if not w.is_array(a) and not w.is_array(b):
        dtype = w.floats if isinstance(a, float) or isinstance(b, float) else I32
        if is_double(a) or is_double(b):
            dtype = F64
        elif not (isinstance(a, bool | GraphNumber) or isinstance(b, bool | GraphNumber)):
            exact = F64 if dtype.is_float else I64
            found, numbers = (
                cast("GraphArray", _where(w, {**given, "a": w.fill("full", (), d, a)})).value
                for d in (dtype, exact)
            )
            return GraphArray(found, numbers)
        a = w.fill("full", (), dtype, a)
    x, y = w.meet(a, b)
    chosen = w.lifted(condition)
    if chosen.tensor_type.dtype != BOOL:
        raise WorldFault("`op.where` chooses by bools: compare first", code="T0818")
    return GraphArray(w.op("where", *w.stretched(chosen, x, y)))


FUNCTIONS_OF_ELEMENTS: dict[str, tuple[str, int, ArrayFunction]] = {
    **{one.name: ("x", 1, elementwise(one.name)) for one in FUNCTIONS},
    "where": ("condition a b", 3, _where), "signbit": ("x", 1, _signbit),
    "atan2": ("y x", 2, _pair("atan2", "y", "x")), "power": ("a b", 2, _pair("pow", "a", "b")),
    "hypot": ("a b", 2, _hypot),
}  # fmt: skip
"""By name without ``op.``: parameters, how many of them are needed, and the function."""
