"""A name that means something else later, as two names.

Owns that ``y[0] = 0.0`` and then ``y = y[1:] / op.sum(y)`` are stores into one array and the value
of another, that ``n = len(y)`` is a variable beside the size ``n`` of a parameter, and that a
parameter that gets another value is a variable which begins with it. Must not know types.
"""

from __future__ import annotations

from typing import Any, cast

from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.record import replace
from tessera_lang.sema.bound_names import expressions, statement_expressions, statements, targets
from tessera_lang.sema.sizes import own_sizes
from tessera_lang.sema.tree_transforms import mapped
from tessera_lang.sema.variable_versions import Range, ranges_of, sizes_of
from tessera_lang.source import Span
from tessera_lang.syntax import ast

Body = tuple[ast.Stmt, ...]
_NUMBERS = ("int", "float", "bool")


def separated(f: ast.FunctionDef, body: Body, names: set[str]) -> Body:
    """The body with a name of its own for each such array but the first; ``names``: those that the
    function has, to which new ones are added."""
    stored = {
        t.value.id
        for s in statements(body) for t in targets(s)
        if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name)
    }  # fmt: skip
    again = {
        t.id for s in statements(body) if isinstance(s, ast.Assign) for t in targets(s)
        if isinstance(t, ast.Name) and t.id in stored
    }  # fmt: skip
    sizes = _assigned_sizes(f, body)
    begun = _begun(f, body, stored)
    again |= sizes | begun
    if not again:
        return body
    again -= _kept_elsewhere(body)
    found = {n: r for n, r in ranges_of(replace(f, body=body)).items() if n in again}
    new: dict[tuple[str, int], str] = {}
    for name, ranges in found.items():
        apart = _apart(ranges, name in sizes)
        if name in begun and not apart:
            body = _begin_with(f, body, name, _another(name, names))
        elif not apart and kernel_level(f) == "tile":
            body = _stored_first(body, name, names)
        for r in apart if name not in begun else ():
            made = _another(name, names)
            places = (r.first.span.start, *range(r.start, r.end + 1))
            new.update({(name, at): made for at in places})
    if not new:
        return body

    def change(node: Any) -> Any:
        if not isinstance(node, ast.Name):
            return node
        other = new.get((node.id, node.span.start))
        return node if other is None else ast.Name(node.span, other)

    return cast("Body", mapped(body, change))


def _begun(f: ast.FunctionDef, body: Body, stored: set[str]) -> set[str]:
    """Parameters that get another value: numbers, and in tile kernels arrays of which no elements
    are stored."""
    tile = kernel_level(f) == "tile"
    given = {t.id for s in statements(body) if isinstance(s, ast.Assign | ast.AugmentedAssign)
             for t in targets(s) if isinstance(t, ast.Name)}  # fmt: skip
    changed = {t.id for s in statements(body) if isinstance(s, ast.AugmentedAssign)
               for t in targets(s) if isinstance(t, ast.Name)}  # fmt: skip
    return {
        p.name for p in f.parameters
        if p.name in given and p.name not in stored
        and _is_read(p.annotation, tile and p.name not in changed)
    }  # fmt: skip


def _is_read(annotation: ast.TypeExpr | None, arrays: bool) -> bool:
    if annotation is None or annotation.qualifier:
        return False
    base = annotation.base
    number = annotation.shape is None and isinstance(base, ast.Name) and base.id in _NUMBERS
    return number or arrays and bool(annotation.shape)


def _begin_with(f: ast.FunctionDef, body: Body, name: str, other: str) -> Body:
    """``x = x * 2.0`` in a condition or a loop, where ``x`` is a parameter: a variable that begins
    with what is given."""

    def change(node: Any) -> Any:
        named = isinstance(node, ast.Name) and node.id == name
        return ast.Name(node.span, other) if named else node

    span = Span(f.name_span.anchor, f.name_span.end, f.name_span.end)
    begin = ast.Assign(span, ast.Name(span, other), ast.Name(span, name))
    first = 1 if body and isinstance(body[0], ast.ExprStmt) else 0  # what it says of itself
    changed = cast("Body", mapped(body, change))
    return (*changed[:first], begin, *changed[first:])


