"""NumPy's names in tile kernels, beside NumPy in f64, and the forms for what is not there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.evaluate.foreign_names import TILE_FORMS
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
PAGE = Path(__file__).parents[4] / "docs" / "numpy.md"


def lse(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    top = np.max(x, axis=axis, keepdims=True)
    found = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return found if keepdims else np.squeeze(found, axis=axis)


REDUCED: dict[str, Callable[..., Any]] = {
    "sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod, "var": np.var,
    "std": np.std, "norm": lambda x, **k: np.sqrt(np.sum(x * x, **k)), "logsumexp": lse,
}  # fmt: skip
AXES = (None, 0, -1, (0, 2), (1, -1), (2, 0, 1))


def run(target: str, text: str, *arrays: Any) -> Any:
    """What a kernel of one expression gives."""
    names = "xyz"[: len(arrays)]
    kinds = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "int32": "i32"}
    sizes = iter("abcdefghijk")
    shapes = [", ".join(next(sizes) for _ in a.shape) for a in arrays]
    given = ", ".join(
        f"{n}: {kinds[a.dtype.name]}[{s}]" for n, a, s in zip(names, arrays, shapes, strict=True)
    )
    module = loaded(f"@op.kernel\ndef k({given}):\n    return {text}\n", target)
    return np.asarray(module.k(*arrays)).astype(np.float64)


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1.5, 1.5, shape).astype(dtype)


@pytest.mark.sample(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("kind", REDUCED)
def test_reductions(kind: str, axis: Any, keepdims: bool, target: str) -> None:
    x = numbers(5, 7, 6)
    said = ("" if axis is None else f", axis={axis}") + (", keepdims=True" if keepdims else "")
    found = run(target, f"op.{kind}(x{said})", x)
    more = {"keepdims": True} if keepdims else {}
    wanted = np.asarray(REDUCED[kind](x.astype(np.float64), axis=axis, **more))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.sample
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("kind", ["std", "norm", "logsumexp"])
def test_reductions_of_other_floats(kind: str, dtype: Any, target: str) -> None:
    x = numbers(9, 33, dtype=dtype)
    found = run(target, f"op.{kind}(x, axis=1)", x)
    wanted = REDUCED[kind](x.astype(np.float64), axis=1)
    bound = 2**-8 if dtype is ml_dtypes.bfloat16 else 1e-13
    np.testing.assert_allclose(found, wanted, rtol=bound)


def test_infinities_of_logsumexp() -> None:
    x = numbers(4, 8)
    x[0], x[1, 3], x[2, 5] = -np.inf, np.inf, np.nan
    found = run("cpu", "op.logsumexp(x, axis=1)", x)
    assert found[0] == -np.inf and found[1] == np.inf and np.isnan(found[2]) and found[3] > 0


OTHERS: dict[str, tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "tril": ("op.tril(x)", np.tril, ((5, 7),)),
    "triu of a stack": ("op.triu(x, -1)", lambda x: np.triu(x, -1), ((3, 5, 5),)),
    "transpose": ("op.transpose(x, (2, 0, 1))", lambda x: x.transpose(2, 0, 1), ((3, 4, 5),)),
    "the other way around": ("op.transpose(x)", lambda x: x.T, ((3, 4, 5),)),
    "negative axes": ("op.transpose(x, (-1, 0))", lambda x: x.T, ((3, 4),)),
    "softplus": ("op.softplus(40.0 * x)", lambda x: np.logaddexp(0, 40 * x), ((3, 40),)),
    "power": ("abs(x) ** 2.5", lambda x: np.abs(x) ** 2.5, ((3, 40),)),
    "root": ("abs(x) ** 0.5", lambda x: np.abs(x) ** 0.5, ((3, 40),)),
    "inverse": ("x ** -2", lambda x: x**-2.0, ((3, 40),)),
    "power of a number": ("2.0 ** x", lambda x: 2.0**x, ((3, 40),)),
    "power of elements": ("abs(x) ** y", lambda x, y: np.abs(x) ** y, ((3, 40), (3, 40))),
    "matrix and vector": ("x @ y", np.matmul, ((9, 33), (33,))),
    "vector and matrix": ("x @ y", np.matmul, ((33,), (33, 9))),
    "two vectors": ("x @ y", np.matmul, ((100,), (100,))),
    "stack and vector": ("x @ y", np.matmul, ((3, 9, 33), (33,))),
    "stack and matrix": ("x @ y", np.matmul, ((3, 9, 33), (33, 5))),
    "matrix and stack": ("x @ y", np.matmul, ((9, 33), (3, 33, 5))),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.sample(4)
def test_others(name: str, target: str) -> None:
    text, reference, shapes = OTHERS[name]
    given = [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]
    found = run(target, text, *given)
    wanted = np.asarray(reference(*(a.astype(np.float64) for a in given)))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 6), (1, 300)])
@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.sample(2)
def test_places_among_all(kind: str, shape: tuple[int, ...], target: str) -> None:
    """The first of equal ones, in row-major order; NaN is taken where there is one."""
    x = np.round(numbers(*shape) * 2)
    assert run(target, f"op.{kind}(x)", x) == getattr(np, kind)(x)
    x[(-1,) * len(shape)] = x[(0,) * (len(shape) - 1) + (-1,)] = np.nan
    assert run(target, f"op.{kind}(x)", x) == getattr(np, kind)(x)
    whole = x.view(np.int32).copy()
    assert run(target, f"op.{kind}(x)", whole) == getattr(np, kind)(whole)


PLACES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "op.tril(x)": lambda x, i, j: np.where(j <= i, x, 0),
    "op.triu(x, 2)": lambda x, i, j: np.where(j >= i + 2, x, 0),
    "op.causal(x)": lambda x, i, j: np.where(j <= i, x, -np.inf),
    "x + (op.iota((a, b), axis=0) * 3 + op.iota((a, b), axis=1)).to(f32)":
        lambda x, i, j: x + 3 * i + j,
    "x * op.iota((a, b), axis=0).to(f32)": lambda x, i, j: x * i,
    "x * op.iota((a, b), axis=1).to(f32)": lambda x, i, j: x * j,
}  # fmt: skip


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("shape", [(5, 7), (1, 9), (40, 1)])
@pytest.mark.parametrize("text", PLACES)
@pytest.mark.sample
def test_places_in_whole_arrays(text: str, shape: tuple[int, int], target: str) -> None:
    """Coordinates along each axis, in tiles of one row and in those of several."""
    x = numbers(*shape)
    found = run(target, text, x)
    i, j = np.indices(shape)
    np.testing.assert_allclose(found, PLACES[text](x, i, j), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("kind", ["cumsum", "cumprod"])
def test_scans(kind: str, exclusive: bool, target: str) -> None:
    x = numbers(5, 40)
    text = (
        "@op.kernel\ndef k(x: f32[a, b], y: mut f32[a, b]):\n"
        "    for i in op.tile_range(a, step=1):\n"
        f"        y[i, :] = op.{kind}(x[i, :], exclusive={exclusive})\n"
    )
    y = np.zeros_like(x)
    loaded(text, target).k(x, y)
    wanted = getattr(np, kind)(x.astype(np.float64), axis=1)
    first = np.full((5, 1), float(kind == "cumprod"))
    wanted = np.concatenate([first, wanted[:, :-1]], axis=1) if exclusive else wanted
    np.testing.assert_allclose(y, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int8, np.uint8, np.int64])
@pytest.mark.sample
def test_quotients_rounded_up(dtype: Any, target: str) -> None:
    """Of signed and unsigned numbers, the least one too, by numbers of either sign."""
    info = np.iinfo(dtype)
    a = np.array([info.min, info.max, 0, 1, 7, 8, 9, info.max - 1], dtype)
    b = np.array([3, 3, 5, 2, 4, 4, 4, info.max], dtype)
    if info.min < 0:
        a, b = np.concatenate([a, a]), np.concatenate([b, -b])
    name = {"int32": "i32", "uint32": "u32", "int8": "i8", "uint8": "u8", "int64": "i64"}
    kind = name[np.dtype(dtype).name]
    text = (
        f"@op.kernel\ndef k(x: {kind}[n], y: {kind}[n], z: mut {kind}[n], w: mut {kind}[n]):\n"
        "    z[:] = ceil_div(x, y)\n    w[:] = ceil_div(x, 3)\n"
    )
    z, w = np.zeros_like(a), np.zeros_like(a)
    loaded(text, target).k(a, b, z, w)
    exact = [-(-int(p) // int(q)) for p, q in zip(a, b, strict=True)]
    np.testing.assert_array_equal(z, np.array(exact, object).astype(dtype))
    np.testing.assert_array_equal(w, np.array([-(-int(p) // 3) for p in a], dtype))


STARTS = """
@op.kernel
def copied(x: f32[n], y: mut f32[n]):
    for i in op.tile_range(4, n, step=4):
        y[i:i+4] = x[i:i+4]

