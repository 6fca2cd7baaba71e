"""Further programs: backward passes, masks, strides, loops with a condition, waves as factors."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Numbers, Program, of

TWO_EIGHTS = Program(
    "two kinds of eight bit floats", 1, """
@op.kernel
def kernel(a: f8e5m2[m, k], b: f8e4m3[k, n], s: f32[1], c: mut f16[m, n]):
    t = s[0]
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64))
        for p in range(0, k, 64):
            acc += tile.mma_sync(a[i:i+128, p:p+64], b[p:p+64, j:j+64])
        c[i:i+128, j:j+64] = (acc * t).to(f16)
""",
    of(a=("f8e5m2", "m k"), b=("f8e4m3", "k n"), s=("f32", "1"), c=("f16", "m n")),
    lambda a: of(c=a["a"] @ a["b"] * a["s"][0]),
    of(m=130, n=72, k=100), of(m=2048, n=2048, k=2048),
)  # fmt: skip


def _backward(a: Numbers) -> Numbers:
    p = np.exp(a["q"] @ a["k"].T * 0.125 - a["lse"][:, None])
    ds = p * (a["do"] @ a["v"].T - a["delta"][:, None]) * 0.125
    return of(dv=p.T @ a["do"], dk=ds.T @ a["q"])


BACKWARD = Program(
    "attention backward", 4, """
@op.kernel
def kernel(q: bf16[m, 64], k: bf16[t, 64], v: bf16[t, 64], do: bf16[m, 64], lse: f32[m],
           delta: f32[m], dk: mut f32[t, 64], dv: mut f32[t, 64]):
    for j in op.tile_range(t, step=64):
        kj, vj = k[j:j+64, :], v[j:j+64, :]
        gk = op.zeros((64, 64), f32)
        gv = op.zeros((64, 64), f32)
        for i in op.tile_range(m, step=64):
            qi, di = q[i:i+64, :], do[i:i+64, :]
            s = (qi @ kj.T).to(f32) * 0.125
            p = exp(s - lse[i:i+64][:, None])
            gv += p.to(bf16).T @ di
            dp = (di @ vj.T).to(f32)
            ds = p * (dp - delta[i:i+64][:, None]) * 0.125
            gk += ds.to(bf16).T @ qi
        dk[j:j+64, :] = gk
        dv[j:j+64, :] = gv
""",
    of(q=("bf16", "m 64"), k=("bf16", "t 64"), v=("bf16", "t 64"), do=("bf16", "m 64"),
       lse=("f32", "m"), delta=("f32", "m"), dk=("f32", "t 64"), dv=("f32", "t 64")),
    _backward, of(m=100, t=130), of(m=4096, t=4096),
    arguments=lambda r, s: of(lse=r.uniform(3, 5, s["m"])), tolerance=2e-2,
)  # fmt: skip

MASK = Program(
    "mean of the rows that a mask names", 1, """
@op.kernel
def kernel(mask: i8[m, k], v: bf16[k, n], y: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 128)):
        acc = op.zeros((64, 128), f32)
        count = op.zeros((64,), f32)
        for p in op.tile_range(k, step=64):
            on = (mask[i:i+64, p:p+64] > 0).to(bf16)
            acc += on @ v[p:p+64, j:j+128]
            count += op.sum(on.to(f32), axis=1)
        y[i:i+64, j:j+128] = (acc / max(count, 1.0)[:, None]).to(bf16)
""",
    of(mask=("i8", "m k"), v=("bf16", "k n"), y=("bf16", "m n")),
    lambda a: of(y=(a["mask"] > 0) @ a["v"] / np.maximum((a["mask"] > 0).sum(1), 1)[:, None]),
    of(m=70, n=136, k=100), of(m=2048, n=2048, k=2048),
)  # fmt: skip

STRIDED = Program(
    "convolution of every second place", 1, """
@op.kernel
def kernel(x: f16[b, 2*t + 4, c], w: f16[5, c, o], y: mut f16[b, t, o]):
    for z, i, j in op.tile_range(b, t, o, step=(1, 64, 64)):
        acc = op.zeros((64, 64), f32)
        for s in range(5):
            for p in op.tile_range(c, step=64):
                rows = x[z, 2*i+s:min(2*i+s+128, 2*t+s):2, p:p+64]
                acc += rows @ w[s, p:p+64, j:j+64]
        y[z, i:i+64, j:j+64] = acc.to(f16)
""",
    of(x=("f16", "b 2*t+4 c"), w=("f16", "5 c o"), y=("f16", "b t o")),
    lambda a: of(y=sum(
        a["x"][:, s : s + 2 * a["y"].shape[1] : 2] @ a["w"][s] for s in range(5))),
    of(b=2, t=70, c=72, o=80), of(b=8, t=1024, c=256, o=256),
)  # fmt: skip

SEVERAL = Program(
    "a function of two results, a kernel of two results", 2, """
def both(a, b, c):
    return a @ b, a @ c

