"""For tests: programs as trees whose nodes know their text and their meaning.

An expression has ``text()`` in the language and ``value(lane)`` in plain Python; a statement
``lines()`` and ``run(lane)``. ``Together`` statements are done by all lanes of a group, each
step by every lane before the next: what stands between two barriers. Must not know how a
program is chosen, nor the compiler.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz import numbers
from tests.fuzz.numbers import FLOATS, INTEGERS, Number, cast, wrap

ATOM, POWER, UNARY, PRODUCT, SUM, SHIFT, AND_BITS, XOR_BITS, OR_BITS, COMPARE, NOT, AND, OR, IF = (
    range(14, 0, -1)
)  # fmt: skip
LEVELS = {
    "*": PRODUCT, "/": PRODUCT, "//": PRODUCT, "%": PRODUCT, "+": SUM, "-": SUM, "<<": SHIFT,
    ">>": SHIFT, "&": AND_BITS, "^": XOR_BITS, "|": OR_BITS,
}  # fmt: skip


@dataclass
class Array:
    """Elements row by row, and whether a lane went outside."""

    dtype: str
    shape: tuple[int, ...]
    items: list[Number]

    def place(self, index: list[int]) -> int | None:
        at = 0
        for i, n in zip(index, self.shape, strict=True):
            if not 0 <= i < n:
                return None
            at = at * n + i
        return at


Judged = dict[int, tuple[int, int]]
"""By the identity of a place or division: how often it ran without a fault, and with one."""


@dataclass
class Launch:
    """What the lanes of a launch share."""

    arrays: dict[str, Array]
    scalars: dict[str, Number]
    tile: tuple[int, ...]
    grid: tuple[int, ...]
    faults: int = 0
    steps: int = 0
    judged: Judged = field(default_factory=dict[int, tuple[int, int]])

    @property
    def lanes(self) -> int:
        return math.prod(self.tile)

    @property
    def groups(self) -> int:
        return math.prod(self.grid)


@dataclass
class Lane:
    launch: Launch
    tile: int
    group: int
    shared: dict[str, Array]
    names: dict[str, Number] = field(default_factory=dict[str, Number])
    active: bool = True
    own: dict[str, Array] = field(default_factory=dict[str, Array])

    def array(self, name: str) -> Array:
        return self.own.get(name) or self.shared.get(name) or self.launch.arrays[name]

    def fault(self) -> None:
        self.launch.faults += 1

    def judge(self, node: object, good: bool) -> None:
        """Count a run of a place or division; what is not good is a fault."""
        judged = self.launch.judged
        ran, failed = judged.get(id(node), (0, 0))
        judged[id(node)] = (ran + 1, failed) if good else (ran, failed + 1)
        if not good:
            self.fault()


class Endless(Exception):
    """A generated program takes too many steps to be of use."""


# --- expressions -----------------------------------------------------------------------------


class Expr:
    dtype: str
    level: int = ATOM
    bare: bool = False  # a literal without its dtype
    planted: bool = False  # an index that may be outside, a divisor that may be 0

    def text(self) -> str:
        raise NotImplementedError

    def value(self, lane: Lane) -> Any:
        raise NotImplementedError

    def at(self, level: int) -> str:
        """The text as an operand that binds at least as tightly as ``level``."""
        return self.text() if self.level >= level else f"({self.text()})"


def literal(value: Number, dtype: str) -> str:
    if dtype == "bool":
        return "True" if value else "False"
    if isinstance(value, float):
        if value != value:
            return "nan"
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    return repr(value)


@dataclass
class Const(Expr):
    constant: Number
    dtype: str
    bare: bool = False

    def __post_init__(self) -> None:
        if self.bare and literal(self.constant, self.dtype).startswith("-"):
            self.level = UNARY

    def text(self) -> str:
        text = literal(self.constant, self.dtype)
        return text if self.bare or self.dtype == "bool" else f"{self.dtype}({text})"

    def value(self, lane: Lane) -> Any:
        return self.constant


@dataclass
class Name(Expr):
    name: str
    dtype: str

    def text(self) -> str:
        return self.name

    def value(self, lane: Lane) -> Any:
        return lane.names[self.name]


@dataclass
class Scalar(Expr):
    """A parameter of the kernel."""

    name: str
    dtype: str

    def text(self) -> str:
        return self.name

    def value(self, lane: Lane) -> Any:
        return lane.launch.scalars[self.name]


@dataclass
class Id(Expr):
    """Where the lane is; always an index."""

    name: str
    axis: int = -1
    dtype: str = "index"

    def text(self) -> str:
        return f"{self.name}({self.axis if self.axis >= 0 else ''})"

    def value(self, lane: Lane) -> Any:
        at = lane.launch
        match self.name:
            case "tile_id":
                return along(lane.tile, at.tile, self.axis)
            case "group_id":
                return along(lane.group, at.grid, self.axis)
            case "group_count":
                return at.grid[self.axis]
            case "lane_id":
                return lane.tile % 32
            case "warp_id":
                return lane.tile // 32
            case "tile_linear_id":
                return lane.tile
            case "group_linear_id":
                return lane.group
            case "group_tile_count":
                return at.lanes
            case "grid_tile_count":
                return at.lanes * at.groups
            case _:
                return lane.group * at.lanes + lane.tile


def along(at: int, shape: tuple[int, ...], axis: int) -> int:
    """Position along an axis; the last axis is the fastest."""
    return at // math.prod(shape[axis + 1 :]) % shape[axis]


@dataclass
class Binary(Expr):
    """Two numbers that meet in ``dtype`` without a cast."""

    operator: str
    left: Expr
    right: Expr
    dtype: str

    def __post_init__(self) -> None:
        self.level = LEVELS[self.operator]

    def text(self) -> str:
        return f"{self.left.at(self.level)} {self.operator} {self.right.at(self.level + 1)}"

    def value(self, lane: Lane) -> Any:
        dtype = self.dtype
        a = cast(self.left.value(lane), self.left.dtype, dtype)
        b = cast(self.right.value(lane), self.right.dtype, dtype)
        return operate(lane, self, self.operator, a, b, dtype)


def operate(lane: Lane, node: object, operator: str, a: Any, b: Any, dtype: str) -> Any:
    """``node``: what a division is judged as."""
    if dtype == "bool":
        return {"&": a & b, "|": a | b, "^": a ^ b}[operator]
    if dtype in FLOATS:
        return numbers.float_operation(operator, a, b, dtype)
    if operator in ("//", "%", "ceil_div"):
        lane.judge(node, b != 0)
    return numbers.integer_operation(operator, a, b, dtype)


@dataclass
class Unary(Expr):
    operator: str
    operand: Expr
    dtype: str

    def __post_init__(self) -> None:
        self.level = NOT if self.operator == "not " else UNARY

    def text(self) -> str:
        return f"{self.operator}{self.operand.at(self.level)}"

    def value(self, lane: Lane) -> Any:
        x = self.operand.value(lane)
        if self.operator == "not ":
            return not x
        if self.operator == "~":
            return not x if self.dtype == "bool" else wrap(~x, self.dtype)
        return -x if self.dtype in FLOATS else wrap(-x, self.dtype)


@dataclass
class Power(Expr):
    base: Expr
    exponent: int
    dtype: str
    level: int = POWER

    def text(self) -> str:
        return f"{self.base.at(ATOM)} ** {self.exponent}"

    def value(self, lane: Lane) -> Any:
        x = self.base.value(lane)
        return wrap(x**self.exponent, self.dtype)


@dataclass
class Call(Expr):
    """``min max abs ceil_div math.*``."""

    function: str
    operands: list[Expr]
    dtype: str

    def text(self) -> str:
        return f"{self.function}({', '.join(e.text() for e in self.operands)})"

    def value(self, lane: Lane) -> Any:
        dtype = self.dtype
        values = [cast(e.value(lane), e.dtype, dtype) for e in self.operands]
        match self.function:
            case "min" | "max" | "ceil_div":
                result = values[0]
                for v in values[1:]:
                    result = operate(lane, self, self.function, result, v, dtype)
                return result
            case "abs":
                return abs(values[0]) if dtype in FLOATS else wrap(abs(values[0]), dtype)
            case "math.fma":
                return numbers.fma(values[0], values[1], values[2], dtype)
            case name:
                found = numbers.FLOAT_FUNCTIONS[name.removeprefix("math.")](values[0])
                return numbers.rounded(found, dtype)


@dataclass
class Cast(Expr):
    operand: Expr
    dtype: str
    method: bool = False

    def text(self) -> str:
        if self.method:
            return f"{self.operand.at(ATOM)}.to({self.dtype})"
        return f"{self.dtype}({self.operand.text()})"

    def value(self, lane: Lane) -> Any:
        return cast(self.operand.value(lane), self.operand.dtype, self.dtype)


@dataclass
class Bits(Expr):
    """``bitcast`` between integers of one width."""

    operand: Expr
    dtype: str

    def text(self) -> str:
        return f"bitcast({self.operand.text()}, {self.dtype})"

    def value(self, lane: Lane) -> Any:
        return wrap(self.operand.value(lane), self.dtype)


@dataclass
class FloatBits(Expr):
    """The bits of a variable of a float dtype; of NaN, whose bits are open, those of 0."""

    name: str
    source: str
    dtype: str

    def text(self) -> str:
        zero = f"{self.source}(0.0)"
        return f"bitcast({self.name} if {self.name} == {self.name} else {zero}, {self.dtype})"

    def value(self, lane: Lane) -> Any:
        x: Any = lane.names[self.name]
        return numbers.bits_of(0.0 if x != x else x, self.source)


@dataclass
class Compare(Expr):
    """A chain ``a < b <= c``; integers of any signs compare exactly."""

    operands: list[Expr]
    operators: list[str]
    dtype: str = "bool"
    level: int = COMPARE

    def text(self) -> str:
        text = self.operands[0].at(COMPARE + 1)
        for operator, e in zip(self.operators, self.operands[1:], strict=True):
            text += f" {operator} {e.at(COMPARE + 1)}"
        return text

    def value(self, lane: Lane) -> Any:
        a = self.operands[0].value(lane)
        for operator, e in zip(self.operators, self.operands[1:], strict=True):
            b = e.value(lane)
            if not compared(operator, a, b):
                return False
            a = b
        return True


def compared(operator: str, a: Any, b: Any) -> bool:
    match operator:
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case _:
            return a >= b


@dataclass
class Logic(Expr):
    """``and`` or ``or``: the right side is looked at only where it counts."""

    operator: str
    left: Expr
    right: Expr
    dtype: str = "bool"

    def __post_init__(self) -> None:
        self.level = AND if self.operator == "and" else OR

    def text(self) -> str:
        return f"{self.left.at(self.level)} {self.operator} {self.right.at(self.level + 1)}"

    def value(self, lane: Lane) -> Any:
        if self.operator == "and":
            return self.left.value(lane) and self.right.value(lane)
        return self.left.value(lane) or self.right.value(lane)


@dataclass
class Choice(Expr):
    test: Expr
    then: Expr
    orelse: Expr
    dtype: str
    level: int = IF

    def text(self) -> str:
        return f"{self.then.at(OR)} if {self.test.at(OR)} else {self.orelse.at(IF)}"

    def value(self, lane: Lane) -> Any:
        chosen = self.then if self.test.value(lane) else self.orelse
        return chosen.value(lane)


@dataclass
class Load(Expr):
    array: str
    indices: list[Expr]
    dtype: str

    def text(self) -> str:
        return f"{self.array}[{', '.join(e.text() for e in self.indices)}]"

    def value(self, lane: Lane) -> Any:
        array = lane.array(self.array)
        at = array.place([e.value(lane) for e in self.indices])
        lane.judge(self, at is not None)
        if at is None:
            return cast(0, "i32", self.dtype)
        return array.items[at]


@dataclass
class Reduce(Expr):
    """``op.sum(x[i, a:b])``: what lies along the last axis of an array that nobody writes, reduced
    in ``wide``; of an index for each other axis."""

    kind: str
    array: str
    indices: list[Expr]
    lower: Expr | None
    upper: Expr | None
    element: str
    dtype: str
    step: int = 1

    def place(self) -> str:
        bounds = [e.text() if e else "" for e in (self.lower, self.upper)]
        bounds += [str(self.step)] if self.step != 1 else []
        return f"{self.array}[{', '.join([*(e.text() for e in self.indices), ':'.join(bounds)])}]"

    def text(self) -> str:
        text = f"op.{self.kind}({self.place()})"
        return f"{text}.to({self.dtype})" if self.kind == "argmax" else text

    def value(self, lane: Lane) -> Any:
        array = lane.array(self.array)
        fixed = [e.value(lane) for e in self.indices]
        size = array.shape[-1]
        first = self.lower.value(lane) if self.lower else 0
        last = min(self.upper.value(lane), size) if self.upper else size
        if first < 0:
            lane.fault()
        found: list[Number] = []
        for k in range(max(first, 0), last, self.step):
            step(lane)
            at = array.place([*fixed, k])
            lane.judge(self, at is not None)
            found.append(0 if at is None else array.items[at])
        return self.reduced(lane, found)

    def reduced(self, lane: Lane, found: list[Any]) -> Any:
        low, high = numbers.limits(self.element)
        match self.kind:
            case "sum":
                return wrap(sum(found), self.dtype)
            case "max":
                return max(found, default=low)
            case "min":
                return min(found, default=high)
            case _:
                if not found:
                    lane.fault()
                return cast(found.index(max(found)) if found else 0, "index", self.dtype)


@dataclass
class Helper:
    """A plain function: parameters with their dtypes, statements, every path returns."""

    name: str
    parameters: list[tuple[str, str]]
    dtype: str
    body: list[Stmt]
    annotated: list[bool]
    array: str = ""  # dtype of a first parameter `z` that is an array or a buffer
    brackets: tuple[tuple[str, int], ...] = ()  # compile-time integers

    def lines(self) -> list[str]:
        shown = ["z"] * bool(self.array) + [
            f"{n}: {d}" if a else n
            for (n, d), a in zip(self.parameters, self.annotated, strict=True)
        ]
        inside = ", ".join(f"{name}: int" for name, _ in self.brackets)
        head = f"{self.name}[{inside}]" if inside else self.name
        return [f"def {head}({', '.join(shown)}):", *suite(self.body), ""]


@dataclass
class HelperCall(Expr):
    helper: Helper
    arguments: list[Expr]
    array: str = ""

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.helper.dtype

    def text(self) -> str:
        inside = ", ".join(str(value) for _, value in self.helper.brackets)
        name = f"{self.helper.name}[{inside}]" if inside else self.helper.name
        given = [self.array] * bool(self.array) + [e.text() for e in self.arguments]
        return f"{name}({', '.join(given)})"

    def value(self, lane: Lane) -> Any:
        names: dict[str, Number] = dict(self.helper.brackets)
        names |= {
            name: cast(e.value(lane), e.dtype, dtype)
            for (name, dtype), e in zip(self.helper.parameters, self.arguments, strict=True)
        }
        inner = Lane(lane.launch, lane.tile, lane.group, lane.shared, names)
        if self.array:
            inner.shared = {"z": lane.array(self.array), **lane.shared}
        outcome = run_block(self.helper.body, inner)
        assert isinstance(outcome, tuple)
        return outcome[0]


# --- statements ------------------------------------------------------------------------------

Outcome = str | tuple[Any] | None
"""``break``, ``continue``, a returned value in a tuple, or None: it fell through."""


class Stmt:
    def lines(self) -> list[str]:
        raise NotImplementedError

    def run(self, lane: Lane) -> Outcome:
        raise NotImplementedError

    def blocks(self) -> list[list[Stmt]]:
        return []


def suite(body: list[Stmt]) -> list[str]:
    return ["    " + line for s in body for line in s.lines()] or ["    pass"]


def run_block(body: list[Stmt], lane: Lane) -> Outcome:
    for s in body:
        lane.launch.steps += 1
        outcome = s.run(lane)
        if outcome is not None:
            return outcome
    return None


@dataclass
class Assign(Stmt):
    name: str
    expr: Expr
    dtype: str
    annotate: bool = False

    def lines(self) -> list[str]:
        note = f": {self.dtype}" if self.annotate else ""
        return [f"{self.name}{note} = {self.expr.text()}"]

    def run(self, lane: Lane) -> Outcome:
        lane.names[self.name] = cast(self.expr.value(lane), self.expr.dtype, self.dtype)
        return None


@dataclass
class Swap(Stmt):
    """``a, b = b, a``."""

    a: str
    b: str

    def lines(self) -> list[str]:
        return [f"{self.a}, {self.b} = {self.b}, {self.a}"]

    def run(self, lane: Lane) -> Outcome:
        names = lane.names
        names[self.a], names[self.b] = names[self.b], names[self.a]
        return None


@dataclass
class Update(Stmt):
    """``name op= expr``."""

    name: str
    operator: str
    expr: Expr
    dtype: str

    def lines(self) -> list[str]:
        return [f"{self.name} {self.operator}= {self.expr.text()}"]

    def run(self, lane: Lane) -> Outcome:
        b = cast(self.expr.value(lane), self.expr.dtype, self.dtype)
        a = lane.names[self.name]
        lane.names[self.name] = operate(lane, self, self.operator, a, b, self.dtype)
        return None


@dataclass
class Store(Stmt):
    """``array[...] = expr`` or ``array[...] op= expr``."""

    array: str
    indices: list[Expr]
    expr: Expr
    dtype: str
    operator: str = ""

    def lines(self) -> list[str]:
        place = f"{self.array}[{', '.join(e.text() for e in self.indices)}]"
        return [f"{place} {self.operator}= {self.expr.text()}"]

    def run(self, lane: Lane) -> Outcome:
        array = lane.array(self.array)
        at = array.place([e.value(lane) for e in self.indices])
        value = cast(self.expr.value(lane), self.expr.dtype, self.dtype)
        old = array.items[at] if at is not None else cast(0, "i32", self.dtype)
        if self.operator:
            value = operate(lane, self, self.operator, old, value, self.dtype)
        lane.judge(self, at is not None)
        if at is not None:
            array.items[at] = value
        return None


@dataclass
class Atomic(Stmt):
    kind: str
    array: str
    index: Expr
    expr: Expr
    dtype: str

    def lines(self) -> list[str]:
        return [f"atomic_{self.kind}({self.array}[{self.index.text()}], {self.expr.text()})"]

    def run(self, lane: Lane) -> Outcome:
        array = lane.array(self.array)
        at = array.place([self.index.value(lane)])
        value = cast(self.expr.value(lane), self.expr.dtype, self.dtype)
        lane.judge(self, at is not None)
        if at is None:
            return None
        operator = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}.get(
            self.kind, self.kind
        )
        array.items[at] = operate(lane, self, operator, array.items[at], value, self.dtype)
        return None


@dataclass
class If(Stmt):
    """``if``, any number of ``elif``, ``else`` (perhaps empty)."""

    branches: list[tuple[Expr, list[Stmt]]]
    orelse: list[Stmt]

    def lines(self) -> list[str]:
        made: list[str] = []
        for at, (test, body) in enumerate(self.branches):
            made += [f"{'elif' if at else 'if'} {test.text()}:", *suite(body)]
        return [*made, "else:", *suite(self.orelse)] if self.orelse else made

    def run(self, lane: Lane) -> Outcome:
        for test, body in self.branches:
            if test.value(lane):
                return run_block(body, lane)
        return run_block(self.orelse, lane)

    def blocks(self) -> list[list[Stmt]]:
        return [*(body for _, body in self.branches), self.orelse]


@dataclass
class For(Stmt):
    name: str
    bounds: list[Expr]
    body: list[Stmt]

    def lines(self) -> list[str]:
        bounds = ", ".join(e.text() for e in self.bounds)
        return [f"for {self.name} in range({bounds}):", *suite(self.body)]

    def run(self, lane: Lane) -> Outcome:
        values = [cast(e.value(lane), e.dtype, "index") for e in self.bounds]
        if len(values) == 3 and values[2] == 0:
            lane.fault()
            return None
        for k in range(*values):
            lane.names[self.name] = k
            step(lane)
            outcome = run_block(self.body, lane)
            if outcome == "break":
                break
            if isinstance(outcome, tuple):
                return outcome
        return None

    def blocks(self) -> list[list[Stmt]]:
        return [self.body]


@dataclass
class While(Stmt):
    test: Expr
    body: list[Stmt]

    def lines(self) -> list[str]:
        return [f"while {self.test.text()}:", *suite(self.body)]

    def run(self, lane: Lane) -> Outcome:
        while self.test.value(lane):
            step(lane)
            outcome = run_block(self.body, lane)
            if outcome == "break":
                break
            if isinstance(outcome, tuple):
                return outcome
        return None

    def blocks(self) -> list[list[Stmt]]:
        return [self.body]


def step(lane: Lane) -> None:
    lane.launch.steps += 1
    if lane.launch.steps > 400_000:
        raise Endless


@dataclass
class Leave(Stmt):
    """``break``, ``continue``, or ``return`` of a kernel or with a value."""

    word: str
    expr: Expr | None = None

    def lines(self) -> list[str]:
        return [f"{self.word} {self.expr.text()}" if self.expr else self.word]

    def run(self, lane: Lane) -> Outcome:
        if self.word == "return":
            return (self.expr.value(lane) if self.expr else None,)
        return self.word


# --- what the lanes of a group do together ---------------------------------------------------


class Together(Stmt):
    def run_group(self, lanes: list[Lane]) -> None:
        raise NotImplementedError


@dataclass
class Barrier(Together):
    def lines(self) -> list[str]:
        return ["tbarrier()"]

    def run_group(self, lanes: list[Lane]) -> None:
        pass


@dataclass
class Alloc(Together):
    name: str
    shape: tuple[int, ...]
    dtype: str

    def lines(self) -> list[str]:
        shape = f"({', '.join(map(str, self.shape))}{',' if len(self.shape) == 1 else ''})"
        return [f"{self.name} = tshared.alloc({shape}, {self.dtype})"]

    def run_group(self, lanes: list[Lane]) -> None:
        array = Array(self.dtype, self.shape, [cast(0, "i32", self.dtype)] * math.prod(self.shape))
        lanes[0].shared[self.name] = array


@dataclass
class UniformFor(Together):
    """A loop whose bounds all lanes agree on; there may be barriers inside."""

    name: str
    bounds: list[Expr]
    body: list[Stmt]

    def lines(self) -> list[str]:
        bounds = ", ".join(e.text() for e in self.bounds)
        return [f"for {self.name} in range({bounds}):", *suite(self.body)]

    def run_group(self, lanes: list[Lane]) -> None:
        for k in range(*(e.value(lanes[0]) for e in self.bounds)):
            for lane in lanes:
                lane.names[self.name] = k
            step(lanes[0])
            run_together(self.body, lanes)

    def blocks(self) -> list[list[Stmt]]:
        return [self.body]


@dataclass
class UniformWhile(Together):
    test: Expr
    body: list[Stmt]

    def lines(self) -> list[str]:
        return [f"while {self.test.text()}:", *suite(self.body)]

    def run_group(self, lanes: list[Lane]) -> None:
        while self.test.value(lanes[0]):
            step(lanes[0])
            run_together(self.body, lanes)

    def blocks(self) -> list[list[Stmt]]:
        return [self.body]


@dataclass
class UniformIf(Together):
    test: Expr
    body: list[Stmt]
    orelse: list[Stmt]

    def lines(self) -> list[str]:
        made = [f"if {self.test.text()}:", *suite(self.body)]
        return [*made, "else:", *suite(self.orelse)] if self.orelse else made

    def run_group(self, lanes: list[Lane]) -> None:
        run_together(self.body if self.test.value(lanes[0]) else self.orelse, lanes)

    def blocks(self) -> list[list[Stmt]]:
        return [self.body, self.orelse]


def run_together(body: list[Stmt], lanes: list[Lane]) -> None:
    for s in body:
        if isinstance(s, Together):
            s.run_group(lanes)
            continue
        for lane in lanes:
            if lane.active and isinstance(run_block([s], lane), tuple):
                lane.active = False


# --- a kernel and its launch -----------------------------------------------------------------


@dataclass
class Parameter:
    """An array (``shape`` names its sizes) or, without a shape, a scalar."""

    name: str
    dtype: str
    shape: tuple[str, ...] = ()
    mut: bool = False
    const: bool = False

    def text(self) -> str:
        if not self.shape:
            return f"{self.name}: {self.dtype}"
        word = "mut " if self.mut else "const " if self.const else ""
        return f"{self.name}: {word}{self.dtype}[{', '.join(self.shape)}]"


@dataclass
class Kernel:
    name: str
    tile: tuple[int, ...]
    grid: tuple[int, ...]
    parameters: list[Parameter]
    body: list[Stmt]
    helpers: list[Helper]
    sizes: dict[str, int]
    tables: list[tuple[str, tuple[int, ...]]] = field(
        default_factory=list[tuple[str, tuple[int, ...]]]
    )
    said: str = "clause"
    """What says the grid: a ``clause`` of numbers, or of ``sizes``, the ``call``, or both."""
    where: tuple[str, ...] = ()

    def text(self) -> str:
        lines = [f"{name} = {values}" for name, values in self.tables]
        lines += [line for h in self.helpers for line in h.lines()]
        clauses = [f"tile[{self.tile}]", "shared(32_KiB)"]
        if self.said != "call":
            clauses.insert(1, f"grid[{self._clause()}]")
        where = f" where {' and '.join(self.where)}" if self.where else ""
        lines += [f"@kernel {' '.join(clauses)}",
                  f"def {self.name}({', '.join(p.text() for p in self.parameters)}){where}:",
                  *suite(self.body)]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _clause(self) -> str:
        """Groups along each axis; as many as an array has elements are so by its name."""
        bound = {name for q in self.parameters for name in q.shape} if self.said == "sizes" else ()
        names = {n: name for name, n in self.sizes.items() if name in bound}
        return f"({', '.join(names.get(n, str(n)) for n in self.grid)},)"

    def launched(self, kernel: Any) -> Any:
        """What is called: ``k``, or ``k[groups]``."""
        return kernel[self.grid] if self.said in ("call", "both") else kernel

    def run(self, arrays: dict[str, Array], scalars: dict[str, Number]) -> Launch:
        """All groups in order; ``arrays`` are changed in place."""
        launch = Launch(arrays, {**scalars, **self.sizes}, self.tile, self.grid)
        for group in range(launch.groups):
            shared: dict[str, Array] = {}
            run_together(self.body, [Lane(launch, t, group, shared) for t in range(launch.lanes)])
        return launch


def is_integer(dtype: str) -> bool:
    return dtype in INTEGERS
