"""Places below 0 by which a tile kernel takes or stores elements, where the text proves them.

Owns what is plain from ``op.arange`` and numbers that are written. Must not know types.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.sema.bound_names import expressions, statement_expressions, statements, targets
from tessera_lang.sema.expression_text import item_source, source_of
from tessera_lang.syntax import ast

Definitions = dict[str, ast.Expr | None]
"""The value of each name that is assigned once; None of others."""


def places_below_0(function: ast.FunctionDef) -> Iterator[Diagnostic]:
    """A warning for each ``x[op.arange(n) - 1]``: in a kernel a computed place below 0 does not
    count from the end. None where the kernel compares places, since then it may choose."""
    values = definitions(function)
    roots = [e for s in statements(function.body) for e in statement_expressions(s)]
    stored = {t for s in statements(function.body) for t in targets(s)}
    found = [
        _warning(array, axis, item, least, e in stored)
        for root in roots for e in expressions(root) for array, axis, item in chosen(e)
        if (least := least_of(item, values)) is not None and least < 0
    ]  # fmt: skip
    parts = (e for root in roots for e in expressions(root)) if found else ()
    if not any(isinstance(e, ast.Compare) and _counts(e, values) for e in parts):
        yield from found


def definitions(function: ast.FunctionDef) -> Definitions:
    """What the names of a function stand for, where one statement says it."""
    found: Definitions = dict.fromkeys(p.name for p in (*function.brackets, *function.parameters))
    for s in statements(function.body):
        for target in targets(s):
            if not isinstance(target, ast.Name):
                continue
            value = s.value if isinstance(s, ast.Assign) and s.target is target else None
            found[target.id] = None if target.id in found else value
    return found


def chosen(e: ast.Expr) -> Iterator[tuple[ast.Expr, int, ast.Expr]]:
    """The array, the axis and the places of each axis of which places are taken."""
    if isinstance(e, ast.Subscript):
        items = [i for i in e.items if not isinstance(i, ast.NoneLit)]
        for axis, item in enumerate(items):
            yield e.value, axis, item
    elif (
        isinstance(e, ast.Call)
        and len(e.arguments) == 2
        and (_is_call(e, "take") or _is_call(e, "take_along_axis"))
    ):
        axis = _number(e.keywords[0].value) if e.keywords else 0
        if axis is not None:
            yield e.arguments[0], axis, e.arguments[1]


def _is_call(e: ast.Expr, name: str) -> bool:
    return isinstance(e, ast.Call) and source_of(e.function) == f"op.{name}"


def parts_of(e: ast.Expr, values: Definitions) -> Iterator[ast.Expr]:
    """The parts of an expression, and those of what its names stand for, each name once."""
    seen: set[str] = set()
    todo = [e]
    while todo:
        for part in expressions(todo.pop()):
            yield part
            if isinstance(part, ast.Name) and part.id not in seen:
                seen.add(part.id)
                value = values.get(part.id)
                if value is not None:
                    todo.append(value)


def _counts(e: ast.Expr, values: Definitions) -> bool:
    """Whether places that count up are part of an expression, or of what its names stand for."""
    return any(_is_call(part, "arange") for part in parts_of(e, values))


def least_of(e: ast.Expr, values: Definitions) -> int | None:
    """The least of places that count up from a number that is written; None of others."""
    added = 0
    seen: set[str] = set()
    while True:
        if isinstance(e, ast.Name):
            value = None if e.id in seen else values.get(e.id)
            if value is None:
                return None
            seen.add(e.id)
            e = value
        elif isinstance(e, ast.Subscript) and all(map(is_whole, e.items)):
            e = e.value
        elif isinstance(e, ast.Binary) and e.operator in ("+", "-"):
            right, left = _number(e.right), _number(e.left)
            if right is not None:
                added += right if e.operator == "+" else -right
                e = e.left
            elif left is not None and e.operator == "+":
                added += left
                e = e.right
            else:
                return None
        elif isinstance(e, ast.Call) and _is_call(e, "arange") and not e.keywords:
            start = 0 if len(e.arguments) == 1 else _number(e.arguments[0])
            return None if start is None or len(e.arguments) > 2 else start + added
        else:
            return None


def is_whole(item: ast.Expr) -> bool:
    """``:`` and ``None``, which leave all places."""
    if isinstance(item, ast.SliceExpr):
        return item.lower is None and item.upper is None and item.step is None
    return isinstance(item, ast.NoneLit)


def _number(e: ast.Expr) -> int | None:
    if isinstance(e, ast.Unary) and e.operator == "-":
        return -e.operand.value if isinstance(e.operand, ast.IntLit) else None
    return e.value if isinstance(e, ast.IntLit) else None


def _warning(array: ast.Expr, axis: int, item: ast.Expr, least: int, is_stored: bool) -> Diagnostic:
    name, text = source_of(array), item_source(item)
    name = f"({name})" if isinstance(array, ast.Binary) else name
    text = f"({text})" if isinstance(item, ast.Binary) else text
    kept = () if is_stored else (
        f"or say what stands there: `op.where({text} >= 0, ..., 0)`",
    )  # fmt: skip
    effect = "a store there does nothing" if is_stored else "what is read there is 0"
    return Diagnostic(
        "T0624", f"`{item_source(item)}` begins at {least}: {effect}", item.span,
        "in a kernel a computed place below 0 does not count from the end",
        severity="warning",
        helps=(f"to count from the end write `{text} % {name}.shape[{axis}]`",
               *kept),
    )  # fmt: skip
