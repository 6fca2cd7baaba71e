"""What Python writes in a tile kernel that stands for something plainer there.

Owns whole numbers that have a name (``n = 20``), lambdas that have one, annotations of Python
(``s: float = 0.0``), stores in steps that only the run knows, and loops over what is computed. Must
not know types.
"""

from __future__ import annotations

from typing import Any, cast

from tessera_lang.record import replace
from tessera_lang.sema.bound_names import expressions, statement_expressions, statements, targets
from tessera_lang.sema.loop_iterable_help import is_slip
from tessera_lang.sema.tree_transforms import (
    copied,
    free_name,
    mapped,
    unwritten,
    with_values,
)
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import as_array

Body = tuple[ast.Stmt, ...]
_ANNOTATIONS = ("int", "float", "bool")


def in_plain_words(f: ast.FunctionDef, body: Body, names: set[str]) -> Body:
    """The body of a tile kernel; ``names``: those that it has, to which new ones are added."""
    once = _bound_once(f, body)
    body = _named_numbers(f, body, once)
    body = _named_lambdas(body, once)
    body = _named_lists(body, once)
    return _statements(body, names)


def _bound_once(f: ast.FunctionDef, body: Body) -> dict[str, ast.Expr]:
    """Names that one statement outside of loops and conditions gives a value, and no other."""
    counts = {p.name: 2 for p in (*f.brackets, *f.parameters)}
    for s in statements(body):
        for t in targets(s):
            if isinstance(t, ast.Name):
                counts[t.id] = counts.get(t.id, 0) + 1
        if isinstance(s, ast.FunctionDef):
            counts[s.name] = 2
    return {s.target.id: s.value for s in body if isinstance(s, ast.Assign)
            and isinstance(s.target, ast.Name) and counts[s.target.id] == 1}  # fmt: skip


def _sizes(f: ast.FunctionDef) -> set[str]:
    """Names in the types of the parameters."""
    shapes = [i for p in f.parameters if p.annotation for i in p.annotation.shape or ()]
    return {e.id for i in shapes for e in expressions(i) if isinstance(e, ast.Name)}


def _named_numbers(f: ast.FunctionDef, body: Body, once: dict[str, ast.Expr]) -> Body:
    """``n = 20`` that keeps its value is this number where it is read: it meets floats as a number
    that is written does, and counts."""
    known = {n: e for n, e in once.items() if isinstance(e, ast.IntLit) and n not in _sizes(f)}
    if not known:
        return body

    def change(node: Any) -> Any:
        if isinstance(node, ast.Name) and node.id in known:
            return replace(known[node.id], span=node.span)
        return node

    def statement(s: ast.Stmt) -> ast.Stmt:
        if isinstance(s, ast.Assign) and isinstance(s.target, ast.Name) and s.target.id in known:
            return s
        return cast("ast.Stmt", mapped(s, change))

    seen = set[str]()
    made: list[ast.Stmt] = []
    for s in body:
        if isinstance(s, ast.Assign) and isinstance(s.target, ast.Name) and s.target.id in known:
            seen.add(s.target.id)
            made.append(s)
            continue
        early = {
            e.id
            for x in statements((s,))
            for r in statement_expressions(x)
            for e in expressions(r)
            if isinstance(e, ast.Name)
        } & known.keys() - seen
        if early:  # read before it has a value, which is told
            return body
        made.append(statement(s))
    return tuple(made)


