"""Launches made ready: a checked layout, its argument blocks, and the call.

Owns ``Prepared``: everything about a call that its layout decides, done once; what is left
for each call is the addresses and the numbers. Must not know how arguments are recognised
(``kernel.py``) or how code is loaded (``loaded_code.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera_backend.runtime.alias_checks import check_overlap
from tessera_backend.runtime.arrays import ArrayView
from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.call_binding import bind
from tessera_backend.runtime.call_diagnostics import error
from tessera_backend.runtime.loaded_code import Code, Frame
from tessera_backend.runtime.scalars import encoder
from tessera_backend.runtime.size_checks import Argument
from tessera_backend.runtime.zeroed_results import zeros_first
from tessera_lang.target.launch_plan import LaunchPlan


class Prepared:
    """A launch of one layout: shapes, strides, dtypes, device and grid are decided."""

    __slots__ = (
        "axes", "bound", "code", "empty", "encoders", "flags", "pairs",
        "plan", "pool", "quiet", "results", "slots",
    )  # fmt: skip

    def __init__(self, code: Code, bound: Bound, arguments: Sequence[Argument]) -> None:
        self.code = code
        self.plan = code.plan
        self.axes = bound.axes
        self.bound = bound
        self.empty = all(part.empty for part in (bound, *bound.then))
        self.results = bound.memory.results
        self.flags, self.quiet = code.flags, code.quiet
        self.pool: list[Frame] = []
        parts = list(zip(code.offsets, (bound, *bound.then), strict=True))
        self.slots = tuple((i, first + at) for first, part in parts for at, i in part.slots.data)
        self.encoders: list[tuple[int, int, Callable[[object], int]]] = [
            (first + at, i, encoder(p.dtype, p.name, p.span))
            for first, part in parts
            for at, i in part.slots.scalars
            for p in (self.plan.parameters[i],)
        ]
        extents = [a.extent() if isinstance(a, ArrayView) else (0, 0) for a in arguments]
        self.pairs = [(i, j, *extents[i], *extents[j]) for i, j in bound.pairs]

    def frame(self) -> Frame:
        """A block with what the layout decides."""
        if self.empty:
            frame: Frame = [0] * self.code.words, _launch_nothing
        else:
            frame = self.code.frame(self.bound)
        zeroed = self.bound.memory.zeroed
        return zeros_first(frame, zeroed, self.code.device) if zeroed else frame

    def run(self, arguments: Sequence[Argument], stream: int) -> None:
        """Launch with these addresses and numbers; the layout must be this one's."""
        self.check_pairs(arguments)
        if self.flags != self.quiet:
            self.code.report()
        frame = self.filled(pointers_of(arguments), arguments)
        frame[1](stream)
        self.pool.append(frame)

    def check_pairs(self, arguments: Sequence[Argument]) -> None:
        """Refuse written arguments that share memory with others: addresses change."""
        for i, j, i_low, i_high, j_low, j_high in self.pairs:
            a, b = arguments[i], arguments[j]
            assert isinstance(a, ArrayView) and isinstance(b, ArrayView)
            p, q = a.pointer, b.pointer
            if p + i_low < q + j_high and q + j_low < p + i_high:
                found = check_overlap(self.plan, arguments, i, j)
                if found:
                    raise error(*found)

    def filled(self, pointers: Sequence[int], arguments: Sequence[Any]) -> Frame:
        """A block ready to launch."""
        try:
            frame = self.pool.pop()
        except IndexError:
            frame = self.frame()
        block = frame[0]
        for i, at in self.slots:
            block[at] = pointers[i]
        for at, i, encode in self.encoders:
            block[at] = encode(arguments[i])
        return frame


def pointers_of(arguments: Sequence[Any]) -> list[int]:
    """The address of each array, 0 for a number."""
    return [a.pointer if isinstance(a, ArrayView) else 0 for a in arguments]


def _launch_nothing(stream: int) -> None:
    """A launch of no groups: outputs stay as they are."""


def compile_plan(
    code: Code,
) -> Callable[[Sequence[Argument], tuple[int, ...] | None], Prepared]:
    """The closure that checks a call's layout against the plan and makes it ready.

    Raises TesseraError with all independent faults of the call.
    """
    plan: LaunchPlan = code.plan

    def prepare(arguments: Sequence[Argument], groups: tuple[int, ...] | None) -> Prepared:
        return Prepared(code, bind(plan, arguments, groups, code.then, code.device), arguments)

    return prepare
