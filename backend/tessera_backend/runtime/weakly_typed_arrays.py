"""Arrays of the host program that were made of numbers without a dtype.

Owns that such an array takes the dtype of an array that it meets, as a number does, as long as
nothing is stored into it; alone it has the dtype that it was made with. Must not know where arrays
live, nor the evaluator.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tessera_backend.runtime import host_array_arithmetic as arithmetic
from tessera_backend.runtime.dtypes import TO_NUMPY, Array, is_array
from tessera_lang.evaluate.double import Double
from tessera_lang.record import dataclass
from tessera_lang.target.host_world import Reduction, WorldFault
from tessera_lang.types.dtype import (
    BOOL,
    F32,
    F64,
    I32,
    I64,
    DType,
    float_of_integers,
    integer_range,
)

Numbers = Callable[[], Array]
"""The numbers of an array in 64 bits, as integers or as floats."""


@dataclass(frozen=True, slots=True)
class _Record:
    """``numbers`` is None where the array has them exactly."""

    array: weakref.ref[Array]
    numbers: Numbers | None


class NumberArrays:
    """Which arrays of a program are made of numbers."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}
        self._changed: dict[int, weakref.ref[Array]] = {}

    def add(self, array: Array, numbers: Numbers | None = None) -> None:
        """``array`` is new, and nobody else has it."""
        self._changed.pop(id(_root(array)), None)
        self._put(array, numbers)

    def add_without_dtype(self, array: Array) -> None:
        """``array`` is new: it meets others in its own dtype, though the program said none."""
        self.add(array)
        self.change(array)

    def _put(self, array: Array, numbers: Numbers | None) -> None:
        records, key = self._records, id(array)
        here = weakref.ref(array, lambda _: records.pop(key, None))
        records[key] = _Record(here, numbers)

    def has(self, array: object) -> bool:
        record = self._records.get(id(array))
        if record is None or record.array() is not array:
            return False
        root = _root(cast("Array", array))
        changed = self._changed.get(id(root))
        return changed is None or changed() is not root

    def reduced(self, kind: Reduction, array: Array, axis: int | None) -> Any:
        """A reduction of an array of numbers with all their bits; None of any other."""
        wide = self.of(array) if kind in ("sum", "mean", "min", "max") else None
        if wide is None:
            return None
        found = arithmetic.reduce(kind, wide, axis)
        return float(found) if isinstance(found, float) else found

    def had_no_dtype(self, array: Array) -> bool:
        """Whether the program said no dtype of an array, whatever was stored into it since."""
        record = self._records.get(id(array))
        return record is not None and record.array() is array

    def of(self, array: Array) -> Array | None:
        """The numbers in 64 bits; None of another array."""
        if not self.has(array):
            return None
        numbers = self._records[id(array)].numbers
        if numbers is not None:
            return numbers()
        return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)

    def _wide(self, array: Array) -> Array:
        numbers = self.of(array)
        return array.astype(np.int64) if numbers is None or _is_bools(array) else numbers

    def part(self, found: Array, array: Array, see: Callable[[Array], Array]) -> Array:
        """``found``, which has elements of ``array``: those that ``see`` gives of its numbers."""
        if found is not array and self.has(array):
            numbers = self._records[id(array)].numbers
            self._put(found, None if numbers is None else lambda: see(numbers()))
        return found

    def change(self, array: Array, value: object = None) -> None:
        """Something is stored into an array, and into all that share its memory. A number of f64
        goes into f32 only where the program says f32. Raises WorldFault."""
        if isinstance(value, Double) and array.dtype == np.float32 and self.had_no_dtype(array):
            raise WorldFault(
                "the array was made without a dtype, so it is f32, and this is a number of f64",
                code="T0818",
                helps=("make it of f64: `op.zeros(n, dtype=f64)`, or of that of another array:"
                       " `op.zeros_like(x)`",
                       "to round the number write `f32(...)`"),
            )  # fmt: skip
        root, changed = _root(array), self._changed
        if self._records and id(root) not in changed:
            key = id(root)
            changed[key] = weakref.ref(root, lambda _: changed.pop(key, None))

    def beside(self, array: Array, dtype: DType, floats: DType = F32) -> Array:
        """An array of numbers in the dtype of one that it meets, if that has them; any other array
        itself. ``floats``: what floats are that nothing gives a dtype."""
        own = arithmetic.dtype_of(array)
        if own in (dtype, BOOL) or dtype == BOOL or not self.has(array):
            return array
        wide = self.of(array)
        assert wide is not None
        if dtype.is_float:
            return arithmetic.convert(np.atleast_1d(wide), dtype).reshape(wide.shape)
        low, high = integer_range(dtype)
        whole = wide.dtype.kind == "i" or bool(np.all(wide == np.trunc(wide)))
        if own.is_float and not whole:  # beside integers
            wanted = float_of_integers(dtype, floats)
            return arithmetic.convert(np.atleast_1d(wide), wanted).reshape(wide.shape)
        if not (own.is_integer or self._records[id(array)].numbers is None) or not whole:
            return array
        fits = wide.size == 0 or (low <= wide.min() and wide.max() <= high)
        return wide.astype(TO_NUMPY[dtype.name]) if fits else array

    def met(self, a: object, b: object, floats: DType) -> tuple[object, object] | None:
        """Two operands, of which an array of numbers has the dtype of the other array; None where
        neither is one, or both are numbers."""
        x = a if is_array(a) else None
        y = b if is_array(b) else None
        if x is None or y is None or self.has(x) == self.has(y):
            return None
        if self.has(x):
            return self.beside(x, arithmetic.dtype_of(y), floats), y
        return x, self.beside(y, arithmetic.dtype_of(x), floats)

    def binary(self, operator: str, a: object, b: object, floats: DType) -> Array:
        """``a operator b``, of which at most one is an array of numbers."""
        met = self.met(a, b, floats)
        left, right = met or (a, b)
        found = arithmetic.binary(operator, left, right, floats)
        if met is not None:
            _check_that_it_fits(operator, left, right, found)
        return found

    def computed(self, operator: str, a: object, b: object) -> tuple[Array, Numbers] | None:
        """``a operator b`` of arrays of numbers and of numbers, and its own numbers; None where an
        operand is another array. Bools beside numbers are 0 and 1, which are numbers too."""
        given = [x for x in (a, b) if is_array(x)]
        counted = len(given) == 1 and operator in _ARITHMETIC
        if not all(self.has(x) or (counted and _is_bools(x)) for x in given):
            return None
        bools = all(_is_bools(x) if is_array(x) else isinstance(x, bool) for x in (a, b))
        if bools and (operator in _BITWISE or (operator in _ARITHMETIC and len(given) == 2)):
            return None  # no numbers come of these: they are what they are of any bools
        wide = [self._wide(x) if is_array(x) else x for x in (a, b)]
        if any(_has_points(x) for x in wide):
            wide = [x.astype(np.float64) if is_array(x) else x for x in wide]
        left, right = wide
        found = arithmetic.binary(operator, left, right)
        if found.dtype == np.bool_:
            return found, lambda: found
        dtypes = [arithmetic.dtype_of(x) for x in given]
        double = any(d in (F64, I64) for d in dtypes if d.is_float or found.dtype.kind == "i")
        if operator == "/" and not any(_has_points(x) for x in wide):
            double = True
        one = (F64 if double else F32) if found.dtype.kind == "f" else (I64 if double else I32)
        return arithmetic.convert(found, one), lambda: found


