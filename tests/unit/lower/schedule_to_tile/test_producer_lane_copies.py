"""Operands that the lanes of the moving role bring into the ring: gathered rows, operands that
lie along another axis than their array, arrays that no copy engine moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine
from tessera_backend.cpu.interpreter.faults import AsynchronousFault

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import BufferType, Operation, Program
from tessera_lang.target.launch_plan import LaunchPlan
from tests.unit.lower.schedule_to_tile.test_specialised import without

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(5)

ROWS = """@op.kernel
def kernel(x: bf16[t, k], rows: i32[m], w: bf16[k, n]):
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=({m}, {n})):
        acc = op.zeros(({m}, {n}), f32)
        for p in op.tile_range(k, step={k}):
            acc += x[rows[i:i+{m}], p:p+{k}] @ w[p:p+{k}, j:j+{n}]
        out[i:i+{m}, j:j+{n}] = acc
    return out
"""
TERMS = """@op.kernel
def kernel(x: bf16[m, k], rows: i32[k], w: bf16[t, n]):
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=({m}, {n})):
        acc = op.zeros(({m}, {n}), f32)
        for p in op.tile_range(k, step={k}):
            acc += x[i:i+{m}, p:p+{k}] @ w[rows[p:p+{k}], j:j+{n}]
        out[i:i+{m}, j:j+{n}] = acc
    return out
"""
BOTH = """@op.kernel
def kernel(x: bf16[t, k], rows: i32[m], w: bf16[t, n], terms: i32[k]):
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=({m}, {n})):
        acc = op.zeros(({m}, {n}), f32)
        for p in op.tile_range(k, step={k}):
            acc += x[rows[i:i+{m}] * 2, p:p+{k}] @ w[terms[p:p+{k}], j:j+{n}]
        out[i:i+{m}, j:j+{n}] = acc
    return out
"""
TURNED = """@op.kernel
def kernel(x: i8[k, m], w: i8[k, n]):
    out = op.empty((m, n), i32)
    for i, j in op.tile_range(m, n, step=({m}, {n})):
        acc = op.zeros(({m}, {n}), i32)
        for p in op.tile_range(k, step={k}):
            acc += x[p:p+{k}, i:i+{m}].T @ w[p:p+{k}, j:j+{n}]
        out[i:i+{m}, j:j+{n}] = acc
    return out
"""
TILE = {"m": 64, "n": 64, "k": 64}


def rows(m: int, n: int, k: int, t: int, dtype: Any) -> tuple[list[Array], Array]:
    """Some rows lie outside of the array: they are zeros."""
    x, w = values((t, k), dtype), values((k, n), dtype)
    places = RANDOM.integers(0, t + 2, m).astype(np.int32)
    return [x, places, w], taken(x, places) @ w.astype(np.float64)


def terms(m: int, n: int, k: int, t: int, dtype: Any) -> tuple[list[Array], Array]:
    x, w = values((m, k), dtype), values((t, n), dtype)
    places = RANDOM.integers(0, t, k).astype(np.int32)
    return [x, places, w], x.astype(np.float64) @ taken(w, places)


def both(m: int, n: int, k: int, t: int, dtype: Any) -> tuple[list[Array], Array]:
    x, w = values((t, k), dtype), values((t, n), dtype)
    places = RANDOM.integers(0, t, m).astype(np.int32)
    others = RANDOM.integers(0, t, k).astype(np.int32)
    return [x, places, w, others], taken(x, places * 2) @ taken(w, others)


def turned(m: int, n: int, k: int, t: int, dtype: Any) -> tuple[list[Array], Array]:
    x, w = values((k, m), dtype), values((k, n), dtype)
    return [x, w], x.T.astype(np.float64) @ w.astype(np.float64)


def values(shape: tuple[int, ...], dtype: Any) -> Array:
    return RANDOM.integers(-4, 5, shape).astype(dtype)


def taken(x: Array, places: Array) -> Array:
    inside = (places >= 0) & (places < x.shape[0])
    out = np.zeros((places.size, x.shape[1]))
    out[inside] = x[places[inside]]
    return out


NAMES = {"bfloat16": "bf16", "float16": "f16", "int8": "i8", "float8_e4m3fn": "f8e4m3",
         "int32": "i32"}  # fmt: skip


def lowered(text: str, arrays: list[Array]) -> tuple[Program, LaunchPlan]:
    """The kernel for arrays like these, through the compiler's own way."""
    names = text.partition("(")[2].partition(")")[0].split("], ")
    session = Session(overlay={"kernel.tessera": text})
    parts = [
        f"{name.partition(':')[0]}: {NAMES[a.dtype.name]}[{', '.join(map(str, a.shape))}]"
        for name, a in zip(names, arrays, strict=True)
    ]
    wanted = session.signature("kernel.tessera", "kernel", ", ".join(parts))
    target = session.machine("cuda", "sm_90a")
    made = session.for_machine("kernel.tessera", "kernel", wanted, target)
    assert made.lowered is not None, made.remarks
    return made.lowered


