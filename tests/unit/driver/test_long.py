"""Expressions that are longer than anybody writes: compiled, or refused with a code."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera

TEXT = "@op.kernel\ndef k(x: f32[n], y: mut f32[n]):\n    y[:] = {}\n"


@pytest.mark.slow
def test_a_chain_that_is_too_long_is_refused() -> None:
    x, y = np.zeros((2, 3), np.float32)
    with pytest.raises(tessera.TesseraError) as error:
        tessera.compile(TEXT.format(" + ".join(["x"] * 4000)), target="cpu").k(x, y)
    assert [d.code for d in error.value.diagnostics] == ["T0316"]
