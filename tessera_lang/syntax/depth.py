"""How deep the expressions of a line nest.

Owns the measure that keeps later stages, which walk trees by recursion, within bounds. The
left operands of a chain of operators do not count: they are walked in a loop.
"""

from __future__ import annotations

from typing import Any, cast

from tessera_lang.record import field_names
from tessera_lang.source import Span
from tessera_lang.syntax import ast


def too_deep(value: object, limit: int) -> Span | None:
    """The span of a part that lies more than ``limit`` levels down, if there is one."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if isinstance(part, tuple):
            waiting.extend((item, depth) for item in cast("tuple[Any, ...]", part))
        elif isinstance(part, ast.Binary):
            waiting.append((part.right, depth + 1))
            waiting.append((part.left, depth))
        elif (names := _names(part.__class__)) is not None:
            if depth > limit:
                return getattr(part, "span", None)
            for name in names:
                waiting.append((getattr(part, name), depth + 1))
    return None


_NAMES: dict[type, tuple[str, ...] | None] = {Span: None}


def _names(kind: type) -> tuple[str, ...] | None:
    """Where a node of this kind has parts; None for what is no node."""
    if kind not in _NAMES:
        names = field_names(kind)
        _NAMES[kind] = tuple(n for n in names if n != "span") if names else None
    return _NAMES[kind]
