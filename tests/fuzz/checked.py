"""The kernels of ``tests/fuzz/checker.py``, clean and with a planted fault, in checked mode.

Here nothing is proved beforehand: every element of shared memory has its shadow, and what the
checker refuses is compiled all the same. The table in ``docs/checker.md`` is written by:

    python -m tests.fuzz.checked --kernels 300 --seed 1
"""

from __future__ import annotations

import argparse
import ctypes
import random
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from tessera_backend.cpu.backend import BACKEND
from tessera_backend.cpu.checked.checked_launch import CheckedKernel
from tessera_backend.cpu.checked.fault_records import CheckedFault
from tessera_backend.cpu.checked.lane_orders import ORDERS, Order
from tessera_backend.runtime.bound_arguments import MappedArray

from tessera_lang.analysis.races.shared_check import Unproved
from tessera_lang.ir.core import Operation
from tessera_lang.ir.definitions import ALLOCATIONS
from tessera_lang.target.backend import TargetOptions
from tessera_lang.types.dtype import F32
from tests.fuzz.checker import (
    FAULTS,
    ROUNDS,
    Kernel,
    clean_kernel,
    is_faulty,
    with_fault,
    write_page,
)
from tests.unit.lowering import lower_source

Array = np.ndarray[Any, np.dtype[np.float32]]
GROUPS = 2
PROOF = "tessera_backend.cpu.checked.shadow_elision.unproved_buffers"


def _nothing_proved(kernel: Operation, known: object) -> Unproved:
    every = frozenset(o.result for o in kernel.walk() if o.name in ALLOCATIONS)
    return Unproved(every, every)


class Checked:
    """A kernel of the generator in checked mode, compiled whatever is wrong with it."""

    def __init__(self, kernel: Kernel) -> None:
        program, plan, _ = lower_source(kernel.text())
        options = TargetOptions("cpu", optimize=0, checked=True)
        with patch(PROOF, _nothing_proved):
            artifact = BACKEND.compile(program, plan, options, ())
        self.kernel, self.plan = CheckedKernel(artifact), artifact.plan
        self.x = np.random.default_rng(0).standard_normal(ROUNDS * kernel.lanes, np.float32)

    def fault(self, order: Order, x: Array | None = None, h: int = 0) -> str:
        """What a run in an order finds, "" for nothing."""
        x = self.x if x is None else x
        out = np.zeros(GROUPS, np.float32)
        record = (ctypes.c_int64 * 8)()
        arrays = {0: x, len(self.plan.parameters) - 1: out}
        block = (ctypes.c_int64 * (len(self.plan.slots) + 1))()
        layouts: dict[int, MappedArray] = {}
        for at, slot in enumerate(self.plan.slots):
            if slot.kind == "data":
                array = arrays[slot.parameter]
                block[at] = array.ctypes.data
                layouts[at] = MappedArray(F32, array.shape, (1,))
            elif slot.kind == "fault":
                block[at] = ctypes.addressof(record)
            else:
                block[at] = h if slot.kind == "scalar" else len(x)
        try:
            self.kernel.launch(block, (GROUPS,), layouts, order, seed=1)
        except CheckedFault as fault:
            return fault.message
        return "an access outside" if record[0] else ""


def found(kernel: Kernel) -> dict[Order, str]:
    checked = Checked(kernel)
    return {order: checked.fault(order) for order in ORDERS}


@dataclass
class Row:
    kernels: int = 0
    faulty: int = 0
    caught: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*ORDERS, "any"), 0))
    blamed: int = 0

    def add(self, *, faulty: bool, faults: dict[Order, str]) -> bool:
        """Whether the answer is right."""
        self.kernels += 1
        blamed = any(faults.values())
        if not faulty:
            self.blamed += blamed
            return not blamed
        self.faulty += 1
        for order, text in faults.items():
            self.caught[order] += bool(text)
        self.caught["any"] += blamed
        return blamed


@dataclass
class Outcome:
    rows: dict[str, Row] = field(default_factory=lambda: {n: Row() for n in ("none", *FAULTS)})
    wrong: list[str] = field(default_factory=list[str])


def measure(kernels: int, seed: int) -> Outcome:
    """The kernels are those of the checker's test with this seed."""
    r = random.Random(seed)
    out = Outcome()
    for _ in range(kernels):
        clean = clean_kernel(r)
        planted = {fault: with_fault(clean, fault, r) for fault in FAULTS}
        for name, made in {"none": clean, **planted}.items():
            if made is None:
                continue
            faults = found(made)
            if not out.rows[name].add(faulty=is_faulty(made, (ROUNDS,)), faults=faults):
                out.wrong.append(f"{name}: {faults}\n{made.text()}")
    return out


def table(out: Outcome, kernels: int, seed: int) -> str:
    blamed = sum(row.blamed for row in out.rows.values())
    lines = [
        f"{kernels} generated kernels, seed {seed}, groups of 32 to 128. Blamed without a fault: "
        f"{blamed}.",
        "",
        "| planted | kernels | of these faulty | caught | forward alone | reverse alone | "
        "random alone | blamed without a fault |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in out.rows.items():
        each = " | ".join(str(row.caught[o]) for o in ("any", "forward", "reverse", "random"))
        lines.append(f"| {name} | {row.kernels} | {row.faulty} | {each} | {row.blamed} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    out = measure(given.kernels, given.seed)
    text = table(out, given.kernels, given.seed)
    print(text)
    for wrong in out.wrong[:3]:
        print(f"\n{wrong}")
    write_page("checked", text)


if __name__ == "__main__":
    main()
