"""Values made of literals alone, chosen by conditions or filled: of the dtype that they meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, assembled, results_of

R = np.random.default_rng(0)
x = R.normal(size=(6, 8)).astype(np.float32)
d = x.astype(np.float64)
v = R.normal(size=8).astype(np.float32)
k = R.integers(-5, 6, 8).astype(np.int32)
q = R.integers(0, 200, 8).astype(np.uint8)
h, z = v.astype(np.float16), k.astype(np.int64)
GIVEN = {"x": x, "d": d, "v": v, "k": k, "q": q, "h": h, "z": z}
W, i32, f32 = np.where, np.int32, np.float32
EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "op.where(x > 0, 1, 0)":
        lambda: W(x>0,1,0).astype(i32),
    "k + op.where(k > 2, 1, -1)":
        lambda: k+W(k>2,1,-1).astype(i32),
    "op.where(v > 0, 1, -1) * k":
        lambda: k*W(v>0,1,-1).astype(i32),
    "z + op.where(v > 0, 1, -1)":
        lambda: z+W(v>0,1,-1),
    "q + op.where(v > 0, 1, 3)":
        lambda: q+W(v>0,1,3).astype(np.uint8),
    "v * op.where(v > 0, 1, -1)":
        lambda: v*W(v>0,1,-1).astype(f32),
    "d * op.where(x > 0, 1, -1)":
        lambda: d*W(x>0,1,-1),
    "d * op.where(x > 0, 1.5, -0.1)":
        lambda: d*W(x>0,1.5,-.1),
    "h * op.where(h > 0, 1, -1)":
        lambda: (h*W(h>0,1,-1)).astype(f32),
    "op.where(v > 0, 1, -1) / 2":
        lambda: (W(v>0,1,-1)/2).astype(f32),
    "op.where(v > 0, 1, -1) * 0.5":
        lambda: (W(v>0,1,-1)*.5).astype(f32),
    "op.where(v > 0, 1, -1) / 2 * z.to(f64)":
        lambda: W(v>0,1,-1)/2*z,
    "op.where(v > 0, 1, -1) // 2":
        lambda: (W(v>0,1,-1)//2).astype(i32),
    "op.where(v > 0, 1, -1) + op.where(v > 1, 1, 2)":
        lambda: (W(v>0,1,-1)+W(v>1,1,2)).astype(i32),
    "op.where(v > 0, 1, -1) + op.where(v > 1, 0.5, 2)":
        lambda: (W(v>0,1,-1)+W(v>1,.5,2)).astype(f32),
    "(op.where(v > 0, 1, -1) + op.where(v > 1, 0.5, 2)) * z.to(f64)":
        lambda: (W(v>0,1,-1)+W(v>1,.5,2))*z,
    "op.where(v > 0, 1, -1) + op.zeros((8,))":
        lambda: W(v>0,1,-1).astype(f32),
    "op.zeros((8,)) - op.where(v > 0, 1, -1)":
        lambda: -W(v>0,1,-1).astype(f32),
    "op.sum(op.where(x > 0, 1, 0))":
        lambda: W(x>0,1,0).sum().astype(i32),
    "op.sum(op.where(x > 0, 1, 0), axis=0)":
        lambda: W(x>0,1,0).sum(0).astype(i32),
    "op.sum(op.where(x > 0, 1, 0), axis=0) / v":
        lambda: (W(x>0,1,0).sum(0)/v).astype(f32),
    "op.sum(op.where(x > 0, 1, 0)) * v":
        lambda: (W(x>0,1,0).sum()*v).astype(f32),
    "op.sum(op.where(x > 0, 1, 0)) / 48":
        lambda: f32(W(x>0,1,0).sum()/48),
    "op.sum(op.where(x > 0, 1, 0)) / x.shape[0]":
        lambda: f32(W(x>0,1,0).sum()/6),
    "op.sum(op.where(x > 0, 1, 0)) // x.shape[0]":
        lambda: np.int64(W(x>0,1,0).sum()//6),
    "op.mean(op.where(x > 0, 1, 0))":
        lambda: f32(W(x>0,1,0).mean()),
    "op.mean(op.where(x > 0, 1, 0), axis=1)":
        lambda: W(x>0,1,0).mean(1).astype(f32),
    "op.max(op.where(x > 0, 1, 0), axis=1)":
        lambda: W(x>0,1,0).max(1).astype(i32),
    "op.max(op.where(x > 0, 1, 0)) + k":
        lambda: k+i32(1),
    "op.cumsum(op.where(v > 0, 1, -1))":
        lambda: W(v>0,1,-1).cumsum().astype(i32),
    "op.cumsum(op.where(v > 0, 1, -1)) * v":
        lambda: (W(v>0,1,-1).cumsum()*v).astype(f32),
    "op.sqrt(op.where(v > 0, 4, 9))":
        lambda: np.sqrt(W(v>0,4,9)).astype(f32),
    "op.sqrt(op.where(x > 0, 4, 9)) * d":
        lambda: np.sqrt(W(x>0,4,9))*d,
    "op.abs(op.where(v > 0, 4, -9))":
        lambda: W(v>0,4,9).astype(i32),
    "-op.where(v > 0, 4, -9)":
        lambda: -W(v>0,4,-9).astype(i32),
    "op.where(v > 0, 1, 0) @ v":
        lambda: (W(v>0,1,0)@v).astype(f32),
    "op.where(x > 0, 1, 0) @ v":
        lambda: (W(x>0,1,0)@v).astype(f32),
    "op.where(v > 0, 1, 0) > 0":
        lambda: W(v>0,1,0)>0,
    "op.where(v > 0, 1, 0) > 0.5":
        lambda: W(v>0,1,0)>.5,
    "op.where(v > 0, 1, 0) == k":
        lambda: W(v>0,1,0)==k,
    "op.where(v > 0, 1, 0).to(f32) * v":
        lambda: W(v>0,1,0).astype(f32)*v,
    "op.where(v > 0, 1, 0)[2:5]":
        lambda: W(v>0,1,0)[2:5].astype(i32),
    "op.where(x > 0, 1, 0).T":
        lambda: W(x>0,1,0).T.astype(i32),
    "op.where(v > 0, op.where(v > 1, 2, 1), 0)":
        lambda: W(v>0,W(v>1,2,1),0).astype(i32),
    "op.where(v > 0, op.where(v > 1, 2, 1), 0) * v":
        lambda: (W(v>0,W(v>1,2,1),0)*v).astype(f32),
    "op.where(v > 0, op.where(v > 1, 2, 1), k)":
        lambda: W(v>0,W(v>1,2,1),k).astype(i32),
    "op.where(x > 0, op.where(v > 1, 2, 1)[None, :], 0)":
        lambda: W(x>0,W(v>1,2,1)[None],0).astype(i32),
    "op.where(op.sum(v) > 0, 1, -1) * k":
        lambda: k*i32(W(v.sum()>0,1,-1)),
    "op.where(op.sum(v) > 0, 1, -1)":
        lambda: np.int64(W(v.sum()>0,1,-1)),
    "op.where(op.sum(v) > 0, 1.5, -1) * v":
        lambda: v*f32(W(v.sum()>0,1.5,-1)),
    "op.concat((op.where(v > 0, 1, 0), k))":
        lambda: np.concatenate((W(v>0,1,0),k)).astype(i32),
    "op.concat((op.where(v > 0, 1, 0), v))":
        lambda: np.concatenate((W(v>0,1,0),v)).astype(f32),
    "op.stack((op.where(v > 0, 1, 0), op.where(v > 1, 1, 0)))":
        lambda: np.stack((W(v>0,1,0),W(v>1,1,0))).astype(i32),
    "op.sort(op.where(v > 0, 1, 0))":
        lambda: np.sort(W(v>0,1,0)).astype(i32),
    "op.maximum(op.where(v > 0, 1, 0), k)":
        lambda: np.maximum(W(v>0,1,0),k).astype(i32),
    "op.minimum(op.where(v > 0, 1, 0), 0)":
        lambda: 0*k,
    "op.clip(op.where(v > 0, 5, 0), 1, 3)":
        lambda: W(v>0,3,1).astype(i32),
    "v[op.where(v > 0, 1, 0)]":
        lambda: v[W(v>0,1,0)],
    "op.full((8,), 1)":
        lambda: np.ones(8,i32),
    "op.full((8,), 1) + k":
        lambda: k+i32(1),
    "op.full((8,), 1) * v":
        lambda: v,
    "op.full((8,), 1.0) * v":
        lambda: v,
    "op.full((8,), 1) * 0.5":
        lambda: np.full(8,.5,f32),
    "op.full((8,), 1) / 2":
        lambda: np.full(8,.5,f32),
    "op.where(v > 0, True, False)":
        lambda: v>0,
    "op.where(v > 0, 1, 0) ** 2":
        lambda: W(v>0,1,0).astype(i32),
    "2.0 ** op.where(v > 0, 1, 0)":
        lambda: (2.0**W(v>0,1,0)).astype(f32),
    "op.where(v > 0, 1, 0) | 2":
        lambda: W(v>0,3,2).astype(i32),
    "op.where(v > 0, inf, 1)":
        lambda: W(v>0,np.inf,1).astype(f32),
    "op.where(v > 0, 1, 0) * op.arange(8)":
        lambda: W(v>0,1,0)*np.arange(8),
    "op.argmax(op.where(x > 0, 1, 0), axis=1)":
        lambda: W(x>0,1,0).argmax(1),
    "op.reshape(op.where(x > 0, 1, 0), (8, 6))":
        lambda: W(x>0,1,0).reshape(8,6).astype(i32),
    "op.roll(op.where(v > 0, 1, 0), 1)":
        lambda: np.roll(W(v>0,1,0),1).astype(i32),
    "op.any(op.where(v > 0, 1, 0) > 0)":
        lambda: (v>0).any(),
    "op.var(op.where(v > 0, 1, 0))":
        lambda: f32(W(v>0,1,0).var()),
    "op.std(op.where(v > 0, 1, 0))":
        lambda: f32(W(v>0,1,0).std()),
    "op.softmax(op.where(x > 0, 1, 0))":
        lambda: (lambda e:e/e.sum(-1,keepdims=True))(np.exp(W(x>0,1,0))).astype(f32),
    "op.atan2(op.where(v > 0, 1, 0), v)":
        lambda: np.arctan2(W(v>0,1,0),v).astype(f32),
    "op.outer(op.where(v > 0, 1, 0), v)":
        lambda: np.outer(W(v>0,1,0),v).astype(f32),
    "op.diff(op.where(v > 0, 1, 0))":
        lambda: np.diff(W(v>0,1,0)).astype(i32),
    "op.sum(op.where(v > 0, 1, 0).to(i64))":
        lambda: (v>0).sum(),
    "op.logaddexp(op.where(v > 0, 1, 0), v)":
        lambda: np.logaddexp(W(v>0,1,0),v).astype(f32),
    "op.hypot(op.where(v > 0, 3, 0), 4)":
        lambda: np.hypot(W(v>0,3,0),4).astype(f32),
    "op.sign(op.where(v > 0, 3, -4))":
        lambda: W(v>0,1,-1).astype(i32),
    "op.square(op.where(v > 0, 3, -4))":
        lambda: W(v>0,9,16).astype(i32),
    "op.power(op.where(v > 0, 3, -4), 2)":
        lambda: W(v>0,9,16).astype(i32),
    "op.prod(op.where(v > 0, 3, -4))":
        lambda: W(v>0,3,-4).prod().astype(i32),
    "op.where(v > 0, 1, 0) if op.sum(v) > 0 else k":
        lambda: W(v>0,1,0).astype(i32) if v.sum()>0 else k,
}  # fmt: skip
BODIES: dict[str, Callable[[], Any]] = {
    "def f(v, k: i32[n]) -> i32[n]:\n"
    "    return op.where(v > 0, 1, -1)":
        lambda: W(v>0,1,-1).astype(i32),
    "def f(v: f32[n], k) -> f32[n]:\n"
    "    return op.where(v > 0, 1, -1)":
        lambda: W(v>0,1,-1).astype(f32),
    "def f(v: f32[n], k) -> f64[n]:\n"
    "    return op.where(v > 0, 0.1, -1)":
        lambda: W(v>0,.1,-1).astype(np.float64),
    "def f(v: f32[n], k) -> u8[n]:\n"
    "    return op.where(v > 0, 1, 0)":
        lambda: W(v>0,1,0).astype(np.uint8),
    "def f(v: f32[n], k) -> f16[n]:\n"
    "    return op.where(v > 0, 1, 0).to(f16)":
        lambda: W(v>0,1,0).astype(np.float16),
    "y = op.empty_like(v)\n"
    "y[:] = op.where(v > 0, 1, -1)\n"
    "return y":
        lambda: W(v>0,1,-1).astype(f32),
    "y = op.empty_like(k)\n"
    "y[:] = op.where(v > 0, 1, -1)\n"
    "return y":
        lambda: W(v>0,1,-1).astype(i32),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), f16)\n"
    "    y[:] = op.where(v > 0, 1, -1)\n"
    "    return y":
        lambda: W(v>0,1,-1).astype(np.float16),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), u8)\n"
    "    for i in op.tile_range(n, step=4):\n"
    "        y[i:i+4] = op.where(v[i:i+4] > 0, 1, 0)\n"
    "    return y":
        lambda: W(v>0,1,0).astype(np.uint8),
    "w = op.where(v > 0, 1, -1)\n"
    "for t in range(3):\n"
    "    w = w * 2\n"
    "return w":
        lambda: W(v>0,8,-8).astype(i32),
    "w = op.where(v > 0, 1, -1)\n"
    "for t in range(3):\n"
    "    w = w + k\n"
    "return w":
        lambda: (W(v>0,1,-1)+3*k).astype(i32),
    "w = op.where(v > 0, 1, -1)\n"
    "for t in range(3):\n"
    "    w = w * v\n"
    "return w":
        lambda: (W(v>0,1,-1)*v**3).astype(f32),
    "w = op.where(v > 0, 1, -1)\n"
    "s = op.sum(w)\n"
    "return w * v + s":
        lambda: (W(v>0,1,-1)*v+W(v>0,1,-1).sum()).astype(f32),
    "acc = 0\n"
    "for t in range(3):\n"
    "    acc += op.sum(op.where(k > t, 1, 0))\n"
    "return acc":
        lambda: np.int64(sum((k>t).sum() for t in range(3))),
    "def sgn(v):\n"
    "    return op.where(v > 0, 1, -1)\n"
    "\n"
    "@op.kernel\n"
    "def f(v, k):\n"
    "    return v * sgn(v)":
        lambda: abs(v),
    "def sgn(v):\n"
    "    return op.where(v > 0, 1, -1)\n"
    "\n"
    "@op.kernel\n"
    "def f(v, k):\n"
    "    return k * sgn(v)":
        lambda: (k*W(v>0,1,-1)).astype(i32),
    "def sgn(v):\n"
    "    return op.where(v > 0, 1, -1)\n"
    "\n"
    "@op.kernel\n"
    "def f(v, k):\n"
    "    return v * sgn(v), k * sgn(k)":
        lambda: (abs(v),(k*W(k>0,1,-1)).astype(i32)),
    "c = op.where(v > 0, 1, 0)\n"
    "return op.sum(c), op.sum(v * c)":
        lambda: (f32((v>0).sum()),f32(v[v>0].sum())),
    "c = op.where(v > 0, 1, 0)\n"
    "if op.sum(c) > 3:\n"
    "    c = c + 1\n"
    "return c":
        lambda: (W(v>0,1,0)+(1 if (v>0).sum()>3 else 0)).astype(i32),
    "a, b = op.where(v > 0, 1, 0), op.where(k > 0, 1, 0)\n"
    "return a - b":
        lambda: (W(v>0,1,0)-W(k>0,1,0)).astype(i32),
    "b = op.shared((8,))\n"
    "b[:] = op.where(v > 0, 1, 0)\n"
    "return b * k":
        lambda: (W(v>0,1,0)*k).astype(i32),
    "s = 1\n"
    "if op.sum(v) > 0:\n"
    "    s = op.where(op.sum(k) > 0, 2, 3)\n"
    "return k * s":
        lambda: (k*(W(k.sum()>0,2,3) if v.sum()>0 else 1)).astype(i32),
    "def f(v: f32[n], k):\n"
    "    out = op.zeros((n,), i32)\n"
    "    for i in range(n):\n"
    "        out[i] = op.where(v[i] > 0, 1, -1)\n"
    "    return out":
        lambda: W(v>0,1,-1).astype(i32),
    "def f(v: f32[n], k):\n"
    "    out = op.zeros((n,), i32)\n"
    "    for i in range(n):\n"
    "        out[i] += op.where(v[i] > 0, 1, -1) * k[i]\n"
    "    return out":
        lambda: (k*W(v>0,1,-1)).astype(i32),
    "def f(v: f32[n], k):\n"
    "    out = op.zeros((n,))\n"
    "    for i in range(n):\n"
    "        out[i] = op.where(condition=v[i] > 0, a=1, b=-1)\n"
    "    return out":
        lambda: W(v>0,1,-1).astype(f32),
    "def f(v: f32[n], k):\n"
    "    return op.where(condition=v > 0, a=1, b=-1)":
        lambda: W(v>0,1,-1).astype(i32),
    "def f(v: f32[n], k):\n"
    "    a = op.full((n,), 2)\n"
    "    for t in range(2):\n"
    "        a = a * 3\n"
    "    return a":
        lambda: np.full(8,18,i32),
    "def f(v: f32[n], k):\n"
    "    a = op.full((n,), 0)\n"
    "    for t in range(2):\n"
    "        a += v\n"
    "    return a":
        lambda: 2*v,
    "def f(v: f32[n], k):\n"
    "    a = op.full((n,), 2)\n"
    "    a[:] = v\n"
    "    return a":
        lambda: v,
    "def f(v: f32[n], k):\n"
    "    a = op.full_like(k, 2)\n"
    "    return a":
        lambda: np.full(8,2,i32),
}  # fmt: skip
REFUSED = {
    "q + op.where(v > 0, 1, -3)": "T0202", "2 ** op.where(v > 0, 1, 0)": "T0209",
    "op.where(v > 0, 1, 0) & (k > 0)": "T0201", "op.where(v > 0, 1, 3000000000)": "T0202",
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.sample(12)
def test_expressions(expression: str, target: str) -> None:
    agree(results_of(expression, GIVEN, target), EXPRESSIONS[expression]())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.sample(8)
def test_bodies(body: str, target: str) -> None:
    agree(results_of(body, GIVEN, target), BODIES[body]())


@pytest.mark.parametrize("expression", REFUSED)
def test_what_does_not_fit_is_refused(expression: str) -> None:
    with pytest.raises(tessera.TesseraError, match=REFUSED[expression]):
        results_of(expression, GIVEN, "cpu")


@pytest.mark.parametrize("source", [
    "k + op.where(k > 2, 1, -1)", "d * op.where(x > 0, 1.5, -0.1)",
    "op.sum(op.where(x > 0, 1, 0), axis=0) / v",
])  # fmt: skip
def test_code_for_gpus(source: str) -> None:
    assembled(source, GIVEN)
