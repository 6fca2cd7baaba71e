"""Errors as the caller sees them: one message, under the caller's own line.

What a user did wrong is said by the diagnostic; which of our functions found it is not the
user's matter. Must not know what any error is about.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from tessera_backend.runtime.call_diagnostics import rendered
from tessera_lang.diagnostics.diagnostic import TesseraError

P = ParamSpec("P")
R = TypeVar("R")

_OUR_FAULTS = ("T0901", "T0902")
_OUR_PACKAGES = frozenset({"tessera_backend", "tessera_lang"})


def ends_at_the_caller(function: Callable[P, R]) -> Callable[P, R]:
    """A public function whose TesseraError has a traceback that ends in the line of the call."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return function(*arguments, **named)
        except TesseraError as error:
            show_to_caller(error)
            raise
        except WrongType as error:
            error.__traceback__ = None
            error.__cause__, error.__suppress_context__ = None, True
            raise

    return call


class WrongType(TypeError):
    """An argument of a public function is of a type that it does not take."""

    def __init__(self, name: str, value: object, wanted: str) -> None:
        super().__init__(f"`{name}` is {_shown(value)}, and {wanted} is expected")

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeError, (str(self),)


# What a traceback calls it: it is Python's own kind of error, and nobody has to catch another.
WrongType.__module__, WrongType.__qualname__ = "builtins", "TypeError"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"of type {type(value).__name__}"


def show_to_caller(error: TesseraError) -> None:
    """Give an error its whole text, and take our frames and inner exceptions off it; for a bare
    ``raise`` behind this.

    A bare ``raise`` adds no entry for the function it stands in, so the traceback begins with
    the caller. Faults of Tessera itself keep theirs, and TESSERA_BACKTRACE=1 keeps all.
    """
    if error.is_bare:
        error.args = (rendered(error.diagnostics),)
    ours = any(d.code in _OUR_FAULTS for d in error.diagnostics)
    if ours or os.environ.get("TESSERA_BACKTRACE") == "1":
        return
    error.__traceback__ = None
    error.__context__ = _handled_by_the_caller(error)
    error.__cause__ = None
    error.__suppress_context__ = error.__context__ is None


def _handled_by_the_caller(error: BaseException) -> BaseException | None:
    """What the caller was handling when it called us: not caught in one of our functions."""
    found = error.__context__
    while found is not None and _caught_here(found):
        found = found.__context__
    return found


def _caught_here(error: BaseException) -> bool:
    """The first entry of a traceback is the function that caught the exception."""
    entry = error.__traceback__
    if entry is None:
        return False
    name = str(entry.tb_frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _OUR_PACKAGES
