"""Shifts by counts (`op.arange`, what a loop counts), which NumPy's integers do too."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tests.cases.test_scratch_arrays import module_for
from tests.numpy_style import GPU, agree

TARGETS = ["cpu", "sm_90a", "checked", GPU]
DTYPES = {"i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u32": np.uint32,
          "u64": np.uint64}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", ["<<", ">>"])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.sample(6)
def test_tiles(name: str, operator: str, target: str) -> None:
    dtype = DTYPES[name]
    count = np.dtype(dtype).itemsize * 8 - 1
    x = np.array([1, 5, 77, 120], dtype)
    text = (
        f"@op.kernel\ndef f(x: {name}[n]):\n    s = x[0]\n    for i in range(5):\n"
        f"        s = s ^ (x[1] {operator} i)\n"
        f"    return s, x[:, None] {operator} op.arange({count})[None, :]\n"
    )
    shift = np.left_shift if operator == "<<" else np.right_shift
    s = x[0]
    for i in range(5):
        s = s ^ shift(x[1], dtype(i))
    wanted = shift(x[:, None], np.arange(count).astype(dtype)[None])
    agree(module_for(target, text).f(x), (s, wanted))


@pytest.mark.parametrize("count", ["len(x)", "op.argmax(x)", "op.arange(300)[0:4]"])
def test_a_count_that_its_dtype_may_not_hold(count: str) -> None:
    text = f"@op.kernel\ndef f(x: u8[4]):\n    return x >> {count}\n"
    try:
        got = tessera.compile(text, target="cpu").f(np.full(4, 200, np.uint8))
    except tessera.TesseraError as e:
        assert "T0201" in str(e)  # else it is known to fit
    else:
        n = {"len(x)": 4, "op.argmax(x)": 0}.get(count, np.arange(4))
        agree(got, np.uint8(200) >> np.broadcast_to(n, 4).astype(np.uint8))


def test_bits_of_integers() -> None:
    x = np.array([1, 255, 2**40 + 3], np.int64)
    text = (
        "@op.kernel\ndef f(x: i64[n]):\n"
        "    return op.sum((x[:, None] >> op.arange(63)[None, :]) & 1, axis=1)\n"
    )
    agree(module_for("cpu", text).f(x), np.array([1, 8, 3], np.int64))
