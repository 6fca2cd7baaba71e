"""What the launch looks at before the kernel runs: equal sizes, and bounds.

Owns their text. Must not know which facts are needed.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.sema.side_tables import Agreement
from tessera_lang.sema.tile.context import TileContext
from tessera_lang.sema.tile.size_normal_form import described
from tessera_lang.source import Span
from tessera_lang.types.shape import Dim, DimOp, Sym


def promise(
    c: TileContext, left: Dim, right: Dim, span: Span, operator: Literal["==", "<="] = "=="
) -> None:
    """Equal (or no more) at the launch, or the launch is refused."""
    if (left, right) not in c.kernel.agreements:
        text = f"{_named(c, left)} {operator} {_named(c, right)}"
        c.kernel.agreements[(left, right)] = Agreement(left, right, text, span, operator)
        c.kernel.changed = True


def _named(c: TileContext, dim: Dim) -> str:
    """A size with the arrays it belongs to."""
    return described(_renamed(c, dim))


def _renamed(c: TileContext, dim: Dim) -> Dim:
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        array, axis = c.kernel.origins[dim.name]
        factor = next((m.factor for m in c.kernel.multiples if m.name == dim.name), 1)
        size = Sym(f"{array}.shape[{axis}]")
        return size if factor == 1 else DimOp("//", size, factor)
    return DimOp(dim.operator, _renamed(c, dim.left), _renamed(c, dim.right))
