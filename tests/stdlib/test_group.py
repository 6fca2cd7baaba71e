"""std.group: reductions over a group, and shared memory in functions that kernels call."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from tessera_backend.nvptx.kernel import emit_kernel
from tessera_backend.nvptx.toolchain.llvm_to_ptx import translate
from tessera_backend.nvptx.toolchain.ptxas import assemble, find_ptxas

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.arch import ROWS, architecture_named
from tests.stdlib.arrays import TARGETS
from tests.unit.backend.test_warps import folded, numbers, same_bits

GROUPS = [(1,), (20,), (32,), (33,), (96,), (7, 30), (1024,)]
TEXT = """\
@kernel tile[{group}]
def k(x: {dtype}[n], total: mut {dtype}[n], high: mut {dtype}[n], low: mut {dtype}[n]):
    i = grid_tile_linear_id()
    for round in range(3):
        total[i] = group_sum(x[i])
        high[i] = group_max(x[i])
        low[i] = group_min(x[i])
"""


def in_order(group: Any) -> Any:
    """The sum of a group's values: each warp, then the warps."""
    warps = [
        folded(group[first : first + 32], lambda a, b: a + b) for first in range(0, len(group), 32)
    ]
    if len(warps) == 1:
        return warps[0]
    zeros = [type(warps[0])(0)] * (32 - len(warps))
    return folded(np.array([*warps, *zeros]), lambda a, b: a + b)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", ["i32", "f16", "bf16", "f32", "f64", "u64"])
@pytest.mark.sample(3)
def test_reductions(dtype: str, group: tuple[int, ...], target: str) -> None:
    lanes = prod(group)
    x = numbers(dtype, 3 * lanes)
    found = [np.zeros_like(x) for _ in range(3)]
    k = tessera.compile(TEXT.format(group=group, dtype=dtype), target=target).k
    k[3](x, *found)
    tessera.synchronize()
    wide = x.astype(np.float32) if dtype in ("f16", "bf16") else x
    with np.errstate(over="ignore"):
        sums = [in_order(part) for part in wide.reshape(3, lanes)]
    same_bits(found[0], np.repeat(np.array(sums, wide.dtype), lanes).astype(x.dtype))
    for array, function in zip(found[1:], (np.max, np.min), strict=True):
        values = np.array([function(part) for part in wide.reshape(3, lanes)], wide.dtype)
        same_bits(array, np.repeat(values, lanes).astype(x.dtype))


@pytest.mark.skipif(find_ptxas() is None, reason="no ptxas on this machine")
@pytest.mark.parametrize("arch", ROWS)
@pytest.mark.sample(2)
def test_ptxas_takes_it(arch: str) -> None:
    session = Session()
    session.set_text("k.tessera", TEXT.format(group=(96,), dtype="f64"), 1)
    signature = session.signature("k.tessera", "k")
    program, plan = session.tile("k.tessera", "k", signature)
    row = architecture_named(arch)
    translation = translate(emit_kernel(program.operations[0], plan, row).text, row)
    tool = find_ptxas()
    assert tool is not None
    assert assemble(tool, translation.ptx, arch).resources.spill_bytes == 0


def test_each_call_has_its_own_buffer() -> None:
    text = (
        "def kept(v):\n    cells = tshared.alloc((64,), v.dtype)\n"
        "    cells[tile_linear_id()] = v\n    tbarrier()\n"
        "    return cells[63 - tile_linear_id()]\n\n"
        "@kernel tile[(64,)] grid[(1,)] shared(1_KiB)\n"
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    rest = tshared.alloc\n    i = tile_linear_id()\n"
        "    a = kept(x[i])\n    b = kept(x[i] + 1.0)\n    rest[i] = a\n"
        "    out[i] = rest[i] * 100.0 + b\n"
    )
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tessera.compile(text, target="cpu").k(x, out)
    assert np.array_equal(out, (63 - x) * 100 + 64 - x)


def test_functions_take_their_share_of_the_budget() -> None:
    text = (
        "def kept(v):\n    cells = tshared.alloc((64,), f32)\n    return v\n\n"
        "@kernel tile[(64,)] grid[(1,)] shared(256_B)\n"
        "def k(x: f32[n], out: mut f32[n]):\n"
        "    rest = tshared.alloc\n    rest[0] = kept(x[0])\n    out[0] = rest[0]\n"
    )
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text, target="cpu")
    assert [d.code for d in caught.value.diagnostics] == ["T0310"]


def test_some_lanes_are_not_enough() -> None:
    text = TEXT.format(group=(64,), dtype="f32").replace("for round in range(3)", "if i < n")
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(text, target="cpu").k[1](*(np.zeros(64, np.float32) for _ in range(4)))
    told = caught.value.diagnostics
    assert told and all(d.code in ("T0401", "T0403") and "in `group_" in d.message for d in told)
    calls = [d.span for d in told]
    assert len(calls) == len(set(calls)), "more than one fault of a call"
