"""Wrong calls of every name of the language end in diagnostics of the program, with a line, and
never in a fault of the compiler."""

from __future__ import annotations

import random

import pytest

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.driver.session import Session
from tests.fuzz.wrong_calls import DATA, program

HEAD = "x: f32[n], m: f64[r, c]"


def said(text: str, session: Session | None = None) -> tuple[Diagnostic, ...]:
    session = session or Session()
    session.set_text("w.tessera", text)
    found = session.check("w.tessera")
    faults = [d for d in found if d.code.startswith("T09")]
    assert not faults, (faults, text)
    return found


def many(seed: int, count: int) -> None:
    r, session = random.Random(seed), Session()
    for _ in range(count):
        for d in said(program(r), session):
            assert d.span is not None and d.message


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_wrong_calls(seed: int) -> None:
    many(seed, 40)


@pytest.mark.parametrize("seed", range(100, 112))
@pytest.mark.slow
def test_more_wrong_calls(seed: int) -> None:
    many(seed, 400)


WRONG = (
    "op.log(['a', x])", "op.sum((x, m))", "op.exp(None)", "{1: 2}[[1]]", "{1: 2}[::-1]",
    "{'a': x} in {1: 2}", "{1: 2}.get([1])", "{[1]: 2}", "op.logical_and(None, x)", "int(high=x)",
    "op.cross(None, x)", "op.tan(f32)", "op.matrix_transpose(None)", "math.atan2(m)",
    "op.cumsum(op.ones((), f32))", "nothing(2) @ x", "op.eye((), 2)", "op.array([[], [x[0]]])",
)  # fmt: skip


def test_found() -> None:
    session = Session()
    for one in WRONG:
        for form in (
            f"{DATA}print({one})\n",
            f"def loss(x, m):\n    return op.sum({one})\n{DATA}print(grad(loss)(x, m))\n",
            f"@op.kernel\ndef k({HEAD}):\n    return {one}\n{DATA}print(k(x, m))\n",
        ):
            assert said(form, session), form


def test_what_is_not_known_multiplies_an_array_in_a_gradient() -> None:
    found = said(
        "def loss(p, x):\n    return op.sum(op.gelu(norm(x, p) @ p) @ p)\n"
        f"{DATA}print(grad(loss)(op.ones((4, 4), f32), x))\n"
    )
    assert [d.code for d in found] == ["T0101"]
