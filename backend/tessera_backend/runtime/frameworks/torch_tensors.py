"""Tensors of PyTorch as the compiler and kernels have them, and back.

Owns what a leaf of an argument is, the names of sizes that torch does not know, and the memory of
tensors as arrays. Must not know operators.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Sequence
from typing import Any

from tessera_backend.runtime.arrays import describe, refuse
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.dtypes import TO_NUMPY, TORCH_NAMES, is_array
from tessera_backend.runtime.frameworks.callee import Given
from tessera_backend.runtime.staging import as_numpy
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import Dim, Sym, evaluate_dim

_TO_TORCH = {ours: name.removeprefix("torch.") for name, ours in TORCH_NAMES.items()}
_NUMPY_HAS = frozenset(
    name for name, ours in TORCH_NAMES.items() if not DTYPES[ours].numpy.startswith("ml_dtypes.")
)


@functools.cache
def torch_module() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as fault:
        raise error(diagnostic(
            "T0858", "PyTorch is not installed here",
            helps=("install it: `pip install tessera-lang[torch]`",),
        )) from fault  # fmt: skip


def is_tensor(value: object) -> bool:
    return isinstance(value, torch_module().Tensor)


def kind_of(leaf: object) -> str:
    torch = torch_module()
    if isinstance(leaf, torch.Tensor):
        return "tensor"
    if isinstance(leaf, bool | torch.SymBool):
        return "bool"
    return "int" if isinstance(leaf, int | torch.SymInt) else "float"


def is_leaf(value: object) -> bool:
    torch = torch_module()
    numbers = bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool
    return isinstance(value, torch.Tensor | numbers)


def plain(value: Any) -> Any:
    """A dtype of torch by its name."""
    return TORCH_NAMES.get(str(value), value) if isinstance(value, torch_module().dtype) else value


def layout_of(leaves: Sequence[Any]) -> Any:
    """What the outcome of a call depends on; None where a size is a name."""
    found: list[Any] = []
    for leaf in leaves:
        if is_tensor(leaf):
            shape = tuple(leaf.shape)
            if not all(type(n) is int for n in shape):
                return None
            found.append((shape, leaf.dtype))
        elif type(leaf) in (bool, int, float):
            found.append((type(leaf), leaf, repr(leaf) if not leaf else ""))
        else:
            return None
    return tuple(found)


def _our_dtype(tensor: Any, parameter: str = "") -> DType:
    name = TORCH_NAMES.get(str(tensor.dtype))
    if name is None:
        raise refuse("T0832", parameter, f"has elements of type `{tensor.dtype}`, which the "
                     "language does not have")  # fmt: skip
    return DTYPES[name]


def given_of(leaf: Any, parameter: str = "") -> Any:
    """A leaf for the compiler; what torch has as a name becomes a number."""
    if is_tensor(leaf):
        return Given(_our_dtype(leaf, parameter), tuple([int(n) for n in leaf.shape]))
    kind = {"bool": bool, "int": int, "float": float}[kind_of(leaf)]
    return kind(leaf)


class Symbols:
    """Names of the sizes of fake tensors: one for all that torch knows to be equal."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._sizes: dict[str, Any] = {}
        self._equal: dict[str, str] = {}

    def given(self, leaf: Any) -> Any:
        """A leaf whose sizes are names."""
        if not is_tensor(leaf):
            return given_of(leaf)
        return Given(_our_dtype(leaf), tuple(map(self._dim, leaf.shape)))

    def _dim(self, size: Any) -> Dim:
        if type(size) is int:
            return size
        name = self._names.setdefault(str(size), f"size{len(self._names)}")
        self._sizes.setdefault(name, size)
        while name in self._equal:
            name = self._equal[name]
        return Sym(name)

    def joined(self, refusal: str) -> bool:
        """Give sizes one name that a refusal tells apart, and that are equal now; whether there
        are such."""
        names = list(dict.fromkeys(re.findall(r"\bsize\d+\b", refusal)))
        hints = {n: getattr(self._sizes[n].node, "hint", None) for n in names if n in self._sizes}
        for name in names:
            for other in names:
                if name != other and hints.get(name) is not None and hints[name] == hints[other]:
                    self._equal[other] = name
                    return True
        return False

    def hold(self) -> None:
        """Have torch trace again where sizes with one name are not equal."""
        for other, name in self._equal.items():
            torch_module()._check(self._sizes[name] == self._sizes[other])

    def value(self, dim: Dim) -> Any:
        """A size as torch has it."""
        return evaluate_dim(dim, self._sizes)


