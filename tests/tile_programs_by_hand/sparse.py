"""Products of blocks that are chosen or left out: bands, diagonals, experts, segments."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Array, Program, of


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


PROGRAMS = (
    Program(
        "banded product",
        1,
        """
@op.kernel
def kernel(a: bf16[m, m], b: bf16[m, n], width: i32[1], c: mut f32[m, n]):
    w = index(width[0])
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        lo = max(i - w, 0) // 64 * 64
        for p in range(lo, min(i + 64 + w, m), 64):
            block = a[i:i+64, p:p+64]
            r = i + op.iota((64, 64), axis=0)
            q = p + op.iota((64, 64), axis=1)
            block = op.where((r - q <= w) & (q - r <= w), block, 0)
            acc += block @ b[p:p+64, j:j+64]
        c[i:i+64, j:j+64] = acc
""",
        of(a=("bf16", "m m"), b=("bf16", "m n"), width=("i32", "1"), c=("f32", "m n")),
        lambda a: of(
            c=np.where(
                np.abs(np.subtract.outer(np.arange(len(a["a"])), np.arange(len(a["a"]))))
                <= a["width"][0],
                a["a"],
                0,
            )
            @ a["b"]
        ),
        of(m=200, n=70),
        of(m=2048, n=1024),
        arguments=lambda r, s: of(width=np.array([37])),
    ),
    Program(
        "block tridiagonal",
        3,
        """
@op.kernel
def kernel(lo: bf16[q, 64, 64], di: bf16[q, 64, 64], up: bf16[q, 64, 64], x: bf16[q*64, n],
           y: mut f32[q*64, n]):
    for b, j in op.tile_range(q, n, step=(1, 64)):
        acc = di[b, :, :] @ x[b*64:b*64+64, j:j+64]
        if b > 0:
            acc += lo[b, :, :] @ x[b*64-64:b*64, j:j+64]
        if b < q - 1:
            acc += up[b, :, :] @ x[b*64+64:b*64+128, j:j+64]
        y[b*64:b*64+64, j:j+64] = acc
""",
        of(
            lo=("bf16", "q 64 64"),
            di=("bf16", "q 64 64"),
            up=("bf16", "q 64 64"),
            x=("bf16", "q*64 n"),
            y=("f32", "q*64 n"),
        ),
        lambda a: of(
            y=np.concatenate(
                [
                    a["di"][b] @ X[b]
                    + (a["lo"][b] @ X[b - 1] if b else 0)
                    + (a["up"][b] @ X[b + 1] if b + 1 < len(X) else 0)
                    for X in [a["x"].reshape(-1, 64, a["x"].shape[1])]
                    for b in range(len(X))
                ]
            )
        ),
        of(q=3, n=72),
        of(q=64, n=1024),
        tolerance=2e-5,
    ),
    Program(
        "block diagonal",
        1,
        """
@op.kernel
def kernel(x: f16[m, g*64], w: f16[g, 64, 64]) -> f16[m, g*64]:
    y = op.empty((m, g*64), f16)
    for i, b in op.tile_range(m, g, step=(128, 1)):
        y[i:i+128, b*64:b*64+64] = x[i:i+128, b*64:b*64+64] @ w[b, :, :]
    return y
""",
        of(x=("f16", "m g*64"), w=("f16", "g 64 64")),
        lambda a: of(
            result=np.concatenate(
                [a["x"][:, b * 64 : b * 64 + 64] @ a["w"][b] for b in range(len(a["w"]))], 1
            )
        ),
        of(m=150, g=3),
        of(m=8192, g=32),
        tolerance=2e-3,
    ),
    Program(
        "moe over sorted blocks",
        1,
        """
