"""Kernels under random schedules: which directives, which sizes, which layouts.

Which results are right, and how they are compared, is another module's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tests.fuzz.tile_programs import Array, laid_out
from tests.fuzz.tile_programs_generate import Axis, Parameter, TileProgram
from tests.fuzz.tile_programs_reference import DTYPES

LAYOUTS = ("plain", "plain", "turned", "stepped", "reversed", "repeated")
MOST_INTERPRETED = 140  # no size is above where each operation of a lane is run by itself
PRIMES = (5, 7, 37, 97, 131, 157)


@dataclass(frozen=True)
class Kernel:
    """A kernel without a schedule. ``exact``: small integers stay exact in it. ``axes``: how
    many sizes ``schedule.tile`` takes; its sums are grouped by that, and by nothing else."""

    name: str
    parameters: str
    body: str
    exact: bool
    axes: int = 0


KERNELS = (
    Kernel("product", "A: T[m, k], B: T[k, n]", "return A @ B", True, 3),
    Kernel(
        "product_and_sum", "A: T[k, m], B: T[n, k], C: T[m, n]", "return A.T @ B.T + C", True, 3
    ),
    Kernel("into", "A: T[m, k], B: T[n, k], O: mut f32[m, n]", "O[:] = A @ B.T", True, 3),
    Kernel("sum", "A: f32[m, n], C: f32[m, n], O: mut f32[m, n]", "O[:] = A + C * A", True, 2),
    Kernel("loops", "A: T[m, k], B: T[n, k], v: f32[n]", """\
y = op.empty((m, n), f32)
for i, j in op.tile_range(m, n, step=(64, 64)):
    acc = op.zeros((64, 64), f32)
    for p in op.tile_range(k, step=32):
        acc += A[i:i+64, p:p+32] @ B[j:j+64, p:p+32].T
    y[i:i+64, j:j+64] = op.relu(acc + v[j:j+64][None, :])
return y""", True),
    Kernel("two_sums", "A: T[m, k], B: T[k, n], C: T[k, n]", """\
y = op.empty((m, n), T)
for i, j in op.tile_range(m, n, step=(128, 32)):
    a = op.zeros((128, 32), f32)
    b = op.zeros((128, 32), f32)
    for p in op.tile_range(k, step=64):
        x = A[i:i+128, p:p+64]
        a += x @ B[p:p+64, j:j+32]
        b += x @ C[p:p+64, j:j+32]
    y[i:i+128, j:j+32] = (op.tanh(a) * b).to(T)
return y""", False),
    Kernel("buffers", "A: T[m, k], B: T[k, n], C: mut f32[m, n]", """\
s = op.shared((64, 32), dtype=T)
t = op.shared((32, 64), dtype=T)
for i, j, p in op.tile_range(m, n, k, step=(64, 64, 32)):
    op.prefetch(s, A[i:i+64, p:p+32])
    op.prefetch(t, B[p:p+32, j:j+64])
    op.barrier()
    C[i:i+64, j:j+64] += s @ t""", True),
    Kernel("attention", "Q: T[m, d], K: T[k, d], V: T[k, d]", """\
y = op.empty((m, d), f32)
for i in op.tile_range(m, step=64):
    top = op.full((64,), -inf, f32)
    total = op.zeros((64,), f32)
    acc = op.zeros((64, d), f32)
    for j in op.tile_range(k, step=64):
        s = (Q[i:i+64, :] @ K[j:j+64, :].T).to(f32) * 0.125
        top2 = max(top, op.max(s, axis=1))
        w = exp(s - top2[:, None])
        shrink = exp(top - top2)
        total = total * shrink + op.sum(w, axis=1)
        acc = acc * shrink[:, None] + w @ V[j:j+64, :]
        top = top2
    y[i:i+64, :] = acc / (total + 1.0)[:, None]
return y""", False),
    Kernel("triangle", "A: T[m, k], B: T[k, n]", """\
y = op.empty((m, n), f32)
for i, j in op.tile_range(m, n, step=(64, 64)):
    acc = op.zeros((64, 64), f32)
    for p in range(0, i + 64, 32):
        if p % 64 == 0:
            acc += A[i:i+64, p:p+32] @ B[p:p+32, j:j+64]
    y[i:i+64, j:j+64] = acc
return y""", True),
    Kernel("chain", "A: T[m, d], B: T[d, k], C: T[k, n]", """\
y = op.empty((m, n), f32)
for i, j in op.tile_range(m, n, step=(64, 64)):
    acc = op.zeros((64, 64), f32)
    for p in op.tile_range(k, step=64):
        acc += op.relu(A[i:i+64, :] @ B[:, p:p+64]) @ C[p:p+64, j:j+64]
    y[i:i+64, j:j+64] = acc
return y""", True),
    Kernel("rows", "A: f32[m, n]", """\
y = op.empty((m, n), f32)
for i in op.tile_range(m, step=4):
    x = A[i:i+4, :]
    e = exp(x - op.max(x, axis=1)[:, None])
    y[i:i+4, :] = e / op.sum(e, axis=1)[:, None]
