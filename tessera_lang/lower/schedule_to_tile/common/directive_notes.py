"""What a schedule asks for that register tiles do not give, each with its reason.

Owns the remarks on directives that no other pass decides about. Must not know layouts.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation
from tessera_lang.ir.definitions import (
    COPIES,
)
from tessera_lang.opt.schedule.query.scalar_facts import Facts
from tessera_lang.opt.schedule.query.tile_access import TileAccess, access_of
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES

_LOAD, _STORE = "tessera.schedule.load", "tessera.schedule.store"


def notes_on_directives(kernel: Operation, facts: Facts) -> list[Diagnostic]:
    """Why ``vectorize`` is not honoured, where it is not."""
    return list({(d.code, d.message): d for d in _vectorize(kernel, facts)}.values())


def _vectorize(kernel: Operation, facts: Facts) -> Iterator[Diagnostic]:
    said = kernel.attributes.get("vectorize")
    if not isinstance(said, int) or said < 2:
        return
    for operation in kernel.walk():
        if operation.name in COPIES:
            reason = _not_vectorized(access_of(operation), facts, said)
            if reason:
                yield _note(f"`schedule.vectorize({said})`", reason, operation)


def _not_vectorized(access: TileAccess, facts: Facts, said: int) -> str:
    t = access.view.view_type
    name = access.view.name or "the array"
    if facts.tile_unit_axis(access) is None:
        return f"elements of a tile of `{name}` do not lie next to each other"
    if said * t.dtype.bytes > VECTOR_BYTES:
        return f"{said} {t.dtype} are more than the {VECTOR_BYTES} bytes of the widest access"
    held = facts.vector_bytes(access)
    if held < said * t.dtype.bytes:
        return f"only {held} bytes in a row of `{name}` are surely aligned"
    return ""


def _note(what: str, reason: str, operation: Operation) -> Diagnostic:
    return Diagnostic(
        "T0742", f"{what} is not honoured: {reason}", operation.span, severity="note"
    )  # fmt: skip
