"""Products of narrow weights, unpacked on the way, and of results that become narrow."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Program, of, rows_softmax

PROGRAMS = (
    Program(
        "int4 with zero points by groups",
        1,
        """
@op.kernel
def kernel(x: f16[m, k], q: u8[n, k // 2], zero: u8[n, k // 64], scale: f16[n, k // 64],
           y: mut f16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for g in range(k // 64):
            packed = q[j:j+64, g*32:g*32+32]
            z = zero[j:j+64, g][:, None]
            s = scale[j:j+64, g][:, None]
            lo = ((packed & 15).to(f16) - z.to(f16)) * s
            hi = ((packed >> 4).to(f16) - z.to(f16)) * s
            acc += x[i:i+64, g*64:g*64+32] @ lo.T
            acc += x[i:i+64, g*64+32:g*64+64] @ hi.T
        y[i:i+64, j:j+64] = acc.to(f16)
""",
        of(
            x=("f16", "m k"),
            q=("u8", "n k//2"),
            zero=("u8", "n k//64"),
            scale=("f16", "n k//64"),
            y=("f16", "m n"),
        ),
        lambda a: (lambda w: of(y=a["x"] @ w.T))(
            np.concatenate(
                [
                    np.concatenate(
                        [
                            ((a["q"][:, g * 32 : g * 32 + 32] & 15) - a["zero"][:, g : g + 1])
                            * a["scale"][:, g : g + 1],
                            ((a["q"][:, g * 32 : g * 32 + 32] >> 4) - a["zero"][:, g : g + 1])
                            * a["scale"][:, g : g + 1],
                        ],
                        1,
                    )
                    for g in range(a["zero"].shape[1])
                ],
                1,
            )
        ),
        of(m=70, n=72, k=128),
        of(m=1024, n=1024, k=1024),
        arguments=lambda r, s: of(
            q=r.integers(0, 256, (s["n"], s["k"] // 2)),
            zero=r.integers(0, 16, (s["n"], s["k"] // 64)),
        ),
        tolerance=4e-3,
    ),
    Program(
        "two bit weights in bytes",
        1,
        """
@op.kernel
def kernel(x: bf16[m, 4*h], q: u8[n, h], s: f32[n], y: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(h, step=32):
            b = q[j:j+64, p:p+32]
            for c in range(4):
                w = ((b >> u8(2 * c)) & 3).to(bf16) - 1.5
                acc += x[i:i+64, c*h+p:min(c*h+p+32, c*h+h)] @ w.T
        y[i:i+64, j:j+64] = (acc * s[j:j+64][None, :]).to(bf16)
""",
        of(x=("bf16", "m 4*h"), q=("u8", "n h"), s=("f32", "n"), y=("bf16", "m n")),
        lambda a: of(
            y=a["x"]
            @ np.concatenate([((a["q"] >> (2 * c)) & 3) - 1.5 for c in range(4)], 1).T
            * a["s"]
        ),
        of(m=70, h=40, n=72),
        of(m=1024, h=256, n=1024),
        arguments=lambda r, s: of(q=r.integers(0, 256, (s["n"], s["h"]))),
    ),
    Program(
        "bits as signs of weights",
        1,
        """
@op.kernel
def kernel(x: bf16[m, k], bits: u32[n, k // 32], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for g in range(k // 32):
            word = bits[j:j+64, g][:, None]
            shift = op.iota((64, 32), axis=1, dtype=u32)
            w = op.where(((word >> shift) & 1) == 1, 1.0, -1.0).to(bf16)
            acc += x[i:i+64, 32*g:32*g+32] @ w.T
        y[i:i+64, j:j+64] = acc
""",
        of(x=("bf16", "m k"), bits=("u32", "n k//32"), y=("f32", "m n")),
        lambda a: of(
            y=a["x"]
            @ np.where((a["bits"][:, :, None] >> np.arange(32)) & 1, 1, -1)
            .reshape(a["bits"].shape[0], -1)
            .T
        ),
        of(m=70, k=96, n=72),
        of(m=1024, k=1024, n=1024),
        arguments=lambda r, s: of(bits=r.integers(0, 2**32, (s["n"], s["k"] // 32))),
        tolerance=2e-5,
    ),
    Program(
        "mx scales of 32 along k, f8",
        1,
        """
@op.kernel
def kernel(a: f8e4m3[m, k], sa: u8[m, k // 32], b: bf16[n, k], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for g in range(k // 32):
            e = op.exp2(sa[i:i+64, g].to(f32) - 127.0)
            w = (a[i:i+64, 32*g:32*g+32].to(f32) * e[:, None]).to(bf16)
            acc += w @ b[j:j+64, 32*g:32*g+32].T
        y[i:i+64, j:j+64] = acc
""",
        of(a=("f8e4m3", "m k"), sa=("u8", "m k//32"), b=("bf16", "n k"), y=("f32", "m n")),
        lambda a: of(y=(a["a"] * np.repeat(2.0 ** (a["sa"] - 127), 32, 1)) @ a["b"].T),
        of(m=70, k=96, n=72),
        of(m=1024, k=1024, n=1024),
        arguments=lambda r, s: of(sa=r.integers(124, 130, (s["m"], s["k"] // 32))),
        tolerance=2e-5,
    ),
    Program(
        "i8 requantized to i8",
        1,
        """
@op.kernel
def kernel(a: i8[m, k], b: i8[k, n], bias: i32[n], s: f32[n], c: mut i8[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64), i32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+128, p:p+64] @ b[p:p+64, j:j+64]
        v = (acc + bias[j:j+64][None, :]).to(f32) * s[j:j+64][None, :]
        c[i:i+128, j:j+64] = op.clamp(op.round(v), -128.0, 127.0).to(i8)
""",
        of(a=("i8", "m k"), b=("i8", "k n"), bias=("i32", "n"), s=("f32", "n"), c=("i8", "m n")),
        lambda a: of(
            c=np.clip(
                np.round(
                    (
                        (a["a"] @ a["b"] + a["bias"]).astype(np.float32) * a["s"].astype(np.float32)
                    ).astype(np.float32)
                ),
                -128,
                127,
            )
        ),
        of(m=130, n=72, k=100),
        of(m=2048, n=2048, k=2048),
        tolerance=1e-9,
    ),
    Program(
        "quantized kv, i8 with scales",
        2,
        """
@op.kernel
def kernel(q: bf16[h, m, 64], k: i8[h, t, 64], v: i8[h, t, 64], ks: f32[h, t], vs: f32[h, t],
           o: mut bf16[h, m, 64]):
    for z, i in op.tile_range(h, m, step=(1, 64)):
        qi = q[z, i:i+64, :]
        mx = op.full((64,), -inf, f32)
        dn = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(t, step=64):
            s = (qi @ k[z, j:j+64, :].to(bf16).T).to(f32) * ks[z, j:j+64][None, :] * 0.0125
            nm = max(mx, op.max(s, axis=1))
            e = exp(s - nm[:, None])
            c = exp(mx - nm)
            dn = dn * c + op.sum(e, axis=1)
            vj = (v[z, j:j+64, :].to(f32) * vs[z, j:j+64][:, None]).to(bf16)
            acc = acc * c[:, None] + e.to(bf16) @ vj
            mx = nm
        o[z, i:i+64, :] = (acc / dn[:, None]).to(bf16)
""",
        of(
            q=("bf16", "h m 64"),
            k=("i8", "h t 64"),
            v=("i8", "h t 64"),
            ks=("f32", "h t"),
            vs=("f32", "h t"),
            o=("bf16", "h m 64"),
        ),
        lambda a: of(
            o=np.stack(
                [
                    rows_softmax(a["q"][z] @ a["k"][z].T * a["ks"][z] * 0.0125)
                    @ (a["v"][z] * a["vs"][z][:, None])
                    for z in range(len(a["q"]))
                ]
            )
        ),
        of(h=2, m=70, t=150),
        of(h=16, m=1024, t=2048),
        tolerance=1.5e-2,
    ),
    Program(
        "attention in f8",
        2,
        """
@op.kernel
def kernel(q: f8e4m3[h, m, 64], k: f8e4m3[h, n, 64], v: f8e4m3[h, 64, n],
           o: mut bf16[h, m, 64]):
    for z, i in op.tile_range(h, m, step=(1, 64)):
        qi = q[z, i:i+64, :]
        mx = op.full((64,), -inf, f32)
        dn = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(n, step=64):
            s = (qi @ k[z, j:j+64, :].T).to(f32) * 0.125
            nm = max(mx, op.max(s, axis=1))
            e = exp(s - nm[:, None])
            c = exp(mx - nm)
            dn = dn * c + op.sum(e, axis=1)
            acc = acc * c[:, None] + e.to(f8e4m3) @ v[z, :, j:j+64].T
            mx = nm
        o[z, i:i+64, :] = (acc / dn[:, None]).to(bf16)
""",
        of(
            q=("f8e4m3", "h m 64"),
            k=("f8e4m3", "h n 64"),
            v=("f8e4m3", "h 64 n"),
            o=("bf16", "h m 64"),
        ),
        lambda a: of(
            o=np.stack(
                [
                    rows_softmax(q @ k.T * 0.125) @ v.T
                    for q, k, v in zip(a["q"], a["k"], a["v"], strict=True)
                ]
            )
        ),
        of(h=2, m=70, n=150),
        of(h=16, m=2048, n=2048),
        tolerance=5e-2,
    ),
    Program(
        "hamming distance of signs",
        1,
        """
@op.kernel
def kernel(x: i8[m, k], y: i8[n, k], d: mut i32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), i32)
        for p in op.tile_range(k, step=64):
            sx = op.where(x[i:i+64, p:p+64] > 0, i8(1), i8(-1))
            sy = op.where(y[j:j+64, p:p+64] > 0, i8(1), i8(-1))
            acc += sx @ sy.T
        d[i:i+64, j:j+64] = (i32(k) - acc) >> 1
""",
        of(x=("i8", "m k"), y=("i8", "n k"), d=("i32", "m n")),
        lambda a: of(d=((a["x"] > 0)[:, None] != (a["y"] > 0)[None]).sum(2)),
        of(m=70, n=72, k=100),
        of(m=1024, n=1024, k=1024),
        tolerance=1e-9,
    ),
)
