"""The printed form, byte for byte."""

from __future__ import annotations

import math

import pytest

from tessera_lang.ir.core import (
    BufferType,
    IRType,
    Operation,
    PointerType,
    Program,
    Value,
    ViewType,
)
from tessera_lang.ir.parser import IRParseError, parse_program
from tessera_lang.ir.printer import print_operations, print_program
from tessera_lang.ir.spelling import attribute_text, string_text, string_value, type_text
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.source import Anchor, Span
from tessera_lang.types.dtype import BF16, BOOL, F8E4M3, F16, F32, F64, INDEX, U8, U64
from tests.unit.same_program import same_program


def loop() -> Program:
    b = Builder()
    with b.region(("n", INDEX)) as kernel:
        (n,) = kernel.arguments
        zero, one, acc = b.index(0, "zero"), b.index(1), b.constant(0, F32, "acc")
        with b.region(("k", INDEX), ("acc", F32)) as body:
            b.yield_(b.binary("add", body.arguments[1], acc))
        b.for_(zero, n, one, [acc], body.region, names=["acc"])
        b.return_()
    b.kernel("k", kernel.region, group=[128], grid_rank=1, parameters=["n"])
    return b.program()


LOOP = """\
"tile.kernel"() ({
^bb0(%n: index):
  %zero = "tile.constant"() {value = 0 : index} : () -> index
  %0 = "tile.constant"() {value = 1 : index} : () -> index
  %acc = "tile.constant"() {value = 0.0 : f32} : () -> f32
  %acc_1 = "tile.for"(%zero, %n, %0, %acc) ({
  ^bb0(%k: index, %acc_2: f32):
    %1 = "tile.add"(%acc_2, %acc) : (f32, f32) -> f32
    "tile.yield"(%1) : (f32) -> ()
  }) {site = -1 : i64} : (index, index, index, f32) -> f32
  "tile.return"() : () -> ()
}) {grid_rank = 1 : i64, group = [128 : i64], parameters = ["n"], shared_budget = -1 : i64, \
sym_name = "k"} : () -> ()
"""


def test_a_loop() -> None:
    assert print_program(loop()) == LOOP
    assert print_program(parse_program(LOOP)) == LOOP


def test_names_take_no_part_in_equality() -> None:
    renamed = parse_program(LOOP.replace("%acc", "%sum"))
    assert same_program(renamed, loop())
    assert not same_program(parse_program(LOOP.replace("0.0", "-0.0")), loop())


def test_some_operations() -> None:
    zero, one = loop().operations[0].regions[0].operations[:2]
    assert print_operations([one, zero, one]) == [
        '%0 = "tile.constant"() {value = 1 : index} : () -> index',
        '%zero = "tile.constant"() {value = 0 : index} : () -> index',
        '%0 = "tile.constant"() {value = 1 : index} : () -> index',
    ]


def test_locations() -> None:
    b = Builder(Span(Anchor('a "b".tessera'), 3, 5))
    b.barrier()
    text = print_program(b.program(), locate=lambda s: (s.file, 1, s.lo))
    assert text == '"tile.barrier"() : () -> () loc("a \\22b\\22.tessera":1:3)\n'
    assert print_program(parse_program(text)) == '"tile.barrier"() : () -> ()\n'


