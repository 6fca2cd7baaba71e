"""What a tile kernel is told of an array at a launch, beside dtype and rank.

Owns the classes that sizes fall into, so that nearly equal calls share code. Must not know
how arrays are held, or what is done with a fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.target.launch_plan import is_small

_FEW = (1, 8, 16)  # classes of the small sizes: what units of a machine take at a time
_DIVISORS = (128, 64, 16, 8, 4, 2)
_FEW_DIVISORS = (16, 8, 4)
_COARSE = (16, 4)
_BUCKET, _SHORT = 128, 64
WHOLE_AXIS = 131072
"""The longest axis that is a tile as a whole. A row of a device lies in the registers of a group,
or of a cluster of them; a row of a host in the caches of a core."""
CUT_AXIS = 8192
"""The same in a kernel that takes parts of arrays, or multiplies."""
Target = Literal["cpu", "cuda"]


_PARAMETER_BYTES = 4096
"""What the parameters of a kernel may take on every GPU."""
_CONSTANT_STEP = 16


def constants_by_value(ranks: Sequence[int], constants: Sequence[int]) -> tuple[bool, ...]:
    """Which parameters of a lane kernel go with a launch by value, where they are in host memory.
    ``ranks``: axes of each parameter, 0 of a number; ``constants``: bytes of each that is a `const`
    array of known sizes, else 0. The first are chosen that fit beside addresses, sizes, strides and
    numbers."""
    room = _PARAMETER_BYTES - 8 * (16 + sum(1 + 2 * rank for rank in ranks))
    chosen: list[bool] = []
    for size in constants:
        chosen.append(0 < size <= room)
        room -= -(-size // _CONSTANT_STEP) * _CONSTANT_STEP if chosen[-1] else 0
    return tuple(chosen)


ArrayClasses = tuple[tuple[int, ...], tuple[int, ...]]
"""A size of the class and a divisor, for each axis."""


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """See ``sema.typed.TensorArgument`` for what each means."""

    sizes: tuple[int | None, ...]
    hints: tuple[int, ...]
    divisors: tuple[int, ...]
    unit: int
    pitches: bool
    buckets: tuple[int | None, ...]


def array_facts(
    shape: Sequence[int | None], strides: Sequence[int] | None, element_bytes: int,
    needed: Sequence[int], whole: Sequence[int],
) -> ArrayFacts:  # fmt: skip
    """The facts of an array, whoever asks: a call, or a signature that was written.

    Strides are in elements; None for those of an array without gaps, of which some sizes may not
    be known (None). ``needed`` are the axes whose size is given, ``whole`` those of which a bound
    is, where a tile takes them as a whole."""
    known = [n for n in shape if n is not None]
    if strides is None and len(known) == len(shape):
        strides = row_major(known)
    if strides is None:
        unit, pitches = len(shape) - 1, _row_pitches(shape, element_bytes)
    else:
        unit = unit_axis(known, strides)
        pitches = _pitches(known, strides, unit, element_bytes)
    return ArrayFacts(
        tuple(n if axis in needed else None for axis, n in enumerate(shape)),
        tuple(0 if n is None else size_class(n) for n in shape),
        tuple(1 if n is None else divisor(n) for n in shape),
        unit,
        pitches,
        tuple(
            bucket(n) if axis in whole and n is not None else None for axis, n in enumerate(shape)
        ),
    )


def all_small(arrays: Sequence[tuple[Sequence[int], Sequence[int], int]], target: str) -> bool:
    """Whether 32 bits hold what is reckoned of the arrays of a lane kernel, each with its sizes,
    its strides and the bytes of an element: a fact of all or of none, which code for a GPU uses."""
    return target == "cuda" and all(is_small(*array) for array in arrays)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of an array without gaps."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def size_class(n: int) -> int:
    """A size of the same class: few up to 16, where every launch is short, and then rounded up to
    an eighth of an octave."""
    for few in _FEW:
        if n <= few:
            return few
    step = 1 << ((n - 1).bit_length() - 4)
    return -(-n // step) * step


def divisor(n: int) -> int:
    """A power of two that divides a size. Few are told apart: each makes code of its own. Of no
    elements it is 1: nothing is whole."""
    if n <= 0:
        return 1
    among = _FEW_DIVISORS if n <= _FEW[-1] else _DIVISORS
    return next((d for d in among if n % d == 0), 1)


def coarser(hints: Sequence[int], divisors: Sequence[int], level: int) -> ArrayClasses:
    """Fewer classes of the same sizes, for kernels of which there are many already. Level 0 tells
    as many apart as there are, 1 octaves and a vector, 2 nothing."""
    if level == 0:
        return tuple(hints), tuple(divisors)
    if level > 1:
        return (0,) * len(hints), (1,) * len(divisors)
    octaves = tuple([n if n <= _FEW[-1] else 1 << (n - 1).bit_length() for n in hints])
    return octaves, tuple([next((d for d in _COARSE if n % d == 0), 1) for n in divisors])


def bucket(n: int) -> int | None:
    """The capacity for a whole axis of this size; None for one that is too long for a tile."""
    if n > WHOLE_AXIS:
        return None
    return _SHORT if n <= _SHORT else -(-n // _BUCKET) * _BUCKET


def bucket_below(capacity: int) -> int:
    """What sizes of a bucket are above; 0 for the first, which holds empty axes too."""
    if capacity == _BUCKET:
        return _SHORT
    return capacity - _BUCKET if capacity and capacity % _BUCKET == 0 else 0


def size_in_bucket(capacity: int, divides: int) -> int | None:
    """The size that a bucket and a divisor leave; None where they leave several."""
    step = _SHORT if capacity in (_SHORT, _BUCKET) else _BUCKET
    return capacity if capacity % step == 0 and divides % step == 0 else None


def unit_axis(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The axis along which neighbours are next to each other; -1 where there is none.

    An axis of one element has no neighbours, and counts where no other does."""
    unit = [axis for axis, stride in enumerate(strides) if stride == 1]
    longer = [axis for axis in unit if shape[axis] > 1]
    single = [axis for axis in range(len(shape)) if shape[axis] <= 1]
    return max(longer or unit or single, default=-1)


def _row_pitches(shape: Sequence[int | None], element_bytes: int) -> bool:
    """Whether the strides of an array without gaps surely are multiples of 16 bytes."""
    pitch = element_bytes
    for n in reversed(shape[1:]):
        pitch *= 1 if n is None else n
        if pitch % 16:
            return False
    return True


def _pitches(shape: Sequence[int], strides: Sequence[int], unit: int, element_bytes: int) -> bool:
    """Whether every other stride is a positive multiple of 16 bytes."""
    return all(
        axis == unit or n <= 1 or (stride > 0 and stride * element_bytes % 16 == 0)
        for axis, (n, stride) in enumerate(zip(shape, strides, strict=True))
    )
