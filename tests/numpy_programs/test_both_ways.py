"""Small programs in plain NumPy style, as functions of the host program and as tile kernels."""

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
    "B": _R.normal(size=(7, 5)), "S": _R.normal(size=(6, 6)), "pos": _R.normal(size=(10, 3)),
    "lab": _R.integers(0, 4, 30), "k": _R.integers(-9, 10, 25), "q": _R.random(30),
    "I": _R.integers(0, 255, (16, 18)).astype(np.float64), "G": _R.integers(0, 2, (10, 11)),
    "W": _R.integers(1, 20, (8, 8)), "p": _R.permutation(12), "n": 12, "s": 0.75,
    "price": np.exp(np.cumsum(_R.normal(0, 0.01, 60))) * 100,
    "adj": (_R.random((9, 9)) < 0.3).astype(np.float64), "digits": _R.integers(0, 10, 18),
}  # fmt: skip
_TEXT = "\n".join(
    (Path(__file__).parent / f"both_{part}.txt").read_text() for part in ("new", "others")
)
_PARTS = re.split(r"^# (\w+)\n", _TEXT, flags=re.MULTILINE)
PROGRAMS = dict(zip(_PARTS[1::2], _PARTS[2::2], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["host", "kernel"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_numpy(name: str, form: str) -> None:
    compare(name, form)


@pytest.mark.parametrize("name", ["per", "pr", "n1", "sl"])
def test_some_as_numpy(name: str) -> None:
    compare(name, "kernel")


def compare(name: str, form: str) -> None:
    text = f"{PROGRAMS[name].strip()}\n"
    names = [n for n in re.findall(r"def f\(([^)]*)\)", text)[0].split(", ") if n]
    scope: dict[str, Any] = {"op": np, "math": math}
    exec(text, scope)
    ours, theirs = ([_copy(GIVEN[n]) for n in names] for _ in range(2))
    with np.errstate(all="ignore"):
        want = scope["f"](*theirs)
    if form == "kernel":
        text = re.sub("^def f", "@op.kernel\ndef f", text, flags=re.MULTILINE)
    got = tessera.compile(text, target="cpu").f(*ours)
    for mine, other in zip((*_several(got), *ours), (*_several(want), *theirs), strict=True):
        a, b = np.asarray(mine), np.asarray(other)
        assert a.shape == b.shape
        fine = 1e-7 if a.dtype != np.float32 else 1e-4
        np.testing.assert_allclose(a.astype(float), b.astype(float), fine, fine)


def _copy(value: Any) -> Any:
    copy = getattr(value, "copy", None)
    return copy() if copy is not None else value


def _several(x: Any) -> list[Any]:
    return list(x) if type(x) is tuple else [x]  # type: ignore[reportUnknownVariableType]
