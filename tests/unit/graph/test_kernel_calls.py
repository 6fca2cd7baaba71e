"""Calls of kernels in fused functions: their order, what they write, and what is fused around them,
against the same function that is run one operator after the other."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import TesseraError
from tessera_lang.driver.function_graphs import graph_program, graph_text, plain_functions
from tessera_lang.driver.session import Session
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.verify import verify
from tests.on_device import call
from tests.unit.graph import random_calls
from tests.unit.graph.random_calls import random_function

KERNELS = """
@kernel tile[(64,)]
def scale(x: f64[n], out: mut f64[n], s: f64):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] = x[i] * s


@kernel tile[(64,)]
def add_to[T: dtype](x: T[n], out: mut T[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        out[i] += x[i]


@kernel tile[(64,)]
def swap(a: mut f64[n], b: mut f64[n]):
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        t = a[i]
        a[i] = b[i]
        b[i] = t


@op.kernel
def both(x: f64[n, m]):
    return op.exp(x), op.sum(x, axis=1)


@op.kernel
def halves[k: int](x: f64[n, m], out: mut f64[n, m]):
    for i in op.tile_range(n):
        out[i] = x[i] / k
"""
BODIES = {
    "into": "z = op.zeros_like(x); scale[2](x * 2.0, z, 3.0); return op.tanh(z) + y",
    "twice": "z = op.zeros_like(x); add_to[2](x, z); add_to[2](op.exp(y), z); return z * x",
    "old": "z = x + 1.0; w = z * 2.0; add_to[1](y, z); return w, z, w + z",
    "names": "z = x * y; w = z; add_to[1](x, w); return z - w + op.sum(z)",
    "equal": "z = op.ones_like(x); w = op.ones_like(x); add_to[1](x, z); return z, w, z * w",
    "slices": "z = op.zeros((5, 8), dtype=f64); scale[1](x, z[2], 2.0);"
    " scale[1](y, z[0], 1.5); return op.sum(z, axis=0), z @ z.T",
    "parts": "z = op.zeros((20,), dtype=f64); add_to[1](x, z[3:11]); v = z[5:9];"
    " add_to[1](y, z[4:12]); return z, v * 2.0, z[3:5]",
    "shapes": "z = op.zeros((2, 4), dtype=f64); v = z.reshape(8); add_to[1](x, v);"
    " return z, v, z.T @ z",
    "turned": "z = op.zeros((8, 8), dtype=f64); t = z.T; add_to[1](x, t[1]); return z, t",
    "exchanged": "z = x * 1.0; w = y * 1.0; swap[1](z, w); return z - w, z * x",
    "number": "z = op.zeros_like(x); scale[1](y, z, op.sum(x)); return z + op.sum(z)",
    "several": "e, s = both(op.reshape(x * y, (2, 4))); return e * 2.0 + s[:, None], op.sum(e)",
    "constant": "z = op.empty((2, 4), dtype=f64); halves(op.reshape(x, (2, 4)), z, k=4);"
    " return z + 1.0",
    "called": "z = y - x; helper(x, z); return op.softmax(z) * x",
    "made": "z = op.zeros_like(x); w = op.linspace(0.0, 1.0, 8, dtype=f64); scale[1](w, z, 2.0);"
    " return z + x + op.sum(w)",
    "norm": "z = op.softmax(x.reshape(2, 4) @ y.reshape(2, 4).T, axis=1);"
    " w = op.zeros((4,), dtype=f64); add_to[1](z.reshape(4), w);"
    " return w.reshape(2, 2) @ z, op.sum(w * 2.0)",
    "unused": "z = op.zeros_like(x); add_to[1](x, z); return y * 2.0",
    "loops": "z = op.zeros_like(x)\n    for k in range(3):\n        add_to[1](x * (k + 1.0), z)\n"
    "        x = x + z\n    return z, x",
}
TEXT = (
    KERNELS
    + "def helper(a, b):\n    add_to[1](a, b)\n\n\n"
    + "".join(f"def {n}(x, y):\n    {body.replace('; ', chr(10) + '    ')}\n\n\n"
              for n, body in BODIES.items())
)  # fmt: skip


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(TEXT, target="cpu")


def arrays(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.0, 1.0, 8), rng.uniform(-1.0, 1.0, 8)


def _several(found: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", found) if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.sample(1)
def test_calls_mean_what_they_mean_unfused(module: Any, name: str) -> None:
    f = getattr(module, name)
    fused = tessera.fused(f)
    for seed in range(3):  # the first call is recorded, others are replayed
        x, y = arrays(seed)
        kept = x.copy(), y.copy()
        wanted, found = f(x, y), fused(x, y)
        np.testing.assert_array_equal((x, y), kept)
        wanted, found = map(_several, (wanted, found))
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("name", BODIES)
def test_calls_on_a_device(module: Any, name: str) -> None:
    own = tessera.compile(TEXT, target="cuda")
    for seed in range(2):
        x, y = arrays(seed)
        if name == "number":  # what a replay would read is of the first call
            with pytest.raises(tessera.TesseraError, match="T0809"):
                call(tessera.fused(getattr(own, name)), (x, y), "cuda")
            continue
        found = call(tessera.fused(getattr(own, name)), (x, y), "cuda")
        wanted = getattr(module, name)(x, y)
        wanted, found = map(_several, (wanted, found))
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-10)


def _compared(seed: int) -> None:
    text = random_function(seed)
    m = tessera.compile(random_calls.KERNELS + text, target="cpu")
    rng: Any = np.random.default_rng(seed)
    x, y = rng.uniform(-1.0, 1.0, (2, 4, 4))
    kept = x.copy(), y.copy()
    fused = tessera.fused(m.f)
    for _ in range(2):
        for a, b in zip(m.f(x, y), fused(x, y), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9, err_msg=text)
    np.testing.assert_array_equal((x, y), kept)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 36, 3))
def test_random_functions_that_call_kernels(first: int) -> None:
    for seed in range(first, first + 3):
        _compared(seed)


REFUSED = {
    "writes": ("add_to[1](x, y); return y", "writing into an array from outside of the function"),
    "part": ("add_to[1](x, y[0:8]); return y", "writing into an array from outside"),
    "named": ("z = op.zeros((9,), dtype=f64); v = z[1:]; add_to[1](x, v); return z", "has a name"),
    "shared": ("z = x + 1.0; add_to[1](z[::-1], z); return z", "another argument shares"),
    "sizes": (
        "z = op.zeros((9,), dtype=f64); add_to[1](x, z); return z",
        "has size 9 along axis 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_are_refused(name: str) -> None:
    body, says = REFUSED[name]
    body = body.replace("; ", "\n    ")
    m = tessera.compile(f"{KERNELS}\n\ndef f(x, y):\n    {body}\n", target="cpu")
    with pytest.raises(TesseraError, match=says) as error:
        tessera.fused(m.f)(*arrays(0))
    assert error.value.diagnostics[0].span is not None


SYMBOLIC = """
def f(x: f64[n, m], s: f64):
    e, t = both(x)
    z = op.zeros_like(t)
    scale[4](t, z, s)
    add_to[4](op.sum(e, axis=1), z)
    return z + t
"""


def test_a_call_is_printed_and_read() -> None:
    session = Session(overlay={"a.tessera": KERNELS + SYMBOLIC})
    (f,) = plain_functions(session, "a.tessera")
    program = graph_program(session, "a.tessera", f)
    text = print_program(program)
    assert text.count('"graph.call"') == 3
    assert 'kernel = "scale"' in text
    assert "!graph.tensor<f64, [n]>" in text
    again = parse_program(text)
    verify(again)
    assert print_program(again) == text
    sized = "x: f64[4, 8], s: f64"
    plan = graph_text(session, "a.tessera", f, sized, "fused")
    assert "both(x0)" in plan
    assert "add_to(x0, x1)  # writes x1" in plan
    assert "is a call of `scale`" in graph_text(session, "a.tessera", f, sized, "fusion")


def test_a_check_finds_what_is_wrong_with_a_call() -> None:
    text = (
        KERNELS
        + "def f(x):\n    z = op.zeros((3,), dtype=f64)\n    add_to[1](x, z)\n    return z\n"
    )
    session = Session(overlay={"a.tessera": text + "r = fused(f)(op.zeros((4,), dtype=f64))\n"})
    (found,) = session.check("a.tessera")
    assert found.code == "T0834"
    right = Session(overlay={"a.tessera": text + "r = fused(f)(op.zeros((3,), dtype=f64))\n"})
    assert not right.check("a.tessera")
