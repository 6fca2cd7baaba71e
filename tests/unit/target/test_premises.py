"""Premises: what a plan's fields say, as comparisons that are true of right calls and no others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from tessera_backend.runtime.arrays import HOST, ArrayView
from tessera_backend.runtime.call_binding import bind
from tessera_backend.runtime.premise_checks import UnmetPremise

from tessera_lang.record import replace
from tessera_lang.target.array_facts import array_facts
from tessera_lang.target.launch_plan import (
    LaunchPlan,
    ParameterPlan,
    ResultPlan,
    Slot,
    is_small,
)
from tessera_lang.target.premises import (
    MAP_AXIS,
    array_numbers,
    broken,
    grid_numbers,
    premises,
    written_pairs,
)
from tessera_lang.types.dtype import F32
from tessera_lang.types.shape import DimOp, Sym

X = ParameterPlan("x", "tensor", "f32", 2)


def plan(*parameters: ParameterPlan, **fields: Any) -> LaunchPlan:
    return LaunchPlan("k", parameters, (), (32,), fields.pop("grid", None), **fields)


def numbers(
    shape: Sequence[int], strides: Sequence[int], pointer: int = 64, grid: Sequence[int] = (4,)
) -> dict[str, int]:
    return {**array_numbers("x", shape, strides, pointer), **grid_numbers(grid)}


def layouts() -> list[tuple[tuple[int, int], tuple[int, int]]]:
    sizes = (0, 1, 2, 3, 4, 8, 100, 127, 128, 129, 256, 1 << 20)
    steps = (0, 1, -1, 2, 3, 4, 8, 128, 256, -256, 1 << 20)
    drawn = random.Random(1)
    every = [*itertools.product(sizes, repeat=2)]
    return [(s, (drawn.choice(steps), drawn.choice(steps))) for s in every for _ in range(30)] + [
        (s, (s[1], 1)) for s in every
    ]


def test_contiguous_is_what_the_runtime_takes_for_it() -> None:
    code = plan(replace(X, contiguous=True))
    for shape, strides in layouts():
        view = ArrayView(F32, shape, strides, 64, HOST, False, None)
        holds = not broken(code, "cpu", numbers(shape, strides))
        assert holds == view.contiguous, (shape, strides)


def test_small_is_what_the_runtime_takes_for_it() -> None:
    code = plan(replace(X, small=True))
    wide = [((1 << 30, 1), (1, 1)), ((1 << 29, 1), (1, 1)), ((2, 1), (1 << 29, 1)),
            ((2, 1), (-(1 << 29), 1)), ((2, 1), (1 << 31, 1)), ((1 << 31, 0), (1, 1)),
            ((1 << 16, 1 << 15), (0, 0)), ((1 << 15, 1 << 15), (0, 0))]  # fmt: skip
    for shape, strides in [*layouts(), *wide]:
        holds = not broken(code, "cpu", numbers(shape, strides))
        assert holds == is_small(shape, strides, 4), (shape, strides)


def test_the_facts_of_a_call_hold_of_it_and_of_no_call_with_others() -> None:
    """A call compiles code for its own facts; what another call makes of its facts must be at
    least those, or the premises say no."""
    found = [(s, t, array_facts(s, t, 4, (0,), (1,))) for s, t in layouts()]
    drawn = random.Random(2)
    for shape, strides, f in drawn.sample(found, 80):
        mine = replace(
            X, sizes=f.sizes, divisors=f.divisors, unit=f.unit, pitches=f.pitches, buckets=f.buckets
        )
        code = plan(mine)
        assert not broken(code, "cpu", numbers(shape, strides)), (shape, strides, f)
        for other, steps, g in drawn.sample(found, 80):
            fits = (
                f.sizes == g.sizes and f.buckets[1] in (None, g.buckets[1])
                and all(b % a == 0 for a, b in zip(f.divisors, g.divisors, strict=True))
                and (f.unit == g.unit or f.unit == -1 and not f.pitches)
                and g.pitches >= f.pitches
            )  # fmt: skip
            holds = not broken(code, "cpu", numbers(other, steps))
            # Axes of one element have any stride, so some hold that are not told by facts.
            assert holds >= fits, (f, other, steps, g)
            if not fits and min(other) > 1 and steps.count(1) == 1:
                assert not holds, (f, other, steps, g)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (numbers((4, 4), (4, 1), 68), "the address of `x` is a multiple of 16"),
        (numbers((4, 4), (4, 1), grid=(4, 1)), "the grid has 1 axis"),
        (numbers((4, 4), (4, 1), grid=(2**31,)), "at most 2147483647 groups along axis 0"),
        (numbers((4, 4), (4, 1), grid=(3,)), "the number of groups along axis 0"),
        (numbers((4, 5), (4, 1)), "the size of axis 1 of `x` is n"),
        (numbers((1 << 47, 4), (4, 1)), "elements along its axes"),
        (numbers((MAP_AXIS + 1, 4), (4, 1)), f"at most {MAP_AXIS}"),
        (numbers((4, 4), (1 << 38, 1)), "below"),
        (numbers((4, 4), (4, 1)), ""),
    ],
)
def test_what_is_wrong_is_said(wrong: dict[str, int], text: str) -> None:
    slot = Slot("tensor_map", 0)
    code = LaunchPlan("k", (replace(X, dims=(Sym("m"), Sym("n")), aligned=True),), (slot,), (32,),
                      None, cluster=(2,))  # fmt: skip
    found = broken(code, "cuda", {"m": wrong["x.shape[0]"], "n": 4, **wrong})
    assert text in found and bool(found) == bool(text)


def test_a_gpu_has_limits_of_its_own() -> None:
    code = plan(X, grid_rank=2)
    for grid, target, holds in (
        ((65535, 2**31 - 1), "cuda", True), ((65536, 1), "cuda", False), ((65536, 1), "cpu", True),
        ((1, 2**31), "cuda", False), ((1 << 30, 1 << 19), "cpu", False),
    ):  # fmt: skip
        assert (not broken(code, target, numbers((1, 1), (1, 1), grid=grid))) == holds, grid  # type: ignore[arg-type]


def test_grids_and_results_are_among_them() -> None:
    code = plan(X, grid=(DimOp("ceil_div", Sym("n"), 4),), results=(ResultPlan("f32", (4,)),))
    texts = [p.text for p in premises(code, "cpu")]
    assert "the grid has ceil_div(n, 4) groups along axis 0" in texts
    assert "the address of `result0` is a multiple of 16" in texts


def test_what_is_written_is_apart_from_all_else() -> None:
    y, z = (replace(X, name=name, mut=True) for name in "yz")
    n = ParameterPlan("n", "scalar", "index")
    assert written_pairs(plan(X, n, y, z)) == ((2, 0), (2, 3), (3, 0))


def test_every_field_that_says_something_of_a_call_is_a_premise() -> None:
    """Whoever adds a field to a plan decides here whether launches look at it."""
    said = {
        "name", "kind", "dtype", "rank", "dims", "mut", "contiguous", "aligned", "sizes",
        "divisors", "unit", "pitches", "buckets", "small",
    }  # fmt: skip
    assert {*ParameterPlan.__dataclass_fields__} == {*said, "span", "value"}
    looked_at = {"parameters", "slots", "group", "grid", "grid_rank", "conditions", "results",
                 "cluster", "copies", "kernel", "brackets"}  # fmt: skip
    made = {"shared_bytes", "sites", "workspace", "scratch", "persistent", "prints",
            "launches_before"}  # fmt: skip
    assert {*LaunchPlan.__dataclass_fields__} == looked_at | made


def test_a_launch_looks_at_them() -> None:
    x = ArrayView(F32, (4, 4), (4, 1), 64, HOST, False, None)
    code = LaunchPlan("k", (X,), (), (32,), None, cluster=(2,))
    bind(code, (x,), (4,))
    with pytest.raises(UnmetPremise, match="along axis 0 is a multiple of 2") as caught:
        bind(code, (x,), (3,))
    assert caught.value.diagnostics[0].code == "T0855"
