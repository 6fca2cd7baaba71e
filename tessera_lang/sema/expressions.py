"""Types of expressions in lanes.

Owns names, literals, operators, subscripts and attributes. Calls go to ``calls`` and
``builtin_calls``. Must not know statements.
"""

from __future__ import annotations

from functools import partial
from typing import TypeGuard, cast

from tessera_lang.diagnostics.diagnostic import Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.foreign_names import helps_for_member
from tessera_lang.sema.calls import infer_call
from tessera_lang.sema.comparisons import compare
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.expression_text import is_simple, source_of
from tessera_lang.sema.index_like_values import is_lane_count, lane_count_fits
from tessera_lang.sema.indexing import element, index
from tessera_lang.sema.inference_types import Open, OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.name_values import (
    DTYPE,
    MODULE,
    module_of,
    symbol_term,
    variable_term,
)
from tessera_lang.sema.operators import Operand, meet, operate, silent
from tessera_lang.sema.side_tables import (
    Local,
)
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.dump import source_text
from tessera_lang.types.dtype import BOOL, F32, INDEX, DType
from tessera_lang.types.type import (
    ERROR,
    NONE,
    STR,
    Buffer,
    Scalar,
    Tensor,
    TupleType,
    Weak,
)


def infer(c: Context, e: ast.Expr) -> Term:
    """The type of an expression, written down in the last walk."""
    return c.note(e, infer_once(c, e))


def infer_once(c: Context, e: ast.Expr) -> Term:
    """The type of an expression; its parts are asked of the context."""
    match e:
        case ast.Binary():
            return _binary(c, e)
        case ast.Name():
            return _name(c, e)
        case ast.IntLit():
            c.known.add(e)
            return Weak("int")
        case ast.FloatLit():
            c.known.add(e)
            return Weak("float")
        case ast.BoolLit():
            c.known.add(e)
            c.value_of(e)
            return Scalar(BOOL)
        case ast.StringLit():
            c.known.add(e)
            c.value_of(e)
            return STR
        case ast.NoneLit():
            c.known.add(e)
            return NONE
        case ast.Unary():
            return _unary(c, e)
        case ast.Compare():
            return _compare(c, e)
        case ast.BoolOp():
            return _bool_op(c, e)
        case ast.Conditional():
            return _conditional(c, e)
        case ast.Call():
            return infer_call(c, e)
        case ast.Subscript():
            return _subscript(c, e)
        case ast.Attribute():
            return _attribute(c, e)
        case ast.TupleExpr():
            return _tuple(c, e)
        case ast.ErrorExpr():
            return ERROR
        case _:
            return _refused(c, e)


_REFUSED: dict[type, tuple[str, str]] = {
    ast.FString: ("an f-string", "lanes have no text"),
    ast.ListExpr: (
        "a list",
        "for numbers that change write `tlocal.alloc(shape, dtype)`, an array of each lane;"
        " for a table of fixed numbers a tuple: `(1.0, 2.0)`",
    ),
    ast.DictExpr: ("a dict", "use an array"),
    ast.Comprehension: ("a list comprehension", "write a loop"),
    ast.Lambda: ("a lambda", "write a plain function and call it"),
    ast.SliceExpr: ("a slice", "write a loop over the elements"),
}


def _refused(c: Context, e: ast.Expr) -> Term:
    what, instead = _REFUSED[type(e)]
    return c.report("T0118", f"{what} cannot stand in a lane kernel", e.span, helps=(instead,))


# --- names ---------------------------------------------------------------------------------


def _name(c: Context, e: ast.Name) -> Term:
    symbol = c.name_symbol(e.id)
    if symbol is None:
        return ERROR if c.final else Unknown()  # the structure check names it
    if c.final:
        c.typed.symbols[e] = symbol  # type: ignore[assignment]
    if isinstance(symbol, Local):
        return variable_term(c, c.variables[e.id])
    return symbol_term(c, e, symbol)  # type: ignore[arg-type]


# --- operators -----------------------------------------------------------------------------


def mark_known(c: Context, e: ast.Expr, term: Term, *parts: ast.Expr) -> None:
    """Weak numbers, bools, sizes and the like stay known; other dtypes would wrap."""
    exact = not isinstance(term, Scalar) or term.dtype in (BOOL, INDEX)
    if exact and not is_silent(term) and all(p in c.known for p in parts):
        c.known.add(e)


def _binary(c: Context, e: ast.Binary) -> Term:
    chain: list[ast.Binary] = []
    left: ast.Expr = e
    while isinstance(left, ast.Binary):
        chain.append(left)
        left = left.left
    term = c.infer(left)
    for node in reversed(chain):
        right = c.infer(node.right)
        a, b = Operand(node.left, term), Operand(node.right, right)
        term = operate(c, node.operator, node.operator_span, a, b)
        mark_known(c, node, term, node.left, node.right)
        c.note(node, term)
    return term


