"""Programs that choose: tables, gathered rows, masks from functions of numbers, parts left out."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Array, Numbers, Program, of, rows_softmax

TABLE = Program(
    "weights looked up in a table", 1, """
@op.kernel
def kernel(x: bf16[m, k], q: u8[n, k], table: f32[16], s: f32[n], y: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=32):
            w = table[q[j:j+64, p:p+32].to(i32)]
            acc += x[i:i+64, p:p+32] @ w.to(bf16).T
        y[i:i+64, j:j+64] = (acc * s[j:j+64][None, :]).to(bf16)
""",
    of(x=("bf16", "m k"), q=("u8", "n k"), table=("f32", "16"), s=("f32", "n"), y=("bf16", "m n")),
    lambda a: of(y=a["x"] @ a["table"][a["q"].astype(int)].T * a["s"]),
    of(m=70, k=100, n=72), of(m=1024, k=1024, n=1024),
    arguments=lambda r, s: of(q=r.integers(0, 16, (s["n"], s["k"]))),
)  # fmt: skip


def _prefix(a: Numbers) -> Numbers:
    def one(q: Array, k: Array, v: Array, prefix: float) -> Array:
        at = np.arange(len(q))
        seen = (at[None] <= at[:, None]) | (at[None] < int(prefix))
        return rows_softmax(np.where(seen, q @ k.T * 0.125, -np.inf)) @ v

    parts = zip(a["q"], a["k"], a["v"], a["prefix"], strict=True)
    return of(o=np.stack([one(*part) for part in parts]))


PREFIX = Program(
    "a mask that a function of numbers makes", 2, """
def mask(i, j, prefix, BM: int, BN: int):
    row = i + op.iota((BM, BN), axis=0)
    column = j + op.iota((BM, BN), axis=1)
    return (column <= row) | (column < prefix)

def scores(q, k, scale):
    return (q @ k.T).to(f32) * scale

@op.kernel
def kernel[BM: int = 64, BN: int = 64](q: bf16[b, m, 64], k: bf16[b, m, 64], v: bf16[b, m, 64],
                                       prefix: i32[b], o: mut bf16[b, m, 64]):
    for z, i in op.tile_range(b, m, step=(1, BM)):
        mine = q[z, i:i+BM, :]
        top = op.full((BM,), -inf, f32)
        total = op.zeros((BM,), f32)
        acc = op.zeros((BM, 64), f32)
        pre = index(prefix[z])
        for j in range(0, min(max(i + BM, pre), m), BN):
            s = op.where(mask(i, j, pre, BM, BN), scores(mine, k[z, j:j+BN, :], 0.125), -inf)
            peak = max(top, op.max(s, axis=1))
            e = exp(s - peak[:, None])
            shrink = exp(top - peak)
            total = total * shrink + op.sum(e, axis=1)
            acc = acc * shrink[:, None] + e @ v[z, j:j+BN, :]
            top = peak
        o[z, i:i+BM, :] = (acc / total[:, None]).to(bf16)
""",
    of(q=("bf16", "b m 64"), k=("bf16", "b m 64"), v=("bf16", "b m 64"), prefix=("i32", "b"),
       o=("bf16", "b m 64")),
    _prefix, of(b=2, m=150), of(b=8, m=2048),
    arguments=lambda r, s: of(prefix=r.integers(0, s["m"], s["b"])),
)  # fmt: skip

ZEROS = Program(
    "blocks of zeros are left out", 1, """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            x = a[i:i+64, p:p+64]
            if op.any(x != 0.0):
                acc += x @ b[p:p+64, j:j+64]
        c[i:i+64, j:j+64] = acc
""",
    of(a=("bf16", "m k"), b=("bf16", "k n"), c=("f32", "m n")),
    lambda a: of(c=a["a"] @ a["b"]), of(m=130, k=200, n=72), of(m=2048, k=2048, n=2048),
    arguments=lambda r, s: of(
        a=r.uniform(-1, 1, (s["m"], s["k"])) * (np.arange(s["k"]) // 64 % 2)),
)  # fmt: skip

ROWS = Program(
    "rows gathered by numbers of another size", 1, """
