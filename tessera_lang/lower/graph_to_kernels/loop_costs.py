"""What a loop over cascaded reductions takes on a machine, and what kernels of its products and of
whole rows take in its place.

Owns the estimate for products that lanes multiply and add: those of matrix units are so much faster
than memory that a loop is judged by bytes alone. The model is that of schedules. Must not choose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tessera_lang.ir.core import Value
from tessera_lang.lower.graph_to_kernels.indexing_maps import COLUMNS, sizes_of
from tessera_lang.lower.graph_to_kernels.mask_ranges import Masks
from tessera_lang.lower.graph_to_kernels.planning import Loop
from tessera_lang.opt.schedule.cost.cost_model import Product, Work, cycles
from tessera_lang.opt.schedule.cost.split_k_cost import best_parts
from tessera_lang.record import dataclass
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    CACHE_HELD,
    HELD_BY_A_LOOP,
    LAUNCH_CYCLES,
    MEMORY_LATENCY,
    SLOWER_FORM,
)
from tessera_lang.types.dtype import F32

_BUFFERS = 2
"""Of a tile that a loop reads in every iteration."""


@dataclass(frozen=True, slots=True)
class LoopShape:
    """``batch`` times ``rows`` rows along ``stream`` places. ``inner``: what each product in the
    loop contracts; ``columns`` of each sum that is a product itself; ``bits`` of their elements.
    ``share``: of the places, that a mask leaves. ``ends``: bytes that the loop reads and
    writes."""

    batch: int
    rows: int
    stream: int
    inner: tuple[int, ...]
    columns: tuple[int, ...]
    bits: int
    share: float
    ends: int

    def loop_cycles(self, rows: int, steps: int, machine: Machine) -> float:
        """Of the loop, with tiles of so many rows and places."""
        trips = max(1, math.ceil(self.stream / steps * self.share))
        products = (
            *(self._product(rows, steps, k, trips, held=True) for k in self.inner),
            *(self._product(rows, n, steps, trips, held=True) for n in self.columns),
        )
        tiles = self.batch * -(-self.rows // rows)
        written = rows * sum(self.columns) * self.bits // 8
        return cycles(Work(tiles, products, written, self.ends), machine) + LAUNCH_CYCLES

    def fits(self, rows: int, steps: int, machine: Machine) -> bool:
        """Whether lanes hold what the loop carries and computes, and shared memory its factors."""
        held = rows * (sum(self.columns) + steps * len(self.inner))
        staged = sum((rows + _BUFFERS * steps) * k for k in self.inner)
        staged += sum(_BUFFERS * steps * n + rows * steps for n in self.columns)
        fits = staged * self.bits // 8 <= machine.shared_limit
        return fits and held * self.bits // 32 <= HELD_BY_A_LOOP

    def apart_cycles(self, machine: Machine) -> float:
        """Of kernels of their own: each product, and one of whole rows between those of the loop
        and the sums that are products, or behind them."""
        size = self.bits // 8
        scores = self.batch * self.rows * self.stream * size
        total = sum(self._alone(self.stream, k, machine) for k in self.inner)
        total += sum(self._alone(n, self.stream, machine) for n in self.columns)
        passes = len(self.inner) + len(self.columns)
        held = scores <= CACHE_HELD
        rate = machine.rates.cache * machine.units if held else machine.rates.memory
        return total + passes * scores / rate + MEMORY_LATENCY + LAUNCH_CYCLES

    def _alone(self, columns: int, depth: int, machine: Machine) -> float:
        """Of one product in a kernel of its own, in parts where that is sooner."""
        size = self.bits // 8
        read = (self.rows + columns) * depth
        traffic = self.batch * (read + self.rows * columns) * size
        best = math.inf
        for m, n in ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128)):
            product = self._product(m, n, 16, -(-depth // 16), held=False)
            tiles = self.batch * -(-self.rows // m) * -(-columns // n)
            sums = m * n * size
            work = Work(tiles, (product,), sums, traffic, sums=sums)
            best = min(best, best_parts(work, machine)[1])
        return best + LAUNCH_CYCLES

    def _product(self, m: int, n: int, k: int, trips: int, *, held: bool) -> Product:
        return Product(m, n, k, self.bits, trips, "fma", (not held, True), waits=True)


def shape_of(loop: Loop) -> LoopShape | None:
    """The shape of a loop whose products lanes multiply and add; None of others."""
    kernel = loop.kernel
    made = kernel.terms.made
    value, (_, windows) = next(iter(loop.parts.items()))
    sums = [(v, w) for v, w in kernel.running if made[v].name == "graph.matmul"]
    factors = [made[v].operands[0] for v in (*kernel.products, *(v for v, _ in sums))]
    dtypes = {v.tensor_type.dtype for v in factors}
    if not kernel.products or any(t.matrix and t != F32 for t in dtypes):
        return None
    inner = tuple(sizes_of(made[v].operands[0])[-1]
                  for v, parts in kernel.products.items() for _ in parts)  # fmt: skip
    columns = tuple(
        next((n for n, x in zip(sizes_of(v), w, strict=True) if x.label == COLUMNS), 1)
        for v, w in sums
    )
    sizes = tuple(zip(sizes_of(value), windows, strict=True))
    batch = math.prod(n for n, w in sizes if w.index.startswith("b"))
    rows = next(n for n, w in sizes if w.index[0] == "i")
    places = Masks(kernel.terms, kernel.rows, kernel.steps).range_of(kernel.reduced)
    share = 0.5 if places.ends or places.begins else 1.0
    ends = _bytes((*kernel.arguments, *loop.parts))
    bits = max(t.bits for t in dtypes)
    return LoopShape(batch, rows, kernel.terms.stream, inner, columns, bits, share, ends)


def best_tile(shape: LoopShape, usual: tuple[int, int], machine: Machine) -> tuple[int, int]:
    """Rows and places of the tiles of a loop that is done soonest; ``usual`` where nothing fits."""
    found = [(rows, steps) for rows in (128, 64, 32) for steps in (64, 32)
             if shape.fits(rows, steps, machine)]  # fmt: skip
    return min(found, key=lambda t: shape.loop_cycles(*t, machine), default=usual)


def slower(loop: Loop, machine: Machine) -> str:
    """Why a loop is surely slower than kernels of their own, which need memory for what is between
    them; empty where it is not, by all that the model errs."""
    shape = shape_of(loop)
    if shape is None:
        return ""
    rows, steps = loop.kernel.rows, loop.kernel.steps
    one, apart = shape.loop_cycles(rows, steps, machine), shape.apart_cycles(machine)
    if one <= apart * SLOWER_FORM:
        return ""
    groups = shape.batch * -(-shape.rows // rows)
    return (
        f"lanes multiply its {shape.bits}-bit floats: one loop, in {groups} groups of {rows} rows,"
        f" would take {one:.3g} cycles of {machine.arch}, and kernels of its products and rows"
        f" {apart:.3g}"
    )


def _bytes(values: Iterable[Value]) -> int:
    return sum(math.prod(sizes_of(v)) * v.tensor_type.dtype.bytes for v in values)
