"""Arrays of which 32 bits hold all sizes and offsets: a launch fact on GPUs, as alignment is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera_lang.diagnostics import TesseraError
from tessera_lang.record import replace
from tessera_lang.target.launch_plan import (
    LARGEST_SIZE,
    SMALL_BYTES,
    SMALL_SIZE,
    LaunchPlan,
    is_small,
)

Fake = Callable[..., Any]
G = 1 << 30


@pytest.mark.parametrize(
    ("shape", "strides", "element", "small"),
    [
        ((), (), 4, True),
        ((0,), (1,), 8, True),
        ((SMALL_SIZE,), (1,), 1, True),
        ((SMALL_SIZE + 1,), (1,), 1, False),
        ((G // 2,), (1,), 4, True),
        ((G // 2 + 1,), (1,), 4, False),  # the last is 2^31 bytes from the first
        ((G // 2,), (-1,), 4, True),
        ((3, 4), (G // 4, 1), 4, False),
        ((2, 4), (G // 4, 1), 4, True),
        ((G, G), (0, 0), 1, False),  # one element of memory, very many of the array
        ((0, 2 * G), (1, 1), 1, False),
        ((32768, 65535), (65535, 1), 1, True),
        ((32768, 65536), (65536, 1), 1, False),
    ],
)
def test_what_is_small(
    shape: tuple[int, ...], strides: tuple[int, ...], element: int, small: bool
) -> None:
    assert is_small(shape, strides, element) == small
    assert SMALL_BYTES == 2**31


def facts(k: Any) -> list[bool]:
    """Of each compilation whether it was for small arrays: all are, or none is."""
    found = [{e[5] for e in wanted if e[0] == "t"} for wanted, _ in k.compiled]
    assert all(len(each) == 1 for each in found)
    return [each.pop() for each in found]


def test_each_gets_its_code(torch: Any, fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "n"), param("out", "n", mut=True)))
    for n in (8, G // 2, G // 2 + 1, 16, G):
        k.kernel(torch.Tensor(1 << 40, (n,)), torch.Tensor(1 << 50, (n,)))
    assert facts(k) == [True, False]
    assert len(k.launches) == 5


def test_of_all_arrays_or_none(torch: Any, fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "n"), param("out", "m", mut=True)))
    k.kernel(torch.Tensor(1 << 40, (G,)), torch.Tensor(1 << 50, (4,)))
    assert facts(k) == [False]


def test_not_on_the_host(fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "n", mut=True)))
    k.kernel(np.zeros(4, np.float32))
    assert facts(k) == [False]


def test_very_many_lanes_take_other_code(
    torch: Any, fake: Fake, make_plan: Fake, param: Fake
) -> None:
    k = fake(make_plan(replace(param("x", "n"), small=True), grid=None, group=(128,)))
    x = torch.Tensor(1 << 40, (4,))
    k.kernel[2**24 - 1](x)
    assert facts(k) == [True]
    k.kernel[2**24](x)
    assert facts(k) == [True, False]


def test_a_plan_keeps_it(make_plan: Fake, param: Fake) -> None:
    plan = make_plan(replace(param("x", "n"), small=True), param("y", "n"))
    assert LaunchPlan.from_json(plan.to_json()) == plan


def test_arrays_that_no_code_reckons_with(fake: Fake, make_plan: Fake, param: Fake) -> None:
    k = fake(make_plan(param("x", "n")))
    k.kernel(np.broadcast_to(np.float32(1), (LARGEST_SIZE,)))
    with pytest.raises(TesseraError) as caught:
        k.kernel(np.broadcast_to(np.float32(1), (LARGEST_SIZE + 1,)))
    assert caught.value.diagnostics[0].code == "T0846"
    rows = fake(make_plan(param("x", "m", "n")))
    with pytest.raises(TesseraError):
        rows.kernel(np.broadcast_to(np.float32(1), (1 << 25, 1 << 25)))
