"""Groups of rows that stay: weights that are kept, rows that are read again; against NumPy in the
asynchronous model, and what is decided."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.target.machine import machine_named
from tessera_lang.types.dtype import BF16, F32, DType
from tests.unit.lower.ast_to_schedule.reference import numpy_type
from tests.unit.opt.schedule.decided import HOPPER, pipelined
from tests.unit.opt.schedule.programs import Array, Kernel, kernel

N = 40960


def centred(n: int, m: int, weights: int = 2, dtype: DType = BF16) -> Kernel:
    """Each row less its mean, over the sum of squares, times a weight and plus others."""

    def body(b: ScheduleBuilder, v: Mapping[str, Value]) -> None:
        zero, one = b.index(0), b.index(1)

        def wide(name: str, starts: tuple[Value, ...], dim: int) -> Value:
            tile = b.load_tile(v[name], starts, (v["n"],), (n,), dims=(dim,), steps=(1,))
            return tile if dtype == F32 else b.cast(tile, F32)

        with b.region(("i", zero.type)) as inside:
            (i,) = inside.arguments
            x = wide("x", (i, zero), 1)
            mean = b.binary("div", b.reduce("add", x, v["n"], 0), b.constant(float(n), F32))
            apart = b.binary("sub", x, b.full(mean, (n,)))
            squares = b.reduce("add", b.binary("mul", apart, apart), v["n"], 0)
            scale = b.binary("div", b.constant(1.0, F32), squares)
            y = b.binary("mul", apart, b.full(scale, (n,)))
            for k in range(weights):
                y = b.binary("add" if k else "mul", y, wide(f"w{k}", (zero,), 0))
            y = y if dtype == F32 else b.cast(y, dtype)
            b.store_tile(y, v["y"], (i, zero), (v["n"],), dims=(1,), steps=(1,))
            b.yield_()
        b.loops([zero], [v["m"]], [one], (), inside.region, ["i"])

    named = [Array(f"w{k}", dtype, ("n",)) for k in range(weights)]
    arrays = [Array("x", dtype, ("m", "n")), *named, Array("y", dtype, ("m", "n"), mut=True)]
    return kernel("centred", arrays, {"m": m, "n": n}, body)


def schedule_of(made: ForMachine) -> Operation:
    (found,) = made.schedule.operations
    return found


def loads(made: ForMachine, word: str) -> list[Operation]:
    found = [o for o in schedule_of(made).walk() if o.name.endswith("schedule.load")]
    return [o for o in found if o.attributes.get(word)]


@pytest.mark.parametrize(
    ("n", "m", "weights", "kept", "shared"),
    [
        (131072, 1024, 2, 2, 1),  # there is room for one in shared memory
        (65536, 2048, 2, 2, 2),
        (131072, 1024, 1, 0, 0),  # the cache is quick enough
        (131072, 8, 2, 0, 0),  # too few rows to stay for
    ],
)
def test_weights_are_kept_where_the_cache_is_the_bound(
    n: int, m: int, weights: int, kept: int, shared: int
) -> None:
    made = pipelined(centred(n, m, weights))
    found = loads(made, "kept")
    assert len(found) == kept
    assert sum(o.attributes.get("stage") == "shared" for o in found) == shared
    assert len(loads(made, "early")) == (kept > 0)
    assert made.lowered is not None
    assert made.lowered[1].persistent == (kept > 0)


@pytest.mark.sample(3)
@pytest.mark.parametrize("weights", [2, 3, 4])
@pytest.mark.parametrize("n", [49152, 131072])
def test_what_there_is_no_room_for_is_not_kept(n: int, weights: int) -> None:
    """The ring and what is kept fit together; the rest is loaded for each row."""
    made = pipelined(centred(n, 1024, weights, F32))
    assert made.lowered is not None
    assert made.lowered[1].persistent
    assert made.lowered[1].shared_bytes <= machine_named("cuda", "sm_90a").shared_limit
    assert len(loads(made, "kept")) <= weights


@cache
def lowered(m: int, n: int) -> tuple[Program, LaunchPlan]:
    """For one multiprocessor, so that few rows are many."""
    return pipelined(centred(n, m), replace(HOPPER, units=1)).lowered or pytest.fail("not lowered")


def test_what_is_kept_is_loaded_before_the_loop() -> None:
    program, _ = lowered(3, 131072)
    (loop,) = [o for o in program.operations[0].regions[0].operations if o.name == "tile.for"]
    names = [o.name for o in loop.walk()]
    assert "tile.load_tile" not in names
    assert names.count("tile.memcpy.async") == 1
    assert names.count("tile.read_tile") == 4  # the row three times, and one weight


@pytest.mark.sample(1)
@pytest.mark.parametrize(("m", "n", "most"), [(3, N, 8), (7, N, 3), (3, 131072, 4)])
def test_rows_are_right(m: int, n: int, most: int) -> None:
    program, plan = lowered(m, n)
    assert plan.persistent
    random = np.random.default_rng(3)
    x, weight, bias = (
        random.standard_normal(shape).astype(numpy_type(BF16)) for shape in ((m, n), (n,), (n,))
    )
    y: Any = np.full_like(x, np.nan)
    machine.launch(program, plan, x, weight, bias, y, most=most)
    wide = x.astype(np.float64)
    apart = wide - wide.mean(1, keepdims=True)
    want = apart / (apart * apart).sum(1, keepdims=True) * weight.astype(np.float64)
    got = y.astype(np.float64)
    np.testing.assert_allclose(got, want + bias.astype(np.float64), rtol=1e-2, atol=1e-2)
