"""The printed form of Schedule IR, the line of the documents, and every type rule broken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera_lang.ir.core import PointerType, Program, TileType, Value, VerifyError
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.ir.verify import verify
from tessera_lang.types.dtype import BF16, BOOL, F16, F32, INDEX
from tests.unit.same_program import same_program

LINE = """%smemA = "tessera.schedule.prefetch"(%A)
           {scope="shared", double_buffer=true}
"""
VIEW = "!tile.view<?xf32, global, contiguous>"
HEAD = f""""tessera.schedule.kernel"() ({{
^bb0(%p: !tile.ptr<f32, global>, %n: index):
  %v = "tile.view"(%p, %n) : (!tile.ptr<f32, global>, index) -> {VIEW}
  %A = "tessera.schedule.load"(%v, %n, %n) {{dims = [0], steps = [1]}}
    : ({VIEW}, index, index) -> !tile.tile<16xf32>
"""
TAIL = '  "tile.return"() : () -> ()\n}) {parameters = ["p", "n"], sym_name = "k"} : () -> ()\n'


def test_the_line_of_the_documents() -> None:
    program = verify(parse_program(HEAD + LINE + TAIL))
    (found,) = [o for o in program.walk() if o.name == f"{PREFIX}prefetch"]
    assert found.result.type == TileType(F32, (16,))
    assert dict(found.attributes) == {"scope": "shared", "double_buffer": True}
    printed = print_program(program)
    line = next(x for x in printed.splitlines() if "prefetch" in x)
    assert line.strip() == (
        '%smemA = "tessera.schedule.prefetch"(%A) {double_buffer = true, scope = "shared"} : '
        "(!tile.tile<16xf32>) -> !tile.tile<16xf32>"
    )
    assert same_program(parse_program(printed), program)


Body = Callable[[ScheduleBuilder, Value, Value], object]


def kernel(fill: Body) -> Program:
    b = ScheduleBuilder()
    with b.region(("p", PointerType(F32, "global")), ("n", INDEX)) as body:
        fill(b, *body.arguments)
        b.return_()
    b.schedule_kernel("k", body.region, ["p", "n"])
    return b.program()


def full(b: ScheduleBuilder, *shape: int | str, dtype: object = F32) -> Value:
    return b.full(b.constant(0, dtype), shape)  # type: ignore[arg-type]


def view(b: ScheduleBuilder, p: Value, n: Value, mut: bool = True) -> Value:
    return b.view(p, [n, n], mut=mut)


def emit(
    b: ScheduleBuilder, name: str, operands: list[Value], result: object, **more: object
) -> None:
    b.emit(PREFIX + name, operands, (result,) if result else (), more)  # type: ignore[arg-type]


def grid_that_carries(b: ScheduleBuilder, p: Value, n: Value) -> None:
    start = full(b, 4)
    with b.region(("i", INDEX), ("acc", start.type)) as body:
        b.yield_(body.arguments[1])
    b.loops([n], [n], [n], [start], body.region, ["i"], mapping=["grid"])


BROKEN: list[tuple[str, Body]] = [
    ("has no meaning in a schedule", lambda b, p, n: b.barrier()),
    ("has no meaning in a schedule", lambda b, p, n: b.lane_linear()),
    ("at least one element", lambda b, p, n: full(b, 0)),
    ("takes 2 starts and 2", lambda b, p, n: b.load_tile(view(b, p, n), [n], [n, n], (4, 4))),
    ("an axis of its own",
     lambda b, p, n: b.load_tile(view(b, p, n), [n, n], [n, n], (4, 4), dims=(0, 0))),
    ("not mut", lambda b, p, n: b.store_tile(full(b, 4, 4), view(b, p, n, False), [n, n], [n, n])),
    ("one dtype", lambda b, p, n: b.store_tile(
        full(b, 4, 4, dtype=BF16), view(b, p, n), [n, n], [n, n])),
    ("a step for each axis",
     lambda b, p, n: b.load_tile(view(b, p, n), [n, n], [n, n], (4, 4), steps=(1, 0))),
    ("multiplies", lambda b, p, n: b.dot(full(b, 4, 8), full(b, 4, 8), full(b, 4, 8))),
    ("has no product", lambda b, p, n: b.dot(
        full(b, 4, 8, dtype=BF16), full(b, 8, 4, dtype=F16), full(b, 4, 4))),
    ("another precision than exact", lambda b, p, n: b.dot(
        full(b, 4, 8, dtype=BF16), full(b, 8, 4, dtype=BF16), full(b, 4, 4), "tf32")),
    ("axis 2 of 2", lambda b, p, n: b.scan("add", full(b, 4, 4), 2)),
    ("without that axis", lambda b, p, n: emit(
        b, "reduce", [full(b, 4, 4), n], TileType(F32, (4, 4)), kind="add", axis=0)),
    ("takes bools", lambda b, p, n: b.reduce("any", full(b, 4), n, 0)),
    ("takes numbers", lambda b, p, n: b.reduce("add", full(b, 4, dtype=BOOL), n, 0)),
    ("of size 1", lambda b, p, n: emit(
        b, "expand", [full(b, 4)], TileType(F32, (4, 2)), axis=1)),
    ("stretches axes of size 1", lambda b, p, n: emit(
        b, "broadcast", [full(b, 4)], TileType(F32, (8,)))),
    ("no permutation", lambda b, p, n: b.transpose(full(b, 4, 4), (0, 0))),
    ("an extent for each axis", lambda b, p, n: b.mask(full(b, 4, 4), b.constant(0, F32), [n])),
    ("fills with an element", lambda b, p, n: b.mask(full(b, 4), b.constant(0, BF16), [n])),
    ("no larger", lambda b, p, n: b.extract(full(b, 4), [n], (8,))),
    ("starts and extents", lambda b, p, n: b.insert(full(b, 4), full(b, 4), [n], [])),
    ("carry a value are no grid", grid_that_carries),
    ("a bool, or one for each", lambda b, p, n: b.select(full(b, 4), full(b, 4), full(b, 4))),
]  # fmt: skip


@pytest.mark.parametrize(("message", "fill"), BROKEN, ids=[m for m, _ in BROKEN])
def test_broken(message: str, fill: Body) -> None:
    with pytest.raises(VerifyError, match=message):
        verify(kernel(fill))


def test_open_sizes_are_read_back() -> None:
    program = verify(kernel(lambda b, p, n: b.dot(
        full(b, "$0", "$2"), full(b, "$2", "$1"), full(b, "$0", "$1"))))  # fmt: skip
    text = print_program(program)
    assert "!tile.tile<$0x$1xf32>" in text
    assert same_program(parse_program(text), program)