def _named_lambdas(body: Body, once: dict[str, ast.Expr]) -> Body:
    """``g = lambda x: x * x`` and ``g(y)`` as ``y * y``."""
    known = {n: e for n, e in once.items() if isinstance(e, ast.Lambda) and _is_plain(e)}
    uses = [e for s in statements(body) for r in statement_expressions(s) for e in expressions(r)]
    called = {e.function for e in uses if isinstance(e, ast.Call)}
    passed = {e.id for e in uses if isinstance(e, ast.Name) and e not in called}
    known = {n: e for n, e in known.items() if n not in passed}
    if not known:
        return body

    def change(node: Any) -> Any:
        if not isinstance(node, ast.Call) or not isinstance(node.function, ast.Name):
            return node
        f = known.get(node.function.id)
        if f is None or node.keywords or len(node.arguments) != len(f.parameters):
            return node
        given = {p.name: a for p, a in zip(f.parameters, node.arguments, strict=True)}
        return mapped(with_values(f.body, given), change)

    kept = tuple(s for s in body if not (isinstance(s, ast.Assign) and s.value in known.values()))
    found = cast("Body", mapped(kept, change))
    left = {e.id for s in statements(found) for r in statement_expressions(s)
            for e in expressions(r) if isinstance(e, ast.Name)}  # fmt: skip
    return body if left & known.keys() else found


def _named_lists(body: Body, once: dict[str, ast.Expr]) -> Body:
    """``w = [0.25, 0.5, 0.25]`` of numbers as an array of them, where only its items, its length
    and loops over it are asked for: a list and an array differ in everything else."""
    known = {n: e for n, e in once.items()
             if isinstance(e, ast.ListExpr | ast.TupleExpr) and _of_numbers(e)}  # fmt: skip
    if not known:
        return body
    asked: set[ast.Name] = set()
    uses: list[ast.Name] = []
    for s in statements(body):
        if isinstance(s, ast.For) and isinstance(s.iterable, ast.Name):
            asked.add(s.iterable)
        for e in (e for root in statement_expressions(s) for e in expressions(root)):
            if isinstance(e, ast.Name) and e.id in known:
                uses.append(e)
            elif isinstance(e, ast.Subscript) and isinstance(e.value, ast.Name):
                asked.add(e.value)
            elif isinstance(e, ast.Call) and isinstance(e.function, ast.Name):
                loops = e.function.id in ("len", "zip", "enumerate")
                asked.update(a for a in e.arguments if loops and isinstance(a, ast.Name))
    arrays = known.keys() - {e.id for e in uses if e not in asked}

    def change(s: ast.Stmt) -> ast.Stmt:
        named = isinstance(s, ast.Assign) and isinstance(s.target, ast.Name)
        if not named or not isinstance(s, ast.Assign) or s.value not in known.values():
            return s
        assert isinstance(s.target, ast.Name)
        listed = _as_list(s.value)
        return replace(s, value=as_array(listed)) if s.target.id in arrays else s

    return tuple(map(change, body)) if arrays else body


def _of_numbers(e: ast.Expr) -> bool:
    match e:
        case ast.ListExpr() | ast.TupleExpr():
            return bool(e.items) and all(map(_of_numbers, e.items))
        case ast.Unary(operator="-", operand=inner):
            return _of_numbers(inner)
        case _:
            return isinstance(e, ast.IntLit | ast.FloatLit)


def _as_list(e: ast.Expr) -> ast.Expr:
    if isinstance(e, ast.ListExpr | ast.TupleExpr):
        return ast.ListExpr(e.span, tuple(map(_as_list, e.items)))
    return e


def _is_plain(f: ast.Lambda) -> bool:
    """Whether a lambda has no defaults, and calls no other that has a name."""
    return all(p.default is None for p in f.parameters)


def _statements(body: Body, names: set[str]) -> Body:
    made: list[ast.Stmt] = []
    for s in body:
        made.extend(_statement(s, names))
    same = len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
    return body if same else tuple(made)


def _statement(s: ast.Stmt, names: set[str]) -> Body:
    match s:
        case ast.If():
            then, orelse = (_statements(b, names) for b in (s.body, s.orelse))
            same = then is s.body and orelse is s.orelse
            return (s if same else replace(s, body=then, orelse=orelse),)
        case ast.For():
            return _loop(s, names)
        case ast.While() | ast.With():
            inner = _statements(s.body, names)
            return (s if inner is s.body else replace(s, body=inner),)
        case ast.AnnotatedAssign(value=value, annotation=of) if value is not None:
            base = of.base
            plain = isinstance(base, ast.Name) and base.id in _ANNOTATIONS
            if plain and of.shape is None and not of.qualifier:
                return (ast.Assign(s.span, s.target, value),)
            return (s,)
        case ast.Assign(target=ast.Subscript(), value=ast.ListExpr() as value) if value.items:
            return (replace(s, value=as_array(value)),)
        case ast.Assign(target=ast.Subscript() as target):
            return _store_side_by_side(s, target, names) or _stepped_store(s, target, names)
        case _:
            return (s,)


