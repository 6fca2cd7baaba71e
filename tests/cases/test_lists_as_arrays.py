"""Where NumPy takes a list for an array, or a number, the host program does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

x = np.arange(1.0, 6.0)
NUMBERS = [
    "op.copysign(1.5, -2.0)", "op.signbit(-0.0)", "op.cbrt(27.0)", "op.heaviside(0.0, 0.5)",
    "op.sinc(0.5)", "op.logaddexp(1.0, 2.0)", "op.isclose(1.0, 1.0 + 1e-9)", "op.fmax(1.0, 2.0)",
    "op.hypot(3, 4)", "op.arctan2(1.0, 2)", "op.sign(-2.5)", "op.sign(-3)", "op.power(2.0, 0.5)",
    "op.deg2rad(180)", "op.nan_to_num(op.nan)", "op.where(3 > 2, 1, 2)", "op.rint(2.5)",
    "op.isposinf(op.inf)", "op.cbrt(8)", "op.copysign(3, -1)", "op.copysign(op.sum(x), -1.0)",
]  # fmt: skip
LISTS = [
    "op.sum([1.0, 2.0, 3.5])", "op.mean([1, 2, 4])", "op.max([3, 1, 2])", "op.std([1.0, 2.0, 4.0])",
    "op.median([3.0, 1.0, 2.0])", "op.sort([3, 1, 2])", "op.cumsum([1, 2, 3])",
    "op.argmax([1.0, 5.0, 2.0])", "op.concatenate([[0.0], x])", "op.concat(([0.0], op.cumsum(x)))",
    "op.maximum([1.0, 5.0], [2.0, 3.0])", "op.maximum(x, [1.0, 2.0, 3.0, 4.0, 9.0])",
    "op.dot([1.0, 2.0], [3.0, 4.0])", "op.array([x, x * 2.0])", "op.array([[x, x], [x * 3.0, x]])",
    "op.array([x[0], 1.0, x[1]])", "op.array(x)", "op.any([False, True])",
    "op.all([x[0] > 0, True])",
    "op.prod([2, 3, 4])", "op.outer([1.0, 2.0], x)", "op.diff([1.0, 4.0, 9.0])",
    "op.where([True, False], 1.0, 2.0)", "op.stack([[1.0, 2.0], [3.0, 4.0]])", "op.flip([1, 2, 3])",
    "op.reshape([1, 2, 3, 4], (2, 2))", "op.tile([1.0, 2.0], 3)", "op.repeat([1.0, 2.0], 3)",
    "op.count_nonzero([0, 1, 2])", "op.isnan([1.0, op.nan])",
    "op.sum([[1.0, 2.0], [3.0, 4.0]], axis=0)",
    "x[[0, 2]] + [1.0, 2.0]", "x > [1.0, 2.5, 2.5, 4.5, 4.5]", "[1.0, 1.0, 2.0, 2.0, 3.0] * x",
    "op.vstack([x, [1.0, 2.0, 3.0, 4.0, 5.0]])", "op.vstack((op.stack([x, x]), x))",
    "op.column_stack((op.ones(5), op.stack([x, x], axis=1)))", "op.hstack([x, 1.0])",
    "op.hstack((0.5, x))",
    "op.sum(x).item()", "op.array([x.item() for x in x[:2]])", "x[:1].item()",
    "op.zeros_like([1.0, 2.0])",
    "op.max([x, x * 2.0])", "op.sum([v * v for v in x])",
]  # fmt: skip


def _numpy(e: str) -> Any:
    return eval(e.replace("op.", "np."), {"np": np, "x": x})


def _ours(e: str) -> Any:
    return tessera.compile(f"def f(x):\n    return {e}\n", target="cpu").f(x.copy())


@pytest.mark.parametrize("e", [*NUMBERS, *LISTS])
@pytest.mark.sample(20)
def test_as_numpy(e: str) -> None:
    want, got = _numpy(e), np.asarray(_ours(e))
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.astype(float), np.asarray(want).astype(float), 1e-7)


def test_lists_of_an_array() -> None:
    assert list(_ours("x.tolist()")) == x.tolist()
    assert [list(v) for v in _ours("op.stack([x, x]).tolist()")] == [x.tolist()] * 2
    with pytest.raises(tessera.TesseraError, match="of an array of 5 elements"):
        _ours("x.item()")


def test_an_array_of_an_array_is_its_own() -> None:
    text = "def f(x):\n    y = op.array(x)\n    y[0] = 9.0\n    return y[0] - x[0]\n"
    assert tessera.compile(text, target="cpu").f(x.copy()) == 8.0


@pytest.mark.parametrize("name", ["nonzero", "unique"])
def test_what_only_the_run_knows_is_in_the_host_program(name: str) -> None:
    v = np.array([3.0, 1.0, 3.0, 2.5, 1.0])
    with pytest.raises(tessera.TesseraError, match=f"call `op.{name}` in a plain function"):
        tessera.compile(f"@op.kernel\ndef f(x):\n    return op.{name}(x)\n", target="cpu").f(v)
    text = f"def f(x):\n    return op.{name}(op.where(x > 2.0, x, 0.0))\n"
    kept = np.where(v > 2.0, v, 0.0)
    found = tessera.compile(text, target="cpu").f(v)
    if name == "nonzero":
        (found,) = found
    np.testing.assert_array_equal(
        found, np.nonzero(kept)[0] if name == "nonzero" else np.unique(kept)
    )
