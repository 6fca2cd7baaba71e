"""``C -= e`` of an array: in place, as ``C[...] -= e``.

Owns which names mean their array there, the statement that stands for such a one, and the body with
these in their place. Must not know how a value meets its place.
"""

from __future__ import annotations

from tessera_lang.record import replace
from tessera_lang.sema.expression_text import source_of
from tessera_lang.sema.inference_types import Term
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.subscripts import root_name
from tessera_lang.syntax import ast
from tessera_lang.syntax.view_mutation_help import (
    NamedSlice,
    changed_slice,
    helps_for_slice,
    viewed_by,
)
from tessera_lang.types.shape import symbols_of
from tessera_lang.types.type import Tensor, Tile


def place_of(
    c: TileContext, s: ast.AugmentedAssign, target: ast.Name, array: Tensor
) -> tuple[ast.AugmentedAssign, ast.Subscript]:
    """``name[:, :] op= value``, which stands for ``name op= value``."""
    found = c.kernel.in_place.get(s)
    if found is None or len(found[1].items) != len(array.shape):
        span = target.span
        items = tuple(ast.SliceExpr(span, None, None, None) for _ in array.shape)
        place = ast.Subscript(span, target, items)
        found = c.kernel.in_place[s] = replace(s, target=place), place
    if c.final:
        c.typed.in_place[s] = found[0]
    return found


def refuse(c: TileContext, s: ast.AugmentedAssign, target: ast.Name, array: Tensor) -> None:
    """The array is not `mut`: NumPy would change the caller's."""
    name = target.id
    root = root_name(c, target) or name
    v = c.variables.get(root)
    parameter = v is not None and v.local.kind == "parameter"
    if parameter and v is not None and isinstance(v.type, Tensor) and v.type.mut:
        c.report(
            "T0609", f"`{name}` is `{root}` seen in another way, which `{s.operator}=` would"
            " change", target.span,
            helps=(f"change `{root}` under its own name: `{root}[...]`, with an index or a slice"
                   " for each axis",
                   f"or give the value another name: `new = {name} {s.operator} ...`"),
        )  # fmt: skip
        return
    said = {p.name for p in c.declaration.parameters if p.annotation is not None}
    mutable = f"to change it add `mut` to the parameter: `{root}: mut {_shown(c, array)}`"
    if parameter and root not in said and root == name:  # the body may write its elements
        mutable = f"to change its elements write `{name}[:] {s.operator}= ...`"
    c.report(
        "T0609", f"`{name}` names an array, which `{s.operator}=` would change", target.span,
        helps=(
            mutable if parameter
            else f"make an array of your own: `own = op.empty({name}.shape, {name}.dtype)`",
            f"or give the value another name: `new = {name} {s.operator} ...`",
        ),
    )  # fmt: skip


def note_slice(c: TileContext, name: str, value: ast.Expr, term: Term) -> None:
    """Remember of which slice of an array a name is the value: of an index, ``:`` and bounds."""
    c.slices.pop(name, None)
    viewed = _viewed(c, value)
    if viewed is not None and isinstance(term, Tile):
        c.slices[name] = NamedSlice(source_of(value), "", source_of(viewed))
    if not isinstance(value, ast.Subscript) or not isinstance(term, Tile) or not term.axes:
        return
    chosen = any(isinstance(c.terms.get(i), Tile) for i in value.items)
    if isinstance(c.terms.get(value.value), Tensor) and not chosen:
        over = source_of(value.value)
        # Nobody wrote the index of `for row in M`: it does not stand behind its array.
        looped = bool(value.items) and value.items[0].span.lo <= value.value.span.lo
        c.slices[name] = NamedSlice(f"{over}[i]", over) if looped else NamedSlice(source_of(value))


def _viewed(c: TileContext, value: ast.Expr) -> ast.Expr | None:
    """The array of which a call, or an attribute, is a view in NumPy."""
    at: ast.Expr | None = value
    while at is not None and not isinstance(c.terms.get(at), Tensor):
        match at:
            case ast.Attribute(name="T" | "mT"):
                at = at.value
            case ast.Subscript() if not any(isinstance(c.terms.get(i), Tile) for i in at.items):
                at = at.value
            case _:
                at = viewed_by(at)
    return None if at is None or isinstance(value, ast.Subscript) else at


def refuse_slice(c: TileContext, s: ast.AugmentedAssign, name: str) -> bool:
    """Reports ``r += e`` where ``r`` is the value of a slice: NumPy would change the array."""
    if name not in c.slices:
        return False
    helps = helps_for_slice(name, s.operator, c.slices[name])
    c.report("T0609", changed_slice(name, c.slices[name]), s.span, helps=helps)
    return True


def _shown(c: TileContext, array: Tensor) -> str:
    """An annotation: sizes of an array without one have names that nothing else has."""
    named = all("." not in n for d in array.shape for n in symbols_of(d))
    free = [n for n in "mnklhwabcdpqrstuvxyz" if n not in c.variables]
    free = free if len(array.shape) != 1 or "n" in c.variables else ["n"]
    sizes = ", ".join(free[: len(array.shape)])
    return str(array) if named or len(array.shape) > 6 else f"{array.dtype}[{sizes}]"


def body_in_place(
    body: tuple[ast.Stmt, ...], found: dict[ast.Stmt, ast.Stmt]
) -> tuple[ast.Stmt, ...]:
    """A body with the statements that stand for others in their place."""
    made: list[ast.Stmt] = []
    for s in body:
        match s:
            case ast.AugmentedAssign() | ast.Assign():
                made.append(found.get(s, s))
            case ast.If():
                made.append(replace(s, body=body_in_place(s.body, found),
                                    orelse=body_in_place(s.orelse, found)))  # fmt: skip
            case ast.For() | ast.While() | ast.With():
                made.append(replace(s, body=body_in_place(s.body, found)))
            case _:
                made.append(s)
    return tuple(made)
