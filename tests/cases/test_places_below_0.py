"""Places below 0: from the end in the host program, and where they are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, results_of

X = np.arange(12, dtype=np.float32).reshape(3, 4)
Z = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
WRITTEN = (
    "x[[0, -1]]", "x[:, [0, -1]]", "x[[0, 1], [-1, 0]]", "x[0, [-1, -2]]", "(x * 2.0)[[0, -1]]",
    "x.T[[0, -1]]", "x[0][[0, -1]]", "z[:, [-1, 1]]", "z[0, :, [-4, 3]]", "z[:, :, [-1]]",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", WRITTEN)
@pytest.mark.sample(8)
def test_in_a_list_of_a_kernel(text: str, target: str) -> None:
    want = eval(text, {"x": X, "z": Z})
    if text == "z[0, :, [-4, 3]]":
        want = Z[0][:, [-4, 3]]  # a number is no array of places here
    agree(results_of(text, {"x": X, "z": Z}, target), want)


@pytest.mark.parametrize("text", WRITTEN[:-2])
def test_in_a_list_of_the_host_program(text: str) -> None:
    module = tessera.compile(f"def f(x, z):\n    return {text}\n", target="cpu")
    agree(module.f(X, Z), eval(text, {"x": X, "z": Z}))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
@pytest.mark.sample(1)
def test_in_an_array_of_the_host_program(dtype: str) -> None:
    p = np.array([0, -1 if dtype[0] == "i" else 2, 1]).astype(dtype)
    forms = ("x[p]", "x[:, p]", "x[p, p]", "x[1, p]", "x[p, 1]", "x[q]", "x[p, 1:3]", "x[q, q]",
             "x[p[:, None], p[None, :]]", "z[:, p]", "z[0, p, 1:]")  # fmt: skip
    body = "".join(f"    if k == {k}:\n        return {f}\n" for k, f in enumerate(forms))
    module = tessera.compile(f"def f(x, z, p, q, k):\n{body}    return x\n", target="cpu")
    q = np.stack([p, p[::-1]])
    for k, form in enumerate(forms):
        agree(module.f(X, Z, p, q, k), eval(form, {"x": X, "z": Z, "p": p, "q": q}))


STORES = ("x[[0, -1]] = x[[-1, 0]]", "x[p] = v", "x[p, 1] = w", "x[[-3, -2], [-1, 0]] = u")


@pytest.mark.parametrize("text", STORES)
def test_stores_of_the_host_program(text: str) -> None:
    given: dict[str, Any] = {
        "x": X.copy(), "p": np.array([-1, 0], np.int32), "v": -X[:2], "w": X[1, :2], "u": X[1, 2:],
    }  # fmt: skip
    module = tessera.compile(f"def f({', '.join(given)}):\n    {text}\n", target="cpu")
    module.f(*given.values())
    mine = {**given, "x": X.copy()}
    exec(text, mine)
    np.testing.assert_array_equal(given["x"], mine["x"])


@pytest.mark.parametrize("text", ["x[[0, -4]]", "x[[0, -4]] = 1.0", "x[p] = 1.0"])
def test_in_front_of_the_first_element(text: str) -> None:
    p = np.array([0, -4], np.int32)
    if "=" in text:
        module = tessera.compile(f"def f(x, p):\n    {text}\n", target="cpu")
        with pytest.raises(tessera.TesseraError, match=r"T0807|T0843"):
            module.f(X.copy(), p)
        return
    found = results_of(text, {"x": X}, "cpu")
    np.testing.assert_array_equal(found, [X[0], X[0] * 0])
