"""Operators on scalars: how two operands meet, and what comes out.

Owns mixing, integer division, shifts, powers, comparisons. Must not know statements,
calls or names.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Edit, Fix, Label
from tessera_lang.record import dataclass
from tessera_lang.sema.bound_names import expressions
from tessera_lang.sema.context import Binding, Context, text_of
from tessera_lang.sema.conversion_hints import (
    Advice,
    cast_fix,
    convert_operand,
    float_beside,
    float_for,
)
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import LiteralKind, Open, Term, Unknown
from tessera_lang.sema.literals import is_silent, settle
from tessera_lang.sema.side_tables import FunctionSymbol, TypedFunction
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F32, F64, I32, I64, INDEX, DType, common_dtype, widens_to
from tessera_lang.types.type import ERROR, ErrorType, Opaque, Scalar, Weak

MOST_POWER = 64


@dataclass(frozen=True, slots=True)
class Operand:
    """An expression and what it is."""

    e: ast.Expr
    term: Term


def silent(*operands: Operand) -> Term:
    """The type of an operation one of whose operands is reported or not known yet."""
    if any(isinstance(o.term, ErrorType) for o in operands):
        return ERROR
    return Unknown(
        tuple(cell for o in operands if isinstance(o.term, Unknown) for cell in o.term.cells)
    )


def _wanted(a: DType, b: DType) -> DType:
    """The type whose cast to suggest where two do not mix."""
    if a.is_float and b.is_float:
        return F64 if F64 in (a, b) else F32
    if a.is_float or b.is_float:
        return a if a.is_float else b
    return I64


def mixed(c: Context, span: Span, a: Operand, b: Operand, notes: tuple[str, ...] = ()) -> Term:
    """Two dtypes that do not mix without a possible loss."""
    assert isinstance(a.term, Scalar) and isinstance(b.term, Scalar)
    helps, fixes = conversions(c, a, b)
    return c.report(
        "T0201", f"`{a.term}` and `{b.term}` do not mix: the conversion could lose a value", span,
        labels=(Label(a.e.span, f"this is `{a.term}`"), Label(b.e.span, f"this is `{b.term}`")),
        notes=notes, helps=helps, fixes=fixes,
    )  # fmt: skip


def conversions(c: Context, a: Operand, b: Operand) -> Advice:
    """What makes two numbers of types that do not mix meet."""
    assert isinstance(a.term, Scalar) and isinstance(b.term, Scalar)
    wanted = _wanted(a.term.dtype, b.term.dtype)
    if a.e in c.places:  # keeps its type: the other is converted, if that is of the same kind
        if a.term.dtype.is_float == b.term.dtype.is_float:
            wanted = a.term.dtype
        elif wanted != a.term.dtype:
            return convert_operand(c, a.e, a.term.dtype, wanted)
    changed = [o for o in (a, b) if isinstance(o.term, Scalar) and o.term.dtype != wanted]
    if wanted == F64 and (found := _literals(changed)):
        end = Span(found.span.anchor, found.span.end - 1, found.span.end - 1)
        name = source_of(found.function)
        return (f"say what it is made of: `{name}(..., dtype=f64)`",), (
            Fix(f"make it of {F64}", (Edit(end, f", dtype={F64}"),), "unsafe"),
        )
    if len(changed) == 1 and wanted == F64 and (given := _given_counts(c, changed[0].e)):
        number = f"f64({source_of(given[1])})"
        text = f"give `{given[0]}` a number of f64, in which it computes then: `{number}`"
        return (text,), (Fix("compute in f64", cast_fix(given[1], F64).edits, "unsafe"),)
    if len(changed) == 1 and wanted == F64 and (given := _undeclared(c, changed[0].e)):
        text = f"declare it in the head, `{given.name}: f64`, so that no bit of it is lost"
        end = Span(given.name_span.anchor, given.name_span.end, given.name_span.end)
        return (text,), (Fix("declare it as f64", (Edit(end, ": f64"),), "unsafe"),)
    casts = " and ".join(f"`{wanted}({source_of(o.e)})`" for o in changed)
    edits = tuple(edit for o in changed for edit in cast_fix(o.e, wanted).edits)
    return (f"convert explicitly: {casts}",), (
        Fix(f"convert with `{wanted}(...)`", edits, "unsafe"),
    )


def _undeclared(c: Context, e: ast.Expr) -> ast.Parameter | None:
    """The parameter of a kernel, without an annotation, that a name is. A float of Python's that
    is given for it is f32 beside arrays of other floats than f64, and rounded when it arrives."""
    if not c.is_kernel or not isinstance(e, ast.Name) or c.infer(e) != Scalar(F32):
        return None
    found = (p for p in c.declaration.parameters if p.name == e.id and p.annotation is None)
    return next(found, None)


def _given_counts(c: Context, e: ast.Expr) -> tuple[str, ast.Expr] | None:
    """Of a call of a function that made f32 of counts: its name, and the first of them. What it
    gives is rounded already."""
    if not isinstance(e, ast.Call) or not isinstance(e.function, ast.Name):
        return None
    if c.infer(e) != Scalar(F32) or not isinstance(c.name_symbol(e.function.id), FunctionSymbol):
        return None
    if any(isinstance(t := c.infer(a), Scalar) and t.dtype.is_float for a in e.arguments):
        return None
    counts = [a for a in e.arguments if c.infer(a) == Scalar(INDEX)]
    return (e.function.id, counts[0]) if counts else None


def _literals(operands: list[Operand]) -> ast.Call | None:
    """The call that made the one operand of literals, in f32: a conversion would come too late."""
    if len(operands) != 1 or operands[0].term != Scalar(F32):
        return None
    for e in expressions(operands[0].e):
        if isinstance(e, ast.Call) and source_of(e.function) in ("op.array", "op.linspace"):
            inner = (x for a in e.arguments for x in expressions(a))
            numbers = [x for x in inner if isinstance(x, ast.FloatLit)]
            if numbers and not any(k.name == "dtype" for k in e.keywords):
                return e
    return None


def _wider(a: LiteralKind, b: LiteralKind) -> LiteralKind:
    return "float" if "float" in (a, b) else "int"


def meet(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    """The type in which two numbers meet. Literals take the type of the other."""
    match a.term, b.term:
        case (Unknown() | ErrorType(), _) | (_, Unknown() | ErrorType()):
            return silent(a, b)
        case Weak(), Weak():
            return Weak(_wider(a.term.kind, b.term.kind))
        case Open(), Weak():
            c.cells.widen(a.term.cell, b.term.kind)
            return a.term
        case Weak(), Open():
            c.cells.widen(b.term.cell, a.term.kind)
            return b.term
        case Open(), Open():
            return Open(c.cells.unify(a.term.cell, b.term.cell))
        case Scalar(), Weak() | Open():
            return _meet_literal(c, a.e, a.term, b)
        case Weak() | Open(), Scalar():
            return _meet_literal(c, b.e, b.term, a)
        case Scalar(), Scalar():
            common = common_dtype(a.term.dtype, b.term.dtype) or _beside_a_size(c, a, b)
            kept = a.e in c.places and a.term.dtype.is_integer  # which stays what it is
            if common is None or kept and common.is_float:
                return mixed(c, span, a, b)
            for o in (a, b):
                if o.term != Scalar(common):
                    c.coerce(o.e, common)
            return Scalar(common)
        case _:
            return not_numbers(c, span, a, b)


def _beside_a_size(c: Context, a: Operand, b: Operand) -> DType | None:
    """The float dtype of one operand, where the other is made of sizes of arrays: these are so
    small that rounding them changes no more than the operation itself."""
    for one, other in ((a, b), (b, a)):
        if (
            isinstance(one.term, Scalar) and isinstance(other.term, Scalar)
            and one.term.dtype in (F32, F64) and other.term.dtype in (INDEX, I32)
            and c.is_size(other.e)
        ):  # fmt: skip
            return one.term.dtype
    return None


def _size_beside_literal(c: Context, size: ast.Expr, literal: Operand) -> Term:
    """``1.0 / n`` is of the float type that it meets, as the literal alone would be."""
    if isinstance(literal.term, Open):
        literal.term.cell.root().wide = True
        return literal.term
    found = size_as_float(c, literal.e, size)
    if isinstance(found, Scalar):
        settled = settle(c, literal.e, literal.term, found.dtype)
        return ERROR if isinstance(settled, ErrorType) else found
    return found


def _integer_beside_float(c: Context, e: ast.Expr, dtype: DType, literal: Operand) -> Term:
    """Integers of an array beside ``0.5`` are floats, of the dtype of the others where this has
    all of them."""
    counted = dtype == INDEX and not c.is_kernel  # a function of counts gives what these meet
    found = None if counted or e in c.places else float_beside(c, dtype)
    if isinstance(literal.term, Open):
        if found is None or found != F64:
            return Unknown()
        c.cells.fix(literal.term.cell, found, e.span)
    elif isinstance(settle(c, literal.e, literal.term, found or dtype, beside=e), ErrorType):
        return ERROR
    if found is None:  # which is reported
        return Scalar(dtype)
    c.coerce(e, found)
    return Scalar(found)


def literal_as_float(c: Context, key: ast.Expr, literal: Operand) -> Scalar | Open:
    """The float type of a function of a literal: open until the result meets one, as that of
    ``1.0 / n`` is."""
    if isinstance(literal.term, Open):
        return literal.term
    return float_of_cell(c, key)


def size_as_float(c: Context, key: ast.Expr, size: ast.Expr) -> Scalar | Open:
    """The float type that a size takes where no other number says which: open until the result
    meets one, f32 if it meets none. ``key``: which result."""
    found = float_of_cell(c, key)
    if isinstance(found, Scalar):
        c.coerce(size, found.dtype)
    return found


def float_of_cell(c: Context, key: ast.Expr) -> Scalar | Open:
    """The float type that the result ``key`` meets; open until it has met one."""
    cell = c.size_cells.get(key) or c.cells.new("float", wide=True)
    c.size_cells[key] = cell
    dtype = cell.root().dtype
    return Open(cell) if dtype is None else Scalar(dtype)


def _meet_literal(c: Context, e: ast.Expr, typed: Scalar, literal: Operand) -> Term:
    """``e``, of type ``typed``, meets a literal."""
    if typed.dtype == BOOL:
        return c.report(
            "T0206", "a `bool` does not mix with a number", literal.e.span,
            f"this is {_article(literal.term)}",
            helps=("convert the bool explicitly, as in `i32(p)`",),
        )  # fmt: skip
    kind = "int"
    if isinstance(literal.term, Open | Weak):
        kind = (
            literal.term.kind if isinstance(literal.term, Weak) else literal.term.cell.root().kind
        )
    if kind == "float" and typed.dtype in (INDEX, I32) and c.is_size(e):
        return _size_beside_literal(c, e, literal)
    if kind == "float" and typed.dtype.is_integer:
        return _integer_beside_float(c, e, typed.dtype, literal)
    settled = settle(c, literal.e, literal.term, typed.dtype, beside=e)
    return ERROR if isinstance(settled, ErrorType) else typed


def _article(term: Term) -> str:
    text = text_of(term)
    return f"an {text}" if text[0] in "aeiou" else f"a {text}"


def not_numbers(c: Context, span: Span, *operands: Operand) -> Term:
    """An operator on something that is no number."""
    wrong = next((o for o in operands if not isinstance(o.term, (Scalar, Weak, Open))), operands[0])
    helps = ()
    if not isinstance(wrong.term, (Opaque, Scalar)):
        helps = ("index it to get an element, as in `x[i]`",)
    return c.report(
        "T0206", f"this operator takes numbers, not `{text_of(wrong.term)}`", span,
        labels=(Label(wrong.e.span, f"this is `{text_of(wrong.term)}`"),), helps=helps,
    )  # fmt: skip


def is_bool(term: Term) -> bool:
    return isinstance(term, Scalar) and term.dtype == BOOL


def operate(c: Context, operator: ast.BinaryOperator, span: Span, a: Operand, b: Operand) -> Term:
    """``a operator b``; ``span`` is where to report."""
    if is_silent(a.term) or is_silent(b.term):
        return silent(a, b)
    if operator == "@":
        return c.report("T0114", "not built yet: tile products (`@`) in lane kernels", span)
    if not all(isinstance(o.term, (Scalar, Weak, Open)) for o in (a, b)):
        return not_numbers(c, span, a, b)
    if operator in ("<<", ">>"):
        return _shift(c, span, a, b)
    if operator == "**":
        return power(c, span, a, b)
    if operator in ("&", "|", "^"):
        return _bits(c, operator, span, a, b)
    a, b = _bool_as_number(c, operator, a, b), _bool_as_number(c, operator, b, a)
    for o, other in ((a, b), (b, a)):
        if is_bool(o.term):
            dtype = other.term.dtype if isinstance(other.term, Scalar) else I32
            dtype = I32 if dtype == BOOL else dtype
            return c.report(
                "T0206", f"`{operator}` takes numbers, not `bool`", span,
                labels=(Label(o.e.span, "this is `bool`"),),
                helps=(f"convert it first: `{dtype}({source_of(o.e)})`",),
            )  # fmt: skip
    if operator == "/":
        return _divide(c, span, a, b)
    result = meet(c, span, a, b)
    if operator in ("//", "%"):
        _zero_divisor(c, operator, result, b)
    return result


def _bool_as_number(
    c: Context, operator: ast.BinaryOperator, o: Operand, other: Operand
) -> Operand:
    """A bool beside a number is 0 or 1 of its dtype, as in Python."""
    if operator not in ("+", "-", "*") or not is_bool(o.term) or is_bool(other.term):
        return o
    if isinstance(other.term, Scalar):
        dtype = other.term.dtype
    elif isinstance(other.term, Weak):
        dtype = INDEX if other.term.kind == "int" else c.cells.floats
    else:
        return o
    c.coerce(o.e, dtype)
    return Operand(o.e, Scalar(dtype))


def _zero_divisor(c: Context, operator: str, result: Term, b: Operand) -> None:
    integer = isinstance(result, Scalar) and result.dtype.is_integer
    if integer and c.try_value(b.e) == 0:
        c.report("T0223", f"`{operator}` by 0", b.e.span, "this is always 0")


def _divide(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    if isinstance(a.term, Weak) and isinstance(b.term, Weak):
        return Weak("float")
    integers = [o for o in (a, b) if isinstance(o.term, Scalar) and o.term.dtype.is_integer]
    others_weak = all(
        o in integers or isinstance(o.term, Weak) and o.term.kind == "int" for o in (a, b)
    )
    if integers and others_weak:
        counts = all(not isinstance(o.term, Scalar) or c.is_size(o.e) for o in integers)
        if counts and a.e not in c.places:
            return quotient_of_counts(c, b.e, [a, b])
        helps, fixes = _quotients(c, span, a, b)
        return c.report(
            "T0204", "`/` on integers", span, "both sides are integers",
            helps=helps, fixes=fixes,
        )  # fmt: skip
    result = meet(c, span, a, b)
    if isinstance(result, Open) and result.cell.root().kind == "int":
        return Unknown((result.cell,))
    return result


def quotient_of_counts(c: Context, key: ast.Expr, operands: list[Operand]) -> Term:
    """``a / b`` of two counts, of which one may be a literal, is of the float type that it meets.
    ``key``: which quotient."""
    found: Scalar | Open | None = None
    for o in operands:
        if isinstance(o.term, Scalar):
            found = size_as_float(c, key, o.e)
    assert found is not None
    for o in operands:
        if isinstance(o.term, (Weak, Open)) and isinstance(found, Scalar):
            settle(c, o.e, o.term, found.dtype)
    return found


def _quotients(c: Context, span: Span, a: Operand, b: Operand) -> Advice:
    """Both meanings that a quotient of integers can have."""
    floor = Fix("use `//`", (Edit(span, "//"),), "unsafe")
    floats = [o for o in (a, b) if isinstance(o.term, Scalar)]
    wide = [float_for(c, o.term.dtype) for o in (a, b) if isinstance(o.term, Scalar)]
    to = F64 if F64 in wide else F32
    if a.e in c.places and isinstance(a.term, Scalar):
        helps, fixes = convert_operand(c, a.e, a.term.dtype, to)
        floor = Fix("use `//=`", (Edit(span, "//="),), "unsafe")
        return ("write `//=` for the floor of the quotient", *helps), (floor, *fixes)
    edits = tuple(edit for o in floats for edit in cast_fix(o.e, to).edits)
    shown = " / ".join(f"{to}({source_of(o.e)})" if o in floats else source_of(o.e) for o in (a, b))
    return (
        "write `//` for the floor of the quotient",
        f"or convert first: `{shown}`",
    ), (floor, Fix(f"divide as {to}", edits, "unsafe"))


def _bits(c: Context, operator: ast.BinaryOperator, span: Span, a: Operand, b: Operand) -> Term:
    if is_bool(a.term) and is_bool(b.term):
        return Scalar(BOOL)
    for o in (a, b):
        floats = isinstance(o.term, Scalar) and o.term.dtype.is_float
        if floats or (isinstance(o.term, Weak) and o.term.kind == "float"):
            return c.report(
                "T0206", f"`{operator}` takes integers or bools, not floats", span,
                labels=(Label(o.e.span, f"this is `{text_of(o.term)}`"),),
                helps=("`bitcast(x, u32)` gives the bits of an f32",),
            )  # fmt: skip
    return meet(c, span, a, b)


def _shift(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    for o in (a, b):
        floats = isinstance(o.term, Scalar) and not o.term.dtype.is_integer
        if floats or (isinstance(o.term, Weak) and o.term.kind == "float"):
            return c.report("T0206", f"a shift takes integers, not `{text_of(o.term)}`", o.e.span)
    result = meet(c, span, a, b) if not isinstance(a.term, Scalar) else _shift_typed(c, span, a, b)
    if isinstance(result, Scalar):
        count = c.try_value(b.e)
        if isinstance(count, int) and not 0 <= count < result.dtype.bits:
            return c.report(
                "T0214", f"a shift of `{result}` by {count}", b.e.span,
                f"`{result}` has {result.dtype.bits} bits",
            )  # fmt: skip
    return result


def _shift_typed(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    """The value keeps its type; the count is converted to it without loss."""
    assert isinstance(a.term, Scalar)
    if not isinstance(b.term, Scalar):
        return meet(c, span, a, b)
    fits = common_dtype(a.term.dtype, b.term.dtype) == a.term.dtype
    if not fits and b.term.dtype == INDEX:  # a count
        fits = a.term.dtype.bits == INDEX.bits or c.narrows(b.e, a.term.dtype)
    if not fits:
        return c.report(
            "T0201", f"a shift of `{a.term}` takes a count of `{a.term}`, not `{b.term}`", b.e.span,
            helps=(f"convert the count: `{a.term}({source_of(b.e)})`",),
            fixes=(cast_fix(b.e, a.term.dtype),),
        )  # fmt: skip
    if b.term != a.term:
        c.coerce(b.e, a.term.dtype)
    return a.term


# --- powers --------------------------------------------------------------------------------


def power(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    """``a ** b`` of numbers."""
    exponent = c.try_value(b.e)
    if isinstance(a.term, Weak) and isinstance(b.term, Weak):
        return a.term if b.term.kind == "int" else Weak("float")
    for o in (a, b):
        if is_bool(o.term):
            return not_numbers(c, span, o)
    if type(exponent) is int and 0 <= exponent <= MOST_POWER:
        settle(c, b.e, b.term, INDEX)
        return a.term
    if isinstance(a.term, Scalar) and a.term.dtype.is_integer and _kind(b.term) == "float":
        own = a.term.dtype
        beside = b.term.dtype if isinstance(b.term, Scalar) else float_beside(c, own)
        if beside is not None and widens_to(own, beside):
            c.coerce(a.e, beside)
            a = Operand(a.e, Scalar(beside))
    if _kind(a.term) == "int" and (_kind(b.term) == "int" or isinstance(a.term, Scalar)):
        return _of_integer(c, a, b)
    return _by_function(c, span, a, b)


def _kind(term: Term) -> str:
    match term:
        case Weak():
            return term.kind
        case Open():
            return term.cell.root().kind
        case Scalar():
            return "float" if term.dtype.is_float else "int"
        case _:
            return ""


def _of_integer(c: Context, a: Operand, b: Operand) -> Term:
    return c.report(
        "T0209", f"`**` of an integer takes a literal exponent from 0 to {MOST_POWER}", b.e.span,
        helps=integer_helps(c.try_value(a.e), source_of(a.e), source_of(b.e),
                            _kind(b.term) == "float"),
    )  # fmt: skip


def integer_helps(
    base: object, x: str, y: str, floats: bool, tile: bool = False
) -> tuple[str, ...]:
    """What to write for a power of integers that loses no digit of it; ``tile``: the exponent is
    one."""
    base_as_float = f"{base}.0" if type(base) is int and base >= 0 else f"f64({x})"
    of = y if y.replace(".", "").isidentifier() else f"({y})"
    if floats:
        return (f"write a float base: `{base_as_float} ** {y}`",)
    exact = f"multiply in a loop, which is exact: `for _ in range({y}): p *= {x}`, from `p = 1`"
    if base == 2:
        exact = f"`1 << {of}` is the same, and exact"
    elif tile:
        exact = ("multiply in a loop up to the largest exponent, which is exact:"
                 f" `p = op.where(i < {y}, p * {x}, p)`")  # fmt: skip
    return exact, f"or as a float, which is rounded: `{base_as_float} ** {of}`"


def _by_function(c: Context, span: Span, a: Operand, b: Operand) -> Term:
    """An integer exponent is exact in f64, and the power is rounded to the dtype of the base."""
    if _kind(b.term) == "int" and not isinstance(b.term, Weak):
        result: Term = a.term
        if isinstance(a.term, Weak):
            result = literal_as_float(c, b.e, a)
            settle(c, a.e, a.term, F64)
        compute = F64
    else:
        if isinstance(b.term, Weak) and isinstance(a.term, Scalar):
            settled = settle(c, b.e, b.term, F64 if a.term.dtype == F64 else F32)
            if isinstance(settled, ErrorType):
                return ERROR
            result = a.term
        else:
            result = meet(c, span, a, b)
        if not isinstance(result, (Scalar, Open)):
            return result
        compute = F64 if result == Scalar(F64) else F32
    if _pow(c, b.e, compute) is None:
        return ERROR if c.final else Unknown()
    return result


def _pow(c: Context, key: ast.Expr, dtype: DType) -> TypedFunction | None:
    """The instance of ``math.pow``, written down at the exponent."""
    scope = c.scope.scope_named("std.math")
    symbol = None if scope is None else scope.names.get("pow")
    if scope is None or not isinstance(symbol, FunctionSymbol):
        c.report("T0114", "not built yet: `**` without `std.math`", key.span)
        return None
    shared, declaration = c.functions(), symbol.declaration
    named: dict[str, Binding] = {p.name: Scalar(dtype) for p in declaration.parameters}
    memo_key = (declaration, *named.values())
    if memo_key not in shared.memo:
        shared.memo[memo_key] = shared.instantiate(shared, scope, declaration, named)
    instance, reports = shared.memo[memo_key]
    if instance is None or not instance.complete:
        if c.final:
            c.reports.extend(reports)
        return None
    if c.final:
        c.typed.second[key] = instance
    return instance
