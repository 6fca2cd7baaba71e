"""Cascaded reductions over products of two and three stages, and each by NumPy in float64.

``q``: f[s, d], ``k``: f[t, d], ``v``: f[t, e], ``g``: f[s, t], ``r``: f[s], ``y``: i64[s].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

TEXT = """
def tempered_norm(q, k, v, r):
    o = op.softmax((q @ k.T) * r[:, None], axis=1) @ v
    return o / op.sqrt(op.sum(o * o, axis=1, keepdims=True) + 1e-6)
def top_one(q, k, v):
    z = q @ k.T
    top = op.max(z, axis=1, keepdims=True)
    return op.where(z == top, 1.0 / op.sum(op.exp(z - top), axis=1, keepdims=True), 0.0) @ v
def variance_of_softmax(q, k):
    p = op.softmax(q @ k.T, axis=1)
    m = op.mean(p, axis=1, keepdims=True)
    return op.mean((p - m) ** 2, axis=1)
def log_sum_of_cosines(q, k):
    a = q / op.sqrt(op.sum(q * q, axis=1, keepdims=True))
    b = k / op.sqrt(op.sum(k * k, axis=1, keepdims=True))
    return op.logsumexp(a @ b.T / 0.1, axis=1)
def cosine_attention(q, k, v):
    a = q / op.max(op.abs(q), axis=1, keepdims=True)
    b = k / op.max(op.abs(k), axis=1, keepdims=True)
    return op.softmax(a @ b.T, axis=1) @ v
def focal(q, k, y):
    z = q @ k.T
    own = op.arange(z.shape[1])[None, :] == y[:, None]
    log_p = op.sum(op.where(own, z, 0.0), axis=1) - op.logsumexp(z, axis=1)
    return -((1.0 - op.exp(log_p)) ** 2) * log_p
def contrastive(q, k, y):
    z = q @ k.T * 2.0
    own = op.arange(z.shape[1])[None, :] == y[:, None]
    away = op.where(own, -inf, z)
    near = op.sum(op.where(own, z, 0.0), axis=1)
    return op.logsumexp(away, axis=1) - near
def gumbel(q, k, v, g):
    return op.softmax((q @ k.T + g) / 0.5, axis=1) @ v
def quantised(q, k, v):
    z = q @ k.T
    step = op.max(op.abs(z), axis=1, keepdims=True) / 127.0
    return (op.round(z / step) @ v) * step
def unit_rows(q, k, v):
    z = q @ k.T
    return (z / op.sqrt(op.sum(z * z, axis=1, keepdims=True))) @ v
def rms_product(q, k, v):
    z = q @ k.T
    return (z / op.sqrt(op.mean(z * z, axis=1, keepdims=True))) @ v
def absmax_product(q, k, v):
    z = q @ k.T
    return (z / op.max(op.abs(z), axis=1, keepdims=True)) @ v
def sum_of_quotients(q, k):
    z = q @ k.T
    top = op.max(op.abs(z), axis=1, keepdims=True)
    return top[:, 0] * op.sqrt(op.sum((z / top) ** 2, axis=1))
def collision(q, k):
    p = op.softmax(q @ k.T, axis=1)
    return -op.log(op.sum(p * p, axis=1))
def expected_square(q, k, v):
    p = op.softmax(q @ k.T, axis=1)
    m = p @ v
    return p @ (v * v) - m * m
def kl_of_two(q, k, u):
    a, b = q @ k.T, u @ k.T
    p = op.softmax(a, axis=1)
    return op.sum(p * (a - b), axis=1) - op.logsumexp(a, axis=1) + op.logsumexp(b, axis=1)
def mean_above(q, k, v):
    z = q @ k.T
    w = op.where(z > op.mean(z, axis=1, keepdims=True), 1.0, 0.0)
    return (w @ v) / op.sum(w, axis=1, keepdims=True)
def squashed(q, k, v):
    z = q @ k.T
    n = op.sum(z * z, axis=1, keepdims=True)
    return (z * (n / (1.0 + n) / op.sqrt(n))) @ v
