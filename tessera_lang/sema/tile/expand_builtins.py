"""Calls that stand for an expression: ``op.square(x)`` is ``x * x``.

Owns that the expression is one tree in every walk, and that an argument used several times is
typed and computed once. Must not know what the names stand for
(``evaluate/expansion_texts.py``).
"""

from __future__ import annotations

import math

from tessera_grammar.array_function_names import ARRAY_NAMES

from tessera_lang.evaluate.expansion_texts import DERIVED, OF_BOOLS, text_of
from tessera_lang.evaluate.foreign_names import OTHER_AXES
from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of as type_text
from tessera_lang.sema.conversion_hints import float_beside, float_for
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted
from tessera_lang.types.dtype import BOOL, F32, INDEX, DType
from tessera_lang.types.type import Scalar, Tensor, Tile, Weak


def is_derived(name: str) -> bool:
    return name.removeprefix("op.") in DERIVED


def _needed(member: str) -> list[str]:
    """The parameters that a call has to say."""
    one = ARRAY_NAMES.get(member)
    return [] if one is None else one.parameters.split()[: one.required]


def derived(c: TileContext, e: ast.Call, name: str, bound: Bound) -> Term:
    """A call of ``op.name``, typed as what it stands for."""
    member = name.removeprefix("op.")
    given: Bound = {}
    for n, argument in bound.items():
        if not isinstance(argument, ast.NoneLit):
            given[n] = argument
        elif n in _needed(member):
            return c.report("T0205", f"`{name}` takes an array as `{n}`, not None", argument.span)
    first = next(iter(given.values()))
    dtype = F32
    if not isinstance(first, (ast.TupleExpr, ast.ListExpr)):
        term = c.infer(first)
        if is_silent(term):
            for argument in given.values():
                c.infer(argument)
            return term
        if isinstance(term, (Tile, Tensor, Scalar)):
            dtype = term.dtype
        number = c.try_value(first) if member == "signbit" and isinstance(term, Weak) else None
        if isinstance(number, (int, float)):
            return expand(c, e, "-1 < 0" if math.copysign(1.0, number) < 0 else "1 < 0", {})
    if member == "clip" and len(given) == 1:
        return c.report("T0105", "`op.clip` needs `min=`, `max=` or both", e.span)
    if member in OF_BOOLS:
        for argument in given.values():
            term = c.infer(argument)
            if isinstance(term, (Tile, Tensor, Scalar)) and term.dtype != BOOL:
                return c.report(
                    "T0205", f"`{name}` takes bools, not `{type_text(term)}`", argument.span,
                    helps=(f"write `{source_of(argument)} != 0`",),
                )  # fmt: skip
    if member in ("copysign", "reciprocal") and not dtype.is_float and dtype != INDEX:
        if (found := in_floats(c, e, name, dtype, given)) is not None:
            return found
        to = float_for(c, dtype)
        return c.report("T0207", f"`{name}` takes floats, not `{dtype}`", first.span,
                        helps=(f"convert it: `{source_of(first)}.to({to})`",))  # fmt: skip
    ranks = {n: _rank(c, a) for n, a in given.items()}
    if not all(ranks[n] is not None for n in ranks):
        return c.nothing()
    text = text_of(member, given.keys(), dtype, {n: r for n, r in ranks.items() if r is not None})
    if not text:
        form = OTHER_AXES.get(member)
        return c.report("T0604", f"`{name}` takes no arrays of so many axes", e.span,
                        helps=(form,) if form else ())  # fmt: skip
    before = len(c.reports)
    term = expand(c, e, text, given)
    inner = text.partition("(")[0]
    for i, d in enumerate(c.reports[before:], before):  # the program has not written the inner name
        c.reports[i] = replace(d, message=d.message.replace(f"`{inner}`", f"`{name}`"))
    return term


def _rank(c: TileContext, e: ast.Expr) -> int | None:
    """The axes of an argument, or of the first of several; None: not known yet."""
    if isinstance(e, (ast.TupleExpr, ast.ListExpr)):
        first = e.items[0] if e.items else None
        if isinstance(first, (ast.TupleExpr, ast.ListExpr)):  # a list of numbers is an array
            rank = _rank(c, first)
            return None if rank is None else rank + 1
        return 1 if first is None else _rank(c, first)
    match c.infer(e):
        case Tile(axes=axes):
            return len(axes)
        case Tensor(shape=shape):
            return len(shape)
        case term:
            return None if is_silent(term) else 0


def expand(c: TileContext, e: ast.Expr, text: str, given: Bound) -> Term:
    """The type of ``text`` with arguments in it: what a call or a subscript stands for."""
    found = c.kernel.expanded.get(e)
    if found is None or found[0] != text:

        def several(name: str, argument: ast.Expr) -> ast.Expr:
            copy = ast.Name(argument.span, source_of(argument))
            c.kernel.stands[copy] = argument
            return copy

        found = c.kernel.expanded[e] = text, substituted(text, given, e.span, several)
    made = found[1]
    term = c.infer(made)
    if c.final:
        c.typed.expanded[e] = made
    if c.is_known(made):
        value = c.try_value(made)
        if value is not None:
            c.set_value(e, value)
    return term


def in_floats(
    c: TileContext, e: ast.Expr, name: str, dtype: DType, bound: Bound
) -> Term | None:  # fmt: skip
    """The type of a function of floats whose first argument is of integers, which become floats
    by themselves; None where a cast has to say so."""
    floats = float_beside(c, dtype) if dtype.is_integer else None
    if floats is None:
        return None
    first, *rest = bound
    more = "".join(f", {n}={n}" for n in rest)
    return expand(c, e, f"{name}(op.cast({first}, {floats}){more})", bound)


def argument_of(c: TileContext, e: ast.Name) -> Term | None:
    """The type of what a name made here stands for; None: it is a name of the program."""
    given = c.kernel.stands.get(e)
    if given is None:
        return None
    if c.final:
        c.typed.stands[e] = given
    term = c.infer(given)
    if c.is_known(given):
        value = c.try_value(given)
        if value is not None:
            c.set_value(e, value)
    return term
