"""What a tile kernel returns: result arrays, and values stored into results.

Owns the shapes and dtypes of results, and where ``return`` may stand. Which variables are arrays
says ``created_arrays.py``. Must not know how a runtime allocates.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.record import replace
from tessera_lang.sema.bound_names import (
    assigned_names,
    expressions,
    statement_expressions,
    statements,
)
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Open, OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import is_silent, settle_default
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.operators import Operand
from tessera_lang.sema.side_tables import Builtin
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.created_arrays import (
    known_dims,
    names_made_again,
    private_names,
    result_names,
)
from tessera_lang.sema.tile.operators import (
    give_tile,
    is_tiled,
    is_waiting,
    settle_tile,
    value_of_operand,
)
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tile.size_normal_form import described
from tessera_lang.sema.tile.symbolic import join_axis
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, INDEX, DType, common_dtype
from tessera_lang.types.shape import Dim
from tessera_lang.types.type import Scalar, Tensor, Tile, TupleType, Type

_Declared = tuple[DType, tuple[Dim, ...]]


def tuple_term(c: TileContext, e: ast.TupleExpr) -> Term:
    """A tuple as a value."""
    terms: list[Type] = []
    for item in e.items:
        term = settle_default(c, item, c.infer(item))
        if isinstance(term, (Open, Unknown, OpenBuffer)):
            return Unknown()
        terms.append(term)
    term = TupleType(tuple(terms))
    c.note(e, term)
    return term


def check_return(c: TileContext, s: ast.Return) -> None:
    if s.value is None:
        return
    items = s.value.items if isinstance(s.value, ast.TupleExpr) else (s.value,)
    terms: list[Type] = []
    for i, e in enumerate(items):
        term = c.infer(e)
        if isinstance(term, Open):
            _takes_declared(c, term, e.span, i)
        if isinstance(term, (Unknown, Open, OpenBuffer)):
            return
        terms.append(settle_default(c, e, term))  # type: ignore[arg-type]
    if isinstance(s.value, ast.TupleExpr):
        c.note(s.value, TupleType(tuple(terms)))
    if c.inlined:
        _inlined(c, s.value, terms)
        return
    wanted: Sequence[_Declared | None] = c.returns_declared or [None] * len(items)
    if len(wanted) != len(items):
        _other_count(c, s.value, len(wanted), len(items))
        wanted = [None] * len(items)
    found = [_result(c, e, t, w) for e, t, w in zip(items, terms, wanted, strict=True)]
    _same_as_elsewhere(c, s.value, items, found)
    if c.final:
        c.kernel.results = tuple(f for f in found if f is not None)
    for e, made, one in zip(items, found, wanted, strict=True):
        if made is not None and one is not None:
            _declared(c, e, made, one)
    c.returns.type = terms[0] if len(terms) == 1 else TupleType(tuple(terms))


def _takes_declared(c: TileContext, term: Open, span: Span, at: int) -> None:
    """A float of open dtype, as of ``1.0 / n``, is of the one that is declared for the result."""
    wanted = c.returns_declared
    cell = term.cell.root()
    if c.inlined or wanted is None or at >= len(wanted) or cell.kind != "float":
        return
    declared = wanted[at]
    if declared[0] in (F32, F64) and cell.dtype is None:
        cell.dtype, cell.met = declared[0], span
        c.cells.changed = True


def _same_as_elsewhere(
    c: TileContext, value: ast.Expr, items: Sequence[ast.Expr], found: Sequence[_Declared | None]
) -> None:
    """What a kernel returns at several places has one number, dtype and shape."""
    before, at = c.returned, c.returns.since
    if before is None or at is None or at == value.span:
        c.returned, c.returns.since = tuple(found), value.span
        return
    name = c.declaration.name
    label = (Label(at, "returned here"),)
    if len(before) != len(found):
        c.report(
            "T0208", f"`{name}` returns {_arrays(len(found))} here and {len(before)} elsewhere",
            value.span, labels=label, helps=("return as many at each place",),
        )  # fmt: skip
        return
    for e, now, old in zip(items, found, before, strict=True):
        if now is None or old is None:
            continue
        if now[0] != old[0]:
            c.report(
                "T0208", f"`{name}` returns `{now[0]}` here and `{old[0]}` elsewhere", e.span,
                labels=label, helps=_convert(e, old[0]),
            )  # fmt: skip
        elif len(now[1]) != len(old[1]):
            c.report(
                "T0604", f"`{name}` returns {len(now[1])} axes here and {len(old[1])} elsewhere",
                e.span, labels=label,
            )  # fmt: skip
            continue
        for i, (x, y) in enumerate(zip(old[1], now[1], strict=False)):
            if not agree(c, x, y, e.span):
                c.report(
                    "T0601", f"axis {i} of the result is {_shown(c, y)} here and {_shown(c, x)}"
                    " elsewhere", e.span, labels=label,
                )  # fmt: skip


def _inlined(c: TileContext, value: ast.Expr, terms: list[Type]) -> None:
    """The result of an inlined function; a buffer is its content."""
    plain: list[Type] = []
    items = value.items if isinstance(value, ast.TupleExpr) else (value,)
    made = private_names(c) | names_made_again(c)
    for e, t in zip(items, terms, strict=True):
        read = isinstance(t, Tile) or (isinstance(e, ast.Name) and e.id in made)
        o = value_of_operand(c, Operand(e, t)) if read else Operand(e, t)
        plain.append(o.term)  # type: ignore[arg-type]
    found: Type = plain[0] if len(plain) == 1 else TupleType(tuple(plain))
    before = c.returns.type
    if before is not None and c.returns.since is not None and c.returns.since != value.span:
        found = _either(c, value, before, found)
    c.returns.type, c.returns.since = found, value.span


def _either(c: TileContext, value: ast.Expr, before: Type, now: Type) -> Type:
    """What a function gives that returns at several places."""
    found = _join(c, value, before, now)
    if found is not None:
        return found
    at = c.returns.since
    c.report(
        "T0208", f"`{c.declaration.name}` gives `{text_of(now)}` here and"
        f" `{text_of(before)}` elsewhere", value.span,
        labels=(Label(at, "returned here"),) if at is not None else (),
        helps=("make them alike, with `.to(T)` or slices of one width",),
    )  # fmt: skip
    return now


def _join(c: TileContext, key: object, before: Type, now: Type) -> Type | None:
    """The type of both; None where they are not alike."""
    match before, now:
        case Tile(), Tile() if (
            (before.dtype, before.wide) == (now.dtype, now.wide)
            and [a.capacity for a in before.axes] == [a.capacity for a in now.axes]
        ):  # fmt: skip
            pairs = zip(before.axes, now.axes, strict=True)
            axes = [join_axis(c, (key, i), "result", a, b) for i, (a, b) in enumerate(pairs)]
            return replace(now, axes=tuple(axes))
        case TupleType(), TupleType() if len(before.items) == len(now.items):
            pairs = zip(before.items, now.items, strict=True)
            items = [_join(c, (key, i), a, b) for i, (a, b) in enumerate(pairs)]
            known = [t for t in items if t is not None]
            return TupleType(tuple(known)) if len(known) == len(items) else None
        case _:
            alike = before == now or is_silent(before) or is_silent(now)
            return now if alike else None


def _other_count(c: TileContext, e: ast.Expr, declared: int, made: int) -> None:
    at = c.declaration.returns
    c.report(
        "T0208", f"`{c.declaration.name}` returns {_arrays(declared)}, and this is {made}", e.span,
        labels=(Label(at.span, "declared here"),) if at is not None else (),
        helps=_unpacked(e, c.infer(e)) or (f"declare {_arrays(made)}, or return {declared}",),
    )  # fmt: skip


def _unpacked(e: ast.Expr, term: Term) -> tuple[str, ...]:
    """What to write to return each of several values that one call gives."""
    if not isinstance(term, TupleType) or isinstance(e, ast.TupleExpr):
        return ()
    names = ", ".join(f"part{i}" for i in range(1, len(term.items) + 1))
    text = source_of(e)
    given = "it" if "..." in text else f"`{names} = {text}`"
    return (f"give each value a name: {given}, then `return {names}`",)


def _arrays(count: int) -> str:
    return "1 array" if count == 1 else f"{count} arrays"


def _result(
    c: TileContext, e: ast.Expr, term: Type, wanted: _Declared | None
) -> _Declared | None:  # fmt: skip
    if is_silent(term):
        return None
    if isinstance(term, Tensor) and isinstance(e, ast.Name) and e.id in result_names(c):
        return term.dtype, term.shape
    if not is_tiled(term) and not isinstance(term, Scalar):
        c.report("T0613", f"a tile kernel returns arrays and numbers, not `{text_of(term)}`",
                 e.span, helps=_unpacked(e, term))  # fmt: skip
        return None
    o = value_of_operand(c, Operand(e, term))
    if isinstance(o.term, Scalar):
        dtype = o.term.dtype if wanted is None else wanted[0]
        if _is_own_count(c, e, o.term, dtype):
            if c.final:
                c.typed.narrowed[e] = None
            c.coerce(e, dtype)
            return dtype, ()
        fits = give_tile(c, e, o.term, dtype, False)
        return dtype if fits else o.term.dtype, ()
    assert isinstance(o.term, Tile)
    if is_waiting(o.term):
        if wanted is not None:
            settle_tile(c, o.term, wanted[0], False, e.span, place=True)
        return None
    c.ranks.append(len(o.term.axes))
    dtype = wanted[0] if wanted is not None else o.term.dtype
    if not give_tile(c, e, o.term, dtype, False):
        at = c.declaration.returns
        c.report(
            "T0208", f"`{c.declaration.name}` returns `{dtype}`, and this is `{o.term.dtype}`",
            e.span, labels=(Label(at.span, "declared here"),) if at is not None else (),
            helps=_convert(e, dtype),
        )  # fmt: skip
        return None
    extents = tuple(
        a.capacity if a.extent is None or c.is_open(c.kernel.facts.resolve(a.extent)) else a.extent
        for a in o.term.axes
    )
    shape = known_dims(c, extents, e, "a result")
    return None if shape is None else (dtype, shape)


def _is_own_count(c: TileContext, e: ast.Expr, term: Scalar, dtype: DType) -> bool:
    """Whether a result is made of variables that began as literals and met no dtype (``steps =
    0``), and nothing shows that it fits the declared one: the run looks."""
    if term.dtype != INDEX or not dtype.is_integer or dtype.bits < 32:
        return False
    if dtype == INDEX or common_dtype(INDEX, dtype) == dtype or c.narrows(e, dtype):
        return False
    parts = list(expressions(e))
    names = [c.variables.get(x.id) for x in parts if isinstance(x, ast.Name)]
    cells = [v.cell.root() for v in names if v is not None and v.cell is not None]
    plain = all(isinstance(x, (ast.Name, ast.Binary, ast.Unary, ast.IntLit)) for x in parts)
    if not plain or not cells or len(cells) < len(names):
        return False
    return all(x.dtype == INDEX and x.met is None for x in cells)


def _convert(e: ast.Expr, dtype: DType) -> tuple[str, ...]:
    text = source_of(e)
    simple = isinstance(e, (ast.Name, ast.Call, ast.Subscript, ast.Attribute))
    return (f"convert it: `{text if simple else f'({text})'}.to({dtype})`",)


def _declared(c: TileContext, e: ast.Expr, found: _Declared, wanted: _Declared) -> None:
    """``-> bf16[m, n]``: what is returned has this dtype and these sizes."""
    at = c.declaration.returns
    assert at is not None
    dtype, dims = wanted
    if dtype != found[0]:
        c.report(
            "T0208", f"`{c.declaration.name}` returns `{dtype}`, and this is `{found[0]}`", e.span,
            labels=(Label(at.span, "declared here"),), helps=_convert(e, dtype),
        )  # fmt: skip
    if len(dims) != len(found[1]):
        c.report(
            "T0604", f"`{c.declaration.name}` returns {len(dims)} axes, and this has"
            f" {len(found[1])}", e.span, labels=(Label(at.span, "declared here"),),
        )  # fmt: skip
        return
    for i, (x, y) in enumerate(zip(dims, found[1], strict=True)):
        if not agree(c, x, y, e.span):
            c.report(
                "T0601", f"axis {i} of the result is {_shown(c, y)}, and `{_shown(c, x)}` is"
                " declared", e.span, labels=(Label(at.span, "declared here"),),
            )  # fmt: skip


def _shown(c: TileContext, dim: Dim) -> str:
    return described(c.kernel.facts.resolve(dim))


def unused_variables(c: TileContext) -> None:
    """Values that are computed and never used."""
    read, made = _read_names(c), private_names(c) | names_made_again(c)
    filled = {
        s.target.value.id for s in statements(c.declaration.body)
        if isinstance(s, (ast.Assign, ast.AugmentedAssign)) and isinstance(s.target, ast.Subscript)
        and isinstance(s.target.value, ast.Name)
    }  # fmt: skip
    for name, (span, kind) in assigned_names(c.declaration).items():
        v = c.variables.get(name)
        if kind != "variable" or name in read or name.startswith("_") or v is None:
            continue
        if isinstance(v.type, (Tile, Scalar)) or name in made:
            _unused(c, name, span, name in filled)


def _unused(c: TileContext, name: str, span: Span, filled: bool) -> None:
    if filled:
        body = statements(c.declaration.body)
        returns = any(isinstance(s, ast.Return) and s.value is not None for s in body)
        what = "return it too" if returns else f"end the kernel with `return {name}`"
        c.report(
            "T0615", f"'{name}' is written and never read, and it is not returned", span,
            helps=(f"{what}, or leave it out",), warning=True,
        )  # fmt: skip
        return
    c.report(
        "T0615", f"'{name}' is computed and never used", span,
        helps=("store it into an array or return it, or leave it out",), warning=True,
    )  # fmt: skip


def _read_names(c: TileContext) -> frozenset[str]:
    found: set[str] = set()
    for s in statements(c.declaration.body):
        skipped: set[ast.Expr] = set()
        if isinstance(s, (ast.Assign, ast.AugmentedAssign)):
            t = s.target
            skipped.add(t.value if isinstance(t, ast.Subscript) else t)
        if isinstance(s, ast.ExprStmt) and isinstance(s.value, ast.Call) and s.value.arguments:
            if named_symbol(c, s.value.function) == Builtin("op.prefetch"):
                skipped.add(s.value.arguments[0])
        for root in statement_expressions(s):
            for e in expressions(root):
                if isinstance(e, ast.Name) and e not in skipped:
                    found.add(e.id)
    return frozenset(found)
