"""Whether built code serves a call: its premises against a signature, its target against a device.

Owns the comparison; what is compared are the premises of ``tessera_lang.target.premises``. Must not
know folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera_backend.runtime.arrays import HOST
from tessera_backend.runtime.signature import Signature
from tessera_lang.record import replace
from tessera_lang.target.arch import runs_on
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan
from tessera_lang.target.premises import texts_of


def unmet(plan: LaunchPlan, wanted: Signature, brackets: Sequence[str] = ()) -> tuple[str, ...]:
    """What code assumes of single arguments and a call of this signature does not have, in words.
    ``brackets``: the compile-time parameters whose values stand at the begin of the signature."""
    if len(brackets) + len(plan.parameters) != len(wanted):
        return (f"there are {len(plan.parameters)} arguments",)
    by_name = {p.name: p for p in plan.brackets}
    parameters = (*(by_name.get(name) for name in brackets), *plan.parameters)
    found: list[str] = []
    for p, entry in zip(parameters, wanted, strict=True):
        if p is not None:
            found += _unmet(p, entry)
    return tuple(found)


def _unmet(p: ParameterPlan, entry: tuple[Any, ...]) -> tuple[str, ...]:
    match entry:
        case ("t", dtype, rank, *facts) if p.kind == "tensor":
            if p.dtype != dtype or p.rank != rank:
                return (f"`{p.name}` has {p.rank} axes and elements of {p.dtype}",)
            # What a call has is taken away: what is left are the reasons.
            bare = ParameterPlan(p.name, "tensor", p.dtype, p.rank, p.dims)
            usual = texts_of(bare)
            return tuple(x for x in texts_of(_without(p, facts)) if x not in usual)
        case ("s", dtype) if p.kind == "scalar":
            return () if p.dtype == dtype else (f"`{p.name}` is of {p.dtype}",)
        case ("c", _, value) if p.kind == "constant":
            return () if p.value in (None, value) else (f"`{p.name}` is {p.value}",)
        case _:
            what = f"an array of {p.dtype}" if p.kind == "tensor" else f"a {p.kind} of {p.dtype}"
            return (f"`{p.name}` is {what}",)


def _without(p: ParameterPlan, facts: list[Any]) -> ParameterPlan:
    """A parameter with what code relies on beyond the facts of a call."""
    contiguous, aligned, small, *more = facts
    p = replace(
        p, contiguous=p.contiguous and not contiguous, aligned=p.aligned and not aligned,
        small=p.small and not small,
    )  # fmt: skip
    if not more:
        return p
    sizes, _, divisors, unit, pitches, buckets = more[0]
    # Of rows without gaps the last axis is the one of neighbours, whichever a call names.
    its_unit = p.unit == unit or (contiguous and p.unit == p.rank - 1 and not p.pitches)
    # Where no stride is 1 the pitches are those of all axes.
    its_pitches = not p.pitches or (pitches and its_unit)
    return replace(
        p, sizes=tuple(None if a == b else a for a, b in zip(p.sizes, sizes, strict=False)),
        buckets=tuple(None if a == b else a for a, b in zip(p.buckets, buckets, strict=False)),
        divisors=tuple(
            1 if b % a == 0 else a for a, b in zip(p.divisors, divisors, strict=False)
        ),
        unit=-1 if its_unit else p.unit, pitches=not its_pitches,
    )  # fmt: skip


# --- devices -------------------------------------------------------------------------------


def not_for(options: TargetOptions, kind: str, device: int) -> str:
    """Why code is not for a device, in words; "" where it is. Of a CPU its features are asked
    elsewhere."""
    if device == HOST:
        return "" if options.target == "cpu" else f"it is for {options.arch}"
    if options.target != "cuda":
        return "it is for the CPU"
    from tessera_backend.device.driver import device as cuda_device

    fits = runs_on(options.arch, cuda_device(device).capability, kind == "cubin")
    return "" if fits else f"it is for {options.arch}"
