"""Whole programs in plain NumPy style from many fields: images, signals, statistics, algebra,
graphs, texts as integers, dynamic programming, learning and motion. As kernels and as functions
they give what NumPy gives in f64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for

R = np.random.default_rng(7)
GIVEN: dict[str, Any] = {
    "img": R.integers(0, 256, (6, 7)).astype(np.uint8), "x": R.normal(size=12),
    "y": R.normal(size=12), "q": R.integers(0, 5, 12), "A": R.normal(size=(5, 5)),
    "D": R.integers(1, 9, (5, 5)), "s": R.integers(97, 103, 15), "s2": R.integers(97, 103, 9),
    "PT": R.normal(size=(6, 2)), "lab": R.integers(0, 3, 12), "X": R.normal(size=(12, 3)),
    "B": (R.random((6, 7)) > 0.6).astype(np.int64),
    "adj": (R.random((6, 6)) > 0.5).astype(np.int64), "np": np,
}  # fmt: skip
PROGRAMS: tuple[tuple[str, str], ...] = (
    (
        "def f(img: u8[h, w]):\n"
        "    hist = op.zeros(256)\n"
        "    for i in range(img.shape[0]):\n"
        "        for j in range(img.shape[1]):\n"
        "            hist[img[i, j]] += 1\n"
        "    p = hist / img.size\n"
        "    cdf = op.cumsum(p)\n"
        "    return op.round(255 * cdf[img])\n",
        "img[:5]",  # of 35 pixels none lies at a half: a GPU scans in the order of a tree
    ),
    (
        "def f(img: u8[h, w]):\n"
        "    g = img / 255.0\n"
        "    m = g.mean()\n"
        "    return (g > m) * 1, (img > img.mean()).sum(), g.std()\n",
        "img",
    ),
    (
        "def f(img: u8[h, w]):\n"
        "    p = op.pad(img.astype(float), 1, mode='edge')\n"
        "    gx = p[1:-1, 2:] - p[1:-1, :-2]\n"
        "    gy = p[2:, 1:-1] - p[:-2, 1:-1]\n"
        "    return op.sqrt(gx ** 2 + gy ** 2)\n",
        "img",
    ),
    (
        "def f(x: f64[n], k: int):\n"
        "    out = op.zeros(k)\n"
        "    mu = x.mean()\n"
        "    d = x - mu\n"
        "    for lag in range(k):\n"
        "        out[lag] = op.sum(d[lag:] * d[:len(d) - lag]) / op.sum(d * d)\n"
        "    return out\n",
        "x, 4",
    ),
    (
        "def f(a: i64[n], b: i64[m]):\n"
        "    m = len(b)\n"
        "    n = len(a)\n"
        "    d = op.zeros((n + 1, m + 1), dtype=int)\n"
        "    for i in range(n + 1):\n"
        "        d[i, 0] = i\n"
        "    for j in range(m + 1):\n"
        "        d[0, j] = j\n"
        "    for i in range(1, n + 1):\n"
        "        for j in range(1, m + 1):\n"
        "            c = 0 if a[i - 1] == b[j - 1] else 1\n"
        "            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + c)\n"
        "    return d[n, m]\n",
        "s, s2",
    ),
    (
        "def f(W: i64[n, n]):\n"
        "    d = W.astype(float)\n"
        "    n = d.shape[0]\n"
        "    for k in range(n):\n"
        "        d = op.minimum(d, d[:, k][:, None] + d[k, :][None, :])\n"
        "    return d\n",
        "D",
    ),
    (
        "def f(A: f64[n, n], k: int):\n"
        "    v = op.ones(len(A))\n"
        "    for t in range(k):\n"
        "        v = A @ v\n"
        "        v = v / op.sqrt(op.sum(v * v))\n"
        "    return v, v @ A @ v\n",
        "A @ A.T, 20",
    ),
    (
        "def f(X: f64[n, d], y: i64[n]):\n"
        "    w = op.zeros(X.shape[1])\n"
        "    for t in range(10):\n"
        "        p = 1 / (1 + op.exp(-(X @ w)))\n"
        "        w = w - 0.1 * (X.T @ (p - y)) / len(y)\n"
        "    return w\n",
        "X, (lab > 0).astype(np.int64)",
    ),
    (
        "def f(X: f64[n, d], lab: i64[n]):\n"
        "    c = op.zeros((3, X.shape[1]))\n"
        "    for k in range(3):\n"
        "        m = lab == k\n"
        "        c[k] = op.sum(X * m[:, None], axis=0) / max(op.sum(m), 1)\n"
        "    return c\n",
        "X, lab",
    ),
    (
        "def f(X: f64[n, d], lab: i64[n]):\n"
        "    Y = op.zeros((len(lab), 3))\n"
        "    Y[op.arange(len(lab)), lab] = 1\n"
        "    return X.T @ Y, Y.mean(axis=0)\n",
        "X, lab",
    ),
    (
        "def f(p: f64[n, d]):\n"
        "    d = p[:, None, :] - p[None, :, :]\n"
        "    r = op.sqrt((d ** 2).sum(axis=2))\n"
        "    return r.max(), r.sum() / (len(p) * (len(p) - 1))\n",
        "PT",
    ),
    (
        "def f(p: f64[n, d]):\n"
        "    x, y = p[:, 0], p[:, 1]\n"
        "    return 0.5 * op.abs(op.sum(x * op.roll(y, -1) - op.roll(x, -1) * y))\n",
        "PT",
    ),
    (
        "def f(x: f64[n], alpha: f64):\n"
        "    s = op.zeros(len(x))\n"
        "    s[0] = x[0]\n"
        "    for i in range(1, len(x)):\n"
        "        s[i] = alpha * x[i] + (1 - alpha) * s[i - 1]\n"
        "    return s\n",
        "x, 0.3",
    ),
    (
        "def f(q: i64[n]):\n"
        "    counts = op.zeros(5, dtype=int)\n"
        "    for v in q:\n"
        "        counts[v] += 1\n"
        "    p = counts / counts.sum()\n"
        "    p = p[p > 0] if False else p + 1e-12\n"
        "    return -op.sum(p * op.log2(p)), counts\n",
        "q",
    ),
    (
        "def f(x: f64[n], q: i64[n]):\n"
        "    total = op.zeros(5)\n"
        "    num = op.zeros(5)\n"
        "    for i in range(len(x)):\n"
        "        total[q[i]] += x[i]\n"
        "        num[q[i]] += 1\n"
        "    return total / op.maximum(num, 1)\n",
        "x, q",
    ),
    (
        "def f(x: f64[n], y: f64[n]):\n"
        "    n = len(x)\n"
        "    below = n * op.sum(x ** 2) - op.sum(x) ** 2\n"
        "    slope = (n * op.sum(x * y) - op.sum(x) * op.sum(y)) / below\n"
        "    r = op.corrcoef(x, y)[0, 1]\n"
        "    return slope, r ** 2, y.mean() - slope * x.mean()\n",
        "x, y",
    ),
    (
        "def f(x: f64[n]):\n"
        "    r = op.argsort(op.argsort(x)) + 1\n"
        "    return r / len(x), (r * x).sum(), r - r.mean()\n",
        "x",
    ),
    (
        "def f(q: i64[n]):\n"
        "    z = (q - q.mean()) / q.std()\n"
        "    return z, op.sqrt(q), q ** 0.5, 1.0 / (q + 1)\n",
        "q",
    ),
    (
        "def f(x: f64[n]):\n"
        "    best = x[0]\n"
        "    cur = 0.0\n"
        "    for v in x:\n"
        "        cur = max(v, cur + v)\n"
        "        best = max(best, cur)\n"
        "    return best\n",
        "x",
    ),
    (
        "def f(w: i64[n], v: f64[n], cap: int):\n"
        "    best = op.zeros(cap + 1)\n"
        "    for i in range(len(w)):\n"
        "        new = best.copy()\n"
        "        for c in range(w[i], cap + 1):\n"
        "            new[c] = max(best[c], best[c - w[i]] + v[i])\n"
        "        best = new\n"
        "    return best[cap]\n",
        "q + 1, np.abs(x), 9",
    ),
    (
        "def f(A: f64[n, n], b: f64[n]):\n"
        "    M = op.concatenate((A, b[:, None]), axis=1)\n"
        "    n = len(b)\n"
        "    for k in range(n):\n"
        "        M[k] = M[k] / M[k, k]\n"
        "        for i in range(n):\n"
        "            if i != k:\n"
        "                M[i] -= M[i, k] * M[k]\n"
        "    return M[:, -1]\n",
        "A + 9 * np.eye(5), A[0]",
    ),
    (
        "def f(x: f64[n]):\n"
        "    w = [1, 2, 1]\n"
        "    y = x.copy()\n"
        "    for i in range(1, len(x) - 1):\n"
        "        y[i] = sum(w[k] * x[i + k - 1] for k in range(3)) / 4\n"
        "    y = y - y.mean()\n"
        "    y[0] = 0\n"
        "    return y\n",
        "x",
    ),
    (
        "def f(q: i64[n], x: f64[n]):\n"
        "    t = op.linspace(0, 1, 12)\n"
        "    return q * t + x, op.interp(x, t, q), op.trapezoid(q, t)\n",
        "q, x",
    ),
    (
        "def f(a: i64[n]):\n"
        "    h = 0\n"
        "    for c in a:\n"
        "        h = (h * 31 + c) % 1000003\n"
        "    return h\n",
        "s",
    ),
    (
        "def f(adj: i64[n, n], src: int):\n"
        "    n = len(adj)\n"
        "    dist = op.full(n, -1)\n"
        "    dist[src] = 0\n"
        "    for d in range(n):\n"
        "        for u in range(n):\n"
        "            if dist[u] == d:\n"
        "                for v in range(n):\n"
        "                    if adj[u, v] == 1 and dist[v] < 0:\n"
        "                        dist[v] = d + 1\n"
        "    return dist\n",
        "adj, 0",
    ),
    (
        "def f(x: f64[n], y: f64[n]):\n"
        "    x = (x - x.mean()) / x.std()\n"
        "    y = (y - y.mean()) / y.std()\n"
        "    c = op.zeros(5)\n"
        "    for k in range(5):\n"
        "        c[k] = op.mean(x[:-k] * y[k:]) if k > 0 else op.mean(x * y)\n"
        "    return c\n",
        "x, y",
    ),
    (
        "def f(x: f64[n]):\n"
        "    n = len(x)\n"
        "    re = op.zeros(n)\n"
        "    im = op.zeros(n)\n"
        "    t = op.arange(n)\n"
        "    for k in range(n):\n"
        "        a = 2 * op.pi * k * t / n\n"
        "        re[k] = op.sum(x * op.cos(a))\n"
        "        im[k] = -op.sum(x * op.sin(a))\n"
        "    return re ** 2 + im ** 2\n",
        "x",
    ),
    (
        "def f(A: f64[n, n]):\n"
        "    n = A.shape[0]\n"
        "    Q = op.zeros((n, n))\n"
        "    R = op.zeros((n, n))\n"
        "    for j in range(n):\n"
        "        v = A[:, j].copy()\n"
        "        for i in range(j):\n"
        "            R[i, j] = Q[:, i] @ A[:, j]\n"
        "            v = v - R[i, j] * Q[:, i]\n"
        "        R[j, j] = op.sqrt(op.sum(v ** 2))\n"
        "        Q[:, j] = v / R[j, j]\n"
        "    return Q, R\n",
        "A",
    ),
    (
        "def f(x: f64[n], h: int):\n"
        "    lo, hi = x.min(), x.max()\n"
        "    counts = op.zeros(h, dtype=int)\n"
        "    idx = ((x - lo) / (hi - lo) * h).astype(int)\n"
        "    idx = op.minimum(idx, h - 1)\n"
        "    for i in idx:\n"
        "        counts[i] += 1\n"
        "    return counts, counts / counts.sum(), lo + (hi - lo) * (op.arange(h) + 0.5) / h\n",
        "x, 4",
    ),
    (
        "def f(p: f64[n, d], v: f64[n, d], dt: f64, k: int):\n"
        "    for t in range(k):\n"
        "        a = op.zeros_like(p)\n"
        "        for i in range(len(p)):\n"
        "            d = p - p[i]\n"
        "            r = op.sqrt((d ** 2).sum(axis=1) + 0.1)\n"
        "            a[i] = (d / r[:, None] ** 3).sum(axis=0)\n"
        "        v = v + dt * a\n"
        "        p = p + dt * v\n"
        "    return p, v\n",
        "PT, PT * 0.1, 0.01, 3",
    ),
    (
        "def f(x: f64[n], q: i64[n]):\n"
        "    order = op.argsort(q, kind='stable')\n"
        "    xs = x[order]\n"
        "    ranks = op.zeros(len(x))\n"
        "    for i in range(len(order)):\n"
        "        ranks[order[i]] = i\n"
        "    return xs, ranks / len(x), (q == 2).sum() / len(q), op.where(q > 2, x, q)\n",
        "x, q",
    ),
    (
        "def f(img: u8[h, w]):\n"
        "    t = 0\n"
        "    best = -1.0\n"
        "    for c in range(1, 255):\n"
        "        m = img < c\n"
        "        a = m.sum()\n"
        "        b = img.size - a\n"
        "        if a > 0 and b > 0:\n"
        "            ma = (img * m).sum() / a\n"
        "            mb = (img * (1 - m)).sum() / b\n"
        "            s = a * b * (ma - mb) ** 2\n"
        "            if s > best:\n"
        "                best = s\n"
        "                t = c\n"
        "    return t, best\n",
        "img",
    ),
    (
        "def f(x: f64[n]):\n"
        "    s = x.copy()\n"
        "    for i in range(len(s)):\n"
        "        for j in range(len(s) - 1 - i):\n"
        "            if s[j] > s[j + 1]:\n"
        "                s[j], s[j + 1] = s[j + 1], s[j]\n"
        "    return s, op.median(s), s[len(s) // 2]\n",
        "x",
    ),
    (
        "def f(a: i64[n], b: i64[m]):\n"
        "    L = op.zeros((len(a) + 1, len(b) + 1), dtype=int)\n"
        "    for i in range(len(a)):\n"
        "        for j in range(len(b)):\n"
        "            if a[i] == b[j]:\n"
        "                L[i + 1, j + 1] = L[i, j] + 1\n"
        "            else:\n"
        "                L[i + 1, j + 1] = max(L[i, j + 1], L[i + 1, j])\n"
        "    return L[-1, -1] / max(len(a), len(b))\n",
        "s, s2",
    ),
    (
        "def f(X: f64[n, d], y: f64[n], lam: f64):\n"
        "    A = X.T @ X + lam * op.eye(3)\n"
        "    b = X.T @ y\n"
        "    w = op.zeros(3)\n"
        "    for t in range(50):\n"
        "        w = w - 0.02 * (A @ w - b)\n"
        "    r = y - X @ w\n"
        "    return w, 1 - (r @ r) / ((y - y.mean()) @ (y - y.mean()))\n",
        "X, y, 0.5",
    ),
)


def _arguments(source: str) -> list[Any]:
    found = eval(f"[{source}]", dict(GIVEN))
    return [v.copy() if isinstance(v, np.ndarray) else v for v in found]


def _by_numpy(text: str, given: list[Any]) -> Any:
    head, _, body = text.partition("\n")
    plain = re.sub(r"(\w+): *(?:f64|i64|int|u8)(\[[^\]]*\])?", r"\1", head)
    scope: dict[str, Any] = {"op": np}
    exec(f"{plain}\n{body}", scope)
    return scope["f"](*given)


def _agree(got: Any, want: Any) -> None:
    pairs = zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),)
    for g, w in pairs:
        assert np.shape(g) == np.shape(w)
        np.testing.assert_allclose(np.asarray(g, float), np.asarray(w, float), 1e-9, 1e-9)


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("program", range(len(PROGRAMS)))
@pytest.mark.sample(4)
def test_kernels(program: int, target: str) -> None:
    text, source = PROGRAMS[program]
    want = _by_numpy(text, _arguments(source))
    _agree(module_for(target, f"@op.kernel\n{text}").f(*_arguments(source)), want)


@pytest.mark.parametrize("program", range(len(PROGRAMS)))
@pytest.mark.sample(3)
def test_functions(program: int) -> None:
    text, source = PROGRAMS[program]
    want = _by_numpy(text, _arguments(source))
    _agree(tessera.compile(text, target="cpu").f(*_arguments(source)), want)
