"""Programs of loops and conditions of all sorts."""

from __future__ import annotations

import numpy as np

from tests.tile_programs_by_hand.program import Array, Numbers, Program, of

BACKWARDS = Program(
    "a loop from the end", 1, """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        last = (k - 1) // 64 * 64
        for p in range(last, -1, -64):
            s = max(p, 0)
            acc += a[i:i+64, s:s+64] @ b[s:s+64, j:j+64]
        c[i:i+64, j:j+64] = acc
""",
    of(a=("bf16", "m k"), b=("bf16", "k n"), c=("f32", "m n")),
    lambda a: of(c=a["a"] @ a["b"]), of(m=70, n=72, k=136), of(m=2048, n=2048, k=2048),
)  # fmt: skip

UPPER = Program(
    "an upper triangle", 1, """
@op.kernel
def kernel(u: f16[n, n], x: f16[n, r], y: mut f32[n, r]):
    for i, j in op.tile_range(n, r, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for p in range(i, n, 64):
            block = u[i:i+64, p:p+64]
            if p == i:
                keep = op.iota((64, 64), axis=1) >= op.iota((64, 64), axis=0)
                block = op.where(keep, block.to(f32), 0.0).to(f16)
            acc += block @ x[p:p+64, j:j+64]
        y[i:i+64, j:j+64] = acc
""",
    of(u=("f16", "n n"), x=("f16", "n r"), y=("f32", "n r")),
    lambda a: of(y=np.triu(a["u"]) @ a["x"]), of(n=130, r=72), of(n=2048, r=2048),
)  # fmt: skip

SCALES = Program(
    "scales of groups along the contraction", 1, """
@op.kernel
def kernel(x: bf16[m, k], q: i8[n, k], s: f32[n, g], y: mut bf16[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        for t in range(g):
            part = x[i:i+64, t*32:t*32+32] @ q[j:j+64, t*32:t*32+32].to(bf16).T
            acc += part.to(f32) * s[j:j+64, t][None, :]
        y[i:i+64, j:j+64] = acc.to(bf16)
""",
    of(x=("bf16", "m k"), q=("i8", "n k"), s=("f32", "n g"), y=("bf16", "m n")),
    lambda a: of(y=a["x"] @ (a["q"] * np.repeat(a["s"], 32, 1)).T),
    of(m=70, n=72, k=128, g=4), of(m=2048, n=2048, k=1024, g=32),
)  # fmt: skip


def _one_of_three(a: Numbers) -> Numbers:
    steps = -(-a["a"].shape[1] // 64)

    def rows(x: Array, which: int) -> Array:
        if which == 0:
            return np.asarray(x @ a["b"])
        if which in (1, 2):
            return np.asarray(x @ a["d"])
        return np.full((len(x), a["b"].shape[1]), float(steps))

    parts = [rows(a["a"][128 * i : 128 * i + 128], int(w)) for i, w in enumerate(a["kind"])]
    return of(c=np.concatenate(parts))


THREE = Program(
    "one of three ways", 2, """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], d: bf16[k, n], kind: i32[t], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(128, 128)):
        which = kind[i // 128]
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(k, step=64):
            x = a[i:i+128, p:p+64]
            if which == 0:
                acc += x @ b[p:p+64, j:j+128]
            elif which == 1 or which == 2:
                acc += x @ d[p:p+64, j:j+128]
            else:
                acc += 1.0
        c[i:i+128, j:j+128] = acc
""",
    of(a=("bf16", "m k"), b=("bf16", "k n"), d=("bf16", "k n"), kind=("i32", "t"),
       c=("f32", "m n")),
    _one_of_three, of(m=300, n=136, k=104, t=3), of(m=2048, n=2048, k=2048, t=16),
    arguments=lambda r, s: of(kind=np.array([0, 2, 7] * 6)[: s["t"]]),
)  # fmt: skip


def _counted(a: Numbers) -> Numbers:
    columns = []
    for j in range(0, len(a["used"]), 64):
        until = 64 * int(a["used"][j : j + 64].max())
        columns.append(a["a"][:, :until] @ a["b"][:until, j : j + 64])
    return of(c=np.concatenate(columns, axis=1))


COUNTED = Program(
    "a count that ends the loop", 1, """
@op.kernel
def kernel(a: bf16[m, k], b: bf16[k, n], used: u32[n], c: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=(64, 64)):
        acc = op.zeros((64, 64), f32)
        most = op.max(used[j:j+64])
        steps = 0
        for p in op.tile_range(k, step=64):
            if u32(steps) >= most:
                break
            acc += a[i:i+64, p:p+64] @ b[p:p+64, j:j+64]
            steps += 1
        c[i:i+64, j:j+64] = acc
""",
    of(a=("bf16", "m k"), b=("bf16", "k n"), used=("u32", "n"), c=("f32", "m n")),
    _counted, of(m=70, n=136, k=200), of(m=2048, n=2048, k=2048),
    arguments=lambda r, s: of(used=r.integers(0, 3, s["n"])),
)  # fmt: skip

PROGRAMS = (BACKWARDS, UPPER, SCALES, THREE, COUNTED)
