"""What programs in NumPy and Python write otherwise, spelled out in the language's own words.

Owns the methods of arrays (``x.sum(axis=0)`` is ``op.sum(x, axis=0)``) and the loops that count
over something else than a range: over numbers that are written out, ``reversed``, ``enumerate``,
``zip``, and in kernels over an array. Trees that stay as they are are not copied. Must not know
types: a receiver is a value where a name that the program binds is at its root.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import count, pairwise
from typing import Any, cast

from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.record import replace
from tessera_lang.sema.bound_names import assigned_names, expressions, statements, targets
from tessera_lang.sema.desugar_kernels import in_plain_words
from tessera_lang.sema.desugar_numpy_calls import (
    KEYWORDS_OF_NUMPY,
    OF_VECTORS,
    SAME,
    in_own_words,
    named_again,
    stored_result,
    with_decimals,
)
from tessera_lang.sema.generator_reductions import before_statement
from tessera_lang.sema.numpy_words import OTHER_WORDS, of_numpy, unpacked_quantiles
from tessera_lang.sema.python_casts import casts_of_python
from tessera_lang.sema.separate_arrays import separated
from tessera_lang.sema.tree_transforms import (
    copied,
    free_name,
    is_call,
    mapped,
    unwritten,
    with_values,
)
from tessera_lang.sema.written_tables import Tables, tables_of, written
from tessera_lang.source import Span
from tessera_lang.syntax import ParsedModule, ast
from tessera_lang.syntax.substitute import as_array

METHODS: dict[str, str] = {
    **{name: name for name in (
        "sum", "mean", "prod", "max", "min", "argmax", "argmin", "any", "all", "var", "std",
        "cumsum", "cumprod", "reshape", "ravel", "transpose", "astype", "clip", "round", "dot",
        "argsort", "repeat", "take", "squeeze", "swapaxes", "trace", "diagonal", "ptp", "copy",
    )},
    "flatten": "ravel",
}  # fmt: skip
"""Methods of arrays, by the functions of `op` that take the array first."""
_COPIES = ("flatten",)
"""What gives new elements where the function of that name sees the array in another way."""
_SEVERAL = ("reshape", "transpose")
"""What takes numbers side by side for a tuple of them."""
_DTYPES = {
    "float16": "f16", "float32": "f32", "float64": "f64", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "bool_": "bool",
}  # fmt: skip
"""Dtypes by NumPy's names, as members of `op`."""
_OF_LINALG = ("norm", "solve", "inv", "det", "outer", "trace", "matmul", "diagonal", "cross",
              "matrix_power")  # fmt: skip
"""Functions of NumPy's `linalg` that `op` has itself."""
MOST_ROUNDS = 64
"""A loop over so many numbers that are written out is written out itself."""
_MOST_AXES = 15
_OTHERWISE = re.compile(
    rf"\.\s*(?:{'|'.join(METHODS)})\s*\(|\bfor\b|\[[^]]*\[|\bdivmod\b|\barray\b|\bmeshgrid\b|\btake\b"
    r"|\blinalg\b|\bop\.(?:norm|nan_to_num)\b"
    r"|\b(?:int|float|round)\s*\("
    rf"|\bop\.(?:{'|'.join((*_DTYPES, *SAME))}|newaxis|round|{'|'.join(OF_VECTORS)})\b|\bmath\.arc"
    rf"|\b(?:{'|'.join(KEYWORDS_OF_NUMPY)})\s*=|{OTHER_WORDS}"
    r"|\][ \t]*(?:[-+*/@%&|^]|//|\*\*|<<|>>)?=(?!=)"
    r"|(?:\blen\s*\(|\.\s*shape\b|\.\s*size\b)"
    r"|@op\.kernel\b|\b\w+\s*:\s*(?:int|float|bool)\b"
    r"|\blambda\b|:\s*(?:int|float|bool)\s*=|=\s*\d+\s*$|::",
    re.MULTILINE,
)
"""What a text has that something is spelled out in."""
_Names = Collection[str]
Spelled = dict[ast.Stmt, tuple[ast.Stmt, ...]]
"""Statements of a file, with what they became."""


