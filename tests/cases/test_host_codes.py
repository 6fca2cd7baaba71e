"""A host program that a check refuses is refused in a run for the same reason, and what runs is
not refused by a check: the evaluator of unknown arrays and the one of real ones are two.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tessera_backend.runtime.host_environment import HostWorld

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.fault import HostFault

WRONG = [
    "op.arange(0, 3, nan)", "op.arange(inf)", "op.arange(0, 3, 0.5, dtype=i32)",
    "op.reshape(op.zeros((6,)), (4,))", "op.reshape(op.zeros((6,)), (-1, -1))",
    "op.arange(3) == op.arange(4)", "op.zeros((2,)) + op.zeros((3, 3))",
    "op.arange(3)[0.5]", "op.zeros((3,))[0, 0]", "op.sum(op.zeros((3,)), axis=1)",
    "op.zeros((3,)).T", "op.zeros((3,), i32) + op.zeros((3,), u8)", 'op.zeros((3,)) + "a"',
    "op.zeros((3,)).rank", "op.zeros((3,))(1)", "3(4)", "op.zeross((3,))", "op.foo(3)",
    "math.sine(1.0)", "op.zeros((3,), \"f33\")", "op.zeros((-1,))", "op.zeros((1.5,))",
    "op.zeros((3,)).to(3)", "op.zeros()", "op.arange(1, 2, 3, 4)", "len(3)", "abs(\"a\")",
    "(1, 2)[5]", "[1][-2]", "1 // 0", "9223372036854775807 + 1", "2 ** 1000", "1 << -1",
    "\"a\" + 1", "op.full((2,), 300, dtype=i8)", "1 if op.zeros((2,)) else 2", "nothere",
    "int(\"a\")", "op.load(3)", "op.random((2,), seed=1.5)",
]  # fmt: skip
RIGHT = [
    "int(3.5)", "int(\"3\")", "float(\"2.5\")", "str(3) + \"a\"", "math.tan(0.5)", "abs(-3)",
    "min(1, 2.5)", "len((1, 2))", "op.zeros((3, 1)) + op.zeros((3, 4))",
    "op.zeros((3,)) + op.zeros((3, 3))", "[1] + [2]", "(1,) * 2",
    "op.zeros((0,))[0:5]", "op.arange(3)[::-1]", "op.arange(3)[None]", "op.arange(3)[-1]",
]  # fmt: skip


def codes(source: str, folder: Path) -> tuple[list[str], list[str]]:
    """Errors of a check, and of a run alone."""
    session = Session()
    path = str(folder / "p.tessera")
    session.set_text(path, source, 1)
    checked = [d.code for d in session.check(path) if d.severity == "error"]
    try:
        session.run(path, HostWorld(session, "cpu", lambda text: None))
    except (HostFault, TesseraError) as error:
        return checked, [d.code for d in error.diagnostics]
    return checked, []


@pytest.mark.parametrize("place", ["x = {}\n", "def f():\n    return {}\nx = f()\n"])
@pytest.mark.parametrize("expression", WRONG)
def test_one_fault_has_one_code(expression: str, place: str, tmp_path: Path) -> None:
    checked, ran = codes(place.format(expression), tmp_path)
    assert len(ran) == 1 and checked in ([], ran)


@pytest.mark.parametrize("place", ["x = {}\n", "def f():\n    return {}\nx = f()\n"])
@pytest.mark.parametrize("expression", RIGHT)
def test_what_runs_is_not_refused(expression: str, place: str, tmp_path: Path) -> None:
    """`int`, `float`, `str` and `math.tan` in a function were not known to a check."""
    assert codes(place.format(expression), tmp_path) == ([], [])
