"""Which axes become the grid: known programs, and random ones against all pairs of iterations."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver import pipeline
from tessera_lang.ir.core import Operation, PointerType, Program, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.verify import verify
from tessera_lang.opt.schedule.query.array_dependence import FOR
from tessera_lang.types.dtype import F32, INDEX
from tests.unit.lower.ast_to_schedule.reference import Run, evaluate
from tests.unit.opt.schedule.parallel.mapped import mapped

SIZE = 24


class Place(NamedTuple):
    """``coefficients`` of the axes and a constant, for one axis of an array."""

    coefficients: tuple[int, ...]
    constant: int


class Touch(NamedTuple):
    kind: str  # load, store, accumulate
    array: int
    places: tuple[Place, Place]
    sizes: tuple[int, int]


class Case(NamedTuple):
    trips: tuple[int, ...]
    steps: tuple[int, ...]
    touches: tuple[Touch, ...]
    nested: bool  # the last axis as a loop of its own
    test: str = ""  # how the last variable compares to the first where something is touched
    triangle: int = 0  # the last axis begins (1) or ends (2, 3) at the first variable
    outside: int = 0  # touches in front of the last axis, at places that it does not move


@st.composite
def cases(draw: st.DrawFn) -> Case:
    axes = draw(st.integers(1, 3))
    trips = tuple(draw(st.integers(1, 4)) for _ in range(axes))
    steps = tuple(draw(st.sampled_from([1, 2, 4])) for _ in range(axes))
    numbers = st.sampled_from([0, 0, 1, 1, 2, -1])

    def place() -> Place:
        return Place(tuple(draw(numbers) for _ in range(axes)), draw(st.integers(0, 5)))

    def touch() -> Touch:
        kind = draw(st.sampled_from(["load", "store", "store", "accumulate"]))
        sizes = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 4]))
        return Touch(kind, draw(st.integers(0, 1)), (place(), place()), sizes)

    count = draw(st.integers(1, 3))
    touches = tuple(touch() for _ in range(count))
    nested = draw(st.booleans()) and axes > 1
    test = draw(st.sampled_from(["", "", "lt", "le", "gt", "ge", "eq", "ne"])) if axes > 1 else ""
    triangle = draw(st.integers(0, 3)) if nested else 0
    outside = draw(st.integers(0, len(touches) - 1)) if nested else 0
    return Case(trips, steps, touches, nested, test, triangle, outside)


def program_of(case: Case) -> Program:
    """Loops over the case's axes; what is stored depends on what was loaded and on the place."""
    b = ScheduleBuilder()
    with b.region(*((n, PointerType(F32, "global")) for n in "pq")) as body:
        size = b.index(SIZE)
        views = [b.view(p, [size, size], mut=True, name=n)
                 for n, p in zip("pq", body.arguments, strict=True)]  # fmt: skip
        zero = b.index(0)
        uppers = [b.index(n * s) for n, s in zip(case.trips, case.steps, strict=True)]
        steps = [b.index(s) for s in case.steps]
        names = ["i", "j", "k"][: len(case.trips)]
        outer = len(names) - 1 if case.nested else len(names)
        with b.region(*((n, INDEX) for n in names[:outer])) as region:
            if case.nested:
                first = region.arguments[0]
                lower = first if case.triangle == 1 else zero
                upper = b.binary("add", first, steps[-1]) if case.triangle == 2 else uppers[-1]
                upper = first if case.triangle == 3 else upper
                front = case._replace(touches=case.touches[: case.outside], test="")
                touch_where(b, front, views, region.arguments)
                with b.region((names[-1], INDEX)) as inner:
                    rest = case._replace(touches=case.touches[case.outside :])
                    touch_where(b, rest, views, (*region.arguments, *inner.arguments))
                    b.yield_()
                b.loops([lower], [upper], steps[outer:], (), inner.region, names[outer:])
            else:
                touch_where(b, case, views, region.arguments)
            b.yield_()
        b.loops([zero] * outer, uppers[:outer], steps[:outer], (), region.region, names[:outer])
        b.return_()
    b.schedule_kernel("k", body.region, ["p", "q"])
    return verify(b.program())


