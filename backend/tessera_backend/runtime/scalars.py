"""Numbers as arguments: what a parameter takes, and the 64 bits that the code receives.

Python's numbers are weak, as literals are in the language: they take the parameter's type
if they fit it. NumPy's scalars have a type and widen only where nothing is lost.
Must not know plans.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from tessera_backend.runtime.call_diagnostics import NOWHERE, Place, diagnostic, error
from tessera_backend.runtime.dtypes import TO_NUMPY, from_numpy
from tessera_backend.runtime.rounding import once
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.evaluate.double import Double
from tessera_lang.types.dtype import (
    BOOL,
    DTYPES,
    F32,
    INDEX,
    DType,
    integer_range,
    widens_to,
)  # fmt: skip

_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_HALF = struct.Struct("<e")
_Q = struct.Struct("<Q")
_I = struct.Struct("<I")
_H = struct.Struct("<H")
_MASK = (1 << 64) - 1


def is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float, np.generic))


def refused(
    code: str, name: str, what: str, *helps: str, place: Place = NOWHERE, dtype: DType | None = None
) -> TesseraError:
    """A number that cannot be taken, with the line of its parameter."""
    label = "" if dtype is None else f"declared `{dtype}`"
    return error(
        diagnostic(code, f"argument `{name}` {what}", place, len(name), label, helps=helps)
    )


def natural_dtype(
    value: object, name: str, place: Place = NOWHERE, wanted: DType | None = None,
    floats: DType = F32,
) -> DType:  # fmt: skip
    """The type that a parameter without an annotation takes from a number. ``wanted``: of one with
    an annotation. ``floats``: what a float of Python's is in this call."""
    if isinstance(value, np.generic):
        kind: np.dtype[Any] = cast("Any", value).dtype
        ours = from_numpy(kind)
        if ours is None:
            what = f"is a `{kind}`, which the language does not have"
            raise refused("T0843", name, what, *_instead(kind, wanted), place=place)
        return ours
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        return INDEX
    if isinstance(value, float):
        return floats
    raise refused("T0831", name, f"is a {type(value).__name__}, not a number", place=place)


def _as_python(dtype: DType) -> str:
    """What makes a number of Python's that a dtype takes."""
    return "bool" if dtype.kind == "bool" else "float" if dtype.is_float else "int"


def _instead(kind: np.dtype[Any], wanted: DType | None) -> tuple[str, ...]:
    """What to pass for a number of NumPy's that the language does not have."""
    if kind.kind == "c":
        return ("pass its parts as two numbers: `.real` and `.imag`",)
    if kind.kind != "f":
        return ()
    return (f"convert it in the call: `{_as_python(wanted or F32)}(...)`",)


def _check_kind(value: object, dtype: DType, name: str, place: Place) -> None:
    given = natural_dtype(value, name, place, dtype)
    weak = isinstance(value, float) or not isinstance(value, np.generic)
    if weak:
        fine = given.kind == dtype.kind or dtype.kind == "float" and given.kind != "bool"
        fine = fine or (given is INDEX and dtype.is_integer)
    else:
        fine = widens_to(given, dtype)
    if not fine:
        given_as = cast("Any", value)
        found = f"NumPy {given}"
        if weak:
            found = f"{given_as.__class__.__name__} {shown(given_as)}"
        what = f"is declared {dtype}, and a {found} was given"
        told = f"convert it in the call: `{_as_python(dtype)}(...)`"
        raise refused("T0843", name, what, told, place=place, dtype=dtype)


def _integer(value: Any, dtype: DType, name: str, place: Place) -> int:
    number = int(value)
    low, high = integer_range(dtype)
    if not low <= number <= high:
        what = f"is {shown(number)}, outside of {dtype}: {low} to {high}"
        raise refused("T0843", name, what, place=place, dtype=dtype)
    return number & _MASK


def shown(value: object) -> str:
    """Not all digits of a huge integer, which Python itself refuses to write."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def _rounded_to_odd(value: Any) -> float:
    """A number from which any float narrower than f64 is rounded as from the exact one."""
    if not isinstance(value, int):
        return float(value)
    lost = max(abs(value).bit_length() - 53, 0)
    if lost > 1024 - 53:
        return math.inf if value > 0 else -math.inf
    kept = abs(value) >> lost
    odd = kept | (kept << lost != abs(value))
    return math.ldexp(odd if value > 0 else -odd, lost)


def _float_bits(value: float, dtype: DType) -> int:
    if dtype.name == "f64":
        return int(_Q.unpack(_DOUBLE.pack(value))[0])
    if dtype.name == "f32":
        return int(_I.unpack(_FLOAT.pack(value))[0])
    if dtype.name == "f16":
        return int(_H.unpack(_HALF.pack(value))[0])
    rounded = once(np.array(value, np.float64)).astype(TO_NUMPY[dtype.name])
    return int.from_bytes(rounded.tobytes(), "little")


def _float(value: Any, dtype: DType, name: str, place: Place) -> int:
    largest = dtype.largest
    number = _as_f64(value) if dtype.bits == 64 else _rounded_to_odd(value)
    # Half of the last place above the largest number still rounds down to it.
    half = largest * 2.0 ** -(dtype.mantissa + 1) if dtype.bits < 64 else 0.0
    if isinstance(value, int) or math.isfinite(number):
        if abs(number) > largest and abs(number) >= largest + half:
            what = f"is {shown(value)}, larger than the largest {dtype}, {largest!r}"
            raise refused("T0843", name, what, place=place, dtype=dtype)
        number = max(-largest, min(largest, number))
    if math.isinf(number) and not dtype.infinite:
        what = f"is infinite, and {dtype} has no infinity"
        raise refused("T0843", name, what, place=place, dtype=dtype)
    return _float_bits(number, dtype)


def _as_f64(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def encode(value: object, dtype: DType, name: str, place: Place = NOWHERE) -> int:
    """The value as ``dtype`` in the low bits of an unsigned 64-bit number. ``place``: of the
    parameter.

    Raises TesseraError where it does not fit.
    """
    # The common cases first: this runs at every launch.
    if type(value) is float and dtype is F32 and -3.4e38 < value < 3.4e38:
        return int(_I.unpack(_FLOAT.pack(value))[0])
    if type(value) is int and dtype is INDEX and -(1 << 63) <= value < 1 << 63:
        return value & _MASK
    _check_kind(value, dtype, name, place)
    if dtype.kind == "bool":
        return int(bool(value))
    if dtype.is_integer:
        return _integer(value, dtype, name, place)
    return _float(value, dtype, name, place)


def encoder(dtype_name: str, name: str, place: Place) -> Callable[[object], int]:
    """``encode`` for one parameter."""
    dtype = DTYPES[dtype_name]
    return lambda value: encode(value, dtype, name, place)


def of_array(value: object) -> int | float | bool:
    """An element of an array, or a number that was reduced of one, for the host program."""
    found = plain(value)
    return Double(found) if isinstance(value, np.float64) else found


def plain(value: object) -> int | float | bool:
    """A number as Python's own."""
    if isinstance(value, np.generic):
        number = cast("Any", value)
        found: int | float | bool = number.item() if number.dtype.kind in "biuf" else float(number)
        return found
    return cast("int | float | bool", value)
