"""Slices in steps, gathers on both sides, contractions over several axes."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Program, of, rows_softmax

PROGRAMS = (
    Program(
        "stepped rows of both operands",
        1,
        """
@op.kernel
def kernel(a: bf16[2*m, k], b: bf16[n, 2*k], one: i8[m, k], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=32):
            acc += a[2*i+1:min(2*i+129, 2*m):2, p:p+32] @ b[j:j+64, 2*p:min(2*p+64, 2*k):2].T
        c[i:i+64, j:j+64] = acc
""",
        of(a=("bf16", "2*m k"), b=("bf16", "n 2*k"), one=("i8", "m k"), c=("f32", "m n")),
        lambda a: of(c=a["a"][1::2] @ a["b"][:, ::2].T),
        of(m=70, n=72, k=100),
        of(m=1024, n=1024, k=1024),
        tolerance=2e-5,
    ),
    Program(
        "written to every second row and column",
        1,
        """
@op.kernel
def kernel(a: f16[m, k], b: f16[k, n], c: mut f16[2*m, 2*n]):
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+128, p:p+64] @ b[p:p+64, j:j+128]
        c[2*i:min(2*i+256, 2*m):2, 2*j+1:min(2*j+257, 2*n):2] = acc.to(f16)
""",
        of(a=("f16", "m k"), b=("f16", "k n"), c=("f16", "2*m 2*n")),
        lambda a: (
            lambda c: (
                c.__setitem__((slice(0, None, 2), slice(1, None, 2)), a["a"] @ a["b"]),
                of(c=c),
            )[1]
        )(a["c"].copy()),
        of(m=70, n=130, k=100),
        of(m=1024, n=1024, k=1024),
    ),
    Program(
        "third columns in f32 with three products",
        3,
        """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], d: bf16[k, n], e: bf16[k, n], c: mut f32[m, 3*n]):
    for i, j in op.tile_range(m, n, step=(64, 32)):
        u = op.zeros((64, 32), f32)
        v = op.zeros((64, 32), f32)
        w = op.zeros((64, 32), f32)
        for p in op.tile_range(k, step=64):
            x = a[i:i+64, p:p+64]
            u += x @ b[p:p+64, j:j+32]
            v += x @ d[p:p+64, j:j+32]
            w += x @ e[p:p+64, j:j+32]
        c[i:i+64, 3*j:min(3*j+96, 3*n):3] = u
        c[i:i+64, 3*j+1:min(3*j+97, 3*n):3] = v
        c[i:i+64, 3*j+2:min(3*j+98, 3*n):3] = w
""",
        of(
            a=("bf16", "m k"),
            b=("bf16", "k n"),
            d=("bf16", "k n"),
            e=("bf16", "k n"),
            c=("f32", "m 3*n"),
        ),
        lambda a: of(
            c=np.stack([a["a"] @ a["b"], a["a"] @ a["d"], a["a"] @ a["e"]], 2).reshape(a["c"].shape)
        ),
        of(m=70, n=72, k=100),
        of(m=1024, n=1024, k=1024),
        tolerance=2e-5,
    ),
    Program(
        "strided patches of a picture",
        1,
        """
@op.kernel
def kernel(x: bf16[b, 8*h, 8*w, 4], f: bf16[8, 32, o], one: i8[h, w], y: mut f32[b, h, w, o]):
    for z, r, s, q in op.tile_range(b, h, w, o, step=(1, 1, 32, 64)):
        acc = op.zeros((32, 64), f32)
        for d in range(8):
            for e in range(8):
                row = x[z, r*8+d, s*8+e:min(s*8+e+256, 8*w):8, :]
                acc += row @ f[d, 4*e:4*e+4, q:q+64]
        y[z, r, s:s+32, q:q+64] = acc
""",
        of(
            x=("bf16", "b 8*h 8*w 4"), f=("bf16", "8 32 o"), one=("i8", "h w"), y=("f32", "b h w o")
        ),
        lambda a: (
            lambda b, h, w: of(
                y=np.einsum(
                    "bhdwec,deco->bhwo",
                    a["x"].reshape(b, h, 8, w, 8, 4),
                    a["f"].reshape(8, 8, 4, -1),
                )
            )
        )(a["y"].shape[0], a["y"].shape[1], a["y"].shape[2]),
        of(b=2, h=2, w=9, o=70),
        of(b=4, h=28, w=28, o=256),
        tolerance=2e-5,
    ),
    Program(
        "axis in the middle contracted",
        1,
        """
