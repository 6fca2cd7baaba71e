"""A condition that says that a number is more than 0 makes what it is taken away from count from
the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import on_device
from tests.cases.test_scratch_arrays import TARGETS, module_for

STEP = "y[j:] += w[j] * x[:-j]"
FORMS = {
    "more": f"for j in range(len(w)):\n if j > 0:\n  {STEP}\n else:\n  y += w[0] * x",
    "less": f"for j in range(len(w)):\n if 0 < j:\n  {STEP}",
    "equal": f"for j in range(len(w)):\n if j == 0:\n  y += w[j] * x\n else:\n  {STEP}",
    "not_equal": f"for j in range(len(w)):\n if j != 0:\n  {STEP}\n  continue\n y += x",
    "turned": f"for j in range(len(w)):\n if not j <= 0:\n  {STEP}",
    "both": f"for j in range(len(w)):\n if j > 0 and w[j] > 1.0:\n  {STEP}",
    "left": f"for j in range(len(w)):\n if j < 1:\n  continue\n {STEP}\n y[:-j] += x[j:]",
    "start": "for j in range(len(w)):\n if j >= 1:\n  y[-j:] += w[j]\n  y[:-j] *= 0.5",
    "more_than": "for j in range(len(w)):\n if j > 2:\n  y += x[2 - j:].sum() - x[:1 - j].max()",
    "while": f"j = len(w) - 1\nwhile j > 0:\n {STEP}\n j -= 1",
    "number": "j = n\nif j > 0:\n y[:-j] = x[j:]\nelse:\n y[:] = x",
}  # fmt: skip
REFUSED = {
    "other": "for j in range(len(w)):\n if w[j] > 0.5:\n  y[j:] += x[:-j]",
    "not_more": "for j in range(len(w)):\n if j >= 0:\n  y[j:] += x[:-j]",
    "behind": "for j in range(len(w)):\n if j > 0:\n  y += 1.0\n y[j:] += x[:-j]",
    "changed": "j = len(w) - 1\nwhile j > 0:\n j -= 1\n y[j:] += w[j] * x[:-j]",
}


def _text(body: str) -> str:
    lines = "".join(f"    {_indented(line)}\n" for line in body.split("\n"))
    return f"def f(x, w, n: i32):\n    y = op.zeros_like(x)\n{lines}    return y\n"


def _indented(line: str) -> str:
    own = len(line) - len(line.lstrip())
    return "    " * own + line.lstrip()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(3)
def test_as_numpy(form: str, target: str) -> None:
    text = _text(FORMS[form])
    names: dict[str, Any] = {"op": np, "i32": int}
    exec(text, names)
    module = module_for(target, f"@op.kernel\n{text}")
    for size, taps, n in ((9, 4, 2), (3, 3, 0), (5, 1, 4)):
        x, w = np.arange(size) + 1.0, np.arange(taps) + 0.5
        got = on_device.call(module.f, (x, w, n), target)
        np.testing.assert_allclose(np.asarray(got), names["f"](x, w, n))


@pytest.mark.parametrize("form", REFUSED)
def test_another_condition_says_nothing(form: str) -> None:
    with pytest.raises(Exception, match="T0605"):
        module_for("cpu", f"@op.kernel\n{_text(REFUSED[form])}").f(np.ones(9), np.ones(4), 2)
