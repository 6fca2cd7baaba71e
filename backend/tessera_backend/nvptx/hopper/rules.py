"""Operations of Hopper in NVPTX: their rules together, what each asks of an architecture, and what
a kernel begins with. Later architectures have some of them.

Must not know an architecture.
"""

from __future__ import annotations

from tessera_backend.llvm.emitter import LaneEmitter, NotLowered, Rule
from tessera_backend.nvptx.hopper import cluster_reduce, mbarriers, roles, tma, wgmma
from tessera_backend.nvptx.hopper.loop_invariant_operands import unchanging
from tessera_lang.ir.core import Operation, TensorMapType
from tessera_lang.ir.tile.tile_ops import HOPPER
from tessera_lang.record import replace
from tessera_lang.target.arch import FEATURES, Architecture, Feature, specific_to

RULES: dict[str, Rule] = {
    **roles.RULES, **cluster_reduce.RULES, **mbarriers.RULES, **tma.RULES, **wgmma.RULES,
}  # fmt: skip

_OPERATIONS = frozenset(d.name for d in HOPPER)
_PTX = 81
"""The PTX that has all of these operations."""
_NEEDS: dict[str, Feature] = {
    **dict.fromkeys(mbarriers.RULES, "mbarrier"), **dict.fromkeys(tma.RULES, "tma"),
    **dict.fromkeys(cluster_reduce.RULES, "cluster"),
    **dict.fromkeys(("tile.cluster_barrier", "tile.cluster_rank"), "cluster"),
    **dict.fromkeys(("tile.mma.async", "tile.mma.commit", "tile.mma.wait"), "wgmma"),
    "tile.roles": "setmaxnreg",
}  # fmt: skip
"""What operations of Hopper need; the others run on every architecture."""


def architecture_for(kernel: Operation, arch: Architecture) -> Architecture:
    """The architecture to make code for: the specific one where operations need what the general
    one lacks, and with the PTX that has them."""
    used = [op.name for op in kernel.walk() if op.name in _OPERATIONS]
    if not used:
        return arch
    if any(not arch.has(_NEEDS[name]) for name in used if name in _NEEDS):
        arch = specific_to(arch)
    return replace(arch, ptx=max(arch.ptx, _PTX))


def begin_kernel(e: LaneEmitter, kernel: Operation) -> None:
    """The warp's number, tensor maps brought near, barriers initialised: only what is used."""
    used = [op.name for op in kernel.walk() if op.name in _OPERATIONS]
    if not used:
        return
    dialect = roles.dialect_of(e)
    for name in used:
        feature = _NEEDS.get(name)
        if feature is not None and not dialect.arch.has(feature):
            raise NotLowered(name, f"{dialect.arch.name}, which lacks {FEATURES[feature]}", "cuda")
    dialect.warp_number = roles.warp_number(e)
    dialect.unchanging = unchanging(kernel)
    maps = [a for a in kernel.regions[0].arguments if isinstance(a.type, TensorMapType)]
    if maps:
        first, ready = e.f.label("maps"), e.f.label("maps.ready")
        e.f.branch_if(e.f.value(f"icmp eq i64 {dialect.lane_linear(e)}, 0"), first, ready)
        e.f.place(first)
        for argument in maps:
            tma.prefetch(e, e.operand(argument))
        e.f.place(ready)
    mbarriers.initialise(e, kernel)
