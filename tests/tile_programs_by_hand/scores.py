"""Scores of rows with rows: attention with biases and caches, nearest, losses, kernels."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Program, of, rows_softmax

PROGRAMS = (
    Program(
        "alibi attention",
        2,
        """
@op.kernel
def kernel(q: bf16[h, m, 64], k: bf16[h, m, 64], v: bf16[h, m, 64], slope: f32[h],
           o: mut bf16[h, m, 64]):
    for z, i in op.tile_range(h, m, step=(1, 64)):
        qi = q[z, i:i+64, :]
        sl = slope[z]
        mx = op.full((64,), -inf, f32)
        dn = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for j in range(0, i + 64, 64):
            kj = k[z, j:j+64, :]
            s = (qi @ kj.T).to(f32) * 0.125
            row = (i + op.iota((64, 64), axis=0)).to(f32)
            col = (j + op.iota((64, 64), axis=1)).to(f32)
            s = op.where(col > row, -inf, s - sl * (row - col))
            nm = max(mx, op.max(s, axis=1))
            e = exp(s - nm[:, None])
            c = exp(mx - nm)
            dn = dn * c + op.sum(e, axis=1)
            acc = acc * c[:, None] + e.to(bf16) @ v[z, j:j+64, :]
            mx = nm
        o[z, i:i+64, :] = (acc / dn[:, None]).to(bf16)
""",
        of(
            q=("bf16", "h m 64"),
            k=("bf16", "h m 64"),
            v=("bf16", "h m 64"),
            slope=("f32", "h"),
            o=("bf16", "h m 64"),
        ),
        lambda a: of(
            o=np.stack(
                [
                    rows_softmax(
                        np.where(
                            np.tri(q.shape[0]) > 0,
                            q @ k.T * 0.125
                            - s * np.subtract.outer(np.arange(len(q)), np.arange(len(q))),
                            -np.inf,
                        )
                    )
                    @ v
                    for q, k, v, s in zip(a["q"], a["k"], a["v"], a["slope"], strict=True)
                ]
            )
        ),
        of(h=2, m=150),
        of(h=16, m=2048),
        tolerance=1.2e-2,
    ),
    Program(
        "attention with keys of two kinds, prefix shared",
        4,
        """
def step(q, kj, vj, mx, dn, acc):
    s = (q @ kj.T).to(f32) * 0.125
    nm = max(mx, op.max(s, axis=1))
    e = exp(s - nm[:, None])
    c = exp(mx - nm)
    return nm, dn * c + op.sum(e, axis=1), acc * c[:, None] + e.to(bf16) @ vj

@op.kernel
def kernel(q: bf16[b, 64, 64], pk: bf16[p, 64], pv: bf16[p, 64], k: bf16[b, t, 64],
           v: bf16[b, t, 64], o: mut bf16[b, 64, 64]):
    for z in op.tile_range(b):
        qi = q[z, :, :]
        mx = op.full((64,), -inf, f32)
        dn = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(p, step=64):
            mx, dn, acc = step(qi, pk[j:j+64, :], pv[j:j+64, :], mx, dn, acc)
        for j in op.tile_range(t, step=64):
            mx, dn, acc = step(qi, k[z, j:j+64, :], v[z, j:j+64, :], mx, dn, acc)
        o[z, :, :] = (acc / dn[:, None]).to(bf16)
""",
        of(
            q=("bf16", "b 64 64"),
            pk=("bf16", "p 64"),
            pv=("bf16", "p 64"),
            k=("bf16", "b t 64"),
            v=("bf16", "b t 64"),
            o=("bf16", "b 64 64"),
        ),
        lambda a: of(
            o=np.stack(
                [
                    rows_softmax(q @ np.concatenate([a["pk"], k]).T * 0.125)
                    @ np.concatenate([a["pv"], v])
                    for q, k, v in zip(a["q"], a["k"], a["v"], strict=True)
                ]
            )
        ),
        of(b=2, p=100, t=150),
        of(b=128, p=2048, t=512),
        tolerance=1e-2,
    ),
    Program(
        "soft capped attention with a sink",
        2,
        """
@op.kernel
def kernel(q: bf16[h, m, 128], k: bf16[h, n, 128], v: bf16[h, n, 128], sink: f32[h],
           o: mut bf16[h, m, 128]):
    for z, i in op.tile_range(h, m, step=(1, 64)):
        qi = q[z, i:i+64, :]
        mx = op.full((64,), sink[z], f32)
        dn = op.ones((64,), f32)
        acc = op.zeros((64, 128), f32)
        for j in op.tile_range(n, step=64):
            s = (qi @ k[z, j:j+64, :].T).to(f32) * 0.0883883
            s = 30.0 * op.tanh(s / 30.0)
            nm = max(mx, op.max(s, axis=1))
            e = exp(s - nm[:, None])
            c = exp(mx - nm)
            dn = dn * c + op.sum(e, axis=1)
            acc = acc * c[:, None] + e.to(bf16) @ v[z, j:j+64, :]
            mx = nm
        o[z, i:i+64, :] = (acc / dn[:, None]).to(bf16)
