"""Registers of a lane: the estimate agrees with counting by hand, and with ptxas in order."""

from __future__ import annotations

import pytest

from tessera_lang.analysis.resources.register_pressure import (
    Pressure,
    pressure,
    registers_of_tile,
    table,
)
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, TileType
from tessera_lang.ir.parser import parse_program
from tessera_lang.target.machine import machine_named

TILE = "!tile.tile<64x64xf32, regs(32@1*1) lanes(2@1*32 16@0*1) warps(4@0*16)>"
"""32 registers of each of 128 lanes."""


def kernel(body: str) -> Operation:
    text = f""""tile.kernel"() ({{
^bb0(%a: !tile.ptr<f32, global>, %n: index):
  %zero = "tile.constant"() {{value = 0 : i64}} : () -> index
  %one = "tile.constant"() {{value = 1 : i64}} : () -> index
  %v = "tile.view"(%a, %n, %n) : (!tile.ptr<f32, global>, index, index) -> !tile.view<?x?xf32, global, mut, contiguous, aligned>
{body}
  "tile.return"() : () -> ()
}}) {{grid_rank = 1 : i64, group = [128 : i64], parameters = ["a", "n"], shared_budget = -1 : i64, sym_name = "k"}} : () -> ()
"""  # noqa: E501
    return parse_program(text).operations[0]


def load(name: str) -> str:
    return (
        f'  %{name} = "tile.load_tile"(%v, %zero, %zero, %n, %n) {{dims = [0 : i64, 1 : i64],'
        " steps = [1 : i64, 1 : i64]} : (!tile.view<?x?xf32, global, mut, contiguous, aligned>,"
        f" index, index, index, index) -> {TILE}\n"
    )


def store(name: str) -> str:
    return (
        f'  "tile.store_tile"(%{name}, %v, %zero, %zero, %n, %n) {{dims = [0 : i64, 1 : i64],'
        f" steps = [1 : i64, 1 : i64]}} : ({TILE}, !tile.view<?x?xf32, global, mut, contiguous,"
        " aligned>, index, index, index, index) -> ()\n"
    )


def add(result: str, a: str, b: str, name: str = "add") -> str:
    return f'  %{result} = "tile.{name}"(%{a}, %{b}) : ({TILE}, {TILE}) -> {TILE}\n'


def one(body: str) -> Pressure:
    (found,) = pressure(kernel(body))
    return found


def test_a_tile_has_the_registers_of_its_layout() -> None:
    value = kernel(load("x") + store("x")).regions[0].operations[3].result
    assert isinstance(value.type, TileType)
    assert registers_of_tile(value.type) == 32


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_what_is_alive_at_once_is_added(count: int) -> None:
    """Loads that are stored in the end: all of them at once."""
    names = [f"x{i}" for i in range(count)]
    found = one("".join(map(load, names)) + "".join(map(store, names)))
    assert found.tiles == 32 * count
    assert len(found.held) == count and len(table(found)) == count


@pytest.mark.parametrize("count", [1, 4, 9])
def test_what_is_dead_is_not_added(count: int) -> None:
    found = one("".join(load(f"x{i}") + store(f"x{i}") for i in range(count)))
    assert found.tiles == 32


@pytest.mark.parametrize("length", [2, 6, 20])
def test_a_run_of_element_wise_work_has_no_steps(length: int) -> None:
    """It is done register by register: every step reads the first value, and the one before."""
    steps = "".join(add(f"y{i + 1}", f"y{i}", "y0") for i in range(length))
    found = one(load("y0") + steps + store(f"y{length}"))
    assert found.tiles == 32


@pytest.mark.parametrize("length", [1, 40, 2000])
def test_places_of_lanes_differ_by_constants(length: int) -> None:
    """They take an index, beside what is loaded; doubled again and again they are looked at once
    each, and not once for every way to them."""
    whole = TILE.replace("f32", "index")
    lines = [f'  %p0 = "tile.coordinate"() {{axis = 1 : i64}} : () -> {whole}\n']
    lines += [
        f'  %p{i + 1} = "tile.add"(%p{i}, %p{i}) : ({whole}, {whole}) -> {whole}\n'
        for i in range(length)
    ]
    last = f'  %c = "tile.cmp"(%p{length}, %p0) {{predicate = "lt"}} : ({whole}, {whole}) -> '
    lines.append(last + TILE.replace("f32", "i1") + "\n")
    chosen = f'  %y = "tile.select"(%c, %x, %x) : ({TILE.replace("f32", "i1")}, {TILE}, {TILE})'
    found = one(load("x") + "".join(lines) + f"{chosen} -> {TILE}\n" + store("y"))
    assert found.tiles < 32 + 32


