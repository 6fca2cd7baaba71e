"""Programs of functions, conditions and ragged rows."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Program, of, rows_softmax

PROGRAMS = (
    Program(
        "a loop in a function",
        1,
        """
def tile_product(a, b, i, j, BM: int, BN: int, BK: int):
    acc = op.zeros((BM, BN), f32)
    for p in op.tile_range(a.shape[1], step=BK):
        acc += a[i:i+BM, p:p+BK] @ b[p:p+BK, j:j+BN]
    return acc

def finish(v, kind: int):
    if kind == 0:
        return v
    if kind == 1:
        return op.relu(v)
    return op.gelu(v)

@op.kernel
def kernel[BM: int = 128, BN: int = 64](a: bf16[m, k], b: bf16[k, n], c: mut bf16[m, n]
) where k % 8 == 0:
    for i, j in op.tile_range(m, n, step=(BM, BN)):
        c[i:i+BM, j:j+BN] = finish(tile_product(a, b, i, j, BM, BN, 64), 1).to(bf16)
""",
        of(a=("bf16", "m k"), b=("bf16", "k n"), c=("bf16", "m n")),
        lambda a: of(c=np.maximum(a["a"] @ a["b"], 0)),
        of(m=130, n=72, k=104),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "a function that returns at several places",
        1,
        """
def activated(v, mode):
    if mode == 1:
        return op.relu(v)
    elif mode == 2:
        return op.tanh(v)
    return v

@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], mode: i32[1], c: mut f32[m, n]):
    which = mode[0]
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+64, p:p+64] @ b[p:p+64, j:j+64]
        c[i:i+64, j:j+64] = activated(acc, which)
""",
        of(a=("bf16", "m k"), b=("bf16", "k n"), mode=("i32", "1"), c=("f32", "m n")),
        lambda a: of(
            c={1: lambda v: np.maximum(v, 0), 2: np.tanh}.get(int(a["mode"][0]), lambda v: v)(
                a["a"] @ a["b"]
            )
        ),
        of(m=70, n=72, k=104),
        of(m=2048, n=2048, k=2048),
        arguments=lambda r, s: of(mode=np.array([2])),
    ),
    Program(
        "a function that writes",
        1,
        """
def put(c, i, j, v):
    c[i:i+64, j:j+64] = v

@op.kernel
def kernel(a: f16[m, k], b: f16[n, k], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+64, p:p+64] @ b[j:j+64, p:p+64].T
        put(c, i, j, acc)
""",
        of(a=("f16", "m k"), b=("f16", "n k"), c=("f32", "m n")),
        lambda a: of(c=a["a"] @ a["b"].T),
        of(m=70, n=72, k=104),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "buffers and a pipeline",
        1,
        """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], c: mut bf16[m, n]):
    schedule.pipeline_stages(3)
    ta = op.shared((128, 64), dtype=bf16)
    tb = op.shared((64, 128), dtype=bf16)
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        with schedule.pipeline(double_buffer=True):
            for p in op.tile_range(k, step=64):
                op.prefetch(ta, a[i:i+128, p:p+64])
                op.prefetch(tb, b[p:p+64, j:j+128])
                op.barrier()
                acc += ta @ tb
        c[i:i+128, j:j+128] = acc.to(bf16)
""",
        of(a=("bf16", "m k"), b=("bf16", "k n"), c=("bf16", "m n")),
        lambda a: of(c=a["a"] @ a["b"]),
        of(m=130, n=72, k=104),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "the most likely class",
        1,
        """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[v, k]) -> i32[m]:
    out = op.empty((m,), i32)
    for i in op.tile_range(m, step=64):
        best = op.full((64,), -inf, f32)
        at = op.full((64,), 0, i32)
        for j in op.tile_range(v, step=128):
            acc = op.zeros((64, 128), f32)
            for p in op.tile_range(k, step=64):
                acc += x[i:i+64, p:p+64] @ w[j:j+128, p:p+64].T
            peak = op.max(acc, axis=1)
            where = op.argmax(acc, axis=1)
            better = peak > best
            at = op.where(better, where.to(i32) + i32(j), at)
            best = op.where(better, peak, best)
        out[i:i+64] = at
    return out
""",
        of(x=("bf16", "m k"), w=("bf16", "v k")),
        lambda a: of(result=(a["x"] @ a["w"].T).argmax(1)),
        of(m=70, k=104, v=300),
        of(m=4096, k=1024, v=4096),
        tolerance=1e-09,
    ),
    Program(
        "sums of columns beside a product",
        1,
        """
@op.kernel
def kernel(a: f16[k, m], b: f16[k, n], c: mut f32[m, n], colsum: mut f32[n]):
    for j in op.tile_range(n, step=64):
        total = op.zeros((64,), f32)
        for i in op.tile_range(m, step=64):
            acc = op.zeros((64, 64), f32)
            for p in op.tile_range(k, step=64):
                acc += a[p:p+64, i:i+64].T @ b[p:p+64, j:j+64]
            c[i:i+64, j:j+64] = acc
            total += op.sum(acc, axis=0)
        colsum[j:j+64] = total
""",
        of(a=("f16", "k m"), b=("f16", "k n"), c=("f32", "m n"), colsum=("f32", "n")),
        lambda a: of(c=a["a"].T @ a["b"], colsum=(a["a"].T @ a["b"]).sum(0)),
        of(m=130, n=72, k=104),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "nothing to do",
        1,
        """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], on: i32[1], c: mut f32[m, n]):
    if on[0] == 0:
        return
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+128, p:p+64] @ b[p:p+64, j:j+128]
        c[i:i+128, j:j+128] = acc
