"""Products of all sorts: sparse, triangular, convolved, turned, of distances, partly exact."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Numbers, Program, of


def _sparse(a: Numbers) -> Numbers:
    rows, n = len(a["indptr"]) - 1, a["x"].shape[1]
    y = np.zeros((rows * 64, n))
    for i in range(rows):
        for s in range(int(a["indptr"][i]), int(a["indptr"][i + 1])):
            c = int(a["columns"][s])
            y[i * 64 : i * 64 + 64] += a["blocks"][s] @ a["x"][c * 64 : c * 64 + 64]
    return of(y=y)


def _sparse_arguments(r: np.random.Generator, sizes: dict[str, int]) -> Numbers:
    cuts = np.sort(r.integers(0, sizes["z"] + 1, sizes["q"] - 2))
    return of(
        indptr=np.concatenate([[0], cuts, [sizes["z"]]]),
        columns=r.integers(0, sizes["k"] // 64, sizes["z"]),
    )


SPARSE = Program(
    "block sparse rows", 1, """
@op.kernel
def kernel(blocks: bf16[z, 64, 64], indptr: i32[q], columns: i32[z], x: bf16[k, n],
           y: mut f32[m, n]):
    for i, j in op.tile_range(q - 1, n, step=(1, 128)):
        acc = op.zeros((64, 128), f32)
        for s in range(indptr[i], indptr[i + 1]):
            c = max(columns[s], 0)
            acc += blocks[s, :, :] @ x[c*64:c*64+64, j:j+128]
        y[i*64:i*64+64, j:j+128] = acc
""",
    of(blocks=("bf16", "z 64 64"), indptr=("i32", "q"), columns=("i32", "z"), x=("bf16", "k n"),
         y=("f32", "m n")),
    _sparse, of(z=5, q=4, m=192, k=192, n=130), of(z=512, q=65, m=4096, k=4096, n=2048),
    arguments=_sparse_arguments,
)  # fmt: skip


def _convolved(a: Numbers) -> Numbers:
    x, w = a["x"], a["w"]
    h, v = x.shape[1] - 2, x.shape[2] - 2
    y = np.zeros((len(x), h, v, w.shape[3]))
    for dy in range(3):
        for dx in range(3):
            y += x[:, dy : dy + h, dx : dx + v] @ w[dy, dx]
    return of(y=np.maximum(y, 0))


CONVOLVED = Program(
    "convolution as nine products", 1, """
@op.kernel
def kernel(x: bf16[b, h+2, v+2, c], w: bf16[3, 3, c, o], y: mut f32[b, h, v, o]):
    for z, r, s, q in op.tile_range(b, h, v, o, step=(1, 1, 64, 64)):
        acc = op.zeros((64, 64), f32)
        for t in range(9):
            dy = t // 3
            dx = t % 3
            for p in range(0, c, 64):
                acc += x[z, r+dy, s+dx:min(s+dx+64, v+dx), p:p+64] @ w[dy, dx, p:p+64, q:q+64]
        y[z, r, s:s+64, q:q+64] = op.relu(acc)
""",
    of(x=("bf16", "b h+2 v+2 c"), w=("bf16", "3 3 c o"), y=("f32", "b h v o")),
    _convolved, of(b=2, h=3, v=66, c=72, o=80), of(b=8, h=64, v=64, c=256, o=256),
)  # fmt: skip

GRAM = Program(
    "gram matrix, one triangle computed", 1, """
@op.kernel
def kernel(a: f16[m, k], c: mut f32[m, m]):
    for i, j in op.tile_range(m, m, step=(128, 128)):
        if j > i:
            continue
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+128, p:p+64] @ a[j:j+128, p:p+64].T
        c[i:i+128, j:j+128] = acc
""",
    of(a=("f16", "m k"), c=("f32", "m m")),
    lambda a: of(c=np.where(
        np.arange(len(a["a"]))[None, :] // 128 <= np.arange(len(a["a"]))[:, None] // 128,
        a["a"] @ a["a"].T, a["c"])),
    of(m=300, k=100), of(m=2048, k=2048),
)  # fmt: skip

TURNED = Program(
    "both factors turned", 1, """
def both(a, b):
    return op.matmul(a.T, b.T)

@op.kernel
def kernel(a: f16[k, m], b: f16[n, k], bias: f32[n]) -> f16[m, n]:
    out = op.empty((m, n), f16)
    for i, j in op.tile_range(m, n, step=(64, 128)):
        acc = op.zeros((64, 128), f32)
        p = 0
        while p < k:
            acc += both(a[p:p+64, i:i+64], b[j:j+128, p:p+64])
            p += 64
        out[i:i+64, j:j+128] = (acc + bias[j:j+128][None, :]).to(f16)
    return out
""",
    of(a=("f16", "k m"), b=("f16", "n k"), bias=("f32", "n")),
    lambda a: of(result=a["a"].T @ a["b"].T + a["bias"]),
    of(m=72, n=136, k=104), of(m=2048, n=2048, k=2048),
)  # fmt: skip

NEAREST = Program(
    "nearest centre", 1, """
