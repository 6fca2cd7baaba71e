"""Kernels whose calls do nothing that anybody sees.

Must not know how a call is made.
"""

from __future__ import annotations

from tessera_backend.runtime.call_diagnostics import NOWHERE, diagnostic
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.target.launch_plan import LaunchPlan


def has_effect(plan: LaunchPlan) -> bool:
    """Whether a launch gives or changes an array, prints, or may find an assertion false."""
    changed = any(p.mut for p in plan.parameters)
    asserted = any(site.kind == "assert" for site in plan.sites)
    return changed or asserted or bool(plan.results) or bool(plan.prints)


def no_effect(plan: LaunchPlan, level: str) -> Diagnostic:
    """What is said of a kernel without."""
    first = plan.parameters[0] if plan.parameters else None
    returned = "return the result, or " if level == "tile" else ""
    return diagnostic(
        "T0857",
        f"a call of `{plan.kernel}` does nothing: it returns nothing and changes no argument",
        NOWHERE if first is None else first.span, 1 if first is None else len(first.name),
        severity="warning",
        helps=(f"{returned}store it into a parameter that is declared `mut`: `out: mut f32[n]`",),
    )  # fmt: skip
