"""Faults inside of called functions are told with the call, those of other files at the call."""

from __future__ import annotations

import pytest

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.session import Session

HEAD = (
    "@kernel tile[(64,)] grid[(1,)]\ndef k(x: f32[n], out: mut f32[n]):\n    t = tile_linear_id()\n"
)
WAITS = "def waits(t):\n    tbarrier()\n    return 1.0\n\n\n"
NEIGHBOUR = (
    "def neighbour(s, v, t):\n    s[t] = v\n    return s[63 - t]\n\n\n"
    f"{HEAD}    s = tshared.alloc((64,), f32)\n    out[t] = neighbour(s, x[t], t)\n"
)


def found(text: str) -> list[tuple[Diagnostic, str]]:
    session = Session()
    session.set_text("p.tessera", text, 1)
    return [(d, text[d.span.lo : d.span.hi]) for d in session.check("p.tessera") if d.span]


def labels(fault: Diagnostic, text: str) -> dict[str, str]:
    return {text[at.span.lo : at.span.hi]: at.text for at in fault.labels}


@pytest.mark.parametrize(
    ("text", "code", "place", "call"),
    [
        (f"{WAITS}{HEAD}    if t < 3: out[t] = waits(t)\n", "T0401", "tbarrier()", "waits(t)"),
        (f"{WAITS}{HEAD}    if t < 3 and waits(t) > 0.0: out[t] = 1.0\n", "T0401", "tbarrier()",
         "waits(t)"),
        (NEIGHBOUR, "T0410", "s[t]", "neighbour(s, x[t], t)"),
    ],
)  # fmt: skip
def test_the_call_is_shown(text: str, code: str, place: str, call: str) -> None:
    ((fault, there),) = found(text)
    assert (fault.code, there) == (code, place)
    assert labels(fault, text)[call] == "in this call"


@pytest.mark.parametrize("name", ["group_sum", "group_max", "group_min"])
def test_a_function_of_the_library_is_one_fault_at_its_call(name: str) -> None:
    text = f"{HEAD}    if x[t] > 0.0: out[t] = {name}(x[t])\n"
    ((fault, there),) = found(text)
    assert (fault.code, there) == ("T0403", f"{name}(x[t])")
    assert f"`{name}`" in fault.message


def test_of_several_calls_those_behind_the_reason_are_told() -> None:
    body = "    a = group_sum(x[t])\n    if x[t] > a: return\n    out[t] = group_sum(a)\n"
    assert [there for _, there in found(HEAD + body)] == ["group_sum(a)"]
