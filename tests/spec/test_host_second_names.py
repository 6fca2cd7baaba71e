"""``x += e`` of an array with a second name in the host program: refused, with what to write."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tests.spec.test_fixes import found_in, printed

REFUSED = {
    "x += 1.0\nreturn x": "the caller has too", "y = x\ny += 1.0\nreturn y": "`x` names too",
    "y = x * 2.0\nz = y\ny -= 1.0\nreturn z": "`z` names too",
}  # fmt: skip
TAKEN = {
    "y = x * 1.0\ny += 1.0\nreturn y": lambda x: x + 1, "x = x + 1.0\nreturn x": lambda x: x + 1,
    "x = x * 2.0\nx += 1.0\nreturn x": lambda x: 2 * x + 1,
    "n = 1\nm = n\nn += 1\nreturn x * n": lambda x: 2 * x,
}  # fmt: skip


def _module(body: str, target: str = "cpu") -> object:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return tessera.compile(f"def f(x):\n{lines}", target=target)


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", [(4,), (2, 3)])
@pytest.mark.parametrize("body", REFUSED)
def test_refused(body: str, shape: tuple[int, ...], target: str) -> None:
    x = np.ones(shape)
    with pytest.raises(tessera.TesseraError, match=f"T0818[\\s\\S]*{REFUSED[body]}"):
        _module(body, target).f(x)
    assert np.all(x == 1)


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
@pytest.mark.parametrize("body", TAKEN)
def test_taken(body: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    np.testing.assert_array_equal(_module(body).f(x), TAKEN[body](x))
    assert np.all(x == 1)


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_the_form_changes_the_array_of_the_caller(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    _module("x[:] += 1.0").f(x)
    assert np.all(x == 2)


@pytest.mark.parametrize("made", ["op.ones((5,))", "op.arange(5)", "op.array([1.0, 2.0, 3.0])",
                                  "2.0 * op.ones((5,))", "op.random((5,), seed=1)"])  # fmt: skip
@pytest.mark.parametrize("taken", ["y.copy()", "op.copy(y)", "op.array(y)", "+y", "-y", "~~y"])
def test_what_is_computed_of_an_array_is_another(made: str, taken: str) -> None:
    """A check knows that too, of arrays that the program itself makes."""
    if taken == "~~y" and made != "op.arange(5)":
        return
    text = f"y = {made}\nz = {taken}\nz *= 3\ny += 1\nprint(y[0], z[0])\n"
    assert not [d.message for d in found_in(text) if d.severity == "error"]
    y, z = (float(v) for v in printed(text)[0].split())
    assert z == pytest.approx((y - 1) * (-3 if taken == "-y" else 3))
