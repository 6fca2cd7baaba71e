"""Which argument goes to which parameter, for functions and builtins alike.

Owns counting, keywords and defaults. Must not know types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera_lang.diagnostics.diagnostic import Diagnostic, Edit, Fix, Label
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.foreign_names import KEYWORDS
from tessera_lang.sema.builtins import BuiltinInfo
from tessera_lang.source import Span
from tessera_lang.syntax import ast

Report = Callable[[Diagnostic], None]
Bound = dict[str, ast.Expr]


_UNBIASED = ("the squares are divided by their number n: write `... * n / (n - 1)`",)
_INSTEAD: dict[str, tuple[str, ...]] = {
    "ddof": _UNBIASED, "correction": _UNBIASED,
    "out": ("in a statement of its own it stores, `op.add(a, b, out=c)`; or write"
            " `c[:] = op.add(a, b)`",),
    "decimals": ("the number of decimals is written out: `op.round(x, 2)`, or -1 for tens",),
}  # fmt: skip
"""What to write for a keyword that others have."""
_PLACES_OF_TRUE = (
    "how many are true is known to the run alone: the host program can choose elements, `x[mask]`;"
    " of all elements write `op.where(mask, x, 0.0)`"
)
_WINDOW_OF_AXES = "a window has all axes of `x`: `op.window(x, (i, j), (16, 64))` of two"


def _plural(n: int) -> str:
    return f"{n} argument{'' if n == 1 else 's'}"


def bind(
    call: ast.Call,
    names: Sequence[str],
    required: Sequence[str],
    what: str,
    report: Report,
    declared: Span | None = None,
) -> Bound | None:
    """Arguments by parameter name; None where they do not fit (reported).

    ``what`` names the callee in messages; ``declared`` is where it is written.
    """
    labels = (Label(declared, "declared here"),) if declared is not None else ()
    bound: Bound = dict(zip(names, call.arguments, strict=False))
    good = True
    if len(call.arguments) > len(names):
        extra = call.arguments[len(names)]
        report(Diagnostic(
            "T0105", f"{what} takes {_plural(len(names))}, not {len(call.arguments)}",
            extra.span, "one too many", labels=labels,
        ))  # fmt: skip
        good = False
    for k in call.keywords:
        if k.name not in names:
            other = KEYWORDS.get(k.name)
            close = other if other in names else nearest(k.name, tuple(names))
            signature = () if labels else (_signature(what, names, required),)
            if what == "`op.window`" and k.name == "axis":
                signature = (*signature, _WINDOW_OF_AXES)
            report(Diagnostic(
                "T0106", f"{what} has no parameter `{k.name}`", k.name_span, labels=labels,
                helps=(f"did you mean `{close}`?",) if close else _INSTEAD.get(k.name, signature),
                fixes=(Fix(f"write `{close}`", (Edit(k.name_span, close),), "unsafe"),)
                if close else (),
            ))  # fmt: skip
            good = False
        elif k.name in bound:
            report(Diagnostic(
                "T0106", f"`{k.name}` is given twice to {what}", k.span,
                labels=(Label(bound[k.name].span, "given here first"),),
            ))  # fmt: skip
            good = False
        else:
            bound[k.name] = k.value
    missing = [n for n in required if n not in bound]
    if missing and good:
        text = ", ".join(f"`{n}`" for n in missing)
        signature = () if labels else (_signature(what, names, required),)
        report(Diagnostic("T0105", f"{what} needs {text}", call.span, "missing here",
                          labels=labels, helps=signature))  # fmt: skip
        good = False
    return bound if good else None


def _signature(what: str, names: Sequence[str], required: Sequence[str]) -> str:
    """How something that no program declares is called."""
    shown = ", ".join(n if n in required else f"{n}=" for n in names)
    return f"it is called so: `{what.strip('`')}({shown})`"


def bind_builtin(call: ast.Call, info: BuiltinInfo, report: Report) -> Bound | None:
    """Arguments of a builtin; a variadic one only has its count checked."""
    what = f"`{info.name}`"
    given = len(call.arguments)
    if info.variadic:
        if call.keywords:
            report(Diagnostic("T0106", f"{what} takes no keyword arguments", call.keywords[0].span))
            return None
        if given < info.required:
            report(Diagnostic("T0105", f"{what} takes {info.counts}, not {given}", call.span))
            return None
        return {}
    if not call.keywords and not info.required <= given <= len(info.parameters):
        helps = (_signature(what, info.parameters, info.parameters[: info.required]),)
        if info.name == "op.round" and given == 2:
            helps = _INSTEAD["decimals"]
        elif info.name == "op.where" and given == 1:
            helps = (_PLACES_OF_TRUE, *helps)
        report(Diagnostic("T0105", f"{what} takes {info.counts}, not {given}", call.span,
                          helps=helps))  # fmt: skip
        return None
    return bind(call, info.parameters, info.parameters[: info.required], what, report)
