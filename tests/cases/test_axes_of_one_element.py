"""An array whose axis has one element, said as a literal, beside longer ones: under its own name, a
second name, a name for a value of it, reshaped, in a function."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import tessera_lang as tessera

FORMS = {
    "itself": "x",
    "second name": "a",
    "value": "x * 1.0",
    "value by name": "b",
    "of a function": "same(x)",
}
SHAPES = [((1, 9), (7, 9)), ((7, 1), (7, 9)), ((1, 1), (7, 9)), ((1, 4, 1), (5, 4, 6)),
          ((3, 1, 6), (3, 4, 6))]  # fmt: skip
CASES = list(itertools.product(FORMS, SHAPES, ("", "sm_90a")))


@pytest.mark.parametrize(("form", "shapes", "arch"), CASES)
@pytest.mark.sample(4)
def test_it_meets_longer_ones(
    form: str, shapes: tuple[tuple[int, ...], ...], arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    small, large = shapes
    kept = ", ".join("mnp"[i] if n == large[i] and n > 1 else str(n) for i, n in enumerate(small))
    text = (
        "def same(v):\n    return v\n\n"
        f"@op.kernel\ndef k(x: f32[{kept}], y: f32[{', '.join('mnp'[: len(large)])}]):\n"
        f"    a = x\n    b = x * 2.0 - x\n    return max({FORMS[form]}, 1.0) + y\n"
    )
    r = np.random.default_rng(1)
    x, y = (r.integers(-9, 9, s).astype(np.float32) for s in (small, large))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tessera.compile(text, target="cpu").k(x, y)
    np.testing.assert_array_equal(found, np.maximum(x, 1) + y)
