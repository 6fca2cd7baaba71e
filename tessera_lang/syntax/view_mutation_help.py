"""A slice that has a name is a value, and so is what NumPy gives as a view of an array: what to
write where a program would change its array.

Owns the words, which are those of kernels and of the host program, and which functions are views in
NumPy. Must not know how it is found.
"""

from __future__ import annotations

from tessera_lang.record import dataclass
from tessera_lang.syntax import ast
from tessera_lang.syntax.dump import source_text

_VIEWS = frozenset((
    "broadcast_to", "diagonal", "expand_dims", "flip", "fliplr", "flipud", "matrix_transpose",
    "moveaxis", "permute_dims", "squeeze", "swapaxes", "transpose",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """``place``: the slice as it is written, ``M[0, :]``; ``over``: the array that a loop goes
    through, whose variable has the name; ``viewed``: the array of which a call is a view."""

    place: str
    over: str = ""
    viewed: str = ""


def is_view(name: str) -> bool:
    """Whether NumPy gives what a function of ``op`` gives as a view of its array."""
    return name.removeprefix("op.") in _VIEWS


def viewed_by(e: ast.Expr) -> ast.Expr | None:
    """The operand of a call that is a view of it in NumPy: of ``op.flip(x)`` and ``x.flip()``."""
    if not isinstance(e, ast.Call) or not isinstance(e.function, ast.Attribute):
        return None
    function = e.function
    if function.name not in _VIEWS:
        return None
    if not isinstance(function.value, ast.Name) or function.value.id != "op":
        return function.value
    return e.arguments[0] if e.arguments else None


def origin_of(value: ast.Expr) -> NamedSlice | None:
    """What a name holds that is given a slice, or a view; None of anything else."""
    if isinstance(value, ast.Subscript):
        return NamedSlice(source_text(value))
    viewed = viewed_by(value)
    return None if viewed is None else NamedSlice(source_text(value), "", source_text(viewed))


def changed_slice(name: str, origin: NamedSlice | None) -> str:
    """What is wrong with a store into the name, or with ``+=`` behind it."""
    what = "of a slice" if origin is None or not origin.viewed else f"of `{origin.place}`"
    return f"`{name}` is the value {what}, and the array would not change"


def helps_for_slice(name: str, operator: str, origin: NamedSlice | None) -> tuple[str, ...]:
    """``operator`` stands in front of the ``=``; empty: an element of the name is stored."""
    place = "M[i, :]" if origin is None else origin.place
    change = f"`{place} {operator}= ...`" if operator else f"`{place} = ...`"
    if origin is not None and origin.viewed:
        change = f"`{origin.viewed}[...] {operator}= ...`, with an index or a slice for each axis"
    elif origin is not None and origin.over:
        change = f"`for i in range(len({origin.over})):` and {change}"
    elif not operator:
        change = f"the element of `{place.partition('[')[0]}` itself, in one bracket"
    named = origin is not None and not origin.over
    copied = f"{name} = {place}.copy()" if named else f"new = {name}.copy()"
    new = (f"for a new value write `{name} = {name} {operator} ...`",) if operator else ()
    return (f"to change the array write {change}", *new,
            f"for an array of its own begin with a copy: `{copied}`")  # fmt: skip
