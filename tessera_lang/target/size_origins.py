"""Which arrays have the sizes that a message names.

Owns the words. Must not know syntax or plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera_lang.types.shape import Dim, DimOp, Sym

Dims = Iterable[tuple[str, Sequence[Dim]]]
"""Parameters with the sizes that their annotations name."""


def help_at_edges(left: Dim, comparison: str, right: Dim, text: str) -> tuple[str, ...]:
    """What to write where a kernel needs whole tiles, of whose size ``text`` speaks by the array:
    a tile at an edge meets one that is as long there as everywhere."""
    match left, comparison, right:
        case DimOp(operator="%", right=int(step)), "==", 0 if ".shape[" in text:
            size = text.partition(" %")[0]
            return (f"the tile at the edge is shorter than what it meets here: let that be as long,"
                    f" `min({step}, {size} - i)` elements from `i` on",)  # fmt: skip
        case _:
            return ()


def where_sizes_are(names: Sequence[Dim], parameters: Dims) -> tuple[str, ...]:
    """A note that says of each size which axes of which arrays have it."""
    given = list(parameters)
    found: list[str] = []
    for name in names:
        places = [
            f"axis {axis} of `{parameter}`"
            for parameter, dims in given for axis, dim in enumerate(dims)
            if isinstance(dim, Sym) and dim == name
        ]  # fmt: skip
        if places:
            found.append(f"`{name}` is the size of {' and of '.join(places)}")
    return ("; ".join(found),) if found else ()
