"""Tessera: a language for tile programs on GPUs.

The face for Python hosts: ``import tessera_lang as tessera``. The names below come from the
runtime, found by its entry point when first used; importing this package imports nothing
else. See docs/architecture.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tessera_lang.diagnostics.diagnostic import TesseraError

    # What the installed runtime gives; this package knows its names only.
    compile: Any
    NoSuchKernel: Any
    TesseraWarning: Any
    from_device: Any
    load: Any
    load_built: Any
    synchronize: Any
    to_device: Any

_RUNTIME_NAMES = frozenset({
    "NoSuchKernel", "TesseraWarning", "compile", "from_device", "load", "load_built",
    "synchronize", "to_device",
})  # fmt: skip

__all__ = [
    "NoSuchKernel", "TesseraError", "TesseraWarning", "__version__", "compile", "from_device",
    "load", "load_built", "synchronize", "to_device",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "TesseraError":
        from tessera_lang.diagnostics.diagnostic import TesseraError as found

        return found
    if name not in _RUNTIME_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tessera_lang.target.runtime import runtime

    value = getattr(runtime(), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
