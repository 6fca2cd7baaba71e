"""``print`` in kernels: text and numbers.

Owns what may be printed. Must not know how lines leave a lane.
"""

from __future__ import annotations

from tessera_lang.sema.context import Context, text_of
from tessera_lang.sema.inference_types import Open, Term
from tessera_lang.sema.literals import is_silent, settle_default
from tessera_lang.syntax import ast
from tessera_lang.types.type import NONE, STR, Scalar, Tile, Weak

MOST_VALUES = 32
"""Numbers in one line."""


def infer_print(c: Context, e: ast.Call) -> Term:
    """``print(...)``: strings, f-strings of numbers, numbers."""
    count = 0
    for argument in e.arguments:
        if isinstance(argument, ast.FString):
            c.note(argument, STR)
            values = [p for p in argument.parts if isinstance(p, ast.FormattedValue)]
            count += sum(_printable(c, v.value) for v in values)
            for v in values:
                _check_format(c, v)
        else:
            count += _printable(c, argument)
    if count > MOST_VALUES:
        c.report(
            "T0207", f"one `print` in a kernel takes {MOST_VALUES} numbers at most, not {count}",
            e.span, helps=("print them in several lines",),
        )  # fmt: skip
    return NONE


def _printable(c: Context, e: ast.Expr) -> bool:
    """Types one part of a line; whether the lane has to send a number for it."""
    term = c.infer(e)
    if is_silent(term) or isinstance(e, ast.StringLit) or isinstance(c.try_value(e), str):
        return False
    if isinstance(term, (Scalar, Weak, Open)):
        settle_default(c, e, term)
        return True
    if isinstance(term, Tile) and not term.axes:
        return True  # one number that is not rounded yet
    c.report(
        "T0207", f"`print` in a kernel takes text and numbers, not `{text_of(term)}`", e.span,
        helps=("print elements: `print(x[i])`",),
    )  # fmt: skip
    return False


def _check_format(c: Context, part: ast.FormattedValue) -> None:
    """A format must fit the kind of number it is for."""
    term = c.infer(part.value)
    value = c.try_value(part.value)
    sample: object = 1
    if isinstance(value, str):
        sample = value
    elif term == Weak("float") or (isinstance(term, (Scalar, Tile)) and term.dtype.is_float):
        sample = 1.0
    elif not isinstance(term, (Scalar, Weak, Open, Tile)):
        return
    try:
        f"{sample:{part.format}}"
    except ValueError:
        c.report("T0207", f"the format `{part.format}` does not fit `{text_of(term)}`", part.span)
