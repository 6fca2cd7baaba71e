"""``x[rows, columns]`` with several tiles of places: the elements that NumPy takes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = {2: (5, 7), 3: (4, 3, 6), 4: (3, 2, 4, 5)}


def loaded(body: str, parameters: str, target: str) -> Any:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return tessera.compile(f"@op.kernel\ndef f({parameters}):\n{lines}", target=target).f


def cases() -> list[tuple[int, str]]:
    """Each rank, with a tile (``t``) or a number (``n``) for each of the first two axes or more."""
    return [
        (rank, "".join(kinds))
        for rank in SHAPES
        for count in range(2, rank + 1)
        for kinds in itertools.product("tn", repeat=count)
        if kinds.count("t") >= 2
    ]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize(("rank", "kinds"), cases())
@pytest.mark.sample(2)
def test_of_an_array(rank: int, kinds: str, dtype: str, target: str) -> None:
    rng = np.random.default_rng(rank)
    shape = SHAPES[rank]
    x = rng.integers(-100, 100, shape).astype(dtype)
    names = [f"p{k}" for k in range(len(kinds))]
    text = ", ".join(n if k == "t" else "1" for n, k in zip(names, kinds, strict=True))
    tiles = [n for n, k in zip(names, kinds, strict=True) if k == "t"]
    f = loaded(f"return x[{text}]", ", ".join(["x", *tiles]), target)
    for count, kind in ((9, np.int64), (1, np.int32), (70, np.uint8)):
        places = {n: rng.integers(0, shape[int(n[1:])], count).astype(kind) for n in tiles}
        index = tuple(places.get(n, 1) for n in names)
        np.testing.assert_array_equal(f(x, *places.values()), x[index])


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_outside_is_zero(target: str) -> None:
    """Along any of the axes, below or above: the element of another row is not read."""
    x = np.arange(1.0, 36.0, dtype=np.float32).reshape(5, 7)
    rows = np.array([0, -1, 4, 5, 2, 2, 0])
    columns = np.array([0, 3, -1, 0, 7, 6, -1])
    good = (rows >= 0) & (rows < 5) & (columns >= 0) & (columns < 7)
    found = loaded("return x[r, c]", "x, r, c", target)(x, rows, columns)
    np.testing.assert_array_equal(found, np.where(good, x[rows % 5, columns % 7], 0))


TAKEN = {
    "of all rows": ("return x[op.arange(x.shape[0]), l]", lambda x, q: x[np.arange(len(x)), q]),
    "of a computed tile": (
        "t = op.exp(x)\nreturn t[op.arange(x.shape[0]), l]",
        lambda x, q: np.exp(x)[np.arange(len(x)), q],
    ),
    "of an expression": (
        "return (x * 2.0 - op.max(x, axis=1)[:, None])[op.arange(x.shape[0]), l]",
        lambda x, q: (x * 2 - x.max(axis=1)[:, None])[np.arange(len(x)), q],
    ),
    "a loss": (
        "p = op.log(op.softmax(x, axis=1))\nreturn -op.mean(p[op.arange(x.shape[0]), l])",
        lambda x, q: -np.log(np.exp(x) / np.exp(x).sum(1, keepdims=True))[
            np.arange(len(x)), q
        ].mean(),
    ),
    "places that are computed": (
        "return x[op.arange(x.shape[0]), (l + 1) % x.shape[1]]",
        lambda x, q: x[np.arange(len(x)), (q + 1) % x.shape[1]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.sample(1)
def test_one_of_each_row(name: str, target: str) -> None:
    body, wanted = TAKEN[name]
    f = loaded(body, "x: f32[m, n], l: i64[m]", target)
    for m, n in ((1, 1), (6, 10), (33, 64), (200, 3)):
        x = np.random.default_rng(m).normal(size=(m, n)).astype(np.float32)
        label = np.random.default_rng(n).integers(0, n, m)
        expected = wanted(x.astype(np.float64), label)
        np.testing.assert_allclose(np.asarray(f(x, label)), expected, rtol=1e-5, atol=1e-5)


def test_infinities_of_other_columns_stay_there() -> None:
    x = np.array([[1.0, np.inf], [np.nan, 2.0], [-np.inf, 3.0]], np.float32)
    label = np.array([0, 1, 1])
    for body in ("return x[op.arange(3), l]", "t = x + 0.0\nreturn t[op.arange(3), l]"):
        found = loaded(body, "x: f32[3, n], l: i64[3]", "cpu")(x, label)
        np.testing.assert_array_equal(found, [1, 2, 3])


WRONG = {
    "a slice between": ("return x[l, :, l]", "x: f32[a, b, c], l: i64[n]"),
    "floats": ("return x[l, l]", "x: f32[a, b], l: f32[n]"),
    "tiles of two axes in a loop": (
        "y = op.zeros((n, n), f32)\nfor i in op.tile_range(n, step=2):\n"
        "    y[i:i+2, :] = x[l[i:i+2, :], l[i:i+2, :]]\nreturn y",
        "x: f32[a, b], l: i64[n, n]",
    ),
    "other ranks": ("return x[l[:, None], l]", "x: f32[a, b], l: i64[n]"),
    "a store": ("x[l, l] = 0.0", "x: mut f32[a, b], l: i64[n]"),
    "other rows of a computed tile": ("t = x * 2.0\nreturn t[l, l]", "x: f32[a, b], l: i64[n]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str) -> None:
    from tessera_lang.driver.session import Session

    body, parameters = WRONG[name]
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"@op.kernel\ndef f({parameters}):\n{lines}"
    (found,) = Session(overlay={"k.tessera": text}).check("k.tessera")
    assert found.code in ("T0215", "T0604") and found.span is not None
    assert "&" not in found.message, "the operators of what it stands for are nobody's"
    assert found.notes or found.helps
