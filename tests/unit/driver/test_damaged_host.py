"""Damaged host programs are checked without a fault of ours; and such a fault, where there is one,
costs its declaration only."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tessera_lang.driver import session as sessions
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.abstract_world import SymbolicWorld

PATH = "program.tessera"
PROGRAM = """\
x = op.arange(0, 12, 1, dtype=f32)
y = op.cast(op.zeros((3, 4), dtype=i32), f16)
z = op.random((4, 3), seed=1, low=0.0, high=2.0, dtype=f32)
w = op.full((2,), 1.5, dtype=bf16)
v = op.full_like(w, 2)
a = x[1:4] + op.ones((3,))
b = op.sum(z, axis=0)
c = z.to(f64)[0]
d = op.reshape(x, (3, 4)).T
e = op.where if x.shape[0] > 3 else None
f = [i * 2 for i in range(3)]
g = {"a": 1, "b": (2, 3)}
h = f"{a[0]:.2f} {len(f)} {g}"
for i in range(3):
    x[i] = y[i % 3, 0].to(f32) if i else 0.0
print(op.sum(x), h, op.max(z), w.dtype, d.shape)
print(b[0] + c[1], v[0] == w[1], -a, x[::2], y[None])
"""
WORDS = ["1 +", ")", "(", "", "x", "None", "f32", "'t'", "[", "]", ":", ",", "lambda:", "@", "y[",
         "op.", "=", "...", "-", "not", "1.5", "()", "f'{x", "*", "if"]  # fmt: skip


def damaged(r: random.Random) -> str:
    text = PROGRAM
    for _ in range(r.choice((1, 1, 2, 3))):
        at = r.randrange(len(text))
        end = min(len(text), at + r.choice((0, 0, 1, 3, 8)))
        text = text[:at] + r.choice(WORDS) + text[end:]
    return text


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.sample(4)
def test_damage_is_never_a_fault_of_ours(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(12):
        text = damaged(r)
        session = Session()
        session.set_text(PATH, text, 1)
        assert not [d for d in session.check(PATH) if d.code.startswith("T09")], text


WITH_FAULTS = """\
def first(a):
    return unknown_one


@kernel tile[(32,)]
def k(x: mut f32[n]):
    x[0] = unknown_two


@op.kernel
def t(x: mut f32[n]):
    x[:] = unknown_three


y = op.zeros((3,))
print(unknown_four)


@test
def tests():
    assert unknown_five
"""


def said(session: Session) -> set[str]:
    session.set_text(PATH, WITH_FAULTS, 1)
    return {f"{d.code} {d.message}" for d in session.check(PATH)}


def failing(*_: object, **__: object) -> object:
    raise AttributeError("'Unknown' object has no attribute 'is_float'")


def of(name: str, whole: Callable[..., object]) -> Callable[..., object]:
    """The function, which fails for the declaration of one name."""

    def function(*arguments: object, **named: object) -> object:
        if any(getattr(a, "name", "") == name for a in arguments):
            failing()
        return whole(*arguments, **named)

    return function


@pytest.mark.parametrize("where", ["structure", "kernel", "tile", "statement", "test"])
def test_a_fault_of_ours_costs_its_declaration(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = said(Session())
    lost = {"structure": "one", "kernel": "two", "tile": "three", "test": "five"}.get(where, "")
    if where == "structure":
        whole = sessions.check_function_structure
        monkeypatch.setattr(sessions, "check_function_structure", of("first", whole))
    elif where in ("kernel", "tile"):
        name = "k" if where == "kernel" else "t"
        monkeypatch.setattr(Session, "_judged", of(name, Session._judged))  # pyright: ignore[reportPrivateUsage]
        lost = ""  # the generic check has said it
    elif where == "statement":
        monkeypatch.setattr(SymbolicWorld, "fill", failing)
    else:
        from tessera_lang.evaluate.abstract_interpreter import SymbolicHost

        monkeypatch.setattr(SymbolicHost, "run_test", of("tests", SymbolicHost.run_test))
    session = Session()
    after = said(session)
    ours = {t for t in after if t.startswith("T0902")}
    assert len(ours) == 1 and len(session.faults) == 1
    assert {t for t in before if not lost or f"unknown_{lost}" not in t} <= after | ours
    (fault,) = (d for d in session.check(PATH) if d.code == "T0902")
    assert fault.span is not None
