"""std.elementwise against NumPy, each operation rounded once to the dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import (
    DTYPES,
    FLOATS,
    INTEGERS,
    TARGETS,
    module,
    numbers,
    same,
    views,
    wide,
)

pytestmark = pytest.mark.optimized

SIZES = (0, 1, 2, 3, 31, 33, 255, 256, 257, 1023, 1024, 1027, 2047, 2048, 2049, 4097, 100003)
FEW = (0, 1, 7, 2047, 2051)
NUMBERS = tuple(d for d in DTYPES if d != "bool")

Binary = Callable[[Any, Any], Any]
BINARY: dict[str, Binary] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum,
    "maximum": np.maximum,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "copy": lambda x: x, "negate": np.negative, "absolute": np.abs,
    "relu": lambda x: np.maximum(x, x.dtype.type(0)), "square": lambda x: x * x,
}  # fmt: skip


@pytest.fixture(params=TARGETS)
def std(request: pytest.FixtureRequest) -> Any:
    return module("std.elementwise", str(request.param))


def some(name: str) -> list[Any]:
    """Two of the dtypes for each function in the quick run, others than for the next one."""
    names = sorted((*BINARY, *UNARY, "divide", "fill", "axpy", "clamp"))
    at = names.index(name)
    fast = {"f32", NUMBERS[at % len(NUMBERS)], NUMBERS[(at * 5 + 3) % len(NUMBERS)]}
    return [d if d in fast else pytest.param(d, marks=pytest.mark.slow) for d in NUMBERS]


def cases(names: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for name in names:
        for d in some(name):
            marks = d.marks if not isinstance(d, str) else ()
            dtype = d if isinstance(d, str) else d.values[0]
            found.append(pytest.param(name, dtype, marks=marks))
    return found


def rounded(exact: Any, dtype: str) -> Any:
    """Values of f32 or f64 as the dtype; the language's f8 saturates where ml_dtypes does not."""
    if not dtype.startswith("f8"):
        return exact.astype(DTYPES[dtype])
    top = {"f8e4m3": 448.0, "f8e5m2": 57344.0}[dtype]
    return np.clip(exact, -top, top).astype(DTYPES[dtype])


def computed(f: Callable[..., Any], dtype: str, *arrays: Any) -> Any:
    """What NumPy gives; narrow floats computed in f32 and rounded once."""
    with np.errstate(all="ignore"):
        if dtype in FLOATS and dtype != "f64":
            return rounded(np.asarray(f(*(a.astype(np.float32) for a in arrays))), dtype)
        return f(*arrays)


def special(dtype: str, n: int) -> Any:
    """Numbers with NaN, infinities and zeros among them."""
    x = numbers(dtype, n, seed=n)
    if dtype in FLOATS and n > 8:
        x[2], x[4], x[5], x[n - 1] = np.nan, 0.0, -0.0, np.nan
        if not dtype.startswith("f8"):
            x[1], x[3] = np.inf, -np.inf
    return x


@pytest.mark.parametrize(("name", "dtype"), cases(BINARY))
@pytest.mark.sample(2)
def test_two_arrays(std: Any, name: str, dtype: str) -> None:
    for n in SIZES if dtype == "f32" else FEW:
        a, b = special(dtype, n), special(dtype, n)[::-1].copy()
        out = np.zeros(n, DTYPES[dtype])
        getattr(std, name)(a, b, out)
        same_up_to_zeros(out, computed(BINARY[name], dtype, a, b), name)


def same_up_to_zeros(found: Any, expected: Any, name: str) -> None:
    """NumPy leaves the sign of min(-0.0, 0.0) open; the language does not."""
    if name in ("minimum", "maximum", "relu") and found.dtype.kind not in "iub":
        np.testing.assert_array_equal(wide(found), wide(expected))
    else:
        same(found, expected)


@pytest.mark.parametrize(("name", "dtype"), cases(UNARY))
@pytest.mark.sample(3)
def test_one_array(std: Any, name: str, dtype: str) -> None:
    for n in SIZES if dtype == "f32" else FEW:
        x, out = special(dtype, n), np.zeros(n, DTYPES[dtype])
        getattr(std, name)(x, out)
        same_up_to_zeros(out, computed(UNARY[name], dtype, x), name)


def test_zeros_have_an_order(std: Any) -> None:
    a, b = np.array([0.0, -0.0], np.float32), np.array([-0.0, 0.0], np.float32)
    out = np.zeros(2, np.float32)
    std.minimum(a, b, out)
    assert np.signbit(out).all()
    std.maximum(a, b, out)
    assert not np.signbit(out).any()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.sample(2)
def test_divide_axpy_clamp(std: Any, dtype: str) -> None:
    kind = DTYPES[dtype]
    for n in (0, 1, 300, 4099):
        a, b, out = special(dtype, n), special(dtype, n)[::-1].copy(), np.zeros(n, kind)
        std.divide(a, b, out)
        same(out, computed(np.divide, dtype, a, b))
        std.axpy(1.5, a, b, out)
        half = np.array(1.5, kind)
        with np.errstate(all="ignore"):
            product = computed(np.multiply, dtype, half, a)
            same(out, computed(np.add, dtype, product, b))
        std.clamp(a, -0.5, 0.75, out)
        same(
            out,
            computed(
                lambda x: np.minimum(np.maximum(x, x.dtype.type(-0.5)), x.dtype.type(0.75)),
                dtype,
                a,
            ),
        )


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", ["i8", "u16", "i64", "u64"])
def test_integers_wrap(std: Any, dtype: str) -> None:
    limits = np.iinfo(DTYPES[dtype])
    edge = np.array([limits.min, limits.max, limits.min, 1, 0], DTYPES[dtype])
    out = np.zeros_like(edge)
    std.axpy(3, edge, edge[::-1].copy(), out)
    with np.errstate(all="ignore"):
        same(out, DTYPES[dtype].type(3) * edge + edge[::-1])
        std.absolute(edge, out)
        same(out, np.abs(edge))
    std.clamp(edge, 0, 1, out)
    same(out, np.clip(edge, 0, 1))


