"""Gives a number to every size the schedule left open.

Owns the candidates of a machine and the choice among them by ``cost``. What the user says with
``schedule.tile`` names the sizes in order and wins; the rest is chosen for the hints of the
launch. Afterwards no size is a name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tessera_lang.ir.core import Operation, Program, TileType
from tessera_lang.opt.schedule.cost.cpu_tile_sizes import cpu_tile_sizes
from tessera_lang.opt.schedule.cost.resource_estimate import (
    all_dot_registers,
    first_of,
    shared_bytes,
)
from tessera_lang.opt.schedule.cost.split_k_cost import price_of
from tessera_lang.opt.schedule.cost.workload import numbers_of, store_bytes
from tessera_lang.opt.schedule.parallel.size_substitution import with_sizes
from tessera_lang.opt.schedule.query.copy_rules import contiguous_axis, pitch_reason
from tessera_lang.opt.schedule.query.decision_context import (
    COST,
    USER,
    Context,
    decides,
    overruled,
    rewrites,
    said_by_user,
    with_decisions,
    with_kernel,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    Estimate,
    Facts,
    covers,
    facts_of,
    kernel_of,
    open_names,
)
from tessera_lang.opt.schedule.query.splittable_reductions import sums_of
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.opt.schedule.query.unit_legality import (
    consumer_groups,
    element_bits,
    has_matrix_dtype,
    is_imprecise,
)
from tessera_lang.record import replace
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import (
    ALONE,
    ELEMENT_LANES,
    ELEMENT_VECTORS,
    FINER_WORTH,
    PRODUCT_REGISTERS,
    RELIEF,
    THREE_HOLD,
    TILE_COMBINATIONS,
    USUAL_COLUMNS,
    WIDEST_ARRAY,
    WIDEST_ROW,
    WIDEST_SQUARE,
)

_ROWS, _COLUMNS, _DEPTH = "rows", "columns", "depth"


@decides
def choose_tiles(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    names = open_names(kernel)
    if not names:
        return with_kernel(program, _by_loops(kernel, context))
    facts = facts_of(kernel)
    said = dict(zip(names, kernel.integers("tile"), strict=False))
    sizes = (_cpu_or_element_wise(facts, names, said, context.machine)
             or soonest(facts, said, context)[1])  # fmt: skip
    origin = USER if len(said) == len(names) else COST
    chosen = tuple(sizes[n] for n in names)
    return with_kernel(program, _noted(kernel, chosen, origin))


@rewrites
def give_sizes(program: Program, context: Context) -> Program:
    """The types of tiles with the sizes that were chosen."""
    kernel = kernel_of(program)
    names = open_names(kernel)
    if not names:
        return program
    sizes = dict(zip(names, kernel.integers("tile"), strict=True))
    return with_kernel(program, with_sizes(kernel, sizes))


def _by_loops(kernel: Operation, context: Context) -> Operation:
    """A kernel whose own steps and slices say the sizes of its tiles: what ``schedule.tile`` says
    beside them is those, or is not honoured."""
    said = kernel.integers("tile")
    if not said or not said_by_user(kernel, "tile"):
        return kernel
    facts = facts_of(kernel)
    found: list[tuple[int | str, ...]] = [d.shape for d in facts.dots]
    stored = (o.operands[0].type for o, _ in facts.stores)
    found += [t.shape for t in stored if isinstance(t, TileType) and not facts.dots]
    turned = [(b, a, *rest) for a, b, *rest in (s for s in found if len(s) > 1)]
    if not found or any(shape[: len(said)] == said for shape in (*found, *turned)):
        return kernel
    actual = tuple(n for n in found[0][: len(said)] if isinstance(n, int))
    reason = f"the steps and slices of the kernel say {actual[0] if len(actual) == 1 else actual}"
    return overruled(kernel, "tile", actual, context, reason)


def _noted(kernel: Operation, chosen: tuple[int, ...], origin: str) -> Operation:
    """``tile`` says all sizes now; its origin is the user's only if all of them are."""
    if "tile" in kernel.attributes and kernel.integers("tile") != chosen:
        attributes = {k: v for k, v in kernel.attributes.items() if k != "tile"}
        kernel = replace(kernel, attributes=attributes)
    return with_decisions(kernel, {"tile": chosen}, origin)


