"""Atomic operations: the place, the value, the scope and the order.

Owns which element types each supports. Must not know how a target does them.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema import builtins
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import OpenBuffer, Term, Unknown
from tessera_lang.sema.literals import give, is_silent
from tessera_lang.sema.shared import stored
from tessera_lang.sema.side_tables import Local
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.type import ERROR, NONE, Buffer, Scalar, Tensor

_BY_WIDTH = sorted(DTYPES.values(), key=lambda d: d.bits)
_INTEGERS = tuple(d.name for d in _BY_WIDTH if d.is_integer)
_FLOATS = tuple(d.name for d in _BY_WIDTH if d.is_float and not d.is_float8)
_SHORT_FLOATS = tuple(d.name for d in _BY_WIDTH if d.is_float8)
SUPPORTED: dict[str, tuple[str, ...]] = {
    # A sum of 8-bit floats would be rounded to 2 or 3 bits at every step.
    **dict.fromkeys(("add", "sub"), (*_INTEGERS, *_FLOATS)),
    **dict.fromkeys(("min", "max"), (*_INTEGERS, *_FLOATS, *_SHORT_FLOATS)),
    **dict.fromkeys(("and", "or", "xor"), (*_INTEGERS, "bool")),
    **dict.fromkeys(
        ("exchange", "cas", "load", "store"), (*_INTEGERS, "bool", *_FLOATS, *_SHORT_FLOATS)
    ),
}
_ORDERS = {"load": ("relaxed", "acquire"), "store": ("relaxed", "release")}


def infer_atomic(c: Context, e: ast.Call, operation: str, bound: Bound) -> Term:
    """``atomic_add(place, value, scope=, order=)`` and its family."""
    place = bound["place"]
    element = _place(c, place)
    names = {"cas": ("expected", "desired"), "load": ()}.get(operation, ("value",))
    values = [(bound[n], c.infer(bound[n])) for n in names]
    _modifiers(c, operation, bound)
    if isinstance(place, ast.Subscript) and values:
        _bare_store(c, place, values[-1][1], values[-1][0])
    if not isinstance(element, Scalar):
        return element
    if element.dtype.name not in SUPPORTED[operation]:
        return c.report(
            "T0211", f"`atomic_{operation}` does not support `{element}`", place.span,
            helps=(f"it supports {', '.join(SUPPORTED[operation])}",),
        )  # fmt: skip
    for value, term in values:
        if not give(c, value, term, element.dtype):
            _wrong_value(c, operation, value, term, element.dtype)
    return NONE if operation == "store" else element


def _bare_store(c: Context, place: ast.Subscript, value: Term, e: ast.Expr) -> None:
    if isinstance(place.value, ast.Name):
        variable = c.variables.get(place.value.id)
        if variable is not None and variable.bare is not None:
            stored(c, variable.bare, value, e.span)


def _wrong_value(c: Context, operation: str, e: ast.Expr, term: Term, dtype: DType) -> None:
    helps = (f"convert it: `{dtype}({source_of(e)})`",) if isinstance(term, Scalar) else ()
    c.report(
        "T0208", f"`atomic_{operation}` on `{dtype}` takes `{dtype}`, not `{text_of(term)}`",
        e.span, helps=helps,
    )  # fmt: skip


def _place(c: Context, place: ast.Expr) -> Term:
    """An element that may be written."""
    if not isinstance(place, ast.Subscript):
        term = c.infer(place)
        if is_silent(term):
            return term
        return c.report(
            "T0207", "an atomic works on an element of an array", place.span,
            helps=(
                f"write `{place.id}[i]`" if isinstance(place, ast.Name)
                else "write an element of an array that is `mut`, such as `counts[i]`",
            ),
        )  # fmt: skip
    term = c.infer(place)
    base = c.infer(place.value)
    if isinstance(base, OpenBuffer):
        return Unknown()
    if is_silent(base):
        return base
    if not isinstance(base, (Tensor, Buffer)):
        return term if is_silent(term) else ERROR
    if isinstance(base, Buffer) and base.space == "local":
        return c.report(
            "T0207", "an atomic works on memory that lanes share, and each has this of its own",
            place.span, f"this is `{base}`", helps=("write it without an atomic",),
        )  # fmt: skip
    writable(c, place, base)
    return term


def writable(c: Context, place: ast.Subscript, base: Tensor | Buffer) -> None:
    """Report a write to an array that may not be written.

    Writes to an annotated parameter without ``mut`` are the structure check's to report.
    """
    if not isinstance(base, Tensor) or base.mut:
        return
    root = place.value
    if isinstance(root, ast.Name):
        symbol = c.name_symbol(root.id)
        if isinstance(symbol, Local) and symbol.kind == "parameter":
            return
    name = source_of(root)
    own = f"for an array of its own begin with a copy: `{name} = x.copy()`"
    c.report(
        "T0111", f"`{name}` may not be written: its array is not `mut`", place.span,
        labels=(Label(root.span, f"this is `{base}`"),),
        helps=(own,) if isinstance(root, ast.Name) and c.typed.kernel is None else (),
    )  # fmt: skip


def _modifiers(c: Context, operation: str, bound: Bound) -> None:
    for name, allowed in (
        ("scope", builtins.SCOPES),
        ("order", _ORDERS.get(operation, builtins.ORDERS)),
    ):
        e = bound.get(name)
        if e is None:
            continue
        c.infer(e)
        value = c.try_value(e)
        if not isinstance(value, str) or value not in allowed:
            shown = ", ".join(f'"{a}"' for a in allowed)
            c.report("T0207", f"the {name} of `atomic_{operation}` is one of {shown}", e.span)
