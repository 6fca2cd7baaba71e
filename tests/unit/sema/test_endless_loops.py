"""``while`` loops whose condition nothing changes, and their neighbours that end."""

from __future__ import annotations

import pytest

from tessera_lang.driver.session import Session

ENDLESS = {
    "a bound": "i = 0\nwhile i < n:\n    x[0] = 1.0",
    "another variable": "i = 0\nj = 0\nwhile i < n:\n    j += 1",
    "true": "while True:\n    x[0] = 1.0",
    "a break of an inner loop": "i = 0\nwhile i < n:\n    for j in range(4):\n        break",
    "two conditions": "i = 0\nj = 1\nwhile i < n and not j > 3:\n    x[j] = 1.0",
    "inside another": "i = 0\nwhile i < n:\n    i += 1\n    while i < n:\n        x[i] = 1.0",
}
ENDING = {
    "counted": "i = 0\nwhile i < n:\n    i += 1",
    "assigned": "i = 0\nwhile i < n:\n    i = i + 1",
    "in a branch": "i = 0\nwhile i < n:\n    if x[0] > 0.0:\n        i += 1",
    "break": "i = 0\nwhile i < n:\n    if x[0] > 0.0: break",
    "return": "while True:\n    if x[0] > 0.0: return",
    "memory": "while x[0] < 1.0:\n    x[0] += 1.0",
    "a call": "while atomic_load(x[0]) < 1.0:\n    pass",
    "never": "while False:\n    x[0] = 1.0",
    "a loop variable": "i = 0\nwhile i < 3:\n    for i in range(5):\n        x[i] = 1.0",
}


def codes(body: str) -> list[str]:
    inner = "\n".join(f"    {line}" for line in body.splitlines())
    session = Session()
    session.set_text("k.tessera", f"@kernel tile[(32,)]\ndef k(x: mut f32[n]):\n{inner}\n", 1)
    return [d.code for d in session.check("k.tessera") if d.code == "T0124"]


@pytest.mark.parametrize("name", ENDLESS)
def test_a_loop_that_never_ends_is_said(name: str) -> None:
    assert codes(ENDLESS[name]) == ["T0124"]


@pytest.mark.parametrize("name", ENDING)
def test_a_loop_that_may_end_is_not(name: str) -> None:
    assert codes(ENDING[name]) == []
