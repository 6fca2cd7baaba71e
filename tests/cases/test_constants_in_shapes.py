"""Constants of the file in the shapes of results and in arithmetic of parameters; a name that is an
axis of a parameter stays a size of the call; where that hides a constant, the message says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SOURCE = """
BEST = {best}

@op.kernel
def best(x: f64[n]) -> (f64[BEST], i32[BEST], f64[2 * BEST + n]):
    values, places = op.topk(x, BEST)
    return values, places, op.concat((op.sort(x), values, values))

@op.kernel
def tail(x: f64[n + BEST], y: f64[n]):
    return x[BEST:] + y

@op.kernel
def own(x: f64[BEST], y: f64[BEST]) -> f64[BEST]:
    return x + y

@kernel tile[(64,)] grid[(1,)]
def last(x: f32[BEST + 1], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[BEST]

def host(x: f32[BEST + 1]):
    return x[BEST]
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("best", [1, 3, 4])
@pytest.mark.sample(2)
def test_shapes(best: int, target: Any) -> None:
    m = tessera.compile(SOURCE.replace("{best}", str(best)), target=target)
    x = np.random.default_rng(best).random(9)
    order = np.argsort(-x)[:best]
    values, places, joined = m.best(x)
    np.testing.assert_array_equal(values, x[order])
    np.testing.assert_array_equal(places, order.astype(np.int32))
    np.testing.assert_array_equal(joined, np.concatenate((np.sort(x), x[order], x[order])))
    long = np.arange(9.0 + best)
    np.testing.assert_array_equal(m.tail(long, x), long[best:] + x)
    np.testing.assert_array_equal(m.own(x, x), 2 * x)  # an axis alone: any size of the call
    line, out = np.arange(best + 1).astype(np.float32), np.zeros(3, np.float32)
    m.last(line, out)
    assert np.all(out == best)
    assert m.host(line) == best
    with pytest.raises(tessera.TesseraError, match=f"{best + 1} is expected"):
        m.last(np.zeros(best + 2, np.float32), out)


def test_what_no_constant_says() -> None:
    text = "X = 2.0\n@op.kernel\ndef f(x: f64[n]) -> f64[{}]:\n    return x[:2]\n"
    for name in ("X", "m"):
        with pytest.raises(tessera.TesseraError, match="T0312"):
            tessera.compile(text.replace("{}", name), target="cpu").f(np.ones(3))


MEMORY = """
LONG = 16

@kernel tile[(64,)] grid[(1,)]
def lanes(a: u8[n, LONG], out: mut i32[n]):
    row = tlocal.alloc((LONG + 1,), i32)
    i = grid_tile_linear_id()
    if i < n:
        row[LONG] = 7
        out[i] = row[LONG]

@kernel tile[(64,)] grid[(1,)]
def groups(a: i32[LONG], out: mut i32[n]):
    s = tshared.alloc((2, LONG), i32)
    t = tile_linear_id()
    if t < LONG:
        s[1, t] = a[t]
    tbarrier()
    if t < n:
        out[t] = s[1, LONG - 1 - t]
"""


@pytest.mark.parametrize("target", TARGETS)
def test_what_memory_is_made_for_is_a_number_in_the_shapes_of_parameters(target: Any) -> None:
    m = tessera.compile(MEMORY, target=target)
    out = np.zeros(3, np.int32)
    m.lanes(np.zeros((3, 16), np.uint8), out)
    assert np.all(out == 7)
    m.groups(np.arange(16, dtype=np.int32), out)
    assert out.tolist() == [15, 14, 13]
    with pytest.raises(tessera.TesseraError, match="T0834"):
        m.lanes(np.zeros((3, 17), np.uint8), out)
    with pytest.raises(tessera.TesseraError, match="T0834"):
        m.groups(np.arange(15, dtype=np.int32), out)


def test_a_hidden_constant_is_shown() -> None:
    source = (
        "LONG = 16\ndef g(a: u8[LONG]):\n    row = tlocal.alloc((LONG,), i32)\n"
        "    row[0] = a[0]\n    return row[0]\n\n"
        "@kernel tile[(64,)] grid[(1,)]\ndef f(a: u8[n], out: mut i32[1]):\n"
        "    out[0] = g(a)\n"
    )
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(source, target="cpu")
    assert "not the constant of the file" in str(caught.value)
    assert "`def g[LONG: int = 16](...)`" in str(caught.value)