def torch_dtype(dtype: DType) -> Any:
    return getattr(torch_module(), _TO_TORCH[dtype.name])


def device_of(leaves: Sequence[Any]) -> Any:
    """Where a call runs."""
    torch = torch_module()
    return next((x.device for x in leaves if is_tensor(x)), torch.device("cpu"))


def zeros(of: Given, leaves: Sequence[Any]) -> Any:
    """The gradient of what nothing uses."""
    return torch_module().zeros(of.shape, dtype=torch_dtype(of.dtype), device=device_of(leaves))


def check_devices(leaves: Sequence[Any], names: Sequence[str]) -> None:
    first: tuple[str, Any] | None = None
    for name, leaf in zip(names, leaves, strict=True):
        if not is_tensor(leaf):
            continue
        if first is None:
            first = name, leaf.device
        elif leaf.device != first[1]:
            raise refuse(
                "T0844", name, f"is on `{leaf.device}`, and `{first[0]}` is on `{first[1]}`",
                "bring them to one device before the call",
            )  # fmt: skip


def arrays_of(leaves: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """The arguments of a function: tensors of a GPU themselves, others as NumPy arrays of the same
    memory."""
    found: list[Any] = []
    for name, leaf in zip(names, leaves, strict=True):
        if not is_tensor(leaf):
            found.append(leaf)
        elif leaf.device.type == "cuda":
            found.append(leaf.detach())
        else:
            found.append(_as_numpy(leaf.detach(), name))
    return found


def _as_numpy(tensor: Any, name: str) -> Any:
    try:
        if str(tensor.dtype) in _NUMPY_HAS:
            return tensor.numpy()
    except (RuntimeError, TypeError):
        pass  # the description says what is wrong
    view = describe(tensor, name)
    assert view is not None
    return as_numpy(view)


def tensors_of(parts: Sequence[Any], types: Sequence[Given], leaves: Sequence[Any]) -> list[Any]:
    """What a call gave, as tensors whose memory nothing else has."""
    torch = torch_module()
    place = device_of(leaves)
    taken = {x.untyped_storage().data_ptr() for x in leaves if is_tensor(x) and x.numel()}
    found: list[Any] = []
    for part, t in zip(parts, types, strict=True):
        if is_array(part):
            tensor = _of_numpy(part, t.dtype)
        elif is_tensor(part):
            tensor = part
        else:
            tensor = torch.tensor(part, dtype=torch_dtype(t.dtype), device=place)
        tensor = tensor.contiguous()
        owns = tensor.untyped_storage()
        if tensor.numel() and (owns.data_ptr() in taken or _within(tensor, leaves)):
            tensor = tensor.clone()
        elif tensor.numel():
            taken.add(owns.data_ptr())
        found.append(tensor)
    return found


def _within(tensor: Any, leaves: Sequence[Any]) -> bool:
    """Whether the memory of a tensor is a part of that of an argument."""
    start = tensor.data_ptr()
    for leaf in leaves:
        if is_tensor(leaf) and leaf.device == tensor.device:
            storage = leaf.untyped_storage()
            if storage.data_ptr() <= start < storage.data_ptr() + storage.nbytes():
                return True
    return False


def _of_numpy(array: Any, dtype: DType) -> Any:
    """A tensor of the memory of an array."""
    torch = torch_module()
    if not array.flags.writeable or any(s < 0 for s in array.strides):
        array = array.copy()
    kind = TO_NUMPY[dtype.name]
    if kind.isbuiltin != 1:
        return torch.from_numpy(array.view(f"i{dtype.bytes}")).view(torch_dtype(dtype))
    return torch.from_numpy(array)
