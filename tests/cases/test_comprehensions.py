"""Comprehensions over several loops, with conditions, in the host program and in kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import agree, results_of

X = np.arange(25, dtype=np.float32).reshape(5, 5)
LISTS = (
    "[a * b for a in range(3) for b in range(a) if b != 1]",
    "[a + b + c for a in (1, 2) for b in (a, 3) for c in [b] if c > 1]",
    "[a for a in range(4) if a % 2 for b in range(a)]",
    "[a * b for a, b in zip([1, 2], [3, 4]) for c in range(2)]",
    "[i * v for i, v in enumerate([5, 6, 7]) if v > 5]",
    "[p + q for p, q in ((1, 2), (3, 4)) for r in range(2)]",
    "[b for b in [[a for a in range(b)] for b in range(3)][2]]",
    "[a for a in range(0) for b in range(2)] + [7]",
)


@pytest.mark.parametrize("text", LISTS)
def test_in_the_host_program(text: str) -> None:
    found = tessera.compile(f"def f():\n    return op.array({text})\n", target="cpu").f()
    assert found.tolist() == eval(text)
    names = [name for name in "abcipqrv" if name in text]
    own = "".join(f"    {name} = 9\n" for name in names)
    text = f"def f():\n{own}    l = {text}\n    return {' + '.join(names)}\n"
    assert tessera.compile(text, target="cpu").f() == 9 * len(names)  # its names are its own


KERNELS = (
    "op.max(op.stack([x[i:i+3, j:j+3] for i in range(3) for j in range(3)]), axis=0)",
    "op.array([1.0 * i + j for i in (1, 2) for j in (i, 5)]) * x[0, 1]",
    "op.array([2.0 * a + b for a, b in zip([1, 2], [3, 4])]) * x[0, 1]",
)


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
@pytest.mark.parametrize("text", KERNELS)
def test_in_a_kernel(text: str, target: str) -> None:
    want = eval(text, {"op": np, "x": X})
    agree(results_of(text, {"x": X}, target), want.astype(np.float32))
