"""What stands around a body: the grid, shared memory, refusals and remarks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter.rules import RULES
from tessera_backend.cpu.interpreter.scheduler import Scheduler
from tessera_backend.cpu.interpreter.strand import Group, Strand

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.ir.core import BufferType, Operation
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.schedule_to_tile import NotTiled
from tessera_lang.lower.schedule_to_tile.ampere.grid import Grid, build_grid
from tessera_lang.lower.schedule_to_tile.ampere.staging import shared_layout
from tessera_lang.opt.schedule.query.swizzle_widths import widest_swizzle
from tessera_lang.opt.tile.shared_allocation import buffer_bytes, shared_bytes
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, F32, INDEX
from tests.unit.opt.schedule.programs import matmul
from tests.unit.tiled import as_tiles


def lowered(arch: str = "sm_80", **said: Any) -> tuple[Operation, Any, list[Diagnostic]]:
    given: dict[str, Any] = {"tile": (128, 128, 32)}
    for name in ("dtype", "tile", "transposed", "aligned"):
        if name in said:
            given[name] = said.pop(name)
    kernel = matmul(512, 512, 512, **given, attributes=said)
    remarks: list[Diagnostic] = []
    program, plan = as_tiles(kernel.program, kernel.plan, machine_named("cuda", arch), remarks)
    return program.operations[0], plan, remarks


def lone_strand(number: int, count: int) -> Strand:
    """A group of which nothing is asked but what it computes."""
    group = Group(number, count, 32, Scheduler(), [], RULES)
    group.peers.append(group)
    return Strand(group, "all lanes", 1)


def count(kernel: Operation, name: str) -> int:
    return sum(o.name == name for o in kernel.walk())


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
@pytest.mark.parametrize("shape", [(5,), (4, 6), (7, 3), (2, 5, 3)])
def test_every_iteration_has_one_group(shape: tuple[int, ...], rows: int) -> None:
    """Bounds from 3 in steps of 2; ``group_rows`` changes the order only."""
    b = Builder()
    numbers = [b.index(n) for n in (3, 2, *(3 + 2 * s for s in shape))]
    low, step, *uppers = numbers
    rank = len(shape)
    loop = Operation(
        "tessera.schedule.for", (low,) * rank + tuple(uppers) + (step,) * rank, (),
        {"axes": ("i",) * rank, "mapping": ("grid",) * rank},
    )  # fmt: skip
    found: list[tuple[int, ...]] = []
    total = int(np.prod(shape))
    made: list[Any] = []
    build_grid(b, Grid(loop, total, False, rows), lambda v: v, made.extend)
    for group in range(total):
        strand = lone_strand(group, total)
        for operation in b.program().operations:
            strand.operation(operation, operation.name.removeprefix("tile."))
        found.append(tuple(strand.numbers(made)))
    everything = {tuple(3 + 2 * i for i in at) for at in np.ndindex(*shape)}
    assert set(found) == everything and len(found) == len(everything)


def test_buffers_that_are_never_in_use_at_once_share_bytes() -> None:
    kernel, plan, _ = lowered(pipeline_stages=3)
    buffers = [o.result.type for o in kernel.walk() if o.name == "tile.shared.alloc"]
    sizes = [buffer_bytes(t) for t in buffers if isinstance(t, BufferType)]
    assert len(sizes) == 3  # two rings, and scratch for the store
    assert shared_bytes(kernel) == plan.shared_bytes == 2 * 3 * 128 * 32 * 2 < sum(sizes)


@pytest.mark.parametrize("stages", [2, 3, 4, 6])
def test_stages(stages: int) -> None:
    kernel, plan, _ = lowered(pipeline_stages=stages)
    rings = [o.result.type for o in kernel.walk() if o.name == "tile.shared.alloc"]
    assert sum(isinstance(t, BufferType) and t.shape[:1] == (stages,) for t in rings) == 2
    assert plan.shared_bytes == stages * 2 * 128 * 32 * 2
    waits = [o.attributes["pending"] for o in kernel.walk() if o.name == "tile.memcpy.wait"]
    assert waits == [stages - 2, 0]


def test_directives_show() -> None:
    plain, _, _ = lowered()
    assert count(plain, "tile.memcpy.async") > 0
    slow, _, _ = lowered(async_copy=False)
    assert count(slow, "tile.memcpy.async") == 0 and count(slow, "tile.write_tile") > 0
    direct, plan, _ = lowered(use_shared_memory=False)
    assert count(direct, "tile.read_tile") == 0 and plan.shared_bytes == 128 * 128 * 2
    _, plan, _ = lowered(warps=8)
    assert plan.group == (256,)
    stays, plan, _ = lowered(persistent=True)
    assert plan.persistent and count(stays, "tile.group_count") == 1
    padded, _, _ = lowered(padding=8)
    buffers = [o.result.type for o in padded.walk() if o.name == "tile.shared.alloc"]
    pitches = {t.layout.pitch for t in buffers if isinstance(t, BufferType) and t.layout}
    assert pitches == {40}


def test_too_much_shared_memory_is_refused_with_the_table() -> None:
    _, _, remarks = lowered("sm_86", dtype=F32, tile=(128, 128, 64), pipeline_stages=4)
    (error,) = (r for r in remarks if r.severity == "error")
    assert error.code == "T0740" and "`a_tile`: 131072 bytes" in "".join(error.notes)
    assert "pipeline_stages" in error.helps[0]


def test_remarks() -> None:
    _, _, remarks = lowered(dtype=BF16, vectorize=4, aligned=2)
    texts = [r.message for r in remarks]
    assert any("schedule.vectorize(4)" in t and "only 2 bytes" in t for t in texts)
    assert all(r.severity == "note" for r in remarks)
    _, _, remarks = lowered(dtype=F32, use_shared_memory=False)
    assert any("use_shared_memory(False)" in r.message for r in remarks)


def test_an_open_size_is_no_tile() -> None:
    kernel = matmul()
    with pytest.raises((NotTiled, InternalFault)):
        as_tiles(kernel.program, kernel.plan, machine_named("cuda", "sm_80"), [])


@pytest.mark.parametrize("shape", [(128, 32), (64, 64), (16, 16), (128, 128), (16, 24), (9, 8)])
@pytest.mark.parametrize("major", [0, 1])
@pytest.mark.parametrize("element", [1, 2, 4])
def test_shared_layouts(shape: tuple[int, int], major: int, element: int) -> None:
    """Every element has a place of its own, and eight lines in a row meet all banks."""
    layout = shared_layout(shape, element, major, widest_swizzle(shape[major] * element))
    places = sorted(layout.offset((i, j), shape, element) for i in range(shape[0])
                    for j in range(shape[1]))  # fmt: skip
    assert all(b - a >= element for a, b in pairwise(places))
    assert places[-1] + element <= layout.bytes(shape, element)
    if shape[major] * element < 16 or shape[1 - major] < 8:
        return
    chunks: set[int] = set()
    for line in range(8):
        at = (line, 0) if major == 1 else (0, line)
        chunks.add(layout.offset(at, shape, element) // 16 % 8)
    assert len(chunks) == 8


def test_loop_variables_are_index() -> None:
    kernel, _, _ = lowered()
    loops = [o for o in kernel.walk() if o.name == "tile.for"]
    assert loops and all(o.regions[0].arguments[0].type == INDEX for o in loops)