_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%"))
_BITWISE = frozenset(("&", "|", "^"))
"""Of two bools these give a bool."""


_EXACT = {"+": np.add, "-": np.subtract, "*": np.multiply}


def _check_that_it_fits(operator: str, left: object, right: object, found: Array) -> None:
    """An array of numbers took the dtype of another array, which no one wrote: what is computed in
    it has to have room there. NumPy, for which such numbers are i64, would not wrap. Raises
    WorldFault."""
    exact = _EXACT.get(operator)
    if exact is None or found.dtype.kind not in "iu" or found.dtype.itemsize == 8:
        return
    wide = np.int64 if operator != "*" or found.dtype.kind == "i" else np.uint64
    whole = exact(np.asarray(left, wide), np.asarray(right, wide))
    wrong = whole != found
    if not np.any(wrong):
        return
    dtype = arithmetic.dtype_of(found)
    raise WorldFault(
        f"`{operator}` gives {whole[wrong].flat[0]}, which {dtype} does not have: the numbers"
        f" beside the array of {dtype} were made without a dtype, and take its",
        code="T0818",
        helps=("convert the array first: `x.to(i64)`",
               f"to wrap, say the dtype of the numbers: `op.arange(n, dtype={dtype})`"),
    )  # fmt: skip


def numbers_of(array: Array, numbers: object) -> Callable[[], Array] | None:
    """What gives the numbers of an array in 64 bits; None where it has them exactly."""
    if numbers is None or callable(numbers):
        return cast("Callable[[], Array] | None", numbers)
    kind = np.int64 if array.dtype.kind in "iu" else np.float64
    if is_array(numbers):
        return lambda: numbers
    wide, shape = np.asarray(numbers, kind), array.shape
    if isinstance(numbers, list):
        return lambda: wide.reshape(shape)
    return lambda: np.broadcast_to(wide, shape)


def _is_bools(array: Array) -> bool:
    return array.dtype == np.bool_


def _has_points(value: object) -> bool:
    return value.dtype.kind == "f" if is_array(value) else isinstance(value, float)


def _root(array: Array) -> Array:
    base: object = array
    while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
        base = cast("object", base.base)
    return cast("Array", base)