@op.kernel
def kernel(x: bf16[t, k], w: bf16[k, n], first: i32[s], y: mut f32[r, n]):
    for z, j in op.tile_range(r, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += x[first[z:z+64], p:p+64] @ w[p:p+64, j:j+64]
        y[z:z+64, j:j+64] = acc
""",
    of(x=("bf16", "t k"), w=("bf16", "k n"), first=("i32", "s"), y=("f32", "r n")),
    lambda a: of(y=a["x"][a["first"].astype(int)] @ a["w"]),
    of(t=100, k=72, n=72, s=70, r=70), of(t=8192, k=1024, n=1024, s=1024, r=1024),
    arguments=lambda r, s: of(first=r.integers(0, s["t"], s["s"])),
)  # fmt: skip

EMBEDDED = Program(
    "a whole gather as a factor", 1, """
@op.kernel
def kernel(table: f16[v, k], ids: i32[m], w: f16[k, n]) -> f16[m, n]:
    return op.relu(table[ids, :] @ w)
""",
    of(table=("f16", "v k"), ids=("i32", "m"), w=("f16", "k n")),
    lambda a: of(result=np.maximum(a["table"][a["ids"].astype(int)] @ a["w"], 0)),
    of(v=50, m=70, k=72, n=90), of(v=4096, m=2048, k=1024, n=1024),
    arguments=lambda r, s: of(ids=r.integers(0, s["v"], s["m"])),
)  # fmt: skip


def _gated(g: Array, u: Array) -> Array:
    return g / (1 + np.exp(-g)) * u


HALVES = Program(
    "halves of one weight", 2, """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[k, 2*n], y: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        g = op.zeros((64, 64), f32)
        u = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            rows = x[i:i+64, p:p+64]
            g += rows @ w[p:p+64, j:min(j+64, n)]
            u += rows @ w[p:p+64, n+j:n+j+64]
        y[i:i+64, j:j+64] = (op.silu(g) * u).to(bf16)
""",
    of(x=("bf16", "m k"), w=("bf16", "k 2*n"), y=("bf16", "m n")),
    lambda a: of(y=_gated(*np.split(a["x"] @ a["w"], 2, 1))),
    of(m=70, k=100, n=72), of(m=2048, k=1024, n=2048),
)  # fmt: skip

IN_TURN = Program(
    "columns of two weights in turn", 2, """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[k, 2*n], y: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        g = op.zeros((64, 64), f32)
        u = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            rows = x[i:i+64, p:p+64]
            g += rows @ w[p:p+64, 2*j:min(2*j+128, 2*n):2]
            u += rows @ w[p:p+64, 2*j+1:min(2*j+129, 2*n):2]
        y[i:i+64, j:j+64] = (op.silu(g) * u).to(bf16)
""",
    of(x=("bf16", "m k"), w=("bf16", "k 2*n"), y=("bf16", "m n")),
    lambda a: of(y=_gated(a["x"] @ a["w"][:, ::2], a["x"] @ a["w"][:, 1::2])),
    of(m=70, k=100, n=70), of(m=2048, k=1024, n=2048),
)  # fmt: skip


def _powers(a: Numbers) -> Numbers:
    power = np.linalg.matrix_power(a["a"] * 0.125, 4)
    found = [power @ x for x in a["x"]]
    return of(y=np.stack([v @ v.T for v in found]))


POWERS = Program(
    "a small matrix taken whole, again and again", 2, """
@op.kernel
def kernel(a: bf16[64, 64], x: bf16[b, 64, 64], y: mut f32[b, 64, 64]):
    for z in op.tile_range(b):
        v = x[z, :, :]
        for t in range(4):
            v = (a[:, :] @ v * 0.125).to(bf16)
        y[z, :, :] = (v @ v.T).to(f32)
""",
    of(a=("bf16", "64 64"), x=("bf16", "b 64 64"), y=("f32", "b 64 64")),
    _powers, of(b=3), of(b=512), tolerance=5e-2,
)  # fmt: skip


def _parts(a: Numbers) -> Numbers:
    k = a["a"].shape[1]
    chunk = -(-k // 4)
    cuts = [slice(s * chunk, (s + 1) * chunk) for s in range(4)]
    return of(parts=np.stack([a["a"][:, c] @ a["b"][c] for c in cuts]))


PARTS = Program(
    "a contraction in four parts", 1, """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], parts: mut f32[4, m, n]):
    for s, i, j in op.tile_range(4, m, n, step=(1, 64, 64)):
        acc = op.zeros((64, 64), f32)
        chunk = ceil_div(k, 4)
        for p in range(s * chunk, min((s + 1) * chunk, k), 64):
            end = min(p + 64, min((s + 1) * chunk, k))
            acc += a[i:i+64, p:end] @ b[p:end, j:j+64]
        parts[s, i:i+64, j:j+64] = acc
""",
    of(a=("bf16", "m k"), b=("bf16", "k n"), parts=("f32", "4 m n")),
    _parts, of(m=70, n=72, k=300), of(m=512, n=512, k=8192),
)  # fmt: skip

NIBBLES = Program(
    "nibbles as the last bits of a float", 1, """
@op.kernel
def kernel(x: f16[m, k], q: u8[n, k], y: mut f16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            bits = (q[j:j+64, p:p+64] & 15).to(u16) | 0x6400
            acc += x[i:i+64, p:p+64] @ (bitcast(bits, f16) - 1032.0).T
        y[i:i+64, j:j+64] = acc.to(f16)
""",
    of(x=("f16", "m k"), q=("u8", "n k"), y=("f16", "m n")),
    lambda a: of(y=a["x"] @ ((a["q"].astype(int) & 15) - 8.0).T),
    of(m=70, k=100, n=72), of(m=1024, k=1024, n=1024),
    arguments=lambda r, s: of(q=r.integers(0, 256, (s["n"], s["k"]))),
)  # fmt: skip


def _taps(a: Numbers) -> Numbers:
    n, k = a["x"].shape
    behind = [np.concatenate([np.zeros((64 * t, k)), a["x"]])[:n] for t in range(3)]
    return of(y=sum(x @ w for x, w in zip(behind, a["w"], strict=True)))


TAPS = Program(
    "blocks of rows that a test shows to be there", 1, """
@op.kernel
def kernel(x: f16[n, k], w: f16[3, k, m], y: mut f32[n, m]):
    for i, j in op.tile_range(n, m, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for t in range(3):
            if i >= t * 64:
                for p in op.tile_range(k, step=32):
                    acc += x[i-t*64:i-t*64+64, p:p+32] @ w[t, p:p+32, j:j+64]
        y[i:i+64, j:j+64] = acc
""",
    of(x=("f16", "n k"), w=("f16", "3 k m"), y=("f32", "n m")),
    _taps, of(n=192, k=40, m=72), of(n=4096, k=256, m=256),
)  # fmt: skip

PROGRAMS = (
    TABLE, PREFIX, ZEROS, ROWS, EMBEDDED, HALVES, IN_TURN, POWERS, PARTS, NIBBLES, TAPS,
)  # fmt: skip
