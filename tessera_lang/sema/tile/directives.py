"""``schedule.*`` at the top of a tile kernel, and ``with schedule.pipeline(...)``.

Owns which values each takes, and how often and where it may stand. Must not know what a schedule
does with them.
"""

from __future__ import annotations

from math import prod

from tessera_grammar.directives import DIRECTIVES, Parameter

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema import builtins
from tessera_lang.sema.argument_binding import Bound, bind_builtin
from tessera_lang.sema.literals import settle
from tessera_lang.sema.name_values import named_symbol
from tessera_lang.sema.side_tables import Builtin, Directive
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.type import Opaque, Weak


def directive_name(c: TileContext, e: ast.Expr) -> str | None:
    """The directive that a call says, if it says one."""
    symbol = named_symbol(c, e.function) if isinstance(e, ast.Call) else None
    if isinstance(symbol, Builtin) and symbol.name.startswith("schedule."):
        name = symbol.name.removeprefix("schedule.")
        return name if name in DIRECTIVES else None
    return None


def directive(c: TileContext, e: ast.Call, name: str) -> None:
    """``schedule.name(...)`` as a statement."""
    full = f"schedule.{name}"
    if c.final:
        c.typed.symbols[e.function] = Builtin(full)
        c.note(e, Opaque("None"))
    bound = bind_builtin(e, builtins.TILE_FUNCTIONS[full], lambda _: None)
    if bound is None:
        return  # the structure check says so
    if c.loops or c.branches or c.inlined:
        c.report(
            "T0611", f"`{full}` stands at the top of a tile kernel's body", e.span,
            helps=("move it out of the loop or branch",) if not c.inlined
            else ("move it into the kernel",),
        )  # fmt: skip
        return
    for parameter in DIRECTIVES[name].parameters:
        argument = bound.get(parameter.name)
        if argument is None:
            continue
        checked = _checked(c, name, parameter, argument, _value(c, argument))
        if checked is not None:
            _add(c, parameter.attribute or name, checked, e.span)


def tile_of_product(c: TileContext, e: ast.Expr) -> None:
    """``tile_shape=`` of a product is ``schedule.tile`` of the kernel that computes it."""
    value = _value(c, e)
    if c.loops or c.branches or c.inlined:
        where = "a function that a kernel calls" if c.inlined else "a loop or a branch"
        helps = ("leave it out: the loop says how large its tiles are",)
        c.report(
            "T0611", f"`tile_shape` is of a product of whole arrays; this one is in {where}",
            e.span, helps=("move it into the kernel",) if c.inlined else helps,
        )  # fmt: skip
        return
    (parameter,) = DIRECTIVES["tile"].parameters
    checked = _checked(c, "tile", parameter, e, value)
    if checked is not None:
        _add(c, "tile", checked, e.span)


def _value(c: TileContext, e: ast.Expr) -> object:
    for part in (*(e.items if isinstance(e, ast.TupleExpr) else ()), e):
        term = c.infer(part)
        if isinstance(term, Weak):
            settle(c, part, term, INDEX)
    return c.try_value(e)


def _checked(
    c: TileContext, name: str, parameter: Parameter, e: ast.Expr, value: object
) -> int | bool | tuple[int, ...] | None:
    what = f"`{parameter.attribute or f'schedule.{name}'}`"
    if parameter.kind == "bool":
        if isinstance(value, bool):
            return value
        c.report("T0610", f"{what} takes True or False", e.span)
        return None
    if parameter.kind == "ints":
        return _shape(c, name, parameter, e, value)
    if isinstance(value, int) and not isinstance(value, bool) and value in parameter.allowed:
        return value
    c.report("T0610", f"{what} takes {parameter.wanted}", e.span,
             f"this is {value}" if value is not None else "not known at compile time")  # fmt: skip
    return None


def _shape(
    c: TileContext, name: str, parameter: Parameter, e: ast.Expr, value: object
) -> tuple[int, ...] | None:
    items: tuple[object, ...] = value if isinstance(value, tuple) else (value,)  # type: ignore[assignment]
    sizes = tuple(v for v in items if isinstance(v, int) and not isinstance(v, bool) and v > 0)
    if not items or len(sizes) != len(items):
        c.report("T0610", f"`schedule.{name}` takes positive numbers known at compile time", e.span,
                 helps=(f"write `schedule.{name}({parameter.example})`",))  # fmt: skip
        return None
    axes, product = parameter.axes or len(sizes), parameter.product or prod(sizes)
    if len(sizes) > axes or prod(sizes) > product:
        c.report("T0610", parameter.wanted, e.span)
        return None
    return sizes


def _add(c: TileContext, name: str, value: int | bool | tuple[int, ...], span: Span) -> None:
    if not c.final:
        return
    first = next((d for d in c.directives if d.name == name), None)
    if first is not None:
        c.report(
            "T0612", f"`{name}` is said twice", span, labels=(Label(first.span, "first here"),)
        )
        return
    c.directives.append(Directive(name, value, span))


def check_tile(c: TileContext) -> None:
    """``schedule.tile`` names no more axes than the kernel has."""
    said = next((d for d in c.directives if d.name == "tile"), None)
    if said is None or not isinstance(said.value, tuple):
        return
    rank = max(c.ranks, default=2 if c.products else 0)
    axes = rank + (1 if c.products else 0)
    if len(said.value) > axes:
        names = ["its rows", "its columns"][: min(rank, 2)]
        if c.products:
            names.append("the contraction")
        c.report(
            "T0614", f"`schedule.tile` says {len(said.value)} sizes, and the kernel has {axes}"
            f" {'axis' if axes == 1 else 'axes'}", said.span,
            notes=(f"they are, in order: {', '.join(names)}",) if names else (),
        )  # fmt: skip


def pipeline(c: TileContext, s: ast.With) -> bool:
    """``with schedule.pipeline(double_buffer=True):``; False: it is something else."""
    e = s.context
    if not isinstance(e, ast.Call) or named_symbol(c, e.function) != Builtin("schedule.pipeline"):
        return False
    if c.final:
        c.typed.symbols[e.function] = Builtin("schedule.pipeline")
        c.note(e, Opaque("pipeline"))
    info = builtins.TILE_FUNCTIONS["schedule.pipeline"]
    bound = bind_builtin(e, info, lambda _: None)
    if bound is not None:
        _pipeline_values(c, bound)
        if c.final:
            c.typed.arguments[e] = tuple(bound.get(p) for p in info.parameters)
    if s.target is not None:
        c.report("T0118", "`schedule.pipeline` has no value to name", s.target.span)
    return True


def _pipeline_values(c: TileContext, bound: Bound) -> None:
    for key, e in bound.items():
        value = _value(c, e)
        if key == "double_buffer" and not isinstance(value, bool):
            c.report("T0610", "`double_buffer` is True or False", e.span)
        elif key == "stages":
            _checked(c, "pipeline_stages", DIRECTIVES["pipeline_stages"].parameters[0], e, value)
