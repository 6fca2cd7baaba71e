"""A call of every public function of the standard library, each with what NumPy says of it.

``calls_of(name, target)`` loads the module and calls nothing: which functions have a call is seen
without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np

import tessera_lang as tessera

BF16 = np.dtype(ml_dtypes.bfloat16)
F8 = np.dtype(ml_dtypes.float8_e4m3fn)
Array = np.ndarray[Any, np.dtype[Any]]
Call = Callable[[], None]
SIZES = ((256, 128, 192), (129, 67, 72))
"""Of products: whole tiles, and tiles that are cut."""


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def f64(x: Any) -> Array:
    return np.asarray(x).astype(np.float64)


def near(found: Any, right: Any, error: float) -> None:
    got, right = f64(found), f64(right)
    assert got.shape == right.shape
    off = np.abs(got - right).max(initial=0)
    assert off <= error, (off, error)


def same(found: Any, right: Any) -> None:
    assert np.array_equal(np.asarray(found), right)


def on(target: str, x: Array) -> Any:
    """An array in the memory of the target."""
    return tessera.to_device(x) if target == "cuda" else x


# --- element by element ----------------------------------------------------------------------

MAPPED = """
from std.elementwise import mapped, square

def squares(x): return mapped(square, x)
"""


def elementwise(m: Any, target: str) -> dict[str, Call]:
    n = 7001
    a, b = normal(n), normal(n, seed=1)
    halves = np.arange(n) % 3 == 0

    def one(name: str, right: Array, *given: Array | float) -> Call:
        def call() -> None:
            out = on(target, np.zeros(n, right.dtype))
            there = [on(target, x) if isinstance(x, np.ndarray) else x for x in given]
            getattr(m, name)(*there, out)
            same(out, right)

        return call

    two, five = np.float32(2), np.float32(0.5)
    return {
        "add": one("add", a + b, a, b), "subtract": one("subtract", a - b, a, b),
        "multiply": one("multiply", a * b, a, b), "divide": one("divide", a / b, a, b),
        "minimum": one("minimum", np.minimum(a, b), a, b),
        "maximum": one("maximum", np.maximum(a, b), a, b),
        "copy": one("copy", a, a), "negate": one("negate", -a, a),
        "absolute": one("absolute", abs(a), a), "relu": one("relu", np.maximum(a, 0), a),
        "square": one("square", a * a, a), "fill": one("fill", np.full(n, two), 2.0),
        "axpy": one("axpy", two * a + b, 2.0, a, b),
        "clamp": one("clamp", np.clip(a, -five, five), a, -0.5, 0.5),
        "cast": one("cast", a.astype(np.float16), a),
        "where": one("where", np.where(halves, a, b), halves, a, b),
        "mapped": lambda: same(tessera.compile(MAPPED, target=target).squares(normal(33, 65)),
                               normal(33, 65) ** 2),
    }  # fmt: skip


# --- reductions, scans, order ------------------------------------------------------------------


def reduce(m: Any, target: str) -> dict[str, Call]:
    x = normal(70001)
    planes = [normal(33, 65), normal(65, 33).T, normal(5, 700), normal(700, 3)]

    def one(name: str) -> Call:
        def call() -> None:
            function, right = getattr(m, name), getattr(np, name)
            error = 0 if name not in ("sum", "mean") else 1e-5 * len(x)
            near(function(on(target, x)), right(f64(x)), error)
            for plane in planes:
                for axis in (0, 1):
                    near(function(plane, axis=axis), right(f64(plane), axis=axis), min(error, 1e-3))
            if name in ("sum", "max", "min"):
                whole = np.arange(5000).astype(np.int16)
                same(function(whole), getattr(whole.astype(np.int32), name)())

        return call

    return {name: one(name) for name in ("sum", "mean", "max", "min", "argmax", "argmin")}


def scan(m: Any, target: str) -> dict[str, Call]:
    x = np.random.default_rng(0).integers(-50, 50, 70001).astype(np.int32)
    heads = np.arange(len(x)) % 1000 == 0
    sums = np.cumsum(x, dtype=np.int32)
    starts = np.where(np.arange(len(x)) < 1000, 0, sums[np.arange(len(x)) // 1000 * 1000 - 1])
    return {
        "inclusive": lambda: same(m.inclusive(on(target, x)), sums),
        "exclusive": lambda: same(m.exclusive(on(target, x)), sums - x),
        "running_max": lambda: same(m.running_max(on(target, x)), np.maximum.accumulate(x)),
        "running_min": lambda: same(m.running_min(on(target, x)), np.minimum.accumulate(x)),
        "segmented": lambda: same(m.segmented(on(target, x), on(target, heads)), sums - starts),
    }


def sort(m: Any, target: str) -> dict[str, Call]:
    keys = normal(20001)
    few = (np.arange(9001) % 7).astype(np.int64)
    order = np.argsort(few, kind="stable")

    def pairs() -> None:
        sorted_keys, values = m.sort_pairs(few, np.arange(9001).astype(np.int32))
        same(sorted_keys, few[order])
        same(values, order)

    def whole() -> None:
        for dtype in (np.float32, np.float16, np.int8, np.uint32):
            given = (keys * 50).astype(np.int32).astype(dtype)
            same(m.sort(on(target, given)), np.sort(given))

    return {
        "sort": whole,
        "argsort": lambda: same(m.argsort(on(target, few.astype(np.float16))), order),
        "sort_pairs": pairs,
    }


def histogram(m: Any, target: str) -> dict[str, Call]:
    words = np.random.default_rng(0).integers(0, 256, 70001)

    def counts() -> None:
        for bins in (300, 9000):
            same(m.bincount(on(target, words.astype(np.int32)), bins),
                 np.bincount(words, minlength=bins))  # fmt: skip

    return {
        "histogram": lambda: same(
            m.histogram(on(target, words.astype(np.uint8))), np.bincount(words, minlength=256)
        ),
        "bincount": counts,
    }


# --- numbers at random, stencils, sparse matrices ------------------------------------------------


def random(m: Any, target: str) -> dict[str, Call]:
    def drawn(name: str, *dtypes: str) -> Call:
        def call() -> None:
            for dtype in dtypes:
                x = np.asarray(getattr(m, name)((5001,), seed=1, dtype=dtype))
                assert np.isfinite(x).all() and len(np.unique(x)) > 1
                again = getattr(m, name)((33,), seed=1, dtype=dtype)
                same(again, x[:33])

        return call

    def words() -> None:
        out = on(target, np.zeros((65, 4), np.uint32))
        zeros = np.zeros((65, 4), np.uint32)
        m.philox_words(on(target, zeros), on(target, zeros[:, :2].copy()), out)
        same(out, np.tile(np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], np.uint32),
                          (65, 1)))  # fmt: skip

    def filled(name: str) -> Call:
        def call() -> None:
            for dtype in (np.float32, np.float64):
                out = on(target, np.zeros(5001, dtype))
                getattr(m, f"fill_{name}")(out, seed=1)
                same(out, getattr(m, name)((5001,), seed=1, dtype=np.dtype(dtype).name))

        return call

    return {
        "philox": words, "philox_words": words,
        "fill_uniform": filled("uniform"), "fill_normal": filled("normal"),
        "uniform": drawn("uniform", "f32", "f64"), "normal": drawn("normal", "f32", "f64"),
        "integers": drawn("integers", "i32", "u8", "i64"),
        **in_kernels(target, {
            "uniform_at": "std.random.uniform_at(i, 3)", "normal_at": "std.random.normal_at(i, 3)",
            "integers_at": "f32(std.random.integers_at(i, 3, 0, 9))",
        }),
    }  # fmt: skip


def stencil(m: Any, target: str) -> dict[str, Call]:
    x, plane = normal(5001), np.arange(67 * 129, dtype=np.int32).reshape(67, 129) % 91

    def convolve() -> None:
        for w in (1, 7, 256, 300):
            near(m.convolve1d(on(target, x), on(target, normal(w)), mode="valid"),
                 np.convolve(f64(x), f64(normal(w)), "valid"), 1e-2)  # fmt: skip
        near(m.convolve1d(x, normal(7)), np.convolve(f64(x), f64(normal(7)), "same"), 1e-4)

    wide = np.pad(plane, 1)
    around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
    return {
        "convolve1d": convolve,
        "laplace2d": lambda: same(m.laplace2d(on(target, plane)), around - 4 * plane),
    }


def sparse(m: Any, target: str) -> dict[str, Call]:
    def products(stored: int, rows: int) -> tuple[tuple[Array, ...], Array]:
        r = np.random.default_rng(stored)
        cuts = np.sort(r.integers(0, stored + 1, rows - 1))
        offsets = np.concatenate([[0], cuts, [stored]]).astype(np.int32)
        columns = r.integers(0, 40, stored).astype(np.int64)
        values, x = normal(stored, dtype=np.float64), normal(40, dtype=np.float64)
        terms = np.concatenate([[0], np.cumsum(values * x[columns])])
        return (offsets, columns, values, x), terms[offsets[1:]] - terms[offsets[:-1]]

    def whole() -> None:
        for stored in (0, 100, 700, 1500, 5000, 20000):
            given, right = products(stored, 101)
            near(m.matvec(*(on(target, x) for x in given)), right, 1e-9)

    def into() -> None:
        for lanes in (4, 8, 16, 32):
            given, right = products(1000, 77)
            out = on(target, np.zeros(77))
            m.matvec_into(*(on(target, x) for x in given), out, LANES=lanes)
            near(out, right, 1e-9)

    return {"matvec": whole, "matvec_into": into}


def transpose(m: Any, target: str) -> dict[str, Call]:
    x = normal(67, 129)

    def into() -> None:
        out = on(target, np.zeros((129, 67), np.float32))
        m.transpose_into(on(target, x), out)
        same(out, x.T)

    return {"transpose": lambda: same(m.transpose(on(target, x)), x.T), "transpose_into": into}


# --- products and rows ---------------------------------------------------------------------------


def linalg(m: Any, target: str) -> dict[str, Call]:
    def matmul() -> None:
        for rows, columns, k in SIZES:
            for dtype, error in ((np.float32, 1e-4), (BF16, 0.3), (np.float16, 0.05)):
                a, b = normal(rows, k, dtype=dtype), normal(k, columns, dtype=dtype, seed=1)
                near(m.matmul(on(target, a), on(target, b)), f64(a) @ f64(b), error)
        eight = np.arange(64 * 64).reshape(64, 64).astype(np.int8)
        same(m.matmul(eight, eight.T), eight.astype(np.int32) @ eight.astype(np.int32).T)
        batch = normal(3, 65, 64, dtype=BF16)
        near(m.matmul(batch, batch.transpose(0, 2, 1)), f64(batch) @ f64(batch).transpose(0, 2, 1),
             0.6)  # fmt: skip

    def tf32() -> None:
        for rows, columns, k in SIZES:
            a, b = normal(rows, k), normal(k, columns, seed=1)
            near(m.matmul_tf32(on(target, a), on(target, b)), f64(a) @ f64(b), 0.1)

    def f32x3() -> None:
        for rows, columns, k in SIZES:
            a, b = normal(rows, k), normal(k, columns, seed=1)
            near(m.matmul_f32x3(on(target, a), on(target, b)), f64(a) @ f64(b), 1e-3)

    def scaled() -> None:
        for rows, columns, k in SIZES:
            a, b = normal(rows, k, dtype=F8), normal(columns, k, dtype=F8, seed=1).T
            ones = np.ones(rows, np.float32), np.ones(columns, np.float32)
            near(m.matmul_f8(a, b, *ones), f64(a) @ f64(b), 1.0)

    def addmm() -> None:
        for rows, columns, k in SIZES:
            a, b, c = normal(rows, k), normal(k, columns, seed=1), normal(rows, columns, seed=2)
            right = 0.5 * f64(c) + 2.0 * f64(a) @ f64(b)
            near(m.addmm(c, a, b, 2.0, 0.5), right, 1e-3)

    def linear() -> None:
        for rows, columns, k in SIZES:
            shapes = ((rows, k), (columns, k), (columns,))
            x, w, bias = (normal(*s, dtype=BF16, seed=i) for i, s in enumerate(shapes))
            right = f64(x) @ f64(w).T + f64(bias)
            near(m.linear(x, w, bias, "relu"), np.maximum(right, 0), 0.4)
            near(m.linear(x, w, bias, "silu"), right / (1 + np.exp(-right)), 0.4)
            assert np.isfinite(f64(m.linear(x, w, bias, "gelu"))).all()
            near(m.linear(x, w, bias), right, 0.4)

    def gemv() -> None:
        for rows, _, k in SIZES:
            a, x = normal(rows, k, dtype=BF16), normal(k, dtype=BF16, seed=1)
            near(m.gemv(on(target, a), on(target, x)), f64(a) @ f64(x), 0.3)

    return {"matmul": matmul, "matmul_tf32": tf32, "matmul_f32x3": f32x3,
            "matmul_f8": scaled, "addmm": addmm, "linear": linear, "gemv": gemv}  # fmt: skip


ROWS = ((5, 1), (7, 129), (3, 8192), (2, 40000))


def nn(m: Any, target: str) -> dict[str, Call]:
    def softmax_of(x: Array, axis: int = -1) -> Array:
        e = np.exp(f64(x) - f64(x).max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)

    def rows(name: str, right: Callable[[Array, Array], Array], weights: int) -> Call:
        def call() -> None:
            for shape in ROWS:
                for dtype, error in ((np.float32, 1e-3), (BF16, 0.1)):
                    x, weight = normal(*shape, dtype=dtype), normal(shape[1], dtype=dtype, seed=1)
                    found = getattr(m, name)(on(target, x), *[on(target, weight)] * weights)
                    near(found, right(f64(x), f64(weight)), error)
            if not weights:
                x = normal(5, 33, 6)
                near(getattr(m, name)(x, axis=1),
                     np.moveaxis(right(np.moveaxis(x, 1, -1), x[0]), -1, 1), 1e-3)  # fmt: skip

        return call

    def norm(x: Array, w: Array, away: bool) -> Array:
        x = x - x.mean(axis=-1, keepdims=True) if away else x
        size = np.sqrt((x * x).mean(axis=-1, keepdims=True) + (1e-5 if away else 1e-6))
        return x / size * w + (w if away else 0.0)

    turned = normal(131, 67)
    return {
        "softmax": rows("softmax", lambda x, w: softmax_of(x), 0),
        "log_softmax": rows("log_softmax", lambda x, w: np.log(softmax_of(x)), 0),
        "layernorm": rows("layernorm", lambda x, w: norm(x, w, True), 2),
        "rmsnorm": rows("rmsnorm", lambda x, w: norm(x, w, False), 1),
        "transpose": lambda: same(m.transpose(on(target, turned)), turned.T),
    }


def conv(m: Any, target: str) -> dict[str, Call]:
    """In steps of the size of the kernel: each element is met once."""

    def one(name: str, rank: int) -> Call:
        def call() -> None:
            for dtype, n in ((np.float32, 9), (BF16, 70 if rank < 3 else 12)):
                x, f = (
                    normal(2, 5, *[n] * rank, dtype=dtype),
                    normal(5, 5, *[2] * rank, dtype=dtype),
                )
                found = getattr(m, name)(on(target, x), on(target, f), stride=2)
                at = (..., *[0] * rank)
                part = f64(f)[at].T if "transpose" in name else f64(f)[at]
                if "transpose" in name:
                    right = np.einsum("oi,bi...->bo...", part, f64(x))
                    near(f64(found)[(..., *[slice(None, None, 2)] * rank)], right, 0.1)
                else:
                    blocks = f64(x)[(..., *[slice(0, n // 2 * 2)] * rank)]
                    right = sum(
                        np.einsum("oi,bi...->bo...", f64(f)[(..., *p)],
                                  blocks[(..., *(slice(q, None, 2) for q in p))])
                        for p in np.ndindex(*[2] * rank)
                    )  # fmt: skip
                    near(found, right, 0.3)

        return call

    names = {f"conv{how}{r}d": r for r in (1, 2, 3) for how in ("", "_transpose")}
    return {name: one(name, rank) for name, rank in names.items()}


def attention(m: Any, target: str) -> dict[str, Call]:
    """Rows that see one key, in heads that share it."""
    q, k = normal(1, 4, 70, 64, dtype=BF16), normal(1, 2, 70, 64, dtype=BF16)
    shared, v = np.repeat(f64(k), 2, axis=1), on(target, k)
    own = {"window": (0, 0)}

    def backward() -> None:
        o, lse = m.attention_lse(on(target, q), v, v, **own)
        dq, _, dv = m.attention_backward(on(target, q), on(target, q), v, v, o, lse, **own)
        near(dq, 0 * f64(q), 0.1)
        near(dv, f64(q).reshape(1, 2, 2, 70, 64).sum(2), 0.1)

    def paged() -> None:
        pages = on(target, np.ascontiguousarray(k.swapaxes(1, 2).reshape(7, 10, 2, 64)))
        table = on(target, np.arange(7, dtype=np.int32)[None])
        lengths = on(target, np.array([70], np.int32))
        near(m.paged_attention(on(target, q), pages, pages, table, lengths, **own), shared, 0.02)

    return {
        "attention": lambda: near(m.attention(on(target, q), v, v, **own), shared, 0.02),
        "attention_lse": lambda: near(m.attention_lse(on(target, q), v, v, **own)[0], shared, 0.02),
        "attention_backward": backward, "paged_attention": paged,
    }  # fmt: skip


def pool(m: Any, target: str) -> dict[str, Call]:
    """Windows of two elements along each axis, side by side."""

    def one(name: str, rank: int) -> Call:
        def call() -> None:
            for dtype, n in ((np.float32, 10), (BF16, 300 if rank == 1 else 20)):
                x = normal(2, 3, *[n] * rank, dtype=dtype)
                parts = f64(x).reshape(2, 3, *[n // 2, 2] * rank)
                axes = tuple(range(3, 3 + 2 * rank, 2))
                right = parts.max(axes) if name[0] == "m" else parts.mean(axes)
                near(getattr(m, name)(on(target, x), 2), right, 0.0 if name[0] == "m" else 0.02)

        return call

    names = {f"{how}_pool{rank}d": rank for rank in (1, 2, 3) for how in ("max", "avg")}
    return {name: one(name, rank) for name, rank in names.items()}


def norm(m: Any, target: str) -> dict[str, Call]:
    """Each of a batch in which a mean is taken over the last axis, and over the first too."""

    def one(name: str, axes: tuple[int, ...], *more: int) -> Call:
        def call() -> None:
            for dtype in (np.float32, BF16):
                x = normal(3, 4, 700, dtype=dtype)
                far = f64(x) - f64(x).mean(axes, keepdims=True)
                right = far / np.sqrt((far**2).mean(axes, keepdims=True) + 1e-5)
                near(getattr(m, name)(on(target, x), *more), right, 0.05)

        return call

    def moments() -> None:
        x = normal(3, 4, 700)
        mean, variance = m.batch_moments(on(target, x))
        near(mean, f64(x).mean((0, 2)), 1e-4)
        near(variance, f64(x).var((0, 2)), 1e-4)

    return {
        "batch_norm": one("batch_norm", (0, 2)), "group_norm": one("group_norm", (2,), 4),
        "instance_norm": one("instance_norm", (2,)), "batch_moments": moments,
    }  # fmt: skip


def loss(m: Any, target: str) -> dict[str, Call]:
    x, t = normal(70, 129), abs(normal(70, 129, seed=1))
    classes = np.arange(70) % 129
    logs = f64(x) - np.log(np.exp(f64(x)).sum(1, keepdims=True))
    far = np.abs(f64(x) - f64(t))

    def one(name: str, losses: Array, of: Array) -> Call:
        def call() -> None:
            for reduction in ("none", "sum", "mean"):
                right = losses if reduction == "none" else getattr(losses, reduction)()
                found = getattr(m, name)(on(target, x), on(target, of), reduction=reduction)
                near(found, right, 0.05 if reduction == "sum" else 1e-4)

        return call

    picked = np.arange(70), classes
    losses = {
        "mse_loss": far**2, "l1_loss": far, "huber_loss": np.where(far < 1, far**2 / 2, far - 0.5),
        "binary_cross_entropy_with_logits": np.log1p(np.exp(f64(x))) - f64(x) * t,
        "kl_div": f64(t) * (np.log(f64(t)) - x),
    }  # fmt: skip
    return {
        **{name: one(name, right, t) for name, right in losses.items()},
        "nll_loss": one("nll_loss", -f64(x)[picked], classes),
        "cross_entropy": one("cross_entropy", -logs[picked], classes),
    }


def topk(m: Any, target: str) -> dict[str, Call]:
    def call() -> None:
        for dtype in (np.float32, BF16, np.int32):
            x = (normal(3, 3001) * 50).astype(dtype)
            order = np.argsort(-f64(x), axis=1, kind="stable")[:, :4]
            values, places = m.topk(on(target, x), 4)
            same(places, order)
            near(values, np.take_along_axis(f64(x), order, 1), 0.0)

    return {"topk": call}


def einsum(m: Any, target: str) -> dict[str, Call]:
    def call() -> None:
        for dtype, error in ((np.float32, 1e-4), (BF16, 0.2)):
            a, b = normal(70, 90, dtype=dtype), normal(40, 90, dtype=dtype, seed=1)
            near(m.einsum("ij,kj->ik", on(target, a), on(target, b)), f64(a) @ f64(b).T, error)
            near(m.einsum("ij->ji", on(target, a)), f64(a).T, 0.0)
        a, b, c = normal(70, 9), normal(40, 9, seed=1), normal(40, 70, seed=2)
        found = m.einsum("ij,kj,ki->", on(target, a), on(target, b), on(target, c))
        near(found, np.einsum("ij,kj,ki->", f64(a), f64(b), f64(c)), 1e-2)

    return {"einsum": call}


# --- functions for kernels -----------------------------------------------------------------------

TEXT = """
import std.random
@kernel tile[(96,)] grid[(ceil_div(n, 96),)]
def k(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    v = x[i] if i < n else f32(0)
    r = {call}
    if i < n: out[i] = r
"""


def in_kernels(target: str, calls: dict[str, str]) -> dict[str, Call]:
    """A kernel that has the call on each lane; what it gives is the matter of other tests."""

    def one(call: str) -> Call:
        def run() -> None:
            x, out = on(target, abs(normal(1001)) + 0.1), on(target, np.zeros(1001, np.float32))
            tessera.compile(TEXT.format(call=call), target=target).k(x, out)
            assert np.isfinite(f64(out)).all()

        return run

    return {name: one(call) for name, call in calls.items()}


def math(_: Any, target: str) -> dict[str, Call]:
    names = ("exp", "exp2", "sigmoid", "tanh", "log", "log2", "log1p", "sin", "cos", "erf", "gelu",
             "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh", "expm1",
             "log10")  # fmt: skip
    calls = {name: f"math.{name}(min(v, 0.9))" for name in names}
    calls |= {name: f"math.{name}(v + 0.1, v)" for name in ("pow", "atan2", "hypot")}
    return in_kernels(target, {**calls, "acosh": "math.acosh(abs(v) + 1.5)"})


def fast(_: Any, target: str) -> dict[str, Call]:
    names = ("log2", "log", "sin", "cos", "tanh", "sqrt", "rsqrt", "reciprocal", "sigmoid", "gelu")
    calls = {name: f"fast.{name}(v + 0.1)" for name in (*names, "exp", "exp2")}
    return in_kernels(
        target,
        {**calls, "divide": "fast.divide(v, v + 0.1)", "pow": "fast.pow(v + 0.1, v)",
         "machine": 'fast.machine("sqrt", v, v)'},
    )  # fmt: skip


def group(_: Any, target: str) -> dict[str, Call]:
    return in_kernels(
        target, {name: f"{name}(v)" for name in ("group_sum", "group_max", "group_min")}
    )


def arrays(m: Any, target: str) -> dict[str, Call]:
    x: Any = np.random.default_rng(0).integers(0, 40, 1000)
    y: Any = x[:300] + 20
    v: Any = normal(40).astype(np.float64)
    square: Any = normal(6, 6).astype(np.float64) + 6.0 * np.eye(6)
    edges = np.array([0.0, 3.0, 10.0, 40.0])

    def beside(name: str, *given: Any, **named: Any) -> Call:
        def call() -> None:
            found: Any = getattr(m, name)(*given, **named)
            want: Any = getattr(np, name)(*given, **named)
            if not isinstance(want, tuple):
                found, want = (found,), (want,)
            for a, b in zip(found, cast("tuple[Any, ...]", want), strict=True):
                near(a, b, 1e-9)

        return call

    def linear(name: str, *given: Any) -> Call:
        want: Any = getattr(np.linalg, name)(*given)
        return lambda: near(getattr(m, name)(*given), want, 1e-6 * np.abs(want).max())

    two = ("union1d", "intersect1d", "setdiff1d", "setxor1d", "append")
    return {
        "unique": beside("unique", x, return_index=True, return_inverse=True, return_counts=True),
        **{name: beside(name, x % 7) for name in ("flatnonzero", "nonzero", "argwhere")},
        "extract": beside("extract", x > 5, x), "delete": beside("delete", x, [0, 3]),
        **{name: beside(name, x, y) for name in two},
        "bincount": beside("bincount", x, weights=x * 0.5, minlength=50),
        "histogram": beside("histogram", v, bins=7),
        "histogram_between": lambda: near(
            m.histogram_between(x, edges)[0], np.histogram(x, edges)[0], 0.0
        ),
        **{name: beside(name, v, v[:5]) for name in ("convolve", "correlate")},
        "solve": linear("solve", square, v[:6]), "inv": linear("inv", square),
        "det": linear("det", square), "matrix_power": linear("matrix_power", square, 5),
    }  # fmt: skip


MODULES: Sequence[Callable[[Any, str], dict[str, Call]]] = (
    elementwise, reduce, scan, sort, histogram, random, stencil, sparse, transpose, linalg, nn,
    attention, conv, pool, norm, loss, topk, einsum, math, fast, group, arrays,
)  # fmt: skip
LANES = ("elementwise", "random", "stencil", "sparse", "transpose", "math", "fast", "group")
"""Modules whose kernels are quick to watch; the others are parts of their own."""


def calls_of(name: str, target: str) -> dict[str, Call]:
    """The calls of a module by the names of the functions."""
    (build,) = (build for build in MODULES if build.__name__ == name)
    return build(tessera.load(f"std.{name}", target=target), target)