# --- the choice ------------------------------------------------------------------------------


def _cpu_or_element_wise(
    facts: Facts, names: Sequence[str], said: Mapping[str, int], machine: Machine
) -> dict[str, int] | None:
    """The sizes of what is not judged by the cost of its products."""
    if machine.target == "cpu":
        return cpu_tile_sizes(facts, names, said)
    return None if facts.dots else _element_wise(facts, names, said, machine)


def soonest(
    facts: Facts, said: Mapping[str, int], context: Context
) -> tuple[float, dict[str, int]]:
    """The open sizes of a kernel with products that take the fewest cycles, and these."""
    machine, parts = context.machine, _parts(facts)
    most = PRODUCT_REGISTERS * RELIEF[context.relief] // 8
    bits = max(element_bits(d) for d in facts.dots)
    options = {
        n: (said[n],) if n in said else _candidates(parts.get(n, ()), bits, machine, facts)
        for n in open_names(facts.kernel)
    }
    splits = sums_of(facts).loop is not None
    best: tuple[float, float, dict[str, int]] | None = None
    for sizes in _combinations(options, parts):
        fits = _fits(facts, sizes, machine, most)
        if not fits and best is not None:
            continue
        # What the user said may not fit: refused later, with the reason.
        price = price_of(facts, sizes, machine, splits) + (0 if fits else 1e18)
        worth = price / FINER_WORTH if _are_finer(sizes, parts) else price
        if best is None or worth < best[0]:
            best = (worth, price, sizes)
    assert best is not None
    return best[1:]


def _combinations(
    options: Mapping[str, tuple[int, ...]], parts: Mapping[str, tuple[str, ...]]
) -> Iterator[dict[str, int]]:
    """The choices of a number for each size. Where they are many, sizes that are the same to the
    products, and may be the same, are one choice: with each product there were more by a factor."""
    together = {name: name for name in options}
    if math.prod(map(len, options.values())) > TILE_COMBINATIONS:
        first: dict[object, str] = {}
        for name, choices in options.items():
            together[name] = first.setdefault((parts.get(name), choices), name)
    chosen = tuple(dict.fromkeys(together.values()))
    for combination in itertools.product(*(options[n] for n in chosen)):
        sizes = dict(zip(chosen, combination, strict=True))
        yield {name: sizes[other] for name, other in together.items()}


def _parts(facts: Facts) -> dict[str, tuple[str, ...]]:
    """What each open size is to the products."""
    out: dict[str, tuple[str, ...]] = {}
    for dot in facts.dots:
        for part, size in zip((_ROWS, _COLUMNS, _DEPTH), dot.shape, strict=True):
            if isinstance(size, str) and part not in out.get(size, ()):
                out[size] = (*out.get(size, ()), part)
    return out


