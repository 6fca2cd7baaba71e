"""Guards that one test decides: the same values and faults, and where there is a test at all."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np
import pytest

from tessera_lang.analysis import check_barriers, uniformity
from tessera_lang.driver.pipeline import PROVE_BOUNDS, SIMPLIFY, VERSION_GUARDS
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.verify import verify
from tests.unit.analysis.ranges.test_ranges_sound import arguments
from tests.unit.lowering import optimized
from tests.unit.random_tile import random_kernel
from tests.unit.tile_interpreter import launch

HEAD = "@kernel tile[(4,)] grid[(2,)]\ndef k(x: f32[n], at: i32[n], y: mut f32[m], a: index):\n"
ID = "    i = grid_tile_linear_id()\n"
DECIDED = {
    "loop": f"{ID}    s = f32(0.0)\n    for t in range(a): s += x[i + t]\n    y[0] = s\n",
    "invariant": f"{ID}    for t in range(a): y[i] += f32(t)\n",
    "backwards": f"{ID}    for t in range(a): y[i] += x[n - 2 - t]\n",
    "steps": f"{ID}    for t in range(1, a, 3):\n        for u in range(3): y[i] += x[t + u]\n",
    "steps of a size": f"{ID}    for t in range(i, n, 5): y[2 * t + 1] = 2.0\n",
    "steps between numbers": f"{ID}    for t in range(0, 7, 3): y[i + t] = 2.0\n",
    "down": f"{ID}    for t in range(a, -1, -2): y[t] += 1.0\n",
    "a step of the call": f"{ID}    if a > 0:\n        for t in range(0, 9, a): y[t + i] += 1.0\n",
    "triangle": f"{ID}    for t in range(a):\n        for u in range(t, 2 * t): y[i + u] += x[t]\n",
    "neighbours": f"{ID}    y[i] = x[i] + x[i + 2] - 2.0 * x[i + 1]\n",
    "one test": f"{ID}    y[i] = y[i] + 1.0\n",
    "break": f"{ID}    for t in range(a):\n        y[i + t] += 1.0\n        if t > 2: break\n",
    "return": f"{ID}    for t in range(a):\n        y[i + t] += 1.0\n        if t > i: return\n",
    "condition": f"{ID}    for t in range(a):\n        y[i] += 1.0\n        if t > 2: y[i] = 0.0\n",
    "while": f"{ID}    t = a\n    while t > 1:\n        y[i] += f32(t)\n        t = t // 2\n",
    "a product": f"{ID}    for t in range(a):\n        u = i * a\n        y[u + t] += 1.0\n",
    "read behind": (
        f"{ID}    s = f32(0.0)\n    u = a\n"
        "    for t in range(a):\n        s += x[i + t]\n        u = t\n"
        "    if u < m and u >= 0: y[u] = s\n"
    ),
    "in a helper": f"{ID}    y[i] = three(x, i) + three(x, i + 1)\n",
    "twice": f"{ID}    y[i] = x[i]\n    tbarrier()\n    for t in range(a): y[i + t] += x[i]\n",
    "values from memory": f"{ID}    for t in range(a): y[i] += x[at[i]] + x[at[i + 1]]\n",
    "lanes meet": (
        "    s = tshared.alloc((4,), f32)\n    l = tile_id(0)\n    i = grid_tile_linear_id()\n"
        "    for t in range(a):\n        s[l] = x[t * 4 + l]\n        tbarrier()\n"
        "        y[i] += s[3 - l]\n        tbarrier()\n"
    ),
    "far steps": f"{ID}    for t in range(-a, a, 4611686018427387904): y[t + i] = 1.0\n",
    "far": f"{ID}    for t in range(a, a + 3): y[t] = 1.0\n",
    "far apart": f"{ID}    for t in range(0, a, 1152921504606846976): y[t * 4 + i] = 1.0\n",
}
UNDECIDED = {
    "one access": f"{ID}    y[i] = 1.0\n",
    "under a condition": f"{ID}    for t in range(a):\n        if t > 2: y[t + i] = 1.0\n",
    "behind an exit": f"{ID}    for t in range(a):\n        if t > i: break\n        y[t] = 1.0\n",
    "data": f"{ID}    for t in range(a): y[a * t * t] = 1.0\n",
    "a walk": f"{ID}    t = i\n    while t < a:\n        y[t * t] = 1.0\n        t += 3\n",
}
HELPER = "def three(x: f32[n], i: index) -> f32:\n    return x[i] + x[i + 2]\n\n"


def versioned(program: Program) -> Program:
    return verify(SIMPLIFY.run(verify(VERSION_GUARDS.run(program))))


def same(before: Operation, after: Operation, given: list[Any], case: object) -> list[int]:
    """Runs both: the same memory and faults, and what is called proved is inside."""
    other = [v.copy() if isinstance(v, np.ndarray) else v for v in given]

    def touched(operation: Operation, inside: bool) -> None:
        assert inside or operation.attributes["bounds"] == "guarded", case

    faults = launch(before, given, 2)
    assert launch(after, other, 2, touched=touched) == faults, case
    for one, two in zip(given, other, strict=True):
        assert np.array_equal(one, two), case
    return faults


def inputs(kernel: Operation, n: int, m: int, a: int, b: int = 0) -> list[Any]:
    """Arguments by the names of the parameters."""
    known = {
        "x": np.arange(n, dtype=np.float32) + 1, "at": np.arange(n, dtype=np.int32) - 1,
        "y": np.zeros(m, np.float32), "n": np.int64(n), "m": np.int64(m), "a": np.int64(a),
        "b": np.int64(b),
    }  # fmt: skip
    return [known[str(name)] for name in kernel.attributes["parameters"]]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", [*DECIDED, *UNDECIDED])
@pytest.mark.sample(3)
def test_values_and_faults_are_the_same(name: str) -> None:
    program = optimized(HELPER + HEAD + {**DECIDED, **UNDECIDED}[name])
    (before,), (after,) = program.operations, versioned(program).operations
    assert (after is before) == (name in UNDECIDED)
    assert not check_barriers(after, uniformity(after))
    clean = faulty = 0
    for n, m, a in product((0, 9, 40), (1, 11, 50), (0, 1, 4)):
        faults = same(before, after, inputs(before, n, m, a), (n, m, a))
        clean, faulty = clean + (not faults), faulty + bool(faults)
    assert clean and faulty
    if name.startswith("far"):
        for a in (2**63 - 2, -(2**63), 2**62 + 1):
            same(before, after, inputs(before, 9, 11, a), a)


@pytest.mark.parametrize("name", sorted(set(DECIDED) - {"values from memory", "far"}))
def test_where_the_test_holds_nothing_is_guarded(name: str) -> None:
    (after,) = versioned(optimized(HELPER + HEAD + DECIDED[name])).operations
    choices = [o for o in after.walk() if o.name == "tile.if"]
    pairs = [o.regions for o in choices] + [
        (one.regions[0], two.regions[0])
        for one, two in pairwise(o for o in after.regions[0].operations if o.name == "tile.for")
    ]
    assert any(guarded(b) and not guarded(a) for a, b in pairs)


def guarded(region: Any) -> bool:
    return any(
        inner.attributes.get("bounds") == "guarded"
        for operation in region.operations
        for inner in operation.walk()
    )


@pytest.mark.parametrize("seed", range(0, 80, 20))
@pytest.mark.sample(1)
def test_random_programs_do_the_same(seed: int) -> None:
    for part in range(seed, seed + 20):
        program = PROVE_BOUNDS.run(SIMPLIFY.run(verify(random_kernel(Random(part).choice))))
        (before,), (after,) = program.operations, versioned(program).operations
        choose = Random(part)
        for _ in range(3):
            same(before, after, arguments(choose), part)


LINES = (
    "s += x[at[{p}] + {c}]", "y[at[{p}] + {c}] = s", "y[i + t * {c}] += s",
    "s = s * 3.0 - f32(t)", "u = at[{p}]", "s += x[u]", "y[u + {c}] = s + f32(t)",
    "y[i + {c}] += s", "s += x[t + {c}] + x[n - 1 - t]", "y[t] = f32(u)",
    "if s > 9.0: break", "if t > {c}: y[i] = s",
    "for v in range(t, b): s += x[v + {c}]",
)  # fmt: skip


def random_loop(seed: int) -> str:
    """A loop of what may be known ahead, from memory, or neither."""
    choose = Random(seed)
    lines = [
        choose.choice(LINES).format(
            p=f"(t * {choose.randint(0, 5)} + {choose.randint(0, 9)}) % n", c=choose.randint(0, 3)
        )
        for _ in range(choose.randint(1, 4))
    ]
    lower, step = choose.choice(("0", "i", "a", "a - b")), choose.choice((1, 1, 2, 5, -1, -3))
    upper = choose.choice(("n", "m", "b", "2 * b", "7"))
    ends = f"{upper}, {lower}" if step < 0 else f"{lower}, {upper}"
    head = (
        HEAD.replace("a: index", "a: index, b: index") + ID + "    s = f32(1.0)\n    u = i32(0)\n"
    )
    body = "".join(f"            {line}\n" for line in lines)
    return f"{head}    if n > 0:\n        for t in range({ends}, {step}):\n{body}    y[i] = s\n"


@pytest.mark.parametrize("seed", range(0, 12, 3))
@pytest.mark.sample(1)
def test_random_loops_do_the_same(seed: int) -> None:
    for part in range(seed, seed + 3):
        program = optimized(random_loop(part))
        (before,), (after,) = program.operations, versioned(program).operations
        for n, m, a, b in product((3, 20), (2, 13), (0, 2), (3, 7)):
            same(before, after, inputs(before, n, m, a, b), (part, n, m, a, b))


def random_sums(seed: int) -> str:
    """Groups behind one another whose indices are sums of the same parts."""
    choose = Random(seed)
    terms = ["i", "a", "b", "p", "q", "r"]
    lines = ["p = a + tile_id(0)", f"q = i + {choose.choice('ab')}", "r = p + group_id(0)"]

    def index() -> str:
        picked = [choose.choice("ab"), *choose.sample(terms, choose.randint(0, 2))]
        return " + ".join([*picked, str(choose.randint(-2, 2))])

    for _ in range(choose.randint(2, 4)):
        lines += [f"y[{index()}] = x[{index()}] + f32(1.0)" for _ in range(choose.randint(1, 3))]
        if choose.random() < 0.3:
            name = f"v{len(lines)}"
            lines.append(f"{name} = {index()}")
            terms.append(name)
        lines.append(choose.choice((
            "tbarrier()", f"for t in range({choose.choice('ab')}): y[t + {index()}] = 5.0",
            f"for t in range(4): y[{index()} + t] += 1.0", "tbarrier()",
        )))  # fmt: skip
    head = HEAD.replace("a: index", "a: index, b: index").replace(
        "[(4,)] grid[(2,)]", "[(1,)] grid[(1,)]"
    )
    return head + ID + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("seed", range(0, 60, 6))
@pytest.mark.sample(1)
def test_groups_that_share_parts_of_their_sums(seed: int) -> None:
    """A test further on takes its sums apart, down to what only earlier groups read."""
    for part in range(seed, seed + 6):
        program = optimized(random_sums(part))
        (before,), (after,) = program.operations, versioned(program).operations
        for n, m, a, b in product((3, 30), (2, 33), (0, 2), (3, 7)):
            same(before, after, inputs(before, n, m, a, b), (part, n, m, a, b))
