"""Few long iterations become several launches, in which groups share each; the results are the same
on every target where sums are exact."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.tile_compilation import ForMachine
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

CHANNELS = """
@op.kernel
def kernel(x: f32[b, c, h, w], gain: f32[c]) -> f32[b, c, h, w]:
    y = op.empty_like(x)
    for j in op.tile_range(c, step=1):
        v = x[:, j, :, :]
        mean = op.mean(v)
        y[:, j, :, :] = (v - mean) * gain[j] * op.rsqrt(op.mean((v - mean) * (v - mean)) + 1e-5)
    return y
"""
ROWS = """
@op.kernel
def kernel(x: f32[m, n]) -> f32[m, n]:
    e = exp(x - op.max(x, axis=1, keepdims=True))
    return e / op.sum(e, axis=1, keepdims=True)
"""
WRITES_BEFORE = """
@op.kernel
def kernel(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=1):
        y[i, :] = x[i, :] * 2.0
        y[i, 0] = op.sum(x[i, :])
    return y
"""
IN_ORDER = """
@op.kernel
def kernel(x: f32[m, n], y: mut f32[n]):
    for i in op.tile_range(m, step=1):
        y[:] = y[:] + x[i, :] * op.sum(x[i, :])
"""


def launches(made: ForMachine) -> int:
    return 1 + len(made.then)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("text", "shapes", "count"),
    [
        (CHANNELS, "x: f32[64, 64, 512, 512], gain: f32[64]", 5),
        (CHANNELS, "x: f32[64, 512, 512, 512], gain: f32[512]", 1),  # groups enough
        (CHANNELS, "x: f32[64, 64, 16, 16], gain: f32[64]", 1),  # not long
        (ROWS, "x: f32[100, 1000000]", 5),
        (ROWS, "x: f32[10000, 1000000]", 1),
        (WRITES_BEFORE, "x: f32[10, 1000000]", 1),
        (IN_ORDER, "x: f32[10, 1000000], y: f32[1000000]", 1),
    ],
)
def test_which_iterations_are_shared(text: str, shapes: str, count: int) -> None:
    assert launches(from_source(text, shapes)) == count


def test_groups_enough_for_a_device() -> None:
    first = from_source(CHANNELS, "x: f32[64, 64, 512, 512], gain: f32[64]")
    (loop,) = (
        o for o in first.schedule.operations[0].walk()
        if o.name == "tessera.schedule.for" and "grid" in o.strings("mapping")
    )  # fmt: skip
    assert loop.strings("axes") == ("j", "part")


SUMS = """
@op.kernel
def kernel(x: f32[m, n], z: f32[m]) -> (f32[m, n], f32[m]):
    y = op.empty_like(x)
    most = op.empty_like(z)
    for i in op.tile_range(m, step=1):
        v = x[i, :]
        total = op.sum(v * 2.0) + z[i]
        far = op.max(v - total)
        most[i] = far
        y[i, :] = v * far + total
    return y, most
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("shape", [(3, 131072), (5, 140001), (1, 262147)])
@pytest.mark.sample(1)
def test_parts_give_what_the_whole_gives(shape: tuple[int, int], target: str) -> None:
    r = np.random.default_rng(shape[1])
    x = r.integers(-1, 2, shape).astype(np.float32)
    z = r.integers(-9, 9, shape[0]).astype(np.float32)
    total = (x * 2).sum(axis=1, keepdims=True, dtype=np.float64) + z[:, None]
    far = (x - total).max(axis=1, keepdims=True)
    y, most = ran(SUMS, target, x, z)
    assert np.array_equal(most, far[:, 0].astype(np.float32))
    assert np.array_equal(y, (x * far + total).astype(np.float32))


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_channels(target: str) -> None:
    r = np.random.default_rng(1)
    x = r.standard_normal((3, 2, 331, 211)).astype(np.float32)
    gain = np.array([2, 3], np.float32)
    d = x.astype(np.float64) - x.mean(axis=(0, 2, 3), keepdims=True, dtype=np.float64)
    scale = 1 / np.sqrt((d * d).mean(axis=(0, 2, 3), keepdims=True) + 1e-5)
    got = ran(CHANNELS, target, x, gain)
    again = ran(CHANNELS, target, x, gain)
    assert np.allclose(got, d * scale * gain[:, None, None], rtol=1e-4, atol=1e-5)
    assert np.array_equal(got.view(np.int32), again.view(np.int32))


def ran(text: str, target: str, *arrays: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loaded(text, target).kernel(*arrays)
    if isinstance(found, tuple):
        return tuple(np.asarray(x) for x in found)
    return np.asarray(found)