""",
        of(
            q=("bf16", "h m 128"),
            k=("bf16", "h n 128"),
            v=("bf16", "h n 128"),
            sink=("f32", "h"),
            o=("bf16", "h m 128"),
        ),
        lambda a: of(
            o=np.stack(
                [
                    (lambda s: np.exp(s) @ v / (np.exp(s).sum(1, keepdims=True) + np.exp(t)))(
                        30 * np.tanh(q @ k.T * 0.0883883 / 30)
                    )
                    for q, k, v, t in zip(a["q"], a["k"], a["v"], a["sink"], strict=True)
                ]
            )
        ),
        of(h=2, m=70, n=150),
        of(h=16, m=2048, n=2048),
        tolerance=1.2e-2,
    ),
    Program(
        "kv cache decode, several splits",
        2,
        """
@op.kernel
def kernel(q: bf16[b, g, 16, 128], k: bf16[b, t, g, 128], v: bf16[b, t, g, 128], used: i32[b],
           o: mut f32[b, g, 16, 128]):
    for z, h in op.tile_range(b, g):
        n = min(used[z], i32(t))
        mine = q[z, h, :, :]
        best = op.full((16,), -inf, f32)
        norm = op.zeros((16,), f32)
        out = op.zeros((16, 128), f32)
        for j in op.tile_range(t, step=64):
            if j < n:
                s = (mine @ k[z, j:j+64, h, :].T).to(f32) * 0.0883883
                s = op.where(j + op.iota((16, 64), axis=1) < n, s, -inf)
                now = max(best, op.max(s, axis=1))
                w = exp(s - now[:, None])
                old = exp(best - now)
                norm = norm * old + op.sum(w, axis=1)
                out = out * old[:, None] + w.to(bf16) @ v[z, j:j+64, h, :]
                best = now
        o[z, h, :, :] = out / norm[:, None]
""",
        of(
            q=("bf16", "b g 16 128"),
            k=("bf16", "b t g 128"),
            v=("bf16", "b t g 128"),
            used=("i32", "b"),
            o=("f32", "b g 16 128"),
        ),
        lambda a: of(
            o=np.stack(
                [
                    np.stack(
                        [
                            rows_softmax(a["q"][z, h] @ a["k"][z, :n, h].T * 0.0883883)
                            @ a["v"][z, :n, h]
                            for h in range(a["q"].shape[1])
                        ]
                    )
                    for z, n in enumerate(a["used"].astype(int))
                ]
            )
        ),
        of(b=3, g=2, t=150),
        of(b=32, g=8, t=4096),
        arguments=lambda r, s: of(used=r.integers(1, s["t"] + 1, s["b"])),
        tolerance=1e-2,
    ),
    Program(
        "page table of i64 and short pages",
        2,
        """
@op.kernel
def kernel(q: f16[b, 16, 64], ck: f16[pages, 16, 64], cv: f16[pages, 16, 64],
           table: i64[b, p], used: i64[b], o: mut f32[b, 16, 64]):
    for z in op.tile_range(b):
        n = used[z]
        qi = q[z, :, :]
        mx = op.full((16,), -inf, f32)
        dn = op.zeros((16,), f32)
        acc = op.zeros((16, 64), f32)
        for s in range(0, p):
            if index(s) * 16 < n:
                at = table[z, s]
                if at >= 0:
                    sc = (qi @ ck[at, :, :].T).to(f32) * 0.125
                    sc = op.where(i64(s) * 16 + op.iota((16, 16), axis=1, dtype=i64) < n, sc, -inf)
                    nm = max(mx, op.max(sc, axis=1))
                    e = exp(sc - nm[:, None])
                    c = exp(mx - nm)
                    dn = dn * c + op.sum(e, axis=1)
                    acc = acc * c[:, None] + e.to(f16) @ cv[at, :, :]
                    mx = nm
        o[z, :, :] = op.where(dn[:, None] > 0.0, acc / dn[:, None], 0.0)
