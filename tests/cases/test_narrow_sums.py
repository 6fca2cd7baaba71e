"""Sums that start as a bare literal and meet narrow numbers: a warning, and a fix that is right."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.session import Session

pytest.importorskip("llvmlite")
NARROW = {
    "i8": (np.int8, "i32", np.int32), "u8": (np.uint8, "u32", np.uint32),
    "i16": (np.int16, "i32", np.int32), "u16": (np.uint16, "u32", np.uint32),
    "f16": (np.float16, "f32", np.float32), "bf16": (ml_dtypes.bfloat16, "f32", np.float32),
}  # fmt: skip
FORMS = {
    "lanes": """\
@kernel tile[(32,)] grid[(1,)]
def k(x: {T}[m, n], out: mut {W}[m]):
    i = tile_linear_id()
    total = {zero}
    for j in range(n): {add}
    if i < m: out[i] = {W}(total)
""",
    "tile loops": """\
@op.kernel
def k(x: {T}[m, n], out: mut {W}[m]):
    for i in op.tile_range(m, step=1):
        total = {zero}
        for j in range(n): {add}
        out[i] = {W}(total)
""",
    "tiles": """\
@op.kernel
def k(x: {T}[m, n], out: mut {W}[m]):
    for i in op.tile_range(m, step=8):
        total = op.zeros((8,))
        for j in range(n): total += x[i:i+8, j]
        out[i:i+8] = total.to({W})
""",
}


def program(form: str, name: str, add: str) -> str:
    at = "x[min(i, m - 1), j]" if form == "lanes" else "x[i, j]"
    return FORMS[form].format(
        T=name, W=NARROW[name][1], zero="0.0" if "f" in name else "0", add=add.format(at, at),
    )  # fmt: skip


def checked(text: str) -> list[Diagnostic]:
    return list(Session(overlay={"k.tessera": text}).check("k.tessera"))


def mended(text: str, found: Diagnostic) -> str:
    (fix,) = found.fixes
    for edit in sorted(fix.edits, key=lambda e: -e.span.lo):
        text = text[: edit.span.lo] + edit.replacement + text[edit.span.hi :]
    return text


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("add", ["total += {}", "total = total + {}", "total = total + {} + {}"])
@pytest.mark.sample(3)
def test_the_fix_adds_up_all(form: str, name: str, add: str) -> None:
    text = program(form, name, add)
    (found,) = checked(text)
    assert (found.code, found.severity) == ("T0210", "warning")
    mild = mended(text, found)
    assert not checked(mild)
    own, _, wide = NARROW[name]
    x = np.full((9, 300), 100, np.float32).astype(own)
    out: Any = np.zeros(9, wide)
    tessera.compile(mild, target="cpu").k(x, out)
    times = 2 if add.count("{}") == 2 and form != "tiles" else 1
    assert (out == 30000 * times).all()


@pytest.mark.parametrize(
    "text", ["total: u8 = 0", "total = u8(0)", "total: u32 = 0", "total = 0\n    total = total | 1"]
)
def test_what_says_its_type_or_adds_nothing_is_not_told(text: str) -> None:
    body = "" if text.endswith("1") else "    for j in range(n): total += x[0, j]\n"
    source = (
        "@kernel tile[(32,)] grid[(1,)]\ndef k(x: u8[m, n], out: mut u32[m]):\n"
        f"    {text}\n{body}    if tile_linear_id() == 0: out[0] = u32(total)\n"
    )
    assert "T0210" not in [d.code for d in checked(source)]
