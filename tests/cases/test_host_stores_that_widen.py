"""Stores of the host program into arrays of a dtype that has all values of what is stored."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tests.stdlib.arrays import DTYPES

STORES = ("y[:] = x", "y[1:4] = x[1:4]", "y[op.argsort(x)] = x", "y[x > 0] = x[x > 0]")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("pair", ["i32 i64", "i8 i16", "u8 u32", "f16 f32", "bf16 f32"])
def test_what_loses_nothing_is_stored(pair: str, store: str) -> None:
    narrow, wide = pair.split()
    text = f"def f(x):\n    y = op.zeros(x.shape, {wide})\n    {store}\n    return y\n"
    x = np.array([3, 1, 0, 7, 5]).astype(DTYPES[narrow])
    want = np.zeros(5, DTYPES[wide])
    exec(store.replace("op.", "np.").replace("y[", "want["), {"np": np, "x": x, "want": want})
    found = tessera.compile(text, target="cpu").f(x)
    assert found.dtype == want.dtype and found.tobytes() == want.tobytes()


@pytest.mark.parametrize("pair", ["i64 i32", "f32 f64", "u8 i8", "i32 f32", "f32 f16"])
def test_what_could_lose_something_is_refused(pair: str) -> None:
    narrow, wide = pair.split()
    text = f"def f(x):\n    y = op.zeros(x.shape, {wide})\n    y[:] = x\n    return y\n"
    with pytest.raises(tessera.TesseraError, match=rf"`\.to\({wide}\)`"):
        tessera.compile(text, target="cpu").f(np.ones(5, DTYPES[narrow]))
