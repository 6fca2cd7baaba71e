"""Gives a number to every size the schedule left open.

Owns the candidates of a machine and the choice among them by ``cost``. What the user says with
``schedule.tile`` names the sizes in order and wins; the rest is chosen for the hints of the
launch. Afterwards no size is a name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.rewrite import Replacement, replace_values, rewrite_operation
from tessera_lang.opt.schedule.context import COST, USER, Context, with_decisions, with_kernel
from tessera_lang.opt.schedule.cost import Product, Work, cycles
from tessera_lang.opt.schedule.cpu_tiles import cpu_tile_sizes
from tessera_lang.opt.schedule.facts import (
    FOR,
    PARAMETER,
    Dot,
    Estimate,
    Facts,
    facts_of,
    kernel_of,
    numbers,
    open_names,
)
from tessera_lang.opt.schedule.units import accumulator_registers, element_bits, has_matrix_dtype
from tessera_lang.record import replace
from tessera_lang.target.machine import Machine
from tessera_lang.types.dtype import INDEX

_ROWS, _COLUMNS, _DEPTH = "rows", "columns", "depth"


def choose_tiles(program: Program, context: Context) -> Program:
    kernel = kernel_of(program)
    names = open_names(kernel)
    if not names:
        return program
    facts = facts_of(kernel)
    said = dict(zip(names, numbers(kernel, "tile"), strict=False))
    sizes = _best(facts, names, said, context.machine)
    kernel = with_sizes(kernel, sizes)
    origin = USER if len(said) == len(names) else COST
    chosen = tuple(sizes[n] for n in names)
    return with_kernel(program, _noted(kernel, chosen, origin))


def _noted(kernel: Operation, chosen: tuple[int, ...], origin: str) -> Operation:
    """``tile`` says all sizes now; its origin is the user's only if all of them are."""
    if "tile" in kernel.attributes and numbers(kernel, "tile") != chosen:
        attributes = {k: v for k, v in kernel.attributes.items() if k != "tile"}
        kernel = replace(kernel, attributes=attributes)
    return with_decisions(kernel, {"tile": chosen}, origin)


def with_sizes(kernel: Operation, sizes: Mapping[str, int]) -> Operation:
    """The kernel with numbers for names, in types and for ``parameter``."""

    def constant(operation: Operation) -> Replacement | None:
        if operation.name != PARAMETER or str(operation.attributes["name"]) not in sizes:
            return None
        made = Operation("tile.constant", (), (Value(INDEX, operation.result.name),),
                         {"value": sizes[str(operation.attributes["name"])]}, (),
                         operation.span)  # fmt: skip
        return Replacement((made,), made.results)

    return _retyped(rewrite_operation(kernel, constant), sizes)


def _retyped(kernel: Operation, sizes: Mapping[str, int]) -> Operation:
    """New values wherever a type names an open size."""
    to: dict[Value, Value] = {}

    def value(v: Value) -> Value:
        t = v.type
        if not isinstance(t, TileType) or all(isinstance(n, int) for n in t.shape):
            return v
        shape = tuple(sizes[n] if isinstance(n, str) and n in sizes else n for n in t.shape)
        return to.setdefault(v, Value(replace(t, shape=shape), v.name))

    def region(r: Region) -> Region:
        return Region(tuple(map(value, r.arguments)), tuple(map(operation, r.operations)))

    def operation(o: Operation) -> Operation:
        results = tuple(map(value, o.results))
        return replace(o, results=results, regions=tuple(map(region, o.regions)))

    made = operation(kernel)
    (body,) = made.regions
    return replace(made, regions=(Region(body.arguments, replace_values(body.operations, to)),))


# --- the choice ------------------------------------------------------------------------------


def _best(
    facts: Facts, names: Sequence[str], said: Mapping[str, int], machine: Machine
) -> dict[str, int]:
    if machine.target == "cpu":
        return cpu_tile_sizes(facts, names, said)
    if not facts.dots:
        return _element_wise(facts, names, said, machine)
    parts = _parts(facts)
    bits = max(element_bits(d) for d in facts.dots)
    options = [
        (said[n],) if n in said else _candidates(parts.get(n, ()), bits, machine) for n in names
    ]
    best: tuple[float, dict[str, int]] | None = None
    for combination in itertools.product(*options):
        sizes = dict(zip(names, combination, strict=True))
        if best is not None and not _fits(facts, sizes, machine):
            continue
        price = _price(facts, sizes, machine)
        if not _fits(facts, sizes, machine):
            price += 1e18  # what the user said may not fit: refused later, with the reason
        if best is None or price < best[0]:
            best = (price, sizes)
    assert best is not None
    return best[1]


def _parts(facts: Facts) -> dict[str, tuple[str, ...]]:
    """What each open size is to the products."""
    out: dict[str, tuple[str, ...]] = {}
    for dot in facts.dots:
        for part, size in zip((_ROWS, _COLUMNS, _DEPTH), dot.shape, strict=True):
            if isinstance(size, str) and part not in out.get(size, ()):
                out[size] = (*out.get(size, ()), part)
    return out


