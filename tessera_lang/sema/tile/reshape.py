"""``op.reshape(x, shape)`` and ``op.ravel(x)`` of arrays: the same memory with other sizes.

Owns what is refused: what is no array of the call, or is written, or has gaps. Must not know how
the memory is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tessera_lang.record import replace
from tessera_lang.sema.argument_binding import Bound
from tessera_lang.sema.context import text_of
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term, Unknown
from tessera_lang.sema.literals import is_silent
from tessera_lang.sema.side_tables import Local, TensorArgument
from tessera_lang.sema.tile.array_creation import shape_items, shape_of_array
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.operators import is_waiting
from tessera_lang.sema.tile.reductions import index_argument
from tessera_lang.sema.tile.shapes import agree
from tessera_lang.sema.tile.size_normal_form import described, normal
from tessera_lang.sema.tile.subscripts import as_tile, read, whole_axis
from tessera_lang.sema.tile.symbolic import dim_of
from tessera_lang.syntax import ast
from tessera_lang.types.shape import Dim, DimOp, symbols_of
from tessera_lang.types.type import Scalar, Tensor, Tile, Weak

_IN_FRONT = "the host program can: `op.reshape(x, (m, n))` in front of the call, or of its result"


def _product(dims: Sequence[Dim]) -> Dim:
    known = prod(d for d in dims if isinstance(d, int))
    found: Dim = known
    for dim in dims:
        if not isinstance(dim, int):
            found = dim if found == 1 else normal(DimOp("*", found, dim))
    return found


def reshape(c: TileContext, e: ast.Call, bound: Bound) -> Term:
    """The array with other sizes: ``op.reshape(x, (m, -1))``."""
    base = c.infer(bound["x"])
    shape = bound.get("shape")
    dims: list[Dim] | None = [-1] if shape is None else _sizes(c, shape)
    if is_silent(base):
        return base
    if isinstance(base, Tensor) and not _is_row_major(c, bound["x"]):
        if c.in_tile_loop:
            return _no_copy(c, bound["x"])
        base = as_tile(c, bound["x"], base)  # what it holds now, row by row
    if isinstance(base, Tile) and base.axes:
        return _computed(c, e, bound, base, dims)
    if not isinstance(base, Tensor):
        return c.report(
            "T0207", f"`op.reshape` in a tile kernel takes an array, not `{text_of(base)}`",
            bound["x"].span,
            helps=("an array of one number is made by `op.full((1,), number)`",)
            if isinstance(base, Scalar | Weak) else (),
        )  # fmt: skip
    if dims is None:
        return c.nothing()
    total = _product([c.kernel.facts.resolve(d) for d in base.shape])
    found = _inferred(c, e, bound, dims, total)
    if found is None:
        return c.nothing()
    read(c, bound["x"])
    sizes = c.kernel.shapes.setdefault(e, tuple(found))
    if c.final:
        c.typed.reshaped[e] = sizes
        c.reshaped.append((_root(c, bound["x"]), e.span))
    return replace(base, shape=sizes, mut=False)


def _computed(
    c: TileContext, e: ast.Call, bound: Bound, base: Tile, dims: list[Dim] | None
) -> Term:
    """A computed value with other sizes: it is stored into an array of the call first."""
    extents = [None if a.extent is None else c.kernel.facts.resolve(a.extent) for a in base.axes]
    of_launch = all(
        d is not None and all(n in c.kernel.origins for n in symbols_of(d)) for d in extents
    )
    if not of_launch or c.in_tile_loop or is_waiting(base):
        if is_waiting(base) and not c.final:
            return Unknown()
        return c.report(
            "T0207", f"`op.reshape` takes a whole value here, not `{text_of(base)}`",
            bound["x"].span, "this is part of one, or made in a loop over tiles",
            helps=("reshape in front of the loop, or the arrays that it is computed of",
                   "or store it into an array, and read that in the order that is meant"),
        )  # fmt: skip
    if dims is None:
        return c.nothing()
    found = _inferred(c, e, bound, dims, _product([d for d in extents if d is not None]))
    if found is None:
        return c.nothing()
    sizes = c.kernel.shapes.setdefault(e, tuple(found))
    if c.final:
        c.typed.reshaped[e] = sizes
    return Tile(base.dtype, tuple(whole_axis(c, d, room=False) for d in sizes), base.wide)


def _sizes(c: TileContext, shape: ast.Expr) -> list[Dim] | None:
    """Sizes of the launch, of which one may be -1."""
    given = shape_of_array(c, shape)
    places = [shape] * len(given) if given is not None else shape_items(shape)
    dims: list[Dim] = []
    for i, item in enumerate(places):
        if is_silent(c.infer(item)):
            return None
        value = None
        if given is None:
            index_argument(c, item)
            value = c.try_value(item)
        place = given[i] if given is not None else dim_of(c, item)
        dim: Dim = value if isinstance(value, int) else c.kernel.facts.simplify(place)
        names = symbols_of(dim)
        if not all(n in c.kernel.origins for n in names) or (isinstance(dim, int) and dim < -1):
            c.report("T0608", "a size of `op.reshape` is known at the launch", item.span,
                     helps=("make it of sizes of arrays and of numbers",))  # fmt: skip
            return None
        dims.append(dim)
    if isinstance(shape, ast.TupleExpr):
        c.infer(shape)
    return dims


def _inferred(
    c: TileContext, e: ast.Call, bound: Bound, dims: list[Dim], total: Dim
) -> list[Dim] | None:
    """The sizes with that in the place of -1; as many elements as before, or the launch says no."""
    left = [i for i, d in enumerate(dims) if d == -1]
    if len(left) > 1:
        c.report("T0311", "`op.reshape` infers one size, not several", e.span)
        return None
    rest = _product([d for d in dims if d != -1])
    if left and rest == 1:
        return [total if d == -1 else d for d in dims]
    if left and isinstance(total, int) and isinstance(rest, int):
        good = rest > 0 and total % rest == 0
        made: Dim = total // max(rest, 1)
    elif left:
        made = normal(DimOp("//", total, rest))
        good = agree(c, normal(DimOp("*", made, rest)), total, e.span)
    else:
        made, good = rest, agree(c, rest, total, e.span)
    if not good:
        c.report(
            "T0601", f"`op.reshape` keeps all elements: `{source_of(bound['x'])}` has"
            f" {described(total)}, not {described(rest)}", e.span,
        )  # fmt: skip
        return None
    return [made if d == -1 else d for d in dims]


def _root(c: TileContext, x: ast.Expr) -> str:
    return c.aliases.get(x.id, x.id) if isinstance(x, ast.Name) else ""


def _is_row_major(c: TileContext, x: ast.Expr) -> bool:
    """Whether an array is one of the call without gaps, which a signature says. One that the kernel
    makes may be written again, and is not seen under another name."""
    symbol = c.name_symbol(x.id) if isinstance(x, ast.Name) else None
    names = [p.name for p in c.declaration.parameters]
    if c.inlined or not isinstance(symbol, Local) or symbol.name not in names:
        return False
    fact = c.typed.signature[names.index(symbol.name) - len(names)]
    return not isinstance(fact, TensorArgument) or fact.contiguous


def _no_copy(c: TileContext, x: ast.Expr) -> Term:
    return c.report(
        "T0207", "`op.reshape` in a loop over tiles takes a parameter of the kernel whose elements"
        " stand row by row, by its name", x.span,
        helps=("reshape in front of the loop", _IN_FRONT),
    )  # fmt: skip


def check_reshaped(c: TileContext) -> None:
    """An array that is seen with other sizes is not written, under either name."""
    for name, _ in c.reshaped:
        for found in (*c.writes, *c.sums):
            if found.array == name:
                c.report(
                    "T0621", f"`{name}` is written, and read with another shape", found.span,
                    "written here", helps=("reshape it in front of the call: `op.reshape(...)`",),
                )  # fmt: skip
                break
