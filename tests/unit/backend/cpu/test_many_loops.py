"""Loops of a module are counted: LLVM makes no copies of them where they are too many."""

from __future__ import annotations

import numpy as np
import pytest
from tessera_backend.cpu import llvm_codegen

import tessera_lang as tessera

TEXT = """
define void @f(i64 %n) {
entry:
  br label %head
head:
  br i1 true, label %body, label %done
body:
  br label %inner
inner:
  br i1 true, label %inner, label %next.1
next.1:
  br label %head
done:
  ret void
}
define void @g() {
head:
  br label %done
done:
  ret void
}
"""


def test_innermost_loops_are_counted() -> None:
    assert llvm_codegen.count_loops(TEXT) == 1


def test_many_loops_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "@kernel tile[(64,)]\ndef k(x: f32[n], out: mut f32[n]):\n    i = grid_tile_linear_id()\n"
    )
    text += "    a = 0.0\n" + "    for j in range(n): a = a * 0.5 + x[j]\n" * 3 + "    out[i] = a\n"
    x = np.random.default_rng(1).random(64, np.float32)
    found: list[np.ndarray] = []
    for most in (200, 1):
        monkeypatch.setattr(llvm_codegen, "MANY_LOOPS", most)
        monkeypatch.setattr(llvm_codegen, "TOO_MANY_LOOPS", most)
        out = np.zeros_like(x)
        tessera.compile(text + f"# {most}\n", target="cpu").k[1](x, out)
        found.append(out)
    assert found[0].any()
    np.testing.assert_array_equal(found[0], found[1])
