"""Products of every dtype and every order of their operands, split into roles, on the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

from tessera_lang.driver.tile_compilation import ForMachine, for_machine, schedule
from tessera_lang.ir.core import Operation
from tessera_lang.sema.side_tables import TensorArgument
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import DTYPES
from tests.unit.lower.ast_to_schedule.lowering import dtype_of, lower_source
from tests.unit.lower.ast_to_schedule.reference import numpy_type

RANDOM = np.random.default_rng(5)
Array = np.ndarray[Any, Any]

PLAIN = """
@op.kernel
def f(a, b):
    {tile}
    return a @ b
"""
WIDE = """
@op.kernel
def f(a, b):
    {tile}
    return (a @ b).to(f32)
"""
TF32 = """
@op.kernel
def f(a: f32[m, k], b: f32[k, n]):
    {tile}
    return op.matmul(a, b, precision="tf32")
"""
SCALED = """
@op.kernel
def f(a, b, s: f32[m], t: f32[n]):
    {tile}
    return ((a @ b) * s[:, None] * t[None, :]).to(f32)
"""
WEIGHTS = """
@op.kernel
def f(a, b, s: f32[n]):
    {tile}
    return (a @ (b.to(f32) * s[None, :]).to(bf16)).to(f32)
"""


def fact(array: Array) -> TensorArgument:
    """What a launch knows of an array: lines at multiples of 16 bytes where they are."""
    dtype = dtype_of(array)
    unit = next((i for i, s in enumerate(array.strides) if s == dtype.bytes), -1)
    others = [s for i, s in enumerate(array.strides) if i != unit]
    divisors = tuple(min(128, n & -n) for n in array.shape)
    return TensorArgument(
        dtype, array.ndim, array.flags.c_contiguous, True, (None,) * array.ndim, array.shape,
        divisors, unit, all(s % 16 == 0 for s in others), (None,) * array.ndim,
    )  # fmt: skip


def compiled(
    text: str, *arrays: Array, tile: str = "", arch: str = "sm_90a", relief: int = 0
) -> ForMachine:
    said = f"schedule.tile({tile})" if tile else ""
    signature = tuple(fact(a) for a in arrays)
    program, plan, _ = lower_source(text.format(tile=said), *arrays, signature=signature)
    program, _ = schedule(program)
    return for_machine(program, plan, machine_named("cuda", arch), None, relief)


def numbers(dtype: str, rows: int, columns: int, along: int = 1) -> Array:
    """Small whole numbers; contiguous along an axis."""
    shape = (rows, columns) if along else (columns, rows)
    made = RANDOM.integers(-4, 5, shape).astype(numpy_type(DTYPES[dtype]))
    return made if along else made.T


def run(found: ForMachine, *arrays: Array) -> Array:
    assert found.lowered is not None, found.remarks
    program, plan = found.lowered
    (result,) = machine.launch(program, plan, *arrays)
    return result


def units(found: ForMachine) -> list[object]:
    kernel = found.schedule.operations[0]
    return [o.attributes.get("unit") for o in kernel.walk() if o.name.endswith("schedule.dot")]


def operations(found: ForMachine, name: str) -> list[Operation]:
    assert found.lowered is not None
    return [o for o in found.lowered[0].operations[0].walk() if o.name == name]


def text_of(dtype: str) -> str:
    return {"f32": TF32, "i8": PLAIN}.get(dtype, WIDE)


def exact(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b.astype(np.float64)


DTYPES_OF_PRODUCTS = ["f8e4m3", "f8e5m2", "i8", "f32"]
ORDERS = [(1, 0), (1, 1), (0, 0)]  # of a and b: the axis each is contiguous along


@pytest.mark.parametrize("orders", ORDERS, ids=["tn", "nn", "tt"])
@pytest.mark.parametrize("dtype", DTYPES_OF_PRODUCTS)
@pytest.mark.sample(1)
def test_operands_in_any_order_keep_the_asynchronous_unit(
    dtype: str, orders: tuple[int, int]
) -> None:
    a, b = numbers(dtype, 144, 272, orders[0]), numbers(dtype, 272, 208, orders[1])
    found = compiled(text_of(dtype), a, b)
    assert units(found) == ["wgmma"], found.remarks
    in_registers = len(operations(found, "tile.transpose_tile")) + len(
        operations(found, "tile.read_tile")
    )
    assert (in_registers > 0) == (orders != (1, 0))
    np.testing.assert_array_equal(run(found, a, b).astype(np.float64), exact(a, b))


@pytest.mark.parametrize("dtype", ["f8e4m3", "i8", "f32"])
@pytest.mark.sample(1)
def test_lanes_turn_the_second_where_both_are_in_the_other_order(dtype: str) -> None:
    a, b = numbers(dtype, 144, 160, 0), numbers(dtype, 160, 80, 1)
    found = compiled(text_of(dtype), a, b)
    assert units(found) == ["wgmma"]
    assert any("lanes transpose it" in d.message for d in found.remarks)
    np.testing.assert_array_equal(run(found, a, b).astype(np.float64), exact(a, b))


@pytest.mark.parametrize("pair", [("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e4m3")])
def test_neither_kind_of_eight_bit_floats_becomes_the_other(pair: tuple[str, str]) -> None:
    a = RANDOM.uniform(-440, 440, (80, 48)).astype(numpy_type(DTYPES[pair[0]])).T
    b = RANDOM.uniform(-0.3, 0.3, (80, 48)).astype(numpy_type(DTYPES[pair[1]]))
    found = compiled(WIDE, a, b)
    assert units(found) == ["wgmma"]
    np.testing.assert_allclose(run(found, a, b), exact(a, b), rtol=1e-3, atol=1e-2)


def test_eight_bit_floats_of_both_kinds_and_scales() -> None:
    a, b = numbers("f8e4m3", 160, 400), numbers("f8e5m2", 400, 96, 0)
    s = RANDOM.integers(1, 5, 160).astype(np.float32)
    t = RANDOM.integers(1, 5, 96).astype(np.float32)
    found = compiled(SCALED, a, b, s, t)
    assert units(found) == ["wgmma"]
    want = exact(a, b) * s[:, None] * t[None, :]
    np.testing.assert_array_equal(run(found, a, b, s, t).astype(np.float64), want)


def test_sums_of_eight_bit_floats_leave_the_unit_every_turn() -> None:
    a, b = numbers("f8e4m3", 128, 512), numbers("f8e4m3", 512, 128, 0)
    found = compiled(WIDE, a, b)
    (product,) = operations(found, "tile.mma.async")
    assert found.lowered is not None
    constants = {
        o.results[0]: o.attributes["value"] for o in operations(found, "tile.constant")
    }  # fmt: skip
    assert constants[product.operands[3]] is False
    np.testing.assert_array_equal(run(found, a, b).astype(np.float64), exact(a, b))


@pytest.mark.parametrize("k", [1, 16, 31, 33, 100])
@pytest.mark.parametrize("dtype", ["f8e4m3", "i8"])
@pytest.mark.sample(2)
def test_a_contraction_of_any_length(dtype: str, k: int) -> None:
    a, b = numbers(dtype, 70, k), numbers(dtype, k, 72, 0)
    found = compiled(text_of(dtype), a, b)
    np.testing.assert_array_equal(run(found, a, b).astype(np.float64), exact(a, b))


@pytest.mark.parametrize("orders", [(1, 0), (1, 1)])
@pytest.mark.parametrize("pair", [("bf16", "f32"), ("f32", "bf16"), ("f16", "f32")])
@pytest.mark.sample(1)
def test_an_operand_that_is_rounded_on_the_way(
    pair: tuple[str, str], orders: tuple[int, int]
) -> None:
    a, b = numbers(pair[0], 144, 272, orders[0]), numbers(pair[1], 272, 208, orders[1])
    found = compiled(WIDE, a, b)
    assert units(found) == ["wgmma"], found.remarks
    np.testing.assert_array_equal(run(found, a, b).astype(np.float64), exact(a, b))


@pytest.mark.parametrize("along", [0, 1])
@pytest.mark.sample(1)
def test_weights_of_eight_bits_times_their_scales(along: int) -> None:
    a, b = numbers("bf16", 144, 272), numbers("i8", 272, 208, along)
    s = (2.0 ** RANDOM.integers(-2, 3, 208)).astype(np.float32)
    found = compiled(WEIGHTS, a, b, s)
    assert set(units(found)) == {"wgmma"}, found.remarks
    want = exact(a, b.astype(np.float64) * s)
    np.testing.assert_array_equal(run(found, a, b, s).astype(np.float64), want)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("sizes", [(300, 260, 40), (64, 64, 8), (5, 3, 1)])
@pytest.mark.sample(3)
def test_exact_products_have_their_accumulators_in_registers(
    dtype: str, sizes: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    a, b = numbers(dtype, m, k), numbers(dtype, k, n)
    found = compiled(PLAIN, a, b)
    assert units(found) == ["fma"]
    np.testing.assert_array_equal(run(found, a, b).astype(np.float64), exact(a, b))
