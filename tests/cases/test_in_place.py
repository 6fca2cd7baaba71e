"""``C -= e`` of an array: in place, as in NumPy, which runs the same text here."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import GPU, agree

R = np.random.default_rng(5)
TARGETS = ["cpu", "sm_90a", "checked", GPU]
SIZES = {"m": 5, "n": 7}
A, B = R.normal(size=(2, 5, 7))
V = R.normal(size=7)
Q = R.integers(1, 9, 7).astype(np.int32)
OPERATORS = ["+", "-", "*", "/"]
BITS = ["+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>"]
MADE = "def f(A: f64[m, n], B: f64[m, n]):\n    C = op.empty((m, n), f64)\n    C[:, :] = A\n"
PROGRAMS: dict[str, tuple[str, tuple[Any, ...]]] = {
    **{
        f"made {o}=": (f"{MADE}    C {o}= B\n    return C + 1.0, op.sum(C)\n", (A, B))
        for o in OPERATORS
    },
    **{
        f"returned {o}=": (f"{MADE}    C {o}= 2.0 * B\n    return C\n", (A, B)) for o in OPERATORS
    },
    **{
        f"mut {o}=": (f"def f(p: mut f64[m, n], B: f64[m, n]):\n    p {o}= B\n", (A, B))
        for o in OPERATORS
    },
    **{
        f"integers {o}=": (f"def f(q: mut i32[n], r: i32[n]):\n    q {o}= r\n", (Q, Q[::-1].copy()))
        for o in BITS
    },
    "a number": ("def f(p: mut f64[m, n], s: f64):\n    p *= s\n    p += 1.0\n", (A, 0.5)),
    "its own elements": ("def f(v: mut f64[n]):\n    v -= v[::-1]\n", (V,)),
    "transposed": (
        "def f(v: mut f64[m, m]):\n    v += v.T\n    v *= v.T\n", (A[:, :5].copy(),)
    ),
    "its sum": ("def f(v: mut f64[n]):\n    v /= op.sum(v)\n", (V,)),
    "a loop that reads it": (
        f"{MADE}    for i in range(3):\n        C -= 0.1 * op.sum(C) * B\n        C *= 0.5\n"
        "    return C, op.sum(C)\n", (A, B),
    ),
    "a loop that sums": (
        f"{MADE}    for i in range(4):\n        C += i * B\n    return C\n", (A, B)
    ),
    "a loop with two arrays": (
        "def f(p: mut f64[m, n], q: mut f64[m, n], B: f64[m, n]):\n    for i in range(3):\n"
        "        q *= 0.9\n        q += 0.1 * B\n        p -= 0.5 * q\n", (A, B, A + B),
    ),
    "a condition": (
        "def f(q: mut i32[n], k: i32):\n    if k > 2:\n        q *= k\n    else:\n        q -= k\n"
        "    while op.sum(q) > 10:\n        q //= 2\n", (Q, 3),
    ),
    "deflation": (
        "def f(A: f64[m, n]):\n    C = op.empty((n, n), f64)\n    C[:, :] = A.T @ A\n"
        "    out = op.zeros((2,), f64)\n    for i in range(2):\n"
        "        v = op.ones((n,), f64)\n        for _ in range(9):\n            v = C @ v\n"
        "            v /= op.sqrt(op.sum(v * v))\n        out[i] = v @ C @ v\n"
        "        C -= out[i] * op.outer(v, v)\n    return out\n", (A,),
    ),
    "a second name": ("def f(v: mut f64[n]):\n    w = v\n    w -= 1.0\n", (V,)),
    "in a function": (
        "def g(c: mut f64[n], e: f64[n]):\n    c -= e\n\n"
        "@op.kernel\ndef f(v: mut f64[n], e: f64[n]):\n    for i in range(3):\n"
        "        g(v, e)\n        e2 = op.sum(v)\n        v += e2\n", (V, V[::-1].copy()),
    ),
    "a column": (
        "def f(p: mut f64[m, n], B: f64[m, n]):\n    p -= op.mean(B, axis=1, keepdims=True)\n",
        (A, B),
    ),
}  # fmt: skip


class _Op:
    """NumPy under the names of the language."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def kernel(f: Any) -> Any:
        return f


