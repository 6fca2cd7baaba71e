"""Products that lanes multiply and add: which of them have a role that brings the next tiles."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.ir.core import Operation
from tessera_lang.record import replace
from tests.unit.opt.schedule.decided import from_source

PATH = "kernel.tessera"
KERNEL = """
@op.kernel
def kernel(a: f32[m, k], b: f32[k, n]) -> f32[m, n]:
    {directive}
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=({rows}, {columns})):
        acc = op.zeros(({rows}, {columns}), f32)
        for p in op.tile_range(k, step=16):
            acc += a[i:i+{rows}, p:p+16] @ b[p:p+16, j:j+{columns}]
        out[i:i+{rows}, j:j+{columns}] = acc
    return out
"""
SAID = "schedule.warp_specialize(True)"


def product_of(rows: int, columns: int, directive: str = "pass") -> tuple[Operation, list[str]]:
    text = KERNEL.format(rows=rows, columns=columns, directive=directive)
    made = from_source(text, "a: f32[1024, 1024], b: f32[1024, 1024]")
    assert made.lowered is not None
    return made.schedule.operations[0], [d.message for d in made.remarks]


@pytest.mark.parametrize("sizes", [(128, 256), (256, 128)])
def test_sums_that_fill_all_registers(sizes: tuple[int, int]) -> None:
    kernel, _ = product_of(*sizes)
    assert kernel.attributes["roles"] == (4, 8)
    assert kernel.attributes["registers"] == (40, 232)


@pytest.mark.parametrize("sizes", [(64, 64), (128, 128), (64, 256)])
def test_other_groups_run_beside_smaller_ones(sizes: tuple[int, int]) -> None:
    kernel, said = product_of(*sizes)
    assert "roles" not in kernel.attributes
    assert any("other groups run beside" in m for m in said)
    kernel, _ = product_of(*sizes, directive=SAID)
    assert "roles" in kernel.attributes


@pytest.mark.parametrize("columns", [24, 40, 96])
def test_columns_that_lanes_do_not_share_evenly(columns: int) -> None:
    """Lanes of a warp hold 32 columns at a time, and what is brought as it lies ends at 24."""
    text = KERNEL.format(rows=64, columns=columns, directive=SAID)
    kernel, _ = product_of(64, columns, directive=SAID)
    assert ("roles" in kernel.attributes) == (columns % 32 == 0)
    options = replace(options_from_environment(), target="cpu", arch_as="sm_90a")
    module = Module("<source>", SessionProvider("<source>", options, text=text), "cpu")
    rng = np.random.default_rng(3)
    a = rng.integers(-4, 5, (100, 72)).astype(np.float32)
    b = rng.integers(-4, 5, (72, 100)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(module.kernel(a, b)), a @ b)


def test_a_first_operand_that_lies_the_other_way_round() -> None:
    """Lanes read it as it lies: only matrix units want it in registers before."""
    text = "@op.kernel\ndef kernel(a, b):\n    schedule.tile((128, 256, 16))\n    return a @ b\n"
    options = replace(options_from_environment(), target="cpu", arch_as="sm_90a")
    module = Module("<source>", SessionProvider("<source>", options, text=text), "cpu")
    rng = np.random.default_rng(4)
    a = rng.integers(-4, 5, (32, 128)).astype(np.float32)
    b = rng.integers(-4, 5, (32, 256)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(module.kernel(a.T, b)), a.T @ b)