def checked(text: str, made: Any, sizes: tuple[int, int, int, int], dtype: Any) -> Operation:
    arrays, right = made(*sizes, dtype)
    program, plan = lowered(text, arrays)
    (found,) = machine.launch(program, plan, *arrays)
    np.testing.assert_array_equal(np.asarray(found).astype(np.float64), right)
    kernel = program.operations[0]
    assert any(o.name == "tile.mma.async" for o in kernel.walk())
    return kernel


def names_of(kernel: Operation) -> set[str]:
    return {o.name for o in kernel.walk()}


def is_deep(kernel: Operation) -> bool:
    """Whether every buffer that products read is a ring."""
    read = [v for o in kernel.walk() if o.name == "tile.mma.async" for v in o.operands]
    shapes = [v.type.shape for v in read if isinstance(v.type, BufferType)]
    return all(len(s) == 3 and s[0] >= 2 for s in shapes)


SIZES = [(128, 128, 192, 96), (200, 136, 328, 77), (64, 64, 64, 1)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("text", "made"), [(ROWS, rows), (TERMS, terms), (BOTH, both)])
@pytest.mark.sample(2)
def test_gathered_rows_are_copied_into_the_ring(
    text: str, made: Any, sizes: tuple[int, int, int, int]
) -> None:
    kernel = checked(filled(text, TILE), made, sizes, ml_dtypes.bfloat16)
    assert {"tile.memcpy.gather", "tile.memcpy.arrive"} <= names_of(kernel)
    assert is_deep(kernel)


def filled(text: str, tile: Mapping[str, int]) -> str:
    for name, size in tile.items():
        text = text.replace("{" + name + "}", str(size))
    return text


@pytest.mark.parametrize("tile", [(128, 96, 32), (192, 48, 64), (64, 256, 16), (128, 80, 80)])
@pytest.mark.sample(1)
def test_tiles_of_many_shapes(tile: tuple[int, int, int]) -> None:
    text = filled(BOTH, dict(zip("mnk", tile, strict=True)))
    kernel = checked(text, both, (256, 320, 160, 50), ml_dtypes.bfloat16)
    assert is_deep(kernel)