"""
SHAPES = {"q": ("s", "d"), "k": ("t", "d"), "v": ("t", "e"), "g": ("s", "t"), "r": ("s",),
          "y": ("s",), "u": ("s", "d")}  # fmt: skip


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def log_sum(z: Any) -> Any:
    top = z.max(1, keepdims=True)
    return (np.log(np.exp(z - top).sum(1, keepdims=True)) + top)[:, 0]


def own(z: Any, y: Any) -> Any:
    return z[np.arange(len(z)), y]


def over_norm(x: Any, c: float = 0.0) -> Any:
    return x / np.sqrt((x * x).sum(1, keepdims=True) + c)


def over_greatest(x: Any) -> Any:
    return x / np.abs(x).max(1, keepdims=True)


def _top_one(q: Any, k: Any, v: Any) -> Any:
    z = q @ k.T
    top = z.max(1, keepdims=True)
    return np.where(z == top, 1.0 / np.exp(z - top).sum(1, keepdims=True), 0.0) @ v


def _focal(q: Any, k: Any, y: Any) -> Any:
    log_p = own(q @ k.T, y) - log_sum(q @ k.T)
    return -((1.0 - np.exp(log_p)) ** 2) * log_p


def _contrastive(q: Any, k: Any, y: Any) -> Any:
    z = q @ k.T * 2.0
    away = z.copy()
    away[np.arange(len(z)), y] = -np.inf
    return log_sum(away) - own(z, y)


def _quantised(q: Any, k: Any, v: Any) -> Any:
    z = q @ k.T
    step = np.abs(z).max(1, keepdims=True) / 127.0
    return ((z / step).round() @ v) * step


def _expected_square(q: Any, k: Any, v: Any) -> Any:
    p = softmax(q @ k.T)
    return p @ (v * v) - (p @ v) ** 2


def _kl_of_two(q: Any, k: Any, u: Any) -> Any:
    a, b = q @ k.T, u @ k.T
    return (softmax(a) * (a - b)).sum(1) - log_sum(a) + log_sum(b)


def _mean_above(q: Any, k: Any, v: Any) -> Any:
    z = q @ k.T
    w = np.where(z > z.mean(1, keepdims=True), 1.0, 0.0)
    return (w @ v) / w.sum(1, keepdims=True)


def _squashed(q: Any, k: Any, v: Any) -> Any:
    z = q @ k.T
    n = (z * z).sum(1, keepdims=True)
    return (z * (n / (1.0 + n) / np.sqrt(n))) @ v


def _tempered_norm(q: Any, k: Any, v: Any, r: Any) -> Any:
    return over_norm(softmax((q @ k.T) * r[:, None]) @ v, 1e-6)


def _variance_of_softmax(q: Any, k: Any) -> Any:
    return softmax(q @ k.T).var(1)


def _log_sum_of_cosines(q: Any, k: Any) -> Any:
    return log_sum(over_norm(q) @ over_norm(k).T / 0.1)


def _cosine_attention(q: Any, k: Any, v: Any) -> Any:
    return softmax(over_greatest(q) @ over_greatest(k).T) @ v


def _gumbel(q: Any, k: Any, v: Any, g: Any) -> Any:
    return softmax((q @ k.T + g) / 0.5) @ v


def _unit_rows(q: Any, k: Any, v: Any) -> Any:
    return over_norm(q @ k.T) @ v


def _rms_product(q: Any, k: Any, v: Any) -> Any:
    return over_norm(q @ k.T) @ v * np.sqrt(len(k))


def _absmax_product(q: Any, k: Any, v: Any) -> Any:
    return over_greatest(q @ k.T) @ v


def _sum_of_quotients(q: Any, k: Any) -> Any:
    return np.sqrt(((q @ k.T) ** 2).sum(1))


def _collision(q: Any, k: Any) -> Any:
    return -np.log((softmax(q @ k.T) ** 2).sum(1))


NUMPY: dict[str, Callable[..., Any]] = {
    "tempered_norm": _tempered_norm,
    "top_one": _top_one,
    "variance_of_softmax": _variance_of_softmax,
    "log_sum_of_cosines": _log_sum_of_cosines,
    "cosine_attention": _cosine_attention,
    "focal": _focal,
    "contrastive": _contrastive,
    "gumbel": _gumbel,
    "quantised": _quantised,
    "unit_rows": _unit_rows,
    "rms_product": _rms_product,
    "absmax_product": _absmax_product,
    "sum_of_quotients": _sum_of_quotients,
    "collision": _collision,
    "expected_square": _expected_square,
    "kl_of_two": _kl_of_two,
    "mean_above": _mean_above,
    "squashed": _squashed,
}
LOOPS = dict.fromkeys(NUMPY, 1) | dict.fromkeys(
    ("top_one", "variance_of_softmax", "quantised", "mean_above", "squashed"), 2
)
"""How many loops each is: two where a result stands in no factor, no exponent and no divisor that
is known to bound its terms, which `explain --fusion` says."""


def arrays(name: str, sizes: dict[str, int], seed: int, scores: float = 1.0,
           values: float = 1.0) -> dict[str, Any]:  # fmt: skip
    """Arguments in f32. ``scores``: of which magnitude scores are, and ``values`` what they
    weigh."""
    rng = np.random.default_rng([seed, *map(ord, name)])
    made: dict[str, Any] = {}
    for n, s in SHAPES.items():
        shape = tuple(sizes[x] for x in s)
        if n == "y":
            made[n] = rng.integers(0, sizes["t"], shape)
            continue
        made[n] = rng.standard_normal(shape).astype(np.float32)
        if n in ("q", "u", "k"):
            made[n] *= np.float32(abs(scores) ** 0.5)
    made["v"] *= np.float32(values)
    made["k"] *= np.linspace(0.1, 1.0, sizes["t"], dtype=np.float32)[:, None]  # the largest late
    made["r"] = np.float32(0.5) + np.abs(made["r"])
    return made
