"""Parts of a scan or of a sorted tile, taken where it is computed: those of the whole line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS


def _places(a: Any, axis: int) -> Any:
    return np.argsort(a, axis, kind="stable")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate, "sort": np.sort,
    "argsort": _places,
}  # fmt: skip
PARTS = [
    "[1:, :]", "[:, 2:5]", "[2:, 7:]", "[:, :3]", "[1, :]", "[:, 6]", "[i:i+1, :]", "[:, i:i+2]",
    "[::2, ::3]",
]  # fmt: skip
X: Any = np.random.default_rng(1).integers(-4, 5, (3, 8)).astype(np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sample(3)
def test_a_part_is_that_of_the_whole_line(name: str, axis: int, part: str, target: str) -> None:
    scan, i = FUNCTIONS[name], 1
    want: list[Any] = [scan(X, axis=axis)]
    made = [f"op.{name}(x[:3, :8] * 1.0, axis={axis}){part}"]
    if name.startswith("cum"):
        made.append(f"op.{name}(x[:3, :8] * 1.0, axis={axis}, reverse=True){part}")
        want.append(np.flip(scan(np.flip(X, axis), axis=axis), axis))
    text = (
        "@op.kernel\ndef f(x: f32[m, n], s: f32[k]):\n    i = s.shape[0]\n"
        f"    return {', '.join(made)}\n"
    )
    found: Any = module_for(target, text).f(X, np.zeros(1, np.float32))
    pairs: Any = zip(found if len(want) > 1 else (found,), want, strict=True)
    for a, b in pairs:
        np.testing.assert_array_equal(np.asarray(a), eval(f"b{part}", {"b": b, "i": i}))


@pytest.mark.parametrize("target", TARGETS)
def test_a_part_of_a_scan_is_stored(target: str) -> None:
    text = """
@op.kernel
def f(y: f32[p]):
    t = op.ones((3,), f32)
    t[2:] = (op.cumsum(op.take(y, op.array([30, 3, 17]), axis=0), axis=0))[2:]
    return t
"""
    y = np.arange(40, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(module_for(target, text).f(y)), [1, 1, 50])
