"""How many numbers ``op.arange`` gives. Must not know where arrays live."""

from __future__ import annotations

import math
from fractions import Fraction

from tessera_lang.target.host_world import WorldFault
from tessera_lang.types.dtype import DType


def arange_count(start: float, stop: float, step: float, dtype: DType) -> int:
    """As many as lie from ``start`` to before ``stop``; of integers, all three are whole."""
    for what, number in (("start", start), ("end", stop), ("step", step)):
        if not math.isfinite(number):
            raise WorldFault(f"the {what} of `op.arange` is {number}, which is no number to count")
        if not dtype.is_float and number != int(number):
            raise WorldFault(
                f"the {what} of `op.arange` is {number}, and the numbers are to be {dtype}",
                helps=("use integers, or convert the result: `op.arange(...).to(dtype)`",),
            )
    if step == 0:
        raise WorldFault("`op.arange` was given a step of 0")
    if dtype.is_float:
        try:
            return max(0, math.ceil((stop - start) / step))
        except OverflowError:
            return max(0, math.ceil((Fraction(stop) - Fraction(start)) / Fraction(step)))
    return len(range(int(start), int(stop), int(step)))
