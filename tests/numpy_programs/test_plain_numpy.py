"""Small programs of many fields in plain NumPy style: what they give is what NumPy gives."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

_R = np.random.default_rng(0)
GIVEN: dict[str, Any] = {
    "x": _R.normal(size=40), "y": _R.normal(size=40), "A": _R.normal(size=(12, 7)),
    "S": _R.normal(size=(6, 6)), "pos": _R.normal(size=(10, 3)), "lab": _R.integers(0, 4, 30),
    "I": _R.integers(0, 255, (16, 18)).astype(np.float64),
    "price": np.exp(np.cumsum(_R.normal(0, 0.01, 60))) * 100, "bits": _R.integers(0, 1 << 30, 20),
    "adj": (_R.random((9, 9)) < 0.3).astype(np.float64),
}  # fmt: skip
_PARTS = re.split(
    r"^# (\w+)\n", (Path(__file__).parent / "plain.txt").read_text(), flags=re.MULTILINE
)
PROGRAMS = dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))


def _as_python(text: str) -> str:
    return re.sub(r"@op.kernel\n|: (?:f64|i64)\[[^]]*\]| -> f64\[[^]]*\]", "", text)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy(name: str) -> None:
    text = f"{PROGRAMS[name].strip()}\n"
    names = [n.strip() for n in re.findall(r"def f\(([^)]*)\)", _as_python(text))[0].split(",")]
    scope: dict[str, Any] = {"op": np, "math": math}
    with np.errstate(all="ignore"):
        exec(_as_python(text), scope)
        want = np.asarray(scope["f"](*(GIVEN[n].copy() for n in names)))
    got = np.asarray(tessera.compile(text, target="cpu").f(*(GIVEN[n].copy() for n in names)))
    assert got.shape == want.shape
    np.testing.assert_allclose(got.astype(float), want.astype(float), 1e-6, 1e-8)
