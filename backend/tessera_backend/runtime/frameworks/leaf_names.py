"""Names of what stands in the arguments of a call: ``p_w_0`` for ``p["w"][0]``.

Must not know a framework.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tessera_backend.runtime.frameworks.callee import Callee
from tessera_backend.runtime.nested_arguments import Form

_TAKEN = ("self", "cotangents", "wrt")


def word_of(text: object) -> str:
    """Letters, digits and underscores of a text."""
    return re.sub(r"\W", "_", str(text))


def leaf_names(callee: Callee, forms: tuple[Form, ...], names: tuple[str, ...]) -> list[str]:
    """A name for each leaf of the arguments, the last of which are by ``names``."""
    found: list[str] = []
    for i, form in enumerate(forms):
        parameter = callee.named(i, names, len(forms))
        for path in _paths(form):
            word = "_".join([parameter, *map(word_of, path)])
            while word in found or word in _TAKEN:
                word += "_"
            found.append(word)
    return found


def _paths(form: Form, path: tuple[object, ...] = ()) -> Iterable[tuple[object, ...]]:
    """Where the leaves of a form stand."""
    if form[0] == "leaf":
        yield path
    elif form[0] == "dict":
        for key, part in zip(form[1], form[2:], strict=True):
            yield from _paths(part, (*path, key))
    elif form[0] != "fixed":
        for i, part in enumerate(form[1:]):
            yield from _paths(part, (*path, i))


def fixed_values(form: Form) -> Iterable[object]:
    """The values in a form that are no leaves."""
    if form[0] == "fixed":
        yield form[1]
    elif form[0] != "leaf":
        for part in form[2:] if form[0] == "dict" else form[1:]:
            yield from fixed_values(part)
