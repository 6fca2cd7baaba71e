"""Ranges are sound: whatever runs, each value lies in its interval and proved is inside."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from tessera_lang.analysis import ranges
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.ir.verify import verify
from tessera_lang.types.dtype import I32, INDEX, DType
from tests.unit.random_tile import random_kernel
from tests.unit.tile_interpreter import launch


def arguments(choose: Random) -> list[Any]:
    """Arguments of a random kernel: small and extreme numbers."""
    n = choose.choice([0, 1, 2, 5, 33])
    a = choose.choice([choose.randint(-8, 40), choose.randint(-(2**63), 2**63 - 1)])
    b = choose.choice([choose.randint(-8, 40), choose.randint(-(2**31), 2**31 - 1)])
    x = np.arange(n, dtype=np.int64) * 3 - 4
    return [x, np.int64(n), np.int64(a), np.int32(b), np.uint8(choose.randint(0, 255))]


@pytest.mark.parametrize("seed", range(0, 160, 20))
@pytest.mark.sample(1)
def test_every_value_lies_in_its_range(seed: int) -> None:
    for part in range(20):
        _check(seed + part)


def _check(seed: int) -> None:
    choose = Random(seed)
    program = verify(random_kernel(choose.choice))
    (kernel,) = program.operations
    found = ranges(kernel)

    def seen(value: Value, number: Any) -> None:
        if isinstance(value.type, DType) and value.type.is_integer:
            low, high = found.interval(value)
            assert low <= int(number) <= high, (seed, value, number, low, high)

    def touched(operation: Operation, inside: bool) -> None:
        verdict = found.accesses[operation].verdict
        assert verdict != ("outside" if inside else "proved"), (seed, operation)

    for _ in range(4):
        launch(kernel, arguments(choose), 3, seen, touched)


def test_a_product_that_may_overflow_is_not_bounded() -> None:
    """B164: ``select(min(a, c) % e < a, (b*d)*(c*d), e + 9)`` at a point of its box."""
    point = {"a": 113, "b": 88, "c": 112, "d": -14, "e": 22}
    box = {"a": (113, 117), "b": (-99, 125), "c": (111, 113), "d": (-110, 2), "e": (22, 102)}
    for dtype in (I32, INDEX):
        builder = Builder()
        with builder.region(*((name, dtype) for name in box)) as body:
            v = {
                name: builder.binary(
                    "min",
                    builder.binary("max", argument, builder.constant(low, dtype)),
                    builder.constant(high, dtype),
                )
                for argument, (name, (low, high)) in zip(body.arguments, box.items(), strict=True)
            }
            least = builder.binary("mod", builder.binary("min", v["a"], v["c"]), v["e"], site=0)
            left = builder.binary("mul", v["b"], v["d"])
            product = builder.binary("mul", left, builder.binary("mul", v["c"], v["d"]))
            other = builder.binary("add", v["e"], builder.constant(9, dtype))
            result = builder.select(builder.cmp("lt", least, v["a"]), product, other)
            builder.return_()
        builder.kernel("b164", body.region, group=(1,), grid_rank=1, parameters=list(box))
        (kernel,) = builder.program().operations
        low, high = ranges(kernel).interval(result)
        assert low <= 1931776 <= high
        values: list[int] = []

        def seen(
            value: Value, number: Any, result: Value = result, values: list[int] = values
        ) -> None:
            if value is result:
                values.append(int(number))

        scalar = np.int32 if dtype is I32 else np.int64
        launch(kernel, [scalar(point[name]) for name in box], 1, seen)
        assert values == [1931776]
