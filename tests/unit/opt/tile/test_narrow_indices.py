"""Index arithmetic in 32 bits: the same numbers, and only where they fit."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.pipeline import NARROW, SIMPLIFY
from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.verify import verify
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import SMALL_SIZE
from tessera_lang.types.dtype import I32, INDEX
from tests.unit.analysis.ranges.test_ranges_sound import arguments
from tests.unit.lowering import optimized
from tests.unit.random_tile import random_kernel
from tests.unit.tile_interpreter import launch


def narrowed(program: Program) -> Program:
    return verify(SIMPLIFY.run(verify(NARROW.run(program))))


def small(program: Program) -> Program:
    """The same for a launch that says that all arrays are small."""
    (kernel,) = program.operations
    kernel = replace(kernel, attributes={**kernel.attributes, "small": True})
    return replace(program, operations=(kernel,))


def in_64_bits(program: Program) -> set[str]:
    """What is still reckoned of indices."""
    return {
        o.name.removeprefix("tile.")
        for o in program.walk()
        if o.name in ("tile.add", "tile.sub", "tile.mul", "tile.floordiv", "tile.mod", "tile.cmp")
        and o.operands[0].type == INDEX
    }


@pytest.mark.parametrize("seed", range(0, 120, 20))
@pytest.mark.sample(1)
def test_random_programs_do_the_same(seed: int) -> None:
    for part in range(20):
        program = verify(random_kernel(Random(seed + part).choice))
        choose = Random(seed + part)
        (before,) = program.operations
        (after,) = narrowed(program).operations
        for _ in range(3):
            given = arguments(choose)
            other = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
            assert launch(before, given, 3) == launch(after, other, 3), seed + part
            assert np.array_equal(given[0], other[0]), seed + part


def test_something_random_is_narrow() -> None:
    programs = [narrowed(verify(random_kernel(Random(seed).choice))) for seed in range(40)]
    narrow = [o for p in programs for o in p.walk() if o.attributes.get("exact")]
    assert len(narrow) > 40


# --- what a launch says --------------------------------------------------------------------------

STRIDED = (
    "@kernel tile[(64,)] grid[(ceil_div(n, 64),)]\n"
    "def k(x: i8[n], out: mut i32[n]):\n"
    "    for i in range(grid_tile_linear_id(), n, grid_tile_count()):\n"
    "        out[i] = i32(x[i]) + i32(i % 100)\n"
)
ROWS = (
    "@kernel tile[(8, 8)] grid[(ceil_div(m, 8), ceil_div(n, 8))]\n"
    "def k(x: f32[m, n], out: mut f32[n, m]):\n"
    "    i = group_id(0) * 8 + tile_id(0)\n"
    "    j = group_id(1) * 8 + tile_id(1)\n"
    "    if i < m and j < n: out[j, i] = x[i, j]\n"
)


@pytest.mark.parametrize("text", [STRIDED, ROWS])
def test_of_small_arrays_nothing_takes_64_bits(text: str) -> None:
    assert in_64_bits(narrowed(small(optimized(text)))) == set()


@pytest.mark.parametrize("text", [STRIDED, ROWS])
def test_of_others_it_stays(text: str) -> None:
    assert in_64_bits(narrowed(optimized(text)))


@pytest.mark.parametrize(
    "body",
    [
        "    i = grid_tile_linear_id() * 8\n    if i < n: out[i] = 1.0\n",  # 2^34
        "    i = group_id(0) * group_id(0)\n    if i < n: out[i] = 1.0\n",
        "    i = n * n\n    if 0 <= i and i < n: out[i] = 1.0\n",
        "    i = index(s)\n    if 0 <= i and i < n: out[i] = 1.0\n",
    ],
)
def test_what_may_be_large_stays(body: str) -> None:
    text = f"@kernel tile[(64,)]\ndef k(x: f32[n], out: mut f32[n], s: i64):\n{body}"
    assert in_64_bits(narrowed(small(optimized(text))))


class _Stub:
    """An array of very many elements, without memory: what is read follows from the place."""

    def __init__(self, size: int, dtype: Any) -> None:
        self.shape, self.dtype = (size,), np.dtype(dtype)
        self.written: dict[int, int] = {}

    def __getitem__(self, place: tuple[int, ...]) -> Any:
        return self.dtype.type(place[0] % 101 - 50)

    def __setitem__(self, place: tuple[int, ...], value: Any) -> None:
        self.written[place[0]] = int(value)


@pytest.mark.parametrize(
    "size", [SMALL_SIZE - 1, SMALL_SIZE, 2**31 - 65, 2**31 - 1, 2**31, 2**31 + 65, 2**32 + 3]
)
def test_around_two_to_the_31(size: int) -> None:
    """The first and the last groups: what is narrow is right, and what is not small is not."""
    program = optimized(STRIDED)
    if size <= SMALL_SIZE:
        program = small(program)
    (kernel,) = narrowed(program).operations
    groups = -(-size // 64)
    x, out = _Stub(size, np.int8), _Stub(size, np.int32)
    given = {"x": x, "out": out, "n": np.int64(size)}
    names = kernel.attributes["parameters"]
    assert isinstance(names, tuple)
    assert launch(kernel, [given[str(n)] for n in names], groups, which=[0, groups - 1]) == []
    places = [*range(64), *range((groups - 1) * 64, size)]
    assert out.written == {i: i % 101 - 50 + i % 100 for i in places}


def _reads(kernel: Operation) -> set[object]:
    return {v.type for o in kernel.walk() if o.name == "tile.for" for v in o.operands[:3]}


def test_loops_count_in_32_bits() -> None:
    text = (
        "@kernel tile[(64,)] grid[(1,)]\ndef k(x: f32[n], out: mut f32[n]):\n"
        "    last = 0\n"
        "    for i in range(tile_linear_id(), n, 64):\n"
        "        if x[i] < 0.0: break\n"
        "        last = i\n"
        "    if n > 0: out[0] = f32(last)\n"
    )
    (kernel,) = narrowed(small(optimized(text))).operations
    assert _reads(kernel) == {I32}
    (loop,) = (o for o in kernel.walk() if o.name == "tile.for")
    assert loop.result.type == I32
