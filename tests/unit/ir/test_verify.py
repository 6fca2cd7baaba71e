"""Every rule of Tile IR, broken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera_lang.ir.core import Operation, PointerType, Program, Value, VerifyError
from tessera_lang.ir.schedule.ops import PREFIX, SCHEDULE_OPS
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.rules import RULES
from tessera_lang.ir.verify import verify
from tessera_lang.types.dtype import BOOL, F8E4M3, F32, I32, INDEX

Body = Callable[[Builder, Value, Value], None]


def kernel(fill: Body, end: bool = True) -> Program:
    b = Builder()
    with b.region(("p", PointerType(F32, "global")), ("n", INDEX)) as body:
        fill(b, *body.arguments)
        if end:
            b.return_()
    b.kernel("k", body.region, group=[32], grid_rank=1, parameters=["p", "n"])
    return b.program()


def nested_alloc(b: Builder, p: Value, n: Value) -> None:
    with b.region() as body:
        b.shared_alloc(F32, [4], "s")
        b.leave()
    b.scope(body.region, ())


def written_and_constant(b: Builder, p: Value, n: Value) -> None:
    b.view(p, [n], mut=True)
    b.view(p, [n])


def two_allocs(b: Builder, p: Value, n: Value) -> None:
    b.shared_alloc(F32, [4], "s")
    b.shared_alloc(F32, [4], "s")


def break_outside(b: Builder, p: Value, n: Value) -> None:
    with b.region() as then:
        b.break_()
    with b.region() as otherwise:
        b.yield_()
    b.if_(b.constant(True, BOOL), then.region, otherwise.region)


def for_loop(b: Builder, n: Value, fill: Callable[[Value], None], result: bool = True) -> None:
    carried = [b.constant(0, F32)] if result else []
    with b.region(("k", INDEX), *[("c", F32)] * len(carried)) as body:
        fill(body.arguments[0])
    b.for_(n, n, n, carried, body.region)


def break_from_condition(b: Builder, p: Value, n: Value) -> None:
    def inner(k: Value) -> None:
        with b.region() as condition:
            with b.region() as then:
                b.break_()
            with b.region() as otherwise:
                b.yield_()
            b.if_(b.constant(True, BOOL), then.region, otherwise.region)
            b.condition(b.constant(True, BOOL))
        with b.region() as body:
            b.yield_()
        b.while_((), condition.region, body.region)
        b.yield_()

    for_loop(b, n, inner, False)


def out_of_sight(b: Builder, p: Value, n: Value) -> None:
    with b.region() as body:
        hidden = b.index(3)
        b.leave()
    b.scope(body.region, ())
    b.binary("add", hidden, hidden)


def no_side_falls_out(b: Builder, p: Value, n: Value) -> None:
    with b.region() as side:
        b.return_()
    with b.region() as other:
        b.return_()
    b.emit("tile.if", [b.constant(True, BOOL)], [F32], None, [side.region, other.region])


def defined_twice(b: Builder, p: Value, n: Value) -> None:
    value = b.index(1)
    b.append(b.current.operations[-1])
    b.binary("add", value, value)


BROKEN: list[tuple[str, Body]] = [
    ("unknown operation", lambda b, p, n: void(b.emit("tile.nothing"))),
    ("takes a, b", lambda b, p, n: void(b.emit("tile.add", [n], [INDEX]))),
    ("gives 1 results", lambda b, p, n: void(b.emit("tile.add", [n, n]))),
    ("has 1 regions", lambda b, p, n: void(b.emit("tile.for", [n, n, n], (), {"site": -1}))),
    ("lacks attribute site", lambda b, p, n: void(b.emit("tile.mod", [n, n], [INDEX]))),
    (
        "has no attribute site",
        lambda b, p, n: void(b.emit("tile.add", [n, n], [INDEX], {"site": 1})),
    ),
    (
        "attribute axis is no int",
        lambda b, p, n: void(b.emit("tile.lane_index", (), [INDEX], {"axis": True})),
    ),
    ("not one of 0, 1, 2", lambda b, p, n: void(b.lane_index(3))),
    ("not one of eq", lambda b, p, n: void(b.cmp("equal", n, n))),
    ("a terminator before the end", lambda b, p, n: b.return_()),
    ("is not defined here", out_of_sight),
    ("is not defined here", lambda b, p, n: void(b.binary("add", n, Value(INDEX, "x")))),
    ("a second time", defined_twice),
    ("one type", lambda b, p, n: void(b.binary("add", n, b.constant(1, I32)))),
    ("takes float types", lambda b, p, n: void(b.binary("div", n, n))),
    ("takes number types", lambda b, p, n: void(b.unary("neg", b.constant(True, BOOL)))),
    ("is no i32", lambda b, p, n: void(b.constant(2**31, I32))),
    ("no infinity", lambda b, p, n: void(b.constant(float("inf"), F8E4M3))),
    ("the condition is a bool", lambda b, p, n: void(b.select(n, n, n))),
    ("the widths differ", lambda b, p, n: void(b.bitcast(n, I32))),
    ("takes 1 indices", lambda b, p, n: void(b.load(b.view(p, [n]), [n, n]))),
    ("reads and writes a view", lambda b, p, n: void(b.load(p, [n]))),
    ("not mut", lambda b, p, n: b.store(b.constant(1, F32), b.view(p, [n]), [n])),
    ("that is not mut", written_and_constant),
    ("stores an element", lambda b, p, n: b.store(n, b.view(p, [n], mut=True), [n])),
    ("takes 2 sizes", lambda b, p, n: void(b.view(p, [n], shape=[None, None]))),
    ("takes integers", lambda b, p, n: float_and(b, p, n)),
    ("top of a kernel", nested_alloc),
    ("two shared buffers", two_allocs),
    ("without anything around it", break_outside),
    ("without anything around it", break_from_condition),
    ("of other types", lambda b, p, n: for_loop(b, n, lambda k: b.yield_())),
    ("of other types", lambda b, p, n: for_loop(b, n, b.break_)),
    ("no side that falls out", no_side_falls_out),
    ("region 0 is empty", lambda b, p, n: for_loop(b, n, lambda k: None)),
    ("does not end in one of", lambda b, p, n: for_loop(b, n, lambda k: b.barrier())),
]


def float_and(b: Builder, p: Value, n: Value) -> None:
    b.atomic("and", b.constant(1, F32), b.view(p, [n], mut=True), [n])


def void(value: object) -> None:
    """For a lambda that is called for its effect."""


@pytest.mark.parametrize(("message", "fill"), BROKEN, ids=[m for m, _ in BROKEN])
def test_broken(message: str, fill: Body) -> None:
    with pytest.raises(VerifyError, match=message) as caught:
        verify(kernel(fill))
    assert caught.value.operation is not None
    assert "\n> " in str(caught.value)


def test_kernels() -> None:
    good = kernel(lambda b, p, n: None)
    assert verify(good) is good
    twice = Program("tile", good.operations * 2)
    with pytest.raises(VerifyError, match="two kernels are called k"):
        verify(twice)
    with pytest.raises(VerifyError, match="does not end in one of"):
        verify(kernel(lambda b, p, n: b.barrier(), end=False))
    top = Program("tile", (Operation("tile.barrier"),))
    with pytest.raises(VerifyError, match=r"only tile\.kernel"):
        verify(top)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("parameters", ("p",), "one parameter per argument"),
        ("group", (), "1 to 3 positive"),
        ("group", (32, 0), "1 to 3 positive"),
        ("grid_rank", 4, "rank 1 to 3"),
        ("group", (1.0,), "is no ints"),
    ],
)
def test_kernel_attributes(attribute: str, value: object, message: str) -> None:
    operation = kernel(lambda b, p, n: None).operations[0]
    attributes = {**operation.attributes, attribute: value}
    changed = Operation("tile.kernel", (), (), attributes, operation.regions)  # pyright: ignore[reportArgumentType]
    with pytest.raises(VerifyError, match=message):
        verify(Program("tile", (changed,)))


def test_exits_reach_through_ifs_and_scopes() -> None:
    def fill(b: Builder, p: Value, n: Value) -> None:
        def inner(k: Value) -> None:
            with b.region() as function:
                with b.region() as then:
                    b.break_(b.constant(1, F32))
                with b.region() as otherwise:
                    b.leave(k)
                b.if_(b.constant(True, BOOL), then.region, otherwise.region)
                b.leave(k)
            b.scope(function.region, [INDEX])
            b.continue_(b.constant(2, F32))

        for_loop(b, n, inner)

    verify(kernel(fill))


def test_the_table_is_whole() -> None:
    assert {d.rule for d in TILE_OPS.values()} == set(RULES)
    for definition in TILE_OPS.values():
        assert [n for n in definition.operands if n.endswith("...")] in (
            [],
            list(definition.operands[-1:]),
        )
        assert definition.is_terminator or definition.effect != "exit"


def named_in(rows: list[str]) -> set[str]:
    """The names in the first column of a page's tables; one prefix holds for a whole group."""
    named: set[str] = set()
    for row in rows:
        for group in row.split("|")[1].split("`")[1::2]:
            first, *rest = group.split()
            named |= {first, *(f"tile.{name.removeprefix('tile.')}" for name in rest)}
    return named


def test_the_table_is_the_page() -> None:
    """Every operation of the tables stands in docs/ir.md and the other way round."""
    from tests.house.places import ROOT

    text = (ROOT / "docs" / "ir.md").read_text(encoding="utf-8")
    before, schedule = text.split("## Schedule IR", 1)
    schedule, after = schedule.split("\n## ", 1)
    lines = [*before.splitlines(), *after.splitlines()]
    rows = [line for line in lines if line.startswith(("| `tile.", "| `tma."))]
    assert named_in(rows) | {"tile.condition"} == set(TILE_OPS)
    rows = [line for line in schedule.splitlines() if line.startswith("| `")]
    assert {PREFIX + name for name in named_in(rows)} == set(SCHEDULE_OPS)