def touch_where(
    b: ScheduleBuilder, case: Case, views: list[Value], variables: tuple[Value, ...]
) -> None:
    """Under a condition, where the case has one."""
    if not case.test:
        touch_all(b, case, views, variables)
        return
    with b.region() as then:
        touch_all(b, case, views, variables)
        b.yield_()
    with b.region() as otherwise:
        b.yield_()
    b.if_(b.cmp(case.test, variables[-1], variables[0]), then.region, otherwise.region)


def touch_all(
    b: ScheduleBuilder, case: Case, views: list[Value], variables: tuple[Value, ...]
) -> None:
    number = b.constant(1, F32)
    for n, t in enumerate(case.touches):
        starts, extents = [], []
        for place, size in zip(t.places, t.sizes, strict=True):
            start = b.index(place.constant)
            for c, v in zip(place.coefficients, variables, strict=False):
                start = b.binary("add", start, b.binary("mul", b.index(c), v))
            start = b.binary("max", start, b.index(0)) if min(place.coefficients) < 0 else start
            rest = b.binary("sub", b.index(SIZE), start)
            extent = b.binary("min", b.index(size), rest)
            extents.append(b.binary("max", extent, b.index(0)))
            starts.append(start)
        view = views[t.array]
        if t.kind == "load":
            tile = b.load_tile(view, starts, extents, t.sizes)
            row = b.reduce("add", tile, extents[0], 0)
            number = b.reduce("add", row, extents[1], 0)
            continue
        value = b.constant(n + 2, F32)
        for v in variables:
            value = b.binary("add", b.binary("mul", value, b.constant(3, F32)), b.cast(v, F32))
        value = b.binary("add", value, number)
        full = b.full(value, t.sizes)
        if t.kind == "store":
            b.store_tile(full, view, starts, extents)
        else:
            b.accumulate("add", b.full(b.constant(n + 1, F32), t.sizes), view, starts, extents)


def arrays() -> list[Any]:
    start = np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE) % 7
    return [start.copy(), start.copy() + 1]


def grid_axes(program: Program) -> list[str]:
    return [
        name
        for o in program.walk()
        if o.name == FOR
        for name, how in zip(o.attributes["axes"], o.attributes["mapping"], strict=True)  # type: ignore[arg-type]
        if how == "grid"
    ]


def touched_by(program: Program) -> list[tuple[dict[str, int], str, int, tuple[int, ...]]]:
    """Every element that is touched: the axes' values, how, and which."""
    loops = [o for o in program.walk() if o.name == FOR]
    given_arrays = arrays()
    bases = [a.__array_interface__["data"][0] for a in given_arrays]
    found: list[tuple[dict[str, int], str, int, tuple[int, ...]]] = []
    run = Run()

    def touched(o: Operation, view: Any, place: tuple[int, ...]) -> None:
        at = {
            name: int(run.values.get(v, 0))
            for loop in loops
            for name, v in zip(loop.attributes["axes"], loop.regions[0].arguments, strict=False)  # type: ignore[arg-type]
        }
        array = bases.index(view.__array_interface__["data"][0])
        found.append((at, o.name.rsplit(".", 1)[-1], array, place))

    run.touched = touched
    evaluate(program, given_arrays, run)
    return found


def conflicts(program: Program, grid: list[str]) -> bool:
    """Whether two groups touch one element, one of them writing."""
    by_element: dict[Any, list[tuple[tuple[int, ...], str]]] = {}
    for at, kind, array, place in touched_by(program):
        group = tuple(at[name] for name in grid)
        by_element.setdefault((array, place), []).append((group, kind))
    for touches in by_element.values():
        groups = {g for g, _ in touches}
        if len(groups) > 1 and any(kind != "load" for _, kind in touches):
            return True
    return False


