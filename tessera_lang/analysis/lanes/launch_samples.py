"""Launches to try a suspicion on: sizes that the kernel's own conditions allow.

Owns the choice of numbers. Scalars that the caller passes stay unknown: nobody says which are
meant. Must not know lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import prod
from random import Random

from tessera_lang.analysis.lanes.concrete_lane import Launch
from tessera_lang.analysis.ranges.state import is_integer
from tessera_lang.ir.core import Operation, Value
from tessera_lang.target.launch_plan import Condition, LaunchPlan
from tessera_lang.types.shape import Sym, evaluate_dim

_ROWS = 5  # groups along an axis of the grid that is a size
_GROUPS = 2  # along an axis for which the call says how many
_MOST_SMALL = 16  # launches to be run whole
_FAR = 100_000  # numbers of the kernel with more are left out
_TRIES = 200  # sizes drawn, of which conditions allow some


def sample_launches(kernel: Operation, plan: LaunchPlan) -> Iterator[Launch]:
    """A few launches, largest arrays first, that are surely allowed; second one of few groups,
    where sizes say how many there are."""
    lanes = prod(plan.group)
    seen: set[str] = set()
    for size, rows in ((4 * lanes, 0), (2 * lanes, _ROWS), (4096, 0), (lanes, 0), (1, 0), (0, 0)):
        launch = _launch(kernel, plan, size, rows)
        if launch is not None and launch.text not in seen:
            seen.add(launch.text)
            yield launch


def small_launches(kernel: Operation, plan: LaunchPlan, several: bool) -> Iterator[Launch]:
    """Launches that can be followed whole, all of them allowed: small sizes, sizes around that of
    a group, sizes of which one is larger than another. Axes of the grid have three groups first.
    ``several``: whether there is more than one where the call says how many."""
    names = [s.symbol for s in plan.slots if s.kind == "symbol"]
    axes = {g.name for g in plan.grid or () if isinstance(g, Sym)}
    lanes, seen = prod(plan.group), set[str]()
    for rows in (3, 1) if axes else (3,):
        for size in (3, 1, 2, 8, lanes + 1, 2 * lanes, lanes, 5, 4, 16, 31):
            for rising in (0, 1, -1) if len(names) > 1 else (0,):
                ranks = range(len(names))
                sizes = {n: max(1, size + rising * (1 + size // 2) * i)
                         for n, i in zip(names, ranks, strict=True)}  # fmt: skip
                sizes.update((n, rows) for n in axes if n in sizes)
                launch = _with_sizes(kernel, plan, sizes, size, rows if several else 1)
                if launch is None or launch.text in seen:
                    continue
                seen.add(launch.text)
                yield launch
                if len(seen) == _MOST_SMALL:
                    return


def varied_launches(kernel: Operation, plan: LaunchPlan, groups: int) -> Iterator[Launch]:
    """Launches of which each size is drawn for itself, where there are several: always the same
    ones. ``groups``: along an axis for which the call says how many."""
    names = [s.symbol for s in plan.slots if s.kind == "symbol"]
    lanes, r, found = prod(plan.group), Random(1), 0
    pool = (1, 2, 3, 4, 5, 8, 16, 24, 32, 33, lanes - 1, lanes, lanes + 1, 2 * lanes)
    for _ in range(_TRIES if len(names) > 1 else 0):
        sizes = {name: max(1, r.choice(pool)) for name in names}
        launch = _with_sizes(kernel, plan, sizes, r.choice(pool[:6]), groups)
        if launch is not None:
            yield launch
            found += 1
            if found == _MOST_SMALL:
                return


def more_launches(kernel: Operation, plan: LaunchPlan, several: bool) -> Iterator[Launch]:
    """Small ones, those of which each size is drawn for itself, and those just above the numbers in
    the kernel, in turn; all of arrays that have elements."""
    seen, groups = set[object](), 3 if several else 1
    kinds = (
        small_launches(kernel, plan, several),
        varied_launches(kernel, plan, groups),
        launches_above(kernel, plan, groups),
    )
    for launches in zip_longest(*kinds):
        for launch in launches:
            if launch is None or min(launch.arguments.values(), default=1) < 1:
                continue
            if (key := (launch.text, launch.groups)) not in seen:
                seen.add(key)
                yield launch


def launches_above(kernel: Operation, plan: LaunchPlan, groups: int) -> Iterator[Launch]:
    """Launches of which sizes, or groups, are just above a number that the kernel has, small ones
    first: all of them, or one and no other. ``groups``: along an axis for which the call says how
    many."""
    names = [s.symbol for s in plan.slots if s.kind == "symbol"]
    lanes, numbers = prod(plan.group), _numbers(kernel)
    for size in sorted({s for n in numbers for s in (n + 1, 2 * n + 1, n * lanes + 1)}):
        for alone in ("", *names) if len(names) > 1 else ("",):
            sizes = {n: size if alone in ("", n) else 3 for n in names}
            launch = _with_sizes(kernel, plan, sizes, size, groups)
            if launch is not None:
                yield launch
        if not plan.grid and groups > 1 and size - 1 in numbers:
            launch = _with_sizes(kernel, plan, dict.fromkeys(names, 3), 3, size)
            if launch is not None:
                yield launch


def _numbers(kernel: Operation) -> list[int]:
    """Integers that the kernel has, as far as launches of such a size can be followed."""
    found = {
        o.attributes["value"] for o in kernel.walk() if o.name == "tile.constant"
        if is_integer(o.result)
    }  # fmt: skip
    return [n for n in found if isinstance(n, int) and 8 < n < _FAR]


def _launch(kernel: Operation, plan: LaunchPlan, size: int, rows: int = 0) -> Launch | None:
    """``rows``: the sizes that are an axis of the grid, 0 where these are as all others."""
    sizes = {s.symbol: size for s in plan.slots if s.kind == "symbol"}
    if rows:
        of_grid = {g.name: rows for g in plan.grid or () if isinstance(g, Sym)}
        if not of_grid:
            return None
        sizes.update({name: n for name, n in of_grid.items() if name in sizes})
    return _with_sizes(kernel, plan, sizes, size, _GROUPS)


def _with_sizes(
    kernel: Operation, plan: LaunchPlan, sizes: dict[str, int], size: int, groups: int
) -> Launch | None:
    """A launch, if its sizes are allowed. ``size``: of what has no name; ``groups``: along an axis
    for which the call says how many."""
    _solve(plan.conditions, sizes)
    try:
        allowed = all(c.holds(sizes) for c in plan.conditions)
        known = {"grid_groups": groups, **sizes}
        grid = tuple(evaluate_dim(g, known) for g in plan.grid or ())
    except (KeyError, ZeroDivisionError):
        return None
    grid = grid or (groups,) * max(1, _rank(kernel))
    if not allowed or min(grid) < 1:
        return None
    arguments: dict[Value, int] = {}
    for argument, slot in zip(kernel.regions[0].arguments, plan.slots, strict=False):
        if slot.kind == "symbol":
            arguments[argument] = sizes[slot.symbol]
        elif slot.kind == "size":
            arguments[argument] = size
        elif slot.kind == "groups":
            arguments[argument] = prod(grid)
    shown = [f"{name} = {value}" for name, value in sorted(sizes.items())]
    return Launch(arguments, grid, ", ".join(shown))


def _rank(kernel: Operation) -> int:
    rank = kernel.attributes["grid_rank"]
    return rank if isinstance(rank, int) else 1


def _solve(conditions: tuple[Condition, ...], sizes: dict[str, int]) -> None:
    """Give a size that a condition says all about what it says."""
    for condition in conditions:
        left, right = condition.left, condition.right
        if isinstance(right, Sym) and not isinstance(left, Sym):
            left, right = right, left
        exact = condition.comparison == "==" and not condition.others
        if exact and isinstance(left, Sym) and left.name in sizes:
            try:
                sizes[left.name] = evaluate_dim(right, sizes)
            except (KeyError, ZeroDivisionError):
                continue