@op.kernel
def kernel(x: bf16[m, 64], centre: bf16[n, 64], which: mut i32[m], distance: mut f32[m]):
    for i in op.tile_range(m, step=128):
        rows = x[i:i+128, :]
        wide = rows.to(f32)
        best = op.full((128,), inf, f32)
        at = op.zeros((128,), i32)
        for j in op.tile_range(n, step=64):
            c = centre[j:j+64, :]
            cw = c.to(f32)
            d = op.sum(cw * cw, axis=1)[None, :] - (rows @ c.T) * 2.0
            least = op.min(d, axis=1)
            found = op.argmin(d, axis=1).to(i32) + i32(j)
            at = op.where(least < best, found, at)
            best = min(best, least)
        which[i:i+128] = at
        distance[i:i+128] = best + op.sum(wide * wide, axis=1)
""",
    of(x=("bf16", "m 64"), centre=("bf16", "n 64"), which=("i32", "m"), distance=("f32", "m")),
    lambda a: (lambda d: of(which=d.argmin(axis=1), distance=d.min(axis=1)))(
        ((a["x"][:, None, :] - a["centre"][None]) ** 2).sum(axis=2)),
    of(m=150, n=100), of(m=8192, n=1024), tolerance=1e-5,
)  # fmt: skip


def _entropy(a: Numbers) -> Numbers:
    s = a["x"] @ a["w"].T
    top = s.max(axis=1)
    total = np.log(np.exp(s - top[:, None]).sum(axis=1)) + top
    return of(loss=total - s[np.arange(len(s)), a["label"].astype(int)])


ENTROPY = Program(
    "cross entropy of a linear layer", 1, """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[v, k], label: i32[m], loss: mut f32[m]):
    for i in op.tile_range(m, step=128):
        top = op.full((128,), -inf, f32)
        total = op.zeros((128,), f32)
        picked = op.zeros((128,), f32)
        wanted = label[i:i+128]
        for j in op.tile_range(v, step=128):
            acc = op.zeros((128, 128), f32)
            for p in op.tile_range(k, step=64):
                acc += x[i:i+128, p:p+64] @ w[j:j+128, p:p+64].T
            now = max(top, op.max(acc, axis=1))
            total = total * exp(top - now) + op.sum(exp(acc - now[:, None]), axis=1)
            top = now
            column = op.iota((128, 128), axis=1).to(i32) + i32(j)
            picked += op.sum(op.where(column == wanted[:, None], acc, 0.0), axis=1)
        loss[i:i+128] = op.log(total) + top - picked
""",
    of(x=("bf16", "m k"), w=("bf16", "v k"), label=("i32", "m"), loss=("f32", "m")),
    _entropy, of(m=140, k=72, v=200), of(m=4096, k=1024, v=8192),
    arguments=lambda r, s: of(label=r.integers(0, s["v"], s["m"])), tolerance=1e-4,
)  # fmt: skip

COMPLEX = Program(
    "complex numbers in two parts", 4, """
@op.kernel
def kernel(ar: f16[m, k], ai: f16[m, k], br: f16[k, n], bi: f16[k, n], cr: mut f32[m, n],
           ci: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        real = op.zeros((64, 64), f32)
        minus = op.zeros((64, 64), f32)
        imaginary = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            x, y = ar[i:i+64, p:p+64], ai[i:i+64, p:p+64]
            u, v = br[p:p+64, j:j+64], bi[p:p+64, j:j+64]
            real += x @ u
            minus += y @ v
            imaginary += x @ v + y @ u
        cr[i:i+64, j:j+64] = real - minus
        ci[i:i+64, j:j+64] = imaginary
""",
    of(ar=("f16", "m k"), ai=("f16", "m k"), br=("f16", "k n"), bi=("f16", "k n"),
         cr=("f32", "m n"), ci=("f32", "m n")),
    lambda a: of(cr=a["ar"] @ a["br"] - a["ai"] @ a["bi"],
       ci=a["ar"] @ a["bi"] + a["ai"] @ a["br"]),
    of(m=72, n=80, k=136), of(m=2048, n=2048, k=1024),
)  # fmt: skip

SAMPLED = Program(
    "product where blocks are asked for", 1, """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], asked: i8[mb, nb], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        if asked[i // 64, j // 64] != 0:
            for p in op.tile_range(k, step=64):
                acc += a[i:i+64, p:p+64] @ b[p:p+64, j:j+64]
            acc = acc * 0.5
        c[i:i+64, j:j+64] = acc
""",
    of(a=("bf16", "m k"), b=("bf16", "k n"), asked=("i8", "mb nb"), c=("f32", "m n")),
    lambda a: of(c=a["a"] @ a["b"] * 0.5 * np.repeat(np.repeat(
        a["asked"] != 0, 64, axis=0), 64, axis=1)[: len(a["a"]), : a["b"].shape[1]]),
    of(m=130, n=192, k=100, mb=3, nb=3), of(m=2048, n=2048, k=2048, mb=32, nb=32),
    arguments=lambda r, s: of(asked=r.integers(0, 2, (s["mb"], s["nb"]))),
)  # fmt: skip

MIXED = Program(
    "one product by units, one exact", 2, """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], u: f32[m, 32], v: f32[32, n], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+64, p:p+64] @ b[p:p+64, j:j+64]
        c[i:i+64, j:j+64] = acc + u[i:i+64, :] @ v[:, j:j+64]
