"""Axes that lie together are one: programs over arrays of rank 2 to 5 give what NumPy gives, bit
for bit, as all numbers are small integers; and nests have as few axes as the memory allows."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Operation
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

FOR, LOAD = "tessera.schedule.for", "tessera.schedule.load"


def _shape(r: random.Random) -> tuple[int, ...]:
    """Odd sizes, among them axes of one element and long ones."""
    rank = r.randint(2, 5)
    shape = [r.choice((1, 2, 3, 5, 7)) for _ in range(rank)]
    shape[r.randrange(rank)] = r.choice((13, 33, 130))
    return tuple(shape)


def _program(r: random.Random, shape: tuple[int, ...]) -> tuple[str, Any]:
    """The lines of a kernel over ``x`` and ``z`` that make ``y``, and the same by NumPy."""
    rank = len(shape)
    dims = ", ".join(f"n{i}" for i in range(rank))
    first = r.randrange(rank)
    last = r.randrange(first, rank)
    axes = tuple(range(first, last + 1))
    kind = r.choice(("sum", "max", "min"))
    rows = ", ".join([":"] * (rank - 1))
    tail = ", None" * (rank - 1)
    match r.choice(("all", "axes", "rows", "channel", "part", "weights", "turned")):
        case "all":
            return (
                f"return x * 2.0 - op.{kind}(x + z)",
                lambda x, z: 2 * x - getattr(np, kind)(x + z),
            )
        case "axes":
            body = f"return (x + z) - op.{kind}(x, axis={axes}, keepdims=True)"
            return body, lambda x, z: x + z - getattr(np, kind)(x, axis=axes, keepdims=True)
        case "rows":
            body = (
                f"y = op.empty_like(x)\n    for i in op.tile_range(n0, step=1):\n"
                f"        v = x[i, {rows}]\n"
                f"        y[i, {rows}] = v * op.{kind}(v) + z[i, {rows}]\n    return y"
            )
            over = tuple(range(1, rank))
            return body, lambda x, z: x * getattr(np, kind)(x, axis=over, keepdims=True) + z
        case "channel":
            rest = ", ".join([":"] * (rank - 2))
            at = f":, j, {rest}" if rest else ":, j"
            body = (
                f"y = op.empty_like(x)\n    for j in op.tile_range(n1, step=1):\n"
                f"        v = x[{at}]\n        y[{at}] = v - op.{kind}(v)\n    return y"
            )
            over = tuple(i for i in range(rank) if i != 1)
            return body, lambda x, z: x - getattr(np, kind)(x, axis=over, keepdims=True)
        case "part":
            end = max(1, shape[0] - 1)
            at = f":{end}, {rows}"
            body = (
                f"y = op.zeros(({dims},), f32)\n"
                f"    y[{at}] = x[{at}] + op.{kind}(z[{at}])\n    return y"
            )

            def by_numpy(x: Any, z: Any) -> Any:
                y = np.zeros_like(x)
                y[:end] = x[:end] + getattr(np, kind)(z[:end])
                return y

            return body, by_numpy
        case "weights":
            zeros = ", ".join(["0"] * (rank - 1))
            body = f"w = z[:, {zeros}]\n    return x * w[:{tail}] + op.{kind}(x)"
            return (
                body,
                lambda x, z: (
                    x * z[(slice(None), *(slice(0, 1),) * (rank - 1))] + getattr(np, kind)(x)
                ),
            )
        case _:
            body = f"return x.mT * 2.0 + op.{kind}(z.mT)"
            return body, lambda x, z: 2 * np.swapaxes(x, -1, -2) + getattr(np, kind)(z)


def compared(seeds: range, target: str) -> None:
    for seed in seeds:
        r = random.Random(seed)
        shape = _shape(r)
        body, by_numpy = _program(r, shape)
        t = f"f32[{', '.join(f'n{i}' for i in range(len(shape)))}]"
        text = f"@op.kernel\ndef f(x: {t}, z: {t}):\n    {body}\n"
        g = np.random.default_rng(seed)
        x, z = (g.integers(-4, 5, shape).astype(np.float32) for _ in range(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = np.asarray(loaded(text, target).f(x, z))
        want = by_numpy(x, z)
        assert np.array_equal(got.reshape(want.shape), want), (seed, shape, text)


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.sample(1)
def test_programs_as_numpy(target: str) -> None:
    compared(range(12), target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("part", range(4))
def test_more_programs_as_numpy(part: int, target: str) -> None:
    compared(range(12 + 30 * part, 42 + 30 * part), target)


def nests(kernel: Operation) -> list[int]:
    """How many axes the array of each load is seen with."""
    return [len(o.operands[0].view_type.shape) for o in kernel.walk() if o.name == LOAD]


def kernel(text: str, shapes: str) -> Operation:
    return from_source(
        f"@op.kernel\ndef kernel(x: f32[a, b, c, d], y: f32[d]):\n    {text}\n", shapes
    ).schedule.operations[0]


CONTIGUOUS = "x: f32[40, 30, 50, 70], y: f32[70]"


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("return x * 2.0", 1),
        ("return op.sum(x * x)", 1),
        ("return x / op.sqrt(op.sum(x * x))", 1),
        ("return op.sum(x, axis=(1, 2, 3))", 2),
        ("return op.sum(x, axis=(2, 3))", 2),
        ("return x + op.sum(x, axis=(2, 3), keepdims=True)", 2),
    ],
)
def test_a_loop_for_each_axis_that_is_apart(text: str, axes: int) -> None:
    assert max(nests(kernel(text, CONTIGUOUS))) == axes


def test_what_meets_a_row_keeps_its_rows() -> None:
    found = kernel("return x * y[None, None, None, :]", CONTIGUOUS)
    assert max(nests(found)) == 2


def test_an_array_that_is_taken_in_steps_keeps_its_axes() -> None:
    found = kernel("return op.sum(x[:, :, :, ::2])", CONTIGUOUS)
    assert max(nests(found)) == 2


def test_what_the_user_says_of_tiles_is_of_the_axes_of_the_program() -> None:
    text = "schedule.tile((2, 64))\n    return x * 2.0"
    assert max(nests(kernel(text, CONTIGUOUS))) == 4


def test_no_room_is_a_product_of_padded_axes() -> None:
    """Axes of 65 elements are no four of 128."""
    found = kernel("return x - op.mean(x)", "x: f32[65, 65, 65, 65], y: f32[65]")
    sizes = [v.type.sizes for o in found.walk() for v in o.results if hasattr(v.type, "sizes")]
    assert max(map(math.prod, sizes)) <= 1 << 14