@op.kernel
def kernel(x: bf16[b, c, s], w: bf16[o, c], y: mut bf16[b, o, s]):
    for z, j, i in op.tile_range(b, o, s, step=(1, 128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(c, step=64):
            acc += w[j:j+128, p:p+64] @ x[z, p:p+64, i:i+128]
        y[z, j:j+128, i:i+128] = acc.to(bf16)
""",
        of(x=("bf16", "b c s"), w=("bf16", "o c"), y=("bf16", "b o s")),
        lambda a: of(y=a["w"] @ a["x"]),
        of(b=2, c=72, s=70, o=80),
        of(b=8, c=512, s=1024, o=512),
    ),
    Program(
        "tensor contraction of three axes",
        1,
        """
@op.kernel
def kernel(a: bf16[m, r, k], b: bf16[k, r, n], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for s in range(r):
            for p in op.tile_range(k, step=64):
                acc += a[i:i+64, s, p:p+64] @ b[p:p+64, s, j:j+64]
        c[i:i+64, j:j+64] = acc
""",
        of(a=("bf16", "m r k"), b=("bf16", "k r n"), c=("f32", "m n")),
        lambda a: of(c=np.einsum("mrk,krn->mn", a["a"], a["b"])),
        of(m=70, r=3, k=72, n=80),
        of(m=1024, r=4, k=256, n=1024),
        tolerance=2e-5,
    ),
    Program(
        "products of different depths into one",
        3,
        """
@op.kernel
def kernel(a: f16[m, k], b: f16[k, n], c: f16[m, 48], d: f16[48, n], e: f16[m, l],
           f: f16[n, l], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+128, p:p+64] @ b[p:p+64, j:j+64]
        acc += c[i:i+128, :] @ d[:, j:j+64]
        for p in range(0, l, 32):
            acc -= e[i:i+128, p:p+32] @ f[j:j+64, p:p+32].T
        y[i:i+128, j:j+64] = acc
""",
        of(
            a=("f16", "m k"),
            b=("f16", "k n"),
            c=("f16", "m 48"),
            d=("f16", "48 n"),
            e=("f16", "m l"),
            f=("f16", "n l"),
            y=("f32", "m n"),
        ),
        lambda a: of(y=a["a"] @ a["b"] + a["c"] @ a["d"] - a["e"] @ a["f"].T),
        of(m=70, k=72, n=80, l=40),
        of(m=1024, k=1024, n=1024, l=512),
        tolerance=2e-5,
    ),
    Program(
        "attention where keys are computed from a small code",
        3,
        """
@op.kernel
def kernel(q: bf16[m, 64], c: bf16[t, 32], wk: bf16[32, 64], wv: bf16[32, 64],
           o: mut bf16[m, 64]):
    for i in op.tile_range(m, step=64):
        qk = (q[i:i+64, :] @ wk[:, :].T).to(bf16)
        mx = op.full((64,), -inf, f32)
        dn = op.zeros((64,), f32)
        acc = op.zeros((64, 32), f32)
        for j in op.tile_range(t, step=64):
            cj = c[j:j+64, :]
            s = (qk @ cj.T).to(f32) * 0.125
            nm = max(mx, op.max(s, axis=1))
            e = exp(s - nm[:, None])
            f = exp(mx - nm)
            dn = dn * f + op.sum(e, axis=1)
            acc = acc * f[:, None] + e.to(bf16) @ cj
            mx = nm
        o[i:i+64, :] = ((acc / dn[:, None]).to(bf16) @ wv[:, :]).to(bf16)
""",
        of(
            q=("bf16", "m 64"),
            c=("bf16", "t 32"),
            wk=("bf16", "32 64"),
            wv=("bf16", "32 64"),
            o=("bf16", "m 64"),
        ),
        lambda a: of(o=rows_softmax(a["q"] @ (a["c"] @ a["wk"]).T * 0.125) @ (a["c"] @ a["wv"])),
        of(m=70, t=150),
        of(m=4096, t=4096),
        tolerance=2e-2,
    ),
    Program(
        "whole: softmax regression gradient",
        2,
        """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[k, 16], y: f32[m, 16]) -> f32[k, 16]:
    p = op.softmax((x @ w).to(f32), axis=1)
    return (x.T @ (p - y).to(bf16)).to(f32)
""",
        of(x=("bf16", "m k"), w=("bf16", "k 16"), y=("f32", "m 16")),
        lambda a: of(result=a["x"].T @ (rows_softmax(a["x"] @ a["w"]) - a["y"])),
        of(m=70, k=72),
        of(m=4096, k=512),
        tolerance=1e-2,
    ),
    Program(
        "two gathers as both factors",
        1,
        """
@op.kernel
def kernel(t: f16[v, k], a: i32[m], b: i32[n], y: mut f16[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += t[a[i:i+128], p:p+64] @ t[b[j:j+64], p:p+64].T
        y[i:i+128, j:j+64] = acc.to(f16)
""",
        of(t=("f16", "v k"), a=("i32", "m"), b=("i32", "n"), y=("f16", "m n")),
        lambda a: of(y=a["t"][a["a"].astype(int)] @ a["t"][a["b"].astype(int)].T),
        of(v=30, k=100, m=150, n=70),
        of(v=4096, k=1024, m=1024, n=1024),
        arguments=lambda r, s: of(a=r.integers(0, s["v"], s["m"]), b=r.integers(0, s["v"], s["n"])),
    ),
    Program(
        "gather along the contraction",
        1,
        """
@op.kernel
def kernel(x: bf16[s, m], w: bf16[v, n], ids: i32[s], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(s, step=64):
            acc += x[p:p+64, i:i+64].T @ w[ids[p:p+64], j:j+64]
        y[i:i+64, j:j+64] = acc
""",
        of(x=("bf16", "s m"), w=("bf16", "v n"), ids=("i32", "s"), y=("f32", "m n")),
        lambda a: of(y=a["x"].T @ a["w"][a["ids"].astype(int)]),
        of(s=100, m=70, v=30, n=90),
        of(s=1024, m=1024, v=4096, n=1024),
        arguments=lambda r, s: of(ids=r.integers(0, s["v"], s["s"])),
        tolerance=2e-5,
    ),
    Program(
        "normed operand on the fly, two passes",
        1,
        """
@op.kernel
def kernel(x: bf16[m, k], g: f32[k], w: bf16[n, k], y: mut bf16[m, n]):
    for i in op.tile_range(m, step=64):
        ss = op.zeros((64,), f32)
        for p in op.tile_range(k, step=64):
            t = x[i:i+64, p:p+64].to(f32)
            ss += op.sum(t * t, axis=1)
        r = op.rsqrt(ss / f32(k) + 1e-6)
        for j in op.tile_range(n, step=64):
            acc = op.zeros((64, 64), f32)
            for p in op.tile_range(k, step=64):
                xn = (x[i:i+64, p:p+64].to(f32) * r[:, None] * g[p:p+64][None, :]).to(bf16)
                acc += xn @ w[j:j+64, p:p+64].T
            y[i:i+64, j:j+64] = acc.to(bf16)
""",
        of(x=("bf16", "m k"), g=("f32", "k"), w=("bf16", "n k"), y=("bf16", "m n")),
        lambda a: of(
            y=(a["x"] / np.sqrt((a["x"] ** 2).mean(1, keepdims=True) + 1e-6) * a["g"]) @ a["w"].T
        ),
        of(m=70, k=100, n=72),
        of(m=2048, k=1024, n=1024),
        tolerance=1.2e-2,
    ),
    Program(
        "i8 with zero points folded in",
        1,
        """
@op.kernel
def kernel(a: i8[m, k], b: i8[k, n], za: i32[1], zb: i32[n], s: f32[n], y: mut f16[m, n]):
    z = za[0]
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), i32)
        ra = op.zeros((64,), i32)
        cb = op.zeros((64,), i32)
        for p in op.tile_range(k, step=64):
            x, w = a[i:i+64, p:p+64], b[p:p+64, j:j+64]
            acc += x @ w
            ra += op.sum(x, axis=1)
            cb += op.sum(w, axis=0)
        zz = zb[j:j+64]
        v = acc - z * cb[None, :] - ra[:, None] * zz[None, :] + z * zz[None, :] * i32(k)
        y[i:i+64, j:j+64] = (v.to(f32) * s[j:j+64][None, :]).to(f16)
""",
        of(
            a=("i8", "m k"),
            b=("i8", "k n"),
            za=("i32", "1"),
            zb=("i32", "n"),
            s=("f32", "n"),
            y=("f16", "m n"),
        ),
        lambda a: of(y=((a["a"] - a["za"][0]) @ (a["b"] - a["zb"])) * a["s"]),
        of(m=70, n=72, k=100),
        of(m=1024, n=1024, k=1024),
    ),
)