@op.kernel
def triu(A: f32[n, n], B: f32[n, n]) -> f32[n, n]:
    C = op.zeros((n, n), f32)
    for i, j in op.tile_range(n, n, step=(32, 32)):
        if j >= i:
            acc = op.zeros((32, 32), f32)
            for p in op.tile_range(i, min(j + 32, n), step=32):
                acc += A[i:i+32, p:p+32] @ B[p:p+32, j:j+32]
            C[i:i+32, j:j+32] = acc
    return C

@op.kernel
def sums(x: f32[m, n], low: i32, y: mut f32[m]):
    for i in op.tile_range(m, step=1):
        total = 0.0
        for p in op.tile_range(max(low, 0), n, step=16):
            total += op.sum(x[i, p:p+16])
        y[i] = total
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
def test_ranges_with_a_start(target: str) -> None:
    """Of a loop that is spread, of one along a contraction, and from a number of the call."""
    m = loaded(STARTS, target)
    x, y = numbers(41), np.zeros(41, np.float32)
    m.copied(x, y)
    np.testing.assert_array_equal(y, np.where(np.arange(41) < 4, 0, x))
    a, b = np.triu(numbers(70, 70)), np.triu(numbers(70, 70, seed=1))
    np.testing.assert_allclose(np.asarray(m.triu(a, b)), a @ b, atol=1e-4)
    rows, total = numbers(5, 50), np.zeros(5, np.float32)
    for low in (-3, 7, 50, 60):
        m.sums(rows, np.int32(low), total)
        np.testing.assert_allclose(total, rows[:, max(low, 0) :].sum(1), atol=1e-5)


