"""What a machine can do, as far as schedules depend on it.

Owns what passes may ask of a machine; the numbers of GPUs are rows of ``target.arch``. Must not
know how code is made for it.
"""

from __future__ import annotations

from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.target.arch import (
    OLDEST,
    Architecture,
    Feature,
    Rates,
    architecture_named,
    rates_of_model,
)


@dataclass(frozen=True, slots=True)
class Machine:
    """``shared_limit``: bytes a group may have; ``units``: multiprocessors or cores (the number of
    the largest part of that architecture); ``registers``: 32-bit ones per multiprocessor, and
    ``warps`` at once on it; ``vector``: bytes of the widest load of a lane. ``model``: the device,
    where it is known and differs from others of its architecture."""

    target: Literal["cpu", "cuda"]
    arch: str
    shared_limit: int
    units: int
    registers: int = 65536
    warps: int = 64
    vector: int = 16
    features: tuple[Feature, ...] = ()
    rates: Rates = OLDEST.rates
    model: str = ""

    def has(self, feature: Feature) -> bool:
        return feature in self.features

    @property
    def has_roles(self) -> bool:
        """Whether warps can be split into a producer, which brings tiles by TMA, and consumers,
        which get its registers."""
        return self.has("tma") and self.has("setmaxnreg")


def machine_named(target: str, arch: str) -> Machine:
    """The machine that code is made for; ``arch`` is an architecture or a model. Raises
    TesseraError for an unknown one."""
    if target == "cpu":
        return Machine("cpu", arch, 1 << 20, 1, vector=32)
    return machine_of(architecture_named(arch), arch)


def machine_of(row: Architecture, model: str = "") -> Machine:
    """The machine of an architecture; of the model of that name, where it has one."""
    found = row.model(model)
    return Machine(
        "cuda", row.name, row.shared_limit, row.units, row.limits.registers, row.limits.warps, 16,
        row.features, rates_of_model(row.rates, found), found.name if found else "",
    )  # fmt: skip
