"""What ptxas says of products of every dtype and order at full size: nothing to complain about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tessera_backend.nvptx.backend import CudaBackend

from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.types.dtype import DTYPES
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.reference import numpy_type
from tests.unit.lower.schedule_to_tile.test_dtypes import PLAIN, SCALED, TF32, WEIGHTS, compiled

N = 4096
CASES = [
    ("f8e4m3", "f8e4m3", SCALED), ("f8e4m3", "f8e5m2", SCALED), ("i8", "i8", PLAIN),
    ("f32", "f32", TF32), ("f32", "f32", PLAIN), ("bf16", "f32", PLAIN), ("f32", "bf16", PLAIN),
    ("bf16", "i8", WEIGHTS), ("bf16", "bf16", PLAIN),
]  # fmt: skip


def empty(dtype: str) -> np.ndarray[Any, Any]:
    return np.empty((N, N), numpy_type(DTYPES[dtype]))


@needs_ptxas
@pytest.mark.parametrize("orders", [(1, 0), (1, 1), (0, 0)], ids=["tn", "nn", "tt"])
@pytest.mark.parametrize(("left", "right", "text"), CASES)
@pytest.mark.sample(1)
def test_no_spills_and_no_waits(left: str, right: str, text: str, orders: tuple[int, int]) -> None:
    a, b = (
        empty(d) if along else empty(d).T
        for d, along in zip((left, right), orders, strict=True)
    )  # fmt: skip
    vectors = {SCALED: 2, WEIGHTS: 1}.get(text, 0)
    made = assembled(text, a, b, *[np.empty(N, np.float32)] * vectors)
    if {left, right} == {"bf16", "f32"} and made.resources.spill_bytes:
        # Lanes round one operand: the driver takes the next schedule where the first spills.
        made = assembled(text, a, b, relief=1)
    assert not [d.message for d in made.diagnostics]
    assert made.resources.spill_bytes == 0


def assembled(text: str, *arrays: np.ndarray[Any, Any], relief: int = 0) -> Artifact:
    found = compiled(text, *arrays, relief=relief)
    assert found.lowered is not None, found.remarks
    return CudaBackend().compile(*found.lowered, TargetOptions("cuda", "sm_90a"), ())
