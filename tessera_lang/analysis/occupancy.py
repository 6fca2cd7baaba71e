"""How many groups of a kernel fit on one multiprocessor, by lanes and shared memory.

Owns P1003 and the table of architectures (CUDA programming guide, "compute capabilities").
Registers are known only once code is made, and are left out. Must not know a target's code.
"""

from __future__ import annotations

from math import prod
from typing import cast

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import BufferType, Operation
from tessera_lang.record import dataclass

WARP = 32


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Limits of one multiprocessor. ``reserved``: bytes that each group takes for the system."""

    warps: int
    groups: int
    shared: int
    group_shared: int
    reserved: int = 1024


ARCHITECTURES: dict[str, Multiprocessor] = {
    "sm_75": Multiprocessor(32, 16, 64 << 10, 64 << 10, 0),
    "sm_80": Multiprocessor(64, 32, 164 << 10, 163 << 10),
    "sm_86": Multiprocessor(48, 16, 100 << 10, 99 << 10),
    "sm_89": Multiprocessor(48, 24, 100 << 10, 99 << 10),
    "sm_90": Multiprocessor(64, 32, 228 << 10, 227 << 10),
    "sm_100": Multiprocessor(64, 32, 228 << 10, 227 << 10),
    "sm_120": Multiprocessor(48, 24, 100 << 10, 99 << 10),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    groups: int
    percent: int
    limit: str


def occupancy(lanes: int, shared: int, of: Multiprocessor) -> Occupancy:
    """Groups at once, the share of the warps that makes, and what limits it."""
    warps = -(-lanes // WARP)
    limits = {"lanes": of.warps // warps, "groups": of.groups}
    if shared:
        fits = shared <= of.group_shared
        limits["shared memory"] = of.shared // (shared + of.reserved) if fits else 0
    limit = min(limits, key=lambda name: limits[name])
    groups = limits[limit]
    return Occupancy(groups, 100 * groups * warps // of.warps, limit)


def report_occupancy(kernel: Operation) -> Diagnostic:
    """One note for a kernel, a line for each architecture."""
    lanes = prod(cast("tuple[int, ...]", kernel.attributes["group"]))
    types = [cast("BufferType", o.result.type) for o in _allocations(kernel)]
    shared = sum(-(-prod(t.shape) * t.dtype.bytes // 16) * 16 for t in types)
    notes = [
        f"{name}: {_counted(found.groups)}, {found.percent} % of the warps, "
        f"limited by {found.limit}"
        for name, of in ARCHITECTURES.items()
        for found in (occupancy(lanes, shared, of),)
    ]
    return Diagnostic(
        "P1003",
        f"`{kernel.attributes['sym_name']}` has {lanes} lanes and {shared} bytes of shared memory "
        "a group",
        kernel.span, "groups on one multiprocessor at once, below", "note",
        notes=(*notes, "registers are not known before code is made, and not counted"),
        certainty="estimated",
    )  # fmt: skip


def _counted(groups: int) -> str:
    return "1 group" if groups == 1 else f"{groups} groups"


def _allocations(kernel: Operation) -> list[Operation]:
    return [o for o in kernel.walk() if o.name == "tile.shared.alloc"]