""",
        of(
            q=("f16", "b 16 64"),
            ck=("f16", "pages 16 64"),
            cv=("f16", "pages 16 64"),
            table=("i64", "b p"),
            used=("i64", "b"),
            o=("f32", "b 16 64"),
        ),
        lambda a: of(
            o=np.stack(
                [
                    (
                        lambda n, t: (
                            rows_softmax(a["q"][z] @ a["ck"][t].reshape(-1, 64)[:n].T * 0.125)
                            @ a["cv"][t].reshape(-1, 64)[:n]
                            if n
                            else np.zeros((16, 64))
                        )
                    )(int(a["used"][z]), a["table"][z].astype(int))
                    for z in range(len(a["q"]))
                ]
            )
        ),
        of(b=3, pages=9, p=5),
        of(b=256, pages=1024, p=64),
        arguments=lambda r, s: of(
            table=r.integers(0, s["pages"], (s["b"], s["p"])),
            used=np.array(([0, 80, 33] * 200)[: s["b"]]),
        ),
        tolerance=3e-3,
    ),
    Program(
        "masked by an array of bools",
        2,
        """
@op.kernel
def kernel(q: bf16[m, 64], k: bf16[n, 64], v: bf16[n, 64], mask: bool[m, n],
           o: mut bf16[m, 64]):
    for i in op.tile_range(m, step=64):
        qi = q[i:i+64, :]
        mx = op.full((64,), -inf, f32)
        dn = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            ok = mask[i:i+64, j:j+64]
            if op.any(ok):
                s = op.where(ok, (qi @ k[j:j+64, :].T).to(f32) * 0.125, -inf)
                nm = max(mx, op.max(s, axis=1))
                safe = op.where(nm > -inf, nm, 0.0)
                e = exp(s - safe[:, None])
                c = exp(mx - safe)
                dn = dn * c + op.sum(e, axis=1)
                acc = acc * c[:, None] + e.to(bf16) @ v[j:j+64, :]
                mx = nm
        o[i:i+64, :] = op.where(dn[:, None] > 0.0, acc / dn[:, None], 0.0).to(bf16)
""",
        of(
            q=("bf16", "m 64"),
            k=("bf16", "n 64"),
            v=("bf16", "n 64"),
            mask=("bool", "m n"),
            o=("bf16", "m 64"),
        ),
        lambda a: of(
            o=rows_softmax(np.where(a["mask"] > 0, a["q"] @ a["k"].T * 0.125, -np.inf)) @ a["v"]
        ),
        of(m=130, n=200),
        of(m=2048, n=2048),
        arguments=lambda r, s: of(
            mask=(r.random((s["m"], s["n"])) < 0.3)
            & (np.arange(s["n"])[None] // 64 % 3 != 1)
            & (np.arange(s["m"])[:, None] % 7 > 0)
        ),
        tolerance=1e-2,
    ),
    Program(
        "running top of each row over blocks",
        1,
        """
@op.kernel
def kernel(q: bf16[m, 64], k: bf16[n, 64], best: mut f32[m, 2]):
    for i in op.tile_range(m, step=64):
        a = op.full((64,), -inf, f32)
        b = op.full((64,), -inf, f32)
        for j in op.tile_range(n, step=64):
            s = (q[i:i+64, :] @ k[j:j+64, :].T).to(f32)
            t = op.max(s, axis=1)
            at = op.argmax(s, axis=1).to(i32)
            rest = op.where(op.iota((64, 64), axis=1, dtype=i32) == at[:, None], -inf, s)
            u = op.max(rest, axis=1)
            b = max(min(a, t), max(b, u))
            a = max(a, t)
        best[i:i+64, 0] = a
        best[i:i+64, 1] = b
""",
        of(q=("bf16", "m 64"), k=("bf16", "n 64"), best=("f32", "m 2")),
        lambda a: of(best=np.sort(a["q"] @ a["k"].T, 1)[:, :-3:-1]),
        of(m=70, n=90),
        of(m=4096, n=4096),
        tolerance=2e-5,
    ),
    Program(
        "contrastive loss, both directions",
        1,
        """
@op.kernel
def kernel(x: bf16[m, 64], y: bf16[m, 64], t: f32[1], loss: mut f32[m]):
    temp = t[0]
    for i in op.tile_range(m, step=64):
        mx = op.full((64,), -inf, f32)
        sm = op.zeros((64,), f32)
        dg = op.zeros((64,), f32)
        for j in op.tile_range(m, step=64):
            s = (x[i:i+64, :] @ y[j:j+64, :].T).to(f32) * temp
            if i == j:
                eye = op.iota((64, 64), axis=0) == op.iota((64, 64), axis=1)
                dg += op.sum(op.where(eye, s, 0.0), axis=1)
            nm = max(mx, op.max(s, axis=1))
            sm = sm * exp(mx - nm) + op.sum(exp(s - nm[:, None]), axis=1)
            mx = nm
        loss[i:i+64] = mx + log(sm) - dg
