"""Lists where NumPy's functions take arrays: ``op.sum([a, b])``, ``x + [1.0, 2.0]``.

Owns which arguments are meant as arrays. Must not know how arrays are made.
"""

from __future__ import annotations

from typing import cast

from tessera_lang.evaluate.arguments import Arguments
from tessera_lang.evaluate.array_functions import array_of
from tessera_lang.evaluate.builtin_protocol import Host
from tessera_lang.evaluate.expansion_texts import OF_ELEMENTS
from tessera_lang.evaluate.one_call_kernels import call_by_kernel
from tessera_lang.evaluate.value import Unknown
from tessera_lang.source import Span
from tessera_lang.syntax import ast

_OTHERS = """zeros ones empty full random load save arange linspace eye workspace einsum
identity meshgrid tri""".split()
"""What takes no array first."""
_JOINS = "concat concatenate stack hstack vstack column_stack".split()
_PAIRS = """where dot matmul outer inner vdot vecdot cross kron isclose allclose array_equal hypot
arctan2 power trapezoid add subtract multiply divide""".split()
_ALL = frozenset(f"op.{n}" for n in (*OF_ELEMENTS, *_PAIRS))
_NONE = frozenset(f"op.{n}" for n in _OTHERS)
_OF_PARTS = frozenset(f"op.{n}" for n in _JOINS)


def with_arrays(host: Host, name: str, arguments: Arguments) -> Arguments:
    """The arguments of ``name``, with arrays in the place of lists that it would take as such."""
    values = arguments.values
    if not name.startswith("op.") or not any(isinstance(v, (list, tuple)) for v in values):
        return arguments
    span = arguments.call.span
    if name == "op.array" and not _has_arrays(host, values[0]):
        return arguments
    if name in _OF_PARTS:
        changed = (_parts(host, name, values[0], span), *values[1:])
    elif name in _NONE:
        return arguments
    else:
        count = len(values) if name in _ALL else 1
        changed = tuple(host.as_operand(v, span) if i < count else v for i, v in enumerate(values))
    return Arguments(arguments.call, changed, arguments.keywords)


def _has_arrays(host: Host, value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_arrays(host, v) for v in cast("tuple[object, ...]", value))
    return host.world.is_array(value)


def _parts(host: Host, name: str, value: object, span: Span) -> object:
    """What is joined, with arrays in the place of lists; beside matrices vectors are rows or
    columns of them, and in a row a number is an array of one."""
    if not isinstance(value, (list, tuple)):
        return value
    items = [host.as_operand(v, span) for v in cast("tuple[object, ...]", value)]
    if name == "op.hstack":
        items = [v if host.world.is_array(v) else host.as_operand([v], span) for v in items]
    new = {"op.vstack": (None, slice(None)), "op.column_stack": (slice(None), None)}.get(name)
    shapes = [host.world.shape(v) for v in items if host.world.is_array(v)]
    ranks = [len(cast("tuple[object, ...]", s)) for s in shapes if isinstance(s, tuple)]
    if new is not None and len(ranks) == len(items) and sorted({*ranks}) == [1, 2]:
        items = [host.world.read(v, new) if r == 1 else v
                 for v, r in zip(items, ranks, strict=True)]  # fmt: skip
    return tuple(items)


def as_array(host: Host, value: object, span: Span) -> object:
    """An array of a list of numbers, of lists of them, or of arrays; any other value itself."""
    if not isinstance(value, (list, tuple)) or not value:
        return cast("object", value)
    items = [as_array(host, v, span) for v in cast("tuple[object, ...]", value)]
    if all(host.world.is_array(v) for v in items):
        return stacked(host, tuple(items), span)
    if not all(isinstance(v, (bool, int, float, Unknown)) for v in items):
        return cast("object", value)
    return array_of(host, items, span)


def stacked(host: Host, arrays: tuple[object, ...], span: Span) -> object:
    """Arrays of one shape along a new first axis."""
    function = ast.Attribute(span, ast.Name(span, "op"), "stack", span)
    call = ast.Call(span, function, (ast.Name(span, "arrays"),))
    return call_by_kernel(host, "op.stack", Arguments(call, (arrays,), {}))
