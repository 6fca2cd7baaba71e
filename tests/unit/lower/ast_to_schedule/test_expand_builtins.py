"""Names of the array API standard and of NumPy in tile kernels, beside NumPy's own.

Several expressions make one kernel, so that each costs little. Every name of the table of derived
names, and every one that moves elements, stands in one of them (a test counts them).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_grammar.array_function_names import ARRAY_NAMES

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.sema.tile import array_manipulation
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.lower.ast_to_schedule.test_numpy_names_assembled import assembled

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "int32": "i32", "uint8": "u8"}
Reference = Callable[[Any, Any], Any]

ANY: dict[str, Reference] = {
    "op.positive(x)": lambda x, v: x,
    "op.square(x)": lambda x, v: x * x,
    "op.square(op.maximum(x, v[None, :]))": lambda x, v: np.maximum(x, v) ** 2,
    "op.sign(x)": lambda x, v: np.sign(x),
    "op.isnan(x)": lambda x, v: np.isnan(x),
    "op.isinf(x)": lambda x, v: np.isinf(x),
    "op.isfinite(x)": lambda x, v: np.isfinite(x),
    "op.add(x, v[None, :])": lambda x, v: x + v,
    "op.subtract(x, v[None, :])": lambda x, v: x - v,
    "op.multiply(x, x)": lambda x, v: x * x,
    "op.maximum(x, v[None, :])": lambda x, v: np.maximum(x, v),
    "op.minimum(a=x, b=2)": lambda x, v: np.minimum(x, 2),
    "op.clip(x, 1, 5)": lambda x, v: np.clip(x, 1, 5),
    "op.clip(x, min=1)": lambda x, v: np.maximum(x, 1),
    "op.clip(x, max=v[None, :])": lambda x, v: np.minimum(x, v),
    "op.equal(x, v[None, :])": lambda x, v: x == v,
    "op.not_equal(x, 1)": lambda x, v: x != 1,
    "op.less(x, v[None, :])": lambda x, v: x < v,
    "op.less_equal(x, 2)": lambda x, v: x <= 2,
    "op.greater(x, 2)": lambda x, v: x > 2,
    "op.greater_equal(v[None, :], x)": lambda x, v: v >= x,
    "op.logical_and(x > 1, x < v[None, :])": lambda x, v: (x > 1) & (x < v),
    "op.logical_or(x > 5, x < v[None, :])": lambda x, v: (x > 5) | (x < v),
    "op.logical_xor(x > 1, x < 5)": lambda x, v: (x > 1) ^ (x < 5),
    "op.logical_not(x > 1)": lambda x, v: ~(x > 1),
    "op.count_nonzero(x, axis=1)": lambda x, v: np.count_nonzero(x, axis=1).astype(np.int32),
    "op.count_nonzero(x > 1, axis=0)":
        lambda x, v: np.count_nonzero(x > 1, axis=0).astype(np.int32),
    "op.astype(x, f64)": lambda x, v: x.astype(np.float64),
    "op.permute_dims(x, (1, 0))": lambda x, v: x.T,
    "op.matrix_transpose(x)": lambda x, v: x.T,
    "op.outer(v, v)": lambda x, v: v[:, None] * v[None, :],
    "op.concatenate((x, x), axis=1)": lambda x, v: np.concatenate((x, x), 1),
    "op.expand_dims(x, (0, -1))": lambda x, v: np.expand_dims(x, (0, -1)),
    "op.squeeze(x[2:3, :], 0)": lambda x, v: x[2],
    "op.squeeze(op.expand_dims(x, 1))": lambda x, v: x,
    "op.roll(x, -3, axis=1)": lambda x, v: np.roll(x, -3, 1),
    "op.roll(x + x, (2, 9), axis=(1, 0))": lambda x, v: np.roll(x + x, (2, 9), (1, 0)),
    "op.roll(v, 1)": lambda x, v: np.roll(v, 1),
    "op.diff(x)": lambda x, v: np.diff(x),
    "op.diff(x * x, n=2, axis=0)": lambda x, v: np.diff(x * x, 2, 0),
    "op.repeat(x, 3, axis=0)": lambda x, v: np.repeat(x, 3, 0),
    "op.repeat(v, 2)": lambda x, v: np.repeat(v, 2),
    "op.tile(x, (2, 3))": lambda x, v: np.tile(x, (2, 3)),
    "op.tile(x + x, 2)": lambda x, v: np.tile(x + x, 2),
    "op.pad(x, ((1, 2), (0, 3)))": lambda x, v: np.pad(x, ((1, 2), (0, 3))),
    "op.pad(x + x, (2, 1), constant_values=7)":
        lambda x, v: np.pad(x + x, (2, 1), constant_values=7),
    "op.pad(x > 1, 1, constant_values=True)": lambda x, v: np.pad(x > 1, 1, constant_values=True),
    "op.ptp(x, axis=1)": lambda x, v: np.ptp(x, 1),
    "op.ptp(x)": lambda x, v: np.ptp(x),
    "op.take(x, op.array([3, 0, 3]), axis=1)": lambda x, v: x[:, [3, 0, 3]],
    "op.take(x + x, op.array([1, 4]), axis=0)": lambda x, v: (x + x)[[1, 4]],
    "op.take(op.cumsum(x, axis=1), op.array([1, 4]), axis=0)":
        lambda x, v: np.cumsum(x, 1, dtype=summed(x))[[1, 4]],
    "op.moveaxis(x[:, None, :], 0, -1)": lambda x, v: np.moveaxis(x[:, None, :], 0, -1),
    "op.moveaxis(x[:, None, :], (2, 0), (0, 1))":
        lambda x, v: np.moveaxis(x[:, None, :], (2, 0), (0, 1)),
    "op.swapaxes(x[:, None, :], 0, 2)": lambda x, v: np.swapaxes(x[:, None, :], 0, 2),
    "op.array([v[1], v[0]])": lambda x, v: v[[1, 0]],
    "op.cumulative_sum(x, axis=1)": lambda x, v: np.cumsum(x, 1, dtype=summed(x)),
    "op.cumulative_prod(x[:, 0:2], axis=1)": lambda x, v: cumprod(x[:, :2], 1, dtype=summed(x)),
    "op.trace(op.outer(v, v))": lambda x, v: np.sum(v * v, dtype=summed(x)),
    "op.diagonal(op.outer(v, v))": lambda x, v: (v * v).astype(summed(x)),
    "op.vecdot(x, x)": lambda x, v: np.sum(x * x, -1, dtype=summed(x)),
    "op.vecdot(x, x, axis=0)": lambda x, v: np.sum(x * x, 0, dtype=summed(x)),
}  # fmt: skip
FLOATS: dict[str, Reference] = {
    "op.negative(x)": lambda x, v: -x,
    "op.reciprocal(x + 9.0)": lambda x, v: 1 / (x + 9),
    "op.signbit(x)": lambda x, v: np.signbit(x),
    "op.copysign(v[None, :], x)": lambda x, v: np.copysign(v, x),
    "op.divide(x, v[None, :] + 9.0)": lambda x, v: x / (v + 9),
    "op.power(x, 2)": lambda x, v: x**2,
    "op.floor_divide(x, 2.0)": lambda x, v: x // 2,
    "op.remainder(x, 3.0)": lambda x, v: x % 3,
    "op.dot(x, v)": lambda x, v: x @ v,
}
INTEGERS: dict[str, Reference] = {
    "op.bitwise_and(x, 3)": lambda x, v: x & 3,
    "op.bitwise_or(x, v[None, :])": lambda x, v: x | v,
    "op.bitwise_xor(x, v[None, :])": lambda x, v: x ^ v,
    "op.bitwise_invert(x)": lambda x, v: ~x,
    "op.bitwise_left_shift(x, 1)": lambda x, v: x << 1,
    "op.bitwise_right_shift(x, 1)": lambda x, v: x >> 1,
    "op.floor_divide(x, 3)": lambda x, v: x // 3,
    "op.remainder(x, 3)": lambda x, v: x % 3,
}

cumprod: Any = np.cumprod


def summed(x: Any) -> Any:
    """The dtype of a sum of it."""
    return {"uint8": np.uint32, "float16": np.float16}.get(str(x.dtype), x.dtype)


def expressions(dtype: str) -> list[tuple[str, Reference]]:
    own = FLOATS if dtype.startswith("float") else INTEGERS
    return [*ANY.items(), *own.items()]


PER_KERNEL = 8


def chunks(dtype: str) -> list[list[tuple[str, Reference]]]:
    found = expressions(dtype)
    return [found[i : i + PER_KERNEL] for i in range(0, len(found), PER_KERNEL)]


def source(part: list[tuple[str, Reference]], dtype: str) -> str:
    given = ", ".join(text for text, _ in part)
    return (
        f"@op.kernel\ndef k(x: {NAMES[dtype]}[m, n], v: {NAMES[dtype]}[n]):\n    return {given}\n"
    )


CASES = [(d, i) for d in NAMES for i in range(len(chunks(d)))]


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "number"), CASES)
def test_names(dtype: str, number: int, target: str) -> None:
    part = chunks(dtype)[number]
    module = loaded(source(part, dtype), target)
    for shape in [(6, 7), (11, 130)]:
        r = np.random.default_rng(4)
        x, v = (r.integers(0, 4, s).astype(dtype) for s in (shape, shape[1]))
        if x.dtype.kind == "f":
            x -= 1
            x[0, 0] = -0.0
        made: Any = module.k(x, v)
        results: list[Any] = [*made] if type(made) is tuple else [made]
        for (text, reference), found in zip(part, results, strict=True):
            wanted = np.asarray(reference(x, v))
            assert np.asarray(found).dtype == wanted.dtype, text
            np.testing.assert_array_equal(np.asarray(found), wanted, err_msg=text)


SPECIAL: dict[str, Reference] = {
    "op.sign(x)": lambda x, v: np.sign(x),
    "op.isnan(x)": lambda x, v: np.isnan(x),
    "op.isinf(x)": lambda x, v: np.isinf(x),
    "op.isfinite(x)": lambda x, v: np.isfinite(x),
    "op.signbit(x)": lambda x, v: np.signbit(x),
    "op.copysign(v[None, :], x)": lambda x, v: np.copysign(v, x),
    "op.logaddexp(x, v[None, :])": lambda x, v: np.logaddexp(x, v),
    "op.maximum(x, v[None, :])": lambda x, v: np.maximum(x, v),
    "op.atan2(x, v[None, :])": lambda x, v: np.arctan2(x, v),
    "op.hypot(x, v[None, :])": lambda x, v: np.hypot(x, v),
}


@pytest.mark.optimized
@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_infinities_and_nan(dtype: str, target: str) -> None:
    module = loaded(source(list(SPECIAL.items()), dtype), target)
    x = np.array([[np.inf, -np.inf, np.nan, -0.0, 0.0, 1.5, -np.inf, np.inf]], dtype)
    v = np.array([1.0, 2.0, 3.0, -1.0, 0.5, np.inf, -np.inf, np.inf], dtype)
    for (text, reference), found in zip(SPECIAL.items(), module.k(x, v), strict=True):
        with np.errstate(all="ignore"):
            wanted = np.asarray(reference(x.astype(np.float64), v.astype(np.float64)))
        near = float(np.finfo(dtype).eps) * 4
        np.testing.assert_allclose(np.asarray(found, wanted.dtype), wanted, near, 0, err_msg=text)


def test_every_name_is_compared() -> None:
    texts = " ".join(t for d in NAMES for t, _ in expressions(d)) + " ".join(SPECIAL)
    # Those with tests of their own are compared there.
    for file in (
        "cases/test_numpy_names_again.py",
        "cases/test_numpy_calls.py",
        "unit/lower/ast_to_schedule/test_concatenation.py",
    ):
        texts += (Path(__file__).parents[3] / file).read_text("utf-8")
    used = set(re.findall(r"op\.(\w+)", texts))
    names = {*ARRAY_NAMES, *(n.removeprefix("op.") for n in array_manipulation.TYPES)}
    assert not names - used


HELD = """
@op.kernel
def numbers(x: f32[m, n], y: mut f32[m, n]):
    for i in op.tile_range(m, step=4):
        t = x[i:i+4, 0:12]
        for j in range(2):
            t = op.roll(op.square(t), j + 1, axis=1)
        y[i:i+4, 0:12] = t

