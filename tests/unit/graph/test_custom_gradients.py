"""``@gradient(f)``: gradients that the program gives, of functions and of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.session import Session
from tests.unit.graph.test_derivatives import arrays, differences

TEXT = """
@kernel tile[(64,)]
def scale(x: f64[n], out: mut f64[n], s: f64):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = x[i] * s + out[i] * out[i]


@gradient(scale)
def scale_back(x, out, s, cotangent):
    dx = op.zeros_like(x)
    zero = op.zeros_like(x)
    scale[1](cotangent, dx, s)
    return dx, 2.0 * out * cotangent, op.sum(x * cotangent)


def scaled(x, y):
    z = op.sin(y[0])
    scale[1](x[1], z, op.sum(x))
    return op.sum(z * x[2]) + op.sum(op.exp(z))


@op.kernel
def tiles(x: f64[n, m], y: f64[n, m]):
    for i in op.tile_range(n):
        pass
    return op.exp(x) * y


@op.kernel
def whole(x: f64[n, m], y: f64[n, m]):
    t = op.exp(x - op.max(x, axis=1)[:, None])
    return t @ y.T, op.sum(t * y, axis=1)


def of_tiles(x, y):
    a, b = whole(x, op.tanh(y))
    return op.sum(a * a) + op.sum(b * y[:, 0])


def clipped(x, limit: f64):
    return op.minimum(op.maximum(x, -limit), limit)


@gradient(clipped)
def straight(cotangent):
    return cotangent, None


def through(x, y):
    return op.sum(clipped(x * 3.0, 0.5) * y)


def pair(p, k: int):
    return p["a"] @ p["b"], op.sum(p["a"]) * k


@gradient(pair)
def pair_back(p, k, result, cotangent):
    dc, ds = cotangent
    both = {"a": dc @ p["b"].T + ds * k, "b": p["a"].T @ dc}
    return both, None


def of_pair(x, y):
    c, s = pair({"a": x, "b": y}, 3)
    return op.sum(op.sin(c)) * s


def cube(x):
    return x * x * x


@gradient(cube)
def cube_back(x, result, cotangent):
    return cotangent * (result / x) * SCALE


SCALE = 3.0


def of_cube(x, y):
    return op.sum(cube(x) * y)


def slope_of_cube(x, y):
    return op.sum(grad(of_cube)(x, y) * y)


def unmarked(x, y):
    z = op.zeros_like(x[0])
    other[1](x[0], z)
    return op.sum(z)


@kernel tile[(64,)]
def other(x: f64[n], out: mut f64[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = x[i]
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(TEXT, target="cpu")


@pytest.mark.parametrize("name", ["scaled", "of_tiles", "of_pair", "of_cube", "slope_of_cube"])
@pytest.mark.sample(1)
def test_gradients_are_differences(module: Any, name: str) -> None:
    f = getattr(module, name)
    x, y = arrays()
    value, (dx, dy) = tessera.value_and_grad(f, wrt=("x", "y"))(x, y)
    np.testing.assert_allclose(value, f(x, y), rtol=1e-12)
    np.testing.assert_allclose(dx, differences(f, [x, y], 0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(dy, differences(f, [x, y], 1), rtol=1e-5, atol=1e-7)


def test_the_gradient_is_the_one_that_is_given(module: Any) -> None:
    x, y = arrays()
    np.testing.assert_allclose(tessera.grad(module.through)(x, y), 3.0 * y, rtol=1e-12)
    direct = tessera.grad(module.clipped)(x, 0.5, cotangent=y)
    np.testing.assert_allclose(direct, y, rtol=1e-12)
    np.testing.assert_allclose(tessera.fused(module.clipped)(x, 0.5), np.clip(x, -0.5, 0.5))


def test_a_kernel_without_a_gradient_says_what_to_write(module: Any) -> None:
    with pytest.raises(TesseraError) as error:
        tessera.grad(module.unmarked)(*arrays())
    (found,) = error.value.diagnostics
    assert found.code == "T0761"
    assert found.message == "nothing says what the gradient of the kernel `other` is"
    assert found.helps == ("write it: a function that is marked `@gradient(other)`",)
    assert found.span is not None
    line = TEXT[: found.span.lo].count("\n")
    assert TEXT.splitlines()[line].strip() == "other[1](x[0], z)"


WRONG = {
    "def f(x):\n    return x\n\n\n@gradient(f)\ndef g(x, cotangent):\n    return x, x\n":
        "gives 2 gradients of the 1 arrays of `x`",
    "def f(x):\n    return x\n\n\n@gradient(f)\ndef g(z, cotangent):\n    return z\n":
        "the gradient of `f` has a parameter `z`",
    "def f(x):\n    return x\n\n\n@gradient(f)\ndef g(x):\n    return op.sum(x, axis=0)\n":
        "gives a gradient f32.*2.* of `x`",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_gradient(text: str) -> None:
    m = tessera.compile(text, target="cpu")
    x = np.ones((3, 2), np.float32)
    with pytest.raises(TesseraError, match=WRONG[text]):
        tessera.grad(m.f)(x, cotangent=x)


@pytest.mark.parametrize("mark", [
    "@gradient", "@gradient()", "@gradient(f, g)", "@gradient(2)", "@gradient(nobody)",
    "@gradient(n)", "@gradient(op.sum)", "@gradient(f)\ndef h(x):\n    return x\n\n\n@gradient(f)",
])  # fmt: skip
def test_a_mark_names_a_function(mark: str) -> None:
    given = "n = 3\n\n\ndef f(x):\n    return x\n\n\n"
    session = Session(overlay={"a.tessera": f"{given}{mark}\ndef g(x):\n    return x\n"})
    assert [d.code for d in session.check("a.tessera")] == ["T0113"]


def test_tangents_by_the_gradient_that_is_given(module: Any) -> None:
    x, y = arrays()
    dx, dy = arrays(9)
    with pytest.raises(TesseraError, match="no forward mode through the gradient that is given"):
        tessera.jvp(module.scaled, (x, y), (dx, dy))
    for name in ("of_pair", "of_cube", "through"):
        f = getattr(module, name)
        gx, gy = tessera.grad(f, wrt=("x", "y"))(x, y)
        _, moved = tessera.jvp(f, (x, y), (dx, dy))
        np.testing.assert_allclose(moved, np.sum(gx * dx) + np.sum(gy * dy), rtol=1e-10)
