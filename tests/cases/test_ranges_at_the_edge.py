"""Loops over ranges whose last step would leave the dtype of their numbers: as in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import GPU

TARGETS = ["cpu", GPU]
LANES = "@kernel tile[(1,)] grid[(1,)]\n"
DTYPES = {"i8": 7, "u8": 8, "i16": 15, "i32": 31, "u32": 32, "i64": 63}
BODY = """def f(n: {T}, s: {T}, out: mut i64[2]):
    c = 0
    last = 0
    for k in range({range}):
        c += 1
        last = k
        if c > 20: break
    out[0] = i64(c)
    out[1] = i64(last)
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("head", [LANES, "@op.kernel\n"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.sample(1)
def test_the_last_step(dtype: str, head: str, target: str) -> None:
    most = 2 ** DTYPES[dtype] - 1
    ranges = ["0, n, s"] + ([] if dtype[0] == "u" else ["-1, -n, -s", "0, -n, -s"])
    for text in ranges:
        for leave in ("        if c > 20: break\n", ""):
            body = BODY.format(T=dtype, range=text).replace("        if c > 20: break\n", leave)
            f = tessera.compile(head + body, target=target).f
            for step in (most // 2 + 1, most, most - 1, most // 3):
                want = list(eval(f"range({text})", {"n": most, "s": step}))
                out = np.zeros(2, np.int64)
                f(most, step, out)
                tessera.synchronize()
                assert out.tolist() == [len(want), want[-1]], (text, step)


@pytest.mark.parametrize("head", [LANES, "@op.kernel\n"])
def test_numbers_that_no_counter_holds(head: str) -> None:
    f = tessera.compile(head + BODY.format(T="u64", range="0, n, s"), target="cpu").f
    with pytest.raises(tessera.TesseraError, match=r"T0845[\s\S]*`n` is too large for `range`"):
        f(2**64 - 1, 2**62, np.zeros(2, np.int64))
    out = np.zeros(2, np.int64)
    f(2**63 - 1, 2**62, out)
    assert out.tolist() == [2, 2**62]


def _finished(f: Any, x: Any) -> None:
    f(x)
    tessera.synchronize()


COUNTS = {
    "c = 0\nfor k in range(n):\n    c += 2147483647\nreturn c": None,
    "c = 1\nwhile c > 0:\n    c = c * 2\nreturn c": None,
    "c = 0\nfor k in range(n):\n    c -= 1000000000\nreturn c": None,
    "c = 1\nfor k in range(n):\n    c = c * 3\nreturn c": 243,
    "c = 0\nfor k in range(n):\n    c += 2147483647\nreturn c // 1000": 10737418,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", COUNTS)
def test_counts_that_are_returned_do_not_wrap(body: str, target: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    text = f"@op.kernel\ndef f(x: f32[n]) -> i32:\n{lines}"
    f, x, want = tessera.compile(text, target=target).f, np.zeros(5, np.float32), COUNTS[body]
    if want is not None:
        assert int(f(x)) == want
        return
    with pytest.raises(tessera.TesseraError, match=r"T0845[\s\S]*`c` does not fit `i32`"):
        _finished(f, x)
