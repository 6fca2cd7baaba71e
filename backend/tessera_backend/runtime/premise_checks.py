"""Whether a launch is as its code assumes: every premise of a plan, looked at once a layout.

What a caller can mend has been said before by the other checks; this one holds that no launch gets
by them. Must not know what the premises are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.call_diagnostics import diagnostic
from tessera_backend.runtime.size_checks import Argument, Sizes
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.premises import array_numbers, broken, grid_numbers


class UnmetPremise(TesseraError):
    """A call that code is not for, though nothing is wrong with the call."""


def check_premises(
    plan: LaunchPlan, target: Literal["cpu", "cuda"], arrays: Sequence[Argument], sizes: Sizes,
    axes: tuple[int, ...],
) -> None:  # fmt: skip
    """``arrays`` are the arguments and the results. Raises UnmetPremise."""
    results = (f"result{i}" for i in range(len(plan.results)))
    numbers = {**sizes.values, **grid_numbers(axes)}
    for name, value in zip((*(p.name for p in plan.parameters), *results), arrays, strict=True):
        if isinstance(value, ArrayView):
            numbers |= array_numbers(name, value.shape, value.strides, value.pointer)
    text = broken(plan, target, numbers)
    if text:
        raise UnmetPremise((diagnostic(
            "T0855", f"this code of `{plan.kernel}` is for calls in which {text}, and here it is "
            "not so", plan.parameters[0].span if plan.parameters else ("", 0, 0),
            helps=("give the kernel its arrays in parts",),
        ),))  # fmt: skip
