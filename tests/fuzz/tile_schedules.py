"""A schedule never changes a result: kernels under random schedules.

``python -m tests.fuzz.tile_schedules --count 500 --seed 1 [--target cuda] [--json FILE]``. The
numbers are small integers where a kernel only adds and multiplies, so that every grouping of its
sums is exact and all schedules give the same bits; elsewhere they are equal within the rounding.
What is refused is refused with a diagnostic. ``sm_80`` and ``sm_90a`` as target run Tile IR on
the interpreters of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import tessera_lang as tessera
from tests.fuzz.tile_programs import Array, Skipped, compiled
from tests.fuzz.tile_programs_generate import Axis, Parameter, TileProgram
from tests.fuzz.tile_programs_reference import DTYPES, evaluated, wrong


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
return y""", False),
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
class Outcome:
    """``refused``: with which code; ``wrong``: what is; else equal."""

    refused: str = ""
    wrong: str = ""
    skipped: bool = False


@dataclass
class Case:
    kernel: Kernel
    dtype: str
    lines: list[str]
    sizes: dict[str, int]
    seed: int

    @property
    def program(self) -> TileProgram:
        return program_of(self.kernel, self.dtype, self.lines)

    def plain(self) -> Case:
        return replace(self, lines=[])


SIZES = (1, 2, 3, 63, 64, 65, 131, 97, 128, 192, 0)


def case_of(seed: int) -> Case:
    r = random.Random(seed)
    kernel = KERNELS[seed % len(KERNELS)]
    dtype = r.choice(("f32", "f16", "bf16", "bf16"))
    sizes = {s: r.choice(SIZES) for s in "mnk"}
    if r.random() < 0.4:
        sizes = {s: r.choice((64, 128, 192)) for s in "mnk"}
    sizes["d"] = r.choice((16, 32, 64))
    return Case(kernel, dtype, schedule_of(r, kernel), sizes, seed)


def called(case: Case, target: str) -> list[Array]:
    """What a kernel gives. Raises TesseraError where the schedule is refused."""
    program = case.program
    given = arguments(program, case.sizes, case.kernel.exact, case.seed)
    found = compiled(program, target).kernel(*given)
    if target == "cuda":
        tessera.synchronize()
    results = [] if found is None or isinstance(found, tuple) else [found]
    written = [a for p, a in zip(program.parameters, given, strict=True) if p.mut]
    return [np.asarray(x) for x in (*written, *results)]


def tried(case: Case, target: str) -> Outcome:
    try:
        found = called(case, target)
    except Skipped:
        return Outcome(skipped=True)
    except tessera.TesseraError as error:
        codes = [d.code for d in error.diagnostics if d.severity == "error"]
        if case.lines and codes and all(c.startswith(("T06", "T07")) for c in codes):
            return Outcome(refused=codes[0])
        return Outcome(wrong=f"refused: {error}")
    except Exception as error:  # what we look for
        return Outcome(wrong=repr(error)[:600])
    try:
        return compared(case, target, found)
    except tessera.TesseraError as error:
        return Outcome(wrong=f"without a schedule: {error}")


def compared(case: Case, target: str, found: list[Array]) -> Outcome:
    """Beside float64, and bit for bit beside the kernel without a schedule."""
    program = case.plain().program
    given = arguments(program, case.sizes, case.kernel.exact, case.seed)
    arrays = {p.name: (a, p.dtype) for p, a in zip(program.parameters, given, strict=True)}
    with np.errstate(all="ignore"):
        tensors, results = evaluated(program.body, arrays, case.sizes)
    right = [tensors[p.name] for p in program.parameters if p.mut] + results
    for r, f in zip(right, found, strict=True):
        difference = wrong(r, f)
        if difference:
            return Outcome(wrong=difference)
    if case.kernel.exact or (target == "cpu" and not any("tile(" in x for x in case.lines)):
        for plain, f in zip(called(case.plain(), target), found, strict=True):
            if plain.tobytes() != f.tobytes():
                return Outcome(wrong="the bits are others than without a schedule")
    return Outcome()


def reduced(case: Case, target: str) -> Case:
    """The same wrong result with fewer directives."""
    kind = tried(case, target).wrong[:40]
    changed = True
    while changed:
        changed = False
        for at in range(len(case.lines)):
            smaller = replace(case, lines=case.lines[:at] + case.lines[at + 1 :])
            if tried(smaller, target).wrong[:20] == kind[:20]:
                case, changed = smaller, True
                break
    return case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="at most; 0: no limit")
    parser.add_argument("--target", choices=("cpu", "cuda", "sm_80", "sm_90a"), default="cpu")
    parser.add_argument("--without", default="", help="a directive to leave out")
    parser.add_argument("--json", default="", help="a file for seeds and outcomes")
    chosen = parser.parse_args()
    os.environ.setdefault("TESSERA_CACHE", "off")
    begin, equal = time.monotonic(), 0
    refused, faults = Counter[str](), dict[int, str]()
    seeds: list[int] = []
    seed = chosen.seed
    while equal < chosen.count:
        if chosen.seconds and time.monotonic() - begin > chosen.seconds:
            break
        case = case_of(seed)
        if chosen.without:
            case.lines = [x for x in case.lines if chosen.without not in x]
        outcome = tried(case, chosen.target)
        seeds.append(seed)
        seed += 1
        if outcome.refused:
            refused[outcome.refused] += 1
        elif outcome.wrong:
            faults[case.seed] = outcome.wrong
            small = reduced(case, chosen.target) if len(faults) < 8 else case
            print(f"seed {case.seed}, {small.sizes}: {outcome.wrong[:700]}", small.program.text(),
                  sep="\n", flush=True)  # fmt: skip
        elif not outcome.skipped:
            equal += 1
    print(f"{equal} schedules equal, {sum(refused.values())} refused {dict(refused)}, "
          f"{len(faults)} wrong, on {chosen.target}", file=sys.stderr)  # fmt: skip
    if chosen.json:
        report = {"target": chosen.target, "first seed": chosen.seed, "last seed": seed - 1,
                  "equal": equal, "refused": dict(refused),
                  "wrong": {str(k): v[:200] for k, v in faults.items()}}  # fmt: skip
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
