"""Arrays and numbers of a function that becomes a graph.

Owns what they are. Must not know what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tessera_lang.evaluate.double import Double
from tessera_lang.evaluate.value import Deferred
from tessera_lang.ir.core import TensorType, Value
from tessera_lang.record import dataclass
from tessera_lang.target.host_world import WorldFault
from tessera_lang.types.dtype import BOOL, F64, I64, U64, DType, integer_range


@dataclass(frozen=True, slots=True)
class View:
    """What an array is a part of. ``part`` gives the part of the value of ``base``, ``put`` that
    value with another part. They are None where the host program has a view of some arrays, and a
    copy of others."""

    base: GraphArray
    part: Callable[[Value], Value] | None = None
    put: Callable[[Value, Value], Value] | None = None


class GraphArray:
    """An array of the function: a value of its graph, another one when a kernel has written it.
    ``numbers``: its elements in 64 bits, if it was made of numbers, so that it takes the dtype of
    an array that it meets. ``is_given``: a caller of the function has it too; ``is_slice``: it was
    chosen of another by slices; ``is_value``: it is what a slice was when it got a name."""

    description: ClassVar[str] = "an array"
    __slots__ = ("_numbers", "_seen", "_value", "_view", "is_given", "is_slice", "is_value")

    def __init__(
        self, value: Value, numbers: Value | None = None, view: View | None = None,
        *, is_given: bool = False, is_slice: bool = False, is_value: bool = False,
    ) -> None:  # fmt: skip
        self._value = value
        self._numbers = numbers
        self._view = view
        self._seen = None if view is None else view.base.value
        self.is_given = is_given
        self.is_slice = is_slice
        self.is_value = is_value

    @property
    def value(self) -> Value:
        """As it is now. Raises WorldFault where that is not clear."""
        view = self._view
        if view is not None and view.base.value is not self._seen:
            if view.part is None:
                raise not_here("an array that may share memory with one that is written", _COPY)
            self._value, self._numbers = view.part(view.base.value), None
            self._seen = view.base.value
        return self._value

    @property
    def numbers(self) -> Value | None:
        return self._numbers if self.value is self._value else None

    @property
    def type(self) -> TensorType:
        return self.value.tensor_type

    @property
    def root(self) -> GraphArray:
        """The array that has the memory."""
        return self if self._view is None else self._view.base.root

    @property
    def has_no_gaps(self) -> bool:
        """Whether its rows stand one behind the other, for sure."""
        return self._view is None

    def store(self, value: Value) -> None:
        """Holds another value from now on, as do arrays that share its memory. Raises
        WorldFault."""
        if self._view is not None:
            if self._view.put is None:
                raise not_here("writing into an array that may be a copy", _COPY)
            self._view.base.store(self._view.put(self._view.base.value, value))
            self._seen = self._view.base.value
        self._value, self._numbers = value, None


BY_VALUE = "choose for each element: `op.where(condition, a, b)`"
_COPY = "make a copy: `op.copy(x)`"


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


def compared_in(dtype: DType, number: int) -> DType:
    """The dtype in which integers or bools are compared exactly with a number."""
    low, high = (0, 1) if dtype == BOOL else integer_range(dtype)
    if isinstance(number, bool) == (dtype == BOOL) and low <= number <= high:
        return dtype
    return dtype if dtype == U64 else I64


def strong(value: object) -> object:
    """An array as one that was not made of numbers."""
    return GraphArray(value.value) if isinstance(value, GraphArray) else value