""",
        of(a=("bf16", "m k"), b=("bf16", "k n"), on=("i32", "1"), c=("f32", "m n")),
        lambda a: of(c=a["a"] @ a["b"] if a["on"][0] else a["c"]),
        of(m=130, n=72, k=104),
        of(m=2048, n=2048, k=2048),
        arguments=lambda r, s: of(on=np.array([1])),
    ),
    Program(
        "one of two products",
        2,
        """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], d: bf16[n, k], turned: i32[m], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        flip = turned[i] > 0
        for p in op.tile_range(k, step=64):
            x = a[i:i+64, p:p+64]
            if flip:
                acc += x @ d[j:j+64, p:p+64].T
            else:
                acc += x @ b[p:p+64, j:j+64]
        c[i:i+64, j:j+64] = acc
""",
        of(
            a=("bf16", "m k"),
            b=("bf16", "k n"),
            d=("bf16", "n k"),
            turned=("i32", "m"),
            c=("f32", "m n"),
        ),
        lambda a: of(
            c=np.where(
                np.repeat(a["turned"][::64] > 0, 64)[: len(a["a"]), None],
                a["a"] @ a["d"].T,
                a["a"] @ a["b"],
            )
        ),
        of(m=130, n=72, k=104),
        of(m=2048, n=2048, k=2048),
        arguments=lambda r, s: of(turned=r.integers(0, 2, s["m"])),
    ),
    Program(
        "normed rows and their product",
        1,
        """
@op.kernel
def kernel(x: bf16[m, 256], w: bf16[256, n], b: f32[n]) -> bf16[m, n]:
    y = op.empty((m, n), bf16)
    for i in op.tile_range(m, step=64):
        row = x[i:i+64, :].to(f32)
        mu = op.mean(row, axis=1)
        d = row - mu[:, None]
        sd = op.sqrt(op.mean(d * d, axis=1) + 0.00001)
        normed = (d / sd[:, None]).to(bf16)
        for j in op.tile_range(n, step=128):
            y[i:i+64, j:j+128] = (normed @ w[:, j:j+128] + b[j:j+128][None, :]).to(bf16)
    return y
""",
        of(x=("bf16", "m 256"), w=("bf16", "256 n"), b=("f32", "n")),
        lambda a: (
            lambda d: of(
                result=d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-05) @ a["w"] + a["b"]
            )
        )(a["x"] - a["x"].mean(1, keepdims=True)),
        of(m=70, n=136),
        of(m=4096, n=2048),
    ),
    Program(
        "attention of ragged sequences",
        2,
        """
@op.kernel
def kernel(q: bf16[t, 64], k: bf16[t, 64], v: bf16[t, 64], starts: i32[s], o: mut bf16[t, 64]):
    for b in op.tile_range(s - 1, independent=("b",)):
        lo = max(starts[b], 0)
        hi = starts[b + 1]
        for i in range(lo, hi, 64):
            qi = q[i:min(i+64, hi), :]
            top = op.full((64,), -inf, f32)
            den = op.zeros((64,), f32)
            num = op.zeros((64, 64), f32)
            for j in range(lo, hi, 64):
                sc = (qi @ k[j:min(j+64, hi), :].T).to(f32) * 0.125
                new = max(top, op.max(sc, axis=1))
                e = exp(sc - new[:, None])
                f = exp(top - new)
                den = den * f + op.sum(e, axis=1)
                num = num * f[:, None] + e.to(bf16) @ v[j:min(j+64, hi), :]
                top = new
            o[i:min(i+64, hi), :] = (num / den[:, None]).to(bf16)
""",
        of(
            q=("bf16", "t 64"),
            k=("bf16", "t 64"),
            v=("bf16", "t 64"),
            starts=("i32", "s"),
            o=("bf16", "t 64"),
        ),
        lambda a: of(
            o=np.concatenate(
                [
                    rows_softmax(a["q"][x:y] @ a["k"][x:y].T * 0.125) @ a["v"][x:y]
                    for x, y in zip(a["starts"][:-1], a["starts"][1:], strict=True)
                ]
            )
        ),
        of(t=300, s=4),
        of(t=8192, s=9),
        arguments=lambda r, s: of(
            starts=np.concatenate([[0], np.sort(r.integers(0, s["t"], s["s"] - 2)), [s["t"]]])
        ),
    ),
    Program(
        "heads of three kinds",
        1,
        """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[3, h, k, 64], y: mut bf16[3, h, m, 64]):
    for c, u, i in op.tile_range(3, h, m, step=(1, 1, 128)):
        acc = op.zeros((128, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += x[i:i+128, p:p+64] @ w[c, u, p:p+64, :]
        if c == 0:
            acc = acc * 0.125
        y[c, u, i:i+128, :] = acc.to(bf16)
""",
        of(x=("bf16", "m k"), w=("bf16", "3 h k 64"), y=("bf16", "3 h m 64")),
        lambda a: of(
            y=np.einsum("mk,chkd->chmd", a["x"], a["w"])
            * np.array([0.125, 1, 1])[:, None, None, None]
        ),
        of(m=130, h=2, k=104),
        of(m=2048, h=16, k=1024),
    ),
    Program(
        "a gradient that is subtracted",
        1,
        """
@op.kernel
def kernel(x: f16[b, m], y: f16[b, n], g: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = g[i:i+64, j:j+64]
        for p in op.tile_range(b, step=32):
            acc = acc - x[p:p+32, i:i+64].T @ y[p:p+32, j:j+64] * 0.01
        g[i:i+64, j:j+64] = acc
""",
        of(x=("f16", "b m"), y=("f16", "b n"), g=("f32", "m n")),
        lambda a: of(g=a["g"] - a["x"].T @ a["y"] * 0.01),
        of(b=70, m=130, n=72),
        of(b=4096, m=2048, n=2048),
    ),
)
