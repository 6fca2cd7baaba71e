"""Checks of headers, in C, beside those of every launch, in Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu import features
from tessera_backend.runtime import memory_overlap as overlap
from tessera_backend.runtime.arrays import HOST, ArrayView
from tessera_backend.runtime.c_interface.calls import Variant
from tessera_backend.runtime.c_interface.header import included

from tessera_lang.record import replace
from tessera_lang.target.backend import Artifact, TargetOptions
from tessera_lang.target.launch_plan import Condition, LaunchPlan, ParameterPlan
from tessera_lang.target.premises import array_numbers, broken, grid_numbers
from tessera_lang.types.dtype import DTYPES
from tessera_lang.types.shape import DimOp, Sym, apply_operator, evaluate_dim

FLAGS = ("-Wall", "-Wextra", "-Werror", "-O1")


def compiler() -> list[str]:
    name, *flags = "gcc", "-std=c99", "-pedantic"
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here")
    return [found, *FLAGS, *flags]


SHIM = """
#include "tessera.h"
#define TEST(name, call) int test_##name(const tessera_array *a, const tessera_array *b, int n) \\
    { (void)b; (void)n; return call; }
TEST(contiguous, tessera_is_contiguous(a))
TEST(unit, tessera_is_unit(a, n))
TEST(injective, tessera_is_injective(a))
TEST(apart, tessera_are_apart(a, b))
#define SIZE(name, call) int64_t size_##name(int *bad, int64_t a, int64_t b) \\
    { (void)bad; return call; }
SIZE(add, tessera_add(bad, a, b))
SIZE(subtract, tessera_subtract(bad, a, b))
SIZE(multiply, tessera_multiply(bad, a, b))
SIZE(floor_divide, tessera_floor_divide(bad, a, b))
SIZE(modulo, tessera_modulo(bad, a, b))
SIZE(ceil_divide, tessera_ceil_divide(bad, a, b))
SIZE(min, tessera_min(a, b))
SIZE(max, tessera_max(a, b))
int has(uint32_t leaf, uint32_t subleaf, int reg, int bit, uint32_t saved)
{
    tessera_feature f;
    f.name = ""; f.leaf = leaf; f.subleaf = subleaf; f.reg = reg; f.bit = bit; f.saved = saved;
    return tessera_cpu_has(&f);
}
"""


class CArray(ctypes.Structure):
    """``tessera_array``."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
    )  # fmt: skip


DTYPE_CODES = {"u8": 6, "f16": 12, "f32": 10, "f64": 11}


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("shim")
    (home / "tessera.h").write_bytes(included("tessera.h"))
    (home / "shim.c").write_text(SHIM)
    command = [*compiler(), "-shared", "-fPIC", "-fsanitize=undefined",
               "-fsanitize-undefined-trap-on-error", str(home / "shim.c"), "-o",
               str(home / "shim.so")]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    return ctypes.CDLL(str(home / "shim.so"))


def c_array(view: ArrayView) -> CArray:
    rank = len(view.shape)
    shape, strides = (ctypes.c_int64 * rank)(*view.shape), (ctypes.c_int64 * rank)(*view.strides)
    return CArray(view.pointer, DTYPE_CODES[view.dtype.name], rank, shape, strides)


def random_view(random: np.random.Generator, start: int = 1 << 62) -> ArrayView:
    """A view of any kind: dense, sliced, transposed, reversed, broadcast, empty, huge."""
    dtype = DTYPES[str(random.choice(list(DTYPE_CODES)))]
    rank = int(random.integers(0, 4))
    sizes = [1, 2, 3, 4, 16, 128, 0, 1 << 16, (1 << 30) + 1]
    few = sizes[:5] if random.random() < 0.7 else sizes
    shape = [int(random.choice(few)) for _ in range(rank)]
    strides, step = [0] * rank, 1
    for axis in random.permutation(rank) if random.random() < 0.3 else range(rank - 1, -1, -1):
        strides[axis] = step * int(random.choice([1, 1, 1, 1, 2, 4, 0, -1, 3]))
        step = max(step * max(shape[axis], 1), 1) + int(random.choice([0, 0, 0, 1, 4, 12]))
    pointer = start + int(random.integers(0, 64)) * dtype.bytes
    return ArrayView(dtype, tuple(shape), tuple(strides), pointer, HOST, False, None)


@pytest.mark.slow
def test_checks_of_arrays_are_those_of_python(shim: Any) -> None:
    random = np.random.default_rng(7)
    told: dict[str, set[bool]] = {}
    for _ in range(6000):
        view, other = random_view(random), random_view(random)
        if max(map(abs, (*view.extent(), *other.extent()))) > 1 << 61:
            continue  # C counts in 64 bits, and takes what does not fit to be wrong
        a, b = c_array(view), c_array(other)
        want = {
            "contiguous": view.contiguous, "injective": overlap.within(view) == "no",
            "apart": overlap.between(view, other) == "no",
        }  # fmt: skip
        for name, holds in want.items():
            got = getattr(shim, f"test_{name}")(ctypes.byref(a), ctypes.byref(b), 0)
            assert bool(got) == holds, (name, view, other)
            told.setdefault(name, set()).add(holds)
    assert all(both == {True, False} for both in told.values()), told


