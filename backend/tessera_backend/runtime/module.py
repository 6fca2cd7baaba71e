"""A loaded file, or a folder of built kernels, as a module of Python.

Owns which names a module has and what they are. Must not know where its code comes from: a
provider gives that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.caller_errors import ends_at_the_caller
from tessera_backend.runtime.kernel import Launcher
from tessera_backend.runtime.module_interface import Constant, ModuleInterface
from tessera_lang.diagnostics.diagnostic import TesseraError

if TYPE_CHECKING:
    from tessera_backend.runtime.functions import Function

Target = Literal["auto", "cpu", "cuda"]
Member = "Launcher | Function | Constant"


class NoSuchKernel(TesseraError, AttributeError):
    """A name that a module does not have; Python's ``hasattr`` understands it."""

    __module__ = "tessera_lang"


class Module(ModuleType):
    """The kernels, functions and constants of one file (or a folder of built kernels).

    ``target`` ``auto`` runs where the arrays are: arrays of a CUDA device on that device,
    NumPy arrays on the CPU. ``cuda`` copies NumPy arrays to the device and back. ``origin`` is
    the call that made the module: a copy in another process makes the same again.
    """

    def __init__(
        self, path: str, provider: Any, target: Target,
        origin: tuple[Callable[..., Module], tuple[Any, ...]] | None = None,
    ) -> None:  # fmt: skip
        interface: ModuleInterface = provider.module()
        super().__init__(PurePath(path).stem, interface.doc or None)
        self.__path = path
        self.__provider = provider
        self.__target = target
        self.__origin = origin
        self.__interface = interface
        self.__all__ = list(interface.public)

    @ends_at_the_caller
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # As an attribute of the object it is found next time without this function.
        return self.__dict__.setdefault(name, self.__member(name))

    def __member(self, name: str) -> Launcher | Function | Constant:
        known = self.__interface
        if name in known.kernels:
            found: Launcher = self.__provider.kernel(name, self.__target)
            found.belongs_to(self)
            return found
        if name in known.functions:
            from tessera_backend.runtime.functions import new_function

            return new_function(known.functions[name], self.__provider, self.__target, self)
        if name in known.constants:
            return known.constants[name]
        there = ", ".join(f"`{n}`" for n in known.public) or "none"
        d = diagnostic("T0819", f"{self.__path} has no kernel, function or constant `{name}`",
                       helps=(f"it has {there}",))  # fmt: skip
        raise NoSuchKernel((d,), str(error(d)))

    def __dir__(self) -> list[str]:
        known = self.__interface
        mine = (*known.kernels, *known.functions, *known.constants)
        special = ("__all__", "__doc__", "__file__", "__name__")
        return sorted({*mine, *special})

    def __repr__(self) -> str:
        return f"<tessera module {self.__path}, target {self.__target}>"

    @property
    def __file__(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.__path

    # --- copies -----------------------------------------------------------------------------

    def __copy__(self) -> Module:
        """Of a module there is one, as of Python's."""
        return self

    def __deepcopy__(self, memo: object) -> Module:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self.__origin is None:
            raise TypeError(f"{self!r} cannot be pickled: nothing says how to load it again")
        return self.__origin