def _stored_first(body: Body, name: str, names: set[str]) -> Body:
    """An array of which elements are stored before it changes places with others, ``old, u = u,
    new``: two names, of the array and of the values that begin with its elements."""
    giving = [i for i, s in enumerate(body) for x in statements((s,)) for t in targets(x)
              if isinstance(t, ast.Name) and t.id == name]  # fmt: skip
    stores = [i for i, s in enumerate(body) for x in statements((s,)) for t in targets(x)
              if isinstance(t, ast.Subscript) and _is_named(t.value, name)]  # fmt: skip
    if len(giving) < 2 or not stores or max(stores) >= giving[1] or giving[0] > min(stores):
        return body
    first, last = body[giving[0]], max(stores)
    if not isinstance(first, ast.Assign) or not _is_named(first.target, name):
        return body
    if not any(_changes_places(x, name) for s in body[last + 1 :] for x in statements((s,))):
        return body
    made = _another(name, names)

    def change(node: Any) -> Any:
        return ast.Name(node.span, made) if _is_named(node, name) else node

    span = body[last].span
    span = Span(span.anchor, span.end, span.end)
    begin = ast.Assign(span, ast.Name(span, name), ast.Name(span, made))
    changed = cast("Body", mapped(body[giving[0] : last + 1], change))
    return (*body[: giving[0]], *changed, begin, *body[last + 1 :])


def _is_named(e: object, name: str) -> bool:
    return isinstance(e, ast.Name) and e.id == name


def _changes_places(s: ast.Stmt, name: str) -> bool:
    """Whether a statement gives the array to another name, or another array to this."""
    if not isinstance(s, ast.Assign):
        return False
    pairs = [(s.target, s.value)]
    if isinstance(s.target, ast.TupleExpr) and isinstance(s.value, ast.TupleExpr):
        pairs = list(zip(s.target.items, s.value.items, strict=False))
    return any(
        isinstance(t, ast.Name) and isinstance(e, ast.Name) and name in (t.id, e.id)
        for t, e in pairs
    )


def _kept_elsewhere(body: Body) -> set[str]:
    """Names that lambdas, comprehensions and inner functions read: when they do, the text does not
    say."""
    found: set[str] = set()
    for s in statements(body):
        roots = [s] if isinstance(s, ast.FunctionDef) else list(statement_expressions(s))
        for root in roots:
            inner = [root] if isinstance(root, ast.FunctionDef) else [
                e for e in expressions(root) if isinstance(e, ast.Lambda | ast.Comprehension)
            ]  # fmt: skip
            mapped(tuple(inner), lambda node: _noted(node, found))
    return found


def _noted(node: Any, found: set[str]) -> Any:
    if isinstance(node, ast.Name):
        found.add(node.id)
    return node


def _assigned_sizes(f: ast.FunctionDef, body: Body) -> set[str]:
    """Sizes of parameters that are given another value than their own."""
    sizes = {e.id for e in sizes_of(f)} - {p.name for p in (*f.brackets, *f.parameters)}
    return {
        t.id for s in statements(body) if isinstance(s, ast.Assign | ast.For)
        for t in targets(s)
        if isinstance(t, ast.Name) and t.id in sizes and t not in own_sizes(f, s)
    }  # fmt: skip


def _apart(ranges: list[Range], size: bool) -> list[Range]:
    """The ranges behind the first; none where two lie in each other. ``size``: the first is that
    of a size, and loops may count by its name."""
    first, *rest = sorted(ranges, key=lambda r: r.start)
    end, found = first.end, list[Range]()
    for r in rest:
        if r.start < end or r.target is None and not size:
            return []
        found.append(r)
        end = r.end
    return found


def _another(name: str, names: set[str]) -> str:
    free = next(n for i in range(2, len(names) + 3) if (n := f"{name}_{i}") not in names)
    names.add(free)
    return free
