"""Shifts by 64 bits and more, where LLVM's NVPTX once truncated the count."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tessera_lang.ir.core import Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.types.dtype import I64, U64, DType
from tests.unit.backend.nvptx.kernels import kernel, lane, load, ptx_of, store


@pytest.mark.parametrize("dtype", [I64, U64], ids=str)
def test_a_count_is_compared_in_64_bits_before_it_is_used(dtype: DType) -> None:
    def body(b: Builder, values: Sequence[Value]) -> None:
        x, y, out, _ = values
        i = lane(b)
        store(b, b.binary("shl", load(b, x, i), load(b, y, i)), out, i)

    arrays = [("x", dtype, False), ("y", dtype, False), ("out", dtype, True)]
    ptx = ptx_of(kernel(arrays, body)).ptx
    assert "setp.lt.u64" in ptx and "selp.b64" in ptx
