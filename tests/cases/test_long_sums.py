"""Few tiles with long loops: sums that several groups share, on every target."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera

Array = np.ndarray[Any, np.dtype[Any]]
PLACES = ["cpu", "as sm_90a", "as sm_80", pytest.param("cuda", marks=pytest.mark.gpu)]
BF16: Any = ml_dtypes.bfloat16

SOURCE = """
@op.kernel
def layer(x: bf16[m, k], w: bf16[n, k], bias: f32[n]) -> f32[m, n]:
    return op.relu(x @ w.T + bias[None, :])

@op.kernel
def column_sums(x: f32[m, n], s: mut f32[n]):
    for i, j in op.tile_range(m, n, step=(64, 128)):
        s[j:j+128] += op.sum(x[i:i+64, j:j+128], axis=0)

@op.kernel
def products_and_squares(x: bf16[m, k], w: bf16[n, k], both: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        p = op.zeros((64, 64), f32)
        q = op.zeros((64,), f32)
        for c in op.tile_range(k, step=64):
            a = x[i:i+64, c:c+64]
            p += a @ w[j:j+64, c:c+64].T
            q += op.sum(a.to(f32) * a.to(f32), axis=1)
        both[i:i+64, j:j+64] = p - q[:, None]
"""


def integers(*shape: int, dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@pytest.fixture(params=PLACES, scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = str(request.param)
    if place.startswith("as "):
        path = tmp_path_factory.mktemp("sums") / "sums.tessera"
        path.write_text(SOURCE, encoding="utf-8")
        return tessera.load(str(path), target="cpu", arch_as=place[3:])
    return tessera.compile(SOURCE, target="cuda" if place == "cuda" else "cpu")


@pytest.mark.parametrize("sizes", [(1, 8, 4096), (64, 64, 2048), (70, 40, 3000), (3, 5, 7)])
@pytest.mark.sample(1)
def test_products(made: Any, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    x, w = integers(m, k, dtype=BF16), integers(n, k, dtype=BF16, seed=1)
    bias = integers(n, dtype=np.float32, seed=2)
    want = np.maximum(x.astype(np.float32) @ w.astype(np.float32).T + bias, 0)
    for _ in range(2):  # counters are as they were
        assert np.array_equal(np.asarray(made.layer(x, w, bias)), want)


@pytest.mark.sample(1)
def test_the_bits_are_the_same_each_time(made: Any) -> None:
    rng: Any = np.random.default_rng(4)
    x, w = (rng.standard_normal((64, 4096)).astype(BF16) for _ in range(2))
    bias = np.zeros(64, np.float32)
    found = {np.asarray(made.layer(x, w, bias)).tobytes() for _ in range(4)}
    assert len(found) == 1


@pytest.mark.parametrize("rows", [0, 1, 63, 1000, 4100])
@pytest.mark.sample(2)
def test_what_is_there_is_added_to(made: Any, rows: int) -> None:
    x, s = integers(rows, 200, dtype=np.float32), integers(200, dtype=np.float32, seed=1)
    want = s + x.sum(0)
    made.column_sums(x, s)
    assert np.array_equal(s, want)


def test_sums_of_two_shapes(made: Any) -> None:
    x, w = integers(64, 4096, dtype=BF16), integers(64, 4096, dtype=BF16, seed=1)
    both = np.full((64, 64), np.nan, np.float32)
    made.products_and_squares(x, w, both)
    a, b = x.astype(np.float32), w.astype(np.float32)
    assert np.array_equal(both, a @ b.T - (a * a).sum(1)[:, None])