def random_plan(random: np.random.Generator) -> LaunchPlan:
    """Code for one array that relies on anything."""

    def some(values: Sequence[Any]) -> Any:
        return values[int(random.integers(len(values)))]

    rank = int(random.integers(0, 4))
    few = [None, None, 1, 2, 4, 16, 128]
    p = ParameterPlan(
        "x", "tensor", some(list(DTYPE_CODES)), rank, tuple(Sym(f"n{i}") for i in range(rank)),
        contiguous=some([True, False]), aligned=some([True, False]), small=some([True, False]),
        sizes=tuple(some(few) if random.random() < 0.2 else None for _ in range(rank)),
        divisors=tuple(some([1, 1, 2, 4]) for _ in range(rank)),
        unit=int(random.integers(-1, max(rank, 1))), pitches=some([True, False]),
        buckets=tuple(some([None, None, 128, 256]) for _ in range(rank)),
    )  # fmt: skip
    conditions: list[Condition] = []
    for i in range(rank):
        other = DimOp(some(["//", "%", "ceil_div", "min", "max", "-", "*"]), Sym(f"n{i}"), 3)
        compared = (other, some(["==", "!=", "<", ">="]), some([0, 1, Sym("n0")]))
        conditions.append(Condition(*compared, f"condition {i}", others=((Sym("n0"), ">", 2),)))
    grid = (DimOp("ceil_div", Sym("n0"), 2),) if rank else (1,)
    return LaunchPlan("k", (p,), (), (32,), grid, conditions=tuple(conditions[:1]))


def test_the_check_in_c_is_that_of_every_launch(tmp_path: Path) -> None:
    """Random facts and random arrays: `refuses` says what the shared list of premises says."""
    random = np.random.default_rng(11)
    plans = [random_plan(random) for _ in range(24)]
    (tmp_path / "tessera.h").write_bytes(included("tessera.h"))
    lines = ['#include "tessera.h"']
    for at, plan in enumerate(plans):
        artifact = Artifact("ptx", b"", "k", plan, TargetOptions("cuda", "sm_90"))
        variant = Variant(artifact, f"v{at}", ("k",), ("k",))
        lines += variant.refuses()
        lines.append(f"const char *w{at}(const tessera_array *a) {{ return v{at}_refuses(a); }}")
    (tmp_path / "w.c").write_text("\n".join(lines))
    command = [*compiler(), "-shared", "-fPIC", str(tmp_path / "w.c"), "-o",
               str(tmp_path / "w.so")]  # fmt: skip
    subprocess.run(command, check=True, timeout=120)
    loaded = ctypes.CDLL(str(tmp_path / "w.so"))
    texts: dict[str, int] = {}
    for at, plan in enumerate(plans):
        why = getattr(loaded, f"w{at}")
        why.restype = ctypes.c_char_p
        p = plan.parameters[0]
        for _ in range(400):
            view = random_view(random, 1 << 40)
            if len(view.shape) != p.rank or view.dtype.name != p.dtype:
                view = replace(view, dtype=DTYPES[p.dtype])
            got = why(ctypes.byref(c_array(view)))
            if len(view.shape) != p.rank:
                assert got is not None
                continue
            sizes = {f"n{i}": n for i, n in enumerate(view.shape)}
            numbers = {
                **sizes, **array_numbers("x", view.shape, view.strides, view.pointer),
                **grid_numbers([evaluate_dim(d, sizes) for d in plan.grid or ()]),
            }  # fmt: skip
            want = broken(plan, "cuda", numbers)
            said = "" if got is None else got.decode()
            assert said == want, (plan, view)
            texts[said] = texts.get(said, 0) + 1
    assert texts[""] > 200 and len(texts) > 15, texts


def test_an_axis_has_neighbours_where_its_stride_says_so(shim: Any) -> None:
    view = ArrayView(DTYPES["f32"], (4, 5), (1, 7), 4096, HOST, False, None)
    a = c_array(view)
    assert shim.test_unit(ctypes.byref(a), None, 0) == 1
    assert shim.test_unit(ctypes.byref(a), None, 1) == 0


OPERATIONS = {"add": "+", "subtract": "-", "multiply": "*", "floor_divide": "//", "modulo": "%",
              "ceil_divide": "ceil_div", "min": "min", "max": "max"}  # fmt: skip


def test_sizes_are_those_of_python_or_refused(shim: Any) -> None:
    random = np.random.default_rng(3)
    edges = [0, 1, -1, 2, 7, -7, 128, (1 << 63) - 1, -(1 << 63), 1 << 62, (1 << 31) + 1]
    for name, operator in OPERATIONS.items():
        call = getattr(shim, f"size_{name}")
        call.restype, call.argtypes = ctypes.c_int64, (ctypes.c_void_p, *[ctypes.c_int64] * 2)
        pairs = [(a, b) for a in edges for b in edges]
        pairs += [tuple(map(int, random.integers(-999, 999, 2))) for _ in range(300)]
        for a, b in pairs:
            bad = ctypes.c_int(0)
            got = call(ctypes.addressof(bad), a, b)
            try:
                want = apply_operator(operator, a, b)  # type: ignore[arg-type]
                fits = -(1 << 63) <= want < 1 << 63
            except ZeroDivisionError:
                want, fits = 0, False
            assert bad.value or (fits and got == want), (name, a, b, got)
            assert not bad.value or not fits or max(abs(a), abs(b)) >= 1 << 62, (name, a, b)


def test_a_processor_is_asked_alike(shim: Any) -> None:
    here = features.host_features()
    if here is None or features.host_machine() != "x86_64":
        pytest.skip("C asks x86-64 alone")
    for name in features.known_features("x86_64"):
        row = features.feature_row(name)
        assert row is not None and bool(shim.has(*row)) == (name in here), name
