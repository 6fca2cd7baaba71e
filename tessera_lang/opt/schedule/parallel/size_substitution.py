"""Sizes that a schedule leaves open, as numbers.

Owns the rewriting of types and parameters. Must not know why a size is what it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import Operation, Region, TileType, Value
from tessera_lang.ir.rewrite import Replacement, replace_values, rewrite_operation
from tessera_lang.opt.schedule.query.kernel_facts import PARAMETER
from tessera_lang.record import replace
from tessera_lang.types.dtype import INDEX


def with_sizes(kernel: Operation, sizes: Mapping[str, int]) -> Operation:
    """The kernel with numbers for names, in types and for ``parameter``."""

    def constant(operation: Operation) -> Replacement | None:
        if operation.name != PARAMETER or str(operation.attributes["name"]) not in sizes:
            return None
        made = Operation("tile.constant", (), (Value(INDEX, operation.result.name),),
                         {"value": sizes[str(operation.attributes["name"])]}, (),
                         operation.span)  # fmt: skip
        return Replacement((made,), made.results)

    return _retyped(rewrite_operation(kernel, constant), sizes)


def _retyped(kernel: Operation, sizes: Mapping[str, int]) -> Operation:
    """New values wherever a type names an open size."""
    to: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        t = v.type
        if not isinstance(t, TileType) or all(isinstance(n, int) for n in t.shape):
            return v
        shape = tuple(sizes[n] if isinstance(n, str) and n in sizes else n for n in t.shape)
        return to.setdefault(v, Value(replace(t, shape=shape), v.name))

    def region(r: Region) -> Region:
        return Region(tuple(map(value, r.arguments)), tuple(map(operation, r.operations)))

    def operation(o: Operation) -> Operation:
        results = tuple(map(value, o.results))
        return replace(o, results=results, regions=tuple(map(region, o.regions)))

    made = operation(kernel)
    (body,) = made.regions
    return replace(made, regions=(Region(body.arguments, replace_values(body.operations, to)),))
