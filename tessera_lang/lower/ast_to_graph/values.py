"""Arrays and numbers of a function that becomes a graph.

Owns what they are. Must not know what is done with them.
"""

from __future__ import annotations

from typing import ClassVar

from tessera_lang.evaluate.double import Double
from tessera_lang.evaluate.value import Deferred
from tessera_lang.ir.core import TensorType, Value
from tessera_lang.record import dataclass
from tessera_lang.target.host_world import WorldFault
from tessera_lang.types.dtype import BOOL, F64, I64, DType, integer_range


@dataclass(frozen=True, slots=True, eq=False)
class GraphArray:
    """An array of the function: a value of its graph. ``numbers``: its elements in 64 bits, if it
    was made of numbers, so that it takes the dtype of an array that it meets."""

    description: ClassVar[str] = "an array"
    value: Value
    numbers: Value | None = None

    @property
    def type(self) -> TensorType:
        return self.value.tensor_type


@dataclass(frozen=True, slots=True, eq=False)
class GraphNumber(Deferred):
    """A number of the function, which is not known yet: a value of rank 0, of 64 bits or a bool.
    ``double``: it is computed of elements of f64, and arrays made of it are f64 (``Double``)."""

    description: ClassVar[str] = "a number that the function computes"
    value: Value
    double: bool

    @property
    def type(self) -> TensorType:
        return self.value.tensor_type


class NotKnown(Exception):
    """An array that only a run knows."""


def not_here(what: str, *helps: str) -> WorldFault:
    """A fault for what graphs do not have."""
    return WorldFault(f"{what} is not possible in a graph", code="T0760", helps=helps)


def is_number(value: object) -> bool:
    """Whether a value is a number of the host program, known or not."""
    return isinstance(value, GraphNumber | bool | int | float)


def is_double(number: object) -> bool:
    """Whether arrays that are made of a number are f64."""
    return isinstance(number, Double) or (isinstance(number, GraphNumber) and number.double)


def number_dtype(left: DType, right: DType) -> DType:
    """The dtype of an operation of two numbers of the host program."""
    if F64 in (left, right):
        return F64
    return BOOL if left == right == BOOL else I64


def fitting(number: float, dtype: DType) -> float:
    """A number that a dtype has. Raises WorldFault."""
    fits = True
    if dtype.is_integer:
        low, high = integer_range(dtype)
        fits = not isinstance(number, float) or float(number).is_integer()
        fits = fits and low <= number <= high
    if not fits:
        raise WorldFault(f"{number!r} and an array of {dtype} do not mix", code="T0818")
    return number


def strong(value: object) -> object:
    """An array as one that was not made of numbers."""
    return GraphArray(value.value) if isinstance(value, GraphArray) else value
