"""What a pass is: a frozen value, so that a pipeline is a tuple and a runner can time,
verify and name each step. Must not know any pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tessera_lang.ir.core import Level, Operation, Program, Region, Value
from tessera_lang.record import dataclass

Kind = Literal["rewrite", "decide"]
"""What a pass may do: change anything, or attributes only."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that takes or gives more than one program, such as a lowering with its plan.
    ``does``: a line on what it does."""

    name: str
    takes: str
    gives: Level
    does: str


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of a pipeline: what it takes, what it gives, the function, and a line on what it
    does."""

    name: str
    takes: Level
    gives: Level
    run: Callable[[Program], Program]
    kind: Kind = "rewrite"
    does: str = ""


def changed_operation(before: Program, after: Program) -> Operation | None:
    """An operation of ``before`` of which more than attributes has changed; None where there is
    none, as behind every pass that decides."""
    if len(before.operations) != len(after.operations):
        return before.operations[0]
    pairs = zip(before.operations, after.operations, strict=True)
    return next((found for a, b in pairs if (found := _changed(a, b)) is not None), None)


def _changed(a: Operation, b: Operation) -> Operation | None:
    if a is b:
        return None
    same = a.name == b.name and len(a.regions) == len(b.regions)
    if not same or not _are(a.operands, b.operands) or not _are(a.results, b.results):
        return a
    for x, y in zip(a.regions, b.regions, strict=True):
        if x is not y and (found := _changed_in(x, y, a)) is not None:
            return found
    return None


def _changed_in(a: Region, b: Region, holder: Operation) -> Operation | None:
    if not _are(a.arguments, b.arguments) or len(a.operations) != len(b.operations):
        return holder
    pairs = zip(a.operations, b.operations, strict=True)
    return next((found for x, y in pairs if (found := _changed(x, y)) is not None), None)


def _are(a: tuple[Value, ...], b: tuple[Value, ...]) -> bool:
    """Whether these are the same values, not only equal ones."""
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
