"""Code of checked mode: each launch in every order of lanes, its findings, and what a run says.

Must not know how accesses are looked at.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tessera_backend.cpu.checked.checked_launch import CheckedKernel
from tessera_backend.cpu.checked.fault_records import CheckedFault
from tessera_backend.cpu.checked.lane_orders import Setting, setting_of
from tessera_backend.cpu.interpreter.serialized_kernel import array_at
from tessera_backend.runtime.bound_arguments import Bound
from tessera_backend.runtime.call_diagnostics import diagnostic, error, source_of
from tessera_backend.runtime.checked_coverage import note_launch
from tessera_backend.runtime.cpu_code import HostCode
from tessera_backend.runtime.faults import WORDS
from tessera_lang.diagnostics.diagnostic import Diagnostic, Label
from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact

Block = ctypes.Array[ctypes.c_int64]
Array = np.ndarray[Any, np.dtype[Any]]


class CheckedCode(HostCode):
    """A kernel whose accesses are looked at; a launch returns when it has run in all orders."""

    own_words = 1

    def load(self, artifact: Artifact) -> None:
        self._checked = CheckedKernel(artifact)

    def prepare(self, block: Block, bound: Bound) -> Callable[[], None]:
        def run() -> None:
            setting = _current_setting()
            note_launch(self.plan, self._checked.facts, bound, setting)
            self._checked.poison(block, bound.slots.arrays)
            written = self._written(block, bound)
            before = [a.copy() for a in written] if len(setting.orders) > 1 else []
            for number, order in enumerate(setting.orders):
                if number:
                    self._back(written, before, block)
                try:
                    self._checked.launch(block, bound.axes, bound.slots.arrays, order, setting.seed)
                except CheckedFault as fault:
                    if fault.endless and order != "forward" and "forward" in setting.orders:
                        block[self._count : self._count + WORDS] = [0] * WORDS
                        continue  # a lane waits for one that comes later in this order only
                    block[self._count : self._count + WORDS] = [0] * WORDS
                    note = f"lanes in {order} order"
                    note += f", seed {setting.seed}" if order == "random" else ""
                    raise error(self._shown(fault, note)) from fault

        return run

    def _written(self, block: Block, bound: Bound) -> list[Array]:
        """The arrays that the kernel may write."""
        found: list[Array] = []
        parameters = self.plan.parameters
        for at, slot in enumerate(self.plan.slots):
            if slot.kind != "data" or at not in bound.slots.arrays:
                continue
            if slot.parameter >= len(parameters) or parameters[slot.parameter].mut:
                found.append(array_at(block[at], bound.slots.arrays[at]))
        return found

    def _back(self, written: list[Array], before: list[Array], block: Block) -> None:
        """All as it was; what lanes printed comes again."""
        for array, old in zip(written, before, strict=True):
            array[...] = old
        for at, slot in enumerate(self.plan.slots):
            if slot.kind == "print":
                ctypes.memset(block[at], 0, 16)

    def _shown(self, fault: CheckedFault, note: str) -> Diagnostic:
        span, other = (
            s if s is not None and source_of(s.file) is not None else None
            for s in (fault.span, fault.other)
        )
        labels = (Label(other, "the other access"),) if other is not None else ()
        made = diagnostic(
            "T0853", f"`{self.plan.kernel}`: {fault.message}", notes=(*fault.details, note)
        )
        return replace(made, span=span, labels=labels)


_given: Setting | None = None


def use_setting(order: str, seed: int) -> None:
    """The orders of all launches from here on."""
    global _given
    wanted = setting_of(order, seed)
    _given = None if wanted == _of_environment() else wanted


def _current_setting() -> Setting:
    return _of_environment() if _given is None else _given


def _of_environment() -> Setting:
    from tessera_lang.driver.options import from_environment

    try:
        options = from_environment()
    except ValueError as fault:
        raise error(diagnostic("T0814", str(fault))) from fault
    return setting_of(options.lane_order, options.lane_seed)
