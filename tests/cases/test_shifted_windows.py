"""A window that is shifted and cut to what is left of a row, at sizes around that of the window."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

TEXT = """
@op.kernel
def shift[Q: int = 5, W: int = 256](x: f32[m, n], y: mut f32[m, n]):
    for i in op.tile_range(m, step=1):
        part = op.window(x[i, :], Q - 1, W)
        y[i, Q:Q+W] = part[0:n-Q]
"""


@pytest.mark.parametrize("arch", ["", "sm_90a", "sm_80"])
@pytest.mark.parametrize("width", [8, 64, 256])
@pytest.mark.sample(2)
def test_at_every_size(arch: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    m = tessera.compile(TEXT, target="cpu")
    for n in (6, 8, 13, 64, 65, 256, 257, 300):
        x = np.random.default_rng(n).random((2, n)).astype(np.float32)
        y, right = np.zeros_like(x), np.zeros_like(x)
        m.shift(x, y, W=width)
        count = min(width, n - 5)
        window = np.zeros((2, count), np.float32)
        there = min(count, n - 4)
        window[:, :there] = x[:, 4 : 4 + there]
        right[:, 5 : 5 + count] = window
        np.testing.assert_array_equal(y, right)
