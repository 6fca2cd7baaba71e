"""Rebuilding shares what did not change and follows what did."""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Value
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.rewrite import (
    Replacement,
    clone_region,
    replace_values_in_program,
    rewrite_program,
)
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.types.dtype import INDEX
from tests.unit.ir.test_printer import LOOP
from tests.unit.same_program import same_program

TWO = (
    '%a = "tile.constant"() {value = 1 : index} : () -> index\n'
    '%b = "tile.neg"(%a) : (index) -> index\n'
    '%c = "tile.neg"(%b) : (index) -> index\n'
    '"tile.scope"() ({\n'
    '  %d = "tile.add"(%c, %b) : (index, index) -> index\n'
    '  "tile.leave"() : () -> ()\n'
    "}) : () -> ()\n"
)


def drop_negation(operation: Operation) -> Replacement | None:
    return Replacement((), operation.operands) if operation.name == "tile.neg" else None


def test_replacements_are_followed_into_regions() -> None:
    expected = (
        '%a = "tile.constant"() {value = 1 : index} : () -> index\n'
        '"tile.scope"() ({\n'
        '  %d = "tile.add"(%a, %a) : (index, index) -> index\n'
        '  "tile.leave"() : () -> ()\n'
        "}) : () -> ()\n"
    )
    assert same_program(rewrite_program(parse_program(TWO), drop_negation), parse_program(expected))


def test_unchanged_parts_are_shared() -> None:
    text = LOOP + LOOP.replace('"k"', '"other"').replace("tile.add", "tile.sub")
    program = parse_program(text)

    def double(operation: Operation) -> Operation | None:
        if operation.name != "tile.sub":
            return None
        return Operation("tile.mul", operation.operands, operation.results)

    changed = rewrite_program(program, double)
    assert changed.operations[0] is program.operations[0]
    assert changed.operations[1] is not program.operations[1]
    assert same_program(changed, parse_program(text.replace("tile.sub", "tile.mul")))


def test_one_becomes_many() -> None:
    def split(operation: Operation) -> Replacement | None:
        if operation.name != "tile.neg":
            return None
        b = Builder(operation.span)
        zero = b.index(0)
        value = b.binary("sub", zero, operation.operands[0])
        return Replacement(b.program().operations, (value,))

    names = [o.name for o in rewrite_program(parse_program(TWO), split).operations]
    assert names == ["tile.constant", *["tile.constant", "tile.sub"] * 2, "tile.scope"]


def test_values() -> None:
    program = parse_program(TWO)
    a, b, c = (o.result for o in program.operations[:3])
    changed = replace_values_in_program(program, {c: b, b: a})
    used = {v for o in changed.operations for inner in o.walk() for v in inner.operands}
    assert not used & {b, c}
    assert replace_values_in_program(program, {Value(INDEX): a}) is program


def test_clone_with_values_for_arguments() -> None:
    loop = parse_program(LOOP).operations[0].regions[0].operations[3]
    body = loop.regions[0]
    seven = Value(INDEX, "seven")
    copy = clone_region(body, {body.arguments[0]: seven})
    assert len(copy.arguments) == 1
    assert copy.operations[0].results[0] is not body.operations[0].results[0]
    assert same_program(Program("tile", copy.operations), Program("tile", body.operations))