def _candidates(parts: Sequence[str], bits: int, machine: Machine) -> tuple[int, ...]:
    line = 1024 // bits  # elements of 128 bytes: one line of the widest swizzle
    sizes = {
        _ROWS: (64, 128, 192, 256) if machine.has("wgmma") else (64, 128),
        _COLUMNS: (64, 96, 128, 160, 192, 256) if machine.has("wgmma") else (64, 128, 256),
        _DEPTH: (line, 2 * line) if machine.has("wgmma") else (line // 2, line),
    }
    if machine.target == "cpu":
        sizes = {_ROWS: (64,), _COLUMNS: (64, 128), _DEPTH: (64, 256)}
    common = [sizes[p] for p in parts]
    found = tuple(n for n in common[0] if all(n in c for c in common[1:])) if common else (1,)
    return found or (64,)


def _fits(facts: Facts, sizes: Mapping[str, int], machine: Machine) -> bool:
    """Whether three stages and the accumulators have room; the exact tables decide later."""
    if machine.target == "cpu":
        return True
    shared, registers = 0, 0
    for dot in facts.dots:
        m, n, k = _numbers(dot, sizes)
        bits = element_bits(dot)
        shared += 3 * k * bits // 8 * ((m if dot.a.load else 0) + (n if dot.b.load else 0))
        registers += accumulator_registers(m, n, machine)
    return shared <= machine.shared_limit and registers <= 200


def _numbers(dot: Dot, sizes: Mapping[str, int]) -> tuple[int, int, int]:
    m, n, k = (sizes.get(s, 64) if isinstance(s, str) else s for s in dot.shape)
    return m, n, k


def _price(facts: Facts, sizes: Mapping[str, int], machine: Machine) -> float:
    estimate = Estimate(facts, sizes)
    tiles = (estimate.trips(facts.grid) if facts.grid else 1) or machine.units * 8
    products = tuple(_product(dot, sizes, estimate, machine, facts) for dot in facts.dots)
    stores = [_elements(o.operands[0].type, sizes) for o, _ in facts.stores]
    cluster = 2 if machine.has("cluster") and tiles >= 2 * machine.units else 1
    work = Work(tiles, products, sum(stores), _traffic(facts, estimate), cluster)
    return cycles(work, machine)


def _traffic(facts: Facts, estimate: Estimate) -> int:
    """Bytes of all arrays that are read, where their sizes are known."""
    total = 0
    for view in {x.view: None for x in facts.loads}:
        t = view.type
        assert isinstance(t, ViewType)
        sizes = [estimate.value(v) for v in facts.definitions[view].operands[1 : 1 + len(t.shape)]]
        known = [n for n in sizes if n is not None]
        total += math.prod(known) * t.dtype.bytes if len(known) == len(sizes) else 0
    return total


def _product(
    dot: Dot, sizes: Mapping[str, int], estimate: Estimate, machine: Machine, facts: Facts
) -> Product:
    m, n, k = _numbers(dot, sizes)
    trips = 1
    for around in dot.inside:
        if around is not facts.grid and around.name in (FOR, "tile.for"):
            trips *= estimate.trips(around) or 16
    bits = element_bits(dot)
    unit = (
        "fma"
        if not has_matrix_dtype(dot)
        else "wgmma"
        if machine.has("wgmma") and m % 64 == 0
        else "mma"
    )
    return Product(m, n, k, bits, trips, unit, (dot.a.load is not None, dot.b.load is not None))


def _elements(t: object, sizes: Mapping[str, int]) -> int:
    assert isinstance(t, TileType)
    product = t.dtype.bytes
    for n in t.shape:
        product *= sizes.get(n, 1) if isinstance(n, str) else n
    return product


# --- without products ------------------------------------------------------------------------


def _element_wise(
    facts: Facts, names: Sequence[str], said: Mapping[str, int], machine: Machine
) -> dict[str, int]:
    """Whole vectors along the last axis: enough of them to keep loads in flight, and groups
    enough for every multiprocessor."""
    total = 16384 if machine.target == "cpu" else 4096
    order = list(_innermost_first(facts, names))
    sizes = dict(said)
    rest = total
    for n in sizes.values():
        rest = max(1, rest // n)
    for name in order:
        if name in sizes:
            continue
        sizes[name] = max(1, min(rest, 4096 if machine.target == "cpu" else 1024))
        rest = max(1, rest // sizes[name])
    return sizes if machine.target == "cpu" else _spread(facts, sizes, said, order, machine)


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
    """Halved while there are fewer groups than multiprocessors, outer sizes first."""
    grid = facts.grid
    while grid is not None:
        tiles = Estimate(facts, sizes).trips(grid)
        total = 1
        for n in sizes.values():
            total *= n
        if tiles is None or tiles >= machine.units or total <= 512:
            break
        wide = [n for n in reversed(order) if n not in said and sizes[n] > 1]
        if not wide:
            break
        sizes[wide[0]] //= 2
    return sizes
