"""Stacks, slices and steps: batches that stretch, results in parts of arrays, odd tiles."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Program, of

PROGRAMS = (
    Program(
        "broadcast batches, whole",
        1,
        """
@op.kernel
def kernel(a: bf16[b, 1, m, k], w: bf16[1, h, k, n]) -> bf16[b, h, m, n]:
    return a @ w
""",
        of(a=("bf16", "b 1 m k"), w=("bf16", "1 h k n")),
        lambda a: of(result=a["a"] @ a["w"]),
        of(b=2, h=3, m=70, n=72, k=100),
        of(b=4, h=8, m=512, n=512, k=512),
    ),
    Program(
        "stack times one matrix, whole",
        1,
        """
@op.kernel
def kernel(a: f16[b, m, k], w: f16[k, n]) -> f16[b, m, n]:
    return a @ w[None, :, :]
""",
        of(a=("f16", "b m k"), w=("f16", "k n")),
        lambda a: of(result=a["a"] @ a["w"]),
        of(b=2, m=70, n=72, k=100),
        of(b=4, m=512, n=512, k=512),
        tolerance=2e-3,
    ),
    Program(
        "one matrix times a stack in tiles",
        1,
        """
@op.kernel
def kernel(w: f16[m, k], x: f16[b, k, n], y: mut f16[b, m, n]):
    for z, i, j in op.tile_range(b, m, n, step=(2, 64, 64)):
        acc = op.zeros((2, 64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += w[None, i:i+64, p:p+64] @ x[z:z+2, p:p+64, j:j+64]
        y[z:z+2, i:i+64, j:j+64] = acc.to(f16)
""",
        of(w=("f16", "m k"), x=("f16", "b k n"), y=("f16", "b m n")),
        lambda a: of(y=a["w"] @ a["x"]),
        of(b=3, m=70, n=72, k=100),
        of(b=8, m=512, n=512, k=512),
    ),
    Program(
        "interleaved complex numbers",
        4,
        """
@op.kernel
def kernel(a: f16[m, 2*k], b: f16[2*k, n], one: f16[k, n], c: mut f32[m, 2*n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        re = op.zeros((64, 64), f32)
        im = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=32):
            ar = a[i:i+64, 2*p:min(2*p+64, 2*k):2]
            ai = a[i:i+64, 2*p+1:min(2*p+65, 2*k):2]
            br = b[2*p:min(2*p+64, 2*k):2, j:j+64]
            bi = b[2*p+1:min(2*p+65, 2*k):2, j:j+64]
            re += ar @ br
            im += ar @ bi
            re -= ai @ bi
            im += ai @ br
        c[i:i+64, 2*j:min(2*j+128, 2*n):2] = re
        c[i:i+64, 2*j+1:min(2*j+129, 2*n):2] = im
""",
        of(a=("f16", "m 2*k"), b=("f16", "2*k n"), one=("f16", "k n"), c=("f32", "m 2*n")),
        lambda a: (lambda z: of(c=np.stack([z.real, z.imag], 2).reshape(a["c"].shape)))(
            (a["a"][:, ::2] + 1j * a["a"][:, 1::2]) @ (a["b"][::2] + 1j * a["b"][1::2])
        ),
        of(m=70, n=72, k=40),
        of(m=1024, n=1024, k=1024),
    ),
    Program(
        "scaled and added to what was there",
        1,
        """
@op.kernel
def kernel(a: bf16[k, m], b: bf16[k, n], ab: f32[2], c: mut bf16[m, n]):
    alpha, beta = ab[0], ab[1]
    for i, j in op.tile_range(m, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(k, step=64):
            acc += a[p:p+64, i:i+128].T @ b[p:p+64, j:j+128]
        c[i:i+128, j:j+128] = (alpha * acc + beta * c[i:i+128, j:j+128].to(f32)).to(bf16)
""",
        of(a=("bf16", "k m"), b=("bf16", "k n"), ab=("f32", "2"), c=("bf16", "m n")),
        lambda a: of(c=a["ab"][0] * a["a"].T @ a["b"] + a["ab"][1] * a["c"]),
        of(m=130, n=72, k=100),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "into the second half of the columns",
        1,
        """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], y: mut bf16[m, 2*n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+64, p:p+64] @ b[p:p+64, j:j+64]
        y[i:i+64, n+j:n+j+64] = acc.to(bf16)
""",
        of(a=("bf16", "m k"), b=("bf16", "k n"), y=("bf16", "m 2*n")),
        lambda a: of(y=np.concatenate([a["y"][:, : a["b"].shape[1]], a["a"] @ a["b"]], 1)),
        of(m=130, n=72, k=100),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "odd tiles",
        1,
        """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], c: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(96, 80)):
        acc = op.zeros((96, 80), f32)
        for p in op.tile_range(k, step=48):
            acc += a[i:i+96, p:p+48] @ b[p:p+48, j:j+80]
        c[i:i+96, j:j+80] = acc.to(bf16)
""",
        of(a=("bf16", "m k"), b=("bf16", "k n"), c=("bf16", "m n")),
        lambda a: of(c=a["a"] @ a["b"]),
        of(m=130, n=100, k=100),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "depthwise then pointwise",
        1,
        """
@op.kernel
def kernel(x: bf16[t, c], d: f32[3, c], w: bf16[c, o], y: mut bf16[t, o]):
    for i, j in op.tile_range(t, o, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(c, step=64):
            h = op.zeros((64, 64), f32)
            for s in range(3):
                part = op.window(x, (i + s - 1, p), (64, 64))[0:min(64, t-i), 0:min(64, c-p)]
                h += part.to(f32) * d[s, p:p+64][None, :]
            acc += op.relu(h).to(bf16) @ w[p:p+64, j:j+64]
        y[i:i+64, j:j+64] = acc.to(bf16)
""",
        of(x=("bf16", "t c"), d=("f32", "3 c"), w=("bf16", "c o"), y=("bf16", "t o")),
        lambda a: (
            lambda X: of(
                y=np.maximum(sum(X[s : s + len(a["x"])] * a["d"][s] for s in range(3)), 0) @ a["w"]
            )
        )(np.pad(a["x"], ((1, 1), (0, 0)))),
        of(t=70, c=72, o=80),
        of(t=4096, c=512, o=512),
        tolerance=1.2e-2,
    ),
    Program(
        "causal convolution with window",
        1,
        """
@op.kernel
def kernel(x: bf16[b, t, c], w: bf16[4, c, o], y: mut bf16[b, t, o]):
    for z, i, j in op.tile_range(b, t, o, step=(1, 64, 64)):
        acc = op.zeros((64, 64), f32)
        for s in range(4):
            for p in op.tile_range(c, step=64):
                seen = op.window(x, (z, i - 3 + s, p), (1, 64, 64), fill=0)
                rows = seen[0, 0:min(64, t-i), 0:min(64, c-p)]
                acc += rows @ w[s, p:p+64, j:j+64]
        y[z, i:i+64, j:j+64] = acc.to(bf16)
""",
        of(x=("bf16", "b t c"), w=("bf16", "4 c o"), y=("bf16", "b t o")),
        lambda a: of(
            y=sum(
                np.concatenate([np.zeros((a["x"].shape[0], 3, a["x"].shape[2])), a["x"]], 1)[
                    :, s : s + a["x"].shape[1]
                ]
                @ a["w"][s]
                for s in range(4)
            )
        ),
        of(b=2, t=70, c=72, o=80),
        of(b=8, t=1024, c=256, o=256),
    ),
    Program(
        "lora with a rank of eight in a second loop",
        3,
        """
@op.kernel
def kernel(x: f16[m, k], w: f16[n, k], a: f16[8, k], b: f16[n, 8]) -> f16[m, n]:
    y = op.empty((m, n), f16)
    for i, j in op.tile_range(m, n, step=(64, 128)):
        low = op.zeros((64, 8), f32)
        for p in op.tile_range(k, step=64):
            low += x[i:i+64, p:p+64] @ a[:, p:p+64].T
        acc = low.to(f16) @ b[j:j+128, :].T
        for p in op.tile_range(k, step=64):
            acc += x[i:i+64, p:p+64] @ w[j:j+128, p:p+64].T
        y[i:i+64, j:j+128] = acc
    return y
""",
        of(x=("f16", "m k"), w=("f16", "n k"), a=("f16", "8 k"), b=("f16", "n 8")),
        lambda a: of(result=a["x"] @ a["w"].T + (a["x"] @ a["a"].T) @ a["b"].T),
        of(m=130, n=70, k=100),
        of(m=2048, n=2048, k=2048),
        tolerance=4e-3,
    ),
    Program(
        "newton schulz of a wide matrix, global",
        1,
        """
@op.kernel
def kernel(x: bf16[m, k], g: mut f32[m, m], y: mut bf16[m, k]):
    for i, j in op.tile_range(m, m, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(k, step=64):
            acc += x[i:i+64, p:p+64] @ x[j:j+64, p:p+64].T
        g[i:i+64, j:j+64] = acc
    for i, j in op.tile_range(m, k, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(m, step=64):
            acc += g[i:i+64, p:p+64].to(bf16) @ x[p:p+64, j:j+64]
        y[i:i+64, j:j+64] = (1.5 * x[i:i+64, j:j+64].to(f32) - 0.5 * acc).to(bf16)
""",
        of(x=("bf16", "m k"), g=("f32", "m m"), y=("bf16", "m k")),
        lambda a: of(g=a["x"] @ a["x"].T, y=1.5 * a["x"] - 0.5 * (a["x"] @ a["x"].T) @ a["x"]),
        of(m=70, k=150),
        of(m=1024, k=2048),
        tolerance=1e-2,
    ),
    Program(
        "linear layer backward in one kernel",
        1,
        """
@op.kernel
def kernel(x: bf16[m, k], w: bf16[n, k], dy: bf16[m, n], dx: mut bf16[m, k],
           dw: mut bf16[n, k]):
    for i, j in op.tile_range(m, k, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(n, step=64):
            acc += dy[i:i+128, p:p+64] @ w[p:p+64, j:j+128]
        dx[i:i+128, j:j+128] = acc.to(bf16)
    for i, j in op.tile_range(n, k, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(m, step=64):
            acc += dy[p:p+64, i:i+128].T @ x[p:p+64, j:j+128]
        dw[i:i+128, j:j+128] = acc.to(bf16)
""",
        of(
            x=("bf16", "m k"),
            w=("bf16", "n k"),
            dy=("bf16", "m n"),
            dx=("bf16", "m k"),
            dw=("bf16", "n k"),
        ),
        lambda a: of(dx=a["dy"] @ a["w"], dw=a["dy"].T @ a["x"]),
        of(m=130, n=72, k=100),
        of(m=2048, n=2048, k=2048),
    ),
    Program(
        "weighted normal equations",
        1,
        """
@op.kernel
def kernel(x: f16[n, d], w: f32[n], g: mut f32[d, d]):
    for i, j in op.tile_range(d, d, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in op.tile_range(n, step=64):
            wx = (x[p:p+64, j:j+64].to(f32) * w[p:p+64][:, None]).to(f16)
            acc += x[p:p+64, i:i+64].T @ wx
        g[i:i+64, j:j+64] = acc
""",
        of(x=("f16", "n d"), w=("f32", "n"), g=("f32", "d d")),
        lambda a: of(g=a["x"].T @ (a["x"] * a["w"][:, None])),
        of(n=150, d=70),
        of(n=4096, d=1024),
        tolerance=2e-3,
    ),
)
