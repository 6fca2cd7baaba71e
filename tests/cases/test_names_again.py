"""Names of parameters that take another value: the array stays as it is, and what was made of it
or names it too is what it was. NumPy is what is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests import on_device
from tests.cases.test_scratch_arrays import TARGETS, module_for

Array = np.ndarray[Any, np.dtype[Any]]


def inlined(x: Array, y: Array) -> Array:
    centred = x - x.mean()
    return centred * centred.max() + x + y


def stored(x: Array, y: Array) -> Array:
    y[0] = x[1]
    return y * 2 + x


def by_second_name(x: Array, y: Array) -> Array:
    z, x = x, y
    z[0], x[1], y[2] = 7.0, 9.0, 4.0
    return z + x * 10


def in_loops(x: Array, y: Array) -> Array:
    y[:] = x * 2
    return np.cumsum(y + 1)


CASES: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "mean": ("x = x - op.mean(x)\nreturn x * x", lambda x, y: (x - x.mean()) ** 2),
    "both": ("z = x\nx = x + y\ny = z * 2.0\nreturn x * y", lambda x, y: (x + y) * x * 2),
    "array": ("x = y\nreturn x * 2.0", lambda x, y: y * 2),
    "shape": ("x = x[:, None] * y[None, :]\nx = x.T\nreturn x", lambda x, y: np.outer(y, x)),
    "dtype": ("x = (x * 4.0).to(i32)\nreturn x // 2 + 1", lambda x, y: np.trunc(x * 4) // 2 + 1),
    "scan": ("x = op.cumsum(x)\nx = x[1:] - x[:-1]\nreturn x", lambda x, y: x[1:]),
    "steps": (
        "m = op.max(x)\nx = op.exp(x - m)\nx = x / op.sum(x)\nreturn x",
        lambda x, y: np.exp(x - x.max()) / np.exp(x - x.max()).sum(),
    ),
    "second_name": (
        "z = x\nx = y\nz[0] = 7.0\nx[1] = 9.0\nt = x\ny[2] = 4.0\nreturn z + t * 10.0",
        by_second_name,
    ),
    "inlined": ("return scaled(x) + x + y", inlined),
    "stored": ("y[0] = x[1]\nx = y * 2.0 + x\nreturn x", stored),
    "in_loops": (
        "for i in op.tile_range(n, step=16):\n    y[i:i+16] = x[i:i+16] * 2.0\n"
        "x = y + 1.0\nreturn op.cumsum(x)",
        in_loops,
    ),
    "names_of_loops": (
        "for i in op.tile_range(n, step=16):\n    x[i:i+16] = x[i:i+16] + 1.0\n"
        "x = y\nfor i in op.tile_range(n, step=16):\n    x[i:i+16] += 2.0\nreturn x",
        lambda x, y: y + 2,
    ),
}
FUNCTION = """
def scaled(x):
    x = x - op.mean(x)
    return x * op.max(x)

"""


def kernel(name: str, body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"@op.kernel\ndef {name}(x: mut f32[n], y: mut f32[n]):\n{lines}\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(1)
def test_values_and_arguments_are_those_of_numpy(target: str) -> None:
    text = FUNCTION + "".join(kernel(name, body) for name, (body, _) in CASES.items())
    module = module_for(target, text)
    for name, (_, by_numpy) in CASES.items():
        numbers = np.random.default_rng(2)
        x, y = (numbers.uniform(0, 1, 40).astype(np.float32) for _ in range(2))
        wide = [x.astype(np.float64), y.astype(np.float64)]
        if name == "names_of_loops":
            right = wide[1] = wide[1] + 2
            wide[0] = wide[0] + 1
        else:
            right = by_numpy(*wide)
        found = on_device.call(getattr(module, name), (x, y), target)
        assert np.allclose(found, right, 1e-4, 1e-5), name
        assert np.allclose(x, wide[0]) and np.allclose(y, wide[1]), name


def refused(body: str, code: str) -> str:
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(kernel("k", body), target="cpu")
    assert code in {d.code for d in caught.value.diagnostics}
    return str(caught.value)


def test_a_second_name_changes_no_value() -> None:
    """A value that was made of an array before a store by another of its names."""
    text = kernel("k", "z = x\nx = x * 2.0\nz[0] = 9.0\nreturn x + z")
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    found = tessera.compile(text, target="cpu").k(x, y)
    assert found.tolist() == [11.0, 3.0, 3.0, 3.0]


def test_where_two_values_meet_one_name_does_not_do() -> None:
    text = refused("if op.max(y) > 0.5:\n    x = x * 2.0\nreturn x", "T0203")
    assert "give the value a name of its own" in text
    works = "z = x * 1.0\nif op.max(y) > 0.5:\n    z = x * 2.0\nreturn z"
    x, y = np.ones(5, np.float32), np.ones(5, np.float32)
    assert np.allclose(tessera.compile(kernel("k", works), target="cpu").k(x, y), 2.0)


def test_a_sum_knows_which_array_a_name_means() -> None:
    """What is summed into may be read by nobody, whatever its name; the other array may."""
    loop = "for i in range(3):\n    {place}[:] += {value}\n"
    right = "x = y\n" + loop.format(place="x", value="op.sum(z) * 1.0")
    refused("x = y\n" + loop.format(place="x", value="y * 2.0") + "return x", "T0621")
    text = kernel("k", "z = x\n" + right + "return x")
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    assert np.allclose(tessera.compile(text, target="cpu").k(x, y), 12.0)
