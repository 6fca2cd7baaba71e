"""``fast.*`` and ``math.*`` of tiles: what they become, and what they refuse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.sema.side_tables import TensorArgument
from tessera_lang.types.dtype import F64
from tests.unit.lower.ast_to_schedule import reference
from tests.unit.lower.ast_to_schedule.lowering import check, lower_source
from tests.unit.lower.ast_to_schedule.test_early_exits import loaded

TEXT = """\
@op.kernel
def powers(x: DTYPE[n]) -> DTYPE[n]:
    y = op.empty_like(x)
    for i in op.tile_range(n, step=64):
        y[i:i+64] = FUNCTION(x[i:i+64])
    return y
"""
TYPES: dict[str, tuple[Any, float]] = {
    "f32": (np.float32, 2e-6), "f16": (np.float16, 1e-3), "bf16": (ml_dtypes.bfloat16, 1e-2),
}  # fmt: skip


@pytest.mark.parametrize("dtype", list(TYPES))
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_values(name: str, dtype: str) -> None:
    kind, tolerance = TYPES[dtype]
    x = np.linspace(-4, 4, 100).astype(kind)
    text = TEXT.replace("DTYPE", dtype).replace("FUNCTION", f"fast.{name}")
    program, plan, reports = lower_source(text, x)
    assert not reports
    assert any(o.name == "tile.exp2" for o in program.operations[0].walk())
    (found,) = reference.launch(program, plan, x)
    wanted = getattr(np, name)(x.astype(np.float64))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=tolerance)


def test_doubles_are_refused() -> None:
    text = TEXT.replace("DTYPE", "f64").replace("FUNCTION", "fast.exp")
    _, reports, _ = check(text, (TensorArgument(F64, 1, sizes=(None,)),))
    assert [d.code for d in reports] == ["T0207"]


ONE = ("log2", "log", "sin", "cos", "tanh", "sqrt", "rsqrt", "reciprocal", "sigmoid", "gelu")
MORE = ("fast.divide(V, V + 1.0)", "fast.pow(V, V)", "math.pow(V, 1.5)", "math.fma(V, V, 2.0)")
HEADS = """\
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def lanes(x: DTYPE[n], y: mut DTYPE[r, n]):
    i = grid_tile_linear_id()
    if i >= n: return
""", """\
@op.kernel
def tiles(x: DTYPE[n], y: mut DTYPE[r, n]):
    for i in op.tile_range(n, step=64):
"""  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_as_in_lanes(dtype: str) -> None:
    """The same bits as of one element in a lane."""
    functions = [*(f"fast.{name}(V)" for name in ONE), *MORE]
    lanes, tiles = HEADS
    for row, function in enumerate(functions):
        lanes += f"    y[{row}, i] = {function.replace('V', 'x[i]')}\n"
        tiles += f"        y[{row}, i:i+64] = {function.replace('V', 'x[i:i+64]')}\n"
    module = loaded((lanes + tiles).replace("DTYPE", dtype))
    x = np.linspace(0.25, 3, 70).astype(TYPES[dtype][0])
    one, other = (np.zeros((len(functions), 70), x.dtype) for _ in range(2))
    module.lanes(x, one)
    module.tiles(x, other)
    for row, function in enumerate(functions):
        assert one[row].tobytes() == other[row].tobytes(), function


def test_wrong_dtypes_of_more_operands() -> None:
    text = TEXT.replace("DTYPE", "f64").replace("FUNCTION(", "fast.divide(2.0, ")
    _, reports, _ = check(text, (TensorArgument(F64, 1, sizes=(None,)),))
    assert [d.code for d in reports] == ["T0207"]
