"""Kernels that are kept as Tile IR for checked mode: which there are, and a launch of one.

Must not know who launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.asynchronous.kernel import ArrayLayout, AsynchronousKernel
from tessera_backend.cpu.asynchronous.numbers import is_array, numpy_type
from tessera_backend.cpu.checked.machine import Machine, Memory, Report
from tessera_backend.cpu.checked.shadow import ArrayShadow, Clock
from tessera_lang.ir.core import Operation, Program
from tessera_lang.types.dtype import DType

KIND = "checked"
"""Of an artifact whose code is Tile IR for checked mode."""
_TOGETHER = 1 << 15
"""Lanes that step together, about."""
_ARITHMETIC = frozenset(
    f"tile.{name}"
    for name in (
        "add sub mul div floordiv mod min max and or xor shl shr neg abs not sqrt floor ceil trunc "
        "round exp2 fma cmp select cast bitcast approx"
    ).split()
)
_CONTROL = frozenset(
    f"tile.{name}"
    for name in "kernel if for while scope yield condition break continue leave return".split()
)

Printed = Callable[[int, int, int, list[int]], None]


def can_check(program: Program) -> bool:
    """Whether every operation has a meaning in checked mode."""
    own = {f"tile.{name.removeprefix('_do_')}" for name in vars(Machine) if name.startswith("_do_")}
    known = own | _ARITHMETIC | _CONTROL | {"tile.shared.alloc"}
    return all(o.name in known for o in program.walk())


class CheckedKernel(AsynchronousKernel):
    """A lane kernel of which every access is looked at."""

    def check(
        self, block: Sequence[int], axes: tuple[int, ...], arrays: Mapping[int, ArrayLayout],
        spaces: Mapping[int, int], printed: Printed,
    ) -> list[Report]:  # fmt: skip
        """Run all groups; the faults that lanes reported. Raises CheckedFault."""
        (kernel,) = self.program.operations
        values = self.values(block, arrays, spaces)
        groups = int(np.prod(axes))
        width = int(np.prod(self.plan.group))
        clock, bound = Clock(groups), self._bound(kernel, values, width)
        together = 1 if _wait_for_each_other(kernel) else max(1, _TOGETHER // width)
        reports: list[Report] = []
        for first in range(0, groups, together):
            count = min(together, groups - first)
            machine = Machine(kernel, self.plan.group, axes, first, count, clock, printed)
            machine.values.update(bound)
            machine.run()
            reports += machine.reports
        return reports

    def _bound(self, kernel: Operation, values: Sequence[Any], width: int) -> dict[Any, Any]:
        memories: dict[int, Memory] = {}
        bound: dict[Any, Any] = {}
        arguments = kernel.regions[0].arguments
        for at, (argument, value, slot) in enumerate(
            zip(arguments, values, self.plan.slots, strict=False)
        ):
            if is_array(value):
                number = slot.parameter if slot.parameter >= 0 else -1 - at
                if number not in memories:
                    written = self._is_written(number)
                    name = self._name(number)
                    shadow = ArrayShadow(name, value.shape, width) if written else None
                    memories[number] = Memory(value, shadow)
                bound[argument] = memories[number]
            elif isinstance(argument.type, DType):
                bound[argument] = numpy_type(argument.type)(value)
        return bound

    def _is_written(self, number: int) -> bool:
        inside = 0 <= number < len(self.plan.parameters)
        return not inside or self.plan.parameters[number].mut

    def _name(self, number: int) -> str:
        inside = 0 <= number < len(self.plan.parameters)
        return self.plan.parameters[number].name if inside else "the result"


def _wait_for_each_other(kernel: Operation) -> bool:
    """Whether groups may be ordered by atomics: then they run one after the other."""
    for o in kernel.walk():
        if o.name == "tile.fence" and o.attributes["scope"] in ("device", "mesh"):
            return True
        if o.name.startswith("tile.atomic") and o.attributes["order"] != "relaxed":
            return True
        if o.name == "tile.while" and any(i.name.startswith("tile.atomic") for i in o.walk()):
            return True
    return False
