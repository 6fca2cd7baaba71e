"""``schedule.*`` at the top of a tile kernel, and ``with schedule.pipeline(...)``.

Owns which values each takes, and how often and where it may stand. Must not know what a schedule
does with them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tessera_lang.diagnostics.diagnostic import Label
from tessera_lang.sema import builtins
from tessera_lang.sema.arguments import Bound, bind_builtin
from tessera_lang.sema.literals import settle
from tessera_lang.sema.tile.calls import symbol_of
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.typed import Builtin, Directive
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import INDEX
from tessera_lang.types.type import Opaque, Weak

SWIZZLES = (0, 32, 64, 128)
MOST_STAGES = 16
MOST_WARPS = 32
MOST_CLUSTER = 16

_NUMBERS: dict[str, tuple[Callable[[int], bool], str]] = {
    "pipeline_stages": (lambda n: 1 <= n <= MOST_STAGES, f"a number from 1 to {MOST_STAGES}"),
    "vectorize": (lambda n: n in (1, 2, 4, 8, 16), "1, 2, 4, 8 or 16 elements"),
    "unroll": (lambda n: 1 <= n <= 1024, "a number from 1 to 1024"),
    "warps": (lambda n: 1 <= n <= MOST_WARPS, f"a number from 1 to {MOST_WARPS}"),
    "swizzle": (lambda n: n in SWIZZLES, "0, 32, 64 or 128 bytes"),
    "padding": (lambda n: 0 <= n <= 1024, "a number of elements from 0 to 1024"),
}

_SHAPES = {"tile": "(128, 128)", "cluster": "(2, 1)"}  # for example


def directive_name(c: TileContext, e: ast.Expr) -> str | None:
    """The directive that a call says, if it says one."""
    symbol = symbol_of(c, e.function) if isinstance(e, ast.Call) else None
    if isinstance(symbol, Builtin) and symbol.name.startswith("schedule."):
        name = symbol.name.removeprefix("schedule.")
        return name if name in builtins.DIRECTIVES else None
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
    for key, argument in bound.items():
        value = _value(c, argument)
        said = "padding" if key == "padding" else name
        checked = _checked(c, said, key, argument, value)
        if checked is not None:
            _add(c, said, checked, e.span)


def _value(c: TileContext, e: ast.Expr) -> object:
    for part in (*(e.items if isinstance(e, ast.TupleExpr) else ()), e):
        term = c.infer(part)
        if isinstance(term, Weak):
            settle(c, part, term, INDEX)
    return c.try_value(e)


def _checked(
    c: TileContext, name: str, key: str, e: ast.Expr, value: object
) -> int | bool | tuple[int, ...] | None:
    if key == "on":
        if isinstance(value, bool):
            return value
        c.report("T0610", f"`schedule.{name}` takes True or False", e.span)
        return None
    if key == "shape":
        return _shape(c, name, e, value)
    holds, wanted = _NUMBERS[name]
    if isinstance(value, int) and not isinstance(value, bool) and holds(value):
        return value
    what = "`padding`" if name == "padding" else f"`schedule.{name}`"
    c.report("T0610", f"{what} takes {wanted}", e.span,
             f"this is {value}" if value is not None else "not known at compile time")  # fmt: skip
    return None


def _shape(c: TileContext, name: str, e: ast.Expr, value: object) -> tuple[int, ...] | None:
    items: tuple[object, ...] = value if isinstance(value, tuple) else (value,)  # type: ignore[assignment]
    sizes = tuple(v for v in items if isinstance(v, int) and not isinstance(v, bool) and v > 0)
    if not items or len(sizes) != len(items):
        c.report("T0610", f"`schedule.{name}` takes positive numbers known at compile time", e.span,
                 helps=(f"write `schedule.{name}({_SHAPES[name]})`",))  # fmt: skip
        return None
    if name == "cluster" and (len(sizes) > 3 or prod(sizes) > MOST_CLUSTER):
        c.report("T0610", f"a cluster has at most 3 axes and {MOST_CLUSTER} groups", e.span)
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
    if not isinstance(e, ast.Call) or symbol_of(c, e.function) != Builtin("schedule.pipeline"):
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
            _checked(c, "pipeline_stages", "n", e, value)
