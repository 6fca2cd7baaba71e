"""Element types of other libraries in our words, and back.

Owns the tables. Must not import torch, cupy or jax: their dtypes are looked up by name.
ml_dtypes is imported when one of its types is first met.
"""

from __future__ import annotations

from typing import Any, TypeGuard, cast

import numpy as np

from tessera_lang.types.dtype import DTYPES, DType

Array = np.ndarray[Any, np.dtype[Any]]


def is_array(value: object) -> TypeGuard[Array]:
    """Whether a value is NumPy's array."""
    return isinstance(value, np.ndarray)


_NUMPY_NAMES: dict[str, object] = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "index": np.int64,
}  # fmt: skip
_NARROW_NAMES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


class _ToNumpy(dict[str, "np.dtype[np.generic]"]):
    """NumPy's dtype by our name; those of ml_dtypes come in when first asked for."""

    def __missing__(self, name: str) -> np.dtype[np.generic]:
        if name not in _NARROW_NAMES:
            raise KeyError(name)
        import ml_dtypes

        for ours, theirs in _NARROW_NAMES.items():
            dtype = self[ours] = np.dtype(getattr(ml_dtypes, theirs))
            FROM_NUMPY[dtype] = DTYPES[ours]
        return self[name]


TO_NUMPY = _ToNumpy(
    (name, np.dtype(kind))  # type: ignore[call-overload]
    for name, kind in _NUMPY_NAMES.items()
)
FROM_NUMPY: dict[np.dtype[np.generic], DType] = {
    dtype: DTYPES[name] for name, dtype in TO_NUMPY.items() if name != "index"
}

TORCH_NAMES: dict[str, str] = {
    "torch.bool": "bool", "torch.int8": "i8", "torch.int16": "i16", "torch.int32": "i32",
    "torch.int64": "i64", "torch.uint8": "u8", "torch.uint16": "u16", "torch.uint32": "u32",
    "torch.uint64": "u64", "torch.float16": "f16", "torch.bfloat16": "bf16",
    "torch.float32": "f32", "torch.float64": "f64", "torch.float8_e4m3fn": "f8e4m3",
    "torch.float8_e5m2": "f8e5m2",
}  # fmt: skip

# DLPack: (code, bits) of one lane.
DLPACK_CODES: dict[str, tuple[int, int]] = {
    "i8": (0, 8), "i16": (0, 16), "i32": (0, 32), "i64": (0, 64),
    "u8": (1, 8), "u16": (1, 16), "u32": (1, 32), "u64": (1, 64),
    "f16": (2, 16), "f32": (2, 32), "f64": (2, 64), "bf16": (4, 16), "bool": (6, 8),
    "f8e4m3": (10, 8), "f8e5m2": (12, 8),
}  # fmt: skip
FROM_DLPACK: dict[tuple[int, int], DType] = {
    code: DTYPES[name] for name, code in DLPACK_CODES.items()
}


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """Our dtype for NumPy's, or None (object, complex, structured, other byte order)."""
    found = FROM_NUMPY.get(dtype)
    if found is None and dtype.isbuiltin == 2 and "bf16" not in TO_NUMPY:
        _ = TO_NUMPY["bf16"]  # the type of a package: know those of ml_dtypes too
        found = FROM_NUMPY.get(dtype)
    return found


def typestr(dtype: DType) -> str:
    """The type string of the array interfaces (bf16 and f8 have none: raw bytes)."""
    numpy = TO_NUMPY[dtype.name]
    return numpy.str if numpy.kind in "biuf" and numpy.isbuiltin == 1 else f"|V{dtype.bytes}"


def dtype_name(value: object) -> str | None:
    """Our name for a dtype of NumPy, ml_dtypes or torch, given as such."""
    if isinstance(value, type) and value.__module__ != "builtins":
        try:
            value = np.dtype(value)
        except TypeError:
            return None
    if isinstance(value, np.dtype):
        found = from_numpy(cast("np.dtype[np.generic]", value))
        return found.name if found is not None else None
    return TORCH_NAMES.get(str(value)) if type(value).__module__ == "torch" else None
