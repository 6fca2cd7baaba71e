"""Faults of a host program as diagnostics with a line.

Owns the exception that carries them up to the one who runs the program. Must not know what
raised them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from tessera_lang.diagnostics import Diagnostic, Fix, Label, TesseraError
from tessera_lang.evaluate.arithmetic import ArithmeticFault, kind_of
from tessera_lang.evaluate.value import Scope, Unknown
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.dump import source_text
from tessera_lang.syntax.view_mutation_help import changed_slice, helps_for_slice
from tessera_lang.target.host_world import WorldFault

_CALL_LABELS = 4  # calls shown below a fault; a deep recursion would show hundreds


class HostFault(Exception):
    """The host program cannot go on: why, with the line."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.diagnostics = diagnostics
        super().__init__("; ".join(d.message for d in diagnostics))


def fault(
    code: str, message: str, span: Span, *, label: str = "",
    notes: tuple[str, ...] = (), helps: tuple[str, ...] = (), fixes: tuple[Fix, ...] = (),
) -> HostFault:  # fmt: skip
    """A fault of one diagnostic, to be raised."""
    found = Diagnostic(code, message, span, label, notes=notes, helps=helps, fixes=fixes)
    return HostFault((found,))


def slice_changed(target: ast.Expr, operator: str, scope: Scope, span: Span) -> HostFault:
    """A store into what is named ``target``, or ``operator`` and ``=`` behind it: it is the value
    of a slice."""
    name = source_text(target)
    origin = scope.origins.get(name) if isinstance(target, ast.Name) else None
    return fault(
        "T0818", changed_slice(name, origin), span, helps=helps_for_slice(name, operator, origin)
    )


def placed(error: WorldFault | ArithmeticFault, span: Span, arithmetic: str = "T0803") -> HostFault:
    """A fault from below with its place; ``arithmetic``: the code of one of numbers."""
    if isinstance(error, ArithmeticFault):
        return fault(arithmetic, error.reason, span)
    return fault(error.code, error.message, span, notes=error.notes, helps=error.helps)


_KEYS = (int, float, str, type(None))  # bools are ints


def key_of(value: object, span: Span) -> object:
    """``value``, which names an item of a dict. Raises HostFault where it cannot."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, tuple):
            left += cast("tuple[object, ...]", one)
        elif not isinstance(one, (*_KEYS, Unknown)):
            what = "a slice" if isinstance(one, slice) else kind_of(one)
            inside = "" if one is value else "a tuple that holds "
            raise fault("T0818", f"{inside}{what} cannot be a key of a dict", span,
                        helps=("keys are numbers, texts, None and tuples of those",))  # fmt: skip
    return value


@contextmanager
def located(span: Span, arithmetic_code: str = "T0803") -> Generator[None]:
    """Gives faults from below their place in the program."""
    try:
        yield
    except (ArithmeticFault, WorldFault) as error:
        raise placed(error, span, arithmetic_code) from None
    except MemoryError:
        raise fault("T0801", "there is not enough memory for this", span) from None
    except TesseraError as error:
        raise HostFault(tuple(_at_call(d, span) for d in error.diagnostics)) from None


def _at_call(diagnostic: Diagnostic, call: Span) -> Diagnostic:
    if diagnostic.span is None:
        return replace(diagnostic, span=call)
    return with_call(diagnostic, call, "in this call")


def with_call(diagnostic: Diagnostic, call: Span, text: str) -> Diagnostic:
    """The diagnostic with one more call shown, as long as there are few; each place once."""
    shown = Label(call, text)
    if len(diagnostic.labels) >= _CALL_LABELS or shown in diagnostic.labels:
        return diagnostic
    return replace(diagnostic, labels=(*diagnostic.labels, shown))


def outside(owner: object, value: object, span: Span) -> object:
    """``value``, which becomes an item of the list or dict ``owner`` and does not hold it: neither
    could be printed or returned."""
    left = [value]
    while left:
        one = left.pop()
        if one is owner:
            what = "dict" if isinstance(owner, dict) else "list"
            raise fault("T0818", f"a {what} cannot be an item of itself", span,
                        helps=("put a copy into it: `a.copy()`",))  # fmt: skip
        if isinstance(one, (list, tuple)):
            left += cast("list[object]", one)
        elif isinstance(one, dict):
            left += cast("dict[object, object]", one).values()
    return value
