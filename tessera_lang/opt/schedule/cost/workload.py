"""The work that a kernel would be with these sizes: what the cost model is asked about.

Owns the estimate from the hints of the launch: tiles, products of a tile with their trips, bytes
that are moved and how well they lie in memory. Must not know rates, and must not choose.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.ir.core import TileType, ViewType
from tessera_lang.ir.definitions import (
    COUNTED_LOOPS,
)
from tessera_lang.opt.schedule.cost.cost_model import Product, Work, clustered
from tessera_lang.opt.schedule.query.computed_tile_source import feeds, source_axis
from tessera_lang.opt.schedule.query.copy_rules import contiguous_axis, known_divisor
from tessera_lang.opt.schedule.query.kernel_facts import (
    Dot,
    Estimate,
    Facts,
    Load,
    Operand,
    view_bytes,
)
from tessera_lang.opt.schedule.query.splittable_reductions import sums_of
from tessera_lang.opt.schedule.query.staging_rings import STORE_BUFFERS, STORE_LINES
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.opt.schedule.query.unit_legality import (
    element_bits,
    has_matrix_dtype,
    is_imprecise,
    promoted_parts,
)
from tessera_lang.target.arch.isa_constants import LINE_BYTES, SWIZZLES, VECTOR_BYTES
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import LINE_REQUESTS, STORE_TIMES, UNKNOWN_TRIPS


def work_of(facts: Facts, sizes: Mapping[str, int], machine: Machine) -> Work:
    estimate = Estimate(facts, sizes)
    tiles = (estimate.trips(facts.grid) if facts.grid else 1) or machine.units * 8
    return clustered(Work(
        tiles,
        tuple(_product(dot, sizes, estimate, machine, facts) for dot in facts.dots),
        sum(_leaving(o.operands[0].tile_type, sizes) for o, _ in facts.stores),
        _traffic(facts, estimate),
        1,
        machine.shared_limit - store_bytes(facts, sizes) - _held(facts, sizes),
        sums=_sums(facts, sizes),
        stream=_stream(facts, sizes, estimate),
    ), machine)  # fmt: skip


def _held(facts: Facts, sizes: Mapping[str, int]) -> int:
    """Bytes of the buffers of computed operands, two of each."""
    operands = (x for d in facts.dots for x in (d.a, d.b))
    return 2 * sum(_bytes(x.value.tile_type, sizes) for x in operands if _is_computed(x, facts))


def _sums(facts: Facts, sizes: Mapping[str, int]) -> int:
    """Bytes of what the loop of a tile hands on."""
    loop = sums_of(facts).loop
    return sum(_bytes(v.tile_type, sizes) for v in loop.results) if loop is not None else 0


def _stream(facts: Facts, sizes: Mapping[str, int], estimate: Estimate) -> tuple[int, int]:
    """Iterations of a loop that sums without products, and the bytes that each reads."""
    loop = None if facts.dots else sums_of(facts).loop
    if loop is None:
        return 0, 0
    inside = [x for x in facts.loads if loop in x.inside]
    return estimate.trips(loop) or 0, sum(_bytes(x.tile, sizes) for x in inside)


def numbers_of(dot: Dot, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    m, n, k = (sizes.get(s, 64) if isinstance(s, str) else s for s in dot.shape)
    return m, n, k


def store_bytes(facts: Facts, sizes: Mapping[str, int]) -> int:
    """Bytes of the buffers that results leave through: two of them, a line of each row."""
    types = [o.operands[0].type for o, _ in facts.stores if o.operands]
    rows = [sizes.get(n, 64) if isinstance(n, str) else n
            for t in types if isinstance(t, TileType) and len(t.shape) > 1
            for n in t.shape[-2:-1]]  # fmt: skip
    return STORE_BUFFERS * LINE_BYTES * max(rows, default=0)


def _product(
    dot: Dot, sizes: Mapping[str, int], estimate: Estimate, machine: Machine, facts: Facts
) -> Product:
    m, n, k = numbers_of(dot, sizes)
    trips = 1
    for around in dot.inside:
        if around is not facts.grid and around.name in COUNTED_LOOPS:
            trips *= estimate.trips(around) or UNKNOWN_TRIPS
    unit = "mma"
    if not has_matrix_dtype(dot):
        unit = "fma"
    elif machine.has("wgmma") and m % 64 == 0 and _are_lines((dot.a, m, 1), (dot.b, n, 0), facts):
        unit = "wgmma"
    loaded = (dot.a.load is not None, dot.b.load is not None)
    in_turn = unit == "wgmma" and is_imprecise(dot) and promoted_parts(m, n) == (2, 0)
    computed = sum(size for x, size in ((dot.a, m * k), (dot.b, k * n)) if _is_computed(x, facts))
    source = _source(facts, sizes) if computed else 0
    across = _across(dot.a.load, facts), _across(dot.b.load, facts)
    pieces = _pieces(dot.a, (m, k), facts), _pieces(dot.b, (k, n), facts)
    return Product(
        m, n, k, element_bits(dot), trips, unit, loaded, in_turn, computed, source,
        across=across, pieces=pieces,
    )  # fmt: skip


def _is_computed(operand: Operand, facts: Facts) -> bool:
    """Whether lanes compute an operand from matrices in memory."""
    return operand.load is None and source_axis(operand.value, facts) != 0


def _source(facts: Facts, sizes: Mapping[str, int]) -> int:
    """Bytes of the matrices that operands are computed from, in one iteration."""
    return sum(
        _bytes(x.tile, sizes) for x in facts.loads
        if x.loop is not None and len(x.tile.shape) > 1 and feeds(x, facts)
        and not any(x.operation is y.load.operation for d in facts.dots for y in (d.a, d.b)
                    if y.load is not None)
    )  # fmt: skip


def _are_lines(a: tuple[Operand, int, int], b: tuple[Operand, int, int], facts: Facts) -> bool:
    """Whether tiles are lines that the copy engine takes, where they do not lie along the
    contraction: each with its other size, and the axis of the contraction."""
    for operand, across, contraction in (a, b):
        if operand.load is None:
            continue
        tile = operand.load.tile
        axis = contiguous_axis(access_of(operand.load.operation), facts)
        first = len(tile.shape) - 2
        along = (axis - first == contraction) != operand.swapped
        if axis >= first and not along and across * tile.dtype.bytes % SWIZZLES[-1]:
            return False
    return True


def _traffic(facts: Facts, estimate: Estimate) -> int:
    """Bytes of all arrays that are read, where their sizes are known."""
    views = {x.view: None for x in facts.loads}
    return sum(view_bytes(view, facts, estimate) or 0 for view in views)


def _across(load: Load | None, facts: Facts) -> float:
    """The share of rows of 128 bytes of an array that lie across lines of the cache, of those that
    do at a pitch of an odd number of vectors: its pitch is surely no multiple of a line, as far as
    the launch tells. Sizes are told apart up to 64 bytes and more; strides are not."""
    if load is None or not isinstance(load.view.type, ViewType) or not load.view.type.contiguous:
        return 0.0
    _, numbers, _ = facts.argument_numbers(load.view)
    sizes = facts.definitions[load.view].operands[1 : 1 + len(numbers)]
    if len(numbers) < 2:
        return 0.0
    pitch = known_divisor(facts, numbers[-1], sizes[-1]) * load.tile.dtype.bytes
    return min(1.0, max(0.0, (LINE_BYTES - pitch) / (LINE_BYTES - VECTOR_BYTES)))


def _pieces(operand: Operand, shape: tuple[int, int], facts: Facts) -> float:
    """How much longer an operand of this shape takes than in lines of 128 bytes: tiles are cut into
    lines of the widest swizzle that divides them."""
    if operand.load is None:
        return 1.0
    tile = operand.load.tile
    axis = contiguous_axis(access_of(operand.load.operation), facts) - (len(tile.shape) - 2)
    if axis < 0:
        return 1.0
    line = shape[axis != operand.swapped] * tile.dtype.bytes
    return LINE_REQUESTS[next((n for n in SWIZZLES if line % n == 0), VECTOR_BYTES)]


def _leaving(t: TileType, sizes: Mapping[str, int]) -> int:
    """Bytes of a result; those that are no lines of a subtile leave by lanes, which takes twice
    as long, and shorter lines take longer too."""
    last = t.shape[-1] if t.shape else 1
    line = (sizes.get(last, 64) if isinstance(last, str) else last) * t.dtype.bytes
    slower = next((s for s, n in zip(STORE_TIMES, STORE_LINES, strict=True) if line % n == 0), 2)
    return _bytes(t, sizes) * slower


def _bytes(t: TileType, sizes: Mapping[str, int]) -> int:
    product = t.dtype.bytes
    for n in t.shape:
        product *= sizes.get(n, 1) if isinstance(n, str) else n
    return product
