"""``op.*`` and ``@`` of arrays in the host program: NumPy's values, one shape from `check`, and
faults at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tessera_grammar.keywords import MODULE_MEMBERS

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.builtin import BUILTINS
from tessera_lang.evaluate.one_call_kernels import IN_KERNELS_ALONE, ONE_CALL_KERNELS

X = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
Y = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)
Calls = dict[str, Callable[[Any, Any], Any]]
REDUCED: Calls = {
    "op.std(x, axis=1)": lambda x, y: x.std(axis=1),
    "op.var(x)": lambda x, y: x.var(),
    "op.norm(x, axis=0)": lambda x, y: np.linalg.norm(x, axis=0),
    "op.prod(x, axis=1)": lambda x, y: x.prod(axis=1),
    "op.sum(x, axis=(0, 1))": lambda x, y: x.sum(),
    "op.sum(x, axis=1, keepdims=True)": lambda x, y: x.sum(axis=1, keepdims=True),
    "op.max(x, keepdims=True)": lambda x, y: x.max(keepdims=True),
    "op.logsumexp(x, axis=1)": lambda x, y: np.log(np.exp(x).sum(axis=1)),
    "op.count_nonzero(x > 0.0)": lambda x, y: (x > 0).sum(),
    "op.trace(x[:, 0:4])": lambda x, y: np.trace(x[:, :4]),
}
MOVED: Calls = {
    "op.concat((x, y, x), axis=1)": lambda x, y: np.concatenate((x, y, x), axis=1),
    "op.stack((x, y))": lambda x, y: np.stack((x, y)),
    "op.flip(x, axis=0)": lambda x, y: x[::-1],
    "op.roll(x, 2, axis=1)": lambda x, y: np.roll(x, 2, axis=1),
    "op.repeat(x, 2, axis=0)": lambda x, y: np.repeat(x, 2, axis=0),
    "op.tile(x, (2, 1))": lambda x, y: np.tile(x, (2, 1)),
    "op.transpose(x)": lambda x, y: x.T,
    "op.broadcast_to(x[0], (3, 6))": lambda x, y: np.broadcast_to(x[0], (3, 6)),
    "op.tril(x) + op.triu(y, k=1)": lambda x, y: np.tril(x) + np.triu(y, k=1),
    "op.take(x, op.array([2, 0, 2]), axis=1)": lambda x, y: np.take(x, [2, 0, 2], axis=1),
    "x[op.array([2, 0, 2])]": lambda x, y: x[[2, 0, 2]],
    "x[1:4, op.array([2, 0, 2])]": lambda x, y: x[1:4, [2, 0, 2]],
    "x[op.array([2, 0]), op.array([1, 5])]": lambda x, y: x[[2, 0], [1, 5]],
    "x[op.array([[2, 0], [1, 1]])]": lambda x, y: x[[[2, 0], [1, 1]]],
    "op.diff(x, axis=1)": lambda x, y: np.diff(x, axis=1),
    "op.sort(x, axis=1, descending=True)": lambda x, y: -np.sort(-x, axis=1),
    "op.argsort(x, axis=1)": lambda x, y: np.argsort(x, axis=1),
    "op.topk(x, 2)[0]": lambda x, y: -np.sort(-x, axis=1)[:, :2],
    "op.topk(x, 2, axis=0)[1]": lambda x, y: np.argsort(-x, axis=0)[:2],
}
MADE: Calls = {
    "x @ op.transpose(y)": lambda x, y: x @ y.T,
    "x @ y[0]": lambda x, y: x @ y[0],
    "x[0] @ y[1]": lambda x, y: x[0] @ y[1],
    "y[:, 0] @ x": lambda x, y: y[:, 0] @ x,
    'op.einsum("ij,kj->ik", x, y)': lambda x, y: np.einsum("ij,kj->ik", x, y),
    "op.outer(x[0], y[0])": lambda x, y: np.outer(x[0], y[0]),
    "op.cumsum(x, axis=1)": lambda x, y: np.cumsum(x, axis=1),
    "op.softmax(x, axis=0)": lambda x, y: np.exp(x) / np.exp(x).sum(axis=0),
    "op.where(x > y, x, 0.0)": lambda x, y: np.where(x > y, x, 0),
    "op.exp(x) * op.tanh(y)": lambda x, y: np.exp(x) * np.tanh(y),
    "op.logaddexp(x, y)": lambda x, y: np.logaddexp(x, y),
    "op.copysign(x, y)": lambda x, y: np.copysign(x, y),
    "op.eye(3, 4, k=1)": lambda x, y: np.eye(3, 4, k=1),
    "op.linspace(0.0, 2.0, 5)": lambda x, y: np.linspace(0, 2, 5),
    "op.array([[1, 2], [3, 4]]) * 2": lambda x, y: np.array([[2, 4], [6, 8]]),
    "op.array([], dtype=f64)": lambda x, y: np.array([]),
    "op.array([0.5, -inf, inf])": lambda x, y: np.array([0.5, -np.inf, np.inf]),
}
CALLS = {**REDUCED, **MOVED, **MADE}
TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", CALLS)
@pytest.mark.sample(8)
def test_values(text: str, target: str) -> None:
    f = tessera.compile(f"def f(x, y):\n    return {text}\n", target=target).f
    found = f(X, Y)
    with np.errstate(all="ignore"):
        wanted = np.asarray(CALLS[text](X.astype(np.float64), Y.astype(np.float64)))
    got = np.asarray(found)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.sample(4)
def test_a_check_knows_the_shape(text: str) -> None:
    """What fits is clean, and what is made of it is judged with its shape."""
    with np.errstate(all="ignore"):
        shape = np.asarray(CALLS[text](X, Y)).shape
    head = f"x = op.ones({X.shape})\ny = op.ones({Y.shape})\nz = {text}\n"
    assert Session(overlay={"h.tessera": head}).check("h.tessera") == ()
    if shape:
        wrong = f"{head}w = f32(z) @ op.ones(({shape[-1] + 1},))\n"
        (found,) = Session(overlay={"h.tessera": wrong}).check("h.tessera")
        assert found.code == "T0838", found


def test_every_name_is_callable_or_says_where() -> None:
    """A member of ``op`` is called with arrays, stands in a kernel alone, or is no call."""
    for name in MODULE_MEMBERS["op"]:
        text = f"x = op.ones((2, 2))\nprint(op.{name}(x, x, x, x, x, x, x, x, x))\n"
        found = Session(overlay={"h.tessera": text}).check("h.tessera")
        codes = {d.code for d in found}
        assert not codes & {"T0901", "T0902"}, (name, found)
        if name in IN_KERNELS_ALONE:
            assert codes == {"T0818"} and "kernel only" in found[0].message, name
        elif name not in ("kernel", "autotunable"):
            assert f"op.{name}" in BUILTINS and codes, name


WRONG = {
    "op.logsumexp(x > 0)": ("T0207", "op.logsumexp(x > 0)"),
    "op.softmax(x, axis=7)": ("T0311", "op.softmax(x, axis=7)"),
    "op.concat((x.to(f32), op.array([[1]], i32)))": (
        "T0206",
        "op.concat((x.to(f32), op.array([[1]], i32)))",
    ),
    "op.sort(2.0)": ("T0818", "op.sort(2.0)"),
    "op.sort(x, nowhere=2)": ("T0106", "op.sort(x, nowhere=2)"),
    'op.einsum("ij->\\nji", x)': ("T0207", 'op.einsum("ij->\\nji", x)'),
    "x @ 2.0": ("T0818", "x @ 2.0"),
    "x @ x": ("T0838", "x @ x"),
    "op.array([[1.0], [2.0, 3.0]])": ("T0818", "[[1.0], [2.0, 3.0]]"),
    'op.array(["a"])': ("T0818", '["a"]'),
}


@pytest.mark.parametrize("text", WRONG)
def test_faults_stand_at_the_call(text: str) -> None:
    code, place = WRONG[text]
    source = f"def f(x):\n    return {text}\nprint(f(op.ones((2, 3))))\n"
    (found,) = Session(overlay={"h.tessera": source}).check("h.tessera")
    assert found.code == code and found.span is not None, found
    assert source[found.span.lo : found.span.hi] == place
    assert "`call`" not in found.message
    m = tessera.compile(source.partition("print")[0], target="cpu")
    with pytest.raises(tessera.TesseraError) as caught:
        m.f(X[:2, :3])
    assert code in {d.code for d in caught.value.diagnostics}


def test_one_kernel_for_each_call() -> None:
    """Integers are part of a call's text; arrays and other numbers are not."""
    assert len(ONE_CALL_KERNELS) > 80
    m = tessera.compile("def f(x, k):\n    return op.roll(x, k, axis=0)\n", target="cpu")
    for k in (0, 1, 2, -1):
        for x in (X, Y, X[:2]):
            np.testing.assert_array_equal(np.asarray(m.f(x, k)), np.roll(x, k, axis=0))


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "f8e4m3"])
def test_numbers_that_change(dtype: str) -> None:
    """A number with a point takes the dtype of the arrays, as a literal does."""
    m = tessera.compile(
        "def f(n, t):\n"
        f"    x = op.cast(op.arange(6), {dtype})\n"
        "    return op.cast(op.where(x > 2.0, op.cast(x, t), 0.1 * n), f64)\n",
        target="cpu",
    )
    for n in (1, 3, -4):
        literal = tessera.compile(
            "@op.kernel\ndef g(x: f64[n]):\n"
            f"    return op.where(x > 2.0, x.to({dtype}), {0.1 * n!r}).to(f64)\n",
            target="cpu",
        )
        wanted = np.asarray(literal.g(np.arange(6.0)))
        np.testing.assert_array_equal(np.asarray(m.f(n, dtype)), wanted)


