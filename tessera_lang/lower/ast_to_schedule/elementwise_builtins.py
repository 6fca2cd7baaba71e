"""Functions of numbers, of the elements of tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessera_lang.ir.core import TileType, Value
from tessera_lang.lower.ast_to_schedule import node_builders
from tessera_lang.lower.ast_to_schedule.state import State, register_dtype
from tessera_lang.lower.ast_to_schedule.value_nodes import Mapped, Node, Windows
from tessera_lang.lower.ast_to_schedule.vectorized_functions import NotSpread, Spread
from tessera_lang.lower.ast_to_tile.calls import apply_function
from tessera_lang.lower.ast_to_tile.context import Unsupported
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TypedFunction
from tessera_lang.source import Span
from tessera_lang.types.dtype import F32
from tessera_lang.types.type import Type

_LOG2_E = math.log2(math.e)


def apply_to_elements(
    s: State, instance: TypedFunction, given: Sequence[Node], span: Span, t: Type | None = None
) -> Mapped:
    dtype = register_dtype(instance.returns) or given[0].dtype

    def apply(v: tuple[Value, ...], windows: Windows) -> Value:
        b = s.b
        shape = next((x.type.shape for x in v if isinstance(x.type, TileType)), None)
        if shape is None:
            found = apply_function(s.low, instance, v)
            return b.cast(found, dtype) if isinstance(found, Value) else v[0]
        with b.region(*(("x", x.dtype) for x in given)) as one:
            found = apply_function(s.low, instance, one.arguments)
        if not isinstance(found, Value):
            raise Unsupported(span, "a function of several results of a tile")
        try:
            (made,) = Spread(b, shape).apply(one.region, v, (found,))
        except NotSpread as fault:
            raise Unsupported(span, f"`{fault}` in a function of each element") from None
        return b.cast(made, dtype)

    return Mapped(apply, tuple(given), dtype, node_builders.axes_of(s, given, t), span)


def or_quick_power(s: State, exact: Mapped, of_e: bool) -> Mapped:
    """A power of e or of 2 of each element, beside the machine's approximation of it."""

    def apply(v: tuple[Value, ...], windows: Windows) -> Value:
        b, made = s.b, exact.function(v, windows)
        (x,) = v
        if not isinstance(x.type, TileType):
            return made
        if of_e:
            x = b.binary("mul", x, b.full(b.constant(_LOG2_E, F32), x.type.shape))
        return b.either(made, b.unary("exp2", x))

    return replace(exact, function=apply)


def power_of_e(s: State, x: Node, t: Type | None = None, span: Span | None = None) -> Node:
    scaled = node_builders.mapped(s, "mul", (x, node_builders.constant(s, _LOG2_E, F32)), F32)
    return node_builders.mapped(s, "exp2", (scaled,), F32, t, span)