@pytest.mark.parametrize(
    ("t", "text"),
    [
        (BOOL, "i1"),
        (U8, "ui8"),
        (F8E4M3, "f8E4M3FN"),
        (PointerType(BF16, "constant"), "!tile.ptr<bf16, constant>"),
        (ViewType(F32, (None, 4)), "!tile.view<?x4xf32, global, contiguous>"),
        (
            ViewType(INDEX, (None,), "global", True, False, True),
            "!tile.view<?xindex, global, mut, aligned>",
        ),
        (ViewType(F32, ()), "!tile.view<f32, global, contiguous>"),
        (BufferType(F16, (128, 2)), "!tile.buffer<128x2xf16, shared>"),
    ],
)
def test_types(t: IRType, text: str) -> None:
    assert type_text(t) == text
    parsed = parse_program(f'%0 = "x"() : () -> {text}')
    assert parsed.operations[0].result.type == t


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, F32, "0.1 : f32"),
        (-0.0, F64, "-0.0 : f64"),
        (5e-324, F64, "5.0e-324 : f64"),
        (1e22, F32, "1.0e+22 : f32"),
        (math.inf, F32, "0x7F800000 : f32"),
        (-math.inf, F16, "0xFC00 : f16"),
        (math.nan, BF16, "0x7FC0 : bf16"),
        (math.nan, F8E4M3, "0x7FF8000000000000 : f64"),
        (2**64 - 1, U64, f"{2**64 - 1} : ui64"),
        (True, BOOL, "true"),
        (-1, None, "-1 : i64"),
        (("a", (1, False)), None, '["a", [1 : i64, false]]'),
        (F8E4M3, None, "f8E4M3FN"),
    ],
)
def test_attributes(value: object, dtype: object, text: str) -> None:
    assert attribute_text(value, dtype) == text  # pyright: ignore[reportArgumentType]
    parsed = parse_program(f'"x"() {{a = {text}}} : () -> ()').operations[0].attributes["a"]
    assert repr(parsed) == repr(value)


@pytest.mark.parametrize("text", ["", 'a"b\\c\n', "größe 日本 \U0001f600", "\x00\x7f", "\ud800"])
def test_strings(text: str) -> None:
    assert string_text(text).isascii()
    assert string_value(string_text(text)) == text


def test_names_are_made_unique() -> None:
    hints = ["a", "a", "a_1", "a", "", "1", "é", "-"]
    values = [Value(F32, h) for h in hints]
    program = Program("tile", (Operation("x", (), tuple(values)),))
    text = print_program(program)
    assert text.startswith("%a, %a_1, %a_1_1, %a_2, %0, %_1, %_, %__1 = ")
    assert print_program(parse_program(text)) == text


# --- what is not printed by us ---------------------------------------------------------------


def test_a_line_written_by_hand() -> None:
    program = parse_program(
        '%A = "tessera.schedule.load"() : () -> f32\n'
        '%smemA = "tessera.schedule.prefetch"(%A)\n'
        '           {scope="shared", double_buffer=true}\n'
    )
    assert program.level == "schedule"
    operation = program.operations[1]
    assert operation.attributes == {"scope": "shared", "double_buffer": True}
    assert operation.result.type == F32


def test_other_tools() -> None:
    text = (
        '"builtin.module"() ({ // a comment\n'
        '  %0:2 = "x"() : () -> (index, f32) loc(unknown)\n'
        '  "y"(%0#1, %0) : (f32, index) -> ()\n'
        "}) : () -> ()\n"
    )
    x, y = parse_program(text).operations
    assert y.operands == (x.results[1], x.results[0])


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('\n"x"(%a) : (f32) -> ()', 2, "%a is not defined here"),
        ('%a = "x"() : () -> f32\n%a = "x"() : () -> f32', 2, "%a is defined twice"),
        ('"x"() : () -> (\n', 2, "expected a type"),
        ('"x"() : () -> f33', 1, "expected a type"),
        ('%a = "x"() : () -> ()', 1, "1 names for 0 results"),
        ('%a = "x"() : () -> f32\n"y"(%a) : (f64) -> ()', 2, "not those of the operands"),
        ('"x"() {a = 1 : i64, a = 2 : i64} : () -> ()', 1, "stands twice"),
        ('"x"() {a = 0x1FFFF : f16} : () -> ()', 1, "wider"),
        ('%a = "x"()', 1, "no type"),
        ("\n\n\x00", 3, "unexpected character"),
        ('%a = "x"() : () -> !tile.buffer<?xf32, shared>', 1, "no type"),
        ('%a = "x"() : () -> !tile.view<?xf32, nowhere>', 1, "no memory space"),
        ('%a = "x"() : () -> !tile.view<?xf32, global, mut, mut>', 1, "unknown words"),
        ('"x"() ({' * 1000, 1, "nested more than"),
    ],
)
def test_faults_have_a_line(text: str, line: int, message: str) -> None:
    with pytest.raises(IRParseError, match=message) as caught:
        parse_program(text)
    assert caught.value.line == line
