"""Arrays of rank 0: parameters, results, `x[()]`, in kernels of both kinds and in host code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.lower.ast_to_schedule.test_numpy_names_assembled import assembled

TARGETS = ["cpu", pytest.param("sm_90a", marks=pytest.mark.slow), GPU]
TEXT = """
@op.kernel
def total(x: {T}[n], out: mut {T}[]):
    out[()] = op.max(x)

@op.kernel
def added(x: {T}[n], out: mut {T}[]):
    for i in op.tile_range(n, step=4):
        out[()] += op.max(x[i:i+4])

@op.kernel
def scaled(x: {T}[n], s: {T}[], y: mut {T}[n]):
    for i in op.tile_range(n, step=4):
        y[i:i+4] = x[i:i+4] * s + s[()]

@op.kernel
def both(x: {T}[n], s: {T}[]) -> ({T}[], {T}[n]):
    return op.max(x) + s, x * s[()]

@op.kernel
def made(x: {T}[n]) -> {T}[]:
    y = op.empty((), {T})
    y[()] = op.max(x)
    return y

@op.kernel
def after(x: {T}[n], s: mut {T}[], y: mut {T}[n]):
    for i in op.tile_range(n, step=4):
        y[i:i+4] = x[i:i+4] + s
    s[()] = op.max(y[0:8])
"""
LANES = """
@kernel tile[(8,)] grid[(1,)]
def lanes(x: {T}[n], s: {T}[], out: mut {T}[]):
    if tile_linear_id() == 0: out[()] = x[2] + s[()]
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f32", "i32", "f16"])
def test_kernels(dtype: str, target: str) -> None:
    kind = {"f32": np.float32, "i32": np.int32, "f16": np.float16}[dtype]
    m = loaded(TEXT.format(T=dtype), target)
    x, s, out = np.arange(10).astype(kind), np.array(3, kind), np.zeros((), kind)
    m.total(x, out)
    assert out[()] == 9
    m.added(x, out)
    assert out[()] == 9 + 3 + 7 + 9
    y = np.zeros_like(x)
    m.scaled(x, s, y)
    np.testing.assert_array_equal(y, x * 3 + 3)
    first, second = m.both(x, s)
    assert np.asarray(first).shape == () and np.asarray(first) == 12
    np.testing.assert_array_equal(second, x * 3)
    assert np.asarray(m.made(x)).shape == () and np.asarray(m.made(x)) == 9
    m.after(x, s, y)
    np.testing.assert_array_equal(y, x + 3)
    assert s[()] == 10


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_lanes(target: str) -> None:
    m = loaded(LANES.format(T="f32"), target)
    out = np.zeros((), np.float32)
    m.lanes(np.arange(4, dtype=np.float32), np.array(3, np.float32), out)
    assert out[()] == 5


def test_host_code() -> None:
    m = loaded("""
def changed(x, s):
    y = op.zeros((), dtype=f32)
    y[()] = 2.0
    t = x * s + y
    return t, y[()] + s[()], x[()]
""")
    x, s = np.arange(3, dtype=np.float32), np.array(4, np.float32)
    t, number, same = m.changed(x, s)
    np.testing.assert_array_equal(t, x * 4 + 2)
    assert number == 6
    np.testing.assert_array_equal(same, x)


@needs_ptxas
@pytest.mark.sample(1)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_assembled(arch: str) -> None:
    assembled(TEXT.format(T="f32"), ("total", "added", "scaled", "both", "made"), arch)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("out[:] = op.sum(x)", "`out[()]`"),
        ("out[0] = op.sum(x)", "`out[()]`"),
        ("out[()] = x", "is one element"),
    ],
)
def test_messages_say_the_form(line: str, said: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[n], out: mut f32[]):\n    {line}\n"
    found: Any = Session(overlay={"k.tessera": text}).check("k.tessera", ())
    assert any(said in " ".join((d.message, *d.helps)) for d in found), found
