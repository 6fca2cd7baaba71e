"""Values of ``index`` that are made of sizes, counters and places: beside floats, and in places of
narrower integers, where the launch looks whether the sizes let them fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.numpy_style import TARGETS, agree, assembled, results_of

R = np.random.default_rng(0)
x = R.normal(size=(6, 8)).astype(np.float32)
v = R.normal(size=8).astype(np.float32)
k = R.integers(-5, 6, 8).astype(np.int32)
d, h = v.astype(np.float64), v.astype(np.float16)
GIVEN = {"x": x, "v": v, "k": k, "d": d, "h": h, "steps": 3}
W, A, i32, f32 = np.where, np.arange, np.int32, np.float32
VALUES: dict[str, Callable[[], Any]] = {
    "op.arange(8) * 0.5":
        lambda: A(8).astype(f32)*f32(.5),
    "op.arange(8) * v":
        lambda: A(8).astype(f32)*v,
    "op.arange(8) * d":
        lambda: A(8)*d,
    "op.arange(8) * 0.1 * d":
        lambda: A(8)*.1*d,
    "op.arange(8) * h":
        lambda: A(8).astype(f32)*h,
    "op.sin(op.arange(8) * 0.5)":
        lambda: np.sin(A(8)*.5).astype(f32),
    "op.exp(-op.arange(8))":
        lambda: np.exp(-A(8.)).astype(f32),
    "op.sqrt(op.arange(8)) * d":
        lambda: np.sqrt(A(8))*d,
    "op.sqrt(op.arange(8))":
        lambda: np.sqrt(A(8)).astype(f32),
    "d - op.floor(d).to(i32)":
        lambda: d-np.floor(d),
    "v - op.minimum(op.floor(v * 3.0).to(i32), v.shape[0] - 6)":
        lambda: v-np.minimum(np.floor(v*f32(3)),2).astype(f32),
    "v * i32(v * 2.0)":
        lambda: v*np.trunc(v*f32(2)),
    "v * op.astype(v * 2.0, i32)":
        lambda: v*np.trunc(v*f32(2)),
    "op.where(v > 0, op.cast(v * 4.0, i32), 0) + v":
        lambda: W(v>0,np.trunc(v*f32(4)),0).astype(f32)+v,
    "op.arange(8) > v":
        lambda: A(8)>v,
    "op.arange(8) > 2.5":
        lambda: A(8)>2.5,
    "op.arange(8) + 0.5":
        lambda: (A(8)+.5).astype(f32),
    "1.0 / (op.arange(8) + 1)":
        lambda: (1/(A(8)+1)).astype(f32),
    "1.0 / op.log2(op.arange(8) + 2.0)":
        lambda: (1/np.log2(A(8)+2.)).astype(f32),
    "2.0 ** op.arange(8)":
        lambda: (2.0**A(8)).astype(f32),
    "v ** op.arange(8)":
        lambda: v**A(8).astype(f32),
    "op.where(v > 0, op.arange(8), v)":
        lambda: W(v>0,A(8),v).astype(f32),
    "op.where(v > 0, op.arange(8), 0.5)":
        lambda: W(v>0,A(8),.5).astype(f32),
    "op.where(v > 0, op.arange(8), -1)":
        lambda: W(v>0,A(8),-1),
    "op.argsort(v) * 0.5":
        lambda: v.argsort().astype(f32)*f32(.5),
    "op.argsort(op.argsort(v))":
        lambda: v.argsort().argsort(),
    "v[op.argsort(v)]":
        lambda: np.sort(v),
    "op.maximum(op.arange(8), v)":
        lambda: np.maximum(A(8),v).astype(f32),
    "op.sum(op.arange(8) * v)":
        lambda: (A(8)*v).sum().astype(f32),
    "op.arange(8) % 3 * v":
        lambda: (A(8)%3*v).astype(f32),
    "(op.arange(8) - 3) ** 2 * v":
        lambda: ((A(8)-3)**2*v).astype(f32),
    "op.arange(8) // 2 * 0.5":
        lambda: (A(8)//2*.5).astype(f32),
    "op.mean(op.arange(8))":
        lambda: np.float64(3.5),
    "op.arange(8)[:, None] * 0.5 + op.arange(8)[None, :]":
        lambda: (A(8)[:,None]*.5+A(8)).astype(f32),
    "op.cos(op.arange(8)[:, None] * op.arange(8)[None, :] * (6.283185 / 8))":
        lambda: np.cos(A(8)[:,None]*A(8)*(6.283185/8)).astype(f32),
    "def f(v: f32[n], k) -> i32[n]:\n"
    "    return op.arange(n)":
        lambda: A(8).astype(i32),
    "def f(v: f32[n], k) -> i64[n]:\n"
    "    return op.argsort(v)":
        lambda: v.argsort(),
    "def f(v: f32[n], k) -> i32[n]:\n"
    "    return op.argsort(v)":
        lambda: v.argsort().astype(i32),
    "def f(v: f32[n], k) -> u8[n]:\n"
    "    return op.arange(n)":
        lambda: A(8).astype(np.uint8),
    "def f(v: f32[n], k) -> f32[n]:\n"
    "    return op.arange(n)":
        lambda: A(8).astype(f32),
    "def f(v: f32[n], k) -> i32[]:\n"
    "    return op.argmax(v)":
        lambda: i32(v.argmax()),
    "def f(x: f32[m, n]) -> i32[m]:\n"
    "    return op.argmax(x, axis=1)":
        lambda: x.argmax(1).astype(i32),
    "def f(x: f32[m, n]) -> i32[m]:\n"
    "    best = op.argmax(x, axis=1)\n"
    "    return best":
        lambda: x.argmax(1).astype(i32),
    "def f(x: f32[m, n]) -> i32[m]:\n"
    "    best = op.argmax(x, axis=1) + 1\n"
    "    return best":
        lambda: x.argmax(1).astype(i32)+i32(1),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), i32)\n"
    "    y[:] = op.arange(n)\n"
    "    return y":
        lambda: A(8).astype(i32),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), i32)\n"
    "    y[:] = op.arange(n) * 2 - 3\n"
    "    return y":
        lambda: A(8).astype(i32)*i32(2)-i32(3),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), f32)\n"
    "    y[:] = op.arange(n)\n"
    "    return y":
        lambda: A(8).astype(f32),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), i32)\n"
    "    for i in range(n):\n"
    "        y[i] = i\n"
    "    return y":
        lambda: A(8).astype(i32),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), i32)\n"
    "    for i in range(n):\n"
    "        y[i] = n - i\n"
    "    return y":
        lambda: 8-A(8).astype(i32),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), i32)\n"
    "    for i in range(n):\n"
    "        y[i] = i * n + 3\n"
    "    return y":
        lambda: A(8).astype(i32)*i32(8)+i32(3),
    "def f(v: f32[n], k):\n"
    "    w = op.zeros((n,), i32)\n"
    "    for t in range(3):\n"
    "        w = op.where(v > 0, t, w)\n"
    "    return w":
        lambda: W(v>0,2,0).astype(i32),
    "def f(v: f32[n], k):\n"
    "    w = op.full((n,), -1, i32)\n"
    "    for t in range(n):\n"
    "        w = op.where(v > t, t, w)\n"
    "    return w":
        lambda: np.array([max([t for t in range(8) if a>t] or [-1]) for a in v],i32),
    "def f(v: f32[n], k):\n"
    "    s = 0.0\n"
    "    for t in range(n):\n"
    "        s += t * v[t]\n"
    "    return s":
        lambda: f32((A(8)*v).sum()),
    "def f(v: f32[n], k):\n"
    "    s = 0.0\n"
    "    for t in range(1, n + 1):\n"
    "        s += 1.0 / t\n"
    "    return s":
        lambda: f32(sum(1/t for t in range(1,9))),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), f32)\n"
    "    for i in range(n):\n"
    "        y[i] = v[i] * i + op.sqrt(i)\n"
    "    return y":
        lambda: v*A(8).astype(f32)+np.sqrt(A(8)).astype(f32),
    "def f(v: f32[n], k):\n"
    "    best = i32(0)\n"
    "    for i in range(n):\n"
    "        if v[i] > v[best]:\n"
    "            best = i\n"
    "    return best":
        lambda: i32(v.argmax()),
    "def f(v: f32[n], k):\n"
    "    best = 0\n"
    "    for i in range(n):\n"
    "        if v[i] > v[best]:\n"
    "            best = i\n"
    "    return best":
        lambda: np.int64(v.argmax()),
    "def f(v: f32[n], k):\n"
    "    values, places = op.topk(v, 3)\n"
    "    y = op.empty((3,), i32)\n"
    "    y[:] = places\n"
    "    return y":
        lambda: (-v).argsort()[:3].astype(i32),
    "def f(v: f32[n], k):\n"
    "    order = op.argsort(v)\n"
    "    y = op.empty((n,), i32)\n"
    "    y[:] = order\n"
    "    return y":
        lambda: v.argsort().astype(i32),
    "def f(v: f32[n], k):\n"
    "    order = op.argsort(v)\n"
    "    y = op.zeros((n,), i32)\n"
    "    y[order] = op.arange(n)\n"
    "    return y":
        lambda: v.argsort().argsort().astype(i32),
    "def f(v: f32[n], k):\n"
    "    rx = f32(op.argsort(op.argsort(v)))\n"
    "    return rx - op.mean(rx)":
        lambda: (lambda r:r-r.mean())(v.argsort().argsort().astype(f32)),
    "def f(x: f32[m, n]):\n"
    "    y = op.empty((m,), i32)\n"
    "    for i in op.tile_range(m, step=4):\n"
    "        y[i:i+4] = op.argmax(x[i:i+4, :], axis=1)\n"
    "    return y":
        lambda: x.argmax(1).astype(i32),
    "def f(v: f32[n], k):\n"
    "    y = op.empty((n,), f32)\n"
    "    for i in op.tile_range(n, step=4):\n"
    "        y[i:i+4] = v[i:i+4] * (i + op.arange(4))\n"
    "    return y":
        lambda: v*A(8).astype(f32),
    "def f(v: f32[n], steps: i32):\n"
    "    y = op.zeros((n,), i32)\n"
    "    for t in range(steps):\n"
    "        y[t] = t\n"
    "    return y":
        lambda: np.array([0, 1, 2, 0, 0, 0, 0, 0], i32),
    "def f(v: f32[n], k):\n"
    "    m = 0\n"
    "    for i in range(n):\n"
    "        m = i\n"
    "    y = op.zeros((n,), i32)\n"
    "    y[:] = m\n"
    "    return y":
        lambda: np.full(8, 7, i32),
    "def f(v: f32[n], k):\n"
    "    y = op.zeros((n,), i32)\n"
    "    for i in range(n):\n"
    "        for j in range(i):\n"
    "            y[j] += i - j\n"
    "    return y":
        lambda: np.array([sum(i-j for i in range(8) if j<i) for j in range(8)],i32),
}  # fmt: skip
HITS = "op.sum(x > 0, axis=1)"
hits, above = (x > 0).sum(1), (v > 0).cumsum()
OF_COUNTS: dict[str, Callable[[], Any]] = {
    f"op.cumsum({HITS}) * 0.5": lambda: hits.cumsum().astype(f32) * f32(0.5),
    f"255.0 * op.cumsum({HITS}) / (n * m)": lambda: f32(255) * hits.cumsum().astype(f32) / f32(48),
    f"op.cumsum({HITS}, reverse=True, exclusive=True) * 0.5": lambda: (
        np.append(hits[::-1].cumsum()[-2::-1], 0).astype(f32) * f32(0.5)
    ),
    "op.cumsum(v > 0) * v": lambda: above.astype(f32) * v,
    "op.cumsum(v > 0)[-1] * v": lambda: f32(above[-1]) * v,
    "op.cumsum(op.where(v > 0, 1, -1)) * d": lambda: W(v > 0, 1, -1).cumsum() * d,
    f"op.cummax({HITS}) * d[:6]": lambda: np.maximum.accumulate(hits) * d[:6],
    f"op.sort({HITS})[2:5] * v[:3]": lambda: np.sort(hits)[2:5].astype(f32) * v[:3],
    f"op.cumsum(op.sort({HITS}))[::-1] / 2.0": lambda: np.sort(hits).cumsum()[::-1].astype(f32) / 2,
    f"op.max({HITS}) * v": lambda: f32(hits.max()) * v,
    f"op.sum(op.cumsum({HITS})) * v": lambda: f32(hits.cumsum().sum()) * v,
    f"op.abs(op.diff({HITS})) * 0.5": lambda: abs(np.diff(hits)).astype(f32) * f32(0.5),
    f"op.concat(({HITS}, op.cumsum({HITS}))) * 0.5": lambda: (
        np.append(hits, hits.cumsum()).astype(f32) * f32(0.5)
    ),
    "op.argmax(v) * 0.5": lambda: f32(v.argmax()) * f32(0.5),
    "(op.argsort(v) + op.arange(8))[3] * v": lambda: f32((v.argsort() + A(8))[3]) * v,
    "op.sum(op.arange(8)) * 0.5": lambda: f32(14),
    "op.cumsum(op.arange(8)) * v": lambda: A(8).cumsum().astype(f32) * v,
    "def f(v: f32[n]) -> i32[n]:\n    return op.cumsum(op.arange(n))":
        lambda: A(8).cumsum().astype(i32),
}  # fmt: skip
REFUSED = {
    "v + op.cumsum(k) * 0.5": "T0202", "v + op.sum(k) * 0.5": "T0202",
    "op.sort(k) * v": "T0201", "v + (k + op.arange(8)) * 0.5": "T0202",
    "v * (k + op.arange(8))": "T0201",
    "def f(v: f32[n]) -> u8[n]:\n    return op.arange(n) * 40": "T0208",
    "def f(k: i32[n]) -> i32[n]:\n    return k + op.arange(n)": "T0208",
    "def f(v: f32[n]):\n    y = op.empty((n,), u8)\n    for i in range(n):\n        y[i] = i\n"
    "    return y": "T0208",
    "def f(v: f32[n]):\n    i = 100000000000\n    w = op.where(v > 0, i, 0)\n    i = 3\n"
    "    y = op.zeros((n,), i32)\n    y[:] = w\n    return y": "T0202",
    "def f(v: f32[n]):\n    m = 0\n    y = op.zeros((n,), i32)\n    for i in range(n):\n"
    "        m = m * 10 + i\n        y[i] = m\n    return y": "T0208",
    "def f(v: f32[n]):\n    m = 5\n    y = op.zeros((n,), i32)\n    for i in range(n):\n"
    "        m += i\n        y[i] = m\n    return y": "T0208",
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", VALUES)
@pytest.mark.sample(8)
def test_values(source: str, target: str) -> None:
    agree(results_of(source, GIVEN, target), VALUES[source]())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", OF_COUNTS)
@pytest.mark.sample(4)
def test_what_is_made_of_counts_meets_floats(source: str, target: str) -> None:
    text = source
    if not source.startswith("def"):
        text = f"def f(x: f32[m, n], v: f32[n], d: f64[n]):\n    return {source}"
    agree(results_of(text, GIVEN, target), OF_COUNTS[source]())


@pytest.mark.parametrize("source", REFUSED)
def test_data_and_what_may_not_fit_need_a_cast(source: str) -> None:
    with pytest.raises(tessera.TesseraError, match=REFUSED[source]):
        results_of(source, GIVEN, "cpu")


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_shapes_are_unpacked(target: str) -> None:
    source = """def f(b):
    h, w = b.shape[:2]
    m, n = b.shape[-2:]
    p, q = (h,) + b.shape[2:]
    return op.sum(b, axis=2) / (h * w) + m * n - p * q"""
    b = R.normal(size=(4, 6, 5)).astype(f32)
    agree(results_of(source, {"b": b}, target), b.sum(2) / 24 + f32(10))


@pytest.mark.parametrize(("expression", "most"), [
    ("i", 2**31), ("i * n", 46341), ("n - i", 2**31 - 1), ("i * n * n + 3", 1290),
    ("min(i * n, 7) + n", 2**31 - 8),
])  # fmt: skip
def test_the_launch_looks_at_the_sizes(expression: str, most: int) -> None:
    """Arrays of no memory, as long as they may be, and one element more; nothing is run."""
    text = f"""@op.kernel