@op.kernel
def kernel(x: bf16[t, k], w: bf16[e, n, k], expert: i32[blocks], y: mut bf16[t, n]):
    for b, j in op.tile_range(blocks, n, step=(1, 128)):
        who = expert[b]
        if who >= 0:
            acc = op.zeros((64, 128), f32)
            for p in op.tile_range(k, step=64):
                acc += x[b*64:b*64+64, p:p+64] @ w[who, j:j+128, p:p+64].T
            y[b*64:b*64+64, j:j+128] = acc.to(bf16)
""",
        of(x=("bf16", "t k"), w=("bf16", "e n k"), expert=("i32", "blocks"), y=("bf16", "t n")),
        lambda a: of(
            y=np.concatenate(
                [
                    a["x"][i * 64 : i * 64 + 64] @ a["w"][int(e)].T
                    if e >= 0
                    else a["y"][i * 64 : i * 64 + 64]
                    for i, e in enumerate(a["expert"])
                ]
            )
        ),
        of(t=190, k=70, e=3, n=130, blocks=3),
        of(t=8192, k=1024, e=8, n=1024, blocks=128),
        arguments=lambda r, s: of(expert=np.array(([2, -1, 0] * 50)[: s["blocks"]])),
    ),
    Program(
        "experts with a loop over the chosen",
        2,
        """
@op.kernel
def kernel(x: bf16[t, 64], w1: bf16[e, 64, 64], w2: bf16[e, 64, 64], chosen: i32[b, 2],
           gate: f32[b, 2], y: mut bf16[t, 64]):
    for z in op.tile_range(b):
        rows = x[z*64:z*64+64, :]
        out = op.zeros((64, 64), f32)
        for s in range(2):
            who = max(chosen[z, s], 0)
            h = op.silu(rows @ w1[who, :, :])
            out += (h.to(bf16) @ w2[who, :, :]).to(f32) * gate[z, s]
        y[z*64:z*64+64, :] = out.to(bf16)
""",
        of(
            x=("bf16", "t 64"),
            w1=("bf16", "e 64 64"),
            w2=("bf16", "e 64 64"),
            chosen=("i32", "b 2"),
            gate=("f32", "b 2"),
            y=("bf16", "t 64"),
        ),
        lambda a: of(
            y=np.concatenate(
                [
                    sum(
                        silu(a["x"][z * 64 : z * 64 + 64] @ a["w1"][int(c)]) @ a["w2"][int(c)] * g
                        for c, g in zip(a["chosen"][z], a["gate"][z], strict=True)
                    )
                    for z in range(len(a["chosen"]))
                ]
            )
        ),
        of(t=150, e=4, b=3),
        of(t=8192, e=8, b=128),
        arguments=lambda r, s: of(chosen=r.integers(0, s["e"], (s["b"], 2))),
        tolerance=2e-2,
    ),
    Program(
        "segments summed by a product",
        1,
        """
@op.kernel
def kernel(seg: i32[n], x: f16[n, d], out: mut f32[s, d]):
    for i, j in op.tile_range(s, d, step=(32, 64)):
        acc = op.zeros((32, 64), f32)
        for p in op.tile_range(n, step=32):
            ids = seg[p:p+32]
            if op.max(ids) >= i32(i) and op.min(ids) < i32(i) + 32:
                hot = (ids[None, :] == op.iota((32, 32), axis=0, dtype=i32) + i32(i)).to(f16)
                acc += hot @ x[p:p+32, j:j+64]
        out[i:i+32, j:j+64] = acc
""",
        of(seg=("i32", "n"), x=("f16", "n d"), out=("f32", "s d")),
        lambda a: of(out=(np.arange(len(a["out"]))[:, None] == a["seg"]) @ a["x"]),
        of(n=150, d=70, s=50),
        of(n=8192, d=512, s=256),
        arguments=lambda r, s: of(seg=np.sort(r.integers(0, s["s"], s["n"]))),
        tolerance=2e-5,
    ),
    Program(
        "product under a uniform if inside the loop over k",
        2,
        """
