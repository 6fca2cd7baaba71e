"""Rows without products: warps, tiles, and rows that a cluster shares, against the reference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine
from tessera_backend.nvptx.backend import CudaBackend
from tessera_backend.nvptx.kernel import emit_kernel
from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate
from tessera_backend.nvptx.toolchain.ptxas import assemble, find_ptxas

from tessera_lang.driver import tile_compilation
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.record import replace
from tessera_lang.target.arch import ROWS, architecture_named
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import F32
from tests.unit.opt.schedule.decided import machine_of, pipelined
from tests.unit.opt.schedule.programs import Array, Kernel, kernel

M, N = 3, 128


def rows(n: int, m: int = M, scanned: bool = False) -> Kernel:
    """Each row over its sum of absolute values, and its greatest element added."""

    def body(b: ScheduleBuilder, v: Mapping[str, Value]) -> None:
        zero, one = b.index(0), b.index(1)
        with b.region(("i", zero.type)) as inside:
            (i,) = inside.arguments
            x = b.load_tile(v["x"], (i, zero), (v["n"],), (n,), dims=(1,), steps=(1,))
            if scanned:
                x = b.scan("add", x, 0)
            top = b.reduce("max", x, v["n"], 0)
            total = b.reduce("add", b.emit("tile.abs", (x,), (x.type,)).result, v["n"], 0)
            share = b.binary("div", b.constant(1.0, F32), total)
            scaled = b.binary("mul", x, b.full(share, (n,)))
            made = b.binary("add", scaled, b.full(top, (n,)))
            b.store_tile(made, v["y"], (i, zero), (v["n"],), dims=(1,), steps=(1,))
            b.yield_()
        b.loops([zero], [v["m"]], [one], (), inside.region, ["i"])

    arrays = [Array("x", F32, ("m", "n")), Array("y", F32, ("m", "n"), mut=True)]
    return kernel("rows", arrays, {"m": m, "n": n}, body)


def schedule_of(made: ForMachine) -> Operation:
    (found,) = made.schedule.operations
    return found


@pytest.mark.parametrize(("n", "warps"), [(128, 1), (1024, 2), (8192, 16), (32768, 16)])
def test_warps_of_a_row(n: int, warps: int) -> None:
    made = schedule_of(pipelined(rows(n)))
    assert made.attributes["warps"] == warps
    assert "cluster" not in made.attributes


@pytest.mark.parametrize(("n", "groups"), [(40000, 8), (65536, 8), (131072, 8)])
def test_a_long_row_is_shared_by_a_cluster(n: int, groups: int) -> None:
    made = pipelined(rows(n))
    assert schedule_of(made).attributes["cluster"] == (groups,)
    reductions = [o for o in schedule_of(made).walk() if o.name.endswith("schedule.reduce")]
    assert [o.attributes["across"] for o in reductions] == [groups, groups]
    assert made.lowered is not None
    assert made.lowered[1].cluster == (groups,)


def test_what_cannot_be_done_by_parts_stays_whole() -> None:
    assert "cluster" not in schedule_of(pipelined(rows(65536, scanned=True))).attributes
    assert "cluster" not in schedule_of(pipelined(rows(65536), machine_of("sm_80"))).attributes


@pytest.mark.parametrize(
    ("n", "arch"),
    [(40000, "sm_90a"), (40001, "sm_90a"), (65536, "sm_90a"), (40001, "sm_90"), (40001, "sm_100")],
)
def test_a_cluster_computes_the_row(n: int, arch: str) -> None:
    made = rows(n)
    program, plan = pipelined(made, machine_of(arch)).lowered or pytest.fail("not lowered")
    assert plan.cluster == (8,)
    x = np.random.default_rng(5).standard_normal((M, n)).astype(np.float32)
    y = np.full_like(x, np.nan)
    machine.launch(program, plan, x, y)
    want = x / np.abs(x).sum(1, keepdims=True) + x.max(1, keepdims=True)
    np.testing.assert_allclose(y, want, rtol=1e-5)


@pytest.mark.sample(2)
@pytest.mark.skipif(find_ptxas() is None, reason="there is no ptxas")
@pytest.mark.parametrize("arch", [a.name for a in ROWS.values() if a.has("cluster")])
def test_a_cluster_is_code_for_every_architecture_that_has_them(arch: str) -> None:
    program, plan = pipelined(rows(40000), machine_of(arch)).lowered or pytest.fail("not lowered")
    made = CudaBackend().compile(program, plan, TargetOptions("cuda", arch), ("ptx",))
    assert made.options.arch == arch and made.kind == "cubin" and not made.diagnostics
    assert ".reqnctapercluster" in made.texts["ptx"] and made.resources.spill_bytes == 0


def resources(made: Kernel, name: str = "sm_90a") -> tuple[Any, str]:
    program, plan = pipelined(made, machine_of(name)).lowered or pytest.fail("not lowered")
    tool, arch = find_ptxas(), architecture_named(name)
    if tool is None:
        pytest.skip("there is no ptxas")
    ptx = translate(emit_kernel(program.operations[0], plan, arch).text, arch).ptx
    return assemble(tool, ptx, name).resources, ptx


@pytest.mark.parametrize("n", [1024, 8192, 32768, 131072])
def test_a_row_is_read_once_by_vectors_and_stays_in_registers(n: int) -> None:
    found, ptx = resources(rows(n))
    assert found.spill_bytes == 0
    loads = [line for line in ptx.splitlines() if "ld.global" in line]
    assert loads and all(".v4" in line for line in loads if "L1" not in line)


def asked(made: Kernel, arch: str = "sm_90a") -> list[Any]:
    schedule = schedule_of(pipelined(made, machine_of(arch)))
    return [o.attributes.get("ahead") for o in schedule.walk() if o.name.endswith("schedule.load")]


@pytest.mark.parametrize(
    ("n", "rows_ahead"), [(4096, None), (32768, 132), (65536, None), (4095, 660)]
)
def test_groups_with_little_on_its_way_ask_for_the_row_behind(
    n: int, rows_ahead: int | None
) -> None:
    assert asked(rows(n, m=4096)) == [None if rows_ahead is None else (0, rows_ahead)]


def on(made: Kernel, units: int = 132) -> ForMachine:
    program, _ = tile_compilation.schedule(made.program)
    return tile_compilation.for_machine(
        program, made.plan, replace(machine_named("cuda", "sm_90a"), units=units)
    )


def test_groups_with_nothing_to_keep_come_and_go() -> None:
    made = on(rows(131072, 4096))
    assert not any("early" in o.attributes for o in schedule_of(made).walk())
    assert made.lowered is not None
    assert not made.lowered[1].persistent


@pytest.mark.parametrize(("n", "registers"), [(40000, None), (131072, (128,))])
def test_groups_of_a_cluster_are_small(n: int, registers: tuple[int] | None) -> None:
    """At most 8 warps, so that what is done once a row is done by few; the assembler is told where
    few groups share a multiprocessor."""
    schedule = schedule_of(on(rows(n, 4096)))
    warps = schedule.attributes["warps"]
    assert isinstance(warps, int)
    assert warps <= 8
    assert schedule.attributes.get("registers") == registers


@pytest.mark.parametrize(("n", "warps"), [(40000, 4), (65536, 4), (131072, 8)])
def test_a_lane_of_a_shared_row_has_64_elements_at_most(n: int, warps: int) -> None:
    assert schedule_of(on(rows(n, 4096))).attributes["warps"] == warps


def test_groups_meet_without_fences() -> None:
    """They wait for messages of each other; all of them only once, to have begun."""
    _, ptx = resources(rows(131072, m=4096))
    assert ptx.count("st.async") == 2
    assert ptx.count("barrier.cluster.arrive") == 1
    assert "fence.acq_rel" not in ptx


def test_groups_load_before_they_wait_for_others_to_begin() -> None:
    """Nobody reaches into another group before that; memory has no other to wait for."""
    _, ptx = resources(rows(131072, m=4096))
    lines = [line.strip() for line in ptx.splitlines()]

    def places(word: str) -> list[int]:
        return [i for i, line in enumerate(lines) if word in line]

    (arrive,), (wait,) = places("barrier.cluster.arrive"), places("barrier.cluster.wait")
    assert arrive < wait < min(places("mapa."))
    loads = places("ld.global")
    assert loads
    assert max(loads) < wait


def test_a_reduction_meets_one_barrier() -> None:
    """Another reduction has taken the other scratch since, and met one itself."""
    _, ptx = resources(rows(8192, m=4096))
    assert len(re.findall(r"bar(rier)?\.(cta\.)?sync", ptx)) == 2


def test_an_extent_that_changes_with_the_row_is_not_asked_for() -> None:
    """The row ahead may end elsewhere, outside the array even."""

    def body(b: ScheduleBuilder, v: Mapping[str, Value]) -> None:
        zero, one = b.index(0), b.index(1)
        with b.region(("i", zero.type)) as inside:
            (i,) = inside.arguments
            extent = b.binary("min", b.binary("add", i, one), v["n"])
            x = b.load_tile(v["x"], (i, zero), (extent,), (4095,), dims=(1,), steps=(1,))
            b.store_tile(x, v["y"], (i, zero), (extent,), dims=(1,), steps=(1,))
            b.yield_()
        b.loops([zero], [v["m"]], [one], (), inside.region, ["i"])

    arrays = [Array("x", F32, ("m", "n")), Array("y", F32, ("m", "n"), mut=True)]
    assert asked(kernel("triangle", arrays, {"m": 4095, "n": 4095}, body)) == [None]


@pytest.mark.parametrize(
    ("arch", "text"),
    [("sm_90a", "cp.async.bulk.prefetch.L2.global"), ("sm_80", "prefetch.global.L2")],
)
def test_lines_are_asked_for_as_the_machine_does(arch: str, text: str) -> None:
    found, ptx = resources(rows(4095, m=4096), arch)
    assert text in ptx
    assert found.spill_bytes == 0


def test_rows_behind_the_last_are_not_asked_for() -> None:
    """Each ask is under a condition: what it asks for must be in the array."""
    _, ptx = resources(rows(32768, m=4096))
    lines = [line.strip() for line in ptx.splitlines() if "prefetch" in line]
    assert lines and all(line.startswith("@%p") for line in lines)


def test_shared_rows_without_register_tiles_are_loops_of_lanes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is refused behind the decision: lanes have no rows that groups share."""
    import tessera_lang.lower.schedule_to_tile as register_tiles

    made = rows(65536)
    assert "cluster" in schedule_of(pipelined(made)).attributes

    def refuse(*_: object) -> None:
        raise register_tiles.NotTiled("no reason")

    monkeypatch.setattr(register_tiles, "lower_to_tile", refuse)
    alone = pipelined(made)
    assert alone.lowered is not None
    assert "cluster" not in schedule_of(alone).attributes
    assert [r.code for r in alone.remarks if r.code == "T0747"]