def spelled_out(parsed: ParsedModule, known: Spelled) -> tuple[ParsedModule, Spelled]:
    """The tree of a file in the language's own words, and what each of its statements became:
    ``known``, of the last time, keeps a statement the same node as before."""
    found: Spelled = {}
    top, tables = _bound_at_top(parsed.module.body), tables_of(parsed.module.body)
    for chunk in parsed.chunks:
        for s in chunk.body if _OTHERWISE.search(chunk.text) else ():
            again = s in known and not any(name in chunk.text for name in tables)
            found[s] = known[s] if again else _statement(s, top, tables)
    if all(new == (old,) for old, new in found.items()):
        return parsed, found
    body = tuple(x for s in parsed.module.body for x in found.get(s, (s,)))
    return replace(parsed, module=replace(parsed.module, body=body)), found


def _bound_at_top(body: tuple[ast.Stmt, ...]) -> frozenset[str]:
    names = (t.id for s in statements(body) for t in targets(s) if isinstance(t, ast.Name))
    return frozenset(names)


def _bound_within(body: tuple[ast.Stmt, ...]) -> set[str]:
    """Names that comprehensions and lambdas have: they hold values, as those of statements do."""
    found = set[str]()

    def see(node: Any) -> Any:
        if isinstance(node, ast.Comprehension):
            found.update(e.id for e in expressions(node.target) if isinstance(e, ast.Name))
        elif isinstance(node, ast.Lambda):
            found.update(p.name for p in node.parameters)
        return node

    mapped(body, see)
    return found


def _statement(s: ast.Stmt, top: _Names, tables: Tables) -> tuple[ast.Stmt, ...]:
    if not isinstance(s, ast.FunctionDef):
        spread = _body((s,), False, set(top))
        return cast("tuple[ast.Stmt, ...]", mapped(spread, _calls({*top, *_bound_within(spread)})))
    own = {p.name for p in (*s.brackets, *s.parameters)} | set(assigned_names(s))
    lane = kernel_level(s) == "lane"  # where tables are read from memory
    seen = {name: t for name, t in tables.items() if name not in own and not lane}
    first = s.body if lane else separated(s, s.body, own)
    body = cast("tuple[ast.Stmt, ...]", mapped(first, lambda node: written(node, seen)))
    body = body if seen else first
    if kernel_level(s) == "tile":
        body = in_plain_words(s, body, own)
    body = _body(body, bool(s.decorators), own)
    body = cast("tuple[ast.Stmt, ...]", mapped(body, _calls(own | _bound_within(body))))
    if kernel_level(s) is not None and not {"int", "float"} & (own | set(top)):
        body = cast("tuple[ast.Stmt, ...]", mapped(body, casts_of_python(s)))
    if kernel_level(s) == "tile" and "round" not in own | set(top):
        body = cast("tuple[ast.Stmt, ...]", mapped(body, with_decimals))
    return (s if body is s.body else replace(s, body=body),)


# --- methods ---------------------------------------------------------------------------------


def _calls(names: _Names) -> Callable[[Any], Any]:
    def of(node: Any) -> Any:
        if isinstance(node, ast.Comprehension):
            return _written_out(node)
        if "op" not in names and (other := of_numpy(node, names)) is not None:
            return of(other) if isinstance(other, ast.Call) else other
        if isinstance(node, ast.Subscript):
            return _with_places(node)
        if isinstance(node, ast.Attribute) and node.name in _DTYPES:
            of_op = isinstance(node.value, ast.Name) and node.value.id == "op"
            return ast.Name(node.span, _DTYPES[node.name]) if of_op else node
        if isinstance(node, ast.Attribute):
            return _attribute(node, names)
        if not isinstance(node, ast.Call) or "op" in names:
            return node
        if (taken := _taken(node, names)) is not None:
            return taken
        f, given = node.function, node.arguments
        if (
            not isinstance(f, ast.Attribute)
            or f.name not in METHODS
            or not _is_value(f.value, names)
        ):
            return in_own_words(node)
        if f.name in _SEVERAL and len(given) > 1:
            given = (ast.TupleExpr(node.span, given),)
        op = unwritten(f.name_span, "op")
        function = ast.Attribute(f.name_span, op, METHODS[f.name], f.name_span)
        call = in_own_words(replace(node, function=function, arguments=(f.value, *given)))
        return ast.Unary(node.span, "+", call) if f.name in _COPIES else call

    return of


