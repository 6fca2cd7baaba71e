"""Comparisons of arrays of unequal ranks say which operand lacks which axis, as arithmetic does."""

from __future__ import annotations

import numpy as np
import pytest

import tessera_lang as tessera


@pytest.mark.parametrize("operator", ["-", "*", ">", "<=", "==", "!="])
@pytest.mark.parametrize("first", [True, False])
def test_the_help_followed_is_what_numpy_gives(operator: str, first: bool) -> None:
    sides = ("y", "column") if first else ("column", "y")
    text = f"def f(y, p):\n    column = p[:, None]\n    return {f' {operator} '.join(sides)}\n"
    y, p = np.arange(5.0), np.arange(7.0)
    with pytest.raises(tessera.TesseraError, match=r"`y\[None, :\]`") as caught:
        tessera.compile(text, target="cpu").f(y, p)
    ((edit,),) = (fix.edits for d in caught.value.diagnostics for fix in d.fixes)
    text = text[: edit.span.start] + edit.replacement + text[edit.span.end :]
    want = eval(f" {operator} ".join(sides), {"y": y, "column": p[:, None]})
    np.testing.assert_array_equal(tessera.compile(text, target="cpu").f(y, p), want)
