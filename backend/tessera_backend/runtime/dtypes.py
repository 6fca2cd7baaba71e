"""Element types of other libraries in our words, and back.

Owns the tables. Must not import torch, cupy or jax: their dtypes are looked up by name.
ml_dtypes is imported when one of its types is first met.
"""

from __future__ import annotations

from typing import Any, TypeGuard, cast

import numpy as np

from tessera_lang.types.dtype import BF16, DTYPES, DType

Array = np.ndarray[Any, np.dtype[Any]]


def is_array(value: object) -> TypeGuard[Array]:
    """Whether a value is NumPy's array."""
    return isinstance(value, np.ndarray)


_PACKAGE = "ml_dtypes."
_NARROW_NAMES = {
    d.name: d.numpy.removeprefix(_PACKAGE) for d in DTYPES.values() if d.numpy.startswith(_PACKAGE)
}


class _ToNumpy(dict[str, "np.dtype[np.generic]"]):
    """NumPy's dtype by our name; those of ml_dtypes come in when first asked for."""

    def __missing__(self, name: str) -> np.dtype[np.generic]:
        if name not in _NARROW_NAMES:
            raise KeyError(name)
        import ml_dtypes

        found: dict[str, np.dtype[np.generic]] = {
            ours: np.dtype(getattr(ml_dtypes, theirs)) for ours, theirs in _NARROW_NAMES.items()
        }
        # Where another thread sees a name here, the other table has all of them.
        FROM_NUMPY.update({dtype: DTYPES[ours] for ours, dtype in found.items()})
        self.update(found)
        return found[name]


TO_NUMPY = _ToNumpy(
    (name, np.dtype(d.numpy)) for name, d in DTYPES.items() if name not in _NARROW_NAMES
)
FROM_NUMPY: dict[np.dtype[np.generic], DType] = {
    dtype: DTYPES[name] for name, dtype in TO_NUMPY.items() if name != "index"
}

TORCH_NAMES: dict[str, str] = {
    f"torch.{d.numpy.removeprefix(_PACKAGE)}": name for name, d in DTYPES.items() if name != "index"
}

# DLPack: (code, bits) of one lane.
DLPACK_CODES: dict[str, tuple[int, int]] = {
    name: (d.dlpack, d.bytes * 8) for name, d in DTYPES.items() if d.dlpack >= 0
}
FROM_DLPACK: dict[tuple[int, int], DType] = {
    code: DTYPES[name] for name, code in DLPACK_CODES.items()
}


def from_numpy(dtype: np.dtype[np.generic]) -> DType | None:
    """Our dtype for NumPy's, or None (object, complex, structured, other byte order)."""
    found = FROM_NUMPY.get(dtype)
    if found is None and dtype.isbuiltin == 2:  # of a package
        if BF16.name not in TO_NUMPY:
            _ = TO_NUMPY[BF16.name]  # know those of ml_dtypes too
        found = FROM_NUMPY.get(dtype)  # another thread may have made them known since
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
