"""Sums of the tiles of a loop meet once, behind it; what is read or computed alike is so once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tessera_lang.ir.core import Operation
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

FOR, LOAD, REDUCE = (f"tessera.schedule.{n}" for n in ("for", "load", "reduce"))


def kernel(parameters: str, body: str, shapes: str, arch: str = "sm_90a") -> Operation:
    text = f"@op.kernel\ndef kernel({parameters}):\n    {body}\n"
    return from_source(text, shapes, arch).schedule.operations[0]


def reduced_in_loops(kernel: Operation) -> int:
    loops = [o for o in kernel.walk() if o.name == FOR and "grid" not in o.strings("mapping")]
    return sum(o.name == REDUCE for loop in loops for o in loop.walk())


SUMS = [
    ("x: f32[m, n]", "return op.sum(x * x)", "x: f32[32768, 8192]"),
    ("x: f32[m, n]", "return op.max(x, axis=1)", "x: f32[32768, 1000000]"),
    ("x: f32[m, n]", "return op.sum(x, axis=0)", "x: f32[100000, 1000]"),
    ("x: f32[m, n], y: f32[n]", "return op.mean(max(1.0 - x * y[None, :], 0.0))",
     "x: f32[32768, 8192], y: f32[8192]"),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "body", "shapes"), SUMS)
def test_no_iteration_reduces_across_lanes(parameters: str, body: str, shapes: str) -> None:
    assert reduced_in_loops(kernel(parameters, body, shapes)) == 0


def test_a_cpu_reduces_what_it_has_computed() -> None:
    found = kernel("x: f32[m, n]", "return op.sum(x * x)", "x: f32[32768, 8192]", "x86-64-v3")
    assert reduced_in_loops(found) > 0


def test_what_an_iteration_needs_of_a_sum_is_there_in_it() -> None:
    """A loop that uses its running maximum reduces in each iteration."""
    body = """total = 0.0
    most = -1000000.0
    for i in op.tile_range(n, step=1024):
        most = max(most, op.max(x[i:i+1024]))
        total += most
    return total"""
    assert reduced_in_loops(kernel("x: f32[n]", body, "x: f32[1000000]")) > 0


def test_each_array_is_read_once_for_each_element() -> None:
    found = kernel("p: f32[m, n], t: f32[m, n]", "return op.mean((p - t) * (p - t))",
                   "p: f32[32768, 32768], t: f32[32768, 32768]")  # fmt: skip
    assert sum(o.name == LOAD for o in found.walk()) == 2


def test_equal_loops_are_one() -> None:
    """The mean of the program, and that of the variance."""
    body = """y = op.empty_like(x)
    for i in op.tile_range(m, step=1):
        v = x[i, :]
        y[i, :] = (v - op.mean(v)) * op.rsqrt(op.var(v) + 1e-5)
    return y"""
    found = kernel("x: f32[m, n]", body, "x: f32[100000, 1000000]")
    assert sum(o.name == FOR for o in found.walk()) == 1 + 2 + 1


def test_a_read_behind_a_write_is_another() -> None:
    text = """
@op.kernel
def kernel(x: mut f32[n], y: mut f32[n]):
    for i in op.tile_range(n, step=64):
        a = x[i:i+64] + 1.0
        x[i:i+64] = a * 2.0
        y[i:i+64] = x[i:i+64] + a
"""
    x = np.arange(200, dtype=np.float32)
    y = np.zeros_like(x)
    loaded(text).kernel(x, y)
    assert np.array_equal(y, 3 * (np.arange(200, dtype=np.float32) + 1))


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("shape", [(5, 3001), (70, 1500)])
@pytest.mark.sample(2)
def test_values(shape: tuple[int, int], kind: str, target: str) -> None:
    """What lies beyond the last tile is not taken in, whatever is made of it."""
    r = np.random.default_rng(shape[0])
    x = r.choice([1.0, 2.0] if kind == "prod" else [-3.0, -2.0, -1.0], shape).astype(np.float32)
    if kind == "prod":
        x[:, 20:] = 1.0
    text = f"""
@op.kernel
def kernel(x: f32[m, n]): return op.{kind}(x * 2.0 - x, axis=1)
@op.kernel
def columns(x: f32[m, n]): return op.{kind}(x + 0.0, axis=0)
@op.kernel
def every(x: f32[m, n]): return op.{kind if kind != "prod" else "max"}(1.0 - x)
"""
    module = loaded(text, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows, columns, every = (
            np.asarray(getattr(module, n)(x)) for n in ("kernel", "columns", "every")
        )
    f = getattr(np, kind)
    assert np.array_equal(rows, f(x, axis=1))
    assert np.allclose(columns, f(x.astype(np.float64), axis=0))
    assert every.reshape(()) == getattr(np, kind if kind != "prod" else "max")(1 - x)
