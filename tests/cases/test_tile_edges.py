"""Tile kernels on what lies at the edge: arrays of rank 0, no elements, one element.

What a tester tried who knew the faults of other tools; each runs on both targets, and as the code
of a GPU on the CPU.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", "sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)]
X = np.arange(3, dtype=np.float32)
THREE = np.array(3, np.float32)


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "sm_90a":
        return str(request.param)
    monkeypatch.setenv("TESSERA_ARCH_AS", "sm_90a")
    return "cpu"


def kernel(target: str, body: str, parameters: str = "x, y") -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return tessera.compile(f"@op.kernel\ndef f({parameters}):\n{lines}", target=target).f


# --- an array of rank 0 is a number ------------------------------------------------------------

RANK_0: dict[str, Any] = {
    "return x * y": 3 * X, "return y + 1.0": 4, "return op.sum(x) + y": 6, "return op.sum(y)": 3,
    "return op.max(x) * y - y": 3, "return -y": -3, "return y.to(f64)": 3,
    "return op.where(y > 2.0, x, 0.0)": X, "a = y * 2.0\nreturn x + a": X + 6,
    "return x[0] + y": 3, "return y[None] + x": X + 3, "return op.full((3,), y)": [3, 3, 3],
    "return op.arange(3, dtype=f32) * y": 3 * X, "return y / 2.0 if y > 1.0 else y": 1.5,
    "y2 = op.empty_like(x)\ny2[:] = y\nreturn y2": [3, 3, 3],
    "z = op.empty_like(x)\nfor i in op.tile_range(x.shape[0], step=2):\n"
    "    z[i:i+2] = x[i:i+2] * y\nreturn z": 3 * X,
}  # fmt: skip


@pytest.mark.sample(24)
@pytest.mark.parametrize("body", RANK_0)
def test_an_array_of_rank_0_is_its_element(target: str, body: str) -> None:
    """As `op.sum(x)` gives one, another kernel takes one."""
    found = np.asarray(kernel(target, body)(X, THREE))
    right = np.asarray(RANK_0[body])
    assert found.shape == right.shape and np.array_equal(found, right)


def test_a_result_of_rank_0_goes_on(target: str) -> None:
    m: Any = tessera.compile(
        "@op.kernel\ndef total(x): return op.sum(x)\n"
        "@op.kernel\ndef scaled(a, b, s): return (a @ b) * s\n",
        target=target,
    )
    a = np.ones((5, 5), np.float32)
    assert np.array_equal(m.scaled(a, a, m.total(X)), np.full((5, 5), 15))


@pytest.mark.parametrize("body", [
    "return x[0:y]", "return x[y]", "y[:] = 1.0", "return y.T", "return x @ y",
    "for k in range(y):\n    x[:] = x * 2.0",
])  # fmt: skip
def test_what_an_array_of_rank_0_is_not(body: str) -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        kernel("cpu", body)(X.copy(), np.array(2, np.int64))
    assert not [d for d in caught.value.diagnostics if d.code.startswith("T09") or not d.span]


def test_a_narrow_one_keeps_its_dtype(target: str) -> None:
    x = X.astype(ml_dtypes.bfloat16)
    found = kernel(target, "return x * y")(x, np.array(1.5, ml_dtypes.bfloat16))
    assert found.dtype == x.dtype and found.astype(np.float32).tolist() == [0, 1.5, 3]


# --- axes ---------------------------------------------------------------------------------------


def test_no_axis_is_all_of_them(target: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in ("sum", "max", "min", "mean"):
        found = kernel(target, f"return op.{name}(x, axis=None)", "x")(x)
        assert found == getattr(np, name)(x)


@pytest.mark.parametrize(("axis", "said"), [
    ("(0, 2)", "no axis 2"), ("True", "along one axis"), ('"0"', "along one axis"),
    ("1.0", "along one axis"), ("2", "no axis 2"), ("-3", "no axis -3"), ("1 << 40", "no axis"),
])  # fmt: skip
def test_an_axis_that_is_none_is_named(axis: str, said: str) -> None:
    with pytest.raises(tessera.TesseraError, match=said):
        kernel("cpu", f"return op.max(x, axis={axis})", "x")(np.ones((2, 3), np.float32))


@pytest.mark.sample(1)
def test_a_product_of_two_ranks_is_that_of_numpy(target: str) -> None:
    x, y = np.ones((2, 3, 4), np.float32), np.ones((4, 3), np.float32)
    product = kernel(target, "return x @ y")
    for a, b in ((x, y), (y, x)):
        assert np.array_equal(np.asarray(product(a, b)), a @ b)
    for a, b in ((x, y.T), (y.T, x)):
        with pytest.raises(tessera.TesseraError, match="T0838"):
            product(a, b)
    assert np.array_equal(np.asarray(kernel(target, "return x @ y[None, :, :]")(x, y)), x @ y)


ONES = np.array([1, 3, 2], np.float32)
ONE_ELEMENT: dict[str, Any] = {
    "return x[0] + x": 1 + ONES,
    "z = op.full((1,), op.max(x), f32)\nreturn z + x": 3 + ONES,
    "return op.sum(x[0:1]) + x": 1 + ONES,
    "return x[0:1][:, None] * x[None, :]": ONES[None],
    "t = op.zeros((1, 1), f32)\nreturn t + x[:, None] * x[None, :]": ONES[:, None] * ONES,
}  # fmt: skip


@pytest.mark.parametrize("body", ONE_ELEMENT)
def test_a_tile_of_one_element_is_stretched(target: str, body: str) -> None:
    """Of rank 1 it became a number on the way, which no code of a GPU was made for."""
    assert np.array_equal(kernel(target, body, "x")(ONES), ONE_ELEMENT[body])


@pytest.mark.parametrize("body", ["return x[0:1] + x", "return (x[0:1] > 0.0) & (x > 1.0)"])
def test_an_axis_that_is_cut_down_to_one_is_too(target: str, body: str) -> None:
    """`n == min(n, 1)` had no end for what looks for equal sizes."""
    f = kernel(target, body, "x")
    for n in (1, 3):
        x = ONES[:n]
        found = np.asarray(f(x))
        assert np.array_equal(found, x[0:1] + x if "+" in body else (x[0:1] > 0) & (x > 1))


# --- new axes one after the other -----------------------------------------------------------------

R = np.random.default_rng(3)
V, M, W = (R.integers(-3, 4, shape).astype(np.float32) for shape in ((17,), (17, 5), (33, 17, 5)))
NEW_AXES: dict[str, Any] = {
    "return v[None, :][None, :, :] + m[:, :, None]": V[None, None] + M[:, :, None],
    "return v[None, None, :] + m[:, :, None]": V[None, None] + M[:, :, None],
    "return v[:, None][None, :, :] * w": V[:, None] * W,
    "return op.sum(m, axis=1)[None, :][None, :, :] + op.min(abs(w), axis=1)[:, :, None]":
        M.sum(1)[None, None] + abs(W).min(1)[:, :, None],
    "return op.min(m[:, :, None] - v[:, None][:, :, None], axis=2).T": (M - V[:, None]).T,
    "return op.max(v[None, :][:, :, None] - w, axis=0)": (V[None, :, None] - W).max(0),
}  # fmt: skip


@pytest.mark.parametrize("body", NEW_AXES)
@pytest.mark.sample(4)
def test_new_axes_of_new_axes(target: str, body: str) -> None:
    """A tile of one element along an axis that is stretched was given the layout of the whole."""
    found = kernel(target, body, "v, m, w")(V, M, W)
    assert np.array_equal(found, NEW_AXES[body])


# --- no place among no elements ----------------------------------------------------------------

PLACES: dict[str, tuple[str, str, Any]] = {
    # the body, what refuses no elements (or that nothing does), and what then is written
    "whole": ("out[0] = i32(op.argmax(x))", "requires `n >= 1`", 9),
    "each row": (
        "for r in op.tile_range(m, step=4):\n"
        "    out[r:r+4] = op.argmin(y[r:r+4, :], axis=1).to(i32)",
        "requires `n >= 1`", 9,
    ),
    "in a branch": ("if n > 0:\n    out[0] = i32(op.argmax(x[:]))\nelse:\n    out[0] = 5", "", 5),
    "behind an exit": ("if n == 0:\n    out[0] = 6\n    return\nout[0] = i32(op.argmin(x))", "", 6),
    "a slice": ("out[0] = i32(op.argmax(x[max(k, 0):k+3]))", "`op.argmax` of no elements", 0),
    "called": ("out[0] = i32(place(x))", "`op.argmax` of no elements", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.sample(3)
def test_there_is_no_first_of_no_elements(target: str, name: str) -> None:
    """Refused by the launch where it knows, else a fault of the run and 0; never a silent 0."""
    body, said, wanted = PLACES[name]
    head = "def place(x):\n    return op.argmax(x)\n\n@op.kernel\n"
    head += "def f(x: f32[n], y: f32[m, n], out: mut i32[m], k: i32):\n"
    text = head + "".join(f"    {line}\n" for line in body.splitlines())
    f = tessera.compile(text, target=target).f
    for n in (5, 0):
        out = np.full(1, 9, np.int32)
        found = ""
        try:
            f(np.zeros(n, np.float32), np.zeros((1, n), np.float32), out, 0)
            tessera.synchronize()
        except tessera.TesseraError as fault:
            found = str(fault)
        assert found == "" if n or not said else said in found
        if target != "cuda" or not said:
            assert out[0] == (0 if n else wanted)


MADE = {
    "x + op.zeros((300,), f32)": 300, "op.arange(300) * 1.0 + x": 300,
    "op.where(x > 0.0, x, op.full((300,), 2.0, f32))": 300, "op.ones(7) * x": 7,
    "op.sum(x * op.linspace(0.0, 1.0, 7))": 7,
}  # fmt: skip


@pytest.mark.parametrize("expression", MADE)
def test_a_whole_value_has_the_size_of_what_it_meets(expression: str) -> None:
    """As in NumPy: a tile of 300 elements is not cut to an array of 4, nor continued to 500."""
    f = tessera.compile(f"@op.kernel\ndef f(x: f32[n]):\n    return {expression}\n").f
    good = MADE[expression]
    assert np.isfinite(np.asarray(f(np.ones(good, np.float32)))).all()
    for size in (good - 1, good + 1, 4, 500):
        with pytest.raises(tessera.TesseraError, match="T0838"):
            f(np.ones(size, np.float32))