@op.kernel
def rows(x: f32[m, n], y: mut f32[m, n]):
    taps = op.array([0.25, 0.5, 0.25])
    for i in op.tile_range(m, step=1):
        low = op.clip(op.sum(x[i, :]), 0.0, 1.0)
        y[i, :] = op.roll(x[i, :], 1) * taps[0] + x[i, :] * taps[1] + low

@op.kernel
def taken(x: f32[m, n], at: i32[k], y: mut f32[m, k]):
    for i in op.tile_range(m, step=2):
        y[i:i+2, :] = op.take(x[i:i+2, :], at[:], axis=1)

@op.kernel
def padded(x: f32[m, n], w: f32[h], y: mut f32[m, n]):
    p = op.pad(x, ((0, 0), (1, 1)), constant_values=0.5)
    for i in op.tile_range(m, step=4):
        y[i:i+4, :] = p[i:i+4, 0:n] + 2.0 * p[i:i+4, 2:n+2]
"""


@pytest.mark.sample
@pytest.mark.parametrize("target", TARGETS)
def test_tiles(target: str) -> None:
    m = loaded(HELD, target)
    x = np.random.default_rng(3).integers(-2, 3, (10, 12)).astype(np.float32)
    y = np.zeros_like(x)
    m.numbers(x, y)
    np.testing.assert_array_equal(y, np.roll(np.roll(x**2, 1, 1) ** 2, 2, 1))
    m.rows(x, y)
    low = np.clip(x.sum(1, keepdims=True), 0, 1)
    np.testing.assert_array_equal(y, np.roll(x, 1, 1) * 0.25 + x * 0.5 + low)
    at = np.array([3, 3, 11, 0], np.int32)
    z = np.zeros((10, 4), np.float32)
    m.taken(x, at, z)
    np.testing.assert_array_equal(z, x[:, at])
    m.padded(x, at.astype(np.float32), y)
    p = np.pad(x, ((0, 0), (1, 1)), constant_values=0.5)
    np.testing.assert_array_equal(y, p[:, :-2] + 2 * p[:, 2:])


@needs_ptxas
@pytest.mark.sample(1)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_assembled(arch: str) -> None:
    assembled(HELD, ("numbers", "rows", "taken", "padded"), arch)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("op.clip(x)", "T0105"),
        ("op.logical_and(x, x)", "T0205"),
        ("op.roll(x, 1)", "T0105"),
        ("op.roll(x, (1, 2, 3), axis=(0, 1))", "T0105"),
        ("op.repeat(x, 0, axis=0)", "T0311"),
        ("op.tile(x, (1, 2, 3))", "T0604"),
        ("op.take(x, 1, axis=0)", "T0215"),
        ("op.pad(x, ((1, 1),))", None),
        ("op.pad(x, (1, 2, 3))", "T0604"),
        ("op.pad(x, ((1, 1), 2))", "T0604"),
        ("op.pad(x, ((1, 1), (2, 2), (3, 3)))", "T0604"),
        ("op.pad(x, -1)", "T0311"),
        ("op.pad(x, m)", "T0311"),
        ('op.pad(x, 1, mode="nearest")', "T0311"),
        ("op.pad(x.to(i32), 1, constant_values=0.5)", "T0202"),
        ("op.squeeze(x)", "T0105"),
        ("op.squeeze(op.array([[1.0], [2.0]]), 0)", "T0601"),
        ("op.expand_dims(x, 4)", "T0311"),
        ("op.moveaxis(x, (0, 0), (0, 1))", "T0311"),
        ("op.array([[1.0], [1.0, 2.0]])", "T0207"),
        ("op.array([x])", "T0208"),
        ("op.array([1.0, 2.0], dtype=i32)", "T0202"),
        (f"op.array([{', '.join(['1.0'] * 65)}])", "T0608"),
        ("op.reciprocal(x.to(i32))", "T0207"),
        ("op.square(q)", "T0101"),
    ],
)
def test_bad_calls(body: str, code: str | None) -> None:
    text = f"@op.kernel\ndef k(x: f32[m, n]):\n    return {body}\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert [d.code for d in found] == [] if code is None else code in [d.code for d in found], found


HOST = """
def named(x, y):
    return (
        op.square(x), op.clip(x, 0.0, 1.0), op.clip(x, min=0.0), op.maximum(x, y),
        op.minimum(x, 0.5), op.isnan(x), op.isfinite(x), op.isinf(x), op.add(x, y),
        op.greater(x, y), op.logical_and(x > 0.0, y > 0.0), op.logical_not(x > 0.0),
        op.astype(x, f64), op.negative(x), op.clamp(x, -1.0, 1.0), op.remainder(x, 2.0),
        op.reciprocal(x)
    )

def numbers(a):
    return op.square(a), op.maximum(a, 3), op.clip(a, 0, 2), op.equal(a, 7)

def wrong(x):
    return op.clip(x)
"""


def test_names_in_host_code() -> None:
    """Those that stand for operators."""
    m = loaded(HOST)
    r = np.random.default_rng(5)
    x, y = (r.standard_normal((3, 4)).astype(np.float32) for _ in range(2))
    x[0, :3] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        right = (
            x * x, np.clip(x, 0, 1), np.maximum(x, 0), np.maximum(x, y), np.minimum(x, 0.5),
            np.isnan(x), np.isfinite(x), np.isinf(x), x + y, x > y, (x > 0) & (y > 0), ~(x > 0),
            x.astype(np.float64), -x, np.clip(x, -1, 1), x % 2, 1 / x,
        )  # fmt: skip
    for found, wanted in zip(m.named(x, y), right, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert m.numbers(7) == (49, 7, 2, True) and m.numbers(2.5) == (6.25, 3, 2, False)
    with pytest.raises(tessera.TesseraError) as caught:
        m.wrong(x)
    assert "`min=`, `max=` or both" in str(caught.value)