def test_comparisons_of_places_are_made_where_they_are_read() -> None:
    """Their truth is no tile that waits, as one of loaded numbers is."""
    whole, truth = TILE.replace("f32", "index"), TILE.replace("f32", "i1")
    place = f'  %p = "tile.coordinate"() {{axis = 1 : i64}} : () -> {whole}\n'
    bound = f'  %b = "tile.splat"(%n) : (index) -> {whole}\n'
    compared = '  %c = "tile.cmp"(%{}, %{}) {{predicate = "lt"}} : ({}, {}) -> ' + truth + "\n"
    behind = f'  %y = "tile.select"(%c, %z, %z) : ({truth}, {TILE}, {TILE}) -> {TILE}\n'
    places = (
        place + bound + compared.format("p", "b", whole, whole) + load("z") + behind + store("y")
    )
    loaded = load("x") + load("w") + compared.format("x", "w", TILE, TILE) + load("z") + behind
    assert one(places).tiles < 32 + 4 < one(loaded + store("y")).tiles


@pytest.mark.parametrize("length", [1, 3])
def test_a_sum_takes_its_terms_as_they_are_computed(length: int) -> None:
    """Beside the tile that is stored behind it there are no others."""
    line = "!tile.tile<64xf32, regs(2@_) lanes(2@_ 16@0*1) warps(4@0*16)>"
    steps = "".join(add(f"y{i + 1}", f"y{i}", "y0") for i in range(length))
    total = (
        f'  %t = "tile.reduce_tile"(%y{length}) {{axis = 1 : i64, kind = "add"}} : ({TILE}) -> '
        f"{line}\n"
    )
    assert one(load("y0") + steps + total + store("y0")).tiles < 32 + 8


def test_what_a_loop_reads_lives_until_its_end() -> None:
    """``x`` is read at the begin of each turn, where ``z`` of the turn is not there yet."""
    body = (
        load("x")
        + f'  %r = "tile.for"(%zero, %n, %one, %x) ({{\n  ^bb0(%i: index, %acc: {TILE}):\n'
        + add("y", "acc", "x") + load("z") + add("w", "y", "z", "mul")
        + f'  "tile.yield"(%w) : ({TILE}) -> ()\n'
        + f"  }}) {{site = -1 : i64}} : (index, index, index, {TILE}) -> {TILE}\n" + store("r")
    )  # fmt: skip
    assert one(body).tiles == 96


PRODUCTS = """
@op.kernel
def f(A: f32[1024, 1024], B: f32[1024, 1024], C: f32[1024, 1024], O: mut f32[1024, 1024]):
    for i in op.tile_range(1024, step={rows}):
        a = op.zeros(({rows}, {columns}), f32)
        b = op.zeros(({rows}, {columns}), f32)
        for p in op.tile_range(1024, step=16):
            a += A[i:i+{rows}, p:p+16] @ B[p:p+16, 0:{columns}]
            b += A[i:i+{rows}, p:p+16] @ C[p:p+16, 0:{columns}]
        O[i:i+{rows}, 0:{columns}] = a * b
"""


@pytest.mark.parametrize(("rows", "columns", "warps"), [(64, 64, 4), (128, 128, 8), (128, 256, 16)])
def test_a_group_has_the_lanes_that_its_tiles_need(rows: int, columns: int, warps: int) -> None:
    """Two accumulators: 64, 128 and 128 registers, with no more lanes than that takes."""
    text = PRODUCTS.format(rows=rows, columns=columns)
    session = Session(overlay={"m.tessera": text})
    signature = session.signature("m.tessera", "f")
    made = session.for_machine("m.tessera", "f", signature, machine_named("cuda", "sm_80"))
    assert made.lowered is not None
    assert made.schedule.operations[0].attributes["warps"] == warps
    assert all(p.tiles <= 255 for p in pressure(made.lowered[0].operations[0]))


def test_a_directive_that_asks_for_too_few_lanes_is_refused_with_the_table() -> None:
    text = PRODUCTS.format(rows=128, columns=160)
    text = text.replace("    for i", "    schedule.warps(4)\n    for i", 1)
    session = Session(overlay={"m.tessera": text})
    signature = session.signature("m.tessera", "f")
    made = session.for_machine("m.tessera", "f", signature, machine_named("cuda", "sm_80"))
    assert made.lowered is None
    (error,) = [d for d in made.remarks if d.severity == "error"]
    assert error.code == "T0741" and error.span is not None
    assert sum("= 160 registers" in note for note in error.notes) == 2
    assert any("schedule.warps(8)" in h for h in error.helps) or "smaller" in error.helps[0]
