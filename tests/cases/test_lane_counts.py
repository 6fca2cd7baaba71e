"""Counts in lane kernels: ids, sizes, what loops count and places meet floats, and go into narrower
integers, as they do in tile kernels; what is computed of data does not."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

N = 37
TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
HEAD = """
LIMIT = 9

def ratio(i, n):
    return (i + 1) / n

@kernel tile[(32,)] grid[(ceil_div(n, 32),)]
def k(x: {float}[n], c: i32[n], out: mut {out}[n]):
    i = grid_tile_linear_id()
    if i < n:
"""
FLOATS: dict[str, str] = {
    "out[i] = i / n": "i / n",
    "out[i] = i": "i * 1.0",
    "out[i] = x[i] - i": "x - i",
    "out[i] = 1.0 / (i + 1) + x[i]": "1.0 / (i + 1) + x",
    "out[i] = 2.0 * i / n - 1.0": "2.0 * i / n - 1.0",
    "out[i] = math.sqrt(i) * x[i]": "np.sqrt(i) * x",
    "out[i] = math.exp(-i) + x[i]": "np.exp(-i.astype(float)) + x",
    "out[i] = x[i] + math.atan2(i, x[i])": "x + np.arctan2(i, x)",
    "out[i] = max(x[i] * 9.0, i % 7)": "np.maximum(x * 9.0, i % 7)",
    "out[i] = i if x[i] > 0.0 else x[i]": "np.where(x > 0, i, x)",
    "out[i] = 1.0 if 0 <= i % 5 <= x[i] * 3.0 else 0.0": "((0 <= i % 5) & (i % 5 <= x * 3)) * 1.0",
    "out[i] = 1.0 if -1.0 <= x[i] <= n - 36 else 0.0": "((-1 <= x) & (x <= 1)) * 1.0",
    "s = 0.0\nfor j in range(i): s += j * x[j]\nout[i] = s": "np.cumsum(i * x) - i * x",
    "s = 0.0\nfor j in range(n): s += (j - i) / (1 + j)\nout[i] = s":
        "((i - i[:, None]) / (1 + i)).sum(1)",
    "count = LIMIT\nfor j in range(LIMIT):\n    if j * 0.25 > x[i]:\n        count = j\n"
    "        break\nout[i] = count * 0.5 - x[i]": "np.clip(np.floor(x * 4) + 1, 0, 9) * 0.5 - x",
    "out[i] = x[i] - i32(math.floor(x[i]))": "x - np.floor(x)",
    "out[i] = op.argmax(x) * 0.5 + x[i]": "x.argmax() * 0.5 + x",
    "out[i] = x[i] ** (i % 3)": "x ** (i % 3)",
    "out[i] = x[i]\nout[i] += i": "x + i",
    "out[i] = ratio({cast}(i), n) * x[i]": "(i + 1) / N * x",
}  # fmt: skip
INTEGERS: dict[str, str] = {
    "out[i] = i": "i",
    "out[i] = n - i": "N - i",
    "out[i] = c[i]\nout[i] += i": "c + i",
    "out[i] = c[i]\nout[i] -= i * 2": "c - 2 * i",
    "count = LIMIT\nfor j in range(LIMIT):\n    if j > x[i]:\n        count = j\n        break\n"
    "out[i] = count":
        "np.clip(np.floor(x) + 1, 0, 9)",
    "best = c[i]\nbest = i\nout[i] = best": "i",
    "out[i] = op.argmin(x)": "x.argmin()",
    "out[i] = i if x[i] > 0.0 else -1": "np.where(x > 0, i, -1)",
}  # fmt: skip
# A variable that begins as i32 takes counts, and is no i64 then.
INTO_INTEGERS = [(b, t) for b in INTEGERS for t in ("i32", "i64") if t == "i32" or "best" not in b]
REFUSED: dict[str, str] = {
    "out[i] = x[i] + c[i]": "T0201", "out[i] = (i + c[i]) / n": "T0204",
    "out[i] = (i + c[i]) * 0.5": "T0202|T0201",
    "s = i\nif x[i] > 0.0: s = i + c[i]\nout[i] = s * x[i]": "T0201",
    "for j in range(c[i]): out[i] = j * x[i]": "T0201",
    "out[i] = i / n\nout[i] = ratio(i, n) * x[i]": "",
}  # fmt: skip


def _source(body: str, dtype: str, out: str) -> str:
    lines = body.replace("{cast}", dtype).split("\n")
    return HEAD.replace("{float}", dtype).replace("{out}", out) + "".join(
        f"        {line}\n" for line in lines)  # fmt: skip


def _given(dtype: str) -> tuple[Any, Any]:
    r = np.random.default_rng(0)
    return r.normal(size=N).astype(dtype), r.integers(-9, 9, N).astype(np.int32)


def _run(source: str, target: Any, dtype: str, out: str) -> tuple[Any, dict[str, Any]]:
    x, c = _given(dtype)
    names = {"f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64"}
    made = np.zeros(N, names[out])
    tessera.compile(source, target=target).k(x, c, made)
    return made, {"x": x.astype(np.float64), "c": c, "i": np.arange(N), "N": N, "n": N, "np": np}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("body", FLOATS)
@pytest.mark.sample(12)
def test_beside_floats(body: str, dtype: str, target: str) -> None:
    kind = {"float32": "f32", "float64": "f64"}[dtype]
    got, names = _run(_source(body, kind, kind), target, dtype, kind)
    tolerance = 3e-6 if kind == "f32" else 1e-13
    with np.errstate(all="ignore"):
        want = np.broadcast_to(eval(FLOATS[body], names), (N,))
    np.testing.assert_allclose(got, want, tolerance, 10 * tolerance)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("body", "out"), INTO_INTEGERS)
def test_into_integers(body: str, out: str, target: str) -> None:
    got, names = _run(_source(body, "f64", out), target, "float64", out)
    np.testing.assert_array_equal(got, np.broadcast_to(eval(INTEGERS[body], names), (N,)))


@pytest.mark.parametrize("body", REFUSED)
def test_data_is_no_count(body: str) -> None:
    if not REFUSED[body]:
        _run(_source(body, "f32", "f32"), "cpu", "float32", "f32")
        return
    with pytest.raises(tessera.TesseraError, match=REFUSED[body]):
        _run(_source(body, "f32", "f32"), "cpu", "float32", "f32")


def test_a_function_that_made_f32_of_counts_is_told_what_to_give() -> None:
    with pytest.raises(tessera.TesseraError, match=r"give `ratio` a number of f64.*`f64\(i\)`"):
        _run(_source("out[i] = ratio(i, n) * x[i]", "f64", "f64"), "cpu", "float64", "f64")


@pytest.mark.parametrize("target", TARGETS)
def test_what_does_not_fit_is_a_fault(target: str) -> None:
    source = _source("out[i] = (i + 1) * 1000000000", "f32", "i32")
    with pytest.raises(tessera.TesseraError, match=r"T0845[\s\S]*does not fit `i32`"):
        _run(source, target, "float32", "i32")
    with pytest.raises(tessera.TesseraError, match="T0208"):
        tessera.compile(_source("out[i] = i", "f32", "u8"), target="cpu")


def _expression(r: random.Random, depth: int) -> str:
    """Of counts, floats of an array and literals, with a float in it somewhere."""
    if depth == 0:
        return r.choice(["i", "n", "x[i]", "2.5", "j", "3", "x[j]", "i % 4", "(j // 2)"])
    a, b = _expression(r, depth - 1), _expression(r, r.randrange(depth))
    return r.choice([f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / (1.0 + abs({b})))",
                     f"min({a}, {b})", f"max({a}, {b})", f"math.sqrt(abs({a}))",
                     f"({a} if x[i] > 0.25 else {b})"])  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int, target: str) -> None:
    r = random.Random(seed)
    texts = [f"{_expression(r, 3)} * 0.5 + x[i] * 0.0" for _ in range(5)]
    total = " + ".join(f"({t}) / {p + 1}" for p, t in enumerate(texts))
    body = f"s = 0.0\nfor j in range(i % 6 + 1):\n    s += {total}\nout[i] = s"
    got, names = _run(_source(body, "f64", "f64"), target, "float64", "f64")
    want: list[float] = []
    for i in range(N):
        scope: dict[str, Any] = {"x": names["x"], "n": N, "i": i, "math": np, "abs": abs}
        terms: list[float] = [eval(total, {**scope, "j": j}) for j in range(i % 6 + 1)]
        want.append(sum(terms))
    np.testing.assert_allclose(got, want, 1e-12, 1e-9)
