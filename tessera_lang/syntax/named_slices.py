"""A slice that has a name is a value: what to write where a program would change its array.

Owns the words, which are those of kernels and of the host program. Must not know how it is found.
"""

from __future__ import annotations

from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class NamedSlice:
    """``place``: the slice as it is written, ``M[0, :]``; ``over``: the array that a loop goes
    through, whose variable has the name."""

    place: str
    over: str = ""


def changed_slice(name: str) -> str:
    """What is wrong with a store into the name, or with ``+=`` behind it."""
    return f"`{name}` is the value of a slice, and the array would not change"


def helps_for_slice(name: str, operator: str, origin: NamedSlice | None) -> tuple[str, ...]:
    """``operator`` stands in front of the ``=``; empty: an element of the name is stored."""
    place = "M[i, :]" if origin is None else origin.place
    change = f"`{place} {operator}= ...`" if operator else f"`{place} = ...`"
    if origin is not None and origin.over:
        change = f"`for i in range(len({origin.over})):` and {change}"
    elif not operator:
        change = f"the element of `{place.partition('[')[0]}` itself, in one bracket"
    named = origin is not None and not origin.over
    copied = f"{name} = {place}.copy()" if named else f"new = {name}.copy()"
    new = (f"for a new value write `{name} = {name} {operator} ...`",) if operator else ()
    return (f"to change the array write {change}", *new,
            f"for an array of its own begin with a copy: `{copied}`")  # fmt: skip
