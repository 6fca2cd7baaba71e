"""Tile kernels for the tests of Schedule IR, each with what it computes in NumPy.

Whoever lowers Schedule IR may run its lowering on these: ``case.text``, ``case.arguments(sizes,
dtype, random)`` and ``case.expected(*arguments)``, a list of the arrays that must come out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
HEAD = "from tessera import op, schedule, tile\n\n"


def wide(x: Any) -> Array:
    return np.asarray(x).astype(np.float64)


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(e / e.sum(axis=axis, keepdims=True))


@dataclass(frozen=True)
class Case:
    """``shapes`` of the arguments by the names of sizes; a number is an argument as it is.

    ``written``: numbers of the arguments that are compared, results are behind them.
    ``leading``: compile-time values in brackets.
    """

    name: str
    text: str
    shapes: tuple[Any, ...]
    expected: Callable[..., Sequence[Any]]
    sizes: tuple[Mapping[str, int], ...]
    written: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ("f32",)
    leading: tuple[int, ...] = ()
    tolerance: float = 1e-5

    def arguments(
        self, sizes: Mapping[str, int], dtype: str, random: np.random.Generator
    ) -> list[Any]:
        made: list[Any] = []
        for shape in self.shapes:
            if not isinstance(shape, tuple):
                made.append(shape)
                continue
            if shape[-1:] == ("i8",):
                extents = [sizes[n] for n in shape[:-1]]
                made.append(random.integers(-9, 9, extents).astype(np.int8))
                continue
            extents = [n if isinstance(n, int) else sizes[n] for n in shape]
            numbers = random.random(extents, dtype=np.float32) - np.float32(0.5)
            made.append(np.asarray(numbers).astype(DTYPES[dtype]))
        return made


def product_sizes(*more: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
    fixed = [(1, 7, 3), (33, 65, 31), (16, 16, 16), (17, 1, 40), (4, 4, 0), (0, 5, 3), (1, 1, 1)]
    return (*({"m": m, "n": n, "k": k} for m, n, k in fixed), *more)


ROWS: tuple[Mapping[str, int], ...] = ({"m": 5, "n": 300}, {"m": 1, "n": 1}, {"m": 3, "n": 16})

CASES: list[Case] = [
    Case(
        "vec_add",
        """@op.kernel
def vec_add(A, B, C):
    schedule.vectorize(4)   # load 4 elements per thread
    C[:] = A + B
""",
        (("n",), ("n",), ("n",)),
        lambda a, b, c: [a + b],
        ({"n": 1}, {"n": 4}, {"n": 1023}, {"n": 0}),
        (2,),
        tolerance=0,
    ),
    Case(
        "matmul_schedule",
        """@op.kernel
def matmul(A, B, C):
    schedule.tile((128, 128, 32))
    schedule.use_shared_memory(True, padding=1)
    schedule.async_copy(True)
    return A @ B + C
""",
        (("m", "k"), ("k", "n"), ("m", "n")),
        lambda a, b, c: [wide(a) @ wide(b) + wide(c)],
        product_sizes(),
        dtypes=("f32", "bf16", "f16"),
    ),
    Case(
        "tiled_matmul",
        """@op.kernel
def tiled_matmul(A, B, C, tile_size: int = 32):
    # Allocate tile in shared memory
    tileA = op.shared((tile_size, tile_size), dtype=A.dtype)
    tileB = op.shared((tile_size, tile_size), dtype=B.dtype)

    for i, j, k in op.tile_range(A.shape[0], B.shape[1], A.shape[1], step=tile_size):
        tileA[:] = A[i:i+tile_size, k:k+tile_size]
        tileB[:] = B[k:k+tile_size, j:j+tile_size]
        C[i:i+tile_size, j:j+tile_size] += op.matmul(tileA, tileB)
""",
        (("m", "k"), ("k", "n"), ("m", "n"), 16),
        lambda a, b, c, t: [wide(c) + wide(a) @ wide(b)],
        product_sizes(),
        (2,),
        ("f32", "bf16", "f16"),
    ),
    Case(
        "pipelined_attention",
        """@op.kernel
def pipelined_attention(Q, K, V, O, block: int = 128):
    smem_Q = op.shared((block, Q.shape[-1]))
    smem_K = op.shared((block, K.shape[-1]))
    smem_V = op.shared((block, V.shape[-1]))

    for start in range(0, Q.shape[0], block):
        op.prefetch(smem_Q, Q[start:start+block])
        op.prefetch(smem_K, K[start:start+block])
        op.prefetch(smem_V, V[start:start+block])

        op.barrier()  # Ensure data ready
        scores = op.matmul(smem_Q, smem_K.T)
        weights = op.softmax(scores)
        out = op.matmul(weights, smem_V)
        O[start:start+block] = out