def _unary(c: Context, e: ast.Unary) -> Term:
    term = c.infer(e.operand)
    if is_silent(term):
        return term
    if e.operator == "not":
        result = require_bool(c, e.operand, term)
    elif not isinstance(term, (Scalar, Weak, Open)):
        result = operate(c, "+", e.span, Operand(e.operand, term), Operand(e.operand, term))
    elif isinstance(term, Scalar) and term.dtype == BOOL and e.operator != "~":
        result = c.report("T0206", f"`{e.operator}` takes a number, not `bool`", e.span)
    elif e.operator == "~" and _is_float(term):
        result = c.report("T0206", f"`~` takes integers or bools, not `{text_of(term)}`", e.span)
    else:
        result = term
    mark_known(c, e, result, e.operand)
    return result


def _is_float(term: Term) -> bool:
    return isinstance(term, Scalar) and term.dtype.is_float or term == Weak("float")


def require_bool(c: Context, e: ast.Expr, term: Term) -> Term:
    """A condition: a bool, never a number."""
    if is_silent(term) or term == Scalar(BOOL):
        return term
    number = isinstance(term, (Scalar, Weak, Open))
    # Bits and choices would take the comparison for an operand.
    alone = is_simple(e) or (
        isinstance(e, ast.Binary) and e.operator not in ("&", "|", "^", "<<", ">>")
    )
    first, last = ("", " != 0") if alone else ("(", ") != 0")
    start, end = (Span(e.span.anchor, at, at) for at in (e.span.start, e.span.end))
    fix = Fix("compare it with 0", (Edit(start, first), Edit(end, last)), "unsafe")
    return c.report(
        "T0205", f"a condition is a `bool`, not `{text_of(term)}`", e.span,
        helps=(f"compare it: `{first}{source_of(e)}{last}`",) if number else (),
        fixes=(fix,) if number else (),
    )  # fmt: skip


def _compare(c: Context, e: ast.Compare) -> Term:
    a = Operand(e.first, c.infer(e.first))
    good, quiet = True, is_silent(a.term)
    for operator, item in zip(e.operators, e.rest, strict=True):
        b = Operand(item, c.infer(item))
        quiet = quiet or is_silent(b.term)
        good = compare(c, operator, e.span, a, b) and good
        settled = c.typed.types.get(item) if c.final else None
        a = Operand(item, settled if settled is not None else b.term)
    if good and all(x in c.known for x in (e.first, *e.rest)):
        c.known.add(e)
    if not c.final and quiet:
        return Scalar(BOOL)
    return Scalar(BOOL)


def _bool_op(c: Context, e: ast.BoolOp) -> Term:
    decided = True
    for value in e.values:
        require_bool(c, value, c.infer(value))
        known = c.try_value(value) if decided else None
        if known is None:
            decided = False
        elif bool(known) == (e.operator == "or"):
            c.set_value(e, bool(known))
            decided = False
    if decided:
        c.known.add(e)
    return Scalar(BOOL)


def _conditional(c: Context, e: ast.Conditional) -> Term:
    require_bool(c, e.test, c.infer(e.test))
    test = c.try_value(e.test)
    if test is not None:
        taken = e.then if test else e.orelse
        term = c.infer(taken)
        mark_known(c, e, term, taken)
        return term
    a, b = Operand(e.then, c.infer(e.then)), Operand(e.orelse, c.infer(e.orelse))
    if is_silent(a.term) or is_silent(b.term):
        return silent(a, b)
    for side in (a, b):
        if isinstance(side.term, (Tensor, Buffer, OpenBuffer, TupleType)):
            what = "a tuple" if isinstance(side.term, TupleType) else "an array"
            return c.report(
                "T0118", f"{what} cannot be chosen while lanes run", side.e.span,
                helps=("choose numbers: `x[i] if condition else y[i]`",),
            )  # fmt: skip
    if a.term == b.term and not isinstance(a.term, (Weak, Open)):
        return a.term
    return meet(c, e.span, a, b)


def _tuple(c: Context, e: ast.TupleExpr) -> Term:
    terms = [c.infer(item) for item in e.items]
    if all(item in c.known for item in e.items):
        c.known.add(e)
    if any(isinstance(t, (Open, OpenBuffer, Unknown)) for t in terms):
        return Unknown()
    return TupleType(tuple(t for t in terms if not isinstance(t, (Open, OpenBuffer, Unknown))))