@op.kernel
def kernel(a: f16[m, k], b: f16[k, n], c: f16[k, n], sel: u8[k // 64], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 64)):
        acc = op.zeros((128, 64), f32)
        for g in range(k // 64):
            x = a[i:i+128, g*64:g*64+64]
            if sel[g] == 1:
                acc += x @ b[g*64:g*64+64, j:j+64]
            elif sel[g] == 2:
                acc -= x @ c[g*64:g*64+64, j:j+64]
        y[i:i+128, j:j+64] = acc
""",
        of(
            a=("f16", "m k"),
            b=("f16", "k n"),
            c=("f16", "k n"),
            sel=("u8", "k//64"),
            y=("f32", "m n"),
        ),
        lambda a: (
            lambda s: of(
                y=(a["a"][:, : len(s)] * (s == 1)) @ a["b"][: len(s)]
                - (a["a"][:, : len(s)] * (s == 2)) @ a["c"][: len(s)]
            )
        )(np.repeat(a["sel"], 64)),
        of(m=130, n=72, k=200),
        of(m=1024, n=1024, k=1024),
        arguments=lambda r, s: of(sel=np.array(([1, 2, 0, 1] * 100)[: s["k"] // 64])),
        tolerance=2e-5,
    ),
    Program(
        "trailing update of a factorization",
        1,
        """
@op.kernel
def kernel(a: mut bf16[n, n], at: i32[1]):
    s = index(at[0])
    if s >= 0:
        for i, j in op.tile_range(n, n, step=(64, 64)):
            if i > s and j > s:
                left = a[i:i+64, j:j+64].to(f32) - a[i:i+64, 0:64] @ a[0:64, j:j+64]
                a[i:i+64, j:j+64] = left.to(bf16)
""",
        of(a=("bf16", "n n"), at=("i32", "1")),
        lambda a: of(
            a=np.where(
                (np.arange(len(a["a"]))[:, None] // 64 * 64 > 0)
                & (np.arange(len(a["a"]))[None] // 64 * 64 > 0),
                a["a"] - a["a"][:, :64] @ a["a"][:64],
                a["a"],
            )
        ),
        of(n=150),
        of(n=1024),
        arguments=lambda r, s: of(at=np.array([0])),
        tolerance=8e-3,
    ),
    Program(
        "symmetric rank k, both triangles from one",
        1,
        """
@op.kernel
def kernel(a: bf16[m, k], c: mut f32[m, m]):
    for i in op.tile_range(m, step=64):
        for j in range(0, i + 64, 64):
            acc = op.zeros((64, 64), f32)
            for p in op.tile_range(k, step=64):
                acc += a[i:i+64, p:p+64] @ a[j:min(j+64, m), p:p+64].T
            c[i:i+64, j:min(j+64, m)] = acc
            c[j:min(j+64, m), i:i+64] = acc.T
""",
        of(a=("bf16", "m k"), c=("f32", "m m")),
        lambda a: of(c=a["a"] @ a["a"].T),
        of(m=130, k=70),
        of(m=1024, k=1024),
    ),
    Program(
        "one hot scatter as a product",
        1,
        """
@op.kernel
def kernel(label: i32[n], x: bf16[n, d], out: mut f32[c, d]):
    for i, j in op.tile_range(c, d, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(n, step=64):
            hot = label[p:p+64][None, :] == (i32(i) + op.iota((64, 64), axis=0).to(i32))
            acc += hot.to(bf16) @ x[p:p+64, j:j+64]
        out[i:i+64, j:j+64] = acc
""",
        of(label=("i32", "n"), x=("bf16", "n d"), out=("f32", "c d")),
        lambda a: of(out=(np.arange(a["out"].shape[0])[:, None] == a["label"][None]) @ a["x"]),
        of(n=150, d=70, c=90),
        of(n=4096, d=1024, c=512),
        arguments=lambda r, s: of(label=r.integers(0, s["c"], s["n"])),
        tolerance=2e-5,
    ),
)
