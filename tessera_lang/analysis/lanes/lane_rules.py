"""What an operation without regions gives for all lanes of a group at once.

A result that is not exact is a symbol where uniformity says that it is the same in all lanes,
else unknown. Must not know control flow or memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from tessera_lang.analysis.lanes.lane_forms import Form, Mask, Space, negative, not_positive, zero
from tessera_lang.analysis.ranges.intervals import fits
from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.ranges.state import Ranges
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Operation, Value, ViewType
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType, integer_range

_TURN = (1 << 64) - (1 << 40)  # what is within wraps to no small number that it is not
_END = 1 << 63  # no integer is beyond it


def wrap(value: int, dtype: DType) -> int:
    low, high = integer_range(dtype)
    return value if low <= value <= high else (value - low) % (high - low + 1) + low


def _wrapped(values: list[int], dtype: DType) -> list[int]:
    low, high = integer_range(dtype)
    inside = low <= min(values) and max(values) <= high
    return values if inside else [wrap(value, dtype) for value in values]


def _shift(count: int, bits: int) -> int:
    return count if 0 <= count < bits else bits


INTEGERS: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, _: a + b,
    "sub": lambda a, b, _: a - b,
    "mul": lambda a, b, _: a * b,
    "floordiv": lambda a, b, _: a // b if b else 0,
    "mod": lambda a, b, _: a % b if b else 0,
    "min": lambda a, b, _: min(a, b),
    "max": lambda a, b, _: max(a, b),
    "and": lambda a, b, _: a & b,
    "or": lambda a, b, _: a | b,
    "xor": lambda a, b, _: a ^ b,
    "shl": lambda a, b, bits: a << b if 0 <= b < bits else 0,
    "shr": lambda a, b, bits: a >> _shift(b, bits),
}
"""Operations on two integers; the result is to be wrapped into the dtype."""

UNARY: dict[str, Callable[[int], int]] = {
    "neg": lambda a: -a, "abs": abs, "not": lambda a: ~a,
}  # fmt: skip

_COMPARED: dict[str, tuple[int, Callable[[int, int], tuple[bool, bool]], bool]] = {
    "lt": (1, negative, True), "le": (1, not_positive, True), "gt": (-1, negative, True),
    "ge": (-1, not_positive, True), "eq": (1, zero, True), "ne": (1, zero, False),
}  # fmt: skip
"""Predicate: the sign of ``a - b``, the test on it, and whether it is to be true."""


Residue: TypeAlias = tuple[int, tuple[int, ...]]


@dataclass(slots=True)
class LaneRules:
    """The forms of values so far.

    ``unwrapped``: of 64-bit sums that might wrap, the sum without wrapping. Where that is no
    place in a buffer, nor is the wrapped one: it serves as a place, and for nothing else.
    ``residues``: of values that are not known, a power of two and what each lane has modulo that.
    ``unique``: of values that no two lanes have, which they are, and what was added.
    """

    group: tuple[int, ...]
    space: Space
    uniformity: Uniformity
    ranges: Ranges
    forms: dict[Value, Form] = field(default_factory=dict[Value, Form])
    unwrapped: dict[Value, Linear] = field(default_factory=dict[Value, Linear])
    residues: dict[Value, Residue] = field(default_factory=dict["Value", "Residue"])
    unique: dict[Value, tuple[object, int]] = field(
        default_factory=dict["Value", "tuple[object, int]"]
    )

    def form(self, value: Value) -> Form:
        return self.forms.get(value)

    def mask(self, value: Value) -> Mask:
        """A condition; one that is not known may hold or not."""
        form = self.forms.get(value)
        return form if isinstance(form, Mask) else Mask(0, self.space.everyone)

    def apply(self, operation: Operation) -> None:
        """Give the result of an operation its form."""
        if len(operation.results) != 1:
            for value in operation.results:
                self.forms[value] = self.unknown(value)
            return
        value = operation.result
        if not isinstance(value.type, DType):
            return
        rule = _RULES.get(operation.name)
        form = rule(self, operation) if rule is not None else None
        if form is None:
            form = self._opaque(operation)
        self.forms[value] = form
        self.residues.pop(value, None)
        self.unique.pop(value, None)
        if form is None and value.type.is_integer:
            self._remember(operation)

    def _remember(self, operation: Operation) -> None:
        """What is known of an integer of which each lane has another unknown one."""
        name, value = operation.name.removeprefix("tile."), operation.result
        if name == "cast":
            source, (operand,) = operation.operands[0].type, operation.operands
            narrow = isinstance(source, DType) and source.is_integer
            if narrow and operand in self.residues:
                modulus, numbers = self.residues[operand]
                self.residues[value] = (min(modulus, 1 << _dtype(operation).bits - 1), numbers)
            if narrow and operand in self.unique and _dtype(operation).bits >= 32:
                self.unique[value] = self.unique[operand]
        elif name in ("mul", "shl"):
            a, b = (self.forms.get(o) for o in operation.operands)
            factor = b if a is None else a
            if isinstance(factor, Linear) and not factor.terms and (name == "mul" or a is None):
                number = factor.constant
                step = number & -number if name == "mul" else 1 << min(max(number, 0), 30)
                step = min(step, 1 << _dtype(operation).bits - 1)  # sums wrap by a multiple of it
                if step > 1:
                    self.residues[value] = (step, (0,) * self.space.lanes)
        elif name in ("add", "sub", "or"):
            self._sum(operation, name)

    def _sum(self, operation: Operation, name: str) -> None:
        value, (x, y) = operation.result, operation.operands
        for open_, other in ((x, y), (y, x)):
            form, residue = self.forms.get(other), self.residues.get(open_)
            if not isinstance(form, Linear) or (name == "sub" and open_ is y):
                continue
            terms, numbers = self.space.split(form)
            sign = -1 if name == "sub" else 1
            if residue is not None and not terms:
                apply = INTEGERS[name]
                modulus, mine = residue
                pairs = zip(mine, numbers, strict=True)
                self.residues[value] = (modulus, tuple(apply(a, b, 64) for a, b in pairs))
            if name != "or" and open_ in self.unique and not form.terms:
                key, off = self.unique[open_]
                self.unique[value] = (key, off + sign * form.constant)

    def unknown(self, value: Value, key: object = None) -> Form:
        """A new unknown: one for all lanes where that is known, else None."""
        t = value.type
        if not isinstance(t, DType) or not self.uniformity.is_uniform(value):
            return None
        if t.kind == "bool":
            return Mask(0, self.space.everyone)
        return self.space.symbol(key, self.ranges.interval(value) if t.is_integer else (0, 0))

    def _opaque(self, operation: Operation) -> Form:
        """Equal operations on equal forms give one symbol."""
        key: object = None
        if operation.name in _PURE and operation.operands:
            forms = tuple(self.forms.get(o) for o in operation.operands)
            if all(isinstance(f, Linear) for f in forms):
                kind = cast("DType", operation.result.type).name
                key = (operation.name, kind, forms)
        return self.unknown(operation.result, key)

    def stays(self, operation: Operation) -> bool:
        """Whether a sum or difference does not wrap, by what is known of the two where it is."""
        (a, b), (low, high) = map(self.ranges.interval, operation.operands)
        if operation.name == "tile.sub":
            low, high = -high, -low
        return fits(cast("DType", operation.result.type), (a + low, b + high))

    def exact(self, form: Linear, dtype: DType) -> Form:
        """A form as a value of the dtype: wrapped where all lanes are known, else only if it
        cannot wrap."""
        if fits(dtype, self.space.range(form)):
            return form
        if self.space.known(form):
            return self.space.vector([wrap(v, dtype) for v in self.space.split(form)[1]])
        return None

    def select(self, condition: Mask, a: Form, b: Form) -> Form:
        """``a`` where the condition holds, else ``b``; None where that is not known."""
        if a == b:
            return a
        if isinstance(a, Mask) and isinstance(b, Mask):
            must = condition.must & a.must | ~condition.may & b.must | a.must & b.must
            may = condition.may & a.may | ~condition.must & b.may
            return Mask(must & self.space.everyone, may & self.space.everyone)
        if not (condition.exact and isinstance(a, Linear) and isinstance(b, Linear)):
            return None
        if condition.may in (0, self.space.everyone):
            return a if condition.may else b
        (s, x), (t, y) = self.space.split(a), self.space.split(b)
        if s != t:
            return None
        lanes = condition.may
        values = [v if lanes >> i & 1 else w for i, (v, w) in enumerate(zip(x, y, strict=True))]
        return self.space.vector(values) + Linear(s)


_Rule = Callable[[LaneRules, Operation], Form]


def _dtype(operation: Operation) -> DType:
    return cast("DType", operation.result.type)


def _constant(rules: LaneRules, operation: Operation) -> Form:
    dtype, value = _dtype(operation), operation.attributes["value"]
    if dtype.kind == "bool":
        lanes = rules.space.everyone if value else 0
        return Mask(lanes, lanes)
    if dtype.is_integer:
        return Linear((), int(cast("int", value)))
    return rules.space.symbol(("constant", dtype.name, repr(value)), (0, 0))


def _lane_linear(rules: LaneRules, operation: Operation) -> Form:
    return rules.space.vector(range(rules.space.lanes))


def _lane_index(rules: LaneRules, operation: Operation) -> Form:
    axis = cast("int", operation.attributes["axis"])
    if axis >= len(rules.group):
        return Linear()
    inner = 1
    for extent in rules.group[axis + 1 :]:
        inner *= extent
    extent = rules.group[axis]
    return rules.space.vector([lane // inner % extent for lane in range(rules.space.lanes)])


def _grid(rules: LaneRules, operation: Operation) -> Form:
    key = (operation.name, operation.attributes.get("axis", -1))
    return rules.space.symbol(key, rules.ranges.interval(operation.result))


def _binary(rules: LaneRules, operation: Operation) -> Form:
    a, b = (rules.form(o) for o in operation.operands)
    name, dtype = operation.name.removeprefix("tile."), _dtype(operation)
    rules.unwrapped.pop(operation.result, None)
    if dtype.kind == "bool":
        return _logic(rules, name, a, b)
    if name in ("add", "sub") and dtype.bits == 64:
        a, b = (
            f or rules.unwrapped.get(o) for f, o in zip((a, b), operation.operands, strict=True)
        )
    if not (isinstance(a, Linear) and isinstance(b, Linear) and dtype.is_integer):
        return None
    if name in ("add", "sub"):
        total = a.plus(b, 1 if name == "add" else -1)
        # Of two numbers that vary, other rules know more of what they leave as it is written.
        steps = not (a.terms and b.terms)
        form = total if steps and rules.stays(operation) else rules.exact(total, dtype)
        low, high = rules.space.range(total)
        if form is None and dtype.bits == 64 and -_TURN < low <= high < _TURN:
            rules.unwrapped[operation.result] = total
        return form
    if name == "mul" and not (a.terms and b.terms):
        return rules.exact(b.scaled(a.constant) if not a.terms else a.scaled(b.constant), dtype)
    if rules.space.known(a) and rules.space.known(b):
        apply, bits = INTEGERS[name], dtype.bits
        if not (a.terms or b.terms):
            return Linear((), wrap(apply(a.constant, b.constant, bits), dtype))
        pairs = zip(rules.space.split(a)[1], rules.space.split(b)[1], strict=True)
        return rules.space.vector(_wrapped([apply(x, y, bits) for x, y in pairs], dtype))
    return _divided(rules, name, a, b, dtype.bits)


def _divided(rules: LaneRules, name: str, a: Linear, b: Linear, bits: int) -> Form:
    """``(c*q + r) // c`` and ``% c``, also as a shift or a mask, where every symbol has a multiple
    of c, or all lanes add the same to the others but for multiples of c."""
    divisor = b.constant
    if name == "shr" and 0 <= divisor < bits:
        name, divisor = "floordiv", 1 << divisor
    elif name == "and" and divisor & (divisor + 1) == 0:
        name, divisor = "mod", divisor + 1
    if b.terms or divisor <= 0 or name not in ("floordiv", "mod"):
        return None
    terms, values = rules.space.split(a)
    low, high = rules.space.range(a)
    if not -_END <= low <= high < _END:
        return None
    shared = Linear(tuple(term for term in terms if term[1] % divisor))
    if shared.terms:
        rest = values[0] % divisor
        if rules.space.uniform(a) or any(v % divisor != rest for v in values):
            return None
        shared, values = shared.shifted(rest), tuple(v - rest for v in values)
        low, high = rules.space.range(shared)
        ends = (low // divisor, high // divisor) if name == "floordiv" else (0, divisor - 1)
        shared = rules.space.symbol((name, divisor, shared), ends)
    if name == "mod":
        return shared if shared.terms else rules.space.vector([v % divisor for v in values])
    whole = (term for term in terms if term[1] % divisor == 0)
    quotient = Linear(tuple((atom, factor // divisor) for atom, factor in whole))
    return rules.space.vector([v // divisor for v in values]) + quotient + shared


def _logic(rules: LaneRules, name: str, a: Form, b: Form) -> Form:
    everyone = rules.space.everyone
    x = a if isinstance(a, Mask) else Mask(0, everyone)
    y = b if isinstance(b, Mask) else Mask(0, everyone)
    match name:
        case "and" | "min":
            return x.both(y)
        case "or" | "max":
            return x.either(y)
        case "xor":
            one, other = x.without(y), y.without(x)
            return one.either(other)
        case _:
            return None


def _unary(rules: LaneRules, operation: Operation) -> Form:
    a, dtype = rules.form(operation.operands[0]), _dtype(operation)
    name = operation.name.removeprefix("tile.")
    if isinstance(a, Mask):
        everyone = Mask(rules.space.everyone, rules.space.everyone)
        return everyone.without(a) if name == "not" else None
    if not isinstance(a, Linear) or not dtype.is_integer:
        return None
    if name == "neg":
        return rules.exact(a.scaled(-1), dtype)
    if rules.space.known(a):
        apply = UNARY[name]
        return rules.space.vector(_wrapped([apply(v) for v in rules.space.split(a)[1]], dtype))
    return None


def _compare(rules: LaneRules, operation: Operation) -> Form:
    a, b = (rules.form(o) for o in operation.operands)
    dtype = cast("DType", operation.operands[0].type)
    if dtype.is_float:
        a, b = (_whole(rules, o) for o in operation.operands)
    if not (isinstance(a, Linear) and isinstance(b, Linear)):
        return None
    sign, test, truth = _COMPARED[cast("str", operation.attributes["predicate"])]
    found = rules.space.where((a - b).scaled(sign), test)
    return found if truth else Mask(rules.space.everyone, rules.space.everyone).without(found)


_EXACT_IN_F32 = 1 << 24


def _whole(rules: LaneRules, value: Value) -> Form:
    """A float that is surely a whole number: a literal, or an integer that its dtype has."""
    made = rules.uniformity.definitions.get(value)
    dtype = cast("DType", value.type)
    if made is None or dtype.bits < 32:
        return None
    if made.name == "tile.constant":
        held = made.attributes["value"]
        whole = isinstance(held, float) and held.is_integer() and abs(held) <= _EXACT_IN_F32
        return Linear((), int(cast("float", held))) if whole else None
    form = rules.form(made.operands[0]) if made.name == "tile.cast" else None
    if not isinstance(form, Linear) or not cast("DType", made.operands[0].type).is_integer:
        return None
    low, high = rules.space.range(form)
    return form if -_EXACT_IN_F32 <= low <= high <= _EXACT_IN_F32 else None


def _select(rules: LaneRules, operation: Operation) -> Form:
    condition, a, b = operation.operands
    return rules.select(rules.mask(condition), rules.form(a), rules.form(b))


def _cast(rules: LaneRules, operation: Operation) -> Form:
    (operand,) = operation.operands
    a, source, dtype = rules.form(operand), cast("DType", operand.type), _dtype(operation)
    if isinstance(a, Mask):
        if dtype.kind == "bool":
            return a
        if not a.exact or not dtype.is_integer:
            return None
        return rules.space.vector([a.may >> i & 1 for i in range(rules.space.lanes)])
    if not isinstance(a, Linear) or not source.is_integer:
        return None
    if dtype.kind == "bool":
        everyone = Mask(rules.space.everyone, rules.space.everyone)
        return everyone.without(rules.space.where(a, zero))
    return rules.exact(a, dtype) if dtype.is_integer else None


def _load(rules: LaneRules, operation: Operation) -> Form:
    """What is read is not known; from an array nobody writes it may be one number for all."""
    view, *indices = operation.operands
    if not isinstance(view.type, ViewType):
        return None
    form = rules.unknown(operation.result)
    if form is None and view not in rules.uniformity.written:
        forms = [rules.form(i) for i in indices]
        kind = cast("DType", operation.result.type)
        if kind.is_integer and all(f is not None and rules.space.uniform(f) for f in forms):
            return rules.space.symbol(None, rules.ranges.interval(operation.result))
    return form


_PURE = frozenset(
    f"tile.{name}"
    for name in (*INTEGERS, *UNARY, "cast", "div", "sqrt", "floor", "ceil", "trunc", "round")
)
_RULES: dict[str, _Rule] = {
    "tile.constant": _constant,
    "tile.lane_linear": _lane_linear,
    "tile.lane_index": _lane_index,
    "tile.group_linear": _grid,
    "tile.group_index": _grid,
    "tile.group_count": _grid,
    **dict.fromkeys((f"tile.{name}" for name in INTEGERS), _binary),
    **dict.fromkeys((f"tile.{name}" for name in UNARY), _unary),
    "tile.cmp": _compare,
    "tile.select": _select,
    "tile.cast": _cast,
    "tile.load": _load,
}
