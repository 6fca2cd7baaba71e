"""std.einsum against NumPy's in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import TARGETS, module, numbers, wide
from tests.stdlib.assembled import ARCHS, assembles, needs_ptxas

CALLS = {"ij,kj->ik": ((70, 33), (129, 33)), "bij,bjk->bik": ((3, 17, 40), (3, 40, 9)),
         "ij->ji": ((20, 30),), "ij,ij->i": ((5, 1000), (5, 1000)), "ij,jk,kl->il":
         ((9, 8), (8, 7), (7, 6)), "ii->": ((40, 40),), "i,j->ij": ((5,), (9,))}  # fmt: skip


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.einsum", str(request.param))


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("letters", CALLS)
def test_einsum(std: Any, letters: str, dtype: str) -> None:
    """The error of a sum of products, and a rounding for each product of a chain."""
    given = [numbers(dtype, shape, seed=i) for i, shape in enumerate(CALLS[letters])]
    exact = [wide(x).astype(np.float64) for x in given]
    found = np.asarray(std.einsum(letters, *given))
    size = np.einsum(letters, *(np.abs(x) for x in exact))
    unit = {"f32": 2.0**-24, "f64": 2.0**-53, "bf16": 2.0**-9}[dtype]
    terms = 1000 * (2.0**-53 if dtype == "f64" else 2.0**-24)
    error = np.abs(wide(found).astype(np.float64) - np.einsum(letters, *exact))
    assert (error <= size * (terms + unit * len(given) * 2)).all()


def test_wrong_letters_are_diagnostics(std: Any) -> None:
    x = np.ones((2, 3), np.float32)
    for letters, said in (
        ("ij->k", "of no operand"),
        ("ijk->k", "letters"),
        ("ij,jk", "1 operand"),
    ):
        with pytest.raises(tessera.TesseraError) as caught:
            std.einsum(letters, x)
        assert said in str(caught.value)
    with pytest.raises(tessera.TesseraError):
        std.einsum("ij,jk->ik", x, x)


@needs_ptxas
@pytest.mark.parametrize("arch", ARCHS)
def test_ptxas_takes_it(arch: str) -> None:
    form = "a: bf16[256, 128], b: bf16[192, 128], LETTERS='ij,kj->ik'"
    assembles("einsum", "_of_two", form, arch)
