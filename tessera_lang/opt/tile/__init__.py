"""Passes within Tile IR, in the order they run."""

from tessera_lang.opt.pass_type import Pass
from tessera_lang.opt.tile.narrow_indices import NARROW
from tessera_lang.opt.tile.prove_bounds import DROP_GUARDS, PROVE_BOUNDS
from tessera_lang.opt.tile.shared_budget import (
    SHRINK_SHARED,
    check_shared_budget,
    shared_bytes,
)
from tessera_lang.opt.tile.simplify import SIMPLIFY
from tessera_lang.opt.tile.version_guards import VERSION_GUARDS

TILE_PASSES: tuple[Pass, ...] = (SIMPLIFY, PROVE_BOUNDS, SHRINK_SHARED, SIMPLIFY)

__all__ = [
    "DROP_GUARDS",
    "NARROW",
    "PROVE_BOUNDS",
    "SHRINK_SHARED",
    "SIMPLIFY",
    "TILE_PASSES",
    "VERSION_GUARDS",
    "check_shared_budget",
    "shared_bytes",
]
