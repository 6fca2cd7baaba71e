"""What a schedule costs: cycles of a device, from sizes alone.

Owns the model; the rates are those of the machine:

- an iteration of a pipeline takes as long as the slowest of matrix units, shared memory, and the
  second-level cache (what one multiprocessor can take from it, and its share of what the cache
  gives to all), and longer where another is nearly as slow, no less than it takes to ask for it;
  with few buffers it waits in between;
- a tile is its iterations, behind the time until its first buffer is full, and before the time that
  its result needs to leave; of persistent groups, only the overhead of a tile remains;
- a launch is as long as its waves, and no less than main memory needs.

Good enough to rank; must not know operations.
"""

from __future__ import annotations

import math

from tessera_lang.record import dataclass, replace
from tessera_lang.target.arch.isa_constants import STEP_BYTES
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    ADDED_OUTSIDE,
    ASKING,
    ASKING_TOGETHER,
    ASYNCHRONOUS_BARRIERS,
    BARRIERS,
    BETWEEN_TILES,
    BUSY_FULL,
    BUSY_REST,
    CLUSTER_BEGINS,
    COMPUTED_ELEMENT,
    COMPUTED_TURN,
    CONTENDING,
    FEW_BUFFERS,
    FIRST_BUFFERS,
    MANY_SUMS,
    MEMORY_LATENCY,
    PARTS_ARRIVE,
    PARTS_RATE,
    PARTS_SEEN,
    PRODUCT_EDGE,
    RESTING_GAIN,
    SHARED_MIXED,
    SHORT_LAUNCH,
    SHORTER_SEEN,
    STREAM_GROUPS,
    SYNCHRONOUS_SHARE,
)


