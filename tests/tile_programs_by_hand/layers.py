"""Layers of networks: several products, gates, experts, adapters, quantised weights."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Array, Numbers, Program, of


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


SWIGLU = Program(
    "swiglu", 2, """
@op.kernel
def kernel(x: bf16[m, k], gate: bf16[k, n], up: bf16[k, n]) -> bf16[m, n]:
    h = op.empty((m, n), bf16)
    for r, c in op.tile_range(m, n, step=(128, 64)):
        g = op.zeros((128, 64), f32)
        u = op.zeros((128, 64), f32)
        for p in op.tile_range(k, step=64):
            rows = x[r:r+128, p:p+64]
            g += rows @ gate[p:p+64, c:c+64]
            u += rows @ up[p:p+64, c:c+64]
        h[r:r+128, c:c+64] = (op.silu(g) * u).to(bf16)
    return h
""",
    of(x=("bf16", "m k"), gate=("bf16", "k n"), up=("bf16", "k n")),
    lambda a: of(result=_silu(a["x"] @ a["gate"]) * (a["x"] @ a["up"])),
    of(m=130, k=100, n=72), of(m=2048, k=1024, n=2048),
)  # fmt: skip

ADAPTER = Program(
    "low rank adapter", 3, """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[n, k], down: bf16[k, 16], up: bf16[16, n], y: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        small = op.zeros((128, 16), f32)
        for p in op.tile_range(k, step=64):
            part = x[i:i+128, p:p+64]
            acc += part @ w[j:j+128, p:p+64].T
            small += part @ down[p:p+64, :]
        y[i:i+128, j:j+128] = (acc + small.to(bf16) @ up[:, j:j+128] * 2.0).to(bf16)
""",
    of(x=("bf16", "m k"), w=("bf16", "n k"), down=("bf16", "k 16"), up=("bf16", "16 n"),
         y=("bf16", "m n")),
    lambda a: of(y=a["x"] @ a["w"].T + (a["x"] @ a["down"]) @ a["up"] * 2.0),
    of(m=140, k=130, n=150), of(m=2048, k=2048, n=2048), tolerance=2e-2,
)  # fmt: skip


def _experts(a: Numbers) -> Numbers:
    y = np.zeros((len(a["token"]), a["w"].shape[2]))
    for e in range(len(a["w"])):
        for r in range(int(a["offsets"][e]), int(a["offsets"][e + 1])):
            y[r] = a["x"][int(a["token"][r])] @ a["w"][e] * a["weight"][r]
    return of(y=y)


def _expert_arguments(r: np.random.Generator, sizes: dict[str, int]) -> Numbers:
    cuts = np.sort(r.integers(0, sizes["t"] + 1, sizes["g"] - 1))
    offsets = np.concatenate([[0], cuts, [sizes["t"]]])
    return of(offsets=offsets, token=r.integers(0, sizes["m"], sizes["t"]))


EXPERTS = Program(
    "mixture of experts", 1, """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[g, k, n], offsets: i32[g+1], token: i32[t], weight: f32[t],
           y: mut f32[t, n]):
    for e, j in op.tile_range(g, n, step=(1, 64), independent=("e",)):
        begin = max(offsets[e], 0)
        end = offsets[e + 1]
        for r in range(begin, end, 64):
            ids = token[r:min(r+64, end)]
            acc = op.zeros((64, 64), f32)
            for p in op.tile_range(k, step=64):
                acc += x[ids, p:p+64] @ w[e, p:p+64, j:j+64]
            y[r:min(r+64, end), j:j+64] = acc * weight[r:min(r+64, end)][:, None]
""",
    of(x=("bf16", "m k"), w=("bf16", "g k n"), offsets=("i32", "g+1"), token=("i32", "t"),
         weight=("f32", "t"), y=("f32", "t n")),
    _experts, of(m=50, k=96, n=80, g=3, t=170), of(m=4096, k=1024, n=1024, g=8, t=8192),
    arguments=_expert_arguments,
)  # fmt: skip


def _grouped(a: Numbers) -> Numbers:
    y = np.zeros((len(a["x"]), a["w"].shape[2]))
    for e in range(len(a["w"])):
        r = slice(int(a["offsets"][e]), int(a["offsets"][e + 1]))
        y[r] = a["x"][r] @ a["w"][e]
    return of(y=y)


GROUPED = Program(
    "grouped product by offsets", 1, """
