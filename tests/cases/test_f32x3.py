"""Products of f32 split into products of bf16: no less exact than multiplying and adding in f32,
also of numbers far apart, of infinities and NaN; on the CPU and as the code of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

Array = np.ndarray[Any, np.dtype[Any]]

TEXT = """
@op.kernel
def whole(a: f32[m, k], b: f32[k, n]) -> f32[m, n]:
    return op.matmul(a, b, precision="f32x3")

@op.kernel
def exact(a: f32[m, k], b: f32[k, n]) -> f32[m, n]:
    return a @ b

@op.kernel
def tiles[BM: int = 64, BN: int = 64, BK: int = 32](a: f32[m, k], b: f32[n, k], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(BM, BN)):
        acc = op.zeros((BM, BN), f32)
        for p in op.tile_range(k, step=BK):
            acc += op.matmul(a[i:i+BM, p:p+BK], b[j:j+BN, p:p+BK].T, precision="f32x3")
        y[i:i+BM, j:j+BN] = acc

@op.kernel
def computed(a: f32[m, k], b: f32[k, n]) -> f32[m, n]:
    return op.matmul(a * 2.0, b, precision="f32x3")

@op.kernel
def stack(a: f32[z, m, k], b: f32[z, k, n]) -> f32[z, m, n]:
    return op.matmul(a, b, precision="f32x3")
"""


@pytest.fixture(params=["cpu", "sm_90a", "sm_80", GPU])
def made(request: pytest.FixtureRequest) -> Any:
    return loaded(TEXT, str(request.param))


def error(got: Array, a: Array, b: Array) -> float:
    """In units of half of the last place of f32, of the sum of the magnitudes of the terms."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return float((np.abs(got - x @ y) / (np.abs(x) @ np.abs(y))).max()) * 2**24


def drawn(seed: int, *shape: int) -> Array:
    rng = np.random.default_rng(seed)
    scale = np.exp2(rng.integers(-12, 13, shape))  # of one row some are 2**24 times others
    return (rng.standard_normal(shape) * scale).astype(np.float32)


@pytest.mark.parametrize("size", [(64, 64, 64), (70, 40, 200), (1, 3, 5), (33, 130, 515)])
@pytest.mark.sample(1)
def test_no_less_exact_than_f32(made: Any, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = drawn(1, m, k), drawn(2, k, n)
    worst = max(1.0, error(np.asarray(made.exact(a, b)), a, b))
    assert error(np.asarray(made.whole(a, b)), a, b) <= 3 * worst
    y = np.zeros((m, n), np.float32)
    made.tiles(a, np.ascontiguousarray(b.T), y)
    assert error(y, a, b) <= 3 * worst
    assert error(np.asarray(made.computed(a, b)), 2 * a, b) <= 3 * worst
    rounded = (a.view(np.uint32) & 0xFFFFE000).view(np.float32)  # as tf32 has them
    assert error((rounded.astype(np.float64) @ b).astype(np.float32), a, b) > 100 * worst


@pytest.mark.sample(1)
def test_stacks_of_matrices(made: Any) -> None:
    a, b = drawn(3, 3, 20, 70), drawn(4, 3, 70, 30)
    y = np.asarray(made.stack(a, b))
    assert max(error(y[i], a[i], b[i]) for i in range(3)) <= 12


def test_what_is_left_out_of_one_term(made: Any) -> None:
    a, b = drawn(5, 50, 1), drawn(6, 1, 60)
    assert error(np.asarray(made.whole(a, b)), a, b) <= 8 + 1


def test_what_overflows_is_no_nan(made: Any) -> None:
    a = np.float32([[1.7e38, 3.1e25, -2.9e19, 3.3e19]] * 16).T
    with np.errstate(over="ignore"):
        want = a[:, :1] * a.T[:1]
    np.testing.assert_array_equal(np.isinf(made.whole(a[:, :1], a.T[:1].copy())), np.isinf(want))


def test_numbers_that_are_none(made: Any) -> None:
    """Infinities and NaN as in f32, beside numbers that one part holds and others."""
    values = np.float32([np.inf, -np.inf, np.nan, 0.0, 1.0, -2.5, np.pi, 3.4e38, -1e-30, 1e-40])
    payload = np.uint32([0x7F800001, 0xFF80FFFF]).view(np.float32)
    values = np.concatenate([values, payload])
    left, right = values[:, None], values[None, :]
    with np.errstate(all="ignore"):
        want = left * right
    got = np.asarray(made.whole(left, np.ascontiguousarray(right)))
    tiny = np.minimum(np.abs(left), np.abs(right)) < 2.0**-126  # a first part of 0
    same = (np.isnan(want) == np.isnan(got)) & (np.isinf(want) == np.isinf(got))
    assert (same | tiny).all()
    finite = np.isfinite(want) & ~tiny
    np.testing.assert_allclose(got[finite], want[finite], rtol=2**-21, atol=2**-120)
    assert (np.sign(got[np.isinf(want) & ~tiny]) == np.sign(want[np.isinf(want) & ~tiny])).all()


def test_of_other_dtypes_it_is_refused() -> None:
    text = TEXT.split("@op.kernel")[1].replace("f32[", "bf16[").replace("-> bf16", "-> f32")
    for precision in ("f32x3", "tf32"):
        with pytest.raises(tessera.TesseraError, match="T0207") as found:
            tessera.compile("@op.kernel" + text.replace("f32x3", precision), target="cpu").whole(
                *(np.zeros((8, 8), "bfloat16") for _ in range(2))
            )
        assert "leave `precision` out" in str(found.value)


def test_matrix_units_take_the_parts() -> None:
    made = from_source(TEXT, "a: f32[2048,8192], b: f32[8192,4096]", name="whole")
    *_, last = (m.schedule.operations[0] for m in made.launches)
    dots = [o for o in last.walk() if o.name.endswith("schedule.dot")]
    assert [o.attributes["unit"] for o in dots] == ["wgmma"] * 6
    shape = dots[0].result.tile_type.sizes
    assert shape[0] * shape[1] >= 128 * 128
    loads = [o for o in last.walk() if o.name.endswith("schedule.load")]
    assert [o.attributes["copy"] for o in loads] == ["tma"] * 6


def test_a_computed_factor_is_multiplied_exactly_and_says_so() -> None:
    path = "kernel.tessera"
    session = Session(overlay={path: TEXT})
    wanted = session.signature(path, "computed", "a: f32[2048,8192], b: f32[8192,4096]")
    made = session._schedule(path, session._sound(path, "computed", wanted))
    said = [d.message for d in made.diagnostics]
    assert "this product is computed exactly, element by element: a factor is computed" in said