@dataclass(frozen=True, slots=True)
class Product:
    """One product of a tile, run ``trips`` times; ``bits`` of an element, and who does it.
    ``in_turn``: sums are added outside the unit, which has nothing else to do meanwhile.
    ``computed``: elements of operands that lanes compute from ``source`` bytes that are brought.
    ``waits``: lanes that multiply and add wait for factors where they have few sums. Of each
    operand, ``across``: the share of its lines that lie across those of the cache, of the most that
    may; ``pieces``: how much longer it takes than in lines of 128 bytes."""

    m: int
    n: int
    k: int
    bits: int
    trips: int
    unit: str
    loaded: tuple[bool, bool] = (True, True)
    in_turn: bool = False
    computed: int = 0
    source: int = 0
    waits: bool = False
    across: tuple[float, float] = (0.0, 0.0)
    pieces: tuple[float, float] = (1.0, 1.0)

    @property
    def rows(self) -> int:
        """With those that the unit adds."""
        block = 64 if self.unit == "wgmma" else 16
        return -(-self.m // block) * block

    @property
    def bytes(self) -> float:
        """What an iteration brings from the second-level cache."""
        return sum(self._operands()) + self.source

    def arriving(self, whole: float, split: float) -> float:
        """Cycles in which that comes, at so many bytes a cycle in lines of the cache and where all
        lines lie across those."""
        return self._cycles(whole, split, (1.0, 1.0), 1)

    def requested(self, whole: float, split: float, cluster: int) -> float:
        """Cycles in which that is asked for: short lines take longer, and neighbours in a cluster
        share the operand that takes more."""
        return self._cycles(whole, split, self.pieces, cluster)

    def _cycles(
        self, whole: float, split: float, pieces: tuple[float, float], cluster: int
    ) -> float:
        parts = [
            size * longer * ((1 - across) / whole + across / split)
            for size, longer, across in zip(self._operands(), pieces, self.across, strict=True)
        ]
        return sum(parts) - max(parts) * (1 - 1 / cluster) + self.source / whole

    def read(self) -> float:
        """What an iteration reads of shared memory: each 64 rows all columns."""
        rows, columns = self._operands()
        return rows + columns * max(1, self.rows // 64)

    def _operands(self) -> tuple[float, float]:
        size = self.k * self.bits / 8
        return (self.rows * size if self.loaded[0] else 0.0,
                self.n * size if self.loaded[1] else 0.0)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """A launch: ``tiles`` of it, each with these products; bytes of a tile that are written,
    and bytes that go through main memory at least. ``room``: bytes of shared memory for buffers.
    ``parts``: the groups that share a tile, each with sums of ``sums`` bytes; a tile counts once
    for each. ``stream``: iterations of a loop without products, each of which waits for so many
    bytes."""

    tiles: int
    products: tuple[Product, ...]
    written: int
    traffic: int
    cluster: int = 1
    room: int = 1 << 20
    parts: int = 1
    sums: int = 0
    stream: tuple[int, int] = (0, 0)

    def places(self, machine: Machine) -> int:
        """How many tiles are computed at once: groups that only wait for memory are several on a
        multiprocessor."""
        return machine.units * (1 if self.products else STREAM_GROUPS)

    @property
    def split(self) -> bool:
        """Whether lines of its tiles lie across lines of the cache."""
        return any(share > 0 for p in self.products for share in p.across)

    @property
    def iterations(self) -> int:
        """Of the longest loop."""
        return max(1, self.stream[0], *(p.trips for p in self.products))


def in_parts(work: Work, parts: int) -> Work:
    """The same with the iterations of each tile shared by so many groups, which share no copies."""
    products = tuple(replace(p, trips=-(-p.trips // parts)) for p in work.products)
    stream = -(-work.stream[0] // parts), work.stream[1]
    tiles = work.tiles * parts
    return replace(work, tiles=tiles, products=products, parts=parts, stream=stream, cluster=1)


def clustered(work: Work, machine: Machine) -> Work:
    """The same with clusters where they are worth it: neighbours that take tile after tile share
    copies, and so do those of one wave, or of lines across its own, if the cache holds them up."""
    if not machine.has_roles or work.tiles < 2:  # it is the copies of a role that they share
        return work
    shared = replace(work, cluster=2)
    if work.tiles >= 2 * machine.units and not work.split:
        return shared
    may = work.split or work.tiles <= machine.units
    return shared if may and cycles(shared, machine) < cycles(work, machine) else work


def iteration_cycles(product: Product, work: Work, machine: Machine) -> float:
    """Cycles of one iteration of a product on every multiprocessor that has one of these tiles."""
    rates = machine.rates
    adds = product.rows * product.n * product.k
    if product.unit == "fma":
        computing = adds / (rates.scalar * 0.7)
        if product.waits:
            computing /= min(1.0, math.sqrt(product.m * product.n / MANY_SUMS))
    else:
        slow = product.unit == "mma" and machine.has("wgmma")
        share = SYNCHRONOUS_SHARE if slow else 1.0
        share *= ADDED_OUTSIDE if product.in_turn else 1.0
        computing = adds / (rates.matrix * 16 / product.bits * share)
    busy = min(work.tiles, machine.units) / machine.units
    alone = product.arriving(rates.cache, rates.split[0])
    alone = max(alone, product.requested(rates.cache, rates.split[0], work.cluster))
    together = product.requested(rates.cache, rates.split[1], work.cluster) * busy
    passed, meeting = product.read() / rates.shared, BARRIERS
    if product.unit == "wgmma":
        passed, meeting = (
            SHARED_MIXED * (passed + product.bytes / rates.shared),
            ASYNCHRONOUS_BARRIERS,
        )
        steps = product.k * product.bits / (8 * STEP_BYTES)
        computing += PRODUCT_EDGE * (product.rows // 64) * steps
    asked = {"wgmma": ASKING, "mma": ASKING_TOGETHER}.get(product.unit, 0.0)
    seen = _contended(computing, passed, max(alone, together), product.unit) + meeting
    iteration = max(seen, asked) * _waiting(product, work)
    if product.unit == "wgmma" and product.computed:
        iteration += COMPUTED_TURN + product.computed * COMPUTED_ELEMENT
    return iteration


def _contended(computing: float, passed: float, cached: float, unit: str) -> float:
    """The slowest, and a little more where the next is nearly as slow, of a unit that runs beside
    the others: what one of them is late the other cannot make up for."""
    _, next_, most = sorted((computing, passed, cached))
    if unit != "wgmma" or most <= 0:
        return most
    share, power = CONTENDING
    return most * (1 + share * (next_ / most) ** power)


def _unhindered(body: float, busy: float) -> float:
    """The cycles of a long launch, of which fewer are needed where a part of the device rests:
    the others have power and the cache for themselves."""
    rests = min(1.0, max(0.0, (BUSY_FULL - busy) / BUSY_REST))
    return body - RESTING_GAIN * rests * max(0.0, body - SHORT_LAUNCH)


def dealt_cycles(work: Work, parts: int, machine: Machine) -> float:
    """Cycles of the whole launch where groups stay, and the tiles that make no wave have so many
    parts, which are dealt out in rounds."""
    units, rates = machine.units, machine.rates
    whole, left = divmod(work.tiles, units)
    alone = replace(work, cluster=1, tiles=max(work.tiles, units))
    iteration = (
        sum(iteration_cycles(p, alone, machine) * p.trips for p in work.products) / work.iterations
    )
    iteration += MEMORY_LATENCY + work.stream[1] / rates.cache if work.stream[0] else 0.0
    leaving = work.written / rates.cache
    begin = MEMORY_LATENCY + sum(p.bytes for p in work.products[:1]) / FIRST_BUFFERS + leaving
    put_down = _moving(work)
    rounds = -(-left * parts // units)
    last = rounds * (-(-work.iterations // parts) * iteration + BETWEEN_TILES + put_down)
    last += parts * put_down + PARTS_ARRIVE
    body = whole * (work.iterations * iteration + BETWEEN_TILES + leaving) + last + begin
    memory = work.traffic / rates.memory + MEMORY_LATENCY
    return max(body, memory) + SHORTER_SEEN * min(body, memory)


def _moving(work: Work) -> float:
    """Cycles in which the sums of a part are put down, or taken up."""
    cycles = work.sums / PARTS_RATE
    return cycles + min(cycles, PARTS_SEEN)


def _waiting(product: Product, work: Work) -> float:
    buffers = work.room // max(1, int(product.bytes))
    return FEW_BUFFERS.get(max(1, min(buffers, product.trips)), 1.0) if product.trips > 1 else 1.0


def cycles(work: Work, machine: Machine) -> float:
    """Cycles of the whole launch."""
    rates = machine.rates
    waves = -(-work.tiles // work.places(machine))
    iterations = sum(p.trips * iteration_cycles(p, work, machine) for p in work.products)
    iterations += work.stream[0] * (MEMORY_LATENCY + work.stream[1] / rates.cache)
    leaving = work.written / rates.cache
    begin = MEMORY_LATENCY + sum(p.bytes for p in work.products[:1]) / FIRST_BUFFERS + leaving
    if work.cluster > 1:
        begin += CLUSTER_BEGINS
    if work.parts > 1:
        iterations += PARTS_ARRIVE + _moving(work)
        begin += work.parts * _moving(work)
    tile = iterations + (BETWEEN_TILES + leaving if waves > 1 else 0.0)
    body = _unhindered(waves * tile + begin, work.tiles / machine.units)
    memory = work.traffic / rates.memory + MEMORY_LATENCY
    return max(body, memory) + SHORTER_SEEN * min(body, memory)