def test_a_number_that_changes_compiles_once() -> None:
    def checked(times: int) -> int:
        text = (
            "x = op.ones((3, 4))\n"
            f"for k in range({times}):\n    x = op.where(x > 0.5, x, 0.25 * k)\n"
        )
        session = Session(overlay={"h.tessera": text})
        assert session.check("h.tessera") == ()
        return session.counts["check"]

    assert checked(9) == checked(1) > 0


STRETCHED: Calls = {
    "op.where(x[:, :1] > 0.0, x, y)": lambda x, y: np.where(x[:, :1] > 0, x, y),
    "op.where(x > 0.0, op.sum(y, axis=1)[:, None], x)": lambda x, y: np.where(
        x > 0, y.sum(axis=1)[:, None], x
    ),
    "op.hypot(x, op.sum(y, axis=1, keepdims=True))": lambda x, y: np.hypot(
        x, y.sum(axis=1, keepdims=True)
    ),
    "op.atan2(op.reshape(y[:, 2], (4, 1)), x)": lambda x, y: np.arctan2(y[:, 2].reshape(4, 1), x),
    "op.isclose(x[:, :1], x)": lambda x, y: np.isclose(x[:, :1], x),
    "op.allclose(x, y[2:3])": lambda x, y: np.allclose(x, y[2:3]),
    "op.logaddexp(y[:1], x[:, :1])": lambda x, y: np.logaddexp(y[:1], x[:, :1]),
    "op.copysign(x.T, y[2][:, None])": lambda x, y: np.copysign(x.T, y[2][:, None]),
    "op.logical_and(x > y, x[:, 3:4] > 0.0)": lambda x, y: (x > y) & (x[:, 3:4] > 0),
    "op.vecdot(x, y[:1])": lambda x, y: (x * y[:1]).sum(axis=1),
    "op.broadcast_to(x[:, 1:2], (4, 5))": lambda x, y: np.broadcast_to(x[:, 1:2], (4, 5)),
    "op.broadcast_to(op.max(x, axis=0, keepdims=True), (3, 6))": lambda x, y: np.broadcast_to(
        x.max(axis=0, keepdims=True), (3, 6)
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", STRETCHED)
@pytest.mark.sample(4)
def test_axes_of_one_element_are_stretched(text: str, target: str) -> None:
    f = tessera.compile(f"def f(x, y):\n    return {text}\n", target=target).f
    wanted = STRETCHED[text](X.astype(np.float64), Y.astype(np.float64))
    np.testing.assert_allclose(np.asarray(f(X, Y)), np.asarray(wanted), rtol=1e-5, atol=1e-6)


UNEQUAL = {
    "op.hypot(x, y[:, 0:3] * 2.0)": "(y[:, 0:3] * 2.0).shape[1]",
    "op.where(x > 0.0, x[:, :5], 1.0)": "x[:, :5].shape[1]",
    "op.broadcast_to(x[:, 1:3], (4, 5))": "x[:, 1:3].shape[1]",
    "x @ (y + 1.0)": "(y + 1.0).shape[0]",
}


@pytest.mark.parametrize("text", UNEQUAL)
def test_arguments_are_named_as_written(text: str) -> None:
    f = tessera.compile(f"def f(x, y):\n    return {text}\n", target="cpu").f
    with pytest.raises(tessera.TesseraError) as caught:
        f(X, Y)
    assert f"`{UNEQUAL[text]}" in str(caught.value)
    assert "argument" not in str(caught.value)
