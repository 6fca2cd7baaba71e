"""``grad`` and ``value_and_grad`` in the language and from Python, against central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError

numpy: Any = np
LOSSES = {
    "products": "op.mean(op.tanh(x @ y.T) ** 2) + x[0] @ y[1]",
    "einsum": 'op.sum(op.einsum("ij,kj->ik", x, y) ** 2)',
    "batches": "op.sum(op.tanh(op.stack((x, x + 1.0)) @ y.T))",
    "reductions": "op.max(x) * op.min(y) + op.sum(op.max(x, axis=1) * op.mean(y, axis=1))",
    "spread": "op.var(x) + op.sum(op.std(y, axis=1, keepdims=True) * x)",
    "order": "op.sum(op.sort(x, axis=0) * y) + op.sum(op.sort(y, descending=True)[:, 0] ** 2)",
    "best": "op.sum(op.topk(x, 2)[0] ** 2) + op.sum(op.topk(y, 2, axis=0, largest=False)[0])",
    "along": "op.sum(op.take_along_axis(x, op.argsort(y, axis=1)[:, 0:2], axis=1) ** 2)",
    "running": "op.sum(op.cumprod(x, axis=0) * y) + op.sum(op.cumprod(y, axis=1, exclusive=True,"
    " reverse=True) ** 2)",
    "norms": "op.norm(x) + op.sum(op.norm(y, axis=0))",
    "softmax": "op.sum(op.softmax(x, axis=0) * op.softmax(y))",
    "entropy": "op.mean(op.logsumexp(x, axis=1)) - op.mean(x[:, 1])",
    "choice": "op.sum(op.where(x > y, op.exp(x), y * y)) + op.sum(op.clip(x, -0.3, 0.4))",
    "slices": "op.sum(x[1:, ::2] * y[:-1, 1:]) + op.sum(x[::-1] * y) + x[0, 1] * y[-1, -1]",
    "shapes": "op.sum(op.concat((x, y), axis=1) ** 2 * op.reshape(op.concat((y, y)), (3, 6)))",
    "moves": "op.sum(op.roll(x, 1, axis=0) * op.tril(y)) + op.sum(op.pad(x, 1)[1:-1, 1:-1] * y)",
    "scans": "op.sum(op.cumsum(x, axis=1) * y) + op.prod(op.sum(x * y, axis=1))",
    "takes": "op.sum(x[op.array([0, 2, 2])] ** 2) + op.sum(op.take(y, op.array([1, 1]), axis=1))",
    "places": "op.sum(op.take_along_axis(x, op.array([[0], [2], [1]]), axis=1) * y[:, :1])",
    "numbers": "math.sqrt(op.sum(x * x)) / len(x) + abs(op.sum(y)) ** 1.5 + max(op.sum(x), 0.1)",
    "names": "op.sum(op.square(x) + op.hypot(x, y) + op.atan2(x, y) + op.logaddexp(x, y))",
    "steps": "op.sum(op.floor(x) * y + op.sign(y) * x + op.minimum(x, y) + op.relu(x))",
    "constants": "op.sum(op.eye(3).to(f64) * x + op.arange(3, dtype=f64)[None, :] * y)",
    "capture": "op.sum(CONSTANT * x) + op.sum(op.tanh(y)) * CONSTANT",
    "made": "op.sum(op.array([op.sum(x), op.max(y)], dtype=f64) * op.full((2,), x[0, 0], f64))",
    "weak": "op.sum(x * op.arange(3)[None, :] * 0.1 + op.ones((3, 3)) / 3 * y)"
    " + op.sum(op.where(x > y, 1, -1) * y * op.eye(3))",
    "joined": "op.sum(op.concat((y, op.full((3, 3), 0.1))) @ x * 0.3)",
    "outer": "op.sum((x[0][:, None] - y[1][None]) ** 2) + op.sum(x - op.mean(y, axis=0)[None])",
}
OTHERS = """
CONSTANT = 1.5


def layers(p, x):
    h = x
    for k in range(len(p)):
        h = op.tanh(h @ p[k]["w"] + p[k]["b"][None, :])
    return op.mean(h * h)


def of_layers(x, y):
    p = [{"w": x, "b": x[0]}, {"w": y, "b": y[1]}]
    g = grad(layers)(p, x)
    return g[0]["w"], g[1]["b"]


def cube(x, scale: f64):
    return op.sum(x ** 3) * scale


def slope(x, scale: f64):
    return op.sum(grad(cube)(x, scale) * x)


def descend(x, y, steps: int = 5):
    w = op.zeros_like(x)
    for k in range(steps):
        loss, g = value_and_grad(lambda w: op.mean((op.tanh(x @ w) - y) ** 2))(w)
        w = w - 0.5 * g
    return w


step = value_and_grad(cube, wrt=("x", "scale"))
twice = grad(grad(cube), "scale")