@op.kernel
def kernel(x: f16[t, k], w: f16[g, k, n], offsets: u32[g+1], y: mut f16[t, n]):
    for j, e in op.tile_range(n, g, step=(128, 1), independent=("e",)):
        stop = offsets[e + 1]
        for r in range(offsets[e], stop, 128):
            total = op.zeros((128, 128), f32)
            for p in range(0, k, 64):
                total += x[r:min(r+128, stop), p:p+64] @ w[e, p:p+64, j:j+128]
            y[r:min(r+128, stop), j:j+128] = total.to(f16)
""",
    of(x=("f16", "t k"), w=("f16", "g k n"), offsets=("u32", "g+1"), y=("f16", "t n")),
    _grouped, of(k=96, n=136, g=3, t=300, m=1), of(k=1024, n=1024, g=8, t=8192, m=1),
    arguments=_expert_arguments,
)  # fmt: skip

FOUR_BITS = Program(
    "weights of four bits", 2, """
def low(p):
    return (p << 4) >> 4

def high(p):
    return p >> 4

@op.kernel
def kernel(x: f16[m, 2*h], q: i8[h, n], scale: f32[n], y: mut f16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 128)):
        acc = op.zeros((64, 128), f32)
        for p in op.tile_range(h, step=64):
            packed = q[p:p+64, j:j+128]
            acc += x[i:i+64, p:min(p+64, h)] @ low(packed).to(f16)
            acc += x[i:i+64, h+p:h+p+64] @ high(packed).to(f16)
        y[i:i+64, j:j+128] = (acc * scale[j:j+128][None, :]).to(f16)
""",
    of(x=("f16", "m 2*h"), q=("i8", "h n"), scale=("f32", "n"), y=("f16", "m n")),
    lambda a: of(y=np.concatenate([((a["q"].astype(np.int8) << 4) >> 4), a["q"] >> 4]).T.dot(
        a["x"].T).T * a["scale"]),
    of(m=70, h=72, n=136), of(m=2048, h=1024, n=2048),
    arguments=lambda r, s: of(q=r.integers(-128, 128, (s["h"], s["n"]))),
)  # fmt: skip


def _blocks_of_eight(a: Numbers) -> Numbers:
    k = a["a"].shape[1]
    n = len(a["b"])
    sa = np.repeat(a["sa"], 128, axis=1)[:, :k]
    sb = np.repeat(np.repeat(a["sb"], 128, axis=0), 128, axis=1)[:n, :k]
    return of(c=(a["a"] * sa) @ (a["b"] * sb).T)


EIGHT_BITS = Program(
    "eight bit floats with scales of blocks", 1, """
