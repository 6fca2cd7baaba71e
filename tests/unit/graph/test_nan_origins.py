"""`--check-nan` names the operator that gives the first NaN, inside of fused kernels too."""

from __future__ import annotations

import pytest

from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.fault import HostFault
from tessera_lang.target.runtime import runtime

HEAD = """
@op.kernel
def halves(x: f32[n]):
    return op.sqrt(x * 0.5)


def f(x):
    y = op.log(x - 2.0)
    return op.sum(op.tanh(y) * 2.0)


def softmaxed(x, w):
    return op.sum(op.softmax(x @ w / op.sum(x - x), axis=1))


def called(x):
    return op.sum(op.exp(halves(x - 2.0)))


def masked(x):
    return op.sum(op.where(x > 2.0, op.log(x - 2.0), x))


def looped(x):
    for i in range(20):
        x = op.sqrt(x - 0.3)
    return op.sum(x)


ones = op.ones((6,), f32)
square = op.ones((6, 6), f32)
"""
FOUND = {
    "fused(f)(ones)": "`log`",
    "grad(f)(ones)": "`log`",
    "value_and_grad(f)(ones)": "`log`",
    "fused(softmaxed)(square, square)": "`mul`",  # by what softmax of infinities is made of
    "fused(called)(ones)": "`halves`",
    "fused(looped)(ones)": "`sqrt`",
    "f(ones)": "`op.log`",
    "halves(-ones)": "`halves`",
    "op.sqrt(-ones)": "`op.sqrt`",
    "ones * 0.0 / (ones - ones)": "`/`",
    "(ones - ones) / 0.0": "`/`",
}
TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def _run(line: str, target: str, check: bool = True) -> None:
    session = Session(overlay={"n.tessera": f"{HEAD}\nprint({line})\n"})
    world = runtime().host_world(session, target, lambda _: None, "", False, check)
    session.run("n.tessera", world, {})
    world.finish()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("line", FOUND)
@pytest.mark.sample(5)
def test_the_operator_is_named(line: str, target: str) -> None:
    with pytest.raises((HostFault, TesseraError)) as error:
        _run(line, target)
    (one,) = error.value.diagnostics
    assert one.code == "T0763" and one.span is not None
    assert FOUND[line] in one.message, one.message
    _run(line, target, check=False)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("line", ["fused(masked)(ones)", "fused(f)(ones * 4.0)"])
def test_what_is_not_stored_is_none(line: str, target: str) -> None:
    _run(line, target)