def _candidates(parts: Sequence[str], bits: int, machine: Machine, facts: Facts) -> tuple[int, ...]:
    line = 1024 // bits  # elements of 128 bytes: one line of the widest swizzle
    sizes: dict[str, tuple[int, ...]] = {
        _ROWS: (64, 128, 192, 256) if machine.has("wgmma") else (64, 128),
        _COLUMNS: (8, *range(16, 257, 16)) if machine.has("wgmma") else (64, 128, 256),
        _DEPTH: (line, 2 * line) if machine.has("wgmma") else (line // 2, line),
    }
    if any(first_of(d, facts) is not d.operation for d in facts.dots):
        sizes[_DEPTH] = (line // 2, *sizes[_DEPTH])  # a step has tiles of several products
    if any(is_imprecise(d) for d in facts.dots) and machine.has("wgmma"):
        sizes[_DEPTH] = (line,)  # what the unit adds up by itself
    if not any(has_matrix_dtype(d) for d in facts.dots):
        sizes = {_ROWS: (64, 128, 256), _COLUMNS: (64, 128, 256), _DEPTH: (8, 16)}
    common = [sizes[p] for p in parts]
    found = tuple(n for n in common[0] if all(n in c for c in common[1:])) if common else (1,)
    return found or (64,)


def _are_finer(sizes: Mapping[str, int], parts: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether columns are told apart more finely than the model surely does."""
    return any(
        parts.get(n) == (_COLUMNS,) and size not in USUAL_COLUMNS for n, size in sizes.items()
    )


def _fits(facts: Facts, sizes: Mapping[str, int], machine: Machine, most: int) -> bool:
    """Whether three stages and the accumulators have room; the exact tables decide later."""
    if machine.target == "cpu":
        return True
    shared = store_bytes(facts, sizes) if machine.has_roles else 0
    shared += shared_bytes(facts, sizes)
    registers = all_dot_registers(facts, sizes, machine)
    for dot in facts.dots:
        m = numbers_of(dot, sizes)[0]
        if machine.has("wgmma") and consumer_groups(m) > 2:
            lanes = any(pitch_reason(access_of(o), facts, "") for o, _ in facts.stores)
            if registers > THREE_HOLD[lanes] * most // PRODUCT_REGISTERS:
                return False
    return shared <= machine.shared_limit and registers <= most


# --- without products ------------------------------------------------------------------------


def _element_wise(
    facts: Facts, names: Sequence[str], said: Mapping[str, int], machine: Machine
) -> dict[str, int]:
    """Vectors of 16 bytes along the axis that lies next to each other, several for each lane, so
    that enough loads are in flight; groups enough for every multiprocessor. Where one access
    runs along one axis of a tile and another along another, squares: both touch whole lines. An
    axis that is short leaves room for elements along others. Names that are
    together in no tile are of loops one after the other, each of which has all the room."""
    order = list(_innermost_first(facts, names))
    tiles = _open_tiles(facts)
    lines = _contiguous_names(facts)
    along = tuple(n for n in lines if any(n in t and {*lines} & {*t} - {n} for t in tiles))
    order.sort(key=lambda n: n not in lines)
    sizes = dict(said)
    room = ELEMENT_LANES * ELEMENT_VECTORS * max(1, 16 // _access_bytes(facts))
    if facts.grid is None:
        room = room * ALONE // max(1, len(facts.loads))  # its loads are all there are
    if along:
        room = max(room, WIDEST_SQUARE**2)
        order.sort(key=lambda n: n not in along)
    lengths = {n: _length(facts, n) for n in order} if len(order) > 1 else {}
    for name in (n for n in order if n not in sizes):
        wide = WIDEST_ROW if any(name in t and len(t) > 1 for t in tiles) else WIDEST_ARRAY
        wide *= ALONE if facts.grid is None else 1
        most = WIDEST_SQUARE if name in along else wide
        taken = max((_elements(t, sizes) for t in tiles if name in t), default=1)
        sizes[name] = max(1, min(room // taken, most, lengths.get(name) or most))
    return _spread(facts, sizes, said, order, machine)


def _length(facts: Facts, name: str) -> int | None:
    """A power of two that covers the longest axis cut by ``name``; None where it is not known."""
    found = [size for loop, _ in facts.loops for size in covers(facts, loop, name)]
    known = [size for size in found if size is not None]
    return max(known) if found and len(known) == len(found) else None


def _open_tiles(facts: Facts) -> tuple[tuple[int | str, ...], ...]:
    """The shapes of tiles with an open size, each once."""
    found: dict[tuple[int | str, ...], None] = {}
    for operation in facts.kernel.walk():
        values = [*operation.results, *(a for r in operation.regions for a in r.arguments)]
        for t in (v.type for v in values):
            if isinstance(t, TileType) and not all(isinstance(n, int) for n in t.shape):
                found[t.shape] = None
    return tuple(found)


def _elements(shape: Sequence[int | str], sizes: Mapping[str, int]) -> int:
    """Elements of a tile with these sizes; a size that is not known counts as one."""
    held = (sizes.get(n, 1) if isinstance(n, str) else 1 << (n - 1).bit_length() for n in shape)
    return math.prod(held)


def _access_bytes(facts: Facts) -> int:
    """Bytes of the narrowest element that is read or written in tiles."""
    tiles = [x.tile for x in facts.loads]
    tiles += [t for o, _ in facts.stores for t in (o.operands[0].type,) if isinstance(t, TileType)]
    return min((t.dtype.bytes for t in tiles), default=4)


def _contiguous_names(facts: Facts) -> tuple[str, ...]:
    """The open sizes along which some matrix lies in memory."""
    found: list[str] = []
    accesses = [x.operation for x in facts.loads] + [o for o, _ in facts.stores]
    for operation in accesses:
        tile = (operation.results or operation.operands)[0].tile_type
        unit = contiguous_axis(access_of(operation), facts)
        name = tile.shape[unit] if unit >= 0 and len(tile.shape) > 1 else None
        if isinstance(name, str) and name not in found:
            found.append(name)
    return tuple(found)


def _innermost_first(facts: Facts, names: Sequence[str]) -> Iterator[str]:
    """The open names, those of the last axis of a stored tile first."""
    seen: list[str] = []
    types = [o.operands[0].type for o, _ in facts.stores]
    for t in types:
        if isinstance(t, TileType):
            seen.extend(n for n in reversed(t.shape) if isinstance(n, str) and n not in seen)
    yield from seen
    yield from (n for n in reversed(names) if n not in seen)


def _spread(
    facts: Facts, sizes: dict[str, int], said: Mapping[str, int], order: Sequence[str],
    machine: Machine,
) -> dict[str, int]:  # fmt: skip
    """Halved while there are fewer groups than multiprocessors, outer sizes first; a size that
    divides no axis of the grid makes none. What that leaves of a tile is for the axes in it that
    a group goes along: as many loads are in flight as before."""
    grid = facts.grid
    tiles = _open_tiles(facts)
    most = max((_elements(t, sizes) for t in tiles), default=1)
    given: list[str] = []
    while grid is not None:
        groups = Estimate(facts, sizes).trips(grid)
        total = max((_elements(t, sizes) for t in tiles), default=1)
        if groups is None or groups >= machine.units or total <= 512:
            break
        wide = [
            n for n in reversed(order)
            if n not in said and sizes[n] > 1 and covers(facts, grid, n)
        ]  # fmt: skip
        if not wide:
            break
        sizes[wide[0]] //= 2
        given.append(wide[0])
    for name in given:
        _give(facts, sizes, said, name, tiles, most)
    return sizes


def _give(
    facts: Facts, sizes: dict[str, int], said: Mapping[str, int], name: str,
    tiles: Sequence[tuple[int | str, ...]], most: int,
) -> None:  # fmt: skip
    """What half of a size leaves, to the last size of its tiles that no group shares; other tiles
    that have this size, too, are no larger for it than the largest was."""
    assert facts.grid is not None
    beside = dict.fromkeys(n for t in tiles if name in t for n in t if isinstance(n, str))
    inner = [n for n in beside if n not in said and not covers(facts, facts.grid, n)]
    if inner:
        length = _length(facts, inner[-1])
        twice = 2 * sizes[inner[-1]]
        larger = {**sizes, inner[-1]: twice}
        held = max(_elements(t, larger) for t in tiles if inner[-1] in t)
        if held <= most and (length is None or twice <= length):
            sizes[inner[-1]] = twice
