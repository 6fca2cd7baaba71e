"""Values of whole arrays, and writes of what they are made of, in random orders, against the same
text in NumPy, which computes a value where it gets its name."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_in_place import by_numpy
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import GPU

TARGETS = ["cpu", "sm_90a", GPU]

VALUES = (
    "{a} * 0.5 + {b}", "op.sqrt(op.abs({a}))", "op.where({a} > 0.5, {a}, {b})",
    "{a} - op.mean({b})",
    "op.cumsum({a}) * 0.1", "op.maximum({a}, {b})[::-1]", "op.roll({a}, 1)", "{a}[at] + {b}",
    "op.concat([{a}[1:], {b}[:1]])", "A @ {a} * 0.3", "op.sum(A * {a}, axis=1) * 0.2 + {b}",
    "{a}[at]", "{a} / (1.0 + op.sum({b} * {b}))",
)  # fmt: skip
WRITES = (
    "{w}[:] = {v}", "{w}[:] = {v} + {a}", "{w}[1:] = {v}[:-1]", "{w}[0] = op.sum({v}) * 0.1",
    "{w} += {v} * 0.5", "{w} *= 0.5", "{w}[:] = 0.25", "A[0] = {v}", "A[:, 1] = {v} * 0.5",
    "A *= 0.9", "A[:] = A.T", "{w}[:], {u}[:] = {v}, {a} * 0.5", "{w}[{v} > 0.6] = 0.5",
    "A[1:] = {v} * A[:-1]", "{w}[at] = {v}",
)  # fmt: skip


def program(r: random.Random, length: int) -> str:
    """A kernel of arrays `x`, `y` and `A` that are written, and of values of these."""
    values: list[str] = []
    body = list(_block(r, values, length, 1))
    results = r.sample(values, min(len(values), 2)) or ["x * 1.0"]
    head = "def f(x: mut f64[n], y: mut f64[n], A: mut f64[n, n], at: i32[n]):"
    return "\n".join([head, *body, f"    return {', '.join(results)}\n"])


def _block(r: random.Random, values: list[str], length: int, depth: int) -> Iterator[str]:
    space = "    " * depth
    for _ in range(length):
        kind = r.random()
        if kind < 0.5 or not values:
            if depth == 1 and (len(values) < 2 or (len(values) < 4 and r.random() < 0.4)):
                name, of = f"v{len(values)}", [*values, "x", "y"]
                values.append(name)
            else:
                name, of = r.choice(values), [*values, "x", "y"]
            yield space + f"{name} = " + r.choice(VALUES).format(a=r.choice(of), b=r.choice(of))
        elif kind < 0.85 or depth > 2:
            w = r.choice("xy")
            yield space + r.choice(WRITES).format(
                w=w, u="y" if w == "x" else "x", v=r.choice(values), a=r.choice([*values, "x", "y"])
            )
        elif kind < 0.93:
            yield space + f"for k{depth} in range({r.randint(1, 3)}):"
            yield from _block(r, values, r.randint(1, 3), depth + 1)
        else:
            yield space + f"if op.sum({r.choice('xy')}) > {r.choice(('0.5', '2.0', '100.0'))}:"
            yield (
                space
                + "    "
                + r.choice(WRITES).format(w="x", u="y", v=r.choice(values), a=r.choice(values))
            )


def agree_with_numpy(text: str, target: Any, n: int, before: str = "") -> bool:
    """Whether the kernel is taken; that it gives what NumPy gives is asserted."""
    r = np.random.default_rng(n)
    given = (
        r.uniform(0.1, 1, n), r.uniform(0.1, 1, n), r.uniform(0.1, 1, (n, n)) / n,
        r.permutation(n).astype(np.int32),
    )  # fmt: skip
    ours, theirs = ([x.copy() for x in given] for _ in "ab")
    plain = (before + text).replace("op.tile_range(n, step=16)", "range(0, n, 16)")
    want = by_numpy(plain, tuple(theirs), {"n": n})
    try:
        got = module_for(target, f"{before}@op.kernel\n{text}").f(*ours)
    except tessera.TesseraError as error:
        assert "T09" not in str(error), (text, error)
        return False
    want = () if want is None else want
    got = () if got is None else got
    results: tuple[Any, ...] = got if isinstance(got, tuple) else (got,)
    wanted: tuple[Any, ...] = want if isinstance(want, tuple) else (want,)
    assert len(results) == len(wanted)
    for a, b in zip((*results, *ours), (*wanted, *theirs), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, 1e-9, 1e-9, err_msg=text)
    return True


WRITTEN = {
    "swap": "t = x + 1.0\nx[:] = y\ny[:] = t",
    "shifted": "v = x + 1.0\nx[:] = 0.0\nx[1:] = v[:-1]",
    "in_a_loop": "v = x * y\nfor i in range(3):\n    x[:] = v + x\n    y[i] = op.sum(v)",
    "in_one_side": "v = x * 2.0\nif op.sum(y) > 0:\n    x[:] = 1.0\nelse:\n    y[:] = v\n"
                   "y[:] = v + x",
    "in_the_other": "v = x * 2.0\nif op.sum(y) < 0:\n    x[:] = 1.0\nelse:\n    y[:] = v\n"
                    "y[:] = v + x",
    "at_once": "x[:], y[:] = y * 2.0, x * 3.0",
    "at_once_in_a_loop": "v = x * 2.0\nfor i in range(3):\n    y += v\n"
                         "    x[:], y[:] = y * 1.0, x * 1.0",
    "added": "v = x * 2.0\nx += v\ny[:] = v",
    "carried": "v = x * 2.0\nk = 0\nwhile k < 4:\n    w = v + y\n    x[:] = x + v\n"
               "    y[0] = op.max(w)\n    v = v + w\n    k += 1\ny[1:] = v[1:]",
    "of_a_value": "v = op.cumsum(x)\nw = v * 2\nx[:] = v\ny[:] = w - v",
    "in_each_round": "for i in range(2):\n    w = x[1:] - x[:-1]\n    x[:-1] = w\n    y[1:] += w",
    "in_a_function": "w = x * 2.0\nlate(x)\nreturn w + x",
    "in_tiles": "v = x * 2.0\nfor i in op.tile_range(n, step=16):\n"
                "    x[i:i+16] = v[0] + v[i:i+16]",
}  # fmt: skip
LATE = "def late(a: mut f64[n]):\n    v = a * 2.0\n    a[:] = v[0] + v\n    a += v\n\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.sample(5)
def test_one_write(name: str, target: Any) -> None:
    lines = "".join(f"    {line}\n" for line in WRITTEN[name].split("\n"))
    text = f"def f(x: mut f64[n], y: mut f64[n], A: mut f64[n, n], at: i32[n]):\n{lines}"
    assert agree_with_numpy(text, target, 40, LATE)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sample(1)
def test_values_are_what_they_were(seed: int, target: Any) -> None:
    r = random.Random(f"written {seed}")
    taken = [agree_with_numpy(program(r, 5), target, r.choice((2, 7, 33))) for _ in range(3)]
    assert sum(taken) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(100, 112))
def test_many_orders(seed: int, target: Any) -> None:
    r = random.Random(f"written {seed}")
    taken = [agree_with_numpy(program(r, 8), target, r.choice((2, 7, 33, 300))) for _ in range(6)]
    assert sum(taken) >= 3
