"""Programs of NumPy's style give what the same lines give in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_programs.as_numpy import FOLDER, arguments, copies, functions, in_numpy

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", functions())
@pytest.mark.sample(1)
def test_it_is_what_numpy_says(name: str, target: str) -> None:
    file, _, function = name.partition(":")
    given = arguments(file, function)
    ours, theirs = copies(given), copies(given)
    got = getattr(module(file, target), function)(*ours)
    want = in_numpy(file, function)(*theirs)
    if want is None:
        got, want = tuple(ours), tuple(theirs)
    for mine, other in zip(_several(got), _several(want), strict=True):
        a, b = np.asarray(mine), np.asarray(other)
        assert a.shape == b.shape
        coarse = a.dtype == np.float32
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64),
            rtol=2e-3 if coarse else 1e-8, atol=2e-4 if coarse else 1e-9,
        )  # fmt: skip


def module(file: str, target: Any) -> Any:
    return tessera.load(str(FOLDER / f"{file}.tessera"), target=target)


def _several(x: Any) -> list[Any]:
    return list(x) if type(x) is tuple else [x]  # type: ignore[reportUnknownVariableType]
