"""std.math: errors within the bounds of docs/stdlib.md, the same bits on every target."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.nvptx.kernel import emit_kernel
from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate
from tessera_backend.nvptx.toolchain.ptxas import assemble, find_ptxas

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.arch import architecture_named
from tessera_lang.types.dtype import U32
from tests.sampling import few
from tests.stdlib.arrays import TARGETS

pytestmark = pytest.mark.optimized

PAGE = Path(__file__).resolve().parents[2] / "docs" / "stdlib.md"
RANDOM = 1_000_000
KERNEL = """\
@kernel tile[(128,)] grid[(64,)]
def k(x: {dtype}[n], out: mut {dtype}[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = math.{name}(x[i])
"""
OF_TWO = """\
@kernel tile[(128,)] grid[(64,)]
def k(x: {dtype}[n], y: {dtype}[n], out: mut {dtype}[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = math.{name}(x[i], y[i])
"""
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), e) / (1 + e)


def _gelu(x: Any) -> Any:
    t = np.clip(x, -40, 40)
    return np.where(x > 40, x, 0.5 * t * _erfc(-t * math.sqrt(0.5)).astype(np.float64))


EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "exp2": np.exp2, "sigmoid": _sigmoid, "tanh": np.tanh, "log": np.log,
    "log2": np.log2, "log1p": np.log1p, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "expm1": np.expm1, "log10": np.log10,
    "erf": lambda x: _erf(x).astype(np.float64), "gelu": _gelu,
}  # fmt: skip
SHAPES: dict[str, tuple[Any, Any, int, int]] = {
    # dtype of the bits, dtype, digits of the mantissa, least exponent
    "f16": (np.uint16, np.float16, 11, -14), "bf16": (np.uint16, ml_dtypes.bfloat16, 8, -126),
    "f32": (np.uint32, np.float32, 24, -126), "f64": (np.uint64, np.float64, 53, -1022),
}  # fmt: skip
NAMES = tuple(EXACT)
WIDE = [n for n in NAMES if n not in ("erf", "gelu")]  # those that NumPy has in long double


def stated(name: str, dtype: str) -> float:
    """The bound in ulp that the page states."""
    row = re.search(rf"^\| `{name}\(.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row is not None
    cells = [c.strip() for c in row.group().split("|")]
    return float(cells[{"f32": -3, "f64": -2}[dtype]])


def errors(found: Any, exact: Any, dtype: str) -> Any:
    """Distances in ulp; huge where an infinity, a NaN or the sign of a zero is wrong."""
    _, kind, digits, least = SHAPES[dtype]
    with np.errstate(all="ignore"):
        rounded = exact.astype(kind)
        wide = found.astype(exact.dtype)
        exponent = np.floor(np.log2(np.maximum(np.abs(exact), exact.dtype.type(2) ** least)))
        distance = np.abs(wide - exact) / exact.dtype.type(2) ** (exponent - (digits - 1))
    distance = distance.astype(np.float64)
    same = (np.isnan(rounded) & np.isnan(found)) | (
        (rounded == found) & (np.signbit(rounded) == np.signbit(found))
    )
    wrong = (np.isinf(rounded) != np.isinf(found)) | ((rounded == 0) & (found == 0))
    distance = np.where(~same & (wrong | np.isnan(distance)), 1e9, distance)
    return np.where(same & ~np.isfinite(rounded), 0.0, distance)


def run(name: str, dtype: str, target: str, x: Any) -> Any:
    out = np.zeros_like(x)
    tessera.compile(KERNEL.format(name=name, dtype=dtype), target=target).k(x, out)
    tessera.synchronize()
    return out


def inputs(dtype: str, count: int) -> Any:
    """Random bits, numbers of a usual size and near 1, and what is special."""
    bits, kind, _, _ = SHAPES[dtype]
    r = np.random.default_rng(11)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.0, -128.0, 128.0, 88.72283,
               88.8, -87.4, -103.97, -104.1, -126.0, -149.0, -149.5, -150.1, 709.78, 709.79,
               -745.13, -745.14, 1024.0, -1074.0, -1075.1, 4.0, 0.921875]  # fmt: skip
    limits = [np.finfo(kind).max, np.finfo(kind).tiny, np.finfo(kind).smallest_subnormal]
    whole = np.iinfo(bits)
    parts = [
        np.array([*special, *limits, *(-v for v in limits)]).astype(kind),
        r.integers(0, whole.max, count, dtype=bits, endpoint=True).view(kind),
        (r.standard_normal(count) * r.choice([1e-3, 0.1, 1, 3], count)).astype(kind),
        r.uniform(-750, 750, count).astype(kind),
        r.uniform(0.7, 1.5, count).astype(kind),
        r.uniform(-1, 1, count // 2).astype(kind),
        (1 + r.choice([-1, 1], count // 4) * 2 ** r.uniform(-52, 0, count // 4)).astype(kind),
        (np.round(r.uniform(0, 1e5, count // 4)) * (np.pi / 2)).astype(kind),
    ]
    return np.concatenate(parts)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(1)
def test_f32_is_within_its_bound(name: str, target: str) -> None:
    x = inputs("f32", RANDOM // 4)
    assert len(x) >= RANDOM
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
    assert errors(run(name, "f32", target, x), exact, "f32").max() <= stated(name, "f32")


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider float to compare with")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.sample(1)
def test_f64_is_within_its_bound(name: str, target: str) -> None:
    x = inputs("f64", RANDOM // 10)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.longdouble))
    assert errors(run(name, "f64", target, x), exact, "f64").max() <= stated(name, "f64")


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def erf(x: Decimal) -> Decimal:
    """A series, to 60 digits where x is not large."""
    total = term = x
    for n in range(1, 400):
        term *= -x * x / n
        total += term / (2 * n + 1)
    return 2 * total / PI.sqrt()


def erfc(x: Decimal) -> Decimal:
    """To 60 digits; a continued fraction far out."""
    if x < 5:
        return 1 - erf(x)
    fraction = Decimal(1)
    for n in range(160, 0, -1):
        fraction = 1 + n / (2 * x * x * fraction)
    return (-x * x).exp() / (x * PI.sqrt() * fraction)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["erf", "gelu"])
@pytest.mark.sample(1)
def test_the_normal_distribution_in_f64(name: str, target: str) -> None:
    r = np.random.default_rng(3)
    low = -6.0 if name == "erf" else -38.0
    x = np.concatenate([r.uniform(-3, 3, 300), r.uniform(low, 9, 300), r.standard_normal(50) * 1e-4,
                        [0.921875, -0.921875, 1e-300, 5e-324]])  # fmt: skip
    found = run(name, "f64", target, x)
    with localcontext() as context:
        context.prec = 90
        for v, y in zip(map(float, x), map(float, found), strict=True):
            t = Decimal(v)
            exact = erf(t) if name == "erf" else t * erfc(-t / Decimal(2).sqrt()) / 2
            assert abs(Decimal(y) - exact) <= Decimal(stated(name, "f64")) * Decimal(math.ulp(y))
    ends = run(name, "f64", target, np.array([0.0, -0.0, np.inf, -np.inf, np.nan]))
    exact = [0.0, -0.0, 1.0, -1.0, np.nan] if name == "erf" else [0.0, -0.0, np.inf, -0.0, np.nan]
    assert str(ends.tolist()) == str([float(v) for v in exact])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(3)
def test_every_number_of_16_bits(name: str, dtype: str, target: str) -> None:
    x = np.arange(65536, dtype=np.uint16).view(SHAPES[dtype][1])
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
    assert errors(run(name, dtype, target, x), exact, dtype).max() <= 0.51


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_the_bits_are_the_same_on_both_targets(name: str, dtype: str) -> None:
    x = inputs(dtype, RANDOM // 10) if dtype in ("f32", "f64") else (
        np.arange(65536, dtype=np.uint16).view(SHAPES[dtype][1])
    )  # fmt: skip
    a, b = run(name, dtype, "cpu", x), run(name, dtype, "cuda", x)
    bits = SHAPES[dtype][0]
    assert (np.isnan(a) == np.isnan(b)).all()
    number = ~np.isnan(a)
    assert np.array_equal(a[number].view(bits), b[number].view(bits))


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas on this machine")
@pytest.mark.parametrize("dtype", SHAPES)
@pytest.mark.parametrize("name", [*NAMES, "pow", "atan2", "hypot"])
@pytest.mark.sample(4)
def test_ptxas_takes_it(name: str, dtype: str) -> None:
    session = Session()
    text = OF_TWO if name in ("pow", "atan2", "hypot") else KERNEL
    session.set_text("k.tessera", text.format(name=name, dtype=dtype), 1)
    program, plan = session.tile("k.tessera", "k", session.signature("k.tessera", "k"))
    row = architecture_named("sm_80")
    ptx = translate(emit_kernel(program.operations[0], plan, row).text, row).ptx
    tool = find_ptxas()
    assert tool is not None
    assert assemble(tool, ptx, "sm_80").resources.spill_bytes == 0


# --- powers ----------------------------------------------------------------------------------


def power(dtype: str, target: str, x: Any, y: Any, name: str = "pow") -> Any:
    out = np.zeros_like(x)
    tessera.compile(OF_TWO.format(name=name, dtype=dtype), target=target).k(x, y, out)
    tessera.synchronize()
    return out


@pytest.mark.parametrize("target", TARGETS)
def test_powers(target: str) -> None:
    r = np.random.default_rng(5)
    x = np.concatenate([
        r.integers(0, 2**32 - 1, RANDOM, dtype=np.uint32).view(np.float32),
        np.exp(r.uniform(-5, 5, RANDOM)).astype(np.float32),
        r.uniform(-20, 20, RANDOM).astype(np.float32),
    ])  # fmt: skip
    y = np.concatenate([
        r.integers(0, 2**32 - 1, RANDOM, dtype=np.uint32).view(np.float32),
        r.uniform(-20, 20, RANDOM).astype(np.float32),
        r.integers(-30, 30, RANDOM).astype(np.float32),
    ])  # fmt: skip
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert errors(power("f32", target, x, y), exact, "f32").max() <= stated("pow", "f32")


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider float to compare with")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.slow
def test_powers_in_f64(target: str) -> None:
    r, n = np.random.default_rng(5), RANDOM // 8
    bits = r.integers(0, 2**64 - 1, 2 * n, dtype=np.uint64).view(np.float64)
    x = np.concatenate([bits[:n], np.exp(r.uniform(-5, 5, n)), r.uniform(-20, 20, n),
                        r.uniform(0.999, 1.001, n), np.exp(r.uniform(-700, 700, n))])  # fmt: skip
    y = np.concatenate([bits[n:], r.uniform(-100, 100, n), r.integers(-200, 200, n).astype(float),
                        r.uniform(-5e5, 5e5, n), r.uniform(-1.5, 1.5, n)])  # fmt: skip
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
    assert errors(power("f64", target, x, y), exact, "f64").max() <= stated("pow", "f64")


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_powers_of_special_numbers(dtype: str, target: str) -> None:
    some = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 101.0, 3e4, np.inf]
    grid = np.array([*some, *(-v for v in some), np.nan]).astype(SHAPES[dtype][1])
    x, y = (a.ravel().copy() for a in np.meshgrid(grid, grid))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    # In f64 the expected value is rounded itself.
    limit = 0.51 if dtype != "f64" else 1.5
    assert errors(power(dtype, target, x, y), exact, dtype).max() <= limit


# --- angles and lengths ------------------------------------------------------------------------

PAIRS: dict[str, Callable[[Any, Any], Any]] = {"atan2": np.arctan2, "hypot": np.hypot}


def pairs(dtype: str, count: int) -> tuple[Any, Any]:
    """Random bits, numbers whose quotient is near 1 or far from it, and all pairs of what is
    special."""
    bits, kind, digits, least = SHAPES[dtype]
    r = np.random.default_rng(17)
    random = r.integers(0, np.iinfo(bits).max, 2 * count, dtype=bits, endpoint=True).view(kind)
    power = 2.0 ** r.uniform(least - digits, -least - 62, count) if least < -100 else (
        2.0 ** r.uniform(-20, 12, count)
    )  # fmt: skip
    x = [random[:count], r.standard_normal(count), power, power, np.ones(count)]
    y = [random[count:], r.standard_normal(count), power * r.uniform(0.2, 3, count),
         power * 2 ** r.uniform(-60, 60, count), r.uniform(-3, 3, count)]  # fmt: skip
    info = ml_dtypes.finfo(kind)
    some = np.array([0, 1, 2, 0.5, np.inf, np.nan, float(info.max), float(info.tiny),
                     float(info.smallest_subnormal)])  # fmt: skip
    grid = np.meshgrid(np.concatenate([some, -some]), np.concatenate([some, -some]))
    with np.errstate(all="ignore"):
        left, right = (
            np.concatenate([*(v.astype(kind) for v in parts), g.ravel().astype(kind)])
            for parts, g in zip((x, y), grid, strict=True)
        )
    return left, right


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", SHAPES)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.sample(1)
def test_angles_and_lengths(name: str, dtype: str, target: str) -> None:
    if dtype == "f64" and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("no wider float to compare with")
    x, y = pairs(dtype, RANDOM // 5)
    wide: Any = np.longdouble if dtype == "f64" else np.float64
    with np.errstate(all="ignore"):
        exact = PAIRS[name](x.astype(wide), y.astype(wide))
    bound = stated(name, dtype) if dtype in ("f32", "f64") else 0.51
    assert errors(power(dtype, target, x, y, name), exact, dtype).max() <= bound


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", SHAPES)
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_have_the_same_bits_on_both_targets(name: str, dtype: str) -> None:
    x, y = pairs(dtype, RANDOM // 10)
    a, b = power(dtype, "cpu", x, y, name), power(dtype, "cuda", x, y, name)
    assert (np.isnan(a) == np.isnan(b)).all()
    number = ~np.isnan(a)
    bits = SHAPES[dtype][0]
    assert np.array_equal(a[number].view(bits), b[number].view(bits))


TILES = """
@op.kernel
def k(x: f32[m, n], v: f32[n]):
    return {}

def host(x: f32[m, n]):
    return {}, math.atan2(1.0, 2.0), math.hypot(3.0, 4.0)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_tiles_and_host_code(target: str, whole: bool) -> None:
    """Each as a function of tiles and of whole arrays."""
    names = ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "expm1",
             "log10"]  # fmt: skip
    names = few(names, 3, whole)
    of_one = ", ".join(f"op.{n}(x)" for n in names)
    of_two = "op.atan2(x, v[None, :]), math.atan2(x, 1.0), op.hypot(x, v[None, :])"
    m = tessera.compile(TILES.format(f"{of_one}, {of_two}", of_one), target=target)
    r = np.random.default_rng(3)
    x, v = r.uniform(-2, 2, (9, 70)).astype(np.float32), r.uniform(-2, 2, 70).astype(np.float32)
    with np.errstate(all="ignore"):
        right = [EXACT[n](x.astype(np.float64)) for n in names]
    right += [np.arctan2(x, v), np.arctan2(x, 1), np.hypot(x, v)]
    for name, found, wanted in zip([*names, "two", "one", "hypot"], m.k(x, v), right, strict=True):
        np.testing.assert_allclose(np.asarray(found), wanted, 3e-7, 1e-9, err_msg=name)
    found = m.host(x)
    for name, one, wanted in zip(names, found, right, strict=False):
        np.testing.assert_allclose(np.asarray(one), wanted, 3e-7, 1e-9, err_msg=name)
    assert found[-2:] == (math.atan2(1.0, 2.0), 5.0)


@pytest.mark.parametrize("module", ["math", "op"])
@pytest.mark.parametrize(("old", "form"), [
    ("arcsin(x)", "asin(x)"), ("arccosh(x)", "acosh(x)"), ("arctan2(x, x)", "atan2(x, x)"),
])  # fmt: skip
@pytest.mark.sample(1)
def test_older_spellings_are_the_same_functions(old: str, form: str, module: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[n]):\n    return {module}.{old}, {module}.{form}\n"
    one, other = tessera.compile(text, target="cpu").k(np.linspace(0.5, 2, 9, dtype=np.float32))
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize(("call", "message"), [
    ("math.exp(i > 3)", "takes f16, bf16, f32 and f64"),
    ("f32(math.sin(bool(x[i])))", "takes f16, bf16, f32 and f64"),
    ("math.pow(x[i], f16(1.0))", "takes two numbers of one dtype"),
    ("math.tan(i32(i))", "takes f16, bf16, f32 and f64"),
    ("math.atan2(x[i], f16(1.0))", "takes two numbers of one dtype"),
    ("math.hypot(x[i], f16(1.0))", "takes two numbers of one dtype"),
])  # fmt: skip
def test_what_they_do_not_take_is_said(call: str, message: str) -> None:
    text = (
        "@kernel tile[(64,)] grid[(1,)]\ndef k(x: f32[n], out: mut f32[n]):\n"
        f"    i = tile_linear_id()\n    if i < n: out[i] = {call}\n"
    )
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text, target="cpu")
    (found,) = caught.value.diagnostics
    assert found.code == "T0224" and message in found.message


@pytest.mark.parametrize("name", ["exp", "exp2", "tanh", "gelu"])
def test_powers_of_two_are_made_without_sums_of_bits(name: str) -> None:
    """In a tile of many registers LLVM compares each of those sums with all others: minutes."""
    text = f"""
@kernel tile[(64,)] grid[(1,)]
def k(x: f32[n], y: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: y[i] = math.{name}(x[i])
"""
    session = Session(overlay={"k.tessera": text})
    wanted = session.signature("k.tessera", "k", "x: f32[64], y: f32[64]")
    program, _ = session.tile("k.tessera", "k", wanted, None)
    sums = [o for o in program.walk() if o.name == "tile.add" and o.result.type == U32]
    shifts = [o for o in program.walk() if o.name == "tile.shl" and o.result.type == U32]
    assert shifts and not sums


def test_a_sigmoid_without_a_branch_is_the_quotient() -> None:
    """To the last bit: its division has no way around for what cannot happen."""
    text = KERNEL.format(dtype="f32", name="sigmoid") + (
        "@kernel tile[(128,)] grid[(64,)]\n"
        "def divided(x: f32[n], out: mut f32[n]):\n"
        "    for i in range(grid_tile_linear_id(), n, grid_tile_count()):\n"
        "        e = math.exp(-abs(x[i]))\n"
        "        out[i] = (1.0 if x[i] >= 0.0 else e) / (1.0 + e)\n"
    )
    module = tessera.compile(text, target="cpu")
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(0, 6, 50_000), rng.uniform(-110, 110, 50_000)])
    x = np.append(x, [0.0, -0.0, np.inf, -np.inf, 1e-40, -1e-40]).astype(np.float32)
    got, want = np.empty_like(x), np.empty_like(x)
    module.k(x, got)
    module.divided(x, want)
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
