"""Guards of indices from memory, some turns at once: the same values and faults."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.verify import verify
from tessera_lang.opt.tile import SIMPLIFY, VERSION_GUARDS
from tessera_lang.opt.tile.batch_guards import BATCH_GUARDS
from tests.unit.lowering import optimized
from tests.unit.opt.test_version_guards import same

HEAD = (
    "@kernel tile[(4,)] grid[(2,)]\n"
    "def k(x: i32[n], at: i32[m], y: mut i32[n], a: index, b: index):\n"
    "    i = grid_tile_linear_id()\n"
)
BATCHED = {
    "read": "    s = 0\n    for t in range(i, m): s += x[at[t]]\n    if i < n: y[i] = s\n",
    "write": "    for t in range(i, m, 8): y[at[t]] = i32(t)\n",
    "add": "    for t in range(i, m, 8): atomic_add(y[at[t] + 1], 1)\n",
    "two axes": "    for t in range(m): y[at[t]] = x[at[t] + i32(a)]\n",
    "two values": (
        "    s = 0\n    u = a\n    for t in range(m):\n        s = s * 3 + x[at[t]]\n"
        "        u = t - u\n    if i < n: y[i] = s + i32(u)\n"
    ),
    "numbers as bounds": (
        "    if m > 1:\n        for t in range(a, b): y[at[t & 1] + i32(i)] = i32(t)\n"
    ),
}
LEFT = {
    "known ahead": "    for t in range(a): y[i + t] = 1\n",
    "its own result": "    s = 0\n    for t in range(m): s = x[s + at[t]]\n    y[i] = s\n",
    "indices that are written": "    for t in range(n): y[y[t]] = 1\n",
    "guarded indices": "    s = 0\n    for t in range(a): s += x[at[t]]\n    if i < n: y[i] = s\n",
    "down": "    for t in range(m - 1, -1, -1): y[at[t]] = 1\n",
    "a condition": "    for t in range(m):\n        if at[t] > 1: y[at[t]] = 1\n",
}


def batched(program: Program) -> Program:
    return verify(SIMPLIFY.run(verify(BATCH_GUARDS.run(program))))


def inputs(kernel: Operation, n: int, m: int, ends: tuple[int, int]) -> list[Any]:
    at = (np.arange(m, dtype=np.int32) * 7) % 11 - (m > 20)
    known = {
        "x": np.arange(n, dtype=np.int32) + 1, "at": at, "y": np.zeros(n, np.int32),
        "n": np.int64(n), "m": np.int64(m), "a": np.int64(ends[0]), "b": np.int64(ends[1]),
    }  # fmt: skip
    return [known[str(name)] for name in kernel.attributes["parameters"]]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", BATCHED)
def test_values_and_faults_are_the_same(name: str) -> None:
    program = optimized(HEAD + BATCHED[name])
    (before,), (after,) = program.operations, batched(program).operations
    assert sum(o.name == "tile.for" for o in after.walk()) == 2
    clean = faulty = 0
    for n, m, ends in product((0, 5, 30), (0, 1, 9, 24), ((0, 3), (1, 7))):
        faults = same(before, after, inputs(before, n, m, ends), (n, m, ends))
        clean, faulty = clean + (not faults), faulty + bool(faults)
    assert clean and faulty


@pytest.mark.parametrize("name", LEFT)
def test_what_stays(name: str) -> None:
    program = optimized(HEAD + LEFT[name])
    assert BATCH_GUARDS.run(program) is program


def test_bounds_that_would_wrap() -> None:
    program = optimized(HEAD + BATCHED["numbers as bounds"])
    (before,), (after,) = program.operations, batched(program).operations
    top, low = 2**63 - 1, -(2**63)
    for ends in ((top - 3, top), (top, low), (low, low + 5), (low, low), (top, top)):
        same(before, after, inputs(before, 12, 9, ends), ends)


LINES = (
    "s += x[at[{p}] + {c}]", "y[at[{p}] + {c}] = s", "atomic_add(y[at[{p}]], t32 + {c})",
    "s = s * 3 - t32", "u = at[{p}]", "s += x[u]", "y[u + {c}] = s + t32", "y[i + {c}] += s",
    "s += x[t + {c}]", "y[t] = u",
)  # fmt: skip


def random_loop(seed: int) -> str:
    """A loop of what may be known ahead, from memory, or neither."""
    choose = Random(seed)
    lines = [
        choose.choice(LINES).format(
            p=f"(t * {choose.randint(0, 5)} + {choose.randint(0, 9)}) % m", c=choose.randint(0, 3)
        )
        for _ in range(choose.randint(1, 4))
    ]
    lower, step = choose.choice(("0", "i", "a", "a - b")), choose.choice((1, 1, 2, 5))
    upper = choose.choice(("n", "m", "b", "2 * b", "7"))
    head = (
        f"    s = 1\n    u = 0\n    if m > 0:\n        for t in range({lower}, {upper}, {step}):\n"
    )
    body = "".join(f"            {line}\n" for line in ("t32 = i32(t)", *lines))
    return HEAD + head + "\n" + body + "    if i < n: y[i] = s + u\n"


@pytest.mark.parametrize("seed", range(0, 16, 4))
def test_random_loops_do_the_same(seed: int) -> None:
    for part in range(seed, seed + 4):
        program = optimized(random_loop(part))
        (before,), (after,) = program.operations, batched(VERSION_GUARDS.run(program)).operations
        for n, m, ends in product((3, 20), (2, 13), ((0, 3), (2, 9))):
            same(before, after, inputs(before, n, m, ends), (part, n, m, ends))