return y""", False),
)  # fmt: skip


def schedule_of(r: random.Random, kernel: Kernel) -> list[str]:
    """Some directives, of the values that the language takes."""
    tiles = (16, 32, 64, 64, 128, 128, 256, 48, 96)
    shape = tuple(r.choice(tiles if a < 2 else (16, 32, 64, 24)) for a in range(kernel.axes))
    every = {
        "warps": r.choice((1, 2, 4, 4, 8, 12)),
        "pipeline_stages": r.randrange(1, 6),
        "async_copy": r.random() < 0.5,
        "vectorize": r.choice((1, 2, 4, 8)),
        "unroll": r.choice((1, 2, 4)),
        "warp_specialize": r.random() < 0.5,
        "cluster": r.choice(((1, 1), (2, 1), (1, 2), (2, 2), (4, 1))),
        "persistent": r.random() < 0.5,
        "swizzle": r.choice((0, 32, 64, 128)),
    }
    lines = [f"schedule.{name}({value})" for name, value in every.items() if r.random() < 0.35]
    if kernel.axes and r.random() < 0.6:
        said = shape[: r.randrange(1, kernel.axes + 1)]
        lines.append(f"schedule.tile(({', '.join(map(str, said))},))")
    if r.random() < 0.35:
        padding = f", padding={r.choice((0, 1, 4, 8))}" if r.random() < 0.6 else ""
        lines.append(f"schedule.use_shared_memory({r.random() < 0.8}{padding})")
    return lines


def program_of(kernel: Kernel, dtype: str, lines: Sequence[str]) -> TileProgram:
    parameters: list[Parameter] = []
    for name, mut, t, dims in re.findall(r"(\w+): (mut )?(\w+)\[([^\]]*)\]", kernel.parameters):
        parameters.append(
            Parameter(name, dtype if t == "T" else t, tuple(dims.split(", ")), mut=bool(mut))
        )
    body = re.sub(r"(?<!\.)\bT\b", dtype, kernel.body).splitlines()
    axes = {s: Axis(s, s, 64) for s in ("m", "n", "k")}
    return TileProgram(0, parameters, [*lines, *body], axes, [kernel.name], dtype)


def arguments(program: TileProgram, sizes: dict[str, int], exact: bool, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for p in program.parameters:
        shape = tuple(sizes[d] for d in p.dims)
        value = rng.integers(-2, 3, shape) if exact else rng.uniform(-1, 1, shape)
        found.append(value.astype(DTYPES[p.dtype]))
    return found


@dataclass
class Case:
    """``layouts``: of each array, plain where there is none; ``words``: what is special here."""

    kernel: Kernel
    dtype: str
    lines: list[str]
    sizes: dict[str, int]
    seed: int
    layouts: tuple[str, ...] = ()
    words: tuple[str, ...] = field(default=(), compare=False)

    @property
    def program(self) -> TileProgram:
        return program_of(self.kernel, self.dtype, self.lines)

    def plain(self) -> Case:
        return replace(self, lines=[])

    def given(self) -> list[Array]:
        program = self.program
        plain = arguments(program, self.sizes, self.kernel.exact, self.seed)
        hows = (*self.layouts, *["plain"] * len(plain))
        return [laid_out(a, how, p.mut)
                for p, a, how in zip(program.parameters, plain, hows, strict=False)]  # fmt: skip

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.sizes}, {self.layouts}\n{self.program.text()}"


def sizes_of(r: random.Random, tile: int, most: int) -> tuple[str, int]:
    """A size, and what it is beside the tile of its axis."""
    every = {"0": 0, "1": 1, "2": 2, "3": 3, "tile-1": tile - 1, "tile": tile, "tile+1": tile + 1,
             "2*tile+3": 2 * tile + 3, "prime": r.choice(PRIMES), "2*tile": 2 * tile,
             "3*tile": 3 * tile}  # fmt: skip
    weights = (1, 1, 1, 1, 3, 3, 3, 4, 3, 2, 2)
    fitting = [(n, w) for n, w in zip(every, weights, strict=True) if every[n] <= most]
    name = r.choices([n for n, _ in fitting], [w for _, w in fitting])[0]
    return name, every[name]


def case_of(seed: int, most: int = 400) -> Case:
    """``most``: no size is above, but for whole tiles."""
    r = random.Random(seed)
    kernel = KERNELS[seed % len(KERNELS)]
    lines = schedule_of(r, kernel)
    said = [int(n) for line in lines if "tile(" in line for n in re.findall(r"\d+", line)]
    tiles = dict(zip("mnk" if kernel.axes == 3 else "mn", said, strict=False))
    whole = r.random() < 0.45  # whole tiles of narrow numbers: what is asynchronous is so
    dtype = r.choice(("f16", "bf16") if whole else ("f32", "f16", "bf16"))
    found = {s: sizes_of(r, tiles.get(s, 64), most) for s in "mnk"}
    if whole:
        counts = {s: r.choice((1, 2, 3) if s != "k" else (2, 3, 4, 6)) for s in "mnk"}
        found = {s: (f"{n}*tile", min(n * tiles.get(s, 64), 256)) for s, n in counts.items()}
    sizes = {s: n for s, (_, n) in found.items()}
    sizes["d"] = r.choice((16, 32, 64))
    count = kernel.parameters.count("[")
    layouts = tuple(r.choices(LAYOUTS, k=count)) if r.random() < (0.15 if whole else 0.6) else ()
    words = (kernel.name, dtype, *lines, *(f"size {w}" for w, _ in found.values()),
             *(f"layout {w}" for w in layouts or ("plain",)))  # fmt: skip
    return Case(kernel, dtype, lines, sizes, seed, layouts, words)
