"""What calls from Python are told to write is right, and shows the line of what it is about."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.dtypes import TO_NUMPY

import tessera_lang as tessera
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.driver.cli import run

DTYPES = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"]
LEVELS = {
    "lanes": """
@kernel tile[(32,)] grid[(1,)]
def k(x: mut {dtype}[n],
      number: {dtype}):
    if tile_linear_id() < n:
        x[tile_linear_id()] = number
""",
    "tiles": """
@op.kernel
def k(x: mut {dtype}[n],
      number: {dtype}):
    x[:] = op.full((n,), number, {dtype})
""",
}
NUMBERS: tuple[Any, ...] = (
    True, 3, -1, 300, 10**30, 2.5, 1e300, np.bool_(1), np.int64(3), np.uint8(3), np.float16(3),
    np.float64(3), np.longdouble(3), np.complex64(3),
)  # fmt: skip
PYTHON = {"int": int, "float": float, "bool": bool}
FLOATS = ("f16", "bf16", "f32", "f64")
RANGE = re.compile(" outside of | larger than ")


def refusal(call: Callable[[], object], line: str = "") -> Diagnostic | None:
    """What is said of a call that is refused; it shows the line."""
    try:
        call()
    except TesseraError as error:
        assert line in str(error)
        (found,) = error.diagnostics
        return found
    return None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.sample
def test_numbers(level: str, dtype: str) -> None:
    k = tessera.compile(LEVELS[level].format(dtype=dtype), target="cpu").k
    x = np.zeros(3, TO_NUMPY[dtype])
    for number in NUMBERS:
        found = refusal(lambda n=number: k(x, n), "number: ")
        if found is None:
            wanted = float(number) if dtype in FLOATS else int(number)
            assert np.allclose(x.astype(np.float64), wanted, rtol=0.01), number
            continue
        assert found.code == "T0843" and found.span is not None
        assert found.helps or RANGE.search(found.message)
        for told in found.helps:
            form = re.search(r"`(\w+)\(\.\.\.\)`", told)
            for value in [number.real, number.imag] if form is None else [PYTHON[form[1]](number)]:
                again = refusal(lambda v=value: k(x, v))
                if again is not None:  # a part of a complex number has a type again
                    assert RANGE.search(again.message) or form is None and again.helps


# --- built folders ---------------------------------------------------------------------------

BUILT = """
@op.kernel
def scaled(x: f32[n], a) -> f32[n]:
    y = op.empty((n,), f32)
    for i in op.tile_range(n, step=64):
        y[i:i+64] = x[i:i+64] * op.cast(a, f32)
    return y

@op.kernel
def rows[K: int, T: dtype](x: T[n, K]) -> T[n]:
    return op.sum(x, axis=1)

@op.kernel
def product(A: f32[m, k], B: f32[k, n]) -> f32[m, n]:
    return A @ B

@op.kernel
def doubled(x: mut f32[n]):
    x[:] = x * 2.0

@kernel tile[(32,)]
def counted(x: mut f32[n]):
    if grid_tile_linear_id() < n:
        x[grid_tile_linear_id()] = 1.0
"""


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


CALLS: dict[str, tuple[list[str], Callable[[Any], Any], Callable[[], Any]]] = {
    "another size": (
        ["scaled", "x: f32[1024], a: f32"], lambda m: m.scaled(ones(1000), 2.0),
        lambda: ones(1000) * 2,
    ),
    "another number in brackets": (
        ["rows", "x: f32[n, 8], K=8"], lambda m: m.rows(ones(10, 9), K=9),
        lambda: ones(10, 9).sum(1),
    ),
    "two arrays": (
        ["product", "A: f32[64, 64], B: f32[64, 64]"],
        lambda m: m.product(ones(30, 40), ones(40, 50)), lambda: ones(30, 40) @ ones(40, 50),
    ),
    "axes of the grid": (
        ["counted", "x: mut f32[n]"], lambda m: written(m.counted[(2, 2)], ones(99) * 0),
        lambda: ones(99),
    ),
}  # fmt: skip


def written(kernel: Any, x: Any) -> Any:
    kernel(x)
    return x


def built(folder: Path, words: list[str]) -> Any:
    source = folder.parent / "given.tessera"
    source.write_text(BUILT, encoding="utf-8")
    command = ["build", str(source), "-o", str(folder), "--target", "cpu", *words]
    assert run(command) == 0
    return tessera.load_built(folder)


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.sample(2)
def test_what_to_build(case: str, tmp_path: Path) -> None:
    (kernel, signature), call, wanted = CALLS[case]
    words = ["--kernel", kernel, "--signature", signature]
    found = refusal(lambda: call(built(tmp_path / "first", words)))
    assert found is not None and found.code == "T0849"
    form = re.search(r"add `(.*)` to the `tesserac build` of this one", found.helps[0])
    assert form is not None, found.helps
    more = shlex.split(form[1])
    assert np.allclose(call(built(tmp_path / "second", [*words, *more])), wanted())


def test_what_no_signature_says(tmp_path: Path) -> None:
    """How an array lies: a copy lies as code wants it."""
    scaled = built(tmp_path / "scaled", ["--kernel", "scaled", "--signature", "a: f32"]).scaled
    doubled = built(tmp_path / "doubled", ["--kernel", "doubled"]).doubled
    lying = {"steps": ones(200)[::2], "an odd address": ones(101)[1:]}
    for x in lying.values():
        found = refusal(lambda x=x: scaled(x, 3.0))
        assert found is not None and "`x.copy()`" in found.helps[0]
        assert np.all(scaled(x.copy(), 3.0) == 3.0)
        found = refusal(lambda x=x: doubled(x))
        assert found is not None and "`x[...] = `" in found.helps[0]
        doubled(copy := x.copy())
        x[...] = copy
        assert np.all(x == 2.0)


# --- kernels that do nothing -----------------------------------------------------------------

HEADS = {"lanes": "@kernel tile[(32,)] grid[(1,)]", "tiles": "@op.kernel"}
BODIES = {
    "nothing": ("x: f32[n], s: f32", "y = s * 2.0", True),
    "a store": ("x: mut f32[n], s: f32", "x[0] = s", False),
    "a line": ("x: f32[n], s: f32", "print(s)", False),
    "an assertion": ("x: f32[n], s: f32", "assert s > 0.0", False),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("level", HEADS)
def test_what_does_nothing_says_so_once(level: str, body: str) -> None:
    parameters, line, is_told = BODIES[body]
    text = f"\n{HEADS[level]}\ndef k({parameters}):\n    {line}\n"
    m = tessera.compile(text, target="cpu")
    m.k.bind(ones(3), 1.0)
    m = tessera.compile(text, target="cpu")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for size in (3, 3, 4):
            m.k(ones(size), 1.0)
    said = [str(w.message) for w in seen]
    assert ["T0857" in s for s in said] == [True] * is_told
