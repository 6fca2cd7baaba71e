"""The world of ``tesserac check``: arrays by dtype and shape, nothing is run.

Owns what is known of an array that is not there, and what is surely wrong with it. Sizes may
be ``Unknown``, and so may the dtype or the rank. Must not know statements, or how a kernel is
checked: launches are handed to a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.value import Unknown, is_unknown
from tessera_lang.record import dataclass, replace
from tessera_lang.target.arange_count import arange_count
from tessera_lang.target.host_world import (
    Filling,
    KernelReference,
    Reduction,
    ViewKind,
    WorldFault,
    common_of,
    mixing_help,
)
from tessera_lang.types.dtype import BOOL, F32, F64, I32, I64, U32, DType, mean_dtype

Size = int | Unknown
Item = object
"""A host value as an index: the evaluator passes on what the program says."""
Launch = Callable[
    [KernelReference, tuple[object, ...], Mapping[str, object], tuple[object, ...] | None], object
]
"""Checks a launch; what the kernel returns."""
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True, eq=False)
class SymbolicArray:
    """An array of which dtype and shape are known as far as the program says."""

    description: ClassVar[str] = "an array"
    dtype: DType | None
    shape: tuple[Size, ...] | None
    of_numbers: bool = False

    def __str__(self) -> str:
        dtype = self.dtype or "?"
        if self.shape is None:
            return f"{dtype}[...]"
        return f"{dtype}[{_shape_text(self.shape)[1:-1]}]"


def _has_point(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, Unknown) and value.kind != "int")


def _beside(array: SymbolicArray, dtype: DType) -> DType | None:
    """The dtype of an array beside one of another dtype."""
    if not array.of_numbers or array.dtype in (None, BOOL) or dtype == BOOL:
        return array.dtype
    return dtype


def _met(x: SymbolicArray, y: SymbolicArray) -> tuple[DType, DType]:
    """The dtypes in which two arrays meet, of which one may be of numbers."""
    assert x.dtype is not None and y.dtype is not None
    if x.of_numbers == y.of_numbers:
        return x.dtype, y.dtype
    return _beside(x, y.dtype) or x.dtype, _beside(y, x.dtype) or y.dtype


def _whole(value: object) -> bool:
    """Whether a number, or what an array holds, is an integer."""
    if isinstance(value, SymbolicArray):
        return value.dtype is not None and value.dtype.is_integer
    return isinstance(value, int) or (isinstance(value, Unknown) and value.kind == "int")


def known_dtype(dtype: object) -> DType | None:
    """A dtype as the program gives it; None where that is damaged or not known."""
    return dtype if isinstance(dtype, DType) else None


def scalar_of(dtype: DType | None) -> Unknown:
    """An element whose value is not known."""
    if dtype is None:
        return Unknown()
    return Unknown("bool" if dtype.kind == "bool" else "float" if dtype.is_float else "int")


def _sizes(shape: object) -> tuple[Size, ...] | None:
    if isinstance(shape, tuple):
        return cast("tuple[Size, ...]", shape)
    return None


class SymbolicWorld:
    """Answers as a ``World`` does, with what can be known before the program runs."""

    floats: DType = F32

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def is_array(self, value: object) -> bool:
        return isinstance(value, SymbolicArray)

    def dtype(self, array: object) -> object:
        dtype = cast("SymbolicArray", array).dtype
        return Unknown() if dtype is None else dtype

    def shape(self, array: object) -> object:
        shape = cast("SymbolicArray", array).shape
        return Unknown() if shape is None else shape

    def device(self, array: object) -> object:
        return Unknown("str")

    # --- making ------------------------------------------------------------------------

    def fill(self, kind: Filling, shape: object, dtype: object, value: object = None) -> object:
        return SymbolicArray(known_dtype(dtype), _sizes(shape))

    def of_numbers(self, array: object, numbers: object = None) -> object:
        made = cast("SymbolicArray", array)
        return SymbolicArray(made.dtype, made.shape, True)

    def beside(self, array: object, dtype: DType) -> object:
        own = cast("SymbolicArray", array)
        return SymbolicArray(_beside(own, dtype), own.shape)

    def is_of_numbers(self, array: object) -> bool:
        return isinstance(array, SymbolicArray) and array.of_numbers

    def arange(self, start: float, stop: float, step: float, dtype: object) -> object:
        if not isinstance(dtype, DType):  # damaged, as it was written
            return SymbolicArray(None, (Unknown("int"),))
        if is_unknown((start, stop, step)):
            return SymbolicArray(dtype, (Unknown("int"),))
        return SymbolicArray(dtype, (arange_count(start, stop, step, dtype),))

    def random(
        self, shape: object, dtype: DType | None, seed: int, low: float, high: float
    ) -> object:
        return SymbolicArray(known_dtype(dtype or self.floats), _sizes(shape))

    def load(self, path: str, key: str | None, dtype: DType | None) -> object:
        column = path.endswith(".csv") and key is not None
        return SymbolicArray(known_dtype(dtype), (Unknown("int"),) if column else None)

    def save(self, path: str, arrays: dict[str, object]) -> None:
        return None

    # --- items -------------------------------------------------------------------------

    def read(self, array: object, items: tuple[Item, ...]) -> object:
        source = cast("SymbolicArray", array)
        if any(isinstance(i, SymbolicArray) for i in items):
            return _where(source, items)
        if source.shape is None or any(isinstance(i, Unknown) and i.kind == "any" for i in items):
            whole = all(isinstance(i, int) for i in items) and source.shape is not None
            return scalar_of(source.dtype) if whole else Unknown()
        sizes = self._indexed(source, items)
        if sizes:
            return SymbolicArray(source.dtype, sizes, source.of_numbers)
        full = len([i for i in items if i is not None]) == len(source.shape)
        return scalar_of(source.dtype) if full else SymbolicArray(source.dtype, ())

    def _indexed(self, source: SymbolicArray, items: tuple[Item, ...]) -> tuple[Size, ...]:
        shape = source.shape or ()
        used = len([i for i in items if i is not None])
        if used > len(shape):
            axes = "axis" if len(shape) == 1 else "axes"
            raise WorldFault(
                f"{used} indices, and the array {source} has {len(shape)} {axes}", code="T0807"
            )
        sizes: list[Size] = []
        axis = 0
        for item in items:
            if item is None:
                sizes.append(1)
                continue
            size = shape[axis]
            if isinstance(item, slice):
                sizes.append(_sliced(cast("slice[Any, Any, Any]", item), size))
            elif isinstance(item, int) and isinstance(size, int) and not -size <= item < size:
                raise WorldFault(
                    f"index {item} is outside of axis {axis}, which has size {size}", code="T0807"
                )
            elif not isinstance(item, (int, Unknown)):
                raise WorldFault(f"an index is an integer, not {kind_of(item)}", code="T0807")
            axis += 1
        return (*sizes, *shape[axis:])

    def named(self, array: object) -> object:
        return array

    def value_of(self, array: object) -> object:
        return None

    def release(self, array: object) -> None:
        pass

    def viewed(self, array: object, of: object) -> object:
        return array

    def shares(self, a: object, b: object) -> bool:
        return False

    def write(self, array: object, items: tuple[Item, ...], value: object) -> None:
        source = cast("SymbolicArray", array)
        if not isinstance(value, (int, float, Unknown, SymbolicArray)):
            raise WorldFault(f"an array does not hold {kind_of(value)}", code="T0818")
        if source.shape is None or any(isinstance(i, Unknown) and i.kind == "any" for i in items):
            return
        if any(isinstance(i, SymbolicArray) for i in items):
            return  # what bools or places choose
        sizes = self._indexed(source, items)
        if isinstance(value, SymbolicArray) and value.shape is not None:
            _agree(sizes, value.shape, "the place", "the value")

    # --- arithmetic --------------------------------------------------------------------

    def unary(self, operator: str, a: object) -> object:
        return replace(cast("SymbolicArray", a))  # another array, which may change by itself

    def binary(self, operator: str, a: object, b: object) -> object:
        arrays = [x for x in (a, b) if isinstance(x, SymbolicArray)]
        for other in (a, b):
            if not isinstance(other, (int, float, Unknown, SymbolicArray)):
                raise WorldFault(f"`{operator}` does not take an array and {kind_of(other)}",
                                 code="T0818")  # fmt: skip
        dtype, shape = arrays[0].dtype, arrays[0].shape
        if len(arrays) == 1 and dtype is not None and dtype.is_integer:
            dtype = None if any(_has_point(x) for x in (a, b)) else dtype
        if operator == "/" and all(_whole(x) for x in (a, b)):
            dtype = F64
        elif dtype == BOOL and operator in ("+", "-", "*", "/") and len(arrays) == 1:
            dtype = None
        if len(arrays) == 2:
            x, y = arrays
            if x.dtype is not None and y.dtype is not None:
                left, right = _met(x, y)
                quotient = operator == "/" and _whole(x) and _whole(y)
                dtype = F64 if quotient else common_of(operator, left, right)
                if dtype is None:
                    raise WorldFault(
                        f"`{operator}` of {x.dtype} and {y.dtype} could lose bits", code="T0818",
                        helps=mixing_help(x.dtype, y.dtype),
                    )  # fmt: skip
            else:
                dtype = None
            shape = None
            if x.shape is not None and y.shape is not None:
                shape = _agree(x.shape, y.shape, "the left", "the right")
        weak = all(x.of_numbers for x in arrays)
        if weak and dtype is not None and dtype.is_integer:
            dtype = None if any(_has_point(x) for x in (a, b)) else dtype
        return SymbolicArray(BOOL if operator in _COMPARISONS else dtype, shape, weak)

    def reduce(self, kind: Reduction, array: object, axis: object) -> object:
        source = cast("SymbolicArray", array)
        dtype = _reduced_dtype(kind, source.dtype)
        if axis is None:
            return scalar_of(dtype)
        if source.shape is None or not isinstance(axis, int):
            return SymbolicArray(dtype, None)
        rank = len(source.shape)
        if not -rank <= axis < rank:
            raise WorldFault(
                f"axis {axis} of the array {source}, which has rank {rank}", code="T0807"
            )
        at = axis % rank
        return SymbolicArray(dtype, (*source.shape[:at], *source.shape[at + 1 :]))

    def convert(self, array: object, dtype: DType) -> object:
        return SymbolicArray(known_dtype(dtype), cast("SymbolicArray", array).shape)

    def view(self, kind: ViewKind, array: object, shape: object = ()) -> object:
        source = cast("SymbolicArray", array)
        if kind == "contiguous" or (source.shape is None and kind != "reshape"):
            return source
        if kind == "reshape":
            sizes = _reshaped(source, _sizes(shape))
            return SymbolicArray(source.dtype, sizes, source.of_numbers)
        sizes = source.shape or ()
        if len(sizes) < 2 or (kind == "T" and len(sizes) != 2):
            needs = "rank 2" if kind == "T" else "rank 2 or more"
            raise WorldFault(f"`.{kind}` takes an array of {needs}, not {source}", code="T0833")
        return SymbolicArray(source.dtype, (*sizes[:-2], sizes[-1], sizes[-2]), source.of_numbers)

    def truth(self, array: object) -> bool:
        raise WorldFault("an array of unknown content is neither true nor false")

    def text(self, array: object, format: str = "") -> str:
        return str(array)

    # --- effects -----------------------------------------------------------------------

    def launch(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[object, ...] | None,
    ) -> object:  # fmt: skip
        return self._launch(kernel, arguments, constants, groups)

    def print(self, text: str) -> None:
        return None

    def finish(self) -> None:
        return None


def _where(source: SymbolicArray, items: tuple[Item, ...]) -> SymbolicArray:
    """What bools choose; how many, the run knows."""
    (mask, *others) = items
    if not others and isinstance(mask, SymbolicArray) and mask.shape and source.shape:
        axes = len(mask.shape)
        if axes > len(source.shape):
            raise WorldFault(f"bools of rank {axes} for the array {source}", code="T0807")
        _agree(mask.shape, source.shape[:axes], "the bools", "the array")
        return SymbolicArray(source.dtype, (Unknown("int"), *source.shape[axes:]))
    return SymbolicArray(source.dtype, None)


def _sliced(item: slice[Any, Any, Any], size: Size) -> Size:
    if isinstance(size, Unknown):
        return size
    return len(range(*item.indices(size)))


def _agree(a: tuple[Size, ...], b: tuple[Size, ...], left: str, right: str) -> tuple[Size, ...]:
    """The shape in which two meet along their last axes; a size 1 stretches."""
    rank = max(len(a), len(b))
    a, b = ((1,) * (rank - len(s)) + s for s in (a, b))
    sizes: list[Size] = []
    for axis, (x, y) in enumerate(zip(a, b, strict=True)):
        if isinstance(x, int) and isinstance(y, int) and x != y and 1 not in (x, y):
            raise WorldFault(
                f"axis {axis}: {left} has size {x} and {right} has size {y}", code="T0834"
            )
        sizes.append(y if x == 1 or isinstance(x, Unknown) else x)
    return tuple(sizes)


def _reduced_dtype(kind: Reduction, dtype: DType | None) -> DType | None:
    if kind in ("all", "any"):
        return BOOL
    if kind in ("argmin", "argmax"):
        return I64
    if dtype is None or kind in ("min", "max"):
        return dtype
    if kind == "mean":
        return mean_dtype(dtype)
    if dtype.kind in ("bool", "int") and dtype.bits < 32:
        return I32
    return U32 if dtype.kind == "uint" and dtype.bits < 32 else dtype


def _reshaped(source: SymbolicArray, shape: tuple[Size, ...] | None) -> tuple[Size, ...] | None:
    if shape is None:
        return None
    sizes: list[Size] = list(shape)
    if len([s for s in sizes if s == -1]) > 1:
        raise WorldFault("a reshape infers one size, not several", code="T0834")
    total = _product(source.shape)
    rest = _product(tuple(s for s in sizes if s != -1))
    if -1 in sizes:
        inferred: Size = Unknown("int")
        if total is not None and rest is not None:
            if rest == 0 or total % rest:
                raise WorldFault(f"{source} cannot be seen as {_shape_text(shape)}", code="T0834")
            inferred = total // rest
        sizes[sizes.index(-1)] = inferred
    elif total is not None and rest is not None and total != rest:
        raise WorldFault(
            f"{source} has {total} elements and the shape {_shape_text(shape)} has {rest}",
            code="T0834",
        )
    return tuple(sizes)


def _shape_text(shape: tuple[Size, ...]) -> str:
    return f"({', '.join('?' if isinstance(s, Unknown) else str(s) for s in shape)})"


def _product(shape: tuple[Size, ...] | None) -> int | None:
    if shape is None:
        return None
    total = 1
    for size in shape:
        if isinstance(size, Unknown):
            return None
        total *= size
    return total
