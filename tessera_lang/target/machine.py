"""What a machine can do, as far as schedules depend on it: one row per architecture.

Owns the table. Must not know how code is made for it.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass

Feature = Literal["cp_async", "mma", "wgmma", "tma", "cluster", "setmaxnreg"]


@dataclass(frozen=True, slots=True)
class Machine:
    """``shared_limit``: bytes a group may have; ``units``: multiprocessors or cores (the number of
    the largest part of that architecture); ``registers``: 32-bit ones per multiprocessor;
    ``vector``: bytes of the widest load of a lane."""

    target: Literal["cpu", "cuda"]
    arch: str
    shared_limit: int
    units: int
    registers: int = 65536
    vector: int = 16
    features: tuple[Feature, ...] = ()

    def has(self, feature: Feature) -> bool:
        return feature in self.features


_AMPERE: tuple[Feature, ...] = ("cp_async", "mma")
_HOPPER: tuple[Feature, ...] = ("cp_async", "mma", "wgmma", "tma", "cluster", "setmaxnreg")

MACHINES: dict[str, Machine] = {
    m.arch: m
    for m in (
        Machine("cuda", "sm_80", 166_912, 108, features=_AMPERE),
        Machine("cuda", "sm_86", 101_376, 84, features=_AMPERE),
        Machine("cuda", "sm_87", 166_912, 16, features=_AMPERE),
        Machine("cuda", "sm_89", 101_376, 142, features=_AMPERE),
        Machine("cuda", "sm_90", 232_448, 132, features=_HOPPER),
        Machine("cuda", "sm_90a", 232_448, 132, features=_HOPPER),
        Machine("cuda", "sm_100", 232_448, 148, features=_AMPERE),
        Machine("cuda", "sm_120", 101_376, 188, features=_AMPERE),
    )
}


def machine_named(target: str, arch: str) -> Machine:
    """The machine that code is made for. Raises KeyError for an unknown architecture."""
    if target == "cpu":
        return Machine("cpu", arch, 1 << 20, 1, vector=32)
    return MACHINES[arch]
