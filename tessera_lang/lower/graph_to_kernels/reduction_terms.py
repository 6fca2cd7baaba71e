"""Terms of cascaded reductions: how they split into what is the same along the axis, an exponent in
which earlier results stand, and the rest.

Owns the algebra. Must not know how terms are written.
"""

from __future__ import annotations

import math
from typing import cast

from tessera_lang.evaluate.arithmetic import round_float
from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    STREAM,
    Windows,
    is_elementwise,
    moved,
    moves_nothing,
    sizes_of,
)
from tessera_lang.record import dataclass, field

_OF_ROWS = ("graph.sum", "graph.mean", "graph.prod", "graph.reduce_max", "graph.reduce_min",
            "graph.any", "graph.all", "graph.logsumexp")  # fmt: skip
_REDUCTIONS = ("graph.sum", "graph.matmul", "graph.reduce_max", "graph.reduce_min")
Term = tuple[Value, Windows, int]
"""A factor: a value, the part of it, and its power, 1 or -1."""
Atoms = dict[tuple[Value, Windows], float]
"""A sum of values times numbers."""


class NotFused(Exception):
    """Why a value is no result of a fused loop."""


class CutError(Exception):
    """A value has to be in memory before the loop. ``why``: what of it does not split, if said."""

    def __init__(self, value: Value, why: str = "") -> None:
        self.value = value
        self.why = why
        super().__init__()


