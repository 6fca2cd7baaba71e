"""Launches to try a suspicion on: sizes that the kernel's own conditions allow.

Owns the choice of numbers. Scalars that the caller passes stay unknown: nobody says which are
meant. Must not know lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tessera_lang.analysis.lanes.concrete_lane import Launch
from tessera_lang.ir.core import Operation, Value
from tessera_lang.target.launch_plan import Condition, LaunchPlan
from tessera_lang.types.shape import Sym, evaluate_dim

_ROWS = 5  # groups along an axis of the grid that is a size
_GROUPS = 2  # along an axis for which the call says how many


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


def _launch(kernel: Operation, plan: LaunchPlan, size: int, rows: int = 0) -> Launch | None:
    """``rows``: the sizes that are an axis of the grid, 0 where these are as all others."""
    sizes = {s.symbol: size for s in plan.slots if s.kind == "symbol"}
    if rows:
        of_grid = {g.name: rows for g in plan.grid or () if isinstance(g, Sym)}
        if not of_grid:
            return None
        sizes.update({name: n for name, n in of_grid.items() if name in sizes})
    _solve(plan.conditions, sizes)
    try:
        allowed = all(c.holds(sizes) for c in plan.conditions)
        groups = tuple(evaluate_dim(g, {"grid_groups": _GROUPS, **sizes}) for g in plan.grid or ())
    except (KeyError, ZeroDivisionError):
        return None
    groups = groups or (_GROUPS,) * max(1, _rank(kernel))
    if not allowed or min(groups) < 1:
        return None
    arguments: dict[Value, int] = {}
    for argument, slot in zip(kernel.regions[0].arguments, plan.slots, strict=False):
        if slot.kind == "symbol":
            arguments[argument] = sizes[slot.symbol]
        elif slot.kind == "size":
            arguments[argument] = size
        elif slot.kind == "groups":
            arguments[argument] = prod(groups)
    shown = [f"{name} = {value}" for name, value in sorted(sizes.items())]
    return Launch(arguments, groups, ", ".join(shown))


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
