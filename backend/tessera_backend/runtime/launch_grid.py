"""The groups of a launch: what the call asks for, what the plan says, and what a device takes.

Must not know arguments beyond the sizes they bind.
"""

from __future__ import annotations

import math

from tessera_backend.runtime.call_diagnostics import Place, diagnostic
from tessera_backend.runtime.size_checks import Sizes, value_of
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.target.launch_plan import LARGEST_SIZE, LaunchPlan
from tessera_lang.target.premises import GRID_LIMITS

GRID = "grid_groups"
_LIMITS = tuple(zip("xyz", GRID_LIMITS, strict=True))


def grid_of(
    plan: LaunchPlan, groups: tuple[int, ...] | None, sizes: Sizes
) -> tuple[tuple[int, ...], list[Diagnostic]]:
    found: list[Diagnostic] = []
    place: Place = plan.parameters[0].span if plan.parameters else ("", 0, 0)
    if plan.grid is None:
        if groups is None:
            return (), [diagnostic(
                "T0839", f"nothing says how many groups of `{plan.kernel}` to launch",
                helps=(f"write {plan.kernel}[groups](...)", "or give the kernel a clause "
                       "grid[(...,)] or a parameter of shape [grid_groups]"),
            )]  # fmt: skip
        if len(groups) != plan.grid_rank:
            found.append(_too_few_axes(plan, groups))
        return groups, found
    planned = tuple(value_of(d, sizes, "", place, found) or 0 for d in plan.grid)
    if groups is not None and _strip(groups) != _strip(planned) and not found:
        found.append(diagnostic(
            "T0834", f"the call asks for {_shown(groups)} groups of `{plan.kernel}`, and its "
            f"{'arguments' if GRID in sizes.origins else 'grid clause'} for {_shown(planned)}",
            place, helps=(f"leave the number out: `{plan.kernel}(...)`",),
        ))  # fmt: skip
    return planned, found


def _too_few_axes(plan: LaunchPlan, groups: tuple[int, ...]) -> Diagnostic:
    """Of a launch with fewer axes than a kernel asks for. (There is code for more.)"""
    whole = ", ".join(map(str, (*(1,) * (plan.grid_rank - len(groups)), *groups)))
    return diagnostic(
        "T0839", f"`{plan.kernel}` asks for axis {plan.grid_rank - 1} of its grid, and the call "
        f"gives a grid of {'1 axis' if len(groups) == 1 else f'{len(groups)} axes'}",
        helps=(f"say how many groups along each: {plan.kernel}[{whole}](...)",),
    )  # fmt: skip


def _strip(grid: tuple[int, ...]) -> tuple[int, ...]:
    """Without leading axes of one group: (1, 1, 4) launches what (4,) does."""
    at = 0
    while at < len(grid) - 1 and grid[at] == 1:
        at += 1
    return grid[at:]


def _shown(grid: tuple[int, ...]) -> str:
    return " x ".join(map(str, grid))


def check_grid(plan: LaunchPlan, grid: tuple[int, ...], on_device: bool) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for axis, (groups, (letter, limit)) in enumerate(zip(reversed(grid), _LIMITS, strict=False)):
        at = len(grid) - 1 - axis
        if groups < 0:
            found.append(
                diagnostic(
                    "T0846", f"the grid of `{plan.kernel}` has {groups} groups along axis {at}"
                )
            )
        elif groups > limit and (on_device or axis == 0):
            found.append(diagnostic(
                "T0840", f"the grid of `{plan.kernel}` has {groups} groups along axis {at} "
                f"({letter}), and the most is {limit}",
                helps=("let each group do more: loop over the elements by group_count(axis)",),
            ))  # fmt: skip
    if not found and math.prod(grid) > LARGEST_SIZE:
        found.append(diagnostic(
            "T0840", f"the grid of `{plan.kernel}` has {_shown(grid)} groups, and the most is "
            f"{LARGEST_SIZE} in all",
            helps=("let each group do more: loop over the elements by group_count(axis)",),
        ))  # fmt: skip
    if len(grid) > 3:
        found.append(diagnostic("T0840", f"the grid of `{plan.kernel}` has {len(grid)} axes, and "
                                "the most is 3"))  # fmt: skip
    return found
