"""Intervals of floats hold for every number, and limits that change nothing go."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.opt.schedule.query.float_ranges import FloatRanges
from tessera_lang.types.dtype import F32
from tests.stdlib.arrays import DTYPES, FLOATS, TARGETS

NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.1, 3.5, -104.0, 89.0, 1e30, -1e30, 1e-30, float("inf"),
           float("-inf"), 12583072.0)  # fmt: skip
ONE, TWO = ("neg", "abs"), ("add", "sub", "mul", "min", "max", "div")


@pytest.mark.parametrize("seed", range(40))
def test_a_number_lies_in_its_interval(seed: int) -> None:
    r = random.Random(seed)
    b = ScheduleBuilder()
    ranges, numbers = FloatRanges(), dict[Value, np.float32]()
    with b.region(*((f"x{i}", F32) for i in range(3))) as region, np.errstate(all="ignore"):
        values = list(region.arguments)
        numbers.update({v: np.float32(r.choice(NUMBERS) * r.uniform(-2, 2)) for v in values})
        for _ in range(60):
            made = _any(b, r, values)
            values.append(made.result)
            ranges.see(made)
            numbers[made.result] = _value(made, numbers)
        b.yield_()
    for value in values:
        low, high = ranges.of(value)
        assert np.isnan(numbers[value]) or low <= numbers[value] <= high
    for x in values[::5]:
        for y in values[::3]:
            if ranges.is_within(x, y):
                either = np.isnan(numbers[x]) or np.isnan(numbers[y])
                assert either or numbers[x] <= numbers[y]


def _any(b: ScheduleBuilder, r: random.Random, values: list[Value]) -> Operation:
    kind = r.choice(("constant", *ONE, *TWO, *TWO, "fma", "sqrt"))
    x, y, z = (r.choice(values) for _ in range(3))
    if kind == "constant":
        return b.emit("tile.constant", (), (F32,), {"value": r.choice(NUMBERS)})
    operands = {"fma": (x, y, z), "sqrt": (x,)}.get(kind, (x,) if kind in ONE else (x, y))
    return b.emit(f"tile.{kind}", operands, (F32,))


def _value(o: Operation, numbers: dict[Value, np.float32]) -> np.float32:
    x = [numbers[v] for v in o.operands]
    match o.name.removeprefix("tile."):
        case "constant":
            return np.float32(o.attributes["value"])
        case "neg":
            return -x[0]
        case "abs":
            return abs(x[0])
        case "min":
            return np.minimum(x[0], x[1])
        case "max":
            return np.maximum(x[0], x[1])
        case "add":
            return x[0] + x[1]
        case "sub":
            return x[0] - x[1]
        case "mul":
            return x[0] * x[1]
        case "div":
            return x[0] / x[1]
        case "sqrt":
            return np.sqrt(x[0])
        case _:
            return np.float32(np.longdouble(x[0]) * np.longdouble(x[1]) + np.longdouble(x[2]))


FORMS = (
    # the argument of exp, and whether it is surely not positive
    ("x - op.max(x, axis=1, keepdims=True)", True),
    ("x - op.max(x)", True),
    ("x - max(x, y)", True),
    ("min(x, y) - max(x, 3.0)", True),
    ("op.where(x > y, x, -inf) - op.max(op.where(x > y, x, -inf), axis=1)[:, None]", True),
    ("min(x, y) - max(op.max(min(x, y), axis=1), 0.5)[:, None]", True),
    ("x * 0.125 - op.max(x, axis=1)[:, None] * 0.125", True),
    ("-abs(x)", True),
    ("-(x * x)", True),
    ("min(x, 0.0)", True),
    ("x - op.max(x, axis=0, keepdims=True)", True),
    ("x - op.max(y, axis=1, keepdims=True)", False),
    ("x - op.min(x, axis=1, keepdims=True)", False),
    ("op.max(x, axis=1, keepdims=True) - x", False),
    ("x * -0.125 - op.max(x, axis=1)[:, None] * -0.125", False),
    ("x - op.max(x, axis=1)[None, :]", False),
    ("x - min(x, y)", False),
    ("-(x * y)", False),
    ("x", False),
)  # fmt: skip
SOURCE = """\
@op.kernel
def k(a: f32[n, 16], b: f32[n, 16]) -> f32[n, 16]:
    out = op.empty_like(a)
    for i in op.tile_range(n, step=16):
        x = a[i:i+16, :]
        y = b[i:i+16, :]
        out[i:i+16, :] = exp({})
    return out
"""


@pytest.mark.parametrize(("form", "known"), FORMS)
@pytest.mark.sample(6)
def test_an_exponential_of_what_is_not_positive_has_one_factor(form: str, known: bool) -> None:
    session = Session(overlay={"k.tessera": SOURCE.format(form)})
    wanted = session.signature("k.tessera", "k", "a: f32[64, 16], b: f32[64, 16]")
    program, _ = session.tile("k.tessera", "k", wanted, None)
    shifts = len({o.results for o in program.walk() if o.name == "tile.shl"})
    limits = [o for o in program.walk() if o.name == "tile.min" and o.result.type == F32]
    assert shifts == (1 if known else 2)
    assert known is not any(_is(o, 89.0, program) for o in limits)


def _is(o: Operation, number: float, program: Program) -> bool:
    made = {v: x for x in program.walk() for v in x.results}
    found = [made[v].attributes.get("value") for v in o.operands if v in made]
    return number in found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", [f for f, known in FORMS if known])
@pytest.mark.sample(2)
def test_it_gives_the_same_bits(form: str, target: str) -> None:
    """As ``math.exp`` of an argument that nothing is known of."""
    r = np.random.default_rng(0)
    x, y = (r.standard_normal((64, 16)).astype(np.float32) * 40 for _ in range(2))
    for special in (np.nan, np.inf, -np.inf, -87.5, -104.5, 1e30, -1e30, 0.0, -0.0):
        x[r.integers(0, 64), r.integers(0, 16)] = special
    plain = SOURCE.replace("exp({})", "{}").format(form)
    argument = tessera.compile(plain, target="cpu").k(x, y)
    found = tessera.compile(SOURCE.format(form), target=target).k(x, y)
    wanted = tessera.compile(SOURCE.format("x"), target="cpu").k(np.asarray(argument), y)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


@pytest.mark.parametrize("dtype", FLOATS)
def test_limits_of_what_nothing_is_known_of_stay(dtype: str) -> None:
    m = tessera.compile(
        "@op.kernel\ndef k(x): return op.clamp(x, -2.0, 4.0), min(x, 1.5), max(x, -0.5)\n",
        target="cpu",
    )
    x = np.array([-8, -2, -1, -0.0, 0, 0.25, 1, 2, 8], np.float32).astype(DTYPES[dtype])
    wide = x.astype(np.float64)
    right = np.clip(wide, -2, 4), np.minimum(wide, 1.5), np.maximum(wide, -0.5)
    for found, wanted in zip(m.k(x), right, strict=True):
        np.testing.assert_array_equal(np.asarray(found).astype(np.float64), wanted)
