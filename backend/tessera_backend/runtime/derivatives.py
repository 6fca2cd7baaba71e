"""Functions of plain functions, for Python: ``tessera.grad``, ``tessera.value_and_grad``,
``tessera.fused``.

A gradient is called, recorded and replayed as its function is. Must not know how it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.functions import Function

if TYPE_CHECKING:
    from tessera_lang.evaluate.value import Derivative, HostFunction
    from tessera_lang.source import Span


class _Gradient(Function):
    """The gradient of a plain function, to be called from Python."""

    def __init__(self, of: Function, wrt: Any, with_value: bool) -> None:
        of.copy_to(self)
        self._of = of
        self._wrt = wrt
        self._with_value = with_value
        self.__name__ = of.__name__
        self.__qualname__ = f"{self._word}({of.__qualname__})"
        self.__doc__ = f"The gradient of `{of.__qualname__}`."

    @property
    def _word(self) -> str:
        return "value_and_grad" if self._with_value else "grad"

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return gradient, (self._of, self._wrt, self._with_value)

    def of_program(
        self, function: HostFunction | Derivative, span: Span
    ) -> HostFunction | Derivative:
        from tessera_lang.evaluate.derivatives import derivative_of, named

        wrt, single = named(self._wrt, span)
        inner = self._of.of_program(function, span)
        return derivative_of(inner, wrt, single, self._with_value, self._word, span)


class _Fused(Function):
    """A plain function as one graph, to be called from Python."""

    def __init__(self, of: Function) -> None:
        of.copy_to(self)
        self._of = of
        self.__name__ = of.__name__
        self.__qualname__ = f"fused({of.__qualname__})"
        self.__doc__ = of.__doc__

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return fused, (self._of,)

    def of_program(
        self, function: HostFunction | Derivative, span: Span
    ) -> HostFunction | Derivative:
        from tessera_lang.evaluate.derivatives import fused_of

        return fused_of(self._of.of_program(function, span), span)


def fused(of: object) -> Any:
    """A plain function as one graph; see ``api.fused``. Raises TesseraError."""
    return type("Fused", (_Fused,), {})(_function("fused", of))


def _function(word: str, of: object) -> Function:
    if isinstance(of, Function):
        return of
    raise error(diagnostic(
        "T0761", f"`{word}` takes a plain function of a module, not {of!r}",
        helps=("load the file that has the function: `tessera.load(path).loss`",),
    ))  # fmt: skip


def gradient(of: object, wrt: Any, with_value: bool) -> Any:
    """The gradient of a plain function; see ``api.grad``. Raises TesseraError."""
    inner = _function("value_and_grad" if with_value else "grad", of)
    # A class of its own, so that machine code can be its call.
    return type("Gradient", (_Gradient,), {})(inner, wrt, with_value)
