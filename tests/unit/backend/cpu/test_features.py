"""Features of processors: what LLVM gives a name, what this machine has, and code without them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu import features
from tessera_backend.cpu.backend import PROCESSORS
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.cpu.llvm_codegen import code_target

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError

x86 = pytest.mark.skipif(host_machine() != "x86_64", reason="about x86-64")
LEVELS = {
    "x86-64-v2": {"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"},
    "x86-64-v3": {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
CONVERT = """\
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def convert(x: f32[n], h: mut f16[n], y: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        h[i] = f16(x[i])
        y[i] = f32(h[i]) + 0.0
"""


@x86
def test_levels_are_those_of_the_psabi() -> None:
    """Each level has what it adds and all of the levels below, and nothing of those above."""
    below: set[str] = set()
    for name, own in LEVELS.items():
        has = set(code_target(name).needs)
        below |= own
        assert below <= has
        above = set().union(*LEVELS.values()) - below
        assert not has & above, name


@x86
@pytest.mark.parametrize("name", PROCESSORS["x86_64"])
def test_every_processor_has_its_level(name: str) -> None:
    has = set(code_target(name).needs)
    assert LEVELS["x86-64-v2"] <= has <= set(features.known_features("x86_64"))
    if name != "x86-64-v2":
        assert LEVELS["x86-64-v3"] <= has


def test_this_machine_has_what_llvm_says_of_it() -> None:
    here = features.host_features()
    assert here is None or set(code_target("native").needs) == here


@x86
def test_a_system_that_keeps_no_wide_registers_has_none() -> None:
    """A virtual machine may show avx in cpuid and not save its registers."""
    everything = (0xFFFFFFFF,) * 4
    names = features.known_features("x86_64")
    all_of_it = features._x86_features(lambda leaf, sub: everything, lambda: 0xE7)
    assert all_of_it == set(names)
    narrow = features._x86_features(lambda leaf, sub: everything, lambda: 0x7)
    assert "avx2" in narrow and not any(name.startswith("avx512") for name in narrow)
    old = features._x86_features(lambda leaf, sub: everything, lambda: 0x1)
    assert "sse4.2" in old and not any(n.startswith("avx") or n in ("fma", "f16c") for n in old)
    none = features._x86_features(lambda leaf, sub: (0, 0, 0, 0), lambda: 0xE7)
    assert none == frozenset()


@x86
def test_floats_of_16_bits_without_instructions_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All f16, and f32 around each tie and each end: what NumPy gives."""
    monkeypatch.setenv("TESSERA_ARCH", "x86-64-v2")
    monkeypatch.setenv("TESSERA_CACHE", "off")
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = halves.astype(np.float32)
    bits = exact.view(np.uint32)
    # Ties lie half way between neighbours; one more and one less decide them.
    near = [bits + np.uint32(d) for d in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    x = np.concatenate(
        [
            exact,
            *(n.view(np.float32) for n in near),
            np.float32([0, -0.0, np.inf, -np.inf, np.nan, 65519.9, 65520, 1e-8, 3e38]),
        ]
    )
    h, y = np.zeros(x.shape, np.float16), np.zeros(x.shape, np.float32)
    tessera.compile(CONVERT, target="cpu").convert(x, h, y)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(np.float16)
    nan = np.isnan(want)
    assert (np.isnan(h) == nan).all()
    assert (h.view(np.uint16)[~nan] == want.view(np.uint16)[~nan]).all()
    assert (y[~nan] == want.astype(np.float32)[~nan]).all()


FMA = """\
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def fuse(x: f64[n], y: f64[n], z: f64[n], out: mut f64[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = math.fma(x[i], y[i], z[i])
"""


def exactly(x: float, y: float, z: float) -> float:
    """``x * y + z`` rounded once: by fractions, where all is finite."""
    if not all(map(math.isfinite, (x, y, z))):
        return z if math.isfinite(x) and math.isfinite(y) else x * y + z
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        negative = math.copysign(1, x) * math.copysign(1, y) < 0
        both = negative and math.copysign(1, z) < 0 and (x == 0 or y == 0)
        return -0.0 if both else 0.0
    try:
        near = abs(float(total))
    except OverflowError:
        near = math.inf
    return near if total > 0 else -near


@x86
def test_fused_operations_without_instructions_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bits, near and far exponents, cancellation, subnormals, ties, ends: one rounding."""
    monkeypatch.setenv("TESSERA_ARCH", "x86-64-v2")
    monkeypatch.setenv("TESSERA_CACHE", "off")
    random = np.random.default_rng(5)

    def doubles(low: int, high: int, n: int) -> np.ndarray[Any, Any]:
        bits = random.integers(0, 1 << 52, n, dtype=np.uint64)
        keep = np.uint64(0xFFFFFFFFFFFFF) << random.integers(0, 53, n, dtype=np.uint64)
        fields = random.integers(low, high, n, dtype=np.uint64) << np.uint64(52)
        signs = random.integers(0, 2, n, dtype=np.uint64) << np.uint64(63)
        return ((bits & keep) | fields | signs).view(np.float64)

    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.2250738585072014e-308,
                     1.7976931348623157e308, -1.7976931348623157e308, 1.0, -1.0])  # fmt: skip
    grid = [a.ravel() for a in np.meshgrid(ends, ends, ends)]
    parts: list[list[np.ndarray[Any, Any]]] = [grid]
    for low, high in ((0, 2047), (900, 1150), (1020, 1026), (0, 60), (480, 560), (1500, 1540)):
        x, y, z = (doubles(low, high, 3000) for _ in "xyz")
        with np.errstate(all="ignore"):
            parts += [[x, y, z], [x, y, -(x * y)], [x, y, -np.nextafter(x * y, 0)],
                      [x, y, x * y * 2.0 ** random.integers(-110, 110, 3000)]]  # fmt: skip
    x, y, z = (np.ascontiguousarray(np.concatenate([p[i] for p in parts])) for i in range(3))
    out = np.zeros_like(x)
    tessera.compile(FMA, target="cpu").fuse(x, y, z, out)
    want = np.array([exactly(*v) for v in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)])
    nan = np.isnan(want)
    assert (np.isnan(out) == nan).all()
    wrong = np.flatnonzero((out.view(np.uint64) != want.view(np.uint64)) & ~nan)
    assert not wrong.size, [(x[i], y[i], z[i], out[i], want[i]) for i in wrong[:5]]


def test_what_a_processor_lacks_is_said_before_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", "off")
    needs = code_target("native").needs
    if not needs or features.host_features() is None:
        pytest.skip("nothing is known of this processor")
    monkeypatch.setattr(features, "host_features", lambda: frozenset(needs[1:]))
    x = np.ones(3, np.float32)
    with pytest.raises(TesseraError) as caught:
        tessera.compile(CONVERT, target="cpu").convert(x, x.astype(np.float16), x.copy())
    assert caught.value.diagnostics[0].code == "T0849"
    assert needs[0] in str(caught.value) and "--arch" in str(caught.value)
