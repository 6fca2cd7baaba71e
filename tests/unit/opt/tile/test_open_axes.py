"""A guard compares only the axes whose index is not proved, and reports the one that is outside."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tests.unit.lowering import optimized

TEXT = """
@kernel tile[(8,)] grid[(m,)]
def k(x: i32[m, n, c], at: i32[m], out: mut i32[m]):
    i = group_id(0)
    if c > 1: out[i] = x[i, at[i], %s]
"""


@pytest.mark.parametrize(("last", "axes"), [("1", (1,)), ("at[i]", (1, 2))])
def test_axes_that_are_compared(last: str, axes: tuple[int, ...]) -> None:
    found = [o.attributes for o in optimized(TEXT % last).walk() if o.name == "tile.load"]
    assert [a.get("open") for a in found if a["bounds"] == "guarded"] == [axes]


@pytest.mark.parametrize(("last", "at", "said"), [
    ("1", [0, 1, 5], "index 5 along axis 1, where 0 to 2 are inside"),
    ("1", [0, -1, 2], "index -1 along axis 1, where 0 to 2 are inside"),
    ("at[i]", [0, 2, 1], "index 2 along axis 2, where 0 to 1 are inside"),
    ("at[i]", [0, 9, 1], "index 9 along axis 1, where 0 to 2 are inside"),
])  # fmt: skip
def test_what_is_reported(last: str, at: list[int], said: str) -> None:
    module = tessera.compile(TEXT % last, target="cpu")
    x, out = np.arange(18, dtype=np.int32).reshape(3, 3, 2), np.full(3, 7, np.int32)
    with pytest.raises(tessera.TesseraError) as caught:
        module.k(x, np.array(at, np.int32), out)
    assert said in str(caught.value)
    inside = [0 <= a < 3 and (last == "1" or a < 2) for a in at]
    want = [x[i, a, 1 if last == "1" else a] if ok else 0
            for i, (a, ok) in enumerate(zip(at, inside, strict=True))]  # fmt: skip
    assert out.tolist() == want
