"""Every operation that is no control flow and no arithmetic: the tables of rules, joined."""

from __future__ import annotations

from tessera_backend.cpu.interpreter import (
    accesses,
    async_copies,
    bulk,
    role_barriers,
    scalars,
    tiles,
    wgmma,
)
from tessera_backend.cpu.interpreter.strand import Rule

RULES: dict[str, Rule] = {
    **scalars.RULES, **tiles.RULES, **accesses.RULES, **async_copies.RULES, **role_barriers.RULES,
    **bulk.RULES, **wgmma.RULES,
}  # fmt: skip
