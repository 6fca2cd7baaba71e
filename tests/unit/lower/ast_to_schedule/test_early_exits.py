"""``break``, ``continue`` and early ``return``: what Python does, in tile kernels and in lanes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.diagnostics.diagnostic import TesseraError
from tests.unit.lower.ast_to_schedule import control_programs as programs


def loaded(text: str, target: str = "cpu") -> Any:
    arch_as, target = (target, "cpu") if target.startswith("sm_") else ("", target)
    options = replace(options_from_environment(), target=target, arch_as=arch_as)
    return Module("<source>", SessionProvider("<source>", options, text=text), cast("Any", target))


def given(name: str) -> Any:
    """The numbers that the kernel of a name gets."""
    return np.random.default_rng(len(name)).integers(0, 9, programs.N).astype(np.int32)


def compared(seeds: range, tiles: bool, target: str = "cpu", called: bool = False) -> None:
    bodies = {f"k{seed}": programs.body_of(seed, tiles) for seed in seeds}
    text = "\n\n".join(
        programs.called_text(k, b) if called else programs.kernel_text(k, b, tiles)
        for k, b in bodies.items()
    )
    module = loaded(text, target)
    for name, body in bodies.items():
        x = given(name)
        out, kept = programs.ran_by_python(body, x, tiles, called)
        got, got_tiles = np.zeros_like(out), np.zeros_like(kept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(module, name)(*((x, got, got_tiles) if tiles else (x, got)))
        shown = "\n".join(body)
        assert (got == out).all(), (name, got, out, shown)
        assert (got_tiles == kept).all(), (name, got_tiles, kept, shown)


def test_every_program_ends() -> None:
    """Before anything is compiled: a program without an end would stop the tests with it."""
    for seed in range(104):
        for tiles, called in ((True, False), (True, True), (False, False)):
            for name in ("k4", "k44", "k100"):
                programs.ran_by_python(programs.body_of(seed, tiles), given(name), tiles, called)


GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_tile_kernels_as_python(target: str) -> None:
    compared(range(4), True, target)


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_functions_of_tiles_as_python(target: str) -> None:
    compared(range(4), True, target, called=True)


@pytest.mark.parametrize("called", [False, True])
def test_a_loop_that_needs_all_of_itself_is_compiled(called: bool) -> None:
    """Its parts were as large as itself, and taken apart again without an end."""
    compared(range(65, 66), True, called=called)


def test_lane_kernels_as_python() -> None:
    compared(range(4), False)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("part", range(5))
def test_more_tile_kernels_as_python(part: int, target: str) -> None:
    compared(range(4 + 20 * part, 24 + 20 * part), True, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("part", range(5))
def test_more_functions_of_tiles_as_python(part: int, target: str) -> None:
    compared(range(4 + 20 * part, 24 + 20 * part), True, target, called=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_more_lane_kernels_as_python(part: int) -> None:
    compared(range(4 + 20 * part, 24 + 20 * part), False)


# --- functions that are left early -------------------------------------------------------------

CALLED = """
def written(y: mut f32[n], x: f32[n], c):
    if c > 5:
        return
    for i in op.tile_range(n, step=64):
        y[i:i+64] = x[i:i+64]
    if c > 3:
        return
    for i in op.tile_range(n, step=64):
        y[i:i+64] = y[i:i+64] + x[i:i+64]

@op.kernel
def stores(x: f32[n], c: i32, y: mut f32[n]):
    written(y, x, c)

def both(x, c):
    while True:
        if op.sum(x) > f32(c):
            return x * 2.0, op.sum(x), c
        x = x + 1.0

@op.kernel
def several(x: f32[n], c: i32, y: mut f32[n]):
    for i in op.tile_range(n, step=32):
        t, s, k = both(x[i:i+32], c)
        y[i:i+32] = t + s + f32(k)
"""


@pytest.mark.parametrize("target", ["cpu", GPU])
@pytest.mark.parametrize("c", [1, 4, 6])
def test_a_function_that_stores_may_return_early(target: str, c: int) -> None:
    x, y = np.arange(100, dtype=np.float32), np.full(100, 7, np.float32)
    loaded(CALLED, target).stores(x, c, y)
    assert np.array_equal(y, 2 * x if c == 1 else x if c == 4 else np.full(100, 7))


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_several_results_from_inside_of_a_loop(target: str) -> None:
    x, y = np.arange(70, dtype=np.float32), np.zeros(70, np.float32)
    loaded(CALLED, target).several(x, 600, y)
    want = np.zeros(70, np.float32)
    for i in range(0, 70, 32):
        part = x[i : i + 32]
        while part.sum() <= 600:
            part = part + 1
        want[i : i + 32] = part * 2 + part.sum() + 600
    assert np.array_equal(y, want)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("    y[:] = chosen(x, y, c)\n", "T0700"),  # no room for it, and a side does more
    ],
)
def test_what_a_function_may_not(body: str, code: str) -> None:
    """A whole value has no room where a side of a condition does more than choose it."""
    text = f"""
def chosen(x, y: mut f32[n], c):
    if c > 0:
        y[0] = 1.0
        return x * 2.0
    return x + 1.0

@op.kernel
def f(x: f32[n], c: i32, y: mut f32[n]):
{body}"""
    x, y = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
    with pytest.raises(TesseraError) as refused:
        loaded(text).f(x, 1, y)
    assert {d.code for d in refused.value.diagnostics} == {code}


WHOLE = """
def chosen(x, c):
    if c > 0:
        return x * 2.0, op.sum(x)
    if c < -5:
        return x * x, 3.0
    return x + f32(c), 1.0

@op.kernel
def returned(x: f32[n], c: i32, y: mut f32[n]):
    a, s = chosen(x, c)
    y[:] = a * s

@op.kernel
def assigned(x: f32[n], c: i32, y: mut f32[n]):
    v = x + 1.0
    if c > 0:
        k = c * 3
        v = v * f32(k)
    elif c < -5:
        v = v - op.sum(x)
    y[:] = v * 2.0
"""


@pytest.mark.parametrize("target", ["cpu", GPU])
@pytest.mark.parametrize("c", [2, -1, -7])
def test_whole_arrays_that_the_run_chooses(target: str, c: int) -> None:
    """A choice of values that are computed where they are used is computed there too."""
    module, x, y = loaded(WHOLE, target), np.arange(90, dtype=np.float32), np.zeros(90, np.float32)
    module.returned(x, c, y)
    assert np.array_equal(y, x * 2 * x.sum() if c > 0 else x * x * 3 if c < -5 else x + c)
    module.assigned(x, c, y)
    want = (x + 1) * c * 3 if c > 0 else x + 1 - x.sum() if c < -5 else x + 1
    assert np.array_equal(y, want * 2)


def test_an_element_of_a_value_that_is_computed_where_it_is_used() -> None:
    text = """
@op.kernel
def f(x: f32[n], y: mut f32[n]):
    v = x * 2.0
    for i in op.tile_range(n, step=64):
        y[i:i+64] = v[i:i+64] + v[3]
"""
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    loaded(text).f(x, y)
    assert np.array_equal(y, 2 * x + 6)