""",
        of(x=("bf16", "m 64"), y=("bf16", "m 64"), t=("f32", "1"), loss=("f32", "m")),
        lambda a: (lambda s: of(loss=np.log(np.exp(s).sum(1)) - np.diag(s)))(
            a["x"] @ a["y"].T * a["t"][0]
        ),
        of(m=150),
        of(m=4096),
        tolerance=2e-5,
    ),
    Program(
        "softmax of columns then product",
        2,
        """
@op.kernel
def kernel(a: bf16[m, 64], b: bf16[n, 64], v: bf16[m, 64], y: mut f32[n, 64]):
    for j in op.tile_range(n, step=64):
        bj = b[j:j+64, :]
        mx = op.full((64,), -inf, f32)
        sm = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for i in op.tile_range(m, step=64):
            s = (a[i:i+64, :] @ bj.T).to(f32)
            nm = max(mx, op.max(s, axis=0))
            e = exp(s - nm[None, :])
            c = exp(mx - nm)
            sm = sm * c + op.sum(e, axis=0)
            acc = acc * c[:, None] + e.to(bf16).T @ v[i:i+64, :]
            mx = nm
        y[j:j+64, :] = acc / sm[:, None]
""",
        of(a=("bf16", "m 64"), b=("bf16", "n 64"), v=("bf16", "m 64"), y=("f32", "n 64")),
        lambda a: (lambda s: of(y=(np.exp(s - s.max(0)) / np.exp(s - s.max(0)).sum(0)).T @ a["v"]))(
            a["a"] @ a["b"].T
        ),
        of(m=150, n=70),
        of(m=4096, n=4096),
        tolerance=1e-2,
    ),
    Program(
        "linear attention with a feature map, not causal",
        2,
        """
def phi(x):
    v = x.to(f32)
    return op.where(v > 0, v + 1.0, exp(v)).to(bf16)

@op.kernel
def kernel(q: bf16[h, m, 64], k: bf16[h, m, 64], v: bf16[h, m, 64], o: mut bf16[h, m, 64]):
    for z in op.tile_range(h):
        kv = op.zeros((64, 64), f32)
        ks = op.zeros((64,), f32)
        for j in op.tile_range(m, step=64):
            f = phi(k[z, j:j+64, :])
            kv += f.T @ v[z, j:j+64, :]
            ks += op.sum(f, axis=0)
        state = kv.to(bf16)
        for i in op.tile_range(m, step=64):
            f = phi(q[z, i:i+64, :])
            den = op.sum(f.to(f32) * ks[None, :], axis=1)
            o[z, i:i+64, :] = ((f @ state) / den[:, None]).to(bf16)
""",
        of(q=("bf16", "h m 64"), k=("bf16", "h m 64"), v=("bf16", "h m 64"), o=("bf16", "h m 64")),
        lambda a: (
            lambda ph: of(
                o=np.stack(
                    [
                        (ph(q) @ (ph(k).T @ v)) / (ph(q) @ ph(k).sum(0))[:, None]
                        for q, k, v in zip(a["q"], a["k"], a["v"], strict=True)
                    ]
                )
            )
        )(lambda x: np.where(x > 0, x + 1, np.exp(x))),
        of(h=2, m=150),
        of(h=128, m=2048),
        tolerance=3e-2,
    ),
    Program(
        "rope on the fly, then scores",
        2,
        """