@settings(max_examples=100, deadline=None)
@given(cases())
def test_no_two_groups_meet(case: Case) -> None:
    program = program_of(case)
    made = mapped(program, [])
    grid = grid_axes(made)
    if grid:
        assert not conflicts(made, grid)


@pytest.mark.slow
@settings(deadline=None)
@given(cases(), st.integers(0, 9))
def test_the_passes_keep_the_values(case: Case, seed: int) -> None:
    program = program_of(case)
    expected, found = arrays(), arrays()
    evaluate(program, expected)
    made = program
    remarks: list[Diagnostic] = []
    for one in (*pipeline.parallel_loops(), *pipeline.for_any_machine(remarks)):
        made = verify(one.run(made))
    assert not any(o.name.endswith("accumulate") for o in made.walk())
    evaluate(made, found, Run(shuffle=np.random.default_rng(seed)))
    for a, b in itertools.zip_longest(expected, found):
        np.testing.assert_array_equal(a, b)


def test_triangles_are_apart() -> None:
    """Both triangles of a result, from one of them."""
    rows, columns = Place((1, 0), 0), Place((0, 1), 0)
    both = tuple(Touch("store", 0, p, (2, 2)) for p in ((rows, columns), (columns, rows)))
    for steps in ((2, 2), (4, 4)):
        for test in ("le", "ge"):
            case = Case((4, 4), steps, both, False, test)
            assert grid_axes(mapped(program_of(case), [])) == ["i", "j"]
        for triangle in (1, 2):
            case = Case((4, 4), steps, both, True, "", triangle)
            assert grid_axes(mapped(program_of(case), [])) == ["i"]
    assert grid_axes(mapped(program_of(Case((4, 4), (2, 2), both, False, "ne")), [])) == []


def test_parts_of_parts_are_apart() -> None:
    """An axis moves a part, another one goes over its elements: digits of a place."""
    for coefficients, trips, steps in (
        ((1, 1), (3, 4), (4, 1)),
        ((1, 1), (4, 3), (1, 4)),
        ((1, 1, 1), (2, 2, 4), (8, 4, 1)),
        ((1, 1, 1), (4, 2, 2), (1, 8, 4)),
        ((2, 1), (3, 2), (1, 1)),
    ):
        place = Place(coefficients, 0), Place((0,) * len(trips), 0)
        for nested in (False, True):
            case = Case(trips, steps, (Touch("store", 0, place, (1, 1)),), nested)
            made = mapped(program_of(case), [])
            assert sorted(grid_axes(made)) == ["i", "j", "k"][: len(trips)], case
            assert not conflicts(made, grid_axes(made))
    # One element further, and the last of a part is the first of the next one.
    wide = Case((3, 5), (4, 1), (Touch("store", 0, (Place((1, 1), 0), Place((0, 0), 0)), (1, 1)),),
                False)  # fmt: skip
    assert grid_axes(mapped(program_of(wide), [])) == []


def test_proofs_are_found() -> None:
    """What is plainly disjoint goes to the grid."""
    rows = Place((1, 0), 0), Place((0, 1), 0)
    case = Case((3, 3), (2, 4), (Touch("store", 0, rows, (2, 4)),), False)
    assert grid_axes(mapped(program_of(case), [])) == ["i", "j"]
    wider = Case((3, 3), (2, 4), (Touch("store", 0, rows, (3, 4)),), False)
    remarks: list[Diagnostic] = []
    assert grid_axes(mapped(program_of(wider), remarks)) == ["j"]
    assert [d.code for d in remarks] == ["T0706"]
    rows = Place((1, 0, 0), 0), Place((0, 1, 0), 0)
    summed = Case((3, 3, 2), (2, 4, 1), (Touch("accumulate", 0, rows, (2, 4)),), False)
    remarks = []
    assert grid_axes(mapped(program_of(summed), remarks)) == ["i", "j"]
    assert not remarks
