"""What one architecture of a GPU is: the types of a row.

Must not know a single architecture, nor who reads the rows.
"""

from __future__ import annotations

import re
from typing import Literal

from tessera_lang.record import dataclass, replace

Feature = Literal[
    "cp_async", "mma", "f8_mma", "f8_convert", "bf16_atomics", "stmatrix", "mbarrier", "bulk_copy",
    "tma", "cluster", "setmaxnreg", "wgmma",
]  # fmt: skip

FEATURES: dict[Feature, str] = {
    "cp_async": "asynchronous copies of a lane (`cp.async`)",
    "mma": "products by warps (`mma.sync`)",
    "f8_mma": "products by warps of 8-bit floats",
    "f8_convert": "pairs of 8-bit floats converted by one instruction",
    "bf16_atomics": "atomic additions of bf16",
    "stmatrix": "matrices stored to shared memory by a warp",
    "mbarrier": "barriers that count bytes, and waits that suspend",
    "bulk_copy": "copies and prefetches of many bytes by one lane (`cp.async.bulk`)",
    "tma": "copies of tiles by the tensor memory accelerator",
    "cluster": "clusters of groups, which see each other's shared memory",
    "setmaxnreg": "registers that move between warp groups",
    "wgmma": "asynchronous products by warp groups",
}
"""What each word means; the page of the architectures says the same."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one multiprocessor: ``warps`` and ``groups`` at once, ``shared`` bytes, of which a group
    may have ``group_shared`` and takes ``reserved`` more for the system, and 32-bit
    ``registers``."""

    warps: int
    groups: int
    shared: int
    group_shared: int
    reserved: int = 1024
    registers: int = 65536


@dataclass(frozen=True, slots=True)
class Rates:
    """Per multiprocessor and cycle: multiply-adds of 16-bit operands on matrix units, and
    without them; bytes of shared memory, and of the second-level cache, also where lines lie
    across its own: what one can take, however many are sent the same, and what it gives to all by
    the copy engine. ``memory`` bytes of the whole device per cycle; ``loaded``: what the cache
    gives to all lanes that load, 0 where it is as by the copy engine."""

    matrix: int
    scalar: int
    shared: int
    cache: int
    split: tuple[int, int]
    memory: int
    loaded: int = 0


@dataclass(frozen=True, slots=True)
class Model:
    """A device that differs from its architecture's row: its name is part of what the driver calls
    it, ``bandwidth`` is that of its memory in GB a second, ``memory`` the same in bytes a cycle."""

    name: str
    bandwidth: int
    memory: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture.

    ``ptx``: the lowest PTX ISA with this target and with what kernels use (hints of loads: 7.4;
    messages between groups of a cluster: 8.1), ten times its number: 78 is 7.8. ``units``:
    multiprocessors of the largest device. ``features``: what code for it may use. ``specific``: the
    architecture that has further features and whose code runs on this very one only; tile kernels
    for this one are made for that. ``models``: devices that differ in their memory.
    """

    name: str
    capability: tuple[int, int]
    ptx: int
    devices: str
    limits: Limits
    units: int
    features: tuple[Feature, ...]
    rates: Rates
    specific: str = ""
    models: tuple[Model, ...] = ()

    def has(self, feature: Feature) -> bool:
        return feature in self.features

    @property
    def shared_limit(self) -> int:
        """The shared memory that one group can have, in bytes."""
        return self.limits.group_shared

    def model(self, name: str) -> Model | None:
        """The model of that name, whatever its case; None where there is none."""
        return next((m for m in self.models if m.name.lower() == name.lower()), None)

    def model_of_device(self, name: str, bandwidth: float) -> Model | None:
        """Which model a device is: by what the driver calls it, else by the bandwidth of its memory
        in GB a second (0 where that is not known). None where it is not known, or all are alike."""
        named = [m for m in self.models if re.search(rf"\b{m.name}\b", name, re.IGNORECASE)]
        if named or bandwidth <= 0 or not self.models:
            return named[0] if named else None
        return min(self.models, key=lambda m: abs(m.bandwidth - bandwidth))


def rates_of_model(rates: Rates, model: Model | None) -> Rates:
    """The rates of an architecture as a model of it has them."""
    return rates if model is None else replace(rates, memory=model.memory)