@op.kernel
def kernel(q: bf16[m, 128], k: bf16[n, 128], cq: f32[m, 64], sq: f32[m, 64], ck: f32[n, 64],
           sk: f32[n, 64], s: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        q1, q2 = q[i:i+64, 0:64].to(f32), q[i:i+64, 64:128].to(f32)
        k1, k2 = k[j:j+64, 0:64].to(f32), k[j:j+64, 64:128].to(f32)
        c, t = cq[i:i+64, :], sq[i:i+64, :]
        e, f = ck[j:j+64, :], sk[j:j+64, :]
        qa = (q1 * c - q2 * t).to(bf16)
        qb = (q2 * c + q1 * t).to(bf16)
        ka = (k1 * e - k2 * f).to(bf16)
        kb = (k2 * e + k1 * f).to(bf16)
        s[i:i+64, j:j+64] = qa @ ka.T + qb @ kb.T
""",
        of(
            q=("bf16", "m 128"),
            k=("bf16", "n 128"),
            cq=("f32", "m 64"),
            sq=("f32", "m 64"),
            ck=("f32", "n 64"),
            sk=("f32", "n 64"),
            s=("f32", "m n"),
        ),
        lambda a: (
            lambda q1, q2, k1, k2: of(
                s=(q1 * a["cq"] - q2 * a["sq"]) @ (k1 * a["ck"] - k2 * a["sk"]).T
                + (q2 * a["cq"] + q1 * a["sq"]) @ (k2 * a["ck"] + k1 * a["sk"]).T
            )
        )(a["q"][:, :64], a["q"][:, 64:], a["k"][:, :64], a["k"][:, 64:]),
        of(m=70, n=90),
        of(m=1024, n=1024),
        tolerance=1e-2,
    ),
    Program(
        "kmeans step: assignment and counts",
        1,
        """
@op.kernel
def kernel(x: f16[m, 64], c: f16[64, 64]) -> (i32[m], f32[m]):
    which = op.empty((m,), i32)
    dist = op.empty((m,), f32)
    cc = op.sum(c[:, :].to(f32) * c[:, :].to(f32), axis=1)
    for i in op.tile_range(m, step=64):
        xi = x[i:i+64, :]
        d = cc[None, :] - 2.0 * (xi @ c[:, :].T).to(f32)
        which[i:i+64] = op.argmin(d, axis=1).to(i32)
        dist[i:i+64] = op.min(d, axis=1) + op.sum(xi.to(f32) * xi.to(f32), axis=1)
    return which, dist
""",
        of(x=("f16", "m 64"), c=("f16", "64 64")),
        lambda a: (lambda d: of(result0=d.argmin(1), result1=d.min(1)))(
            ((a["x"][:, None] - a["c"][None]) ** 2).sum(2)
        ),
        of(m=150),
        of(m=8192),
        tolerance=2e-5,
    ),
    Program(
        "attention with relative bias table",
        2,
        """
@op.kernel
def kernel(q: bf16[h, m, 64], k: bf16[h, m, 64], v: bf16[h, m, 64], bias: f32[h, 63],
           o: mut bf16[h, m, 64]):
    for z, i in op.tile_range(h, m, step=(1, 64)):
        qi = q[z, i:i+64, :]
        mx = op.full((64,), -inf, f32)
        dn = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(m, step=64):
            row = i32(i) + op.iota((64, 64), axis=0, dtype=i32)
            d = row - i32(j) - op.iota((64, 64), axis=1, dtype=i32)
            b = bias[z, op.clamp(d, -31, 31) + 31]
            s = (qi @ k[z, j:j+64, :].T).to(f32) * 0.125 + b
            nm = max(mx, op.max(s, axis=1))
            e = exp(s - nm[:, None])
            c = exp(mx - nm)
            dn = dn * c + op.sum(e, axis=1)
            acc = acc * c[:, None] + e.to(bf16) @ v[z, j:j+64, :]
            mx = nm
        o[z, i:i+64, :] = (acc / dn[:, None]).to(bf16)
""",
        of(
            q=("bf16", "h m 64"),
            k=("bf16", "h m 64"),
            v=("bf16", "h m 64"),
            bias=("f32", "h 63"),
            o=("bf16", "h m 64"),
        ),
        lambda a: (
            lambda D: of(
                o=np.stack(
                    [
                        rows_softmax(q @ k.T * 0.125 + b[D]) @ v
                        for q, k, v, b in zip(a["q"], a["k"], a["v"], a["bias"], strict=True)
                    ]
                )
            )
        )(
            np.clip(
                np.subtract.outer(np.arange(a["q"].shape[1]), np.arange(a["q"].shape[1])), -31, 31
            )
            + 31
        ),
        of(h=2, m=150),
        of(h=16, m=1024),
        tolerance=1e-2,
    ),
    Program(
        "a table that a number chooses",
        0,
        """
@op.kernel
def kernel(table: f32[h, 7], which: i32[m], q: u8[m, n], y: mut f32[m, n]):
    for i in op.tile_range(m):
        for j in op.tile_range(n, step=32):
            y[i:i+1, j:j+32] = table[which[i], q[i:i+1, j:j+32]]
""",
        of(table=("f32", "h 7"), which=("i32", "m"), q=("u8", "m n"), y=("f32", "m n")),
        lambda a: of(y=a["table"][a["which"].astype(int)[:, None], a["q"].astype(int)]),
        of(h=3, m=20, n=50),
        of(h=3, m=200, n=500),
        arguments=lambda r, s: of(
            q=r.integers(0, 7, (s["m"], s["n"])), which=r.integers(0, s["h"], s["m"])
        ),
        tolerance=1e-6,
    ),
)
