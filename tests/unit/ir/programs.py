"""Random well-formed Tile programs, for the tests of whatever takes a program."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.strategies import DrawFn

from tessera_lang.ir.core import IRType, PointerType, Program, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.types.dtype import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    I32,
    INDEX,
    U8,
    U64,
    DType,
    integer_range,
)

SCALARS = list(DTYPES.values())
HINTS = ["", "x", "acc", "acc_1", "größe", "1st", "a b"]


def constants(dtype: DType) -> st.SearchStrategy[bool | int | float]:
    if dtype.kind == "bool":
        return st.booleans()
    if dtype.is_float:
        return st.floats(allow_infinity=dtype.name != "f8e4m3")
    return st.integers(*integer_range(dtype))


class _Maker:
    """Grows one kernel from draws; ``values`` are those visible so far."""

    def __init__(self, draw: DrawFn) -> None:
        self.draw = draw
        self.b = Builder()
        self.values: list[Value] = []
        self.loops: list[tuple[IRType, ...]] = []

    def pick(self, t: IRType) -> Value:
        known = [v for v in self.values if v.type == t]
        if known and (not isinstance(t, DType) or self.draw(st.booleans())):
            return self.draw(st.sampled_from(known))
        assert isinstance(t, DType)
        value = self.b.constant(self.draw(constants(t)), t, self.draw(st.sampled_from(HINTS)))
        self.values.append(value)
        return value

    def statements(self, depth: int) -> None:
        kinds = ["scalar", "cast", "cmp", "store", "load", "atomic"]
        if depth < 3:
            kinds += ["if", "for", "while", "scope"]
        for kind in self.draw(st.lists(st.sampled_from(kinds), max_size=5)):
            getattr(self, f"_{kind}")(depth)

    def _scalar(self, depth: int) -> None:
        name, dtypes = self.draw(
            st.sampled_from(
                [
                    ("add", [F32, I32, INDEX, U64]), ("floordiv", [I32, F64]), ("div", [F16, BF16]),
                    ("max", SCALARS), ("xor", [BOOL, I32]), ("shl", [U8, INDEX]),
                ]
            )
        )  # fmt: skip
        dtype = self.draw(st.sampled_from(dtypes))
        hint = self.draw(st.sampled_from(HINTS))
        self.values.append(self.b.binary(name, self.pick(dtype), self.pick(dtype), hint=hint))

    def _cast(self, depth: int) -> None:
        a, b = self.draw(st.sampled_from(SCALARS)), self.draw(st.sampled_from(SCALARS))
        self.values.append(self.b.cast(self.pick(a), b))

    def _cmp(self, depth: int) -> None:
        dtype = self.draw(st.sampled_from(SCALARS))
        self.values.append(self.b.cmp("le", self.pick(dtype), self.pick(dtype)))

    def _array(self) -> Value:
        return self.draw(st.sampled_from([v for v in self.values if not isinstance(v.type, DType)]))

    def _load(self, depth: int) -> None:
        self.values.append(self.b.load(self._array(), [self.pick(INDEX)], "guarded", 3))

    def _store(self, depth: int) -> None:
        self.b.store(self.pick(F32), self._array(), [self.pick(INDEX)], "off")

    def _atomic(self, depth: int) -> None:
        self.values.append(self.b.atomic("add", self.pick(F32), self._array(), [self.pick(INDEX)]))

    def _ends(self, types: tuple[IRType, ...], exits: bool = True) -> None:
        """End the open region: hand over values of these types, or leave a loop."""
        if exits and self.loops and self.draw(st.booleans()):
            self.b.break_(*[self.pick(t) for t in self.loops[-1]])
        else:
            self.b.yield_(*[self.pick(t) for t in types])

    def _types(self) -> tuple[DType, ...]:
        return tuple(self.draw(st.lists(st.sampled_from([F32, INDEX, BOOL]), max_size=2)))

    def _if(self, depth: int) -> None:
        condition, types = self.pick(BOOL), self._types()
        sides = []
        for exits in (True, False):
            before = list(self.values)
            with self.b.region() as side:
                self.statements(depth + 1)
                self._ends(types, exits)
            self.values = before
            sides.append(side.region)
        self.values += self.b.if_(condition, *sides, names=["r"])

    def _for(self, depth: int) -> None:
        types = self._types()
        lower, upper, step = (self.pick(INDEX) for _ in range(3))
        carried = [self.pick(t) for t in types]
        before = list(self.values)
        self.loops.append(types)
        with self.b.region(("k", INDEX), *(("c", t) for t in types)) as body:
            self.values += body.arguments
            self.statements(depth + 1)
            self._ends(types)
        self.loops.pop()
        self.values = before
        self.values += self.b.for_(lower, upper, step, carried, body.region, 5)

    def _while(self, depth: int) -> None:
        types = self._types()
        carried = [self.pick(t) for t in types]
        before, loops = list(self.values), self.loops
        self.loops = []
        with self.b.region(*(("c", t) for t in types)) as condition:
            self.values += condition.arguments
            self.b.condition(self.pick(BOOL), *[self.pick(t) for t in types])
        self.values, self.loops = list(before), [*loops, types]
        with self.b.region(*(("c", t) for t in types)) as body:
            self.values += body.arguments
            self.statements(depth + 1)
            self._ends(types)
        self.values, self.loops = before, loops
        self.values += self.b.while_(carried, condition.region, body.region)

    def _scope(self, depth: int) -> None:
        types = self._types()
        before, loops = list(self.values), self.loops
        self.loops = []
        with self.b.region() as body:
            self.statements(depth + 1)
            self.b.leave(*[self.pick(t) for t in types])
        self.values, self.loops = before, loops
        self.values += self.b.scope(body.region, types)

    def kernel(self, name: str) -> None:
        with self.b.region(("p", PointerType(F32, "global")), ("n", INDEX)) as body:
            p, n = body.arguments
            self.values = [
                n,
                self.b.view(p, [n], mut=True, name="p"),
                self.b.shared_alloc(F32, (64,), "smem"),
            ]
            self.statements(0)
            self.b.return_()
        self.b.kernel(name, body.region, group=(64, 2), grid_rank=1, parameters=("p.data", "n"))


@st.composite
def programs(draw: DrawFn) -> Program:
    maker = _Maker(draw)
    for name in draw(st.lists(st.text(max_size=4), unique=True, max_size=2)):
        maker.kernel(name)
    return maker.b.program()