def _attribute(e: ast.Attribute, names: _Names) -> ast.Expr:
    of = e.value
    if isinstance(of, ast.Attribute) and of.name == "linalg" and e.name in _OF_LINALG:
        of_op = isinstance(of.value, ast.Name) and of.value.id == "op" and "op" not in names
        return replace(e, value=of.value) if of_op else e
    if not isinstance(e.value, ast.Name) or e.value.id in names:
        return e
    if e.value.id == "op" and e.name == "newaxis":
        return ast.NoneLit(e.span)
    return named_again(e)


def _taken(e: ast.Call, names: _Names) -> ast.Expr | None:
    """``op.take(x, [0, -1], axis=1)``: places that are written out, as ``x[:, [0, -1]]``."""
    f, given = e.function, list(e.arguments)
    if not isinstance(f, ast.Attribute) or f.name != "take":
        return None
    if not (isinstance(f.value, ast.Name) and f.value.id == "op"):
        if not _is_value(f.value, names):
            return None
        given.insert(0, f.value)
    if len(given) < 2:
        return None
    x, places, *rest = given
    if not isinstance(places, (ast.ListExpr, ast.TupleExpr)) or not places.items:
        return None
    listed = ast.ListExpr(places.span, places.items)
    axes = [*rest, *(k.value for k in e.keywords if k.name == "axis")]
    axis = axes[0] if axes else None
    if isinstance(axis, ast.IntLit) and axis.value <= _MOST_AXES:
        whole = tuple(ast.SliceExpr(e.span, None, None, None) for _ in range(axis.value))
        return _with_places(ast.Subscript(e.span, x, (*whole, listed)))
    if not all(isinstance(i, ast.IntLit) for i in listed.items):
        if not axes and not e.keywords:  # of all elements, row by row
            op = unwritten(e.span, "op")
            ravel = ast.Attribute(f.name_span, op, "ravel", f.name_span)
            return _with_places(ast.Subscript(e.span, ast.Call(e.span, ravel, (x,)), (listed,)))
        return None  # what is below 0 counts from the end of an axis that is not known here
    op = unwritten(e.span, "op")
    function = ast.Attribute(f.name_span, op, "take", f.name_span)
    return replace(e, function=function, arguments=(x, as_array(listed), *rest))


def _is_value(e: ast.Expr, names: _Names) -> bool:
    """Whether an expression is no module: what a name of the program holds, or is computed."""
    while isinstance(e, ast.Attribute):
        e = e.value
    return e.id in names if isinstance(e, ast.Name) else not isinstance(e, ast.ErrorExpr)


def _with_places(e: ast.Subscript) -> ast.Subscript:
    """``x[[0, -1]]``: places in a list are an array of them, and count from the end below 0."""
    if not any(isinstance(i, ast.ListExpr) for i in e.items):
        return e
    axes = count()
    places = tuple(i if isinstance(i, ast.NoneLit) else _places(e.value, next(axes), i)
                   for i in e.items)  # fmt: skip
    return replace(e, items=places)


def _places(x: ast.Expr, axis: int, e: ast.Expr) -> ast.Expr:
    if not isinstance(e, ast.ListExpr) or not e.items:
        return e
    places = tuple(_from_start(x, axis, item) for item in e.items)
    return as_array(replace(e, items=places))


def _from_start(x: ast.Expr, axis: int, e: ast.Expr) -> ast.Expr:
    """``-1`` as ``(x.shape[axis] - 1) % 2**62``, of what is no call of the program: a place in
    front of the first element is outside, whoever counts places below 0 from the end."""
    below = isinstance(e, ast.Unary) and e.operator == "-" and isinstance(e.operand, ast.IntLit)
    plain = all(_is_of_op(n) for n in expressions(x) if isinstance(n, ast.Call))
    if not below or not isinstance(e, ast.Unary) or not plain:
        return e
    shape = ast.Attribute(e.span, x, "shape", e.span)
    size = ast.Subscript(e.span, shape, (ast.IntLit(e.span, axis),))
    place = ast.Binary(e.span, "-", e.span, size, e.operand)
    return ast.Binary(e.span, "%", e.span, place, ast.IntLit(e.span, 1 << 62))


def _is_of_op(e: ast.Call) -> bool:
    f = e.function
    return isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) and f.value.id == "op"


