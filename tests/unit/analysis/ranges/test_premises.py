"""What a launch has seen to hold as premises: grid clauses and ``where`` clauses drop guards, and
no range is too narrow where numbers wrap."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from tessera_lang.analysis import ranges
from tessera_lang.ir.core import PointerType, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.ir.verify import verify
from tessera_lang.target.launch_plan import LARGEST_SIZE, reach
from tessera_lang.types.dtype import F32, INDEX, DType
from tests.unit.lowering import optimized
from tests.unit.tile_interpreter import launch

ROWS = (
    "    r = group_id({axis})\n    for k in range(tile_linear_id(), n, 64): out[r, k] = x[r, k]\n"
)
PROVED = {
    "a row a group": ("grid[(m,)]", "x: f32[m, n], out: mut f32[m, n]", ROWS.format(axis=0)),
    "rows and parts": ("grid[(parts, m)]", "x: f32[m, n], out: mut f32[m, n], p: f32[parts]",
                       ROWS.format(axis=1)),
    "an element more": ("grid[(n + 1,)]", "x: f32[n], out: mut f32[n + 1]",
                        "    out[group_id(0)] = 1.0\n"),
    "whole groups": ("grid[(ceil_div(n, 64),)]", "x: f32[n], out: mut f32[n]",
                     "    i = grid_tile_linear_id()\n    out[i] = x[i]\n", "n % 64 == 0"),
    "a block a group": ("grid[(g,)]", "x: f32[64 * g], out: mut f32[64 * g], s: f32[g]",
                        "    i = grid_tile_linear_id()\n    out[i] = x[i]\n"),
    "a total a group": ("grid[(ceil_div(n, 64),)]", "x: f32[n], out: mut f32[g]",
                        "    out[group_id(0)] = 1.0\n", "g == ceil_div(n, 64)"),
    "a total of 256 groups": ("grid[(g,)]", "x: f32[g], out: mut f32[s]",
                              "    out[group_id(0) // 256] = 1.0\n", "s == ceil_div(g, 256)"),
    "elements in a row": (
        "grid[(ceil_div(a * b * c * d, 64),)]", "x: f32[a, b, c, d], out: mut f32[a, b, c, d]",
        "    k = grid_tile_linear_id()\n"
        "    if k < a * b * c * d:\n"
        "        r = k // d\n"
        "        v = x[r // c // b, r // c % b, r % c, k % d]\n"
        "        out[r // c // b, r // c % b, r % c, k % d] = v\n",
    ),
    "one of two axes": ("grid[(m * n,)]", "x: f32[m, n], out: mut f32[n]",
                        "    out[group_id(0) % n] = x[group_id(0) // n, 0]\n"),
    "as many as": ("grid[(n,)]", "x: f32[n], out: mut f32[m]", "    out[group_id(0)] = 1.0\n",
                   "m >= n"),
    "few": ("grid[(1,)]", "x: f32[n], out: mut f32[n]",
            "    out[tile_linear_id() // 8] = 1.0\n", "n >= 8"),
    "steps that fill": ("grid[(1,)]", "x: f32[n], out: mut f32[n]",
                        "    for k in range(tile_linear_id() * 4, n - n % 256, 256):\n"
                        "        out[k + 3] = x[k]\n"),
}  # fmt: skip
UNPROVED = {
    "a group more": ("grid[(n + 1,)]", "x: f32[n], out: mut f32[n]",
                     "    out[group_id(0)] = 1.0\n"),
    "the last group": ("grid[(ceil_div(n, 64),)]", "x: f32[n], out: mut f32[n]",
                       "    out[grid_tile_linear_id()] = 1.0\n"),
    "another axis": ("grid[(m, n)]", "x: f32[m, n], out: mut f32[m]",
                     "    out[group_id(1)] = 1.0\n"),
    "not all of a block": ("grid[(g,)]", "x: f32[g], out: mut f32[63 * g]",
                           "    out[grid_tile_linear_id()] = 1.0\n"),
    "one too few": ("grid[(n,)]", "x: f32[n], out: mut f32[m]", "    out[group_id(0)] = 1.0\n",
                    "m + 1 >= n"),
    "not equal": ("grid[(n,)]", "x: f32[n], out: mut f32[m]", "    out[group_id(0)] = 1.0\n",
                  "m != n"),
    "elements of another array": (
        "grid[(1,)]", "x: f32[a, b], y: f32[c], out: mut f32[c, b]",
        "    k = tile_linear_id()\n    if k < a * b: out[k // b, k % b] = 1.0\n",
    ),
    "steps of another width": ("grid[(1,)]", "x: f32[n], out: mut f32[n]",
                               "    for k in range(tile_linear_id() * 4, n - n % 128, 256):\n"
                               "        out[k + 3] = x[k]\n"),
}  # fmt: skip


def _bounds(row: tuple[str, ...]) -> set[str]:
    grid, parameters, body, *where = row
    clause = f" where {where[0]}" if where else ""
    text = f"@kernel tile[(64,)] {grid}\ndef k({parameters}){clause}:\n{body}"
    return {str(o.attributes["bounds"]) for o in optimized(text).walk() if "bounds" in o.attributes}


@pytest.mark.parametrize("name", PROVED)
def test_proved(name: str) -> None:
    assert _bounds(PROVED[name]) == {"proved"}


@pytest.mark.parametrize("name", UNPROVED)
def test_not_proved(name: str) -> None:
    assert "guarded" in _bounds(UNPROVED[name])


# --- ranges hold whatever the premises say -------------------------------------------------------

_PREDICATES = {
    "eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__,
    "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip
_SIZES = (0, 1, 2, 3, 7, 64, 255, 256, 4096, 65537, 2**31 - 1, 2**31, 2**33 + 5, LARGEST_SIZE)


class _Sizes:
    """Expressions of sizes beside their exact numbers, as a launch computes them."""

    def __init__(self, choose: Random, builder: Builder, pool: list[tuple[Value, int]]) -> None:
        self.choose, self.builder, self.pool = choose, builder, pool

    def size(self, depth: int) -> tuple[Value, int]:
        choose, builder = self.choose, self.builder
        if depth == 0 or choose.random() < 0.2:
            if choose.random() < 0.7:
                return choose.choice(self.pool)
            number = choose.choice((1, 2, 3, 8, 63, 64, 100, 4096))
            return builder.index(number), number
        kind = choose.choice(("add", "sub", "mul", "mul", "floordiv", "mod", "min", "max", "ceil"))
        (a, x), (b, y) = self.size(depth - 1), self.size(depth - 1)
        if kind in ("floordiv", "mod", "ceil") and y == 0:
            return a, x
        if kind == "ceil":
            rest = builder.cmp("ne", builder.binary("mod", a, b), builder.index(0))
            quotient = builder.binary("floordiv", a, b)
            made = builder.binary("add", quotient, builder.cast(rest, INDEX)), -(-x // y)
        else:
            exact = {"add": x + y, "sub": x - y, "mul": x * y, "min": min(x, y), "max": max(x, y)}
            number = exact[kind] if kind in exact else x // y if kind == "floordiv" else x % y
            made = builder.binary(kind, a, b), number
        self.pool.append(made)
        return made


@pytest.mark.parametrize("seed", range(0, 240, 40))
@pytest.mark.sample(1)
def test_values_lie_in_their_ranges(seed: int) -> None:
    for part in range(40):
        _check(seed + part)


def _check(seed: int) -> None:
    choose = Random(seed)
    builder = Builder()
    numbers = [choose.choice(_SIZES) for _ in range(3)]
    names = [("x", PointerType(F32, "global")), *((name, INDEX) for name in "nmp")]
    with builder.region(*names) as body:
        pointer, *sizes = body.arguments
        together = [sizes] if reach(numbers) <= LARGEST_SIZE else [[size] for size in sizes]
        for axes in together:  # all sizes of one array, where a launch takes such an array
            builder.view(
                pointer, axes, [], shape=[None] * len(axes), mut=False, aligned=False, name="x"
            )
        made = _Sizes(choose, builder, list(zip(sizes, numbers, strict=True)))
        dim, groups = made.size(2)
        if not 1 <= groups <= LARGEST_SIZE:
            dim, groups = builder.index(3), 3
        builder.assume("eq", builder.group_count(0), dim)
        for _ in range(3):
            (a, x), (b, y) = made.size(2), made.size(2)
            if choose.random() < 0.5:
                b, y = choose.choice(made.pool)
            holds = [name for name, test in _PREDICATES.items() if test(x, y)]
            builder.assume(choose.choice(holds), a, b)
        group = builder.group_index(0)
        made.pool += [(group, 1), (builder.lane_linear(), 1), (builder.group_count(0), groups)]
        for _ in range(6):
            made.size(2)
        builder.return_()
    builder.kernel("k", body.region, group=(4,), grid_rank=1, parameters=["x", "n", "m", "p"])
    (kernel,) = verify(builder.program()).operations
    found = ranges(kernel)

    def seen(value: Value, number: Any) -> None:
        if isinstance(value.type, DType) and value.type.is_integer:
            low, high = found.interval(value)
            assert low <= int(number) <= high, (seed, value, number, low, high)

    given = [np.zeros(1, np.float32), *(np.int64(n) for n in numbers)]
    which = sorted({0, groups // 2, groups - 1})
    with np.errstate(all="ignore"):
        launch(kernel, given, groups, seen, which=which)
