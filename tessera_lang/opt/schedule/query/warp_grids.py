"""How the warps of a group share the result of a product: so many along its rows and columns.

Warps that find nothing to do of their own do the work of others again. Owns the choice among the
ways there are, by the work and the traffic of each. Must not know how a product is lowered.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import CONTRACTS
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.query.operand_loads import DOT, products_of
from tessera_lang.opt.schedule.query.scalar_facts import Facts, is_tile
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.target.tuned_constants import FLOW_ACCUMULATORS

_REDUCE = PREFIX + "reduce"
_MMA = (16, 8)
"""Rows and columns of the result of one ``mma.sync``."""
FMA_COLUMNS = 4
"""Neighbours of a row that a lane holds of a product by multiply-adds."""
_FMA_LANES = 8
FMA_WARP_COLUMNS = FMA_COLUMNS * _FMA_LANES
"""Columns that the lanes of a warp hold at most in a row."""


def mma_grid(m: int, n: int, warps: int, by_rows: bool) -> tuple[int, int]:
    """Warps along the rows and columns of a product of m x n by ``mma.sync``; all along the rows
    if ``by_rows``, and those that are left along its columns where lanes could not hold it."""
    rows, columns = _least(m, n, warps, _MMA, by_rows)
    held = _up(m, _MMA[0] * rows) * _up(n, _MMA[1]) // (WARP * rows)
    if by_rows and held > FLOW_ACCUMULATORS:
        columns = max(c for c in _divisors(warps // rows) if c * _MMA[1] <= n)
    return rows, columns


def fma_grid(m: int, n: int, warps: int) -> tuple[int, int]:
    """The same of a product by multiply-adds."""
    across = fma_lanes(n)
    return _least(m, n, warps, (WARP // across, FMA_COLUMNS * across), False)


def fma_lanes(n: int) -> int:
    """Lanes along a row of n columns of a product by multiply-adds."""
    return min(_FMA_LANES, 1 << max(0, -(-n // FMA_COLUMNS) - 1).bit_length())


def _least(
    m: int, n: int, warps: int, one: tuple[int, int], by_rows: bool
) -> tuple[int, int]:  # fmt: skip
    """The least work of each warp, then the least padding, then the least traffic; of equal ones
    the first. ``one``: what a warp does at least."""
    down, across = one

    def cost(grid: tuple[int, int]) -> tuple[float, ...]:
        rows, columns = grid
        whole = _up(m, down * rows) * _up(n, across * columns)
        return whole / (rows * columns), float(whole), m / rows + n / columns

    return min((g for g in _grids(warps) if not by_rows or g[1] == 1), key=cost)


def _grids(warps: int) -> Iterator[tuple[int, int]]:
    for rows in _divisors(warps):
        for columns in _divisors(warps // rows):
            yield rows, columns


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def rows_only(kernel: Operation, facts: Facts) -> frozenset[Operation]:
    """Products whose rows should stay in one warp: their results are reduced along rows, or are
    first operands of other products, which then share their rows."""
    found: set[Operation] = set()
    for dot in products_of(kernel):
        reached = _reached(facts, dot)
        ends = [o for o in reached if o.name == DOT]
        if ends or any(o.name == _REDUCE and o.attributes["axis"] == 1 for o in reached):
            found.update((dot, *ends))
    return frozenset(found)


def _reached(facts: Facts, dot: Operation) -> list[Operation]:
    """What the result of a product flows into, product operands and reductions at the end."""
    seen: dict[Operation, None] = {}
    waiting: list[Value] = [dot.result]
    while waiting:
        value = waiting.pop()
        for user in facts.used_by(value):
            if user in seen or (user.name == DOT and value is user.operands[2]):
                continue
            seen[user] = None
            if user.name not in CONTRACTS:
                waiting += [v for v in user.results if is_tile(v)]
    return list(seen)
