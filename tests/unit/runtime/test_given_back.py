"""Host arrays given to a plain function on either target: what it writes is in them afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError

TEXT = """\
@kernel tile[(32,)] grid[(ceil_div(n, 32),)]
def double(x: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: x[i] *= 2.0

def on_the_host(x): x[1] = 7.0

def by_a_kernel(x): double(x)

def kernel_then_host(x):
    double(x)
    x[0] = x[0] + 1.0

def host_then_kernel(x):
    x[0] = 5.0
    double(x)

def read_after(x):
    double(x)
    return x[2]

def both(x, y):
    x[0] = 9.0
    return y[0] + y[1]

def two(x, y):
    double(x)
    y[0] = 3.0
"""
NAMES = ("on_the_host", "by_a_kernel", "kernel_then_host", "host_then_kernel", "read_after")
TARGETS = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.fixture(params=TARGETS)
def module(request: pytest.FixtureRequest) -> Any:
    return tessera.compile(TEXT, target=request.param)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_there(module: Any, name: str) -> None:
    x = np.arange(1, 6, dtype=np.float32)
    want = {
        "on_the_host": [1, 7, 3, 4, 5], "by_a_kernel": [2, 4, 6, 8, 10],
        "kernel_then_host": [3, 4, 6, 8, 10], "host_then_kernel": [10, 4, 6, 8, 10],
        "read_after": [2, 4, 6, 8, 10],
    }  # fmt: skip
    getattr(module, name)(x)
    assert x.tolist() == want[name]


def test_a_view_and_an_array_given_twice(module: Any) -> None:
    x = np.arange(10, dtype=np.float32)
    module.kernel_then_host(x[1::2])
    assert x.tolist() == [0, 3, 2, 6, 4, 10, 6, 14, 8, 18]
    assert module.both(x, x) == 12.0 and x[0] == 9.0
    module.two(x[0::2], x[1::2])  # they lie between each other
    assert x.tolist() == [18, 3, 4, 6, 8, 10, 12, 14, 16, 18]


def test_parts_that_share_memory_are_never_taken_apart_in_silence(module: Any) -> None:
    """The CPU works in place; where copies are worked on, an overlap that is written is refused."""
    x = np.arange(10, dtype=np.float32)
    y = x.copy()
    try:
        result = module.both(x[:6], x[:5])
    except TesseraError as fault:
        assert fault.diagnostics[0].code == "T0836"
        np.testing.assert_array_equal(x, y)
    else:
        assert result == 10.0 and x[0] == 9.0