@pytest.mark.sample(3)
@pytest.mark.parametrize("sizes", [(100, 77, 75, 33), (128, 131, 64, 40)])
@pytest.mark.parametrize(("text", "made"), [(ROWS, rows), (TERMS, terms), (BOTH, both)])
def test_rows_that_begin_anywhere_go_through_registers(
    text: str, made: Any, sizes: tuple[int, int, int, int]
) -> None:
    checked(filled(text, TILE), made, sizes, ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", [np.int8, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("sizes", [(128, 128, 256, 0), (192, 80, 144, 0)])
@pytest.mark.sample(2)
def test_an_operand_is_turned_on_its_way(sizes: tuple[int, int, int, int], dtype: Any) -> None:
    text = filled(TURNED, TILE)
    if dtype is not np.int8:
        text = text.replace("i8", "f8e4m3").replace("i32", "f32")
    kernel = checked(text, turned, sizes, dtype)
    assert is_deep(kernel)
    assert "tile.write_tile" in names_of(kernel)


PLANTED = [
    (ROWS, "tile.fence_async", 0),  # the consumer's: lanes have copied what products read
    (ROWS, "tile.memcpy.arrive", 0),
    (ROWS, "tile.mbarrier.wait", 0),
    (ROWS, "tile.mbarrier.wait", 1),
    (TURNED, "tile.fence_async", 0),  # the lanes' that have written
    (TURNED, "tile.barrier", 0),
    (TURNED, "tile.mbarrier.arrive", 0),
]


@pytest.mark.parametrize(("text", "name", "place"), PLANTED)
@pytest.mark.sample(2)
def test_a_planted_fault_is_found(text: str, name: str, place: int) -> None:
    make, dtype = (rows, ml_dtypes.bfloat16) if text is ROWS else (turned, np.int8)
    arrays, _ = make(128, 128, 640, 96, dtype)
    program, plan = lowered(filled(text, TILE), arrays)
    machine.launch(program, plan, *arrays)
    with pytest.raises(AsynchronousFault):
        machine.launch(without(program, name, place), plan, *arrays)


# --- computed operands -------------------------------------------------------------------------

SCALED = """@op.kernel
def kernel(x: bf16[m, k], w: i8[k, n]):
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=({m}, {n})):
        acc = op.zeros(({m}, {n}), f32)
        for p in op.tile_range(k, step={k}):
            acc += op.relu(x[i:i+{m}, p:p+{k}]) @ (w[p:p+{k}, j:j+{n}].to(bf16) * 0.5)
        out[i:i+{m}, j:j+{n}] = acc
    return out
"""
BEHIND = """@op.kernel
def kernel(x: bf16[m, k], y: bf16[k, n], q: bf16[m, d], r: bf16[d, n]):
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=({m}, {n})):
        a = q[i:i+{m}, :]
        acc = op.zeros(({m}, {n}), f32)
        for p in op.tile_range(k, step={k}):
            acc += x[i:i+{m}, p:p+{k}] @ y[p:p+{k}, j:j+{n}]
        acc += a @ r[:, j:j+{n}]
        out[i:i+{m}, j:j+{n}] = acc
    return out
"""


def scaled(m: int, n: int, k: int) -> tuple[list[Array], Array]:
    x, w = values((m, k), ml_dtypes.bfloat16), values((k, n), np.int8)
    return [x, w], np.maximum(x.astype(np.float64), 0) @ (w * 0.5)


@pytest.mark.parametrize("sizes", [(128, 128, 640), (200, 136, 328)])
@pytest.mark.sample(1)
def test_computed_operands_have_two_buffers_in_turn(sizes: tuple[int, int, int]) -> None:
    arrays, right = scaled(*sizes)
    program, plan = lowered(filled(SCALED, TILE), arrays)
    (found,) = machine.launch(program, plan, *arrays)
    np.testing.assert_array_equal(np.asarray(found), right)
    kernel = program.operations[0]
    read = [v for o in kernel.walk() if o.name == "tile.mma.async" for v in o.operands[1:3]]
    assert {v.type.shape[0] for v in read if isinstance(v.type, BufferType)} == {2}
    waits = [o for o in kernel.walk() if o.name == "tile.mma.wait"]
    assert any(o.attributes["pending"] == 1 for o in waits)


@pytest.mark.parametrize("name", ["tile.fence_async", "tile.barrier", "tile.mma.wait"])
@pytest.mark.sample(2)
def test_what_orders_a_computed_operand_is_needed(name: str) -> None:
    arrays, _ = scaled(128, 128, 640)
    program, plan = lowered(filled(SCALED, TILE), arrays)
    places = sum(o.name == name for o in program.operations[0].walk())
    found = [is_at_fault(without(program, name, p), plan, arrays) for p in range(places)]
    assert sum(found) >= 2


def is_at_fault(program: Program, plan: LaunchPlan, arrays: list[Array]) -> bool:
    try:
        machine.launch(program, plan, *arrays)
    except AsynchronousFault:
        return True
    return False


def test_tiles_that_are_read_behind_a_loop_have_a_ring_of_their_own() -> None:
    """A product whose operands stand before and behind a loop that moves tiles: with one ring of
    both, each role would wait for the other."""
    m, n, k, d = 128, 128, 1024, 64
    x, y = values((m, k), ml_dtypes.bfloat16), values((k, n), ml_dtypes.bfloat16)
    q, r = values((m, d), ml_dtypes.bfloat16), values((d, n), ml_dtypes.bfloat16)
    program, plan = lowered(filled(BEHIND, TILE), [x, y, q, r])
    (found,) = machine.launch(program, plan, x, y, q, r)
    wide = [a.astype(np.float64) for a in (x, y, q, r)]
    np.testing.assert_array_equal(np.asarray(found), wide[0] @ wide[1] + wide[2] @ wide[3])
    assert "tile.roles" in names_of(program.operations[0])
