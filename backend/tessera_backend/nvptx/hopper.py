"""Operations of sm_90a in NVPTX: their rules together, and what a kernel begins with.

Must not know a single operation.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter, NotLowered, Rule
from tessera_backend.nvptx import clusters, mbarriers, roles, tma, wgmma
from tessera_backend.nvptx.architecture import Architecture, architecture_named
from tessera_lang.ir.core import Operation, TensorMapType
from tessera_lang.ir.tile.tile_ops import HOPPER

RULES: dict[str, Rule] = {
    **roles.RULES, **clusters.RULES, **mbarriers.RULES, **tma.RULES, **wgmma.RULES,
}  # fmt: skip

ARCHITECTURE = "sm_90a"
_OPERATIONS = frozenset(d.name for d in HOPPER)


def architecture_for(kernel: Operation, arch: Architecture) -> Architecture:
    """The architecture to make code for: operations of Hopper are those of ``sm_90a`` alone."""
    if arch.name == "sm_90" and any(op.name in _OPERATIONS for op in kernel.walk()):
        return architecture_named(ARCHITECTURE)
    return arch


def begin_kernel(e: LaneEmitter, kernel: Operation) -> None:
    """The warp's number, tensor maps brought near, barriers initialised: only what is used."""
    used = [op.name for op in kernel.walk() if op.name in _OPERATIONS]
    if not used:
        return
    dialect = roles.dialect_of(e)
    if dialect.arch.name != ARCHITECTURE:
        raise NotLowered(used[0], f"{dialect.arch.name}: it is one of {ARCHITECTURE}", "cuda")
    dialect.warp_number = roles.warp_number(e)
    maps = [a for a in kernel.regions[0].arguments if isinstance(a.type, TensorMapType)]
    if maps:
        first, ready = e.f.label("maps"), e.f.label("maps.ready")
        e.f.branch_if(e.f.value(f"icmp eq i64 {dialect.lane_linear(e)}, 0"), first, ready)
        e.f.place(first)
        for argument in maps:
            tma.prefetch(e, e.operand(argument))
        e.f.place(ready)
    mbarriers.initialise(e, kernel)