""",
        (("s", "d"), ("s", "d"), ("s", "d"), ("s", "d"), 32),
        lambda q, k, v, o, block: [
            np.concatenate(
                [
                    softmax(wide(q[b : b + block]) @ wide(k[b : b + block]).T)
                    @ wide(v[b : b + block])
                    for b in range(0, len(q), block)
                ]
            )
        ],
        ({"s": 64, "d": 16}, {"s": 75, "d": 8}),
        (3,),
        ("f32", "bf16"),
        tolerance=1e-4,
    ),
    Case(
        "pipeline_prefetch_mma",
        """@op.kernel
def gemm(A, B, C):
    with schedule.pipeline(double_buffer=True):
        A_tile = schedule.prefetch(A, scope="shared")
        B_tile = schedule.prefetch(B, scope="shared")
        C_tile = tile.mma_sync(A_tile, B_tile)
    C[:] = C_tile
""",
        (("m", "k"), ("k", "n"), ("m", "n")),
        lambda a, b, c: [wide(a) @ wide(b)],
        product_sizes(),
        (2,),
        ("f32", "bf16", "f16"),
    ),
    Case(
        "softmax_rows",
        """@op.kernel
def softmax(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=1):
        row = x[i, :]
        e = exp(row - op.max(row))
        y[i, :] = e / op.sum(e)
    return y
""",
        (("m", "n"),),
        lambda x: [softmax(x)],
        ROWS,
    ),
    Case(
        "linear",
        """@op.kernel
def linear[BM: int = 32, BN: int = 16, BK: int = 8](x, w, bias):
    y = op.empty((x.shape[0], w.shape[0]), x.dtype)
    for i, j in op.tile_range(x.shape[0], w.shape[0], step=(BM, BN)):
        acc = op.zeros((BM, BN), f32)
        for p in op.tile_range(x.shape[1], step=BK):
            acc += x[i:i+BM, p:p+BK] @ w[j:j+BN, p:p+BK].T
        y[i:i+BM, j:j+BN] = op.relu(acc + bias[j:j+BN][None, :]).to(x.dtype)
    return y
""",
        (("m", "k"), ("n", "k"), ("n",)),
        lambda x, w, b: [np.maximum(wide(x) @ wide(w).T + wide(b), 0)],
        product_sizes(),
        dtypes=("bf16", "f32"),
        leading=(32, 16, 8),
    ),
    Case(
        "softmax_of_product",
        """@op.kernel
def f(A, B):
    return op.softmax(A @ B, axis=-1)
""",
        (("m", "k"), ("k", "n")),
        lambda a, b: [softmax(wide(a) @ wide(b))],
        product_sizes()[:4],
        dtypes=("f32", "bf16"),
    ),
    Case(
        "attention_of_tensors",
        """@op.kernel
def f(Q, K, V, scale: f32):
    return op.softmax(Q @ K.T * scale) @ V
""",
        (("m", "k"), ("n", "k"), ("n", "k"), np.float32(0.5)),
        lambda q, k, v, s: [softmax(wide(q) @ wide(k).T * float(s)) @ wide(v)],
        product_sizes()[:4],
        tolerance=1e-4,
    ),
    Case(
        "normalised_columns",
        """@op.kernel
def f(A):
    B = A - op.mean(A, axis=0)[None, :]
    return B * B
""",
        (("m", "n"),),
        lambda a: [(wide(a) - wide(a).mean(axis=0)) ** 2],
        ROWS,
    ),
    Case(
        "layer_norm",
        """@op.kernel
