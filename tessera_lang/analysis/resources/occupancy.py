"""How many groups of a kernel fit on one multiprocessor, by lanes and shared memory.

Owns P1003, and what registers make of it. They are known only once code is made, and P1003 leaves
them out. Must not know a target's code.
"""

from __future__ import annotations

from math import prod
from typing import cast

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import BufferType, Operation
from tessera_lang.record import dataclass
from tessera_lang.target.arch import ROWS, Limits
from tessera_lang.target.arch.isa_constants import REGISTER_UNIT, WARP

REGISTERS_AT_ONCE = REGISTER_UNIT * WARP
"""Registers that a warp is given at once."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    groups: int
    percent: int
    limit: str


def occupancy(lanes: int, shared: int, of: Limits, registers: int = 0) -> Occupancy:
    """Groups at once, the share of the warps that makes, and what limits it. ``registers``: of a
    lane, where they are known."""
    warps = -(-lanes // WARP)
    limits = {"lanes": of.warps // warps, "groups": of.groups}
    if shared:
        fits = shared <= of.group_shared
        limits["shared memory"] = of.shared // (shared + of.reserved) if fits else 0
    if registers > 0:
        a_warp = -(-registers * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
        limits["registers"] = of.registers // (a_warp * warps)
    limit = min(limits, key=lambda name: limits[name])
    groups = limits[limit]
    return Occupancy(groups, 100 * groups * warps // of.warps, limit)


def report_occupancy(kernel: Operation) -> Diagnostic:
    """One note for a kernel, a line for architectures that are alike."""
    lanes = prod(kernel.integers("group"))
    shared = sum(buffers_of(kernel).values())
    notes = [
        f"{', '.join(names)}: {_counted(found.groups)}, {found.percent} % of the warps, "
        f"limited by {found.limit}"
        for found, names in _by_architecture(lanes, shared).items()
    ]
    return Diagnostic(
        "P1003",
        f"`{kernel.attributes['sym_name']}` has {lanes} lanes and {shared} bytes of shared memory "
        "a group",
        kernel.span, "groups on one multiprocessor at once, below", "note",
        notes=(*notes, "registers are not known before code is made, and not counted"),
        certainty="estimated",
    )  # fmt: skip


def _by_architecture(lanes: int, shared: int) -> dict[Occupancy, list[str]]:
    """What each architecture with a row comes to; a specific one is as its general one."""
    specific = {row.specific for row in ROWS.values()}
    found: dict[Occupancy, list[str]] = {}
    for name, row in ROWS.items():
        if name not in specific:
            found.setdefault(occupancy(lanes, shared, row.limits), []).append(name)
    return found


def _counted(groups: int) -> str:
    return "1 group" if groups == 1 else f"{groups} groups"


def buffers_of(kernel: Operation) -> dict[str, int]:
    """The bytes of each array in shared memory by its name, each in whole pieces of 16."""
    found: dict[str, int] = {}
    for o in kernel.walk():
        if o.name != "tile.shared.alloc":
            continue
        t = cast("BufferType", o.result.type)
        name = base = str(o.attributes.get("name", "") or "buffer")
        while name in found:
            name = f"{base}_{len(found)}"
        found[name] = -(-prod(t.shape) * t.dtype.bytes // 16) * 16
    return found
