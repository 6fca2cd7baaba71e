"""How large a kernel becomes with the functions that it calls.

Owns the limit and its fault. Every call is a copy of the function: functions that call each
other twice grow as powers of two, which nobody sees in the text. Must not know what becomes of
the code.
"""

from __future__ import annotations

from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.sema.side_tables import TypedFunction
from tessera_lang.syntax import ast

MOST_EXPRESSIONS = 100_000
MOST_NESTED = 300


def too_large(kernel: TypedFunction) -> Diagnostic | None:
    """The fault of a kernel whose calls make too much code, at the call that makes most."""
    sizes: dict[TypedFunction, int] = {}
    copied = {call: _size(inner, sizes) for call, inner in kernel.calls.items()}
    total = sum(copied.values())
    if total <= MOST_EXPRESSIONS:
        return None
    most = max(copied, key=lambda call: copied[call])
    name = kernel.calls[most].declaration.name
    return Diagnostic(
        "T0316",
        f"the functions that `{kernel.declaration.name}` calls make {total} expressions of it; "
        f"at most {MOST_EXPRESSIONS} are compiled",
        most.span,
        f"`{name}` and what it calls are {copied[most]} of them",
        notes=("every call puts a copy of the function in its place",),
        helps=("call a function once and keep its result, or call it in a loop",),
    )


def nested_too_deep(call: ast.Call) -> Diagnostic:
    """The fault of a call in a function that is called by too many others in turn."""
    return Diagnostic(
        "T0316", f"calls are nested more than {MOST_NESTED} deep", call.span,
        helps=("write a loop, or call some of these functions one after the other",),
    )  # fmt: skip


def _size(function: TypedFunction, sizes: dict[TypedFunction, int]) -> int:
    known = sizes.get(function)
    if known is None:
        inner = sum(_size(called, sizes) for called in function.calls.values())
        known = sizes[function] = len(function.types) + inner
    return known
