"""A function of the program, or a derivative or pullback of one, is not handed to Python, where
nothing could call it: not alone, and not in tuples, lists and dicts."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

TEXT = """
def g(x): return op.sum(x * x)
def f(x):
    {body}
"""
REFUSED = {
    "pullback": "return vjp(g, x)[1]",
    "value and pullback": "return vjp(g, x)",
    "in a dict": "return {'a': [vjp(g, x)[1]]}",
    "function": "return g",
    "gradient": "return (x, grad(g))",
    "fused": "return [fused(g)]",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    module = tessera.compile(TEXT.replace("{body}", REFUSED[name]), target="cpu")
    with pytest.raises(tessera.TesseraError, match="T0818") as raised:
        module.f(np.ones(3, np.float32))
    text = str(raised.value)
    assert "`f` returns a function of the program" in text and "Pullback" not in text
    assert ("tessera.vjp(module.g" in text) == ("vjp" in REFUSED[name])


def test_what_a_pullback_gives_is_returned() -> None:
    body = "value, back = vjp(g, x)\n    return value, back(2.0)"
    module = tessera.compile(TEXT.replace("{body}", body), target="cpu")
    value, (found,) = module.f(np.ones(3, np.float32))
    assert value == 3.0
    np.testing.assert_array_equal(np.asarray(found), 4.0 * np.ones(3))
