"""Every operation on every dtype it takes becomes PTX that ptxas takes, without spills."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tessera_lang.ir.core import Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import BOOL, DTYPES, INDEX, DType
from tests.unit.backend.nvptx.kernels import assembly_of, kernel, lane, load, needs_ptxas, store

MEMORY_DTYPES = [d for d in DTYPES.values() if d != INDEX]
ARCHITECTURES = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]
ATOMICS = ("add", "sub", "min", "max", "exchange")


def binary_names(dtype: DType) -> tuple[str, ...]:
    if dtype == BOOL:
        return ("and", "or", "xor")
    common = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
    return (*common, "div") if dtype.is_float else (*common, "and", "or", "xor", "shl", "shr")


def unary_names(dtype: DType) -> tuple[str, ...]:
    if dtype == BOOL:
        return ("not",)
    if dtype.is_float:
        return ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "round")
    return ("neg", "abs", "not")


def all_operations(dtype: DType) -> tuple[Program, LaunchPlan]:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, y, out, flags, n = values
        i = lane(b)
        v, w = load(b, x, i), load(b, y, i)
        for number, name in enumerate(binary_names(dtype)):
            where = b.binary("add", i, b.binary("mul", n, b.index(number)))
            store(b, b.binary(name, v, w, site=0), out, where)
        for number, name in enumerate(unary_names(dtype), 20):
            where = b.binary("add", i, b.binary("mul", n, b.index(number)))
            store(b, b.unary(name, v), out, where)
        for number, predicate in enumerate(("eq", "ne", "lt", "le", "gt", "ge")):
            where = b.binary("add", i, b.binary("mul", n, b.index(number)))
            store(b, b.cmp(predicate, v, w), flags, where)
        store(b, b.select(b.cmp("eq", v, w), v, b.constant(1, dtype)), out, i)
        if dtype.is_float:
            store(b, b.fma(v, w, v), out, b.index(0))

    arrays = [("x", dtype, False), ("y", dtype, False), ("out", dtype, True), ("f", BOOL, True)]
    return kernel(arrays, body, sites=1)


def all_casts(source: DType) -> tuple[Program, LaunchPlan]:
    """From one dtype to each other one, and back to it."""
    others = [d for d in MEMORY_DTYPES if d != source]

    def body(b: Builder, values: Sequence[Value]) -> None:
        x, *outs, _ = values
        v = load(b, x, lane(b))
        for out, dtype in zip(outs, others, strict=True):
            store(b, b.cast(v, dtype), out, lane(b))

    return kernel([("x", source, False), *((f"o_{d.name}", d, True) for d in others)], body)


def all_atomics(dtype: DType) -> tuple[Program, LaunchPlan]:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, out, n = values
        i = lane(b)
        v = load(b, x, i)
        facts = {"scope": "device", "order": "acq_rel", "bounds": "proved", "site": -1}
        kinds = ATOMICS if dtype.is_float else (*ATOMICS, "and", "or", "xor")
        for number, kind in enumerate(kinds):
            where = b.binary("add", i, b.binary("mul", n, b.index(number)))
            b.emit("tile.atomic", (v, out, where), (dtype,), {**facts, "kind": kind})
        b.emit("tile.atomic_cas", (v, v, out, i), (dtype,), facts)
        old = b.emit("tile.atomic_load", (out, i), (dtype,), facts).result
        b.emit("tile.atomic_store", (old, out, i), (), facts)

    return kernel([("x", dtype, False), ("out", dtype, True)], body)


@pytest.mark.sample(7)
@needs_ptxas
@pytest.mark.parametrize("dtype", MEMORY_DTYPES, ids=str)
def test_operations(dtype: DType) -> None:
    made = assembly_of(all_operations(dtype), "sm_80")
    assert made.cubin and made.resources.spill_bytes == 0


@needs_ptxas
@pytest.mark.parametrize("dtype", MEMORY_DTYPES, ids=str)
@pytest.mark.sample(8)
def test_casts(dtype: DType) -> None:
    made = assembly_of(all_casts(dtype), "sm_80")
    assert made.cubin and made.resources.spill_bytes == 0


@needs_ptxas
@pytest.mark.parametrize("dtype", [d for d in MEMORY_DTYPES if d != BOOL], ids=str)
@pytest.mark.sample(7)
def test_atomics(dtype: DType) -> None:
    assert assembly_of(all_atomics(dtype), "sm_80").cubin


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3", "f64", "u32"])
@pytest.mark.sample(1)
def test_architectures(arch: str, name: str) -> None:
    dtype = DTYPES[name]
    assert assembly_of(all_operations(dtype), arch).cubin
    assert assembly_of(all_casts(dtype), arch).cubin
    assert assembly_of(all_atomics(dtype), arch).cubin
