"""Operands of unequal rank whose sizes are not the last ones of the other: the message says, by the
sizes, where the missing axes are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

R = np.random.default_rng(2)
x = R.normal(size=(6, 8)).astype(np.float32)
v, u = R.normal(size=8).astype(np.float32), R.normal(size=6).astype(np.float32)
a = R.normal(size=(2, 6, 8)).astype(np.float32)
CASES: dict[tuple[str, str], Callable[[], Any]] = {
    ("x - op.mean(x, axis=1)", "op.mean(x, axis=1)"): lambda: x - x.mean(1)[:, None],
    ("u * x", "u"): lambda: u[:, None] * x,
    ("(u + u) * x", "(u + u)"): lambda: (u + u)[:, None] * x,
    ("a * op.sum(a, axis=(1, 2))", "op.sum(a, axis=(1, 2))"): lambda: (
        a * a.sum((1, 2))[:, None, None]
    ),
    ("a - op.mean(a, axis=1)", "op.mean(a, axis=1)"): lambda: a - a.mean(1)[:, None, :],
    ("x > u", "u"): lambda: x > u[:, None],
    ("op.where((u > 0), x, 0.0)", "(u > 0)"): lambda: np.where((u > 0)[:, None], x, 0),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("expression", "part"), CASES)
def test_the_help_leads_to_the_form(expression: str, part: str) -> None:
    head = "@op.kernel\ndef f(x: f32[m, n], v: f32[n], u: f32[m], a: f32[k, m, n]):\n    return "
    with pytest.raises(tessera.TesseraError, match="T0604") as error:
        tessera.compile(f"{head}{expression}\n", target="cpu").f(x, v, u, a)
    (written,) = re.findall(r"missing axes are: `(.*)`$", str(error.value), re.MULTILINE)
    assert written.startswith(part)
    mended = written.join(re.split(rf"(?<![\w.]){re.escape(part)}(?![\w(])", expression))
    got = tessera.compile(f"{head}{mended}\n", target="cpu").f(x, v, u, a)
    np.testing.assert_allclose(np.asarray(got), CASES[expression, part](), 1e-4, 1e-5)
    assert ("keepdims=True" in str(error.value)) == ("axis=" in part)
