"""std.layout: strided arrays made row-major, on both targets and through std functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import TARGETS, module


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(7,), (0,), (5, 7), (33, 65), (3, 4, 5), (2, 3, 4, 5)])
def test_packs(target: str, shape: tuple[int, ...]) -> None:
    x: Any = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for view in (x.T, x[::-1], x[..., ::2]):
        out = np.full(view.shape, np.nan, np.float32)
        getattr(module("std.layout", target), f"pack{x.ndim}")(view, out)
        assert np.array_equal(out, view)


@pytest.mark.gpu
def test_strided_device_arrays_through_library_functions() -> None:
    torch = pytest.importorskip("torch")
    reduce = tessera.load("std.reduce")
    x = torch.randn(33, 65, device="cuda")
    for view in (x.T, x[:, ::2], x[::3]):
        got = torch.as_tensor(reduce.sum(view, axis=1), device="cuda")
        assert torch.allclose(got, view.double().sum(1).float(), rtol=1e-5, atol=1e-4)
