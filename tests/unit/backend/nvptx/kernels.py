"""Small kernels of Tile IR made by hand, and how the tests compile them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest
from tessera_backend.nvptx.kernel import KernelText, emit_kernel
from tessera_backend.nvptx.toolchain.llvm_to_ptx import Translation, translate
from tessera_backend.nvptx.toolchain.nvidia_tools import Tool
from tessera_backend.nvptx.toolchain.ptxas import Assembly, assemble, find_ptxas

from tessera_lang.ir.core import Operation, PointerType, Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.arch import architecture_named
from tessera_lang.target.launch_plan import FaultSite, LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.dtype import INDEX, DType

Body = Callable[[Builder, Sequence[Value]], None]


def kernel(
    arrays: Sequence[tuple[str, DType, bool]],
    body: Body,
    *,
    scalars: Sequence[tuple[str, DType]] = (),
    group: tuple[int, ...] = (128,),
    grid_rank: int = 1,
    aligned: bool = True,
    sites: int = 0,
    shared_bytes: int = 0,
) -> tuple[Program, LaunchPlan]:
    """A kernel over rank-1 arrays ``(name, dtype, mut)`` of one size ``n``.

    ``body`` gets the views, then the scalars, then ``n``; the fault slot comes last.
    """
    builder = Builder()
    arguments = [(name, PointerType(dtype, "global")) for name, dtype, _ in arrays]
    slots = [Slot("data", i, dtype=dtype.name) for i, (_, dtype, _) in enumerate(arrays)]
    typed = [*arguments, *scalars, ("n", INDEX)]
    slots += [Slot("scalar", len(arrays) + i, dtype=d.name) for i, (_, d) in enumerate(scalars)]
    slots.append(Slot("symbol", symbol="n"))
    if sites:
        typed.append(("fault", INDEX))
        slots.append(Slot("fault"))
    with builder.region(*typed) as region:
        values = region.arguments
        n = values[len(arrays) + len(scalars)]
        views = [
            builder.view(values[i], [n], mut=mut, aligned=aligned, name=name)
            for i, (name, _, mut) in enumerate(arrays)
        ]
        body(builder, [*views, *values[len(arrays) : len(arrays) + len(scalars)], n])
        builder.return_()
    top = Builder()
    top.kernel(
        "k", region.region, group=group, grid_rank=grid_rank,
        parameters=[name for name, _ in typed], shared_budget=-1,
    )  # fmt: skip
    parameters = (
        *(
            ParameterPlan(name, "tensor", dtype.name, 1, mut=mut, contiguous=True, aligned=aligned)
            for name, dtype, mut in arrays
        ),
        *(ParameterPlan(name, "scalar", dtype.name) for name, dtype in scalars),
    )
    found = tuple(FaultSite("read", f"site {i}", "k.tessera", 1, 1) for i in range(sites))
    plan = LaunchPlan("k", parameters, tuple(slots), group, None, shared_bytes, found)
    return top.program(), plan


def load(b: Builder, array: Value, index: Value, bounds: str = "proved", site: int = -1) -> Value:
    kind = array.type
    dtype: DType = kind.dtype  # type: ignore[union-attr]
    return b.emit("tile.load", (array, index), (dtype,), {"bounds": bounds, "site": site}).result


def store(
    b: Builder, value: Value, array: Value, index: Value, bounds: str = "proved", site: int = -1
) -> None:
    b.emit("tile.store", (value, array, index), (), {"bounds": bounds, "site": site})


def lane(b: Builder, lanes: int = 128) -> Value:
    """The lane's number in the grid."""
    return b.binary("add", b.binary("mul", b.group_linear(), b.index(lanes)), b.lane_linear())


def text_of(made: tuple[Program, LaunchPlan], arch: str = "sm_90") -> KernelText:
    program, plan = made
    operation: Operation = program.operations[0]
    return emit_kernel(operation, plan, architecture_named(arch))


def ptx_of(made: tuple[Program, LaunchPlan], arch: str = "sm_90") -> Translation:
    return translate(text_of(made, arch).text, architecture_named(arch))


def assembly_of(made: tuple[Program, LaunchPlan], arch: str = "sm_90") -> Assembly:
    """What ptxas makes of the kernel; the caller has asked for ``needs_ptxas``."""
    tool = _ptxas()
    assert tool is not None
    return assemble(tool, ptx_of(made, arch).ptx, arch)


@functools.cache
def _ptxas() -> Tool | None:
    return find_ptxas()


needs_ptxas = pytest.mark.skipif(_ptxas() is None, reason="no ptxas on this machine")
