"""``b ** t`` of numbers: products for whole literal exponents, else a function, as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.cases.test_in_place import by_numpy
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import GPU, agree

R = np.random.default_rng(3)
TARGETS = ["cpu", "sm_90a", "checked", GPU]
V = R.uniform(0.5, 2.0, 7)
W = V.astype(np.float32)
NUMBERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "0.9 ** t": ("t: i32", (9,)),
    "1.0 - 0.999 ** t": ("t: i64", (1000,)),
    "0.5 ** t + 2 ** u": ("t: i32, u: f64", (-3, 2.5)),
    "b ** t": ("b: f64, t: i32", (1.25, -7)),
    "b ** t ** u": ("b: f64, t: f64, u: i32", (1.25, 1.5, 3)),
    "b ** u": ("b: f64, u: f64", (1.25, 0.3)),
    "b ** -1 + b ** 0.5": ("b: f64", (1.7,)),
    "b ** 17 + b ** 64 + b ** 65": ("b: f64", (1.01,)),
    "-b ** 2 + b ** t": ("b: f64, t: i32", (-1.5, 3)),
    "(t + 0.5) ** t": ("t: f64", (2.0,)),
    "v[2] ** t + op.sum(v) ** t": ("t: i32", (3,)),
    "0.5 ** v.shape[0]": ("", ()),
    "(v[0] + 1.0) ** 2.0": ("", ()),
}
PROGRAMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    **{
        f"{e} {d}": (
            f"def f(v: {d}[n]{', ' if sig else ''}{sig.replace('f64', d)}):\n"
            f"    return v * ({e})\n",
            (x, *rest),
        )
        for e, (sig, rest) in NUMBERS.items() for d, x in (("f64", V), ("f32", W))
    },
    "a counter": (
        "def f(v: f64[n], k: i32):\n    s = 0.0\n    for i in range(k):\n"
        "        s += 0.5 ** i * v[i] + v[i] ** i\n    return s\n", (V, 6),
    ),
    "its own name": (
        "def f(v: f64[n], t: i32):\n    b = 0.9\n    b **= t\n    b **= 2\n    return v * b\n",
        (V, 5),
    ),
    "a running count": (
        "def f(v: f64[n]):\n    t = 0\n    s = v * 0.0\n    while t < 4:\n        t += 1\n"
        "        s += v / (1.0 - 0.9 ** t)\n    return s\n", (V,),
    ),
    "moments": (
        "def f(p: mut f32[n], m1: mut f32[n], v: mut f32[n], g: f32[n], t: i32):\n"
        "    m1 *= 0.9\n    m1 += 0.1 * g\n    v *= 0.999\n    v += 0.001 * g * g\n"
        "    mhat = m1 / (1 - 0.9 ** t)\n    vhat = v / (1 - 0.999 ** t)\n"
        "    p -= 0.01 * mhat / (op.sqrt(vhat) + 1e-8)\n", (W, W * 0, W * 0, W[::-1].copy(), 4),
    ),
    "in place": (
        "def f(v: mut f64[n], k: i32):\n    v **= 2\n    for i in range(k):\n        v **= 0.5\n"
        "        v[0] **= k\n    v[1:] **= 3\n", (V, 2),
    ),
    "a tile's": (
        "def f(v: f64[n]):\n    y = v * 2\n    y **= 3\n    y **= 0.25\n    return y\n", (V,)
    ),
    "a tile's 20": ("def f(v: f64[n]):\n    return v ** 20 + v ** 64\n", (V,)),
    "products": ("def f(q: mut f64[n, n]):\n    q @= q.T\n    y = q + 1\n    y @= q\n    q += y\n",
                 (R.normal(size=(7, 7)),)),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(1)
def test_like_numpy(name: str, target: str) -> None:
    text, given = PROGRAMS[name]
    ours, theirs = ([x.copy() if isinstance(x, np.ndarray) else x for x in given] for _ in "ab")
    want = by_numpy(f"@op.kernel\n{text}", tuple(theirs))
    got = module_for(target, f"@op.kernel\n{text}").f(*ours)
    near = 2e-5 if any(getattr(x, "dtype", None) == np.float32 for x in given) else 1e-12
    if want is not None:
        agree(got, np.asarray(want).astype(np.asarray(got).dtype), near, near)
    for a, b in zip(ours, theirs, strict=True):
        agree(a, b, near, near)


def test_the_sign_of_a_large_odd_exponent() -> None:
    """It is not rounded to an even one, as f32 would round it."""
    text = "@op.kernel\ndef f(b: f32, t: i32):\n    return b ** t\n"
    f = tessera.compile(text, target="cpu").f
    assert f(-1.0, 16777217) == -1.0
    assert f(-1.0, 16777218) == 1.0


def test_in_lanes() -> None:
    text = (
        "@kernel tile[(32,)]\ndef f(x: f32[n], t: i32, out: mut f32[n]):\n"
        "    i = tile_linear_id()\n    if i < n:\n"
        "        out[i] = x[i] ** t + 0.5 ** i + x[i] ** -0.5\n"
    )
    for target in ("cpu", "sm_90a"):
        out = np.zeros_like(W)
        module_for(target, text).f[1](W, 3, out)
        agree(out, W**3 + np.float32(0.5) ** np.arange(7, dtype=np.float32) + W ** np.float32(-0.5))


HELPS = {
    "t: i32": [
        ("2 ** t", "`1 << t` is the same"), ("3 ** t", "for _ in range(t): p *= 3"),
        ("t ** t", "`f64(t) ** t`"), ("t ** -1", "from 0 to 64"),
        ("3 ** (t + 1)", "or as a float, which is rounded: `3.0 ** (t + 1)`"),
    ],
    "t: i32[n]": [("2 ** t", "`1 << t` is the same"), ("t ** t", "op.where(i < t, p * t, p)")],
}  # fmt: skip


CASES = [(h, *x) for h, found in HELPS.items() for x in found]


@pytest.mark.parametrize(("head", "e", "shown"), CASES)
@pytest.mark.sample(5)
def test_integer_bases(head: str, e: str, shown: str) -> None:
    text = f"@op.kernel\ndef f(x: f64[n], {head}):\n    return x * ({e})\n"
    t = np.arange(7, dtype=np.int32) if "[" in head else 3
    with pytest.raises(tessera.TesseraError) as raised:
        tessera.compile(text, target="cpu").f(V, t)
    assert "T0209" in str(raised.value)
    assert shown in str(raised.value)


EDGES = np.array([-np.inf, -0.0, 0.0, np.inf, -1.0, 4.0, np.nan, 2.0])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("exponent", ["0.5", "-0.5", "1.5", "-1.0", "0.25", "3", "-2"])
@pytest.mark.sample(1)
def test_powers_at_the_edges(exponent: str, target: str) -> None:
    """Of arrays, in kernels and in the host program: `** 0.5` is the root, of every dtype."""
    heads = {"": "def f(x):\n", "@op.kernel\n": "def f(x):\n"}
    for dtype in (np.float32, np.float64, np.float16):
        x = EDGES.astype(dtype)
        with np.errstate(all="ignore"):
            want = (x ** float(exponent)).astype(np.float64)
        for kind, head in heads.items():
            if kind or target == "cpu":
                found = module_for(target, f"{kind}{head}    return x ** {exponent}\n").f(x)
                assert found.dtype == dtype
                np.testing.assert_allclose(found.astype(np.float64), want, 1e-3)
                assert (np.signbit(found) == np.signbit(want))[~np.isnan(want)].all()


def test_messages_name_what_is_written() -> None:
    for text, name in (("op.hypot(x, y)", "op.hypot"), ("op.atan2(y, x)", "op.atan2"),
                       ("op.fabs(i)", "op.fabs"), ("op.copysign(i, i)", "op.copysign"),
                       ("op.rint(i)", "op.rint")):  # fmt: skip
        head = "@op.kernel\ndef f(x: f32[n], y: f32[n, m], i: i32[n]):\n"
        source = f"{head}    z = {text}\n    return z\n"
        with_names = list(Session(overlay={"k.tessera": source}).check("k.tessera", ()))
        if name not in ("op.fabs", "op.rint"):  # of integers too
            assert any(f"`{name}`" in d.message for d in with_names), text
        assert not any("`math." in d.message for d in with_names), text