# --- subscripts and attributes -------------------------------------------------------------


def _subscript(c: Context, e: ast.Subscript) -> Term:
    base = c.infer(e.value)
    if isinstance(base, TupleType):
        return _tuple_item(c, e, base)
    if isinstance(base, OpenBuffer):
        for item in e.items:
            index(c, item)
        waits = base.buffer.waits
        return Unknown(waits)
    if not isinstance(base, (Tensor, Buffer)):
        for item in e.items:
            if not isinstance(item, ast.SliceExpr):
                c.infer(item)
        if is_silent(base):
            return base
        return c.report("T0213", f"`{text_of(base)}` has no elements to index", e.span)
    return element(c, e, base)


def _tuple_item(c: Context, e: ast.Subscript, base: TupleType) -> Term:
    if len(e.items) == 1 and not isinstance(e.items[0], ast.SliceExpr):
        index(c, e.items[0])
        value = c.try_value(e.items[0])
        count = len(base.items)
        if isinstance(value, int):
            if not -count <= value < count:
                return c.report(
                    "T0302", f"there is no item {value}", e.items[0].span, f"there are {count}"
                )
            if e.value in c.known:
                c.known.add(e)
            return base.items[value]
    numbers = c.try_value(e.value)
    one = len(e.items) == 1 and not isinstance(e.items[0], ast.SliceExpr)
    if one and c.tables and is_table(numbers):
        c.typed.tables[e] = numbers
        return Weak("float" if any(isinstance(v, float) for v in numbers) else "int")
    of_shape = isinstance(e.value, ast.Attribute) or not isinstance(numbers, tuple)
    table = f"for a table give the kernel an array: `table: const f32[{len(base.items)}]`"
    if one and isinstance(e.value, ast.Name) and is_table(cast("object", numbers)):
        table = f"write `op.array({e.value.id})[{source_text(e.items[0])}]`"
    return c.report(
        "T0302", "an item of a shape or tuple is chosen by a literal", e.span,
        helps=("write `x.shape[0]`, `x.shape[-1]`, or in a tile kernel `h, w = x.shape[:2]`",)
        if of_shape else (table,),
    )  # fmt: skip


def is_table(value: object) -> TypeGuard[tuple[int | float, ...]]:
    """Plain numbers, of which the run may choose one."""
    if not isinstance(value, tuple):
        return False
    items = cast("tuple[object, ...]", value)
    return bool(items) and all(type(v) in (int, float) for v in items)


def _attribute(c: Context, e: ast.Attribute) -> Term:
    base = c.infer(e.value)
    if base == MODULE:
        return _member(c, e)
    if isinstance(base, (Tensor, Buffer)):
        match e.name:
            case "shape":
                if all(isinstance(d, int) for d in base.shape):
                    c.set_value(e, base.shape)
                return TupleType((Scalar(INDEX),) * len(base.shape))
            case "dtype":
                c.set_value(e, base.dtype)
                return DTYPE
            case "ndim":
                c.set_value(e, len(base.shape))
                return Weak("int")
            case "T" | "mT":
                return c.report("T0114", "not built yet: views in lane kernels", e.span)
            case _:
                pass
    if isinstance(base, (Scalar, Weak, Open)) and e.name == "dtype":
        c.set_value(e, _dtype_of(c, base))
        return DTYPE
    if is_silent(base) or isinstance(base, OpenBuffer):
        return base if is_silent(base) else Unknown()
    close = nearest(e.name, ("shape", "dtype", "ndim", "to"))
    return c.report(
        "T0213", f"`{text_of(base)}` has no attribute `{e.name}`", e.name_span,
        helps=helps_for_member(e.name, close),
    )  # fmt: skip


def _dtype_of(c: Context, term: Scalar | Weak | Open) -> DType:
    """The dtype of a number; to ask for it fixes that of an open one."""
    if isinstance(term, Scalar):
        return term.dtype
    if isinstance(term, Open):
        c.cells.default((term.cell,))
        found = term.cell.root().dtype
        if found is not None:
            return found
    kind = term.kind if isinstance(term, Weak) else "float"
    return F32 if kind == "float" else INDEX


def _member(c: Context, e: ast.Attribute) -> Term:
    module = module_of(c, e.value)
    symbol = None if module is None else c.scope.member(module, e.name)
    if symbol is None:
        return ERROR if c.final else Unknown()  # the structure check names it
    if c.final:
        c.typed.symbols[e] = symbol
    return symbol_term(c, e, symbol)


def attach(c: Context) -> None:
    """Give the context its way to infer."""
    c.infer = partial(infer, c)
    c.is_count, c.count_fits = partial(is_lane_count, c), partial(lane_count_fits, c)
