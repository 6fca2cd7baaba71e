"""The groups of a launch: what the call asks for, what the plan says, and what a device takes.

Must not know arguments beyond the sizes they bind.
"""

from __future__ import annotations

from tessera_backend.runtime.report import Place, diagnostic
from tessera_backend.runtime.size_checks import Sizes, value_of
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.target.plan import LaunchPlan

GRID = "grid_groups"
_LIMITS = (("x", 2**31 - 1), ("y", 65535), ("z", 65535))


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
        return groups, found
    planned = tuple(value_of(d, sizes, "", place, found) or 0 for d in plan.grid)
    if groups is not None and _strip(groups) != _strip(planned) and not found:
        found.append(diagnostic(
            "T0834", f"the call asks for {_shown(groups)} groups of `{plan.kernel}`, and its "
            f"{'arguments' if GRID in sizes.origins else 'grid clause'} for {_shown(planned)}",
        ))  # fmt: skip
    return planned, found


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
    if len(grid) > 3:
        found.append(diagnostic("T0840", f"the grid of `{plan.kernel}` has {len(grid)} axes, and "
                                "the most is 3"))  # fmt: skip
    return found