@op.kernel
def kernel(a: f8e4m3[m, k], b: f8e4m3[n, k], sa: f32[m, kb], sb: f32[nb, kb], c: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(k, step=128):
            part = a[i:i+128, p:p+128] @ b[j:j+128, p:p+128].T
            acc += part.to(f32) * sa[i:i+128, p // 128][:, None] * sb[j // 128, p // 128]
        c[i:i+128, j:j+128] = acc.to(bf16)
""",
    of(a=("f8e4m3", "m k"), b=("f8e4m3", "n k"), sa=("f32", "m kb"), sb=("f32", "nb kb"),
         c=("bf16", "m n")),
    _blocks_of_eight, of(m=140, k=256, n=130, kb=2, nb=2),
    of(m=2048, k=2048, n=2048, kb=16, nb=16),
)  # fmt: skip

INTEGERS = Program(
    "integers with scales of rows and columns", 1, """
@op.kernel
def kernel(a: i8[m, k], b: i8[n, k], ra: f32[m], rb: f32[n], c: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), i32)
        for p in op.tile_range(k, step=128):
            acc += a[i:i+128, p:p+128] @ b[j:j+128, p:p+128].T
        wide = acc.to(f32) * ra[i:i+128][:, None] * rb[j:j+128][None, :]
        c[i:i+128, j:j+128] = wide.to(bf16)
""",
    of(a=("i8", "m k"), b=("i8", "n k"), ra=("f32", "m"), rb=("f32", "n"), c=("bf16", "m n")),
    lambda a: of(c=a["a"] @ a["b"].T * a["ra"][:, None] * a["rb"][None, :]),
    of(m=140, k=160, n=130), of(m=2048, k=2048, n=2048),
)  # fmt: skip

MLP = Program(
    "gated block of three products", 3, """
@op.kernel
def kernel(x: bf16[m, 128], gate: bf16[128, n], up: bf16[128, n], down: bf16[n, 128],
           y: mut bf16[m, 128]):
    for i in op.tile_range(m, step=128):
        rows = x[i:i+128, :]
        out = op.zeros((128, 128), f32)
        for j in op.tile_range(n, step=64):
            g = rows @ gate[:, j:j+64]
            u = rows @ up[:, j:j+64]
            out += (op.silu(g) * u) @ down[j:j+64, :]
        y[i:i+128, :] = out.to(bf16)
""",
    of(x=("bf16", "m 128"), gate=("bf16", "128 n"), up=("bf16", "128 n"), down=("bf16", "n 128"),
         y=("bf16", "m 128")),
    lambda a: of(y=(_silu(a["x"] @ a["gate"]) * (a["x"] @ a["up"])) @ a["down"]),
    of(m=140, n=136), of(m=4096, n=4096), tolerance=2e-2,
)  # fmt: skip


def _norm(a: Numbers) -> Numbers:
    x = a["x"] / np.sqrt((a["x"] ** 2).mean(axis=1, keepdims=True) + 1e-5)
    return of(y=(x * a["g"]) @ a["w"] + a["x"][:, :1])


NORM = Program(
    "normed rows into a product", 1, """
@op.kernel
def kernel(x: bf16[m, k], g: bf16[k], w: bf16[k, n], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 128)):
        squares = op.zeros((64,), f32)
        for p in op.tile_range(k, step=128):
            wide = x[i:i+64, p:p+128].to(f32)
            squares += op.sum(wide * wide, axis=1)
        factor = op.rsqrt(squares / f32(k) + 0.00001)
        acc = op.zeros((64, 128), f32)
        for p in op.tile_range(k, step=64):
            part = x[i:i+64, p:p+64].to(f32) * factor[:, None] * g[p:p+64].to(f32)[None, :]
            acc += part.to(bf16) @ w[p:p+64, j:j+128]
        y[i:i+64, j:j+128] = acc + x[i:i+64, 0].to(f32)[:, None]
""",
    of(x=("bf16", "m k"), g=("bf16", "k"), w=("bf16", "k n"), y=("f32", "m n")),
    _norm, of(m=70, k=200, n=136), of(m=2048, k=2048, n=2048),
)  # fmt: skip


def _masked(a: Numbers) -> Numbers:
    inner = np.arange(64)[None, :] < np.arange(len(a["x"]))[:, None] % 128
    h = np.where(inner, a["x"] @ a["w"], 0)
    return of(y=np.maximum(h @ a["k"].T, 0) @ a["v"])


# What is the same in all iterations lay in registers that the other product of the loop filled.
MASKED = tuple(
    Program(
        f"a masked layer in front of a loop, {t}", 3, f"""
@op.kernel
def kernel(x: {t}[m, 64], w: {t}[64, 64], k: {t}[n, 64], v: {t}[n, 64], y: mut f32[m, 64]):
    for i in op.tile_range(m, step=128):
        inner = op.iota((128, 64), axis=1) < op.iota((128, 64), axis=0)
        h = op.where(inner, (x[i:i+128, :] @ w).to({t}), 0.0)
        acc = op.zeros((128, 64), f32)
        for j in op.tile_range(n, step=64):
            acc += op.relu(h @ k[j:j+64, :].T).to({t}) @ v[j:j+64, :]
        y[i:i+128, :] = acc
""",
        of(x=(t, "m 64"), w=(t, "64 64"), k=(t, "n 64"), v=(t, "n 64"), y=("f32", "m 64")),
        _masked, of(m=200, n=330), of(m=4096, n=4096),
    )
    for t in ("f16", "bf16")
)  # fmt: skip

PROGRAMS = (
    SWIGLU, ADAPTER, EXPERTS, GROUPED, FOUR_BITS, EIGHT_BITS, INTEGERS, MLP, NORM, *MASKED,
)  # fmt: skip