@dataclass(slots=True, eq=False)
class Terms:
    """Values of a graph, seen by a loop. ``made``: what computes each value; ``leaves``: values
    that are in memory; ``large``: those made of products element by element. ``held``: the elements
    of a row, where a tile has whole rows and there is no loop; ``stream``: those along the axis of
    the loop, 0 before it is known."""

    made: dict[Value, Operation]
    leaves: set[Value]
    large: set[Value]
    held: int = 0
    stream: int = 0
    _products: dict[Value, bool] = field(default_factory=dict[Value, bool])

    def reduces(self, value: Value, windows: Windows) -> bool:
        """Whether a value is a reduction along the stream of what the loop computes."""
        operation = self.made.get(value)
        if operation is None or value in self.leaves or any(w.label == STREAM for w in windows):
            return False
        source = operation.operands[0] if operation.operands else None
        if source is None:
            return False
        sizes = sizes_of(source)
        if self.held:
            return is_of_rows(operation) and sizes[-1] == self.held
        if source not in self.large:
            return False
        if operation.name == "graph.matmul":
            return not self.stream or sizes[-1] == self.stream
        if operation.name not in ("graph.sum", "graph.reduce_max", "graph.reduce_min"):
            return False
        axes = operation.integers("axes")
        return len(axes) == 1 and (not self.stream or sizes[axes[0]] == self.stream)

    def why_apart(self, operation: Operation) -> str:
        """Why what is made of products, and is nothing that a loop computes, is computed before
        it; nothing to say of other values."""
        if not any(v in self.large for v in operation.operands):
            return ""
        name = operation.name.removeprefix("graph.")
        if operation.name in _REDUCTIONS and operation.name != "graph.matmul":
            several = len(operation.integers("axes")) != 1
            return f"it goes along {'several axes' if several else 'another axis'}"
        return f"`{name}` is no reduction that a loop carries on"

    def has_product(self, value: Value) -> bool:
        """Whether a value is made of products that are not in memory."""
        if value not in self._products:
            operation = self.made.get(value)
            self._products[value] = (
                operation is not None and value not in self.leaves and value in self.large
                and (operation.name == "graph.matmul"
                     or any(map(self.has_product, operation.operands)))
            )  # fmt: skip
        return self._products[value]

    def check_factors(self, product: Operation) -> None:
        """Factors are in memory. One that is made of products has to be, if the product takes more
        memory than its factors do; else the product has. Raises CutError."""
        nested = [v for v in product.operands if self.has_product(v)]
        if nested and _bytes(product.result) > sum(map(_bytes, nested)):
            raise CutError(self._unmoved(nested[0]))
        if nested:
            raise CutError(product.result, "a factor of it is a product itself")

    def _unmoved(self, value: Value) -> Value:
        """What operators that move no element make a value of."""
        operation = self.made.get(value)
        while operation is not None and value not in self.leaves and moves_nothing(operation):
            value = operation.operands[0]
            operation = self.made.get(value)
        return value

    def streams(self, value: Value, windows: Windows) -> bool:
        """Whether a value needs results of reductions that the loop computes."""
        seen = set[tuple[Value, Windows]]()

        def visit(value: Value, windows: Windows) -> bool:
            operation = self.made.get(value)
            if operation is None or value in self.leaves or (value, windows) in seen:
                return False
            seen.add((value, windows))
            if self.reduces(value, windows):
                return True
            inner = moved(operation, windows)
            if inner is not None:
                return visit(operation.operands[0], inner)
            if is_elementwise(operation):
                return any(visit(v, windows) for v in operation.operands)
            return False

        return visit(value, windows)

    def in_memory(self, value: Value, windows: Windows) -> tuple[Value, Windows]:
        """What stands in memory of a value: seen through what moves no element."""
        while value not in self.leaves and (operation := self.made.get(value)) is not None:
            inner = moved(operation, windows)
            if inner is None:
                break
            value, windows = operation.operands[0], inner
        return value, windows

    def first_result(self, value: Value) -> Value:
        """The nearest reduction below a value that is not in memory. Raises NotFused."""
        queue, seen = [value], {value}
        while queue:
            operation = self.made.get(found := queue.pop(0))
            if operation is None or found in self.leaves:
                continue
            if operation.name in _REDUCTIONS and operation.operands[0] in self.large:
                return found
            for v in operation.operands:
                if v not in seen:
                    seen.add(v)
                    queue.append(v)
        raise NotFused("what is reduced needs a result that no loop gives")

    def factors(self, value: Value, windows: Windows, power: int) -> list[Term]:
        """A value as a product of values, those that move through broadcasts with their parts."""
        operation = self.made.get(value)
        if operation is None or value in self.leaves:
            return [(value, windows, power)]
        inner = moved(operation, windows)
        if inner is not None:
            return self.factors(operation.operands[0], inner, power)
        floats = all(v.tensor_type.dtype.is_float for v in operation.operands)
        match operation.name:
            case "graph.mul" | "graph.div" if floats:
                left, right = operation.operands
                other = power if operation.name == "graph.mul" else -power
                found = [*self.factors(left, windows, power),
                         *self.factors(right, windows, other)]  # fmt: skip
                return sorted(found, key=lambda x: -x[2])
            case "graph.cast" if _keeps_width(operation):
                return self.factors(operation.operands[0], windows, power)
            case "graph.full":
                return [(value, (), power)]
            case _:
                return [(value, windows, power)]

    def sum_of(self, value: Value, windows: Windows, number: float = 1.0) -> Atoms:
        """A value as a sum of values times numbers."""
        found: Atoms = {}

        def visit(value: Value, windows: Windows, number: float) -> None:
            operation = self.made.get(value)
            inner = None if operation is None or value in self.leaves else moved(operation, windows)
            if operation is None or value in self.leaves:
                add(value, windows, number)
            elif inner is not None:
                visit(operation.operands[0], inner, number)
            elif operation.name in ("graph.add", "graph.sub"):
                visit(operation.operands[0], windows, number)
                sign = 1.0 if operation.name == "graph.add" else -1.0
                visit(operation.operands[1], windows, sign * number)
            elif operation.name == "graph.neg":
                visit(operation.operands[0], windows, -number)
            elif operation.name == "graph.cast" and _keeps_width(operation):
                visit(operation.operands[0], windows, number)
            elif operation.name in ("graph.mul", "graph.div"):
                by_number(operation, value, windows, number)
            else:
                add(value, windows, number)

        def by_number(operation: Operation, value: Value, windows: Windows, number: float) -> None:
            left, right = operation.operands
            known = self.known(right)
            if known is None and operation.name == "graph.mul":
                left, known = right, self.known(left)
            if known is None or not known:
                add(value, windows, number)
            else:
                factor = known if operation.name == "graph.mul" else 1.0 / known
                visit(left, windows, number * factor)

        def add(value: Value, windows: Windows, number: float) -> None:
            key = value, () if self.known(value) is not None else windows
            found[key] = found.get(key, 0.0) + number

        visit(value, windows, number)
        return found

    def known(self, value: Value) -> float | None:
        """The finite number that all elements are, where there is one."""
        operation = self.made.get(value)
        if operation is None or operation.name != "graph.full":
            return None
        dtype = value.tensor_type.dtype
        found = cast("float", operation.attributes["value"])
        if not dtype.is_float or not math.isfinite(found):
            return None
        return round_float(float(found), dtype)


def _keeps_width(cast: Operation) -> bool:
    """Whether a cast is between floats that a loop computes in one dtype."""
    ends = (cast.operands[0].tensor_type.dtype, cast.result.tensor_type.dtype)
    return all(t.is_float for t in ends) and max(32, ends[0].bits) == max(32, ends[1].bits)


def is_of_rows(operation: Operation) -> bool:
    """Whether an operator is a reduction along the last axis."""
    if operation.name not in _OF_ROWS:
        return False
    return operation.integers("axes") == (operation.operands[0].tensor_type.rank - 1,)


def is_softmax_of_rows(o: Operation) -> bool:
    return o.name == "graph.softmax" and o.integer("axis") == o.result.tensor_type.rank - 1


def _bytes(value: Value) -> int:
    return math.prod(sizes_of(value)) * value.tensor_type.dtype.bytes