def by_definition(x, scale: f64):
    value, (dx, slope) = step(x, scale)
    return op.sum(dx) + value + slope


def line(x, y):
    return op.sum(op.cumprod(x, axis=0) * y)


def back(x, y):
    return op.sum(op.cumprod(x, axis=0, exclusive=True, reverse=True) * y)


def several(x, y):
    return x * y, op.sum(x, axis=0)


def same(x, y):
    return op.sum(x * y)


def counts(x: f64[n, m], k: i32):
    return op.sum(x) * k


def sorts(x):
    return op.sum(op.median(x, axis=0))


def stores(x):
    y = op.zeros_like(x)
    y[0, 0] = op.sum(x)
    return op.sum(y)


def shows(x):
    print(op.sum(x))
    return op.sum(x)


def array(x):
    return x + 1.0
"""
TEXT = (
    "".join(f"def {name}(x, y):\n    return {body}\n\n\n" for name, body in LOSSES.items()) + OTHERS
)


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(TEXT, target="cpu")


def arrays(seed: int = 3) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.2, 1.5, (3, 3)), rng.uniform(-1.2, -0.1, (3, 3))


def differences(f: Any, inputs: list[Any], at: int, h: float = 1e-6) -> Any:
    """The gradient of a function of float64 by central differences."""
    found = np.zeros_like(inputs[at])
    for place in np.ndindex(found.shape):
        sides: list[float] = []
        for step in (h, -h):
            moved: list[Any] = [v.copy() for v in inputs]
            moved[at][place] += step
            sides.append(float(f(*moved)))
        found[place] = (sides[0] - sides[1]) / (2 * h)
    return found


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.sample(1)
def test_gradients_are_differences(module: Any, name: str) -> None:
    f = getattr(module, name)
    x, y = arrays()
    value, (dx, dy) = tessera.value_and_grad(f, wrt=("x", "y"))(x, y)
    assert isinstance(value, float)
    np.testing.assert_allclose(value, f(x, y), rtol=1e-12)
    np.testing.assert_allclose(dx, differences(f, [x, y], 0), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(dy, differences(f, [x, y], 1), rtol=1e-5, atol=1e-7)


def test_gradients_of_gradients(module: Any) -> None:
    x, _ = arrays()
    np.testing.assert_allclose(tessera.grad(module.cube)(x, 0.5), 1.5 * x**2, rtol=1e-12)
    np.testing.assert_allclose(module.slope(x, 0.5), np.sum(1.5 * x**3), rtol=1e-12)
    twice = tessera.grad(module.slope)(x, 0.5)
    np.testing.assert_allclose(twice, 4.5 * x**2, rtol=1e-12)
    by_number = tessera.grad(module.cube, wrt="scale")(x, 0.5)
    np.testing.assert_allclose(by_number, np.sum(x**3), rtol=1e-12)


def test_parameters_that_hold_several_arrays(module: Any) -> None:
    x, y = arrays()
    dw, db = module.of_layers(x, y)

    def loss(w: Any, b: Any) -> Any:
        return (numpy.tanh(numpy.tanh(x @ w + x[0]) @ y + b) ** 2).mean()

    np.testing.assert_allclose(dw, differences(loss, [x, y[1]], 0), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(db, differences(loss, [x, y[1]], 1), rtol=1e-5, atol=1e-8)


def test_a_gradient_of_a_definition_is_a_definition(module: Any) -> None:
    x, _ = arrays()
    wanted = (1.5 * x**2).sum() + 1.5 * (x**3).sum()
    np.testing.assert_allclose(module.by_definition(x, 0.5), wanted, rtol=1e-12)


def test_a_descent(module: Any) -> None:
    x, y = arrays()
    w = np.zeros((3, 3))
    for _ in range(5):
        t = np.tanh(x @ w)
        w = w - 0.5 * (x.T @ ((t - y) * (1 - t * t) * 2 / 9))
    np.testing.assert_allclose(module.descend(x, y), w, rtol=1e-10)


def test_cotangents_and_own_memory(module: Any) -> None:
    x, y = arrays()
    a, b = arrays(7)
    dx, dy = tessera.grad(module.several, wrt=["x", "y"])(x, y, cotangent=(a, b[0]))
    np.testing.assert_allclose(dx, a * y + b[0], rtol=1e-12)
    np.testing.assert_allclose(dy, a * x, rtol=1e-12)
    dx = tessera.grad(module.same)(x, y)
    assert np.array_equal(dx, y)
    assert not np.shares_memory(dx, y)


def test_floats_of_other_dtypes(module: Any) -> None:
    x, y = (v.astype(np.float32) for v in arrays())
    value, (dx, dy) = tessera.value_and_grad(module.softmax, wrt=("x", "y"))(x, y)
    assert dx.dtype == dy.dtype == np.float32
    wide = tessera.grad(module.softmax)(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(dx, wide, rtol=1e-4, atol=1e-6)
    assert isinstance(value, float)


def test_a_gradient_is_a_function(module: Any) -> None:
    gradient = tessera.grad(module.same)
    assert repr(gradient) == "<function grad(same)>"
    assert repr(tessera.value_and_grad(gradient)) == "<function value_and_grad(grad(same))>"


REFUSED = {
    "sorts": ("T0760", "`op.median`"),
    "stores": ("T0760", "a store into an array"),
    "shows": ("T0760", "showing what the function computes"),
    "array": ("T0761", "`array` gives an array f64[3, 3], and a gradient is one of a number"),
}


@pytest.mark.parametrize("name", ["line", "back"])
@pytest.mark.sample(1)
def test_running_products_of_zeros(module: Any, name: str) -> None:
    """The derivative is there although no quotient is: of lines with one 0, and with two."""
    x, y = arrays()
    x[1, 1] = x[0, 2] = x[2, 2] = 0.0
    f = getattr(module, name)
    found = tessera.grad(f)(x, y)
    np.testing.assert_allclose(found, differences(f, [x, y], 0), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_gradient(module: Any, name: str) -> None:
    code, says = REFUSED[name]
    with pytest.raises(TesseraError) as error:
        tessera.grad(getattr(module, name))(arrays()[0])
    (found,) = error.value.diagnostics
    assert found.code == code
    assert says in found.message
    assert found.span is not None


def test_calls_that_are_refused(module: Any) -> None:
    x, y = arrays()
    with pytest.raises(TesseraError, match="has no parameter `z`"):
        tessera.grad(module.same, wrt="z")(x, y)
    with pytest.raises(TesseraError, match="names parameters"):
        tessera.grad(module.same, wrt=3.0)(x, y)  # type: ignore[arg-type]
    with pytest.raises(TesseraError, match="has no parameter number 2"):
        tessera.grad(module.same, wrt=2)(x, y)
    with pytest.raises(TesseraError, match="takes a plain function of a module"):
        tessera.grad(np.sum)
    with pytest.raises(TesseraError, match=r"`cotangent=` is f64\[3, 3\], and `same` gives f64"):
        tessera.grad(module.same)(x, y, cotangent=x)
    with pytest.raises(TesseraError, match="`k` holds no floats"):
        tessera.grad(module.counts, wrt="k")(x, 3)


def test_parameters_by_number(module: Any) -> None:
    x, y = arrays()
    assert np.array_equal(tessera.grad(module.same, wrt=1)(x, y), x)
    both = tessera.grad(module.same, wrt=(-1, "x"))(x, y)
    assert np.array_equal(both, (x, y))
    text = (
        "def f(x, y):\n    return op.sum(x * y)\n\n\ng = grad(f, wrt=1)\nh = grad(f, wrt=(0, 1))\n"
    )
    m = tessera.compile(text, target="cpu")
    assert np.array_equal(m.g(x, y), x)
    assert np.array_equal(m.h(x, y), (y, x))


SIZES = {
    "op.tanh(x @ y) + op.sum(x, axis=1)[:, None] @ z[None, :]": (
        "axis 1 of the first operand has size 4 from axis 1 of `y`, through `matmul`, `tanh`",
        "axis 1 of the second operand has size 5 from axis 0 of `z`, through `matmul`",
    ),
    "op.exp(x.T) @ op.concat((y, y), axis=0)": (
        "axis 1 of the first operand has size 2 from axis 0 of `x`, through `transpose`, `exp`",
        "axis 0 of the second operand has size 6 by `concat`",
    ),
    "x @ z": (),
}


@pytest.mark.parametrize("body", SIZES)
def test_a_size_says_where_it_comes_from(body: str) -> None:
    m = tessera.compile(f"def f(x, y, z):\n    return op.sum({body})\n", target="cpu")
    shapes = (2, 3), (3, 4), (5,)
    with pytest.raises(TesseraError) as error:
        tessera.grad(m.f)(*(np.ones(s) for s in shapes))
    (found,) = error.value.diagnostics
    assert found.code == "T0834"
    assert found.notes == SIZES[body]


CHECKED = """
def loss(w, x):
    return op.sum(op.tanh(x @ w))


w = op.zeros((4, 2))
x = op.ones((3, 5))
g = grad(loss)(w, x)
"""


def test_a_check_finds_shapes_in_gradients() -> None:
    with pytest.raises(TesseraError) as error:
        tessera.compile(CHECKED.replace("x @ w", "x @ w + nothing"), target="cpu").loss(1, 2)
    assert "nothing" in str(error.value)
    from tessera_lang.driver.session import Session

    session = Session(overlay={"a.tessera": CHECKED})
    (found,) = session.check("a.tessera")
    assert found.code == "T0834"
    assert "axis 1 of the left has size 5, axis 0 of the right 4" in found.message
    right = Session(overlay={"a.tessera": CHECKED.replace("(3, 5)", "(3, 4)")})
    assert not right.check("a.tessera")
