"""``fast.exp`` and ``fast.exp2`` of tiles: what they become, and what they refuse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.sema.typed import TensorArgument
from tessera_lang.types.dtype import F64
from tests.unit.schedule import reference
from tests.unit.schedule.lowering import check, lower_source

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


def test_the_rest_is_not_built() -> None:
    text = TEXT.replace("DTYPE", "f32").replace("FUNCTION", "fast.log")
    _, reports, _ = check(text, (TensorArgument(F64, 1, sizes=(None,)),))
    assert "T0114" in [d.code for d in reports]