def _loop(s: ast.For, names: set[str]) -> Body:
    """A loop over what a call gives as one over a name of that."""
    inner = _statements(s.body, names)
    s = s if inner is s.body else replace(s, body=inner)
    over = s.iterable
    called = isinstance(over, ast.Call) and isinstance(over.function, ast.Attribute)
    if not called and not isinstance(over, (ast.Binary, ast.Unary)):
        return (s,)
    if isinstance(over, ast.Call) and (_is_counting(over) or is_slip(over)):
        return (s,)
    if not any(isinstance(e, ast.Name) for e in expressions(over)):
        return (s,)  # a number
    values = free_name("values", names)
    first = ast.Assign(over.span, unwritten(over.span, values), over)
    return (first, replace(s, iterable=unwritten(over.span, values)))


def _is_counting(e: ast.Call) -> bool:
    return isinstance(e.function, ast.Attribute) and e.function.name in ("tile_range", "items")


def _store_side_by_side(s: ast.Assign, target: ast.Subscript, names: set[str]) -> Body:
    """``y[op.arange(n), places] = 1.0``: a loop over the rows; nothing of another store."""
    counts = [_counted(i) for i in target.items]
    count = next((n for n in counts if n is not None), None)
    plain = isinstance(s.value, (ast.IntLit, ast.FloatLit, ast.BoolLit))
    named = all(n is not None or isinstance(i, ast.Name)
                for n, i in zip(counts, target.items, strict=True))  # fmt: skip
    if count is None or not plain or not named or len(counts) < 2 or len(set(counts)) < 2:
        return ()
    span, place = target.span, free_name("place", names)
    items = tuple(
        unwritten(span, place) if n is not None
        else ast.Subscript(span, copied(i), (unwritten(span, place),))
        for n, i in zip(counts, target.items, strict=True)
    )  # fmt: skip
    store = replace(s, target=replace(target, items=items))
    every = ast.Call(span, unwritten(span, "range"), (count,))
    return (ast.For(s.span, unwritten(span, place), every, (store,)),)


def _counted(e: ast.Expr) -> ast.Expr | None:
    """``n`` of ``op.arange(n)``; None of another place."""
    f = e.function if isinstance(e, ast.Call) else None
    if not isinstance(e, ast.Call) or not isinstance(f, ast.Attribute) or f.name != "arange":
        return None
    of_op = isinstance(f.value, ast.Name) and f.value.id == "op"
    return e.arguments[0] if of_op and len(e.arguments) == 1 and not e.keywords else None


def _stepped_store(s: ast.Assign, target: ast.Subscript, names: set[str]) -> Body:
    """``x[a::k] = 0`` where ``k`` is no number that is written: a loop over the places."""
    item = target.items[0] if len(target.items) == 1 else None
    plain = isinstance(s.value, (ast.IntLit, ast.FloatLit, ast.BoolLit))
    if not isinstance(item, ast.SliceExpr) or not plain or not isinstance(target.value, ast.Name):
        return (s,)
    step = item.step
    counted = isinstance(step, (ast.Name, ast.Binary, ast.Attribute))
    if not counted or item.upper is not None or isinstance(item.lower, ast.Unary):
        return (s,)
    span = target.span
    size = ast.Call(span, unwritten(span, "len"), (copied(target.value),))
    start = item.lower or ast.IntLit(span, 0)
    every = ast.Call(span, unwritten(span, "range"), (start, size, step))
    place = free_name("place", names)
    one = ast.Subscript(span, target.value, (unwritten(span, place),))
    store = ast.Assign(s.span, one, s.value)
    return (ast.For(s.span, unwritten(span, place), every, (store,)),)
