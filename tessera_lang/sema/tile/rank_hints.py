"""What to write where tiles of different ranks meet: the axes that one of them lacks.

Owns which extents fit each other, and which expression a name was given. Must not know where
tiles meet.
"""

from __future__ import annotations

from itertools import combinations

from tessera_lang.evaluate.missing_axes import described, missing_axes, reduced_axes
from tessera_lang.sema.bound_names import statements
from tessera_lang.sema.conversion_hints import Advice
from tessera_lang.sema.expression_text import is_simple, source_of
from tessera_lang.sema.kernel_clauses import names_in
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.syntax import ast
from tessera_lang.types.type import TileAxis


def rank_advice(
    c: TileContext, few: ast.Expr, axes: tuple[TileAxis, ...], wanted: tuple[TileAxis, ...]
) -> Advice:
    """Help and fix for an operand of fewer axes than what it meets."""
    made = given(c, few)

    def equal(x: TileAxis, y: TileAxis) -> bool:
        return _as_long(c, x, y) is not False

    def possible(x: TileAxis, y: TileAxis) -> bool:
        a, b = (None if t.extent is None else c.kernel.facts.value(t.extent) for t in (x, y))
        return a is None or b is None or a in (b, 1)

    found, fixes = missing_axes(few, axes, wanted, equal, made)
    if not found:
        found, fixes = missing_axes(few, axes, wanted, possible, made)
    text = source_of(few)
    text = "" if "..." in text else text if is_simple(few) else f"({text})"
    helps = described(text, found)
    kept = isinstance(few, ast.Call) and [k.name for k in few.keywords] == ["axis"]
    if kept:
        helps = (*helps, "or keep the axes of the reduction: `keepdims=True`")
    return helps, fixes


def stands_last(c: TileContext, axes: tuple[TileAxis, ...], wanted: tuple[TileAxis, ...]) -> bool:
    """Whether an operand of fewer axes stands along the last ones of what it meets, as in NumPy:
    their sizes are equal, or no other axes are known to be as long."""
    last, *others = reversed([*combinations(wanted, len(axes))])
    if all(_as_long(c, x, y) is not False for x, y in zip(axes, last, strict=True)):
        return True
    return not any(_are_as_long(c, axes, other) for other in others)


def is_reduced_over_last(
    c: TileContext, few: ast.Expr, axes: tuple[TileAxis, ...], many: ast.Expr,
    wanted: tuple[TileAxis, ...],
) -> bool:  # fmt: skip
    """Whether an operand is a reduction of what it meets, `q / op.sum(q, axis=1)`, whose other axes
    are not the last ones and as long as these."""
    rank, names = len(wanted), names_in(many) - {"op", "math"}

    def of_it(e: ast.Expr) -> bool:
        return bool(names & names_in(e))

    gone = reduced_axes(given(c, few) or few, rank, rank - len(axes), of_it)
    left = None if gone is None else [i for i in range(rank) if i not in gone]
    if left is None or left == [*range(rank - len(axes), rank)]:
        return False
    return _are_as_long(c, axes, tuple(wanted[i] for i in left))


def _are_as_long(c: TileContext, a: tuple[TileAxis, ...], b: tuple[TileAxis, ...]) -> bool:
    return all(_as_long(c, x, y) for x, y in zip(a, b, strict=True))


def _as_long(c: TileContext, x: TileAxis, y: TileAxis) -> bool | None:
    """Whether an axis fits another by its size; None where one is open."""
    known = [None if a.extent is None else c.kernel.facts.resolve(a.extent) for a in (x, y)]
    a, b = (None if k is None or c.is_open(k) else c.kernel.facts.simplify(k) for k in known)
    return None if a is None or b is None else a == b or 1 in (a, b)


def given(c: TileContext, e: ast.Expr) -> ast.Expr | None:
    """The expression that a name has its value from, where there is one only."""
    if not isinstance(e, ast.Name):
        return None
    values: list[ast.Expr] = []
    for s in statements(c.declaration.body):
        if isinstance(s, (ast.Assign, ast.AugmentedAssign)):
            target = s.target.items if isinstance(s.target, ast.TupleExpr) else (s.target,)
            if any(isinstance(t, ast.Name) and t.id == e.id for t in target):
                values.append(s.value if target == (s.target,) else e)
    return values[0] if len(values) == 1 else None
