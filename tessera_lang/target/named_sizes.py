"""Which arrays have the sizes that a message names.

Owns the words. Must not know syntax or plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera_lang.types.shape import Dim, Sym

Dims = Iterable[tuple[str, Sequence[Dim]]]
"""Parameters with the sizes that their annotations name."""


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
