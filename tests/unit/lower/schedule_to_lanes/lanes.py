"""For tests: kernels of Schedule IR over arrays, and running them as loops of lanes.

``Arrays`` builds a kernel whose arguments are pointers, sizes and strides of arrays; ``run``
lowers it for the CPU, compiles it and calls it; ``check`` compares with the evaluator of
Schedule IR.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tessera_backend.cpu.backend import BACKEND
from tessera_backend.cpu.thread_pool import CpuKernel

from tessera_lang.driver.pass_runner import run_passes
from tessera_lang.driver.pipeline import TILE
from tessera_lang.ir.core import IRType, PointerType, Program, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.verify import verify
from tessera_lang.lower.schedule_to_lanes import lower_to_lanes
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.target.machine import Machine, machine_named
from tessera_lang.types.dtype import INDEX, DType
from tessera_lang.types.shape import evaluate_dim
from tests import quick_code
from tests.unit.lower.ast_to_schedule import reference

Built = tuple[Program, LaunchPlan]


class ArrayBuilder(ScheduleBuilder):
    """``sizes``: those of each array, by its view."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[Value, list[Value]] = {}


Body = Callable[[ArrayBuilder, list[Value]], None]


def clip(b: ArrayBuilder, view: Value, axis: int, start: Value, capacity: int) -> Value:
    """How much of a slice is there."""
    rest = b.binary("sub", b.sizes[view][axis], start)
    return b.binary("max", b.binary("min", b.index(capacity), rest), b.index(0))


def build(arrays: Sequence[tuple[DType, int]], body: Body, strided: bool = False) -> Built:
    """A kernel over arrays of (dtype, rank); ``body(builder, views)``. All may be written."""
    b = ArrayBuilder()
    arguments: list[tuple[str, IRType]] = []
    slots: list[Slot] = []
    for n, (dtype, rank) in enumerate(arrays):
        arguments.append((f"p{n}", PointerType(dtype, "global")))
        slots.append(Slot("data", n))
        for kind in ("size", "stride") if strided else ("size",):
            for axis in range(rank):
                arguments.append((f"{kind}{n}_{axis}", INDEX))
                slots.append(Slot(kind, n, axis))
    with b.region(*arguments) as region:
        values = list(region.arguments)
        views: list[Value] = []
        sizes: dict[Value, list[Value]] = {}
        for _, rank in arrays:
            pointer, *numbers = values[: 1 + rank * (1 + strided)]
            values = values[1 + len(numbers) :]
            view = b.view(pointer, numbers[:rank], numbers[rank:], mut=True)
            sizes[view] = numbers[:rank]
            views.append(view)
        b.sizes = sizes
        body(b, views)
        b.return_()
    b.schedule_kernel("k", region.region, [name for name, _ in arguments], {})
    parameters = tuple(
        ParameterPlan(f"p{n}", "tensor", str(d), r, mut=True) for n, (d, r) in enumerate(arrays)
    )
    return verify(b.program()), LaunchPlan("k", parameters, tuple(slots), (1,), None)


_MADE: dict[int, tuple[Built, list[Any]]] = {}
CPU, GPU = machine_named("cpu", "native"), machine_named("cuda", "sm_80")


def compiled(built: Built, machine: Machine = CPU, stages: tuple[str, ...] = ()) -> Any:
    """The program as loops of lanes, its plan, and the kernel for this CPU (which runs the many
    lanes of a GPU's form too), optimized as the test says (``tests/quick_code.py``)."""
    program, plan = lower_to_lanes(*built, machine)
    program = run_passes(verify(program), TILE)
    level = quick_code.FULL if stages else quick_code.level()
    artifact = BACKEND.compile(program, plan, TargetOptions("cpu", optimize=level), stages)
    return program, plan, CpuKernel(artifact), artifact


def arguments_of(plan: LaunchPlan, arrays: Sequence[np.ndarray[Any, Any]]) -> list[int]:
    out: list[int] = []
    for slot in plan.slots:
        array = arrays[slot.parameter]
        match slot.kind:
            case "data":
                out.append(array.ctypes.data)
            case "size":
                out.append(array.shape[slot.axis])
            case "stride":
                out.append(array.strides[slot.axis] // array.itemsize)
            case _:
                out.append(0)
    return out


def groups_of(plan: LaunchPlan, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[int, ...]:
    sizes = {
        f"p{n}.shape[{axis}]": size
        for n, array in enumerate(arrays) for axis, size in enumerate(array.shape)
    }  # fmt: skip
    assert plan.grid is not None
    return tuple(evaluate_dim(d, sizes) for d in plan.grid)


def run(made: Any, arrays: Sequence[np.ndarray[Any, Any]], threads: int = 1) -> None:
    _, plan, kernel, _ = made
    numbers = arguments_of(plan, arrays)
    slots = (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
    kernel.launch(slots, groups_of(plan, arrays), threads)


def check(
    built: Built, arrays: Sequence[np.ndarray[Any, Any]], rtol: float = 1e-5, atol: float = 1e-6,
) -> None:  # fmt: skip
    """Both forms of a kernel do what the evaluator does."""
    if id(built) not in _MADE:
        _MADE.clear()
        _MADE[id(built)] = (built, [compiled(built, machine) for machine in (CPU, GPU)])
    for made in _MADE[id(built)][1]:
        check_made(built, made, arrays, rtol, atol)


def check_made(
    built: Built, made: Any, arrays: Sequence[np.ndarray[Any, Any]], rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:  # fmt: skip
    """The compiled kernel does to a copy of the arrays what the evaluator does."""
    ours = [a.copy(order="K") if a.base is None else _like(a) for a in arrays]
    theirs = [a.copy() for a in arrays]
    program, plan = built
    given: list[Any] = []
    for slot in plan.slots:
        array = theirs[slot.parameter]
        if slot.kind == "data":
            given.append(array)
        elif slot.kind == "size":
            given.append(array.shape[slot.axis])
        else:
            given.append(array.strides[slot.axis] // array.itemsize)
    reference.evaluate(program, given)
    run(made, ours)
    for x, y in zip(ours, theirs, strict=True):
        if x.dtype.kind in "biu":
            np.testing.assert_array_equal(x, y)
        else:
            np.testing.assert_allclose(
                x.astype(np.float64), y.astype(np.float64), rtol=rtol, atol=atol
            )


def _like(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy with the same strides (of an array that is a view)."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    fresh = base.copy(order="K")
    offset = array.ctypes.data - base.ctypes.data
    return np.ndarray(array.shape, array.dtype, fresh.data, offset, array.strides)
