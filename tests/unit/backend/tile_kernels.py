"""Kernels of Tile IR for the backend tests, and running them on the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from tessera_backend.cpu.backend import BACKEND
from tessera_backend.cpu.thread_pool import CpuKernel

from tessera_lang.ir.core import IRType, PointerType, Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.launch_plan import LaunchPlan, Slot
from tessera_lang.types.dtype import INDEX, DType
from tests import quick_code

NUMPY: dict[str, Any] = {
    "bool": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "index": np.int64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


class Kernel:
    """A Tile kernel being built. Arguments: arrays (pointer and length), then the fault."""

    def __init__(self, group: tuple[int, ...] = (64,), grid_rank: int = 1) -> None:
        self.b = Builder()
        self.group = group
        self.grid_rank = grid_rank

    def build(
        self,
        arrays: Sequence[DType],
        body: Callable[[Builder, list[Value]], None],
        scalars: Sequence[IRType] = (),
        mut: Sequence[int] | None = None,
    ) -> tuple[Program, LaunchPlan]:
        """``body(builder, views + scalars)``; arrays in ``mut`` (the last one) are written."""
        b = self.b
        written = (len(arrays) - 1,) if mut is None else mut
        arguments: list[tuple[str, IRType]] = []
        slots: list[Slot] = []
        for number, dtype in enumerate(arrays):
            arguments += [(f"p{number}", PointerType(dtype, "global")), (f"n{number}", INDEX)]
            slots += [Slot("data", number), Slot("size", number, 0)]
        for number, scalar in enumerate(scalars):
            arguments.append((f"s{number}", scalar))
            slots.append(Slot("scalar", len(arrays) + number, dtype=str(scalar)))
        arguments.append(("fault", INDEX))
        slots.append(Slot("fault"))
        with b.region(*arguments) as region:
            values = region.arguments
            views = [
                b.view(values[2 * i], [values[2 * i + 1]], mut=i in written)
                for i in range(len(arrays))
            ]
            body(b, [*views, *values[2 * len(arrays) : -1]])
            if not b.terminated:
                b.return_()
        names = [name for name, _ in arguments]
        b.kernel("k", region.region, group=self.group, grid_rank=self.grid_rank, parameters=names)
        plan = LaunchPlan("k", (), tuple(slots), self.group, None)
        return b.program(), plan


class Runner:
    """A compiled kernel and its launches."""

    def __init__(
        self, built: tuple[Program, LaunchPlan], optimize: int = 3, stages: tuple[str, ...] = ()
    ) -> None:
        program, plan = built
        options = TargetOptions("cpu", optimize=optimize)
        self.artifact = BACKEND.compile(program, plan, options, stages)
        self.kernel = CpuKernel(self.artifact)
        self.fault = [0] * 8

    def __call__(self, *arguments: Any, groups: tuple[int, ...] = (1,), threads: int = 1) -> None:
        """Arrays by address and length, numbers as they are."""
        values: list[int] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                values += [argument.ctypes.data, argument.size]
            else:
                values.append(int(argument))
        fault = (ctypes.c_int64 * 8)()
        values.append(ctypes.addressof(fault))
        slots = (ctypes.c_int64 * len(values))(*values)
        self.kernel.launch(slots, groups, threads)
        self.fault = list(fault)


def map_kernel(
    inputs: Sequence[DType],
    out: DType,
    body: Callable[[Builder, list[Value]], Value],
    optimize: int | None = None,
) -> Callable[..., np.ndarray[Any, Any]]:
    """``out[i] = body(inputs[i]...)`` as a function of NumPy arrays. ``optimize``: a level, or that
    of the test (``tests/quick_code.py``)."""
    run_all = map_kernels(inputs, [out], lambda b, values: [body(b, values)], optimize)

    def run(*arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        (result,) = run_all(*arrays)
        run.fault = run_all.fault  # type: ignore[attr-defined]
        return result

    return run


def map_kernels(
    inputs: Sequence[DType],
    outs: Sequence[DType],
    body: Callable[[Builder, list[Value]], list[Value]],
    optimize: int | None = None,
) -> Callable[..., list[np.ndarray[Any, Any]]]:
    """As ``map_kernel``, with several results."""

    def make(b: Builder, views: list[Value]) -> None:
        lane = b.lane_linear("lane")
        base = b.binary("mul", b.group_linear(), b.index(64))
        i = b.binary("add", base, lane)
        with b.region() as then:
            values = [b.load(view, [i], "off") for view in views[: len(inputs)]]
            for value, view in zip(body(b, values), views[len(inputs) :], strict=True):
                b.store(value, view, [i], "off")
            b.yield_()
        with b.region() as otherwise:
            b.yield_()
        size = b.current.operations[0].operands[1]
        b.if_(b.cmp("lt", i, size), then.region, otherwise.region)

    written = range(len(inputs), len(inputs) + len(outs))
    level = quick_code.level() if optimize is None else optimize
    runner = Runner(Kernel().build([*inputs, *outs], make, mut=list(written)), level)

    def run(*arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        kinds = [NUMPY[d.name] for d in inputs]
        given = [np.ascontiguousarray(a, kind) for a, kind in zip(arrays, kinds, strict=True)]
        results = [np.zeros(given[0].size, NUMPY[out.name]) for out in outs]
        runner(*given, *results, groups=(-(-given[0].size // 64),))
        run.fault = runner.fault  # type: ignore[attr-defined]
        return results

    return run
