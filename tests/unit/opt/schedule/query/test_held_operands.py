"""First operands that lanes hold in registers through a loop, and those that stay in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

TEXT = """\
@op.kernel
def kernel(q: {t}[m, d], k: {t}[n, d], v: {t}[n, e]) -> f32[m, e]:
    y = op.empty((m, e), f32)
    for i in op.tile_range(m, step={rows}):
        a = q[i:i+{rows}, :]{a}
        acc = op.zeros(({rows}, e), f32)
        for j in op.tile_range(n, step={columns}):
            s = {first} @ k[j:j+{columns}, :].T
            acc += op.relu(s).to({t}) @ v[j:j+{columns}, :]
        y[i:i+{rows}, :] = acc
    return y
"""
USUAL = {"t": "bf16", "rows": 128, "columns": 64, "a": "", "first": "a", "d": 128, "e": 128}
FORMS: dict[str, tuple[dict[str, Any], bool]] = {
    "few columns": ({}, True),
    "f16": ({"t": "f16", "columns": 32}, True),
    "many columns": ({"columns": 128}, False),
    "computed": ({"a": " * 2.0"}, False),
    "of each iteration": ({"first": "q[i:i+128, :]", "d": 128}, True),
    "no registers": ({"d": 256, "e": 256}, False),
}


def places(form: str) -> list[object]:
    """Where the products with keys read their first operand."""
    said = USUAL | FORMS[form][0]
    session = Session(overlay={"k.tessera": TEXT.format(**said)})
    t, d, e = said["t"], said["d"], said["e"]
    text = f"q: {t}[4096, {d}], k: {t}[4096, {d}], v: {t}[4096, {e}]"
    wanted = session.signature("k.tessera", "kernel", text)
    made = session.for_machine("k.tessera", "kernel", wanted, session.machine("cuda", "sm_90a"))
    dots = [o for o in made.schedule.walk() if o.name.endswith("schedule.dot")]
    operands = [o.attributes["operands"] for o in dots]
    return [x[0] for x in operands if isinstance(x, tuple)]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_held(form: str) -> None:
    """Where few columns make shared memory the limit, and lanes have registers to spare."""
    assert ("held" in places(form)) == FORMS[form][1]


@pytest.mark.parametrize("form", ["few columns", "f16"])
def test_results_are_right(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles for each group, so that the buffer is filled again."""
    import ml_dtypes

    monkeypatch.setenv("TESSERA_ARCH_AS", "sm_90a")
    said = USUAL | FORMS[form][0]
    dtype = np.float16 if said["t"] == "f16" else ml_dtypes.bfloat16
    r = np.random.default_rng(2)
    q, k, v = (r.integers(-2, 3, s).astype(dtype) for s in ((328, 64), (200, 64), (200, 72)))
    found = tessera.compile(TEXT.format(**said), target="cpu").kernel(q, k, v)
    x, y, z = (a.astype(np.float64) for a in (q, k, v))
    np.testing.assert_array_equal(found, np.maximum(x @ y.T, 0) @ z)
