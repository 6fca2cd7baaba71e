"""Any program prints, parses back and prints the same; an independent parser takes it too."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import assume, given

from tessera_lang.ir.core import Operation, Program
from tessera_lang.ir.parser import IRParseError, parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.rewrite import clone_region, rewrite_program
from tessera_lang.ir.verify import verify
from tests.unit.ir.other_parser import names_read
from tests.unit.ir.programs import programs
from tests.unit.same_program import same_program


@given(programs())
def test_print_parse_print(program: Program) -> None:
    verify(program)
    text = print_program(program)
    parsed = verify(parse_program(text))
    assert print_program(parsed) == text
    assert same_program(parsed, program)


@given(programs())
def test_xdsl_takes_it(program: Program) -> None:
    assume(program.operations)  # xDSL takes no empty file
    assert len(names_read(print_program(program))) == sum(1 for _ in program.walk())


@given(programs())
def test_copies_are_the_same_and_share_nothing(program: Program) -> None:
    def copy(operation: Operation) -> Operation:
        regions = tuple(clone_region(r) for r in operation.regions)
        return Operation(operation.name, (), (), operation.attributes, regions)

    copied = verify(Program("tile", tuple(copy(kernel) for kernel in program.operations)))
    assert same_program(copied, program)
    values = {id(v) for o in program.walk() for v in o.results}
    assert not any(id(v) in values for o in copied.walk() for v in o.results)


@given(programs())
def test_nothing_to_do_gives_the_same_object(program: Program) -> None:
    assert rewrite_program(program, lambda operation: None) is program


@given(programs(), st.data())
def test_damaged_text_gives_a_line(program: Program, data: st.DataObject) -> None:
    text = print_program(program)
    at = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.sampled_from(["", "%", "(", "}", '"', "-", "0x", ": f32", "\x00", "<"]))
    cut = data.draw(st.integers(0, 5))
    damaged = text[:at] + junk + text[at + cut :]
    try:
        parse_program(damaged)
    except IRParseError as error:
        assert 1 <= error.line <= damaged.count("\n") + 1