def f(v: u8[n], y: mut i32[m]):
    for i in range(n):
        if v[0] > 0: y[0] = {expression}
"""
    session = Session(overlay={"k.tessera": text})
    signature = session.signature("k.tessera", "f", "v: u8[n], y: i32[m]")
    made = session.compile_kernel("k.tessera", "f", signature, TargetOptions("cpu"), ("object",))
    assert not [d for d in session.check("k.tessera") if d.severity == "error"]
    plan = made.plan
    (condition,) = [c for c in plan.conditions if c.comparison == "<="]
    name = next(iter(condition.symbols))
    assert condition.holds({name: most})
    assert not condition.holds({name: most + 1})


def test_a_launch_of_sizes_that_do_not_fit_is_refused() -> None:
    text = "@op.kernel\ndef f(v: f32[n], y: mut i32[m]):\n    for i in range(n):\n"
    f = tessera.compile(text + "        y[0] = i * n * n * n\n", target="cpu").f
    y = np.zeros(1, np.int32)
    f(np.zeros(200, np.float32), y)
    assert y[0] == 199 * 200**3
    with pytest.raises(tessera.TesseraError, match="T0838"):
        f(np.zeros(300, np.float32), y)


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", [
    "op.sin(op.arange(8) * 0.5)", "op.sqrt(op.arange(8)) * d",
    "def f(v: f32[n]) -> i32[n]:\n    return op.argsort(op.argsort(v))",
    "def f(v: f32[n]):\n    s = 0.0\n    for t in range(n):\n        s += t * v[t]\n    return s",
])  # fmt: skip
def test_code_for_gpus(source: str) -> None:
    assembled(source, GIVEN)


@pytest.mark.parametrize("body", [
    "y = op.arange(8) + v\nm = y > 3\nreturn m, op.sum(m)",
    "y = v * op.arange(8)\nm = y > 0.5\nreturn op.where(m, y, 0.0), ~m",
    "y = v - op.argsort(v)\nlow = y < 0\nhigh = y >= 1\nreturn low | high, low",
])  # fmt: skip
@pytest.mark.parametrize("target", TARGETS)
def test_masks_of_counts_beside_floats_have_names(body: str, target: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    source = f"def f(v: f32[n]):\n{lines}"
    names = {"op": np, "v": v}
    text = body.replace("op.argsort(v)", "v.argsort()").split("\n")
    for line in text[:-1]:
        name, _, value = line.partition(" = ")
        names[name] = np.asarray(eval(value, names))
    want = eval(text[-1].removeprefix("return "), names)
    for g, w in zip(results_of(source, GIVEN, target), want, strict=True):
        np.testing.assert_allclose(np.asarray(g).astype(float), np.asarray(w).astype(float), 1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["i32", "u32", "i64"])
@pytest.mark.parametrize("value", [
    "op.where(x[t, :] > 0.5, t, when)", "op.where(x[t, :] > 0.5, when, t)",
    "op.where(x[t, :] > 0.5, t + n, when)", "op.maximum(when, op.where(x[t, :] > 0.5, t * n, 0))",
])  # fmt: skip
@pytest.mark.sample(8)
def test_variables_that_take_what_a_loop_counts(value: str, dtype: str, target: str) -> None:
    """A variable beside a count in one value: that it may be anything of its dtype fits itself."""
    source = f"""def f(x: f32[m, n]) -> {dtype}[n]:
    when = op.full((n,), 7, {dtype})
    for t in range(m):
        when = {value}
    return when"""
    when = np.full(8, 7, {"i32": np.int32, "u32": np.uint32, "i64": np.int64}[dtype])
    for t in range(6):
        names = {"op": np, "x": x, "t": t, "n": 8, "when": when}
        when = eval(value, names).astype(when.dtype)
    agree(results_of(source, GIVEN, target), when)


CHANGED = {
    "cast": "y = op.floor(v).astype(i32)\n    z = v - y\n"
    "    y = op.clip(y, 0, 3)\n    return z * y",
    "data": "y = op.floor(v).astype(i32)\n    z = v - y\n    y = q\n    return z + v[y]",
    "before": "y = q\n    w = v[y]\n    y = op.floor(v).astype(i32)\n    return w - y",
    "loops": "z = v\n    for k in range(3):\n        y = op.floor(z).astype(i32)\n"
    "        z = 2 * (z - y)\n    y = q\n    return z + v[y]",
}
"""A name whose later values are no counts: what stands between sees the earlier."""
MAY_HAVE_DATA = {
    "after": "y = op.floor(v).astype(i32)\n    y = q\n    return v - y",
    "around": "y = op.floor(v).astype(i32)\n    z = v\n    for k in range(3):\n        z = z - y\n"
    "        y = q\n    return z",
    "branch": "y = op.floor(v).astype(i32)\n    if k > 0: y = q\n    return v - y",
    "nested": "y = op.floor(v).astype(i32)\n    z = v\n    for k in range(3):\n        z = z - y\n"
    "        for l in range(2): y = q + l\n    return z",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", CHANGED.values(), ids=CHANGED)
def test_a_name_counts_until_it_is_given_data(body: str, target: str) -> None:
    v = (np.arange(8, dtype=np.float32) - 3) * 0.7
    q = np.arange(8, dtype=np.int32)[::-1].copy()
    text = f"def f(v: f32[n], q: i32[n]):\n    {body}"
    found = results_of(text, {"v": v, "q": q}, target)
    names: dict[str, Any] = {"op": np, "v": v, "q": q, "i32": np.int32}
    exec(f"def f(v, q):\n    {body}\n", names)
    np.testing.assert_allclose(found, names["f"](v, q), 1e-6)


@pytest.mark.parametrize("body", MAY_HAVE_DATA.values(), ids=MAY_HAVE_DATA)
def test_a_name_that_may_have_data_does_not_count(body: str) -> None:
    with pytest.raises(tessera.TesseraError, match="T0201"):
        tessera.compile(
            f"@op.kernel\ndef f(v: f32[n], q: i32[n], k: i32):\n    {body}\n", target="cpu"
        ).f(np.ones(8, np.float32), np.ones(8, np.int32), 1)
