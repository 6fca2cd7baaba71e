"""Values that hold several arrays: their leaves, in order.

Owns what stands in tuples, lists and dicts, and functions of Graph IR that give them. Must not know
how a value is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.target.host_world import WorldFault

Leaf = Callable[[object], object]


def leaves(value: object, is_leaf: Callable[[object], bool]) -> list[object]:
    """What stands in a value: itself, or the items of tuples, lists and dicts, in order."""
    if is_leaf(value):
        return [value]
    if isinstance(value, tuple | list):
        return [x for item in cast("tuple[object, ...]", value) for x in leaves(item, is_leaf)]
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).values()
        return [x for item in items for x in leaves(item, is_leaf)]
    return []


def rebuilt(value: object, is_leaf: Callable[[object], bool], leaf: Leaf) -> object:
    """A value with others in the place of its leaves; all else stays."""
    if is_leaf(value):
        return leaf(value)
    if isinstance(value, tuple):
        return tuple(rebuilt(v, is_leaf, leaf) for v in cast("tuple[object, ...]", value))
    if isinstance(value, list):
        return [rebuilt(v, is_leaf, leaf) for v in cast("list[object]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {k: rebuilt(v, is_leaf, leaf) for k, v in pairs}
    return value


def matched(like: object, value: object, is_leaf: Callable[[object], bool]) -> list[object]:
    """What stands in a value where leaves of another one stand, which has the same form. Raises
    WorldFault."""
    if is_leaf(like):
        return [value]
    if isinstance(like, tuple | list):
        items = cast("tuple[object, ...]", like)
        others = cast("tuple[object, ...]", value) if isinstance(value, tuple | list) else ()
        if len(items) != len(others):
            raise _other_form(items, cast("object", value))
        pairs = zip(items, others, strict=True)
        return [x for a, b in pairs for x in matched(a, b, is_leaf)]
    if isinstance(like, dict):
        known = cast("dict[object, object]", like)
        given = cast("dict[object, object]", value) if isinstance(value, dict) else {}
        if known.keys() != given.keys():
            raise _other_form(known, cast("object", value))
        return [x for k in known for x in matched(known[k], given[k], is_leaf)]
    return []


def _other_form(like: object, value: object) -> WorldFault:
    return WorldFault(f"{_form(like)} is needed, not {_form(value)}", code="T0761")


def _form(value: object) -> str:
    if isinstance(value, tuple | list):
        word = "tuple" if isinstance(value, tuple) else "list"
        return f"a {word} of {len(cast('tuple[object, ...]', value))}"
    if isinstance(value, dict):
        return f"a dict of {', '.join(map(repr, cast('dict[object, object]', value)))}"
    return kind_of(value)


def is_value(value: object) -> bool:
    """Whether a graph computes a value."""
    return isinstance(value, GraphArray | GraphNumber)


def graph_of(
    world: GraphWorld, name: str, parameters: list[tuple[str, Value]], result: object
) -> Operation:
    """The function of Graph IR. What is captured stands behind the parameters."""
    given = [*(v for _, v in parameters), *(v for _, v in world.captured)]
    names = [*(n for n, _ in parameters), *(v.name for _, v in world.captured)]
    results = [cast("GraphArray", v).value for v in leaves(result, is_value)]
    return world.builder.function(name, given, results, names)