def _unpacked(s: ast.Assign) -> ast.Assign:
    """``q, r = divmod(a, b)`` and ``x, y = op.meshgrid(a, b)`` as the two values."""
    call, span = s.value, s.value.span
    if isinstance(s.target, ast.TupleExpr) and isinstance(call, ast.Call):
        s = unpacked_quantiles(s, s.target, call)
    pair = isinstance(s.target, ast.TupleExpr) and len(s.target.items) == 2
    if not pair or not isinstance(call, ast.Call) or len(call.arguments) != 2:
        return s
    f, (a, b) = call.function, call.arguments
    order = "xy"
    for k in call.keywords:
        said = k.value.value if isinstance(k.value, ast.StringLit) else ""
        if k.name != "indexing" or said not in ("xy", "ij"):
            return s
        order = said
    if is_call(call, "divmod") and not call.keywords:
        both = (
            ast.Binary(span, "//", span, a, b),
            ast.Binary(span, "%", span, copied(a), copied(b)),
        )
        return replace(s, value=ast.TupleExpr(span, both))
    if (
        not isinstance(f, ast.Attribute)
        or f.name != "meshgrid"
        or not (isinstance(f.value, ast.Name) and f.value.id == "op")
    ):
        return s
    whole, new = ast.SliceExpr(span, None, None, None), ast.NoneLit(span)
    sides, across = ((new, whole), (copied(whole), copied(new))), (b, a)
    if order == "ij":
        sides, across = sides[::-1], (a, b)
    rows, columns = (ast.Call(span, unwritten(span, "len"), (copied(x),)) for x in across)
    op = _member(span, "broadcast_to")
    made = tuple(
        ast.Call(span, copied(op), (
            ast.Subscript(span, x, items), ast.TupleExpr(span, (copied(rows), copied(columns))),
        ))
        for x, items in zip((a, b), sides, strict=True)
    )  # fmt: skip
    return replace(s, value=ast.TupleExpr(span, made))


def _written_out(e: ast.Comprehension) -> ast.Expr:
    """A comprehension over few numbers that are known: the list of them."""
    items = _items(e.iterable) if isinstance(e.target, ast.Name) else _rows(e.iterable)
    rows = [None if e.conditions else _bound(e.target, x) for x in items or ()]
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows):
        return e
    made = [with_values(e.element, row) for row in known]
    if not e.joined:
        return ast.ListExpr(e.span, tuple(made))
    lists = [x for x in map(_list_of, made) if isinstance(x, ast.ListExpr)]
    together = tuple(x for one in lists for x in one.items)
    return ast.ListExpr(e.span, together) if len(lists) == len(made) else e


def _list_of(e: ast.Expr) -> ast.Expr:
    """What comes of the inner loop in one round of the outer one."""
    return _written_out(e) if isinstance(e, ast.Comprehension) else e


