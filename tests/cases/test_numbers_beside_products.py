"""Numbers that a tile kernel computes of whole arrays, beside a product whose operands are copied
by a role of their own: the role that copies cannot have them, the one that computes can."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

pytest.importorskip("llvmlite")
M, N, P, Q = 70, 72, 40, 4
FORMS = {
    "chosen": ("op.where((a[1] @ b) > 0.0, i32(op.argmax(c)), 9)", lambda ab, a, b, c:
               np.where(ab[1] > 0, np.argmax(c), 9).astype(np.int32)),
    "added to": ("f32(a[1] @ b) + f32(op.argmax(c) + 1)", lambda ab, a, b, c:
                 ab[1] + np.float32(np.argmax(c) + 1)),
    "a sum": ("f32(a[1] @ b) * op.sum(c)", lambda ab, a, b, c: ab[1] * c.sum()),
    "of several": ("f32(a[1] @ b) + op.max(c) * op.min(c) - op.sum(c)", lambda ab, a, b, c:
                   ab[1] + c.max() * c.min() - c.sum()),
    "which operand": ("f32(a[op.argmax(c)] @ b)", lambda ab, a, b, c: ab[np.argmax(c)]),
}  # fmt: skip


@pytest.mark.parametrize("arch", ["", "sm_80", "sm_90a"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sample(1)
def test_numbers_of_arrays(form: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    compared(form, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("form", FORMS)
def test_numbers_of_arrays_on_a_gpu(form: str) -> None:
    compared(form, "cuda")


def compared(form: str, target: str) -> None:
    import ml_dtypes

    text, right = FORMS[form]
    m = tessera.compile(
        f"@op.kernel\ndef k(a: bf16[q, m, p], b: bf16[p, n], c: f32[q]):\n    return {text}\n",
        target=target,
    )
    r = np.random.default_rng(3)
    a, b = (r.integers(-2, 3, s).astype(ml_dtypes.bfloat16) for s in ((Q, M, P), (P, N)))
    c = np.array([1, -2, 5, 3], np.float32)
    ab = a.astype(np.float32) @ b.astype(np.float32)
    found = m.k(a, b, c)
    np.testing.assert_array_equal(found, right(ab, a, b, c))
