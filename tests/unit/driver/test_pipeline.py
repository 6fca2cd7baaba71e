"""The runner of passes: joins, verification, faults that name their pass."""

from __future__ import annotations

import pytest

from tessera_lang.driver.internal_fault import InternalFault
from tessera_lang.driver.options import from_environment
from tessera_lang.driver.pass_runner import PassRunner, check_joins, run_passes
from tessera_lang.driver.pipeline import TILE
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Program
from tessera_lang.ir.pass_type import Pass, Step
from tessera_lang.record import replace

SOURCE = "@kernel tile[(32,)] grid[(1,)]\ndef f(out: mut f32[n]): out[0] = 1.0\n"


def program() -> Program:
    session = Session(overlay={"m.tessera": SOURCE})
    return session.tile("m.tessera", "f", session.signature("m.tessera", "f"))[0]


def test_every_pass_is_timed() -> None:
    runner = PassRunner()
    runner.run(program(), TILE)
    assert [t.name for t in runner.timings] == [p.name for p in TILE]


def test_levels_must_join() -> None:
    high = Pass("high", "graph", "schedule", lambda p: p)
    with pytest.raises(ValueError, match="pass high gives schedule IR"):
        check_joins((high, *TILE))


def test_a_pass_that_raises_is_named_with_its_program() -> None:
    def fail(p: Program) -> Program:
        raise KeyError("lost")

    with pytest.raises(InternalFault) as caught:
        run_passes(program(), (Pass("lose", "tile", "tile", fail),))
    assert caught.value.stage == "lose" and '"tile.kernel"' in caught.value.program
    assert caught.value.diagnostic().code == "T0901"


def test_a_pass_that_breaks_a_rule_is_named() -> None:
    def drop_terminators(p: Program) -> Program:
        from dataclasses import replace

        kernel = p.operations[0]
        region = replace(kernel.regions[0], operations=kernel.regions[0].operations[:-1])
        return Program("tile", (replace(kernel, regions=(region,)),))

    with pytest.raises(InternalFault, match="the pass `drop` failed"):
        run_passes(program(), (Pass("drop", "tile", "tile", drop_terminators),))


def test_each_program_is_read_again() -> None:
    """With ``verify_each``: an operation whose printed form is lost is the fault of its pass."""

    def unprintable(p: Program) -> Program:
        kernel = replace(p.operations[0], name="tile.ker nel")
        return Program("tile", (kernel,))

    with pytest.raises(InternalFault, match="the pass `tear` failed"):
        PassRunner(verify_each=True).run(program(), (Pass("tear", "tile", "tile", unprintable),))
    for source in (program(), run_passes(program(), TILE)):
        PassRunner(verify_each=True).run(source, TILE)


def test_steps_are_verified() -> None:
    """What is no pass but gives programs is looked at in the same way."""
    whole = Step("whole", "tile", "tile", "")
    runner = PassRunner(print_after=("whole",))
    made = program()
    assert runner.step(whole, lambda: ((made, 1), made), made) == ((made, 1), made)
    assert [p.name for p in runner.printed] == ["whole", "whole"]
    wrong = Step("wrong", "tile", "schedule", "")
    with pytest.raises(InternalFault, match="it gave tile IR, not schedule IR"):
        runner.step(wrong, lambda: made, made)


def test_options_of_the_environment() -> None:
    found = from_environment({"TESSERA_TARGET": "cpu", "TESSERA_BOUNDS": "off"})
    assert (found.target, found.bounds, found.optimize) == ("cpu", "off", 3)
    with pytest.raises(ValueError, match="TESSERA_BOUNDS"):
        from_environment({"TESSERA_BOUNDS": "maybe"})
    with pytest.raises(ValueError, match="TESSERA_OPTIMIZE"):
        from_environment({"TESSERA_OPTIMIZE": "9"})
