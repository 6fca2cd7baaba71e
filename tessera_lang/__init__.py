"""Tessera: a language for tile programs on GPUs.

The face for Python hosts: ``import tessera_lang as tessera``. The names below come from the
runtime, found by its entry point when first used; importing this package imports nothing
else. See docs/python.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from typing import Literal

    from tessera_lang.diagnostics.diagnostic import TesseraError
    from tessera_lang.target.typing_protocols import (
        Array,
        DeviceArray,
        DType,
        Groups,
        Integer,
        Real,
        Stream,
        Target,
    )

    # What the installed runtime gives; this package knows its names only. A module has the names
    # of its file: `tesserac stubs` writes their types.
    class NoSuchKernel(TesseraError, AttributeError): ...

    class TesseraWarning(UserWarning): ...

    def load(
        path: str | PathLike[str], target: Target = "auto",
        paths: Sequence[str | PathLike[str]] = (), arch_as: str = "",
    ) -> Any: ...  # fmt: skip

    def compile(
        source: str | PathLike[str], target: Target = "auto", arch: str = "",
        paths: Sequence[str | PathLike[str]] = (),
    ) -> Any: ...  # fmt: skip

    def load_built(directory: str | PathLike[str], target: Target = "auto") -> Any: ...

    def to_device(value: object, device: int = 0) -> DeviceArray: ...

    def from_device(array: DeviceArray) -> Any: ...

    def synchronize(device: int | None = None) -> None: ...

    def set_num_threads(count: int | None) -> None: ...

    def get_num_threads() -> int: ...

    def fused(function: Any, *, memory_budget: float | None = None) -> Any: ...

    def bench(
        function: Callable[..., Any], *arguments: Any,
        peers: Mapping[str, Callable[..., Any]] | None = None,
        cache: Literal["warm", "cold"] = "warm", seconds: float = 1.0, precision: float = 0.01,
        device: int | Literal["cpu"] | None = None,
    ) -> Any: ...  # fmt: skip

    def grad(
        function: Any, wrt: str | int | Sequence[str | int] | None = None, *,
        memory_budget: float | None = None,
    ) -> Any: ...  # fmt: skip

    def value_and_grad(
        function: Any, wrt: str | int | Sequence[str | int] | None = None, *,
        memory_budget: float | None = None,
    ) -> Any: ...  # fmt: skip

    def vjp(function: Any, *arguments: Any) -> tuple[Any, Any]: ...

    def jvp(function: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]: ...

    class jax:
        """Functions of JAX."""

        @staticmethod
        def op(function: Any) -> Any: ...

    class torch:
        """Operators of PyTorch."""

        @staticmethod
        def op(function: Any, *, name: str = "") -> Any: ...


_RUNTIME_NAMES = frozenset({
    "NoSuchKernel", "TesseraWarning", "bench", "compile", "from_device", "fused",
    "get_num_threads", "grad", "jax", "jvp", "load", "load_built", "set_num_threads",
    "synchronize", "to_device", "torch", "value_and_grad", "vjp",
})  # fmt: skip
_TYPES = frozenset({
    "Array", "DType", "DeviceArray", "Groups", "Integer", "Real", "Stream", "Target",
})  # fmt: skip

__all__ = [
    "Array", "DType", "DeviceArray", "Groups", "Integer", "NoSuchKernel", "Real", "Stream",
    "Target", "TesseraError", "TesseraWarning", "__version__", "bench", "compile", "from_device",
    "fused", "get_num_threads", "grad", "jax", "jvp", "load", "load_built", "set_num_threads",
    "synchronize", "to_device", "torch", "value_and_grad", "vjp",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "TesseraError":
        from tessera_lang.diagnostics.diagnostic import TesseraError as found

        return found
    if name in _TYPES:
        from tessera_lang.target import typing_protocols

        return getattr(typing_protocols, name)
    if name not in _RUNTIME_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tessera_lang.target.runtime import runtime

    value = getattr(runtime(), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