def layernorm(x: f32[m, n], g: f32[n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=4):
        rows = x[i:i+4, :]
        scale = 1.0 / op.sqrt(op.var(rows, axis=1) + 1e-5)
        y[i:i+4, :] = (rows - op.mean(rows, axis=1)[:, None]) * scale[:, None] * g[None, :]
    return y
""",
        (("m", "n"), ("n",)),
        lambda x, g: [
            (wide(x) - wide(x).mean(1, keepdims=True))
            / np.sqrt(wide(x).var(1, keepdims=True) + 1e-5)
            * wide(g)
        ],
        ROWS,
        tolerance=1e-3,
    ),
    Case(
        "transposed_sum",
        """@op.kernel
def f(A, B, C):
    C[:] = A.T + B * 2.0
""",
        (("m", "n"), ("n", "m"), ("n", "m")),
        lambda a, b, c: [wide(a).T + 2 * wide(b)],
        ROWS,
        (2,),
    ),
    Case(
        "steps_and_columns",
        """@op.kernel
def f(A: f32[m, n], C: mut f32[m]):
    for i in op.tile_range(m, step=2):
        C[i:i+2] += op.sum(A[i:i+2, ::2], axis=1) - op.max(A[i:i+2, 1::3], axis=1)
""",
        (("m", "n"), ("m",)),
        lambda a, c: [wide(c) + wide(a)[:, ::2].sum(1) - wide(a)[:, 1::3].max(1, initial=-np.inf)],
        ({"m": 5, "n": 40}, {"m": 3, "n": 7}),
        (1,),
    ),
    Case(
        "running_sum",
        """@op.kernel
def running[BLOCK: int = 16](x: f32[n], out: mut f32[n]):
    before: f32 = 0.0
    for i in op.tile_range(n, step=BLOCK):
        out[i:i+BLOCK] = op.cumsum(x[i:i+BLOCK]) + before
        before = before + op.sum(x[i:i+BLOCK])
""",
        (("n",), ("n",)),
        lambda x, out: [np.cumsum(wide(x))],
        ({"n": 40}, {"n": 1}, {"n": 16}),
        (1,),
        leading=(16,),
    ),
    Case(
        "uniform_if",
        """@op.kernel
def f(A: f32[m, n], limit: f32, C: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(4, 8)):
        t = A[i:i+4, j:j+8]
        s = op.sum(A[i, :])
        if s > limit:
            t = t * 2.0
        elif s < -limit:
            t = -t
        C[i:i+4, j:j+8] = t
""",
        (("m", "n"), np.float32(0.25), ("m", "n")),
        lambda a, limit, c: [
            np.concatenate(
                [
                    wide(a[i : i + 4])
                    * (2 if a[i].sum() > limit else -1 if a[i].sum() < -limit else 1)
                    for i in range(0, len(a), 4)
                ]
            )
        ],
        ({"m": 9, "n": 7}, {"m": 4, "n": 3}),
        (2,),
    ),
    Case(
        "best_places",
        """@op.kernel
def f(A: f32[m, n], best: mut i64[m], value: mut f32[m]):
    for i in op.tile_range(m, step=1):
        row = A[i, :]
        best[i] = i64(op.argmax(row))
        value[i] = op.max(row)
""",
        (("m", "n"), np.zeros(5, np.int64), ("m",)),
        lambda a, best, value: [a.argmax(1), a.max(1)],
        ({"m": 5, "n": 40}, {"m": 5, "n": 1}),
        (1, 2),
        tolerance=0,
    ),
    Case(
        "triangle",
        """@op.kernel
def f(A: f32[n, n], x: f32[n], y: mut f32[n]):
    for i in op.tile_range(n, step=8):
        acc = op.zeros((8,), f32)
        for j in range(0, i + 8, 8):
            block = op.causal(A[i:i+8, j:j+8], row=i, column=j)
            block = op.where(block == -inf, 0.0, block)
            acc += op.sum(block * x[j:j+8][None, :], axis=1)
        y[i:i+8] = acc
""",
        (("n", "n"), ("n",), ("n",)),
        lambda a, x, y: [np.tril(wide(a)) @ wide(x)],
        ({"n": 8}, {"n": 21}, {"n": 1}),
        (2,),
    ),
    Case(
        "batched_product",
        """@op.kernel
def f(A, B):
    return A @ B
""",
        ((2, 3, "m", "k"), (2, 3, "k", "n")),
        lambda a, b: [wide(a) @ wide(b)],
        product_sizes()[:4],
    ),
    Case(
        "chained_products",
        """@op.kernel
def f(A, B, C):
    return (A @ B).to(A.dtype) @ C
""",
        (("m", "k"), ("k", "n"), ("n", "m")),
        lambda a, b, c: [wide(a) @ wide(b) @ wide(c)],
        product_sizes()[:4],
        tolerance=1e-4,
    ),
    Case(
        "gathered_rows",
        """@op.kernel
def f(A: f32[m, n], idx: i32[k], C: mut f32[k, n]):
    for p in op.tile_range(k, step=4):
        rows = idx[p:p+4]
        C[p:p+4, :] = A[rows, :] * 2.0
""",
        (("m", "n"), np.array([3, 1, 4, 0, 2], np.int32), (5, "n")),
        lambda a, idx, c: [2 * wide(a)[idx]],
        ({"m": 5, "n": 40}, {"m": 9, "n": 3}),
        (2,),
    ),
    Case(
        "stencil",
        """@op.kernel
def f(x: f32[n], y: mut f32[n]):
    for i in op.tile_range(n, step=16):
        left = op.window(x, i - 1, 16, fill=0)[0:min(16, n - i)]
        right = op.window(x, i + 1, 16, fill=1.0)[0:min(16, n - i)]
        y[i:i+16] = left + right
""",
        (("n",), ("n",)),
        lambda x, y: [np.concatenate([[0], wide(x)[:-1]]) + np.concatenate([wide(x)[1:], [1]])],
        ({"n": 50}, {"n": 16}, {"n": 1}),
        (1,),
    ),
    Case(
        "parts_of_a_buffer",
        """@op.kernel
def f(x: f32[n], y: mut f32[n]):
    buf = op.shared((16,), dtype=f32)
    for i in op.tile_range(n, step=16):
        buf[:] = x[i:i+16]
        buf[0:4] = 1.0
        y[i:i+16] = buf[0:min(16, n - i)]
""",
        (("n",), ("n",)),
        lambda x, y: [np.where(np.arange(len(x)) % 16 < 4, 1.0, wide(x))],
        ({"n": 40}, {"n": 18}),
        (1,),
    ),
    Case(
        "functions_of_tiles",
        """def swish(t, s: f32):
    return t * op.sigmoid(t * s)

def halve(v: f32):
    return v * 0.5

@op.kernel
def f(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=4):
        y[i:i+4, :] = swish(x[i:i+4, :], halve(2.0))
    return y
""",
        (("m", "n"),),
        lambda x: [wide(x) / (1 + np.exp(-wide(x)))],
        ROWS,
    ),
    Case(
        "two_statements",
        """@op.kernel
def f(A: f32[m, n], B: f32[m, n], C: mut f32[m, n], D: mut f32[m, n]):
    C[:] = A + B
    D[:] = C * 2.0
""",
        (("m", "n"), ("m", "n"), ("m", "n"), ("m", "n")),
        lambda a, b, c, d: [wide(a) + wide(b), 2 * (wide(a) + wide(b))],
        ROWS,
        (2, 3),
    ),
    Case(
        "two_results",
        """@op.kernel
def f(A: f32[m, n]):
    return A + 1.0, op.sum(A, axis=0)
""",
        (("m", "n"),),
        lambda a: [wide(a) + 1, wide(a).sum(0)],
        ROWS,
    ),
    Case(
        "filled_then_summed",
        """@op.kernel
def f(A: f32[m, n]) -> f32[m]:
    y = op.zeros((m,), f32)
    for i, j in op.tile_range(m, n, step=(4, 8)):
        y[i:i+4] += op.sum(A[i:i+4, j:j+8], axis=1)
    return y
""",
        (("m", "n"),),
        lambda a: [wide(a).sum(1)],
        ROWS,
        tolerance=1e-4,
    ),
    Case(
        "columns_of_integers",
        """@op.kernel
def f(A, B, s: f32[m]):
    return f32(A @ B) * s[:, None]
""",
        (("m", "k", "i8"), ("k", "n", "i8"), ("m",)),
        lambda a, b, s: [(a.astype(np.int64) @ b.astype(np.int64)) * wide(s)[:, None]],
        product_sizes()[:4],
    ),
    Case(
        "while_loop",
        """@op.kernel
def f(x: f32[n], y: mut f32[n], times: i32):
    for i in op.tile_range(n, step=16):
        t = x[i:i+16]
        k: i32 = 0
        while k < times:
            t = t * 0.5 + 1.0
            k = k + 1
        y[i:i+16] = t
""",
        (("n",), ("n",), np.int32(3)),
        lambda x, y, times: [wide(x) / 8 + 1.75],
        ({"n": 50}, {"n": 16}),
        (1,),
    ),
]  # fmt: skip


def close(found: Any, expected: Any, dtype: str, tolerance: float) -> None:
    """Equal up to the rounding of the dtype and the order of sums."""
    room = {"f32": tolerance, "f16": 4e-3, "bf16": 3e-2}[dtype]
    np.testing.assert_allclose(wide(found), wide(expected), rtol=room, atol=room)