def by_numpy(text: str, arguments: tuple[Any, ...], sizes: dict[str, int] = SIZES) -> Any:
    plain = re.sub(r": (mut )?[fi]\d+(\[[\w, ]*\])?", "", text)
    names: dict[str, Any] = {**sizes, "op": _Op(), "f64": np.float64}
    exec(plain, names)
    return names["f"](*arguments)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(6)
def test_like_numpy(name: str, target: str) -> None:
    text, given = PROGRAMS[name]
    text = text if "@op.kernel" in text else f"@op.kernel\n{text}"
    ours, theirs = ([x.copy() if isinstance(x, np.ndarray) else x for x in given] for _ in "ab")
    want = by_numpy(text, tuple(theirs))
    got = module_for(target, text).f(*ours)
    if want is not None:
        agree(got, want, 1e-9, 1e-9)
    for a, b in zip(ours, theirs, strict=True):
        agree(a, b, 1e-9, 1e-9)


HELPS = {
    "def f(p: f64[m, n]):\n    p -= 1.0\n    return p\n": (
        "T0609", "add `mut` to the parameter: `p: mut f64[m, n]`", "`new = p - ...`"),
    "def f(p):\n    p *= 2.0\n    return p\n": (
        "T0609", "to change its elements write `p[:] *= ...`", "`new = p * ...`"),
    "def f(p: f64[m, n]):\n    w = p\n    w += 1.0\n    return w\n": (
        "T0609", "add `mut` to the parameter: `p: mut f64[m, n]`", "`new = w + ...`"),
    "def f(p: mut f64[m, n]):\n    p -= p[:, 0]\n": ("T0604", "`p[:, 0][:, None]`"),
    "def f(p: mut f32[m, n], q: f64[m, n]):\n    p -= q\n": ("T0208", "p -= f32(q)"),
}  # fmt: skip


@pytest.mark.parametrize("text", HELPS)
@pytest.mark.sample(4)
def test_what_to_write(text: str) -> None:
    types = [np.float32 if "f32" in text else np.float64, np.float64]
    arguments = [A.astype(t) for t in types[: 1 + ("q:" in text)]]
    with pytest.raises(tessera.TesseraError) as raised:
        tessera.compile(f"@op.kernel\n{text}", target="cpu").f(*arguments)
    shown = str(raised.value)
    for part in HELPS[text]:
        assert part in shown


@pytest.mark.parametrize("dtype", ["i32", "u8", "i64"])
@pytest.mark.parametrize("line", [
    "p /= 2", "p[:] /= 2", "p /= q", "for i in range(n): p[i] /= q[i]", "p[:] /= q[:]",
])  # fmt: skip
def test_quotients_of_integers_are_refused(line: str, dtype: str) -> None:
    text = f"@op.kernel\ndef f(p: mut {dtype}[n], q: {dtype}[n]):\n    {line}\n"
    with pytest.raises(tessera.TesseraError, match="T0204"):
        tessera.compile(text, target="cpu").f(*np.ones((2, 4), dtype.replace("i", "int")
                                                       .replace("u", "uint")))  # fmt: skip


@pytest.mark.parametrize("seen", ["same(a)", "op.reshape(a, (m, n))", "op.ravel(a)"])
def test_an_array_seen_in_another_way_is_not_told_to_be_mut(seen: str) -> None:
    text = (
        "def same(v): return v\n\n@op.kernel\ndef f(a: mut f32[n, m]):\n"
        f"    w = {seen}\n    w -= 1.0\n"
    )
    with pytest.raises(tessera.TesseraError) as raised:
        tessera.compile(text, target="cpu").f(np.ones((3, 4), np.float32))
    assert "T0609" in str(raised.value) and "add `mut`" not in str(raised.value)
