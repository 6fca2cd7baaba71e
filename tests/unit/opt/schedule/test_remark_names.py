"""Remarks speak of what the user wrote: the variable that is returned, or ``return``; and say that
something is not so only where that is known."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session

PATH = "m.tessera"
LINE = "@op.kernel\ndef f(a, b):\n    return a @ b\n"
VARIABLE = """
@op.kernel
def f(a: bf16[m, k], b: bf16[k, n]):
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(128, 48)):
        acc = op.zeros((128, 48), f32)
        for p in range(0, k, 64):
            acc += a[i:i+128, p:p+64] @ b[p:p+64, j:j+48]
        out[i:i+128, j:j+48] = acc
    return out
"""


def remarks(text: str, signature: str, arch: str = "sm_90a") -> list[str]:
    session = Session(overlay={PATH: text})
    wanted = session.signature(PATH, "f", signature)
    made = session.for_machine(PATH, "f", wanted, session.machine("cuda", arch))
    return [d.message for d in made.remarks]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "name"), [(LINE, "`return`"), (VARIABLE, "`out`")], ids=["line", "variable"]
)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_a_result_has_the_name_it_has_in_the_text(text: str, name: str, arch: str) -> None:
    said = remarks(text, "a: bf16[1000, 1000], b: bf16[1000, 1001]", arch)
    assert not any("result0" in m for m in said), said
    if arch == "sm_90a":
        assert any(name in m for m in said), said


@pytest.mark.parametrize("text", [LINE, VARIABLE], ids=["line", "variable"])
def test_what_is_unknown_is_not_said_to_be_false(text: str) -> None:
    unknown = remarks(text, "a: bf16[m, k], b: bf16[k, n]")
    assert not any("is no multiple of 16 bytes" in m for m in unknown), unknown
    assert any("not known to be a multiple of 16 bytes" in m for m in unknown), unknown
    known = remarks(text, "a: bf16[1000, 1001], b: bf16[1001, 1003]")
    assert any("is no multiple of 16 bytes" in m for m in known), known
    assert not any("not known" in m for m in known), known
