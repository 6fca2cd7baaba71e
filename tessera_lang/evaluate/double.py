"""Numbers of the host program that have all bits of an f64.

Owns ``Double``: what an element of an array of f64 is, a reduction of one, and what is computed of
them, so that arrays made of such numbers are f64. Any other float is a literal, or was rounded to
fewer bits. Must not know arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Double(float):
    """A float that stays one of 64 bits in all arithmetic."""

    __slots__ = ()
    description = "a float"


def _kept(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def method(self: float, *others: Any) -> Any:
        result = plain(self, *others)
        return Double(result) if type(result) is float else result

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _side in (f"__{_name}__", f"__r{_name}__"):
        setattr(Double, _side, _kept(_side))
for _name in ("__neg__", "__pos__", "__abs__", "__round__"):
    setattr(Double, _name, _kept(_name))


def like(result: object, *given: object) -> object:
    """``result``, a Double where it is a float and one of the ``given`` is one."""
    if type(result) is float and any(isinstance(v, Double) for v in given):
        return Double(result)
    return result
