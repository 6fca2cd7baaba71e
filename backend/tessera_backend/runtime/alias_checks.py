"""Written arguments that share memory with others, or whose own elements do: refused.

Owns which pairs are looked at, and the messages. Must not know how overlap is decided.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.runtime import memory_overlap
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.call_diagnostics import diagnostic, error
from tessera_backend.runtime.size_checks import Argument
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan
from tessera_lang.target.premises import written_pairs


def check_overlap(plan: LaunchPlan, views: Sequence[Argument], i: int, j: int) -> list[Diagnostic]:
    """Refuse a mut argument that shares memory with another."""
    a, b = views[i], views[j]
    assert isinstance(a, ArrayView) and isinstance(b, ArrayView)
    answer = memory_overlap.between(a, b)
    if answer == "no":
        return []
    p, q = plan.parameters[i], plan.parameters[j]
    what = "shares memory with" if answer == "yes" else "may share memory with"
    notes = () if answer == "yes" else (
        "their address ranges cross and their strides do not decide it; that counts as overlap",
    )  # fmt: skip
    return [diagnostic(
        "T0836", f"argument `{p.name}` of `{plan.kernel}` is written and {what} `{q.name}`",
        p.span, len(p.name), "declared `mut`", ((q.span, len(q.name), "the other argument"),),
        notes, (f"pass a copy for `{q.name}`",),
    )]  # fmt: skip


def _check_self(plan: LaunchPlan, p: ParameterPlan, view: ArrayView) -> list[Diagnostic]:
    answer = memory_overlap.within(view)
    if answer == "no":
        return []
    what = (
        "several of its elements share memory"
        if answer == "yes"
        else ("its strides do not decide whether elements share memory; that counts as sharing")
    )
    return [diagnostic(
        "T0837", f"argument `{p.name}` of `{plan.kernel}` is written, and {what} "
        f"(shape {view.shape}, strides {view.strides})", p.span, len(p.name), "declared `mut`",
        helps=("pass a copy of it",),
    )]  # fmt: skip


def sharing_faults(
    plan: LaunchPlan, arguments: Sequence[Argument], pairs: Sequence[tuple[int, int]]
) -> list[Diagnostic]:
    """All of a call; ``pairs`` are those of ``written_pairs``."""
    found: list[Diagnostic] = []
    for p, value in zip(plan.parameters, arguments, strict=True):
        if p.mut and isinstance(value, ArrayView):
            found += _check_self(plan, p, value)
    for i, j in pairs:
        found += check_overlap(plan, arguments, i, j)
    return found


def check_sharing(plan: LaunchPlan, arguments: Sequence[Argument]) -> None:
    """Refuse written arguments that share memory, their own elements included."""
    found = sharing_faults(plan, arguments, written_pairs(plan))
    if found:
        raise error(*found)
