"""Which part of its axis a loop has to go along: what a mask hides from all of its reductions, tile
by tile, is not computed.

A term of a sum is 0 where a condition is false, and one of a maximum -inf. Where conditions compare
places along the rows and along the axis, the places at which one may hold are a range. Owns the
conditions and the range. Must not know what else a kernel does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, cast

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    ROWS,
    STREAM,
    Windows,
    is_elementwise,
    labels_of,
    moved,
)
from tessera_lang.lower.graph_to_kernels.reduction_terms import Terms
from tessera_lang.record import dataclass, field

Place = tuple[Value, Windows, bool]
"""A condition and what it is where the term counts."""
_MOVES = ("graph.broadcast", "graph.reshape", "graph.transpose")
_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class Way:
    """What makes the result of an operator a number: ``operands`` (which, and what each is) that
    are all so. ``needs`` of the second operand: that it is the same along the axis, or a number
    greater than 0."""

    operands: tuple[tuple[int, float], ...]
    needs: Literal["", "same", "positive"] = ""


_OF_ZERO = ("cast", "neg", "abs", "sqrt", "sin", "tan", "asin", "atan", "sinh", "tanh", "asinh",
            "atanh", "erf", "expm1", "log1p", "gelu", "silu", "relu", "floor", "ceil", "trunc",
            "round")  # fmt: skip
"""Operators that give 0 of 0."""
_LEFT, _RIGHT = (((0, -math.inf),), ((1, -math.inf),))
WAYS: dict[tuple[str, float], tuple[Way, ...]] = {
    **{(name, 0.0): (Way(((0, 0.0),)),) for name in _OF_ZERO},
    **{(name, 0.0): (Way(_LEFT),) for name in ("exp", "exp2", "sigmoid", "softplus")},
    ("relu", 0.0): (Way(((0, 0.0),)), Way(_LEFT)),
    ("mul", 0.0): (Way(((0, 0.0),)), Way(((1, 0.0),))),
    ("div", 0.0): (Way(((0, 0.0),), "same"),),
    **{(name, 0.0): (Way(((0, 0.0), (1, 0.0))),) for name in ("add", "sub", "max", "min")},
    ("add", -math.inf): (Way(_LEFT), Way(_RIGHT)),
    ("min", -math.inf): (Way(_LEFT), Way(_RIGHT)),
    ("max", -math.inf): (Way((*_LEFT, *_RIGHT)),),
    **{(name, -math.inf): (Way(_LEFT),) for name in ("sub", "cast")},
    **{(name, -math.inf): (Way(_LEFT, "positive"),) for name in ("mul", "div")},
}
"""By operator, and by what its result is then; `where` and moves of elements have rules of their
own. A product with 0 is 0 here whatever the other factor is: what is hidden does not count."""


@dataclass(frozen=True, slots=True)
class Range:
    """Where a loop begins and ends, as text: the greatest of the begins, the least of the ends."""

    begins: tuple[str, ...]
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """``rows * row + stream * place + constant``, and loop variables times numbers."""

    rows: int = 0
    stream: int = 0
    constant: int = 0
    others: tuple[tuple[str, int], ...] = ()

    def plus(self, other: _Line, factor: int = 1) -> _Line:
        others = dict(self.others)
        for name, number in other.others:
            others[name] = others.get(name, 0) + factor * number
        return _Line(
            self.rows + factor * other.rows, self.stream + factor * other.stream,
            self.constant + factor * other.constant,
            tuple((n, x) for n, x in others.items() if x),
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Masks:
    """What ``terms`` says of the values of a loop whose tiles have ``rows`` rows and ``steps``
    places along the axis."""

    terms: Terms
    rows: int
    steps: int
    _known: dict[tuple[float, Value, Windows], frozenset[Place]] = field(
        default_factory=lambda: dict[tuple[float, Value, Windows], frozenset[Place]]()
    )

    def range_of(self, reduced: Iterable[tuple[Value, Windows, float]]) -> Range:
        """The places at which a term may count. ``reduced``: what each reduction of the loop
        reduces, and the term that changes nothing."""
        found = [self._neutral(v, w, number) for v, w, number in reduced]
        places = frozenset[Place].intersection(*found) if found else frozenset[Place]()
        order = {v: n for n, v in enumerate(self.terms.made)} if places else {}
        begins: dict[str, None] = {}
        ends: dict[str, None] = {}
        for place in sorted(places, key=lambda p: (order[p[0]], str(p[1]), p[2])):
            for line in self._not_negative(place):
                self._add(line, begins, ends)
        return Range(tuple(begins), tuple(ends))

    # --- conditions --------------------------------------------------------------------

    def _neutral(self, value: Value, windows: Windows, number: float) -> frozenset[Place]:
        """Conditions of which each makes a value ``number``, 0 or -inf, where it does not hold."""
        key = number, value, windows
        if key not in self._known:
            self._known[key] = self._found(value, windows, number)
        return self._known[key]

    def _found(self, value: Value, windows: Windows, number: float) -> frozenset[Place]:
        operation = self._inside(value)
        if operation is None:
            return frozenset()
        inner = moved(operation, windows)
        if inner is not None:
            return self._neutral(operation.operands[0], inner, number)
        name = operation.name.removeprefix("graph.")
        if name == "where":
            return self._chosen(operation, windows, number)
        found = frozenset[Place]()
        for way in WAYS.get((name, number), ()):
            if way.needs == "same" and not self._is_same(operation.operands[1], windows):
                continue
            if way.needs == "positive" and not (self.terms.known(operation.operands[1]) or 0) > 0:
                continue
            parts = [self._neutral(operation.operands[i], windows, x) for i, x in way.operands]
            found |= frozenset[Place].intersection(*parts)
        return found

    def _chosen(
        self, operation: Operation, windows: Windows, otherwise: float
    ) -> frozenset[Place]:  # fmt: skip
        condition, yes, no = operation.operands
        if self._number(no) == otherwise:
            found = self._neutral(yes, windows, otherwise)
            return found.union(self._all_of(condition, windows, True))
        if self._number(yes) == otherwise:
            found = self._neutral(no, windows, otherwise)
            return found.union(self._all_of(condition, windows, False))
        return self._neutral(yes, windows, otherwise) & self._neutral(no, windows, otherwise)

    def _is_same(self, value: Value, windows: Windows) -> bool:
        """Whether a value is surely the same along the axis."""
        operation = self._inside(value)
        if STREAM not in labels_of(windows) or operation is None:
            return STREAM not in labels_of(windows)
        inner = moved(operation, windows)
        return inner is not None and self._is_same(operation.operands[0], inner)

    def _all_of(self, value: Value, windows: Windows, holds: bool) -> Iterable[Place]:
        """Comparisons that all are as they have to be where a condition is ``holds``."""
        operation = self._inside(value)
        if operation is None:
            return
        inner = moved(operation, windows)
        name = operation.name.removeprefix("graph.")
        if inner is not None:
            yield from self._all_of(operation.operands[0], inner, holds)
        elif name == ("and" if holds else "or"):
            for v in operation.operands:
                yield from self._all_of(v, windows, holds)
        elif name == "not":
            yield from self._all_of(operation.operands[0], windows, not holds)
        elif name in _NEGATED:
            choice = self._choice(operation, name, holds)
            if choice is None:
                yield value, windows, holds
            elif choice[1] is not None:
                yield from self._all_of(choice[0], windows, choice[1])

    def _choice(
        self, operation: Operation, name: str, holds: bool
    ) -> tuple[Value, bool | None] | None:
        """Of the comparison of a number with one of two numbers: the condition that chooses, and
        what it is where the comparison is ``holds``; None of others."""
        left, right = operation.operands
        made = self._inside(left)
        number = self._number(right)
        if made is None or made.name != "graph.where" or number is None:
            return None
        condition, *choices = made.operands
        one, other = map(self._number, choices)
        if one is None or other is None:
            return None
        first, second = (_compared(name, x, number) is holds for x in (one, other))
        return condition, first if first is not second else None

    def _inside(self, value: Value) -> Operation | None:
        """What computes a value in the loop."""
        return None if value in self.terms.leaves else self.terms.made.get(value)

    def _number(self, value: Value) -> float | None:
        """The number that all elements are, infinite ones too."""
        operation = self.terms.made.get(value)
        while operation is not None and operation.name in _MOVES:
            operation = self.terms.made.get(operation.operands[0])
        if operation is None or operation.name != "graph.full":
            return None
        return float(cast("float", operation.attributes["value"]))

    # --- places ------------------------------------------------------------------------

    def _not_negative(self, place: Place) -> Iterable[_Line]:
        """Forms that are at least 0 where a comparison of places is as it has to be."""
        value, windows, holds = place
        operation = self.terms.made[value]
        name = operation.name.removeprefix("graph.")
        word = name if holds else _NEGATED[name]
        left, right = (self._line(v, windows) for v in operation.operands)
        if left is None or right is None:
            return
        if word in ("ge", "gt", "eq"):
            yield left.plus(right, -1).plus(_Line(constant=-1 if word == "gt" else 0))
        if word in ("le", "lt", "eq"):
            yield right.plus(left, -1).plus(_Line(constant=-1 if word == "lt" else 0))

    def _line(self, value: Value, windows: Windows) -> _Line | None:
        """A value as a form of places; None of others."""
        operation = self._inside(value)
        if operation is None or not value.tensor_type.dtype.is_integer:
            return None
        inner = moved(operation, windows)
        if inner is not None:
            return self._line(operation.operands[0], inner)
        name = operation.name.removeprefix("graph.")
        if name == "full":
            return _Line(constant=int(cast("int", operation.attributes["value"])))
        if name == "arange":
            (window,) = windows
            if window.label in (ROWS, STREAM):
                of_rows = window.label == ROWS
                return _Line(int(of_rows), int(not of_rows))
            return _Line(others=((window.index, 1),))
        if not is_elementwise(operation):
            return None
        lines = [self._line(v, windows) for v in operation.operands]
        if any(x is None for x in lines):
            return None
        first, *rest = cast("list[_Line]", lines)
        match name:
            case "add" | "sub":
                return first.plus(rest[0], 1 if name == "add" else -1)
            case "neg":
                return _Line().plus(first, -1)
            case "cast":
                return first
            case "mul":
                for one, other in ((first, rest[0]), (rest[0], first)):
                    if one == _Line(constant=one.constant):
                        return _Line().plus(other, one.constant)
            case _:
                pass
        return None

    def _add(self, line: _Line, begins: dict[str, None], ends: dict[str, None]) -> None:
        """Where ``line`` may be at least 0 for some row of a tile."""
        most = line.constant + max(0, line.rows) * (self.rows - 1)
        rows = (("i", line.rows),) if line.rows else ()
        if line.stream < 0:
            rest = _text((*rows, *line.others), most)
            ends[f"{_over(rest, -line.stream)} + 1" if line.stream != -1
                 else _text((*rows, *line.others), most + 1)] = None  # fmt: skip
        elif line.stream > 0:
            # rest + stream * place >= 0: the place is -rest / stream at least, rounded up
            least = _text(tuple((n, -x) for n, x in (*rows, *line.others)),
                          -most + line.stream - 1)  # fmt: skip
            first = least if line.stream == 1 else _over(least, line.stream)
            begins[f"{_inner(first)} // {self.steps} * {self.steps}"] = None


def _compared(name: str, a: float, b: float) -> bool:
    found = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}
    return found[name]


def _text(factors: Iterable[tuple[str, int]], constant: int) -> str:
    parts: list[str] = []
    for name, number in factors:
        size = name if abs(number) == 1 else f"{abs(number)} * {name}"
        if not parts:
            parts.append(size if number > 0 else f"-{size}")
        else:
            parts += ["+" if number > 0 else "-", size]
    if not parts:
        return str(constant)
    if constant:
        parts += ["+" if constant > 0 else "-", str(abs(constant))]
    return " ".join(parts)


def _inner(text: str) -> str:
    return f"({text})" if " " in text or text.startswith("-") else text


def _over(text: str, number: int) -> str:
    return f"{_inner(text)} // {number}"
