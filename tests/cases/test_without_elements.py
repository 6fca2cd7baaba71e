"""Arrays, slices and loops without elements: what NumPy gives, in kernels and in functions."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pytest

from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import TARGETS

GIVEN: dict[str, Any] = {
    "none": np.zeros(0), "no_rows": np.zeros((0, 3)), "no_columns": np.zeros((3, 0)),
    "no_integers": np.zeros(0, np.int32), "x": np.arange(5.0),
    "rows": np.arange(15.0).reshape(5, 3),
}  # fmt: skip

EXPRESSIONS = """
# none
op.sum(x)
op.prod(x)
x * 2.0
op.exp(x) + 1.0
x + x
op.any(x > 0.0)
op.all(x > 0.0)
op.count_nonzero(x > 0.0)
op.concat((x, x))
x @ x
op.sort(x)
op.argsort(x)
op.cumsum(x)
op.flip(x, 0)
op.where(x > 0.0, x, 0.0)
op.max(x, initial=0.0)
op.norm(x)
op.roll(x, 1)
op.repeat(x, 2)
op.tile(x, 2)
op.stack((x, x))
op.pad(x, 2)
op.outer(x, x)
x[:, None] - x[None, :]
op.minimum(x, 1.0)
x.astype(op.int64)
op.zeros((len(x),)) + x
op.arange(len(x)) * x
op.linspace(0.0, 1.0, len(x)) + x
op.eye(len(x)) + x[:, None]
x > 0.0
(x > 0.0) & (x < 1.0)
op.cumsum(x > 0.0)
op.where(x > 0.0, 1, 0)
op.zeros(3)[op.arange(0)] + x
op.interp(x, op.arange(4) * 1.0, op.arange(4) * 1.0)
op.sum(x[:, None] == op.arange(3)[None, :], axis=0)
op.allclose(x, x)
op.array_equal(x, x)
op.broadcast_to(x, (4, 0))
op.expand_dims(x, 0)
op.diag(x)
op.trapezoid(x, x)
op.cumprod(x)
x.clip(0.0, 1.0)
x.sum(), x.prod()
0.0 + sum(v * v for v in x)
# no_rows
op.sum(x, axis=0)
op.sum(x, axis=1)
x @ x.T
x.T @ x
x.T
op.reshape(x, (3, 0))
op.ravel(x)
op.sum(op.exp(x), axis=0)
op.trace(x @ x.T)
op.cumprod(x, axis=0)
x.T @ op.zeros(0)
x + op.ones(3)
op.clip(x, 0.0, 1.0)
op.sum(op.median(x, axis=1))
op.full(x.shape, 3.0)
op.tril(x @ x.T)
op.roll(x, 1, axis=0)
x @ op.ones(3)
op.kron(x, x)
x.T @ x / 1.0
# no_columns
op.sum(x, axis=1)
op.prod(x, axis=1)
op.any(x > 0.0, axis=1)
op.all(x > 0.0, axis=1)
x @ x.T
op.cumsum(x, axis=1)
op.sort(x, axis=1)
op.einsum('ij,jk->ik', x, x.T)
op.sum(x, axis=(0, 1))
op.sum(x, axis=1, keepdims=True)
op.norm(x, axis=1)
op.zeros(x.shape) + x
op.std(x, axis=0)
op.sum(op.var(x, axis=0))
op.flip(x, 1)
op.transpose(x, (1, 0)) * 2.0
op.ones(3) @ x
# x
x[2:2]
op.sum(x[3:3])
x[5:]
x[7:]
x[:0]
op.concat((x, x[0:0]))
op.concat((x[:0], x, x[5:]))
op.zeros(0)
op.zeros((0, 3)) + 1.0
op.sum(op.ones((0,))) + x[0]
op.full((0,), 2.0)
op.arange(0)
op.linspace(0.0, 1.0, 0)
op.array([])
op.diff(x[:1])
op.sum(x[x > 100.0])
op.eye(0)
op.sum(op.array([])) + x[0]
op.array([[], []])
op.zeros((len(x) - 5,))
op.concat((op.zeros(0), op.zeros(0)))
op.concat((x[:2], op.zeros(0), x[2:]))
x[3:1] * 2.0
op.mean(x[:0])
op.prod(x[2:2])
op.any(x[2:2] > 0.0)
op.array([op.sum(x[i:i]) for i in range(3)])
op.cumsum(x[:0])
op.sort(x[5:])
op.max(x[:0], initial=1.0)
op.take(x, op.arange(0), axis=0)
x[op.arange(0)]
op.outer(op.arange(0), x)
op.searchsorted(x, x[:0])
op.searchsorted(x[:0], x)
op.isin(x, x[:0])
op.isin(x[:0], x)
# no_integers
op.sum(x)
x + 1
x // 2
op.sort(x)
# rows
op.concat((op.zeros((0, 3)), x))
op.vstack((op.zeros((0, 3)), x))
op.hstack((x, op.zeros((5, 0))))
x[:0, :] @ x.T
x[:, :0] @ x[:, :0].T
op.sum(x[:, 3:], axis=1)
op.sum(x[5:, :], axis=0)
"""
"""Behind the name of what `x` is, an expression a line."""

BODIES = [
    ("none", "s = 0.0\nfor i in range(len(x)):\n    s += x[i]\nreturn s"),
    ("none", "s = 0.0\nfor v in x:\n    s += v\nreturn s"),
    ("none", "y = op.zeros(3)\ny[0:0] = x\nreturn y"),
    ("none", "y = op.zeros((0,))\ny[:] = x\nreturn y"),
    ("none", "if len(x) == 0:\n    return 0.0\nreturn x[0]"),
    ("none", "y = op.zeros(x.shape)\ny[:] = x\nreturn y"),
    ("none", "y = op.zeros((len(x),))\nfor i in range(len(x)):\n    y[i] = x[i] * 2.0\nreturn y"),
    ("none", "i = 0\ns = 0.0\nwhile i < len(x):\n    s += x[i]\n    i += 1\nreturn s"),
    ("none", "s = 0.0\nfor i, v in enumerate(x):\n    s += v * i\nreturn s"),
    ("none", "s = 0.0\nfor a, b in zip(x, x):\n    s += a * b\nreturn s"),
    ("no_rows", "y = op.zeros_like(x)\ny[:, :] = x + 1.0\nreturn y"),
    (
        "no_rows",
        "y = op.zeros((len(x),))\nfor i in range(len(x)):\n    y[i] = op.sum(x[i, :])\nreturn y",
    ),
    ("no_rows", "s = op.zeros(3)\nfor i in range(x.shape[0]):\n    s += x[i, :]\nreturn s"),
    ("no_rows", "s = op.zeros(3)\nfor row in x:\n    s = s + row\nreturn s"),
    (
        "no_columns",
        "y = op.zeros((len(x),))\nfor i in range(len(x)):\n    y[i] = op.sum(x[i, :])\nreturn y",
    ),
    ("x", "s = 0.0\nfor i in range(0):\n    s += x[i]\nreturn s"),
    ("x", "for i in range(0, 0):\n    x[i] = 1.0\nreturn x * 1.0"),
    ("x", "y = op.zeros(0)\ny = op.concat((y, x))\nreturn y"),
    ("x", "y = x * 1.0\ny[2:2] = 7.0\nreturn y"),
    ("x", "y = x.copy()\ny[5:] += 1.0\nreturn y"),
    ("x", "y = x.copy()\ny[3:1] = 1.0\nreturn y"),
    ("x", "s = 0.0\nfor i in range(5, 2):\n    s += x[i]\nreturn s"),
    ("x", "s = 0.0\nfor i in range(len(x)):\n    s += op.sum(x[:i])\nreturn s"),
    ("x", "y = op.zeros(len(x))\nfor i in range(len(x)):\n    y[i] = op.sum(x[:i])\nreturn y"),
    ("rows", "y = op.zeros(5)\nfor i in range(5):\n    y[i] = x[i, :0] @ x[i, :0]\nreturn y"),
]


def _expressions() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for part in re.split("^# ", EXPRESSIONS, flags=re.MULTILINE)[1:]:
        name, *lines = part.strip().split("\n")
        found += [(name, f"return {line}") for line in lines]
    return found


class _Names:
    """NumPy by the names that differ."""

    norm = staticmethod(np.linalg.norm)
    concat = staticmethod(np.concatenate)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def _both(name: str, body: str, mark: str, target: str) -> None:
    lines = body.replace("\n", "\n    ")
    source = f"def f(x):\n    {lines}\n"
    scope: dict[str, Any] = {"op": _Names(), "sum": sum}
    exec(source, scope)
    with np.errstate(all="ignore"):
        want: Any = scope["f"](GIVEN[name].copy())
    found = module_for(target, f"{mark}{source}").f(GIVEN[name].copy())
    pairs: list[Any] = [(found, want)]
    if type(want) is tuple:
        pairs = list(zip(found, cast("tuple[Any, ...]", want), strict=True))
    for a, b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape and a.dtype.kind == b.dtype.kind
        np.testing.assert_array_equal(a, b)


CASES = [*_expressions(), *BODIES]
MARKS = ["@op.kernel\n", ""]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sample(10)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("case", CASES)
def test_as_numpy(case: tuple[str, str], mark: str, target: str) -> None:
    _both(*case, mark, target)


SLICES = ["x[0:0]", "x[2:2]", "x[5:]", "x[9:]", "x[3:1]", "x[:0]", "x[n:]", "x[k:k]", "x[1:1:2]"]
"""Slices of five elements that have none: an axis of one element beside them has none either."""
USES = {
    "op.max(x[:, None] + {}[None, :], axis=1)": -np.inf,
    "op.min(x[:, None] * {}[None, :], axis=1)": np.inf,
    "op.sum(op.where(x[:, None] == {}[None, :], 1.0, 0.0), axis=1)": 0.0,
    "op.any(x[:, None] == {}[None, :], axis=1)": False,
    "op.all(x[:, None] == {}[None, :] + 0.5, axis=1)": True,
    "op.prod({}[:, None] + x[None, :] + 2.0, axis=0)": 1.0,
    "op.sum({}[:, None] + x[None, :] + 2.0, axis=0)": 0.0,
    "op.full((5,), op.max({} + 1.0))": -np.inf,
    "op.isin(x, {})": False,
}


@pytest.mark.sample(8)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("part", SLICES)
def test_a_slice_without_elements_is_not_one_of_one(part: str, use: str, target: str) -> None:
    text = f"n = len(x)\n    k = 2\n    return {use.format(part)}"
    for mark in MARKS:
        found = module_for(target, f"{mark}def f(x):\n    {text}\n").f(GIVEN["x"].copy())
        np.testing.assert_array_equal(np.asarray(found), np.full(5, USES[use]))


@pytest.mark.parametrize("target", TARGETS)
def test_a_list_of_no_places(target: str) -> None:
    m = module_for(target, "def f(x):\n    return x[[]], op.sum(x[[]])\n")
    none, total = m.f(GIVEN["x"])
    assert np.asarray(none).shape == (0,) and total == 0