@pytest.mark.parametrize("dtype", ["bool", "u8", "i64", "bf16", "f32", "f8e5m2"])
@pytest.mark.sample(1)
def test_fill_copy_where(std: Any, dtype: str) -> None:
    for n in (0, 1, 255, 2049):
        out = np.zeros(n, DTYPES[dtype])
        std.fill(True if dtype == "bool" else 1, out)
        same(out, np.ones(n, DTYPES[dtype]))
        a, b, condition = numbers(dtype, n, 1), numbers(dtype, n, 2), numbers("bool", n, 3)
        std.where(condition, a, b, out)
        same(out, np.where(condition, a, b))
        std.copy(a, out)
        same(out, a)


CASTS = [
    ("f32", "i8"), ("f64", "u32"), ("i64", "i8"), ("u64", "f32"), ("f32", "bf16"), ("f64", "f16"),
    ("bool", "i32"), ("f16", "bool"), ("f32", "f8e4m3"), ("f8e5m2", "f32"), ("i32", "u64"),
]  # fmt: skip


@pytest.mark.sample(11)
@pytest.mark.parametrize(("source", "result"), CASTS)
def test_cast(std: Any, source: str, result: str) -> None:
    x = special(source, 3000)
    if source in FLOATS:
        x[10:20] = (x[10:20].astype(np.float32) * 1000).astype(DTYPES[source])
    out = np.zeros(3000, DTYPES[result])
    std.cast(x, out)
    with np.errstate(all="ignore"):
        if result in INTEGERS and source in FLOATS:
            limits = np.iinfo(DTYPES[result])
            whole = np.nan_to_num(np.trunc(wide(x)), nan=0, posinf=1e30, neginf=-1e30)
            expected = np.clip(whole, limits.min, limits.max).astype(DTYPES[result])
        elif result == "f8e4m3":
            top = np.where(np.isnan(x), x, np.clip(x, -448, 448))
            expected = top.astype(DTYPES[result])
        else:
            expected = x.astype(DTYPES[result])
    same(out, expected)


def test_layouts(placed: Any) -> None:
    """Strided inputs and outputs are honoured."""
    x = numbers("f32", 3000)
    for view in views(x).values():
        out = np.zeros(6000, np.float32)[: 2 * len(view) : 2]
        placed.square(view, out)
        same(out, view * view)
    back = np.zeros(3000, np.float32)[::-1]
    placed.add(x[::-1], np.broadcast_to(np.float32(2), 3000), back)
    same(back, x[::-1] + np.float32(2))


def test_nothing_is_written_past_the_end(std: Any) -> None:
    for n in (1, 5, 1023, 1029, 2047):
        base = np.full(n + 20, 7, np.float32)
        std.negate(np.ones(n, np.float32), base[10 : 10 + n])
        assert (base[:10] == 7).all() and (base[10 + n :] == 7).all()
        assert (base[10 : 10 + n] == -1).all()


@pytest.mark.parametrize("call", [
    "add(a, b[:2], out)", "add(a, b, wrong)", "add(a, b)", "add(square, square, out)",
    "divide(ints, ints, ints_out)", "negate(flags, flags_out)", "add(a, a, a)",
    "fill(1.5, ints_out)", "clamp(a, 0.0, out)", "nothing(a, out)",
])  # fmt: skip
def test_wrong_calls_are_diagnostics(std: Any, call: str) -> None:
    names = {
        "a": np.ones(3, np.float32), "b": np.ones(3, np.float32), "out": np.zeros(3, np.float32),
        "wrong": np.zeros(3, np.float64), "square": np.ones((3, 3), np.float32),
        "ints": np.ones(3, np.int32), "ints_out": np.zeros(3, np.int32),
        "flags": np.ones(3, np.bool_), "flags_out": np.zeros(3, np.bool_),
    }  # fmt: skip
    with pytest.raises(tessera.TesseraError):
        eval(f"std.{call}", {"std": std, **names})


MAPPED = """
import std.elementwise
x = op.reshape(op.arange(24, dtype="f32"), {shape})
y = std.elementwise.mapped(std.elementwise.negate, x{view})
print(y.shape, op.sum(y))
"""


@pytest.mark.parametrize(("shape", "view", "result"), [
    ("(24,)", "", "(24,)"), ("(4, 6)", ".T", "(6, 4)"), ("(2, 3, 4)", "", "(2, 3, 4)"),
    ("(2, 3, 2, 2)", "", "(2, 3, 2, 2)"),
])  # fmt: skip
def test_mapped_over_any_rank(shape: str, view: str, result: str) -> None:
    from tessera_lang.driver.session import Session
    from tessera_lang.target.runtime import runtime

    session, said = Session(), []  # type: ignore[var-annotated]
    session.set_text("program.tessera", MAPPED.format(shape=shape, view=view))
    session.run("program.tessera", runtime().host_world(session, "cpu", said.append))
    assert "".join(said).split() == f"{result} -276.0".split()
