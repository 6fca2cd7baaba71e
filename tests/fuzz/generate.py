"""For tests: right programs chosen at random.

Every program is valid by construction: typed by the rules of mixing, no variable read before it
is set, no barrier where lanes can differ, every access inside, no division by 0 (unless
``faults`` asks for some), atomics only where their order does not show. Must not know the
compiler.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from tests.fuzz import collectives
from tests.fuzz import program as p
from tests.fuzz.numbers import BITS, FLOATS, INTEGERS, SIGNED, Number, limits, rounded, widens

NUMBERS = (
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
    "index",
    "f16",
    "bf16",
    "f32",
    "f64",
)
COMMON = (
    "i32",
    "u32",
    "f32",
    "i64",
    "index",
    "i8",
    "u8",
    "f16",
    "bf16",
    "f64",
    "i16",
    "u16",
    "u64",
)
ATOMIC = ("i32", "u32", "i64", "u64")
NARROW = ("f8e4m3", "f8e5m2")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@dataclass
class Frame:
    """Names that may be read here, and whether ``break`` and ``continue`` may stand here."""

    readable: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    writable: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    in_loop: bool = False


GRIDS = ((1,), (1,), (2,), (3,), (2, 2), (1, 3), (3, 1), (2, 1, 2), (3, 1, 1), (1, 2, 1), (2, 3, 2))


class Generator(collectives.Together):
    def __init__(self, seed: int, faults: bool = False) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.reduces = seed % 4 == 3
        self.collects = seed % 8 == 6  # warps and groups, arrays of a lane's own, tables
        self.tables: list[tuple[str, tuple[int, ...]]] = []
        self.cells: list[collectives.Cells] = []
        self.name = f"k{seed}"
        self.made = 0
        self.parameters: list[p.Parameter] = []
        self.helpers: list[p.Helper] = []
        self.frames: list[Frame] = [Frame()]
        self.guard: list[str] = []  # names of indices known to be inside of the arrays of size n
        self.in_helper = False
        self.trips = 1
        self.shared_bytes = 0
        self.tile: tuple[int, ...] = (1,)
        self.grid: tuple[int, ...] = (1,)
        self.look: str = ""  # dtype of the array that the helper being made is given

    # --- choices --------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def fresh(self, stem: str) -> str:
        self.made += 1
        return f"{stem}{self.made}"

    def number_dtype(self) -> str:
        return self.random.choice(COMMON[: self.random.choice((4, 8, 13))])

    def constant_value(self, dtype: str) -> Number:
        if dtype == "bool":
            return self.chance(0.5)
        if dtype in FLOATS:
            pool = (0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1.5, 7.0, -0.25, 100.0, 0.1, 3.0e-5, 1.0e4)
            return rounded(self.random.choice(pool), dtype)
        low, high = limits(dtype)
        pool = [0, 1, 2, 3, 5, 7, 8, 31, 100, low, high, high - 1, high // 3, -1, -2, -7]
        value = self.random.choice(pool)
        return value if low <= value <= high else self.random.randrange(0, 9)

    def constant(self, dtype: str, bare: bool = False) -> p.Expr:
        value = self.constant_value(dtype)
        if dtype in FLOATS and self.chance(0.02) and dtype not in NARROW:
            value = self.random.choice((math.inf, -math.inf, math.nan))
        bare = bare or dtype == "bool"
        if bare and isinstance(value, float) and not math.isfinite(value):
            bare = False
        return p.Const(value, dtype, bare)

    # --- expressions ------------------------------------------------------------------------

    def expr(self, dtype: str, depth: int) -> p.Expr:
        if dtype == "bool":
            return self.condition(depth)
        slices = self.reduces or self.collects
        if self.cells and depth > 0 and dtype in INTEGERS and self.chance(0.1):
            return self.reduced_cells(dtype, depth)
        if slices and depth > 0 and dtype in INTEGERS and self.chance(0.1):
            return self.reduction(dtype, depth)
        if depth <= 0 or self.chance(0.12):
            return self.leaf(dtype)
        if self.tables and self.chance(0.06):
            return self.entry(dtype, depth)
        kinds = [self.binary, self.binary, self.binary, self.unary, self.cast, self.choice,
                 self.extreme, self.load, self.call_helper, self.leaf_at]  # fmt: skip
        if dtype in FLOATS:
            kinds += [self.float_function]
        return self.random.choice(kinds)(dtype, depth)

    def leaf_at(self, dtype: str, depth: int) -> p.Expr:
        return self.leaf(dtype)

    def leaf(self, dtype: str) -> p.Expr:
        known = [n for n in self.names() if n[1] == dtype]
        if known and self.chance(0.75):
            return p.Name(*self.random.choice(known[-8:]))
        if not self.in_helper:
            scalars = [q for q in self.parameters if not q.shape and q.dtype == dtype]
            if scalars and self.chance(0.5):
                return p.Scalar(self.random.choice(scalars).name, dtype)
            if dtype == "index" and self.chance(0.5):
                return self.id()
        if self.chance(0.5):
            return self.load(dtype, 0)
        others = [n for n in self.names() if n[1] not in (dtype, "bool")]
        if others and self.chance(0.6):
            return p.Cast(p.Name(*self.random.choice(others[-6:])), dtype)
        return self.constant(dtype)

    def id(self) -> p.Expr:
        if self.chance(0.3):
            name = self.random.choice(("tile_id", "group_id", "group_count", "lane_id", "warp_id"))
            if name in ("lane_id", "warp_id"):
                return p.Id(name)
            shape = self.tile if name == "tile_id" else self.grid
            return p.Id(name, self.random.randrange(len(shape)))
        return p.Id(self.random.choice(("tile_linear_id", "group_linear_id", "group_tile_count",
                                        "grid_tile_linear_id", "grid_tile_count")))  # fmt: skip

    def names(self) -> list[tuple[str, str]]:
        return [n for f in self.frames for n in f.readable]

    def operand_dtypes(self, dtype: str) -> tuple[str, str]:
        """Two dtypes that meet in ``dtype`` (mostly the same one)."""
        if self.chance(0.8):
            return dtype, dtype
        others = [d for d in (*NUMBERS, *NARROW) if widens(d, dtype) == dtype]
        other = self.random.choice(others)
        return (dtype, other) if self.chance(0.5) else (other, dtype)

    def pair(self, dtype: str, depth: int) -> tuple[p.Expr, p.Expr]:
        """Operands that meet in ``dtype``; one may be a literal."""
        left, right = self.operand_dtypes(dtype)
        if left == right and self.chance(0.2):
            literal, typed = self.constant(dtype, bare=True), self.typed(dtype, depth - 1)
            return (literal, typed) if self.chance(0.5) else (typed, literal)
        return self.expr(left, depth - 1), self.expr(right, depth - 1)

    def typed(self, dtype: str, depth: int) -> p.Expr:
        return self.expr(dtype, depth)

    def binary(self, dtype: str, depth: int) -> p.Expr:
        if dtype in NARROW:
            operator = self.random.choice("+-*")
        elif dtype in FLOATS:
            operator = self.random.choice(("+", "-", "*", "/", "//", "%"))
        else:
            operator = self.random.choice(
                ("+", "-", "*", "+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>")
            )
        if operator in ("<<", ">>"):
            return self.shift(operator, dtype, depth)
        if operator in ("//", "%") and dtype in INTEGERS:
            return self.division(operator, dtype, depth)
        return p.Binary(operator, *self.pair(dtype, depth), dtype)

    def shift(self, operator: str, dtype: str, depth: int) -> p.Expr:
        value = self.expr(dtype, depth - 1)
        if self.chance(0.4):
            count: p.Expr = p.Const(self.random.randrange(BITS[dtype]), dtype, True)
        else:
            others = [d for d in INTEGERS if widens(d, dtype) == dtype]
            count = self.expr(self.random.choice(others), depth - 1)
            if isinstance(count, p.Const):
                count = p.Const(self.random.randrange(BITS[dtype]), dtype)
        if _constant(count) or _constant(value):
            count = p.Const(self.random.randrange(BITS[dtype]), dtype, True)
        return p.Binary(operator, value, count, dtype)

    def divisor(self, dtype: str, depth: int) -> p.Expr:
        if self.chance(0.5):
            value = self.constant_value(dtype)
            return p.Const(value or 3, dtype, self.chance(0.5))
        inner = self.expr(dtype, depth - 1)
        if self.faults and self.chance(0.5) and not _constant(inner):
            inner.planted = True
            return inner
        return p.Binary("|", inner, p.Const(1, dtype, True), dtype)

    def division(self, operator: str, dtype: str, depth: int) -> p.Expr:
        value, divisor = self.expr(dtype, depth - 1), self.divisor(dtype, depth)
        if self.chance(0.15) and dtype in INTEGERS:
            return p.Call("ceil_div", [value, divisor], dtype)
        return p.Binary(operator, value, divisor, dtype)

    def unary(self, dtype: str, depth: int) -> p.Expr:
        operand = self.expr(dtype, depth - 1)
        if self.chance(0.3):
            return p.Call("abs", [operand], dtype)
        if dtype in INTEGERS and self.chance(0.2):
            return p.Power(operand, self.random.randrange(5), dtype)
        if dtype in INTEGERS and self.chance(0.5):
            return p.Unary("~", operand, dtype)
        return p.Unary("-", operand, dtype)

    def cast(self, dtype: str, depth: int) -> p.Expr:
        if dtype in INTEGERS and self.chance(0.2):
            same = [d for d in INTEGERS if BITS[d] == BITS[dtype] and d != dtype and d != "index"]
            if dtype != "index" and same:
                return p.Bits(self.expr(self.random.choice(same), depth - 1), dtype)
        if self.chance(0.1):
            return p.Cast(self.condition(depth - 1), dtype)
        if dtype in ("f32", "f64", "f16", "bf16") and self.chance(0.15):
            return p.Cast(self.expr(self.random.choice(NARROW), depth - 1), dtype)
        source = self.number_dtype()
        operand = self.expr(source, depth - 1)
        if isinstance(operand, p.Const):
            operand = self.load(source, 0)
        return p.Cast(operand, dtype, self.chance(0.3))

    def choice(self, dtype: str, depth: int) -> p.Expr:
        then, orelse = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        return p.Choice(self.condition(depth - 1), then, orelse, dtype)

    def extreme(self, dtype: str, depth: int) -> p.Expr:
        if dtype in NARROW:
            return self.leaf(dtype)
        operands = list(self.pair(dtype, depth))
        if self.chance(0.25):
            operands.append(self.expr(dtype, depth - 1))
        return p.Call(self.random.choice(("min", "max")), operands, dtype)

    def float_function(self, dtype: str, depth: int) -> p.Expr:
        if dtype in NARROW:
            return self.leaf(dtype)
        if self.chance(0.25):
            return p.Call("math.fma", [self.expr(dtype, depth - 1) for _ in range(3)], dtype)
        name = self.random.choice(("sqrt", "floor", "ceil", "trunc", "round"))
        return p.Call(f"math.{name}", [self.expr(dtype, depth - 1)], dtype)

    def load(self, dtype: str, depth: int) -> p.Expr:
        if self.in_helper and self.look == dtype:
            return p.Load("z", [self.first(depth)], dtype)
        own = [] if self.in_helper else [c for c in self.cells if c.dtype == dtype]
        if own and self.chance(0.7):
            cells = self.random.choice(own)
            return p.Load(cells.name, self.cell(cells, depth), dtype)
        arrays = [q for q in self.parameters if q.shape and not q.mut and q.dtype == dtype]
        if not arrays or self.in_helper:
            return self.constant(dtype)
        array = self.random.choice(arrays)
        return p.Load(array.name, [self.inside(s, depth) for s in array.shape], dtype)

    def reduction(self, dtype: str, depth: int) -> p.Expr:
        """Of a slice whose bounds are the same for a group, or another for each lane."""
        arrays = [q for q in self.parameters if q.shape and not q.mut and q.dtype in INTEGERS]
        fitting = [q for q in arrays if self.reductions_to(q.dtype, dtype)]
        if not fitting or self.in_helper:
            return self.leaf(dtype)
        q = self.random.choice(fitting)
        *rows, size = q.shape
        lower = self.bound(size, depth) if self.chance(0.5) else None
        upper = self.bound(size, depth) if self.chance(0.4) else None
        kind = self.random.choice(self.reductions_to(q.dtype, dtype))
        if kind == "argmax" and not self.faults:
            lower = upper = None  # of no elements it is a fault
        indices = [self.inside(s, depth) for s in rows]
        step = self.random.choice((1, 2, 3, 7)) if self.collects else 1
        return p.Reduce(kind, q.name, indices, lower, upper, q.dtype, dtype, step)

    def reductions_to(self, element: str, dtype: str) -> list[str]:
        """What gives ``dtype``, of elements of a type."""
        wide = {"i8": "i32", "i16": "i32", "u8": "u32", "u16": "u32"}.get(element, element)
        found = ["sum"] * (wide == dtype) + ["max", "min"] * (element == dtype)
        return [*found, "argmax"] if dtype in ("i32", "i64", "index") else found

    def bound(self, size: str, depth: int) -> p.Expr:
        """A bound of a slice: a number, or one of the run from 0 on."""
        if self.chance(0.4):
            return p.Const(self.random.choice((0, 1, 3, 8, 40)), "index", True)
        guard, self.guard = self.guard, []
        faults, self.faults = self.faults, False
        made = self.inside(size, depth)
        self.guard, self.faults = guard, faults
        return made

    def first(self, depth: int) -> p.Expr:
        """An index into the array of a helper: the first element is always there."""
        if self.chance(0.5):
            return p.Const(0, "index", True)
        e = self.expr("index", min(depth - 1, 1))
        if _constant(e):
            return p.Const(0, "index", True)
        return p.Binary("%", e, p.Const(1, "index", True), "index")

    def inside(self, size: str, depth: int) -> p.Expr:
        """An index into an axis of this size."""
        n = p.Scalar(size, "index")
        if size == "n" and self.guard and self.chance(0.6):
            name = p.Name(self.random.choice(self.guard), "index")
            if self.chance(0.3):
                last = p.Binary("-", n, p.Const(1, "index", True), "index")
                return p.Binary("-", last, name, "index")
            return name
        if self.faults and self.chance(0.15):
            e = self.expr("index", depth - 1)
            if _constant(e):
                e = self.id()
            e.planted = True
            return e
        inner = self.random.choice([d for d in INTEGERS if d != "u64"])
        e = self.expr(inner, depth - 1)
        if _constant(e):
            e = self.id()
        if e.dtype != "index":
            e = p.Cast(e, "index")
        return p.Binary("%", e, n, "index")

    def call_helper(self, dtype: str, depth: int) -> p.Expr:
        if self.in_helper:
            known = [h for h in self.helpers if h.dtype == dtype and not h.array]
            if not known:
                return self.leaf(dtype)
            return self.helper_call(self.random.choice(known[-2:]), depth)
        known = [h for h in self.helpers if h.dtype == dtype]
        if known and self.chance(0.6):
            return self.helper_call(self.random.choice(known), depth)
        if len(self.helpers) > 5:
            return self.leaf(dtype)
        return self.helper_call(self.new_helper(dtype), depth)

    def helper_call(self, helper: p.Helper, depth: int) -> p.Expr:
        arguments: list[p.Expr] = []
        for _, dtype in helper.parameters:
            e = self.expr(dtype, depth - 1)
            arguments.append(e)
        if not helper.array:
            return p.HelperCall(helper, arguments)
        named = [q.name for q in self.parameters if len(q.shape) == 1 and q.dtype == helper.array
                 and not q.mut]  # fmt: skip
        if not self.in_helper:
            named += [c.name for c in self.cells if c.dtype == helper.array and len(c.shape) == 1]
        return p.HelperCall(helper, arguments, self.random.choice(named))

    # --- conditions -------------------------------------------------------------------------

    def condition(self, depth: int) -> p.Expr:
        if depth <= 0:
            known = [n for n in self.names() if n[1] == "bool"]
            if known and self.chance(0.5):
                return p.Name(*self.random.choice(known))
            return self.comparison(0)
        match self.random.randrange(8):
            case 0:
                return p.Unary("not ", self.condition(depth - 1), "bool")
            case 1 | 2:
                operator = self.random.choice(("and", "or"))
                return p.Logic(operator, self.condition(depth - 1), self.condition(depth - 1))
            case 3:
                operator = self.random.choice("&|^")
                return p.Binary(
                    operator, self.condition(depth - 1), self.condition(depth - 1), "bool"
                )
            case 4:
                return self.guarded_look(depth)
            case _:
                return self.comparison(depth)

    def guarded_look(self, depth: int) -> p.Expr:
        """``0 <= j and j < n and x[j] > c``: the read must not happen outside."""
        arrays = [
            q for q in self.parameters if len(q.shape) == 1 and not q.mut and q.dtype in NUMBERS
        ]
        known = [n for n in self.names() if n[1] == "index"]
        if not arrays or not known or self.in_helper:
            return self.comparison(depth)
        array, name = self.random.choice(arrays), p.Name(*self.random.choice(known))
        n = p.Scalar(array.shape[0], "index")
        inside = p.Compare([p.Const(0, "index", True), name, n], ["<=", "<"])
        element = p.Load(array.name, [name], array.dtype)
        literal = self.constant(array.dtype, True)
        look = p.Compare([element, literal], [self.random.choice(COMPARISONS)])
        if self.chance(0.3):
            outside = p.Unary("not ", inside, "bool")
            return p.Logic("or", outside, look)
        return p.Logic("and", inside, look)

    def comparison(self, depth: int) -> p.Expr:
        dtype = self.number_dtype()
        if dtype in INTEGERS and self.chance(0.3):
            other = self.random.choice(INTEGERS)  # exact whatever the signs
            operands = [self.expr(dtype, depth - 1), self.expr(other, depth - 1)]
        else:
            operands = list(self.pair(dtype, depth))
        if self.chance(0.2):
            operands.append(self.expr(dtype, depth - 1))
        return p.Compare(operands, [self.random.choice(COMPARISONS) for _ in operands[1:]])

    # --- statements -------------------------------------------------------------------------

    def block(self, count: int, depth: int, in_loop: bool = False) -> list[p.Stmt]:
        self.frames.append(Frame(in_loop=in_loop))
        body: list[p.Stmt] = []
        for _ in range(count):
            body += self.statement(depth)
        self.frames.pop()
        return body

    def declare(self, dtype: str, depth: int) -> list[p.Stmt]:
        e = self.expr(dtype, depth)
        annotate = self.chance(0.3)
        if isinstance(e, p.Const) and self.chance(0.5) and dtype != "bool":
            e.bare = annotate = isinstance(e.constant, int) or math.isfinite(e.constant)
            if e.bare:
                e = p.Const(e.constant, dtype, True)
        name = self.fresh("v")
        self.frames[-1].readable.append((name, dtype))
        self.frames[-1].writable.append((name, dtype))
        return [p.Assign(name, e, dtype, annotate)]

    def statement(self, depth: int) -> list[p.Stmt]:
        writable = [n for f in self.frames for n in f.writable]
        roll = self.random.random()
        if roll < 0.25 or not writable:
            dtype = "bool" if self.chance(0.1) else self.number_dtype()
            return self.declare(dtype, 3)
        if roll < 0.55 or depth <= 0:
            return self.change(*self.random.choice(writable))
        if roll < 0.75:
            return [self.branch(depth)]
        if roll < 0.82 and self.in_any_loop():
            leave: list[p.Stmt] = [p.Leave(self.random.choice(("break", "continue")))]
            return [p.If([(self.condition(2), leave)], [])]
        if roll < 0.88 and not self.in_helper:
            return self.atomic()
        if self.cells and not self.in_helper and self.chance(0.3):
            return self.store_cell()
        if self.trips > 40:
            return self.change(*self.random.choice(writable))
        return self.loop(depth) if self.chance(0.6) else self.while_loop(depth)

    def in_any_loop(self) -> bool:
        return any(f.in_loop for f in self.frames)

    def change(self, name: str, dtype: str) -> list[p.Stmt]:
        same = [n for f in self.frames for n in f.writable if n[1] == dtype and n[0] != name]
        if same and self.chance(0.1):
            return [p.Swap(name, self.random.choice(same)[0])]
        if dtype == "bool" or self.chance(0.4):
            return [p.Assign(name, self.expr(dtype, 3), dtype)]
        if dtype in FLOATS:
            operator = self.random.choice(("+", "-", "*", "/"))
        else:
            operator = self.random.choice(("+", "-", "*", "&", "|", "^", "//", "%", "<<", ">>"))
        if operator in ("//", "%") and dtype in INTEGERS:
            return [p.Update(name, operator, self.divisor(dtype, 2), dtype)]
        if operator in ("<<", ">>"):
            count = p.Const(self.random.randrange(BITS[dtype]), dtype, True)
            return [p.Update(name, operator, count, dtype)]
        others = [d for d in (*NUMBERS, *NARROW) if widens(d, dtype) == dtype]
        other = dtype if self.chance(0.7) else self.random.choice(others)
        e = self.constant(dtype, True) if self.chance(0.2) else self.expr(other, 2)
        return [p.Update(name, operator, e, dtype)]

    def branch(self, depth: int) -> p.Stmt:
        branches = [
            (self.condition(2), self.block(self.random.randint(1, 3), depth - 1))
            for _ in range(self.random.choice((1, 1, 1, 2, 3)))
        ]
        orelse = self.block(self.random.randint(1, 2), depth - 1) if self.chance(0.5) else []
        return p.If(branches, orelse)

    def loop(self, depth: int) -> list[p.Stmt]:
        """A loop of at most about six iterations, its bounds of any integer dtype."""
        dtype = self.random.choice(("index", "index", "i32", "u8", "i64"))
        start = self.expr(dtype, 1)
        span = p.Binary(
            "%", self.expr(dtype, 1), p.Const(self.random.randint(2, 6), dtype, True), dtype
        )
        if self.chance(0.5):
            bounds: list[p.Expr] = [span]
        elif self.chance(0.5) or dtype != "index":
            bounds = [p.Const(self.random.randrange(4), dtype, True), span]
            if self.chance(0.4):
                bounds.append(p.Const(self.random.randint(1, 3), dtype, True))
        else:
            small = p.Binary("%", start, p.Const(64, dtype, True), dtype)
            first = p.Binary("+", small, p.Const(self.random.randint(0, 9), dtype, True), dtype)
            bounds = [first, small, p.Const(-self.random.randint(2, 4), dtype, True)]
        name = self.fresh("j")
        self.frames.append(Frame([(name, "index")], [(name, "index")] if self.chance(0.3) else []))
        before, self.trips = self.trips, self.trips * 4
        body = self.block(self.random.randint(1, 4), depth - 1, in_loop=True)
        self.trips = before
        self.frames.pop()
        return [p.For(name, bounds, body)]

    def while_loop(self, depth: int) -> list[p.Stmt]:
        """Counts a variable of its own down; the first statement of the body does."""
        name, dtype = self.fresh("w"), self.random.choice(("index", "i32", "u32", "i8"))
        span = p.Const(self.random.randint(2, 6), dtype, True)
        start = p.Binary("%", self.expr(dtype, 1), span, dtype)
        test: p.Expr = p.Compare([p.Name(name, dtype), p.Const(0, dtype, True)], [">"])
        if self.chance(0.4):
            test = p.Logic("and", test, self.condition(1))
        if self.chance(0.2):
            test_in_body: list[p.Stmt] = [
                p.If([(p.Unary("not ", test, "bool"), [p.Leave("break")])], [])
            ]
            test = p.Const(True, "bool", True)
        else:
            test_in_body = []
        self.frames.append(Frame([(name, dtype)]))
        before, self.trips = self.trips, self.trips * 4
        body = self.block(self.random.randint(1, 3), depth - 1, in_loop=True)
        self.trips = before
        self.frames.pop()
        count = p.Update(name, "-", p.Const(1, dtype, True), dtype)
        return [p.Assign(name, start, dtype), p.While(test, [*test_in_body, count, *body])]

    def atomic(self) -> list[p.Stmt]:
        targets = [q for q in self.parameters if q.name.startswith("acc")]
        if not targets:
            return self.declare("i32", 2)
        target = self.random.choice(targets)
        kind = target.name.split("_")[1]
        e = self.constant(target.dtype, True) if self.chance(0.2) else self.expr(target.dtype, 2)
        index = p.Binary("%", self.expr("index", 1), p.Scalar("a", "index"), "index")
        if _constant(index.left):
            index = p.Binary("%", self.id(), p.Scalar("a", "index"), "index")
        return [p.Atomic(kind, target.name, index, e, target.dtype)]

    # --- helpers ----------------------------------------------------------------------------

    def new_helper(self, dtype: str) -> p.Helper:
        outer = self.frames, self.guard, self.in_helper, self.trips
        parameters = [
            (self.fresh("x"), self.number_dtype()) for _ in range(self.random.randint(1, 3))
        ]
        self.frames = [Frame(list(parameters), list(parameters))]
        brackets: tuple[tuple[str, int], ...] = ()
        if self.chance(0.25):
            brackets = ((self.fresh("N"), self.random.randint(0, 9)),)
            # As a variable: constant expressions are computed without wrapping.
            self.frames[0].readable.append((brackets[0][0].lower(), "index"))
        arrays = [q.dtype for q in self.parameters if len(q.shape) == 1 and not q.mut]
        self.look = self.random.choice(arrays) if arrays and self.chance(0.3) else ""
        look = self.look
        self.guard, self.in_helper, self.trips = [], True, max(self.trips, 4)
        body: list[p.Stmt] = [
            p.Assign(name.lower(), p.Cast(p.Name(name, "index"), "index"), "index")
            for name, _ in brackets
        ]
        for _ in range(self.random.randint(0, 3)):
            body += self.statement(1)
            if self.chance(0.5):
                back: list[p.Stmt] = [p.Leave("return", self.result(dtype))]
                body.append(p.If([(self.condition(1), back)], []))
        if self.chance(0.3):
            then: list[p.Stmt] = [p.Leave("return", self.result(dtype))]
            orelse: list[p.Stmt] = [p.Leave("return", self.result(dtype))]
            body.append(p.If([(self.condition(1), then)], orelse))
        elif self.chance(0.3):
            name = self.fresh("j")
            self.frames.append(Frame([(name, "index")]))
            inner = self.block(1, 0, in_loop=True)
            inner.append(p.If([(self.condition(1), [p.Leave("return", self.result(dtype))])], []))
            self.frames.pop()
            body.append(p.For(name, [p.Const(self.random.randint(1, 5), "index", True)], inner))
            body.append(p.Leave("return", self.result(dtype)))
        else:
            body.append(p.Leave("return", self.result(dtype)))
        self.frames, self.guard, self.in_helper, self.trips = outer
        self.look = ""
        annotated = [self.chance(0.5) for _ in parameters]
        helper = p.Helper(
            f"h{self.fresh('_')}_{self.name}", parameters, dtype, body, annotated, look, brackets
        )
        self.helpers.append(helper)
        return helper

    def result(self, dtype: str) -> p.Expr:
        e = self.expr(dtype, 2)
        return p.Const(e.constant, dtype) if isinstance(e, p.Const) else e

    # --- groups -----------------------------------------------------------------------------

    def place(self, lanes: int, shift: p.Expr | None = None) -> p.Expr:
        """A permutation of the lanes, at this lane."""
        t: p.Expr = p.Name("t", "index")
        count = p.Const(lanes, "index", True)
        match self.random.randrange(4):
            case 0:
                last = p.Const(lanes - 1, "index", True)
                return p.Binary("-", last, t, "index")
            case 1 if lanes & (lanes - 1) == 0:
                flip = p.Const(self.random.randrange(lanes), "index", True)
                return p.Binary("^", t, flip, "index")
            case 2 if lanes > 1 and lanes & (lanes - 1) == 0:
                odd = p.Const(2 * self.random.randrange(lanes // 2) + 1, "index", True)
                return p.Binary("%", p.Binary("*", t, odd, "index"), count, "index")
            case _:
                by = shift or p.Const(self.random.randrange(lanes), "index", True)
                return p.Binary("%", p.Binary("+", t, by, "index"), count, "index")

    def buffer(self, lanes: int, dtype: str) -> p.Alloc:
        self.shared_bytes += lanes * BITS[dtype] // 8
        return p.Alloc(self.fresh("s"), (lanes,), dtype)

    def exchange(self, lanes: int) -> list[p.Stmt]:
        """Every lane writes its place, then reads another's."""
        dtype = self.random.choice([d for d in NUMBERS if d != "index"])
        buffer = self.buffer(lanes, dtype)
        t = p.Name("t", "index")
        write = p.Store(buffer.name, [t], self.expr(dtype, 2), dtype)
        name = self.fresh("v")
        read = p.Assign(name, p.Load(buffer.name, [self.place(lanes)], dtype), dtype)
        self.frames[-1].readable.append((name, dtype))
        self.frames[-1].writable.append((name, dtype))
        return [buffer, write, p.Barrier(), read]

    def rounds(self, lanes: int) -> list[p.Stmt]:
        """A loop of exchanges, its count the same for all lanes."""
        dtype = self.number_dtype()
        if dtype == "index":
            dtype = "i32"
        buffer = self.buffer(lanes, dtype)
        declared = self.declare(dtype, 2)
        name = self.frames[-1].readable[-1][0]
        t, v, r = p.Name("t", "index"), p.Name(name, dtype), self.fresh("r")
        self.frames.append(Frame([(r, "index")]))
        by = p.Binary("+", p.Name(r, "index"), p.Const(1, "index", True), "index")
        other = p.Load(buffer.name, [self.place(lanes, by)], dtype)
        operator = self.random.choice("+-*" if dtype in FLOATS else "+-*^&|")
        step: list[p.Stmt] = [p.Assign(name, p.Binary(operator, v, other, dtype), dtype)]
        if self.chance(0.5):
            step = [
                p.If(
                    [(self.condition(1), step)],
                    self.change(name, dtype) if self.chance(0.5) else [],
                )
            ]
        body: list[p.Stmt] = [
            p.Store(buffer.name, [t], v, dtype), p.Barrier(), *step,
            *(self.block(1, 1) if self.chance(0.5) else []), p.Barrier(),
            *(self.collective(lanes) + self.change(name, dtype) if self.collects else []),
        ]  # fmt: skip
        self.frames.pop()
        bounds: list[p.Expr] = [p.Const(self.random.randint(1, 4), "index", True)]
        if self.chance(0.3):
            bounds = [p.Binary("%", p.Scalar("n", "index"), p.Const(4, "index", True), "index")]
        return [buffer, *declared, p.UniformFor(r, bounds, body)]

    def tree(self, lanes: int) -> list[p.Stmt]:
        """A reduction by halves, over a number of lanes that is a power of two."""
        dtype = self.random.choice(("i32", "u32", "f32", "i64", "u8", "f16", "f64"))
        buffer = self.buffer(lanes, dtype)
        t, d = p.Name("t", "index"), self.fresh("d")
        half = p.Name(d, "index")
        other = p.Load(buffer.name, [p.Binary("+", t, half, "index")], dtype)
        operator = self.random.choice("+*" if dtype in FLOATS else "+*^&|")
        top = 1 << (lanes.bit_length() - 1)
        halves = p.Store(buffer.name, [t], other, dtype, operator)
        body: list[p.Stmt] = [
            p.If([(p.Compare([t, half], ["<"]), [halves])], []), p.Barrier(),
            p.Update(d, "//" if self.chance(0.5) else ">>", p.Const(2, "index", True), "index"),
        ]  # fmt: skip
        if body[2].operator == ">>":  # type: ignore[attr-defined]
            body[2] = p.Update(d, ">>", p.Const(1, "index", True), "index")
        name = self.fresh("v")
        test = p.Compare([half, p.Const(0, "index", True)], [">"])
        made: list[p.Stmt] = [
            buffer, p.Store(buffer.name, [t], self.expr(dtype, 2), dtype), p.Barrier(),
            p.Assign(d, p.Const(top // 2, "index", True), "index"), p.UniformWhile(test, body),
            p.Assign(name, p.Load(buffer.name, [p.Const(0, "index", True)], dtype), dtype),
        ]  # fmt: skip
        self.frames[-1].readable.append((name, dtype))
        return made

    def counted(self, lanes: int) -> list[p.Stmt]:
        """Atomics in shared memory between two barriers."""
        dtype = self.random.choice(ATOMIC)
        buffer = self.buffer(lanes, dtype)
        kind = self.random.choice(("add", "min", "max", "xor", "and", "or", "sub"))
        t, count = p.Name("t", "index"), p.Const(self.random.choice((1, 3, lanes)), "index", True)
        index = p.Binary("%", self.id() if self.chance(0.5) else t, count, "index")
        act: p.Stmt = p.Atomic(kind, buffer.name, index, self.expr(dtype, 2), dtype)
        if self.chance(0.5):
            act = p.If([(self.condition(2), [act])], [])
        name = self.fresh("v")
        read = p.Assign(name, p.Load(buffer.name, [self.place(lanes)], dtype), dtype)
        self.frames[-1].readable.append((name, dtype))
        return [buffer, p.Store(buffer.name, [t], self.constant(dtype), dtype), p.Barrier(), act,
                p.Barrier(), read]  # fmt: skip

    def together(self, lanes: int) -> list[p.Stmt]:
        if self.collects and self.chance(0.6):
            return self.collectives(lanes)
        if self.shared_bytes > 24 << 10:
            return []
        made = self.random.choice(
            (self.exchange, self.exchange, self.rounds, self.tree, self.counted)
        )(lanes)
        most = p.Const(self.random.randint(2, 100), "index", True)
        uniform = p.Compare([p.Scalar("n", "index"), most], ["<"])
        if self.chance(0.15) and isinstance(made[0], p.Alloc):
            allocs = [s for s in made if isinstance(s, p.Alloc)]
            rest = [s for s in made if not isinstance(s, p.Alloc)]
            self.frames[-1].readable = [
                n for n in self.frames[-1].readable if n not in _set_by(rest)
            ]
            self.frames[-1].writable = [
                n for n in self.frames[-1].writable if n not in _set_by(rest)
            ]
            return [*allocs, p.UniformIf(uniform, rest, [])]
        return made

    # --- the kernel ---------------------------------------------------------------------------

    def kernel(self) -> p.Kernel:
        tiles = ((1,), (2,), (7,), (16,), (32,), (33,), (64,), (4, 8), (3, 5), (2, 4, 4), (96,))
        self.tile = self.random.choice(tiles)
        self.grid = self.random.choice(GRIDS)
        lanes, groups = math.prod(self.tile), math.prod(self.grid)
        total = lanes * groups
        sizes = {"n": max(1, total - self.random.choice((0, 0, 1, 5)))}
        sizes |= {
            name: self.random.randint(1, most) for name, most in (("h", 5), ("w", 9), ("a", 4))
        }
        self.declare_parameters()
        i, t = p.Id("grid_tile_linear_id"), p.Id("tile_linear_id")
        body: list[p.Stmt] = [p.Assign("i", i, "index"), p.Assign("t", t, "index")]
        self.frames = [Frame([("i", "index"), ("t", "index")])]
        for _ in range(self.random.randint(0, 2) if self.collects else 0):
            self.new_table()
        for _ in range(self.random.randint(0, 2) if self.collects else 0):
            body += self.new_cells()
        for _ in range(self.random.randint(0, 3)):
            body += self.statement(2)
        for _ in range(self.random.choice((2, 3, 5) if self.collects else (0, 1, 1, 2, 3))):
            body += self.together(lanes)
            body += self.statement(2)
        body += self.results()
        return p.Kernel(
            self.name,
            self.tile,
            self.grid,
            self.parameters,
            _allocs_first(body),
            self.helpers,
            sizes,
            self.tables,
            *self.head(sizes),
        )

    def head(self, sizes: dict[str, int]) -> tuple[str, tuple[str, ...]]:
        """What says how many groups there are, and conditions that hold of the call. Drawn apart
        from all else, so that the program of a seed stays what it was."""
        drawn = random.Random(f"{self.name} {self.grid} {sorted(sizes.items())}")
        said = drawn.choice(("clause", "sizes", "call", "call", "both"))
        bound = {name for q in self.parameters for name in q.shape}
        facts = [f"{name} {relation} {n + more}" for name, n in sizes.items() if name in bound
                 for relation, more in (("==", 0), ("<=", 0), (">=", 0), ("<", 1))]  # fmt: skip
        return said, tuple(drawn.sample(facts, drawn.choice((0, 0, 1, 2))))

    def declare_parameters(self) -> None:
        made = self.parameters
        for _ in range(self.random.randint(4, 7)):
            shape = ("h", "w") if self.chance(0.2) else ("n",)
            dtype = self.random.choice(NARROW) if self.chance(0.1) else self.number_dtype()
            made.append(p.Parameter(self.fresh("x"), "i64" if dtype == "index" else dtype, shape))
            made[-1].const = self.collects and self.chance(0.3)
        for _ in range(self.random.randint(0, 2)):
            made.append(p.Parameter(self.fresh("q"), self.number_dtype()))
        if self.chance(0.5):
            kind = self.random.choice(("add", "min", "max", "xor", "and", "or", "sub"))
            made.append(
                p.Parameter(self.fresh(f"acc_{kind}_"), self.random.choice(ATOMIC), ("a",), True)
            )
        for _ in range(self.random.randint(1, 3)):
            dtype = self.random.choice(NARROW) if self.chance(0.07) else self.number_dtype()
            if self.chance(0.07):
                dtype = "bool"
            made.append(
                p.Parameter(self.fresh("out"), "i64" if dtype == "index" else dtype, ("n",), True)
            )
        made.append(p.Parameter("digest", "i64", ("n",), True))
        # The sizes must be bound by some array.
        made.append(p.Parameter(self.fresh("z"), "i32", ("h", "w")))
        made.append(p.Parameter(self.fresh("z"), "i32", ("a",)))

    def results(self) -> list[p.Stmt]:
        """Every output gets what was computed, at the lane's own element."""
        n, i = p.Scalar("n", "index"), p.Name("i", "index")
        style = self.random.randrange(3)
        if style == 2:
            return self.strided_results()
        made: list[p.Stmt] = []
        if style == 1:
            made.append(p.If([(p.Compare([i, n], [">="]), [p.Leave("return")])], []))
        self.guard.append("i")
        self.frames.append(Frame())
        inner: list[p.Stmt] = []
        for _ in range(self.random.randint(1, 4)):
            inner += self.statement(3)
        inner += self.stores("i")
        self.frames.pop()
        return [*made, *inner] if style == 1 else [p.If([(p.Compare([i, n], ["<"]), inner)], [])]

    def strided_results(self) -> list[p.Stmt]:
        n, i, e = p.Scalar("n", "index"), p.Name("i", "index"), self.fresh("e")
        self.guard.append(e)
        self.frames.append(Frame([(e, "index")], in_loop=True))
        inner: list[p.Stmt] = []
        for _ in range(self.random.randint(1, 3)):
            inner += self.statement(2)
        inner += self.stores(e)
        self.frames.pop()
        return [p.For(e, [i, n, p.Id("grid_tile_count")], inner)]

    def digest(self, name: str) -> list[p.Stmt]:
        """All variables in sight, mixed into one element of `digest`."""
        made: list[p.Stmt] = []
        for variable, dtype in self.names():
            if dtype in NARROW or variable in (name, "i", "t"):
                continue
            bits: p.Expr = p.Name(variable, dtype)
            if dtype in FLOATS:
                bits = p.FloatBits(variable, dtype, f"u{BITS[dtype]}")
            e = bits if bits.dtype == "i64" else p.Cast(bits, "i64")
            place: list[p.Expr] = [p.Name(name, "index")]
            made.append(p.Store("digest", place, p.Const(31, "i64", True), "i64", "*"))
            made.append(p.Store("digest", place, e, "i64", "^"))
        return made

    def stores(self, name: str) -> list[p.Stmt]:
        made = self.digest(name)
        n = p.Scalar("n", "index")
        for q in self.parameters:
            if not q.name.startswith("out"):
                continue
            at: p.Expr = p.Name(name, "index")
            if self.chance(0.2):
                at = p.Binary(
                    "-", p.Binary("-", n, p.Const(1, "index", True), "index"), at, "index"
                )
            known = [m for m in self.names() if m[1] == q.dtype]
            e = (
                p.Name(*self.random.choice(known))
                if known and self.chance(0.4)
                else self.expr(q.dtype, 4)
            )
            made.append(p.Store(q.name, [at], e, q.dtype))
            if self.chance(0.3) and q.dtype in NUMBERS:
                operator = self.random.choice("+-*")
                made.append(p.Store(q.name, [at], self.expr(q.dtype, 2), q.dtype, operator))
            if self.chance(0.2):
                late: list[p.Stmt] = [p.Store(q.name, [at], self.expr(q.dtype, 2), q.dtype)]
                made.append(p.If([(self.condition(2), late)], []))
        return made


def _constant(e: p.Expr) -> bool:
    """Whether the value may be known at compile time."""
    match e:
        case p.Const():
            return True
        case p.Binary():
            return _constant(e.left) and _constant(e.right)
        case p.Unary() | p.Cast() | p.Bits():
            return _constant(e.operand)
        case p.Power():
            return e.exponent == 0 or _constant(e.base)
        case p.Call():
            return all(_constant(x) for x in e.operands)
        case p.Choice():
            return _constant(e.then) and _constant(e.orelse)
        case p.Id():
            return e.name in ("group_tile_count", "group_count", "group_id", "tile_id", "warp_id")
        case _:
            return False


def _set_by(body: list[p.Stmt]) -> list[tuple[str, str]]:
    made = [(s.name, s.dtype) for s in body if isinstance(s, p.Assign)]
    return made + [n for s in body for b in s.blocks() for n in _set_by(b)]


def _allocs_first(body: list[p.Stmt]) -> list[p.Stmt]:
    allocs = [s for s in body if isinstance(s, p.Alloc)]
    return [*allocs, *(s for s in body if not isinstance(s, p.Alloc))]


def input_value(r: random.Random, dtype: str) -> Number:
    """An element of an input: often a value at the edge of its dtype."""
    if dtype == "bool":
        return r.random() < 0.5
    if dtype in INTEGERS:
        low, high = limits(dtype)
        if r.random() < 0.3:
            return r.choice((low, high, 0, 1, high - 1, max(low, -1)))
        if r.random() < 0.5:
            return r.randint(max(low, -20), 20)
        return r.randint(low, high)
    if r.random() < 0.25:
        pool = (
            0.0,
            -0.0,
            math.inf,
            -math.inf,
            math.nan,
            1e-41,
            -1e-6,
            1.0,
            -1.0,
            65504.0,
            3e38,
            1e30,
        )
        value = r.choice(pool)
        if dtype in NARROW and not math.isfinite(value):
            value = 1.0
        return rounded(value, dtype)
    return rounded(r.uniform(-1, 1) * 10 ** r.uniform(-2, r.choice((1, 3, 6))), dtype)


def arguments(kernel: p.Kernel, seed: int) -> tuple[dict[str, p.Array], dict[str, Number]]:
    r = random.Random(seed)
    arrays: dict[str, p.Array] = {}
    scalars: dict[str, Number] = {}
    for q in kernel.parameters:
        if not q.shape:
            value = input_value(r, q.dtype)
            scalars[q.name] = value
            continue
        shape = tuple(kernel.sizes[s] for s in q.shape)
        items = [input_value(r, q.dtype) for _ in range(math.prod(shape))]
        arrays[q.name] = p.Array(q.dtype, shape, items)
    return arrays, scalars


__all__ = ["SIGNED", "Generator", "arguments", "input_value"]
