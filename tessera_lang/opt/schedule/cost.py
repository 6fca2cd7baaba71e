"""What a schedule costs: cycles of a multiprocessor, from sizes alone.

Owns the rates of the machines and the model: a tile takes as long as the slowest of matrix
units, shared memory and second-level cache; a launch as long as its waves, and no less than
the main memory needs. Good enough to rank; must not know operations.
"""

from __future__ import annotations

from tessera_lang.record import dataclass
from tessera_lang.target.machine import Machine


@dataclass(frozen=True, slots=True)
class Rates:
    """Per multiprocessor and cycle: multiply-adds of 16-bit operands on matrix units, and
    without them; bytes of shared memory and of the second-level cache. ``memory`` bytes of the
    whole device per cycle."""

    matrix: int
    scalar: int
    shared: int
    cache: int
    memory: int


_RATES = {
    "sm_80": Rates(1024, 64, 128, 32, 1100),
    "sm_86": Rates(512, 128, 128, 24, 520),
    "sm_87": Rates(512, 128, 128, 24, 150),
    "sm_89": Rates(512, 128, 128, 32, 400),
    "sm_90": Rates(2048, 128, 128, 38, 1714),
    "sm_90a": Rates(2048, 128, 128, 38, 1714),
    "sm_100": Rates(4096, 128, 128, 48, 4000),
    "sm_120": Rates(512, 128, 128, 32, 900),
}
_SYNCHRONOUS_SHARE = 0.62  # of what the asynchronous units of such a machine reach
TILE_OVERHEAD = 1200.0  # cycles until the pipeline of a tile is full and its last bytes are out
_TURN = 60.0  # cycles of one turn of a pipeline: barriers, and the edges of the matrix unit
_LATENCY = 900.0  # cycles of one access to main memory


@dataclass(frozen=True, slots=True)
class Product:
    """One product of a tile, run ``trips`` times; ``bits`` of an element, and who does it."""

    m: int
    n: int
    k: int
    bits: int
    trips: int
    unit: str
    loaded: tuple[bool, bool] = (True, True)


@dataclass(frozen=True, slots=True)
class Work:
    """A launch: ``tiles`` of it, each with these products; bytes of a tile that are written,
    and bytes that go through main memory at least."""

    tiles: int
    products: tuple[Product, ...]
    written: int
    traffic: int
    cluster: int = 1


def rates_of(machine: Machine) -> Rates:
    return _RATES.get(machine.arch, _RATES["sm_80"])


def product_cycles(product: Product, machine: Machine, cluster: int = 1) -> float:
    """Cycles that one multiprocessor needs for a product, all trips."""
    rates = rates_of(machine)
    m = -(-product.m // 64) * 64 if product.unit == "wgmma" else -(-product.m // 16) * 16
    adds = m * product.n * product.k
    if product.unit == "fma":
        cycles = adds / (rates.scalar * 0.7)
    else:
        share = _SYNCHRONOUS_SHARE if product.unit == "mma" and machine.has("wgmma") else 1.0
        cycles = adds / (rates.matrix * 16 / product.bits * share)
    size = product.bits / 8
    rows = m * product.k * size if product.loaded[0] else 0.0
    columns = product.n * product.k * size if product.loaded[1] else 0.0
    read = rows + columns * max(1, m // 64)
    fetched = rows + columns / cluster
    return product.trips * (max(cycles, read / rates.shared, fetched / rates.cache) + _TURN)


def cycles(work: Work, machine: Machine) -> float:
    """Cycles of the whole launch."""
    rates = rates_of(machine)
    one = sum(product_cycles(p, machine, work.cluster) for p in work.products)
    one += TILE_OVERHEAD + work.written / rates.cache
    waves = -(-work.tiles // machine.units)
    return max(waves * one, work.traffic / rates.memory) + _LATENCY
