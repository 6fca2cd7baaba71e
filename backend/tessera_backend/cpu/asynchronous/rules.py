"""Every operation that is no control flow and no arithmetic: the tables of rules, joined."""

from __future__ import annotations

from tessera_backend.cpu.asynchronous import (
    accesses,
    bulk,
    copies,
    products,
    role_barriers,
    scalars,
    tiles,
)
from tessera_backend.cpu.asynchronous.strand import Rule

RULES: dict[str, Rule] = {
    **scalars.RULES, **tiles.RULES, **accesses.RULES, **copies.RULES, **role_barriers.RULES,
    **bulk.RULES, **products.RULES,
}  # fmt: skip