GIVEN = """
def part(X, half): return X[half:half+half]
def shifted(X, d): return X[d:d+8] * 2.0
def twice(X, s): return shifted(X, s + s)

@op.kernel
def literal(x: f32[n]): return part(x, 2 * 4)

@op.kernel
def through(x: f32[n]): return twice(x, 4)

@op.kernel
def parameter[H: int](x: f32[n]): return part(x, H)

@op.kernel
def variable(x: f32[n], y: mut f32[n]):
    for i in op.tile_range(n, step=8):
        y[i:i+8] = shifted(x, i)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_given_to_plain_functions(target: str) -> None:
    """A slice of a function knows what the call gives."""
    m = loaded(GIVEN, target)
    x = numbers(40)
    y = np.zeros_like(x)
    np.testing.assert_array_equal(np.asarray(m.literal(x)), x[8:16])
    np.testing.assert_array_equal(np.asarray(m.through(x)), x[8:16] * 2)
    np.testing.assert_array_equal(np.asarray(m.parameter(x, H=3)), x[3:6])
    m.variable(x, y)
    np.testing.assert_array_equal(y, x * 2)


# --- what is refused ----------------------------------------------------------------------------


def said(body: str, parameters: str = "x: f32[m, n]") -> list[str]:
    text = f"@op.kernel\ndef k({parameters}):\n    return {body}\n"
    session = Session(overlay={"k.tessera": text})
    return [f"{d.code}: {' '.join(d.helps)}" for d in session.check("k.tessera", ())]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("op.sum(x, axis=(0, 0))", "T0311"),
        ("op.sum(x, axis=(0, 2))", "T0311"),
        ("op.argmax(x, axis=(0, 1))", "T0311"),
        ("op.sum(x, axis=0, keepdims=m > 2)", "T0311"),
        ("op.transpose(x, (0, 0))", "T0311"),
        ("op.transpose(x, (0,))", "T0311"),
        ("op.tril(x[0, :])", "T0604"),
        ("op.logsumexp(x.to(i32))", "T0207"),
        ("x.to(i32) ** -1", "T0209"),
        ("x @ 2.0", "T0206"),
    ],
)
def test_bad_calls(body: str, code: str) -> None:
    assert any(s.startswith(code) for s in said(body)), said(body)


@pytest.mark.parametrize("name", TILE_FORMS)
@pytest.mark.sample(90)
def test_what_is_not_there_is_refused_by_name(name: str) -> None:
    assert TILE_FORMS[name] in " ".join(said(f"op.{name}(x)"))


def test_lanes_have_no_keepdims() -> None:
    text = "@kernel tile[(32,)] grid[(1,)]\ndef k(x: f32[n], y: mut f32[n]):\n"
    text += "    y[0] = op.sum(x, keepdims=True)\n"
    found = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert [d.code for d in found] == ["T0106"]


FORMS = """
@op.kernel
def outer(x: f32[m, n], z: f32[k, n]): return x[0, :][:, None] * z[0, :][None, :]

@op.kernel
def isnan(x: f32[m, n]): return op.where(x != x, 1.0, 0.0)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_the_forms_work(target: str) -> None:
    m = loaded(FORMS, target)
    x, z = numbers(5, 7), numbers(3, 7, seed=1)
    wanted = {
        "outer": ((x, z), np.outer(x[0], z[0])), "isnan": ((x,), np.isnan(x)),
    }  # fmt: skip
    for name, (given, want) in wanted.items():
        found = np.asarray(getattr(m, name)(*given))
        np.testing.assert_allclose(found, want, rtol=1e-6, err_msg=name)


def test_the_page_names_what_there_is() -> None:
    """Each function of `op` in the column of this language is one."""
    text = PAGE.read_text(encoding="utf-8")
    for name in set(re.findall(r"`op\.(\w+)\b(?!\.)", text)):
        assert not any("T0104" in s for s in said(f"op.{name}(x)")), name
