"""Places and counts of the host program's functions meet floats as those of kernels do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

R = np.random.default_rng(4)
C = R.integers(0, 4, 9)
GIVEN: dict[str, Any] = {"c": C, "m": R.integers(0, 2, (3, 4)), "n": 4}
FORMS = [
    "x[:4] / op.bincount(c, minlength=n)", "x / op.bincount(c)[c]", "op.bincount(c)[c] * x",
    "x / op.maximum(op.bincount(c)[c] - 1, 1)", "op.bincount(c) / c.size * x[:4]",
    "x[:4] * op.unique(c, return_counts=True)[1]", "x * op.unique(c, return_inverse=True)[1]",
    "x[op.unique(c, return_index=True)[1]]", "op.nonzero(x > 0)[0] * x[x > 0]",
    "op.flatnonzero(x > 0) * x[x > 0] + 0.25", "op.argwhere(m)[:, 0] * x[0]",
    "op.argwhere(m)[:4, 1] * x[:4]", "op.histogram(x, bins=9)[0] * x", "x[op.where(x > 0)[0]]",
    "x[:3] * op.histogram(x, bins=3)[0] / op.sum(op.histogram(x, bins=3)[0])",
    "x * op.argsort(x)[op.argsort(x)]", "x[:5] * op.argsort(x)[::2]", "x * op.argsort(x)[c]",
    "op.bincount(c)[op.bincount(c) > 1] * x[0]", "op.log(op.bincount(c)) * x[:4]",
    "op.sqrt(op.bincount(c, minlength=n)) + x[:4]", "x[:4] > op.bincount(c)",
    "op.where(x[:4] > 0, op.bincount(c), x[:4])", "op.cumsum(op.bincount(c)) * x[:4]",
]  # fmt: skip
ALONE = [
    "op.bincount(c)", "op.bincount(c) // 2", "op.bincount(c) / c.size", "op.bincount(c)[c]",
    "op.unique(c)", "op.nonzero(c)[0] % 3", "op.histogram(c, bins=3)[0]", "op.sum(op.bincount(c))",
    "op.bincount(c) * 0.5", "c * op.bincount(c)[c]", "op.bincount(c) @ op.arange(4)",
]  # fmt: skip


def _result(form: str, given: dict[str, Any]) -> Any:
    names = [n for n in given if n == "n" or n in form]
    text = f"def f({', '.join(names)}):\n    return {form}\n"
    return tessera.compile(text, target="cpu").f(*[given[n] for n in names])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS)
def test_counts_beside_floats(form: str, dtype: Any) -> None:
    x: Any = R.normal(size=9)
    x = x.astype(dtype)
    found = np.asarray(_result(form, {"x": x, **GIVEN}))
    want = np.asarray(eval(form, {"op": np, **GIVEN, "x": x.astype(np.float64)}))
    assert found.dtype == (want.dtype if want.dtype == bool else dtype)
    np.testing.assert_allclose(found, want, rtol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("form", ALONE)
def test_counts_beside_integers(form: str) -> None:
    found, want = np.asarray(_result(form, GIVEN)), np.asarray(eval(form, {"op": np, **GIVEN}))
    assert found.dtype == want.dtype
    np.testing.assert_allclose(found, want, rtol=1e-14)


def test_what_is_stored_into_is_no_count_any_more() -> None:
    text = "def f(x, c):\n    n = op.bincount(c)\n    n[0] = 7\n    return x[:4] / n\n"
    with pytest.raises(tessera.TesseraError, match="T0818"):
        tessera.compile(text, target="cpu").f(np.ones(9, np.float32), C)