@op.kernel
def kernel(x: bf16[m, k], p: bf16[k, n], q: bf16[k, n]) -> (bf16[m, n], f32[m]):
    y = op.empty((m, n), bf16)
    s = op.zeros((m,), f32)
    for i, j in op.tile_range(m, n, step=(64, 64)):
        u = op.zeros((64, 64), f32)
        v = op.zeros((64, 64), f32)
        for r in op.tile_range(k, step=64):
            d, e = both(x[i:i+64, r:r+64], p[r:r+64, j:j+64], q[r:r+64, j:j+64])
            u += d
            v += e
        y[i:i+64, j:j+64] = (u * op.sigmoid(v)).to(bf16)
        s[i:i+64] += op.sum(u, axis=1)
    return y, s
""",
    of(x=("bf16", "m k"), p=("bf16", "k n"), q=("bf16", "k n")),
    lambda a: of(result0=(a["x"] @ a["p"]) / (1 + np.exp(-a["x"] @ a["q"])),
                 result1=(a["x"] @ a["p"]).sum(1)),
    of(m=70, n=72, k=100), of(m=2048, n=2048, k=2048),
)  # fmt: skip

UNTIL = Program(
    "rows as long as the longest of a tile", 1, """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[k, n], lengths: i32[m], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        longest = op.max(lengths[i:i+64])
        acc = op.zeros((64, 64), f32)
        p = 0
        while p < k:
            if p >= longest:
                break
            row = lengths[i:i+64][:, None]
            inside = p + op.iota((64, 64), axis=1) < row
            part = op.where(inside, x[i:i+64, p:p+64].to(f32), 0.0).to(bf16)
            acc += part @ w[p:p+64, j:j+64]
            p += 64
        y[i:i+64, j:j+64] = acc
""",
    of(x=("bf16", "m k"), w=("bf16", "k n"), lengths=("i32", "m"), y=("f32", "m n")),
    lambda a: of(y=np.where(
        np.arange(a["x"].shape[1])[None, :] < a["lengths"][:, None], a["x"], 0) @ a["w"]),
    of(m=70, n=72, k=200), of(m=2048, n=2048, k=2048),
    arguments=lambda r, s: of(lengths=r.integers(0, s["k"] + 1, s["m"])),
)  # fmt: skip

HEADS = Program(
    "heads between two axes", 1, """
@op.kernel
def kernel(a: bf16[b, h, m, k], c: bf16[b, h, n, k], y: mut bf16[b, m, h, n]):
    for z, u in op.tile_range(b, h):
        for i, j in op.tile_range(m, n, step=(128, 128)):
            acc = op.zeros((128, 128), f32)
            for p in op.tile_range(k, step=64):
                acc += a[z, u, i:i+128, p:p+64] @ c[z, u, j:j+128, p:p+64].T
            y[z, i:i+128, u, j:j+128] = acc.to(bf16)
""",
    of(a=("bf16", "b h m k"), c=("bf16", "b h n k"), y=("bf16", "b m h n")),
    lambda a: of(y=np.einsum("zuik,zujk->ziuj", a["a"], a["c"])),
    of(b=2, h=3, m=70, n=72, k=100), of(b=4, h=8, m=1024, n=1024, k=256),
)  # fmt: skip

CHAIN = Program(
    "three matrices in one expression", 2, """
@op.kernel
def kernel(a: f16[m, k], b: f16[k, 128], c: f16[128, n]) -> f16[m, n]:
    return (a @ b) @ c
""",
    of(a=("f16", "m k"), b=("f16", "k 128"), c=("f16", "128 n")),
    lambda a: of(result=(a["a"] @ a["b"]) @ a["c"]),
    of(m=70, k=72, n=90), of(m=2048, k=2048, n=2048), tolerance=2e-2,
)  # fmt: skip

BAGS = Program(
    "means of gathered rows as a factor", 1, """
@op.kernel
def kernel(table: bf16[v, k], ids: i32[m, 4], w: bf16[k, n], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            bag = op.zeros((64, 64), f32)
            for s in range(4):
                bag += table[ids[i:i+64, s], p:p+64].to(f32)
            acc += (bag * 0.25).to(bf16) @ w[p:p+64, j:j+64]
        y[i:i+64, j:j+64] = acc
""",
    of(table=("bf16", "v k"), ids=("i32", "m 4"), w=("bf16", "k n"), y=("f32", "m n")),
    lambda a: of(y=a["table"][a["ids"].astype(int)].mean(1) @ a["w"]),
    of(v=20, m=70, k=100, n=72), of(v=1000, m=2048, k=1024, n=2048),
    arguments=lambda r, s: of(ids=r.integers(0, s["v"], (s["m"], 4))),
)  # fmt: skip

PROGRAMS = (TWO_EIGHTS, BACKWARD, MASK, STRIDED, SEVERAL, UNTIL, HEADS, CHAIN, BAGS)
