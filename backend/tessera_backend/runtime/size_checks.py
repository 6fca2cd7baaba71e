"""The sizes of a call: what binds each symbol, and the sizes and conditions that must hold.

Must not know the grid, nor where arrays lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.call_diagnostics import Place, diagnostic
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import Condition, LaunchPlan, ParameterPlan
from tessera_lang.target.size_origins import help_at_edges, where_sizes_are
from tessera_lang.types.shape import Dim, Sym, evaluate_dim, symbols_of

Argument = ArrayView | int | float | bool | str | None


@dataclass(slots=True)
class Sizes:
    """Symbols as they bind, with the place that bound each."""

    values: dict[str, int] = field(default_factory=dict[str, int])
    origins: dict[str, tuple[str, Place, int]] = field(
        default_factory=dict[str, tuple[str, Place, int]]
    )


def bind_symbols(plan: LaunchPlan, arguments: Sequence[Argument], sizes: Sizes) -> None:
    """Bind numbers by name, then plain symbols on first sight, parameter by parameter."""
    for p, value in zip(plan.parameters, arguments, strict=True):
        if p.kind != "tensor" and isinstance(value, int):
            sizes.values[p.name] = int(value)
    for p, value in zip(plan.parameters, arguments, strict=True):
        if isinstance(value, ArrayView):
            for axis, dim in enumerate(p.dims[: len(value.shape)]):
                if isinstance(dim, Sym) and dim.name not in sizes.values:
                    sizes.values[dim.name] = value.shape[axis]
                    sizes.origins[dim.name] = (p.name, p.span, axis)
            for axis, size in enumerate(value.shape):  # the size of an array without annotation
                sizes.values.setdefault(f"{p.name}.shape[{axis}]", size)


def check_sizes(plan: LaunchPlan, arguments: Sequence[Argument], sizes: Sizes) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for p, value in zip(plan.parameters, arguments, strict=True):
        if not isinstance(value, ArrayView):
            continue
        for axis, dim in enumerate(p.dims[: len(value.shape)]):
            expected = value_of(dim, sizes, p.name, p.span, found)
            if expected is not None and expected != value.shape[axis]:
                found.append(_size_mismatch(plan, p, axis, dim, value.shape[axis], expected, sizes))
    return found


def value_of(
    dim: Dim, sizes: Sizes, name: str, place: Place, found: list[Diagnostic]
) -> int | None:
    try:
        return evaluate_dim(dim, sizes.values)
    except KeyError as unbound:
        found.append(diagnostic("T0846", f"nothing says what the size `{unbound.args[0]}` is",
                                place, len(name)))  # fmt: skip
    except ZeroDivisionError:
        found.append(diagnostic("T0846", f"the size `{dim}` divides by zero in this call",
                                place, len(name)))  # fmt: skip
    return None


def _size_mismatch(
    plan: LaunchPlan, p: ParameterPlan, axis: int, dim: Dim, got: int, expected: int,
    sizes: Sizes,
) -> Diagnostic:  # fmt: skip
    others: list[tuple[Place, int, str]] = []
    reasons: list[str] = []
    for symbol in sorted(symbols_of(dim)):
        if symbol in sizes.origins:
            other, place, other_axis = sizes.origins[symbol]
            value = sizes.values[symbol]
            reasons.append(f"`{symbol}` is {value}, axis {other_axis} of `{other}`")
            others.append((place, len(other), f"`{symbol}` = {value} from here"))
        elif symbol in sizes.values:
            reasons.append(f"`{symbol}` is {sizes.values[symbol]}")
    wanted = f"`{dim}` is {expected}" + (f" ({'; '.join(reasons)})" if reasons else "")
    if isinstance(dim, int):
        wanted = f"{expected} is expected"
    elif isinstance(dim, Sym) and reasons:
        wanted = reasons[0]
    return diagnostic(
        "T0834", f"argument `{p.name}` of `{plan.kernel}` has size {got} along axis {axis}, and "
        f"{wanted}", p.span, len(p.name), f"declared `{p.declared}`",
        others=others,
    )  # fmt: skip


def check_condition(plan: LaunchPlan, condition: Condition, sizes: Sizes) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    sides = (condition.left, condition.right)
    try:
        if condition.holds(sizes.values):
            return found
    except (KeyError, ZeroDivisionError):
        for dim in (d for a, _, b in condition.alternatives for d in (a, b)):
            value_of(dim, sizes, condition.text, condition.span, found)
        return found
    names = sorted(condition.symbols)
    values = ", ".join(f"{name} = {sizes.values[name]}" for name in names)
    if condition.others:
        return [diagnostic(
            "T0838", f"`{plan.kernel}` requires `{condition.text}`, and here it does not hold",
            condition.span, len(condition.text), notes=(f"in this call {values}",),
        )]  # fmt: skip
    left, right = (evaluate_dim(dim, sizes.values) for dim in sides)
    if condition.comparison == "==" and isinstance(condition.left, Sym) and len(names) == 2:
        return [_disagreement(plan, condition, left, right)]
    return [diagnostic(
        "T0838", f"`{plan.kernel}` requires `{condition.text}`, and here it does not hold: "
        f"{left} {condition.comparison} {right} is false", condition.span, len(condition.text),
        notes=(f"in this call {values}",) if values else (),
        helps=help_at_edges(condition.left, condition.comparison, condition.right, condition.text),
    )]  # fmt: skip


def _disagreement(plan: LaunchPlan, condition: Condition, left: int, right: int) -> Diagnostic:
    """Two sizes that a kernel needs to be one."""
    return diagnostic(
        "T0838", f"`{plan.kernel}` needs `{condition.text}`, and here `{condition.left}` is {left} "
        f"and `{condition.right}` is {right}", condition.span,
        notes=where_sizes_are(
            (condition.left, condition.right), [(p.name, p.dims) for p in plan.parameters]
        ),
        helps=_how_they_meet(plan, condition, left, right),
    )  # fmt: skip


def _how_they_meet(
    plan: LaunchPlan, condition: Condition, left: int, right: int
) -> tuple[str, ...]:
    """What to write where NumPy would stretch an axis, or axes were meant to line up otherwise."""
    sides = [
        (p, axis) for dim in (condition.left, condition.right) for p in plan.parameters
        for axis in range(p.rank)
        if str(dim) in (f"{p.name}.shape[{axis}]", *_name(p, axis))
    ]  # fmt: skip
    if len(sides) != 2:
        return ()
    (a, i), (b, j) = sides
    if 1 in (left, right):
        p, axis = (a, i) if left == 1 else (b, j)
        own = [*p.dims] or [f"{p.name}{k}" for k in range(p.rank)]
        shape = ", ".join("1" if k == axis else str(n) for k, n in enumerate(own))
        return ("an axis is stretched where its type says that it has one element:"
                f" `{p.name}: {p.dtype}[{shape}]`",)  # fmt: skip
    few = a if a.rank < b.rank else b
    if a.rank == b.rank:
        return ()
    return ("arrays line up along their last axes, as in NumPy: say where an axis is missing, as in"
            f" `{few.name}[:, None]`",)  # fmt: skip


def _name(p: ParameterPlan, axis: int) -> tuple[str, ...]:
    return (str(p.dims[axis]),) if p.dims else ()