def _bound(target: ast.Expr, value: ast.Expr) -> dict[str, ast.Expr] | None:
    """The names of a target with what they hold in a round; None where that is not plain."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if not isinstance(target, ast.TupleExpr) or not isinstance(value, ast.TupleExpr | ast.ListExpr):
        return None
    names = [t.id for t in target.items if isinstance(t, ast.Name)]
    if len(names) < len(target.items) or len(names) != len(value.items):
        return None
    return dict(zip(names, value.items, strict=True))


# --- loops -----------------------------------------------------------------------------------


def _body(body: tuple[ast.Stmt, ...], kernel: bool, names: set[str]) -> tuple[ast.Stmt, ...]:
    """Statements with their loops counting over ranges."""
    made: list[ast.Stmt] = []
    for i, s in enumerate(body):
        first = before_statement(s, names, _written_out) if kernel else ()
        if first:
            made.extend(_body(first, kernel, names))
            continue
        match s:
            case ast.If():
                then, orelse = (_body(b, kernel, names) for b in (s.body, s.orelse))
                same = then is s.body and orelse is s.orelse
                made.append(s if same else replace(s, body=then, orelse=orelse))
            case ast.While() | ast.With() | ast.For():
                spread = _loop(s, kernel, names, body[i + 1 :]) if isinstance(s, ast.For) else (s,)
                if spread != (s,):  # loops inside may go over what is a number now
                    made.extend(_body(spread, kernel, names))
                    continue
                inner = _body(s.body, kernel, names)
                made.append(s if inner is s.body else replace(s, body=inner))
            case ast.Assign():
                made.append(_unpacked(s))
            case ast.ExprStmt(value=ast.Call() as called):
                made.append(stored_result(s, called))
            case _:
                made.append(s)
    same = len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
    return body if same else tuple(made)


def _loop(
    s: ast.For, kernel: bool, names: set[str], after: tuple[ast.Stmt, ...]
) -> tuple[ast.Stmt, ...]:
    over = s.iterable
    turned = _turned(over)
    if turned is not None:
        return (replace(s, iterable=turned),)
    items = _rows(over)
    if items is not None and not _leaves(s.body):
        return tuple(x for item in items for x in _round(s, item)) + _last(s, items[-1], after)
    if items is not None and isinstance(over, (ast.TupleExpr, ast.ListExpr)):
        stepped = _stepped(over)
        return (s if stepped is None else replace(s, iterable=stepped),)
    return _over_places(s, kernel, names)


def _round(s: ast.For, item: ast.Expr) -> tuple[ast.Stmt, ...]:
    """One round of a loop that is written out: with the numbers in the place of their names, so
    that each is a literal where it stands."""
    pairs = _pairs(s.target, item)
    changed = {t.id for x in statements(s.body) for t in targets(x) if isinstance(t, ast.Name)}
    if pairs is None or changed.intersection(pairs):
        return (ast.Assign(s.target.span, copied(s.target), copied(item)), *copied(s.body))
    return tuple(with_values(x, pairs) for x in s.body)


def _pairs(target: ast.Expr, item: ast.Expr) -> dict[str, ast.Expr] | None:
    """Names with the numbers that they stand for."""
    names = target.items if isinstance(target, ast.TupleExpr) else (target,)
    values = item.items if isinstance(item, (ast.TupleExpr, ast.ListExpr)) else (item,)
    literal = (ast.IntLit, ast.FloatLit, ast.BoolLit)
    plain = all(isinstance(v, literal) or _value(v) is not None for v in values)
    if len(names) != len(values) or not plain:
        return None
    found = {n.id: v for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name)}
    return found if len(found) == len(names) else None


def _last(s: ast.For, item: ast.Expr, after: tuple[ast.Stmt, ...]) -> tuple[ast.Stmt, ...]:
    """What the names of a loop are behind it, where they stand there."""
    used = {n.id for x in after for n in _names_in(x)}
    names = {n.id for n in _names_in(s.target)}
    if not used & names:
        return ()
    return (ast.Assign(s.target.span, copied(s.target), copied(item)),)


def _names_in(node: Any) -> list[ast.Name]:
    found: list[ast.Name] = []

    def see(n: Any) -> Any:
        if isinstance(n, ast.Name):
            found.append(n)
        return n

    mapped(node, see)
    return found


def _turned(e: ast.Expr) -> ast.Expr | None:
    """``reversed(range(...))`` as the range that goes down."""
    inner = e.arguments[0] if is_call(e, "reversed") and len(e.arguments) == 1 else None
    if inner is None or not is_call(inner, "range") or not 1 <= len(inner.arguments) <= 2:
        return None
    start = inner.arguments[0] if len(inner.arguments) == 2 else ast.IntLit(e.span, 0)
    last, before = (_less_one(x) for x in (inner.arguments[-1], start))
    return replace(inner, arguments=(last, before, _number(e.span, -1)))


def _less_one(e: ast.Expr) -> ast.Expr:
    if isinstance(e, ast.IntLit) and e.unit is None:
        return _number(e.span, e.value - 1)
    return ast.Binary(e.span, "-", e.span, e, ast.IntLit(e.span, 1))


def _number(span: Span, value: int) -> ast.Expr:
    literal = ast.IntLit(span, abs(value))
    return literal if value >= 0 else ast.Unary(span, "-", literal)


def _items(e: ast.Expr) -> tuple[ast.Expr, ...] | None:
    """What a loop or a comprehension goes through, where it is written out."""
    if isinstance(e, (ast.TupleExpr, ast.ListExpr)):
        return e.items if 0 < len(e.items) <= MOST_ROUNDS else None
    if not is_call(e, "range"):
        return None
    values = [_value(a) for a in e.arguments]
    known = [v for v in values if v is not None]
    if len(known) < len(values) or not 1 <= len(known) <= 3 or 0 in known[2:]:
        return None
    count = range(*known)
    return tuple(_number(e.span, v) for v in count) if 0 < len(count) <= MOST_ROUNDS else None


def _rows(e: ast.Expr) -> tuple[ast.Expr, ...] | None:
    """The values of the rounds of a loop over numbers that are written out, ``enumerate`` and
    ``zip`` of such among them."""
    if isinstance(e, (ast.TupleExpr, ast.ListExpr)):
        return _items(e)
    if not isinstance(e, ast.Call) or not (is_call(e, "enumerate") or is_call(e, "zip")):
        return None
    parts = [_items(a) if isinstance(a, (ast.TupleExpr, ast.ListExpr)) else None
             for a in e.arguments]  # fmt: skip
    known = [p for p in parts if p is not None]
    if not known or len(known) < len(parts):
        return None
    if is_call(e, "enumerate"):
        known.insert(0, tuple(_number(e.span, i) for i in range(len(known[0]))))
        if len(known) > 2:
            return None
    return tuple(ast.TupleExpr(e.span, row) for row in zip(*known, strict=False))


def _value(e: ast.Expr) -> int | None:
    if isinstance(e, ast.Unary) and e.operator == "-":
        value = _value(e.operand)
        return None if value is None else -value
    return e.value if isinstance(e, ast.IntLit) else None


def _stepped(e: ast.TupleExpr | ast.ListExpr) -> ast.Expr | None:
    """Whole numbers at equal distances as a range."""
    values = [_value(x) for x in e.items]
    known = [v for v in values if v is not None]
    step = known[1] - known[0] if len(known) == len(values) > 1 else 0
    if not step or any(b - a != step for a, b in pairwise(known)):
        return None
    stop = known[-1] + (1 if step > 0 else -1)
    given = tuple(_number(e.span, v) for v in (known[0], stop, step))
    return ast.Call(e.span, unwritten(e.span, "range"), given)


def _leaves(body: tuple[ast.Stmt, ...]) -> bool:
    """Whether a round may end the loop, or go on to the next, before its end."""
    for s in body:
        match s:
            case ast.Break() | ast.Continue():
                return True
            case ast.If():
                if _leaves(s.body) or _leaves(s.orelse):
                    return True
            case ast.With():
                if _leaves(s.body):
                    return True
            case _:
                pass
    return False


def _over_places(s: ast.For, kernel: bool, names: set[str]) -> tuple[ast.Stmt, ...]:
    """A loop over the elements of an array, or of several, as one over their places."""
    over, span = s.iterable, s.iterable.span
    first: ast.Expr | None = None
    start: ast.Expr | None = None
    values = s.target.items if isinstance(s.target, ast.TupleExpr) else (s.target,)
    if is_call(over, "enumerate") and len(over.arguments) in (1, 2) and len(values) == 2:
        arrays, first = over.arguments[:1], values[0]
        start = over.arguments[1] if len(over.arguments) == 2 else None
        values = values[1:]
    elif is_call(over, "zip") and len(over.arguments) == len(values) > 1:
        arrays = over.arguments
    elif kernel and isinstance(over, (ast.Name, ast.Attribute, ast.Subscript)):
        arrays, values = (over,), (s.target,)
    else:
        return (s,)
    if not all(isinstance(a, (ast.Name, ast.Attribute, ast.Subscript)) for a in arrays):
        return (s,)
    place = free_name("place", names)
    sizes = tuple(ast.Call(span, unwritten(span, "len"), (copied(a),)) for a in arrays)
    count = sizes[0] if len(sizes) == 1 else ast.Call(span, unwritten(span, "min"), sizes)
    begin: list[ast.Stmt] = []
    if first is not None:
        number: ast.Expr = unwritten(span, place)
        if start is not None:
            number = ast.Binary(span, "+", span, number, start)
        begin.append(ast.Assign(first.span, first, number))
    for value, array in zip(values, arrays, strict=True):
        element = ast.Subscript(span, array, (unwritten(span, place),))
        begin.append(ast.Assign(value.span, value, element))
    every = ast.Call(span, unwritten(span, "range"), (count,))
    return (replace(s, target=unwritten(span, place), iterable=every, body=(*begin, *s.body)),)


def _member(span: Span, name: str) -> ast.Attribute:
    """A function of `op` that the text does not have."""
    op = unwritten(span, "op")
    return ast.Attribute(span, op, name, op.span)
