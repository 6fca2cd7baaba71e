"""Arguments that hold several arrays (tuples, lists and dicts of them): their leaves, in order.

Owns the form of such a value, which can be a key. Must not know what is called with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from tessera_backend.runtime import scalars
from tessera_backend.runtime.arrays import describer, is_numpy

Form = tuple[Any, ...]
"""``("leaf",)``, ``("fixed", value)``, ``("tuple" | "list", *forms)``, or ``("dict", keys,
*forms)``."""

LEAF: Form = ("leaf",)


def form_of(value: object, leaves: list[Any], is_leaf: Callable[[object], bool]) -> Form:
    """The form of a value, whose leaves are appended to ``leaves``, in order."""
    if isinstance(value, tuple | list):
        items = cast("tuple[object, ...]", value)
        word = "tuple" if isinstance(value, tuple) else "list"
        return word, *[form_of(item, leaves, is_leaf) for item in items]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        return "dict", tuple(pairs), *[form_of(x, leaves, is_leaf) for x in pairs.values()]
    if not is_leaf(value):
        return "fixed", value
    leaves.append(value)
    return LEAF


def matched(form: Form, value: Any) -> list[Any]:
    """What stands in a value where the leaves of its form do."""
    if form[0] == "leaf":
        return [value]
    if form[0] == "fixed":
        return []
    parts = form[2:] if form[0] == "dict" else form[1:]
    items = [value[key] for key in form[1]] if form[0] == "dict" else value
    return [x for part, item in zip(parts, items, strict=True) for x in matched(part, item)]


def is_given(value: object) -> bool:
    """Whether a value is a leaf of arguments: an array or a number."""
    return is_array(value) or scalars.is_number(value)


def filled(form: Form, leaves: Iterator[Any]) -> Any:
    """A value of that form, of these leaves."""
    word = form[0]
    if word == "leaf":
        return next(leaves)
    if word == "fixed":
        return form[1]
    if word == "dict":
        return {key: filled(part, leaves) for key, part in zip(form[1], form[2:], strict=True)}
    items = [filled(part, leaves) for part in form[1:]]
    return tuple(items) if word == "tuple" else items


def is_nested(values: Sequence[object]) -> bool:
    """Whether an argument is a tuple, a list or a dict."""
    return any(isinstance(v, tuple | list | dict) for v in values)


def is_array(value: object) -> bool:
    """Whether a value is an array of some library."""
    return describer(value.__class__) is not None


def only_numpy(value: object) -> bool:
    """Whether all arrays in a value are NumPy's."""
    leaves: list[Any] = []
    form_of(value, leaves, is_array)
    return all(is_numpy(x.__class__) for x in leaves)


def containers(value: object) -> object:
    """What tells whether lists and dicts in a value were changed."""
    if isinstance(value, tuple | list):
        return [containers(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return [(key, containers(item)) for key, item in pairs]
    return id(value)