""",
    of(a=("bf16", "m k"), b=("bf16", "k n"), u=("f32", "m 32"), v=("f32", "32 n"),
         c=("f32", "m n")),
    lambda a: of(c=a["a"] @ a["b"] + a["u"] @ a["v"]),
    of(m=72, n=80, k=136), of(m=2048, n=2048, k=2048),
)  # fmt: skip

PANEL = Program(
    "normal equations times a panel", 2, """
@op.kernel
def kernel(a: bf16[m, n], v: bf16[n, 64], y: mut f32[n, 64]):
    for i in op.tile_range(m, step=64):
        t = op.zeros((64, 64), f32)
        for p in op.tile_range(n, step=64):
            t += a[i:i+64, p:p+64] @ v[p:p+64, :]
        small = t.to(bf16)
        for p in op.tile_range(n, step=64):
            y[p:p+64, :] += a[i:i+64, p:p+64].T @ small
""",
    of(a=("bf16", "m n"), v=("bf16", "n 64"), y=("f32", "n 64")),
    lambda a: of(y=a["y"] + a["a"].T @ (a["a"] @ a["v"])),
    of(m=100, n=136), of(m=4096, n=1024), tolerance=2e-2,
)  # fmt: skip


def _layer_norm(a: Numbers) -> Numbers:
    y = a["x"] @ a["w"] + a["skip"]
    y = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-5)
    return of(y=y * a["g"] + a["b"])


LAYER_NORM = Program(
    "layer norm of a product and a skip", 1, """
def normed(v, eps):
    centred = v - op.mean(v, axis=1)[:, None]
    return centred * op.rsqrt(op.mean(centred * centred, axis=1) + eps)[:, None]

@op.kernel
def kernel(x: bf16[m, k], w: bf16[k, 256], skip: bf16[m, 256], g: f32[256], b: f32[256],
           y: mut bf16[m, 256]):
    for i in op.tile_range(m, step=64):
        acc = op.zeros((64, 256), f32)
        for p in op.tile_range(k, step=64):
            acc += x[i:i+64, p:p+64] @ w[p:p+64, :]
        full = acc + skip[i:i+64, :].to(f32)
        y[i:i+64, :] = (normed(full, 0.00001) * g[None, :] + b[None, :]).to(bf16)
""",
    of(x=("bf16", "m k"), w=("bf16", "k 256"), skip=("bf16", "m 256"), g=("f32", "256"),
         b=("f32", "256"), y=("bf16", "m 256")),
    _layer_norm, of(m=70, k=100), of(m=4096, k=1024),
)  # fmt: skip

SHARED_WEIGHT = Program(
    "stack of matrices and one weight", 1, """
@op.kernel
def kernel(x: f16[b, m, k], w: f16[k, n], y: mut f16[b, m, n]):
    for z, i, j in op.tile_range(b, m, n, step=(2, 64, 64)):
        acc = op.zeros((2, 64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += x[z:z+2, i:i+64, p:p+64] @ w[None, p:p+64, j:j+64]
        y[z:z+2, i:i+64, j:j+64] = acc.to(f16)
""",
    of(x=("f16", "b m k"), w=("f16", "k n"), y=("f16", "b m n")),
    lambda a: of(y=a["x"] @ a["w"]),
    of(b=3, m=72, n=80, k=136), of(b=8, m=1024, n=1024, k=1024),
)  # fmt: skip

STACKED = Program(
    "two matrices of a stack at a time", 1, """
@op.kernel
def kernel(x: bf16[b, m, k], w: bf16[b, k, n], y: mut f32[b, m, n]):
    for z, i, j in op.tile_range(b, m, n, step=(2, 64, 64)):
        acc = op.zeros((2, 64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += x[z:z+2, i:i+64, p:p+64] @ w[z:z+2, p:p+64, j:j+64]
        y[z:z+2, i:i+64, j:j+64] = acc
""",
    of(x=("bf16", "b m k"), w=("bf16", "b k n"), y=("f32", "b m n")),
    lambda a: of(y=a["x"] @ a["w"]),
    of(b=3, m=72, n=80, k=136), of(b=8, m=1024, n=1024, k=1024),
)  # fmt: skip

PROGRAMS = (
    SPARSE, CONVOLVED, GRAM, TURNED, NEAREST, ENTROPY, COMPLEX, SAMPLED, MIXED, PANEL, LAYER_NORM,
    SHARED_WEIGHT, STACKED,
)  # fmt: skip
