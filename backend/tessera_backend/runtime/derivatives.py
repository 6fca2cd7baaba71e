"""Functions of plain functions, for Python: ``tessera.grad``, ``tessera.value_and_grad``,
``tessera.vjp``, ``tessera.jvp``, ``tessera.fused``.

A gradient is called, recorded and replayed as its function is. Must not know how it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from tessera_backend.runtime.arrays import describe
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.functions import Function

if TYPE_CHECKING:
    from tessera_lang.evaluate.value import Derivative, HostFunction, Scope
    from tessera_lang.source import Span


class _Gradient(Function):
    """The gradient of a plain function, to be called from Python."""

    in_place = False

    def __init__(
        self, of: Function, wrt: Any, with_value: bool, budget: float | None = None
    ) -> None:
        of.copy_to(self)
        self._of = of
        self._wrt = wrt
        self._with_value = with_value
        self._budget = budget
        self.__name__ = of.__name__
        self.__qualname__ = f"{self._word}({of.__qualname__})"
        self.__doc__ = f"The gradient of `{of.__qualname__}`."

    @property
    def _word(self) -> str:
        return "value_and_grad" if self._with_value else "grad"

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return gradient, (self._of, self._wrt, self._with_value, self._budget)

    def in_program(self, scope: Scope) -> HostFunction | Derivative:
        return self._of.in_program(scope)

    def of_program(
        self, function: HostFunction | Derivative, span: Span
    ) -> HostFunction | Derivative:
        from tessera_lang.evaluate.derivatives import budget_of, derivative_of, named

        wrt, single = named(self._wrt, span)
        inner = self._of.of_program(function, span)
        budget = budget_of(self._budget, span)
        return derivative_of(inner, wrt, single, self._with_value, self._word, span, budget)


class _Forward(Function):
    """How what a function gives changes with parameters: of its arguments, and of the changes of
    the parameters ``wrt`` as ``cotangent=``."""

    in_place = False

    def __init__(self, of: Function, wrt: tuple[str, ...]) -> None:
        of.copy_to(self)
        self._of = of
        self._wrt = wrt

    def in_program(self, scope: Scope) -> HostFunction | Derivative:
        return self._of.in_program(scope)

    def of_program(
        self, function: HostFunction | Derivative, span: Span
    ) -> HostFunction | Derivative:
        from tessera_lang.evaluate.value import Derivative

        inner = self._of.of_program(function, span)
        return Derivative(inner, self._wrt, False, with_value=True, forward=True)


class Pullback:
    """The gradients of the arguments of a function, by the gradient of what it gives."""

    def __init__(self, gradient: Any, arguments: tuple[Any, ...], places: tuple[bool, ...]) -> None:
        self._gradient = gradient
        self._arguments = arguments
        self._places = places

    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        """A gradient for each argument; None of what holds no floats."""
        made = iter(self._gradient(*self._arguments, cotangent=cotangent))
        return tuple([next(made) if has else None for has in self._places])


class _Fused(Function):
    """A plain function as one graph, to be called from Python."""

    in_place = False

    def __init__(self, of: Function, budget: float | None = None) -> None:
        of.copy_to(self)
        self._of = of
        self._budget = budget
        self.__name__ = of.__name__
        self.__qualname__ = f"fused({of.__qualname__})"
        self.__doc__ = of.__doc__

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return fused, (self._of, self._budget)

    def in_program(self, scope: Scope) -> HostFunction | Derivative:
        return self._of.in_program(scope)

    def of_program(
        self, function: HostFunction | Derivative, span: Span
    ) -> HostFunction | Derivative:
        from tessera_lang.evaluate.derivatives import budget_of, fused_of

        inner = self._of.of_program(function, span)
        return fused_of(inner, span, budget_of(self._budget, span))


def fused(of: object, budget: float | None = None) -> Any:
    """A plain function as one graph; see ``api.fused``. Raises TesseraError."""
    return type("Fused", (_Fused,), {})(_function("fused", of), budget)


def pulled_back(of: object, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """What a plain function gives, and its pullback; see ``api.vjp``. Raises TesseraError."""
    inner = _function("vjp", of)
    names = _names(inner, len(arguments), "vjp")
    places = tuple([_holds_floats(a) for a in arguments])
    wrt = [n for n, has in zip(names, places, strict=True) if has]
    if not wrt:
        raise error(diagnostic("T0761", f"no argument of `{inner.__name__}` holds floats"))
    kept = _kept(inner, ("vjp", *wrt), lambda: gradient(inner, wrt, False))
    return _kept(inner, ("fused",), lambda: fused(inner))(*arguments), Pullback(
        kept, arguments, places
    )


def pushed_forward(of: object, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """What a plain function gives, and how it changes; see ``api.jvp``. Raises TesseraError."""
    inner = _function("jvp", of)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise error(diagnostic("T0761", f"`{name}=` of `jvp` is a tuple, not {given!r}",
                                   helps=("one argument is a tuple too: `(x,)`",)))  # fmt: skip
    if len(primals) != len(tangents):
        raise error(diagnostic(
            "T0761", f"`jvp` has {len(primals)} primals and {len(tangents)} tangents",
            helps=("give `None` for what does not change",),
        ))  # fmt: skip
    names = _names(inner, len(primals), "jvp")
    moved = {n: t for n, t in zip(names, tangents, strict=True) if t is not None}
    wrt = tuple(moved)
    forward = _kept(inner, ("jvp", *wrt), lambda: type("Forward", (_Forward,), {})(inner, wrt))
    return cast("tuple[Any, Any]", forward(*primals, cotangent=tuple(moved.values())))


_MADE: WeakKeyDictionary[Function, dict[tuple[str, ...], Any]] = WeakKeyDictionary()


def _kept(of: Function, key: tuple[str, ...], make: Callable[[], Any]) -> Any:
    """What was made of a function, so that its recorded calls are found again."""
    known = _MADE.setdefault(of, {})
    if key not in known:
        known[key] = make()
    return known[key]


def _names(of: Function, count: int, word: str) -> list[str]:
    names = list(of.__signature__.parameters)
    if count > len(names) or not count:
        raise error(diagnostic(
            "T0761", f"`{word}` of `{of.__name__}` with {count} arguments: it has"
            f" {', '.join(f'`{n}`' for n in names)}",
        ))  # fmt: skip
    return names[:count]


def _holds_floats(value: Any) -> bool:
    """Whether an argument, or an array in it, holds floats."""
    if isinstance(value, tuple | list):
        return any(map(_holds_floats, cast("tuple[Any, ...]", value)))
    if isinstance(value, dict):
        return any(map(_holds_floats, cast("dict[Any, Any]", value).values()))
    view = describe(value, "argument")
    if view is not None:
        return view.dtype.is_float
    return isinstance(value, float)


def _function(word: str, of: object) -> Function:
    if isinstance(of, Function):
        return of
    raise error(diagnostic(
        "T0761", f"`{word}` takes a plain function of a module, not {of!r}",
        helps=("load the file that has the function: `tessera.load(path).loss`",),
    ))  # fmt: skip


def gradient(of: object, wrt: Any, with_value: bool, budget: float | None = None) -> Any:
    """The gradient of a plain function; see ``api.grad``. Raises TesseraError."""
    inner = _function("value_and_grad" if with_value else "grad", of)
    # A class of its own, so that machine code can be its call.
    return type("Gradient", (_Gradient,), {})(inner, wrt, with_value, budget)
