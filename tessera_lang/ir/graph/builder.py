"""Builds operations of Graph IR: a value of each, with its type from the table.

Owns what is not built anew: equal operations are one, and what changes nothing is its operand.
Must not know what operators mean beyond that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import Attribute, Operation, Region, TensorType, Value
from tessera_lang.ir.graph.operator import PREFIX, OperandError, Operator, Shape
from tessera_lang.ir.graph.rules import shape_attribute
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.types.dtype import DType

FUNCTION, RETURN = "graph.function", "graph.return"


class GraphBuilder:
    """Appends operations. ``span``: where the program says what is built next."""

    def __init__(self, operators: Mapping[str, Operator]) -> None:
        self._operators = operators
        self.operations: list[Operation] = []
        self.span: Span | None = None
        self._known: dict[object, Value] = {}
        self._made: dict[Value, Operation] = {}
        self._results: dict[object, tuple[Value, ...]] = {}

    def op(self, name: str, *operands: Value, **attributes: Attribute) -> Value:
        """The result of an operator. Raises OperandError."""
        if name not in self._operators:
            raise OperandError(f"there is no operator `{name}`")
        for fold in FOLDS.values():
            folded = fold(self, name, operands, attributes)
            if folded is not None:
                return folded
        key = (name, operands, *hashed(attributes))
        if key in self._known:
            return self._known[key]
        types = tuple(v.tensor_type for v in operands)
        result = Value(self._operators[name].type_of(types, attributes))
        made = Operation(PREFIX + name, operands, (result,), attributes, span=self.span)
        self.operations.append(made)
        self._known[key] = result
        self._made[result] = made
        return result

    def another(self) -> GraphBuilder:
        """One of the same operators that has built nothing."""
        return GraphBuilder(self._operators)

    def row(self, name: str) -> Operator:
        return self._operators[name]

    def add_operation(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """An operator like another, of other operands."""
        return self.op(operation.name.removeprefix(PREFIX), *operands, **operation.attributes)

    def repeated(self, operation: Operation, operands: Sequence[Value]) -> tuple[Value, ...]:
        """The results of an operation like another, of other operands of the same types."""
        if operation.name.removeprefix(PREFIX) in self._operators:
            return (self.add_operation(operation, operands),)
        types = [v.tensor_type for v in operation.results]
        return self.operation(operation.name, operands, types, operation.attributes,
                              operation.regions)  # fmt: skip

    def inlined(self, region: Region, given: Sequence[Value]) -> list[Value]:
        """What a region gives of such arguments, built here."""
        new = dict(zip(region.arguments, given, strict=True))
        for o in region.operations[:-1]:
            made = self.repeated(o, [new[v] for v in o.operands])
            new.update(zip(o.results, made, strict=True))
        return [new[v] for v in region.terminator.operands]

    def operation(
        self, name: str, operands: Sequence[Value], types: Sequence[TensorType],
        attributes: Mapping[str, Attribute], regions: tuple[Region, ...] = (),
    ) -> tuple[Value, ...]:  # fmt: skip
        """The results of an operation that is no operator: it is built once for equal operands."""
        key = name, tuple(operands), regions, *hashed(attributes)
        if key not in self._results:
            results = self._results[key] = tuple(map(Value, types))
            own = tuple(map(copied, regions))
            made = Operation(name, tuple(operands), results, attributes, own, span=self.span)
            self.operations.append(made)
            self._made.update(dict.fromkeys(results, made))
        return self._results[key]

    def known(self, name: str, *operands: Value, **attributes: Attribute) -> Value | None:
        """The result of an operation that is built already."""
        return self._known.get((name, operands, *hashed(attributes)))

    def origin(self, value: Value) -> Operation | None:
        """The operation that made a value here; None for a parameter."""
        return self._made.get(value)

    def function(
        self, name: str, parameters: Sequence[Value], results: Sequence[Value],
        spelt: Sequence[str] = (),
    ) -> Operation:  # fmt: skip
        """The function of what was built. ``spelt``: names of the parameters, as the program has
        them."""
        end = Operation(RETURN, tuple(results))
        body = Region(tuple(parameters), (*self.operations, end))
        names = tuple(spelt) or tuple(v.name for v in parameters)
        return Operation(FUNCTION, attributes={"sym_name": name, "parameters": names},
                         regions=(body,))  # fmt: skip

    # --- short names, for rules of gradients ---------------------------------------------------

    def full(self, shape: Shape, dtype: DType, value: float | bool) -> Value:
        """A tensor of equal elements."""
        kept = float(value) if dtype.is_float else bool(value) if dtype.bits == 1 else int(value)
        return self.op("full", shape=shape_attribute(shape), dtype=dtype, value=kept)

    def like(self, value: Value, number: float) -> Value:
        """A tensor of equal elements, of the type of another."""
        return self.full(value.tensor_type.shape, value.tensor_type.dtype, number)

    def add(self, a: Value, b: Value) -> Value:
        return self.op("add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.op("sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        for one, other in ((a, b), (b, a)):
            if self.number_of(one) == 1.0:
                return other
        return self.op("mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.op("div", a, b)

    def neg(self, a: Value) -> Value:
        return self.op("neg", a)

    def times(self, a: Value, number: float) -> Value:
        return self.mul(a, self.like(a, number))

    def plus(self, a: Value, number: float) -> Value:
        return self.add(a, self.like(a, number))

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        return self.op("where", condition, a, b)

    def zeros(self, value: Value) -> Value:
        return self.like(value, 0.0)

    def cast(self, value: Value, dtype: DType) -> Value:
        return self.op("cast", value, dtype=dtype)

    def reshape(self, value: Value, shape: Shape) -> Value:
        return self.op("reshape", value, shape=shape_attribute(shape))

    def transpose(self, value: Value, axes: Sequence[int]) -> Value:
        if tuple(axes) == tuple(range(value.tensor_type.rank)):
            return value
        return self.op("transpose", value, axes=tuple(axes))

    def swapped(self, value: Value) -> Value:
        """The last two axes, exchanged."""
        rank = value.tensor_type.rank
        return self.transpose(value, (*range(rank - 2), rank - 1, rank - 2))

    def sum(self, value: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """The sum over some axes, or the value itself over none."""
        if not axes:
            return value
        shape, number = value.tensor_type.shape, self.number_of(value)
        sizes = [n for i, n in enumerate(shape) if i in axes and isinstance(n, int)]
        if number is not None and len(sizes) == len(axes) and value.tensor_type.dtype.is_float:
            left = tuple(1 if i in axes else n for i, n in enumerate(shape)
                         if keepdims or i not in axes)  # fmt: skip
            return self.full(left, value.tensor_type.dtype, number * math.prod(sizes))
        return self.op("sum", value, axes=tuple(axes), keepdims=keepdims)

    def broadcast(self, value: Value, shape: Shape) -> Value:
        """A tensor stretched along axes of one element, of which it gets those that are missing in
        front."""
        own = value.tensor_type.shape
        if len(own) < len(shape):
            value = self.reshape(value, (*(1,) * (len(shape) - len(own)), *own))
        return self.op("broadcast", value, shape=shape_attribute(shape))

    def number_of(self, value: Value) -> float | None:
        """The number that all elements are, where that is known."""
        made = self._made.get(value)
        if made is None or made.name != "graph.full":
            return None
        return cast("float", made.attributes["value"])


Operands = tuple[Value, ...]
Fold = Callable[[GraphBuilder, str, Operands, Mapping[str, Attribute]], "Value | None"]
"""What an operator of these operands is without being built; None where it is built."""


def _own_dtype(
    b: GraphBuilder, name: str, operands: Operands, attributes: Mapping[str, Attribute]
) -> Value | None:  # fmt: skip
    same = name == "cast" and operands[0].tensor_type.dtype == attributes["dtype"]
    return operands[0] if same else None


def _own_shape(
    b: GraphBuilder, name: str, operands: Operands, attributes: Mapping[str, Attribute]
) -> Value | None:  # fmt: skip
    same = name in ("broadcast", "reshape") and attributes["shape"] == shape_attribute(
        operands[0].tensor_type.shape
    )
    return operands[0] if same else None


def _turned(
    b: GraphBuilder, name: str, operands: Operands, attributes: Mapping[str, Attribute]
) -> Value | None:  # fmt: skip
    """A transpose that leaves the axes as they are, or of a transpose."""
    if name != "transpose":
        return None
    axes = cast("tuple[int, ...]", attributes["axes"])
    if axes == tuple(range(operands[0].tensor_type.rank)):
        return operands[0]
    made = b.origin(operands[0])
    if made is None or made.name != "graph.transpose":
        return None
    before = made.integers("axes")
    return b.op("transpose", made.operands[0], axes=tuple(before[a] for a in axes))


def _equal_elements(
    b: GraphBuilder, name: str, operands: Operands, attributes: Mapping[str, Attribute]
) -> Value | None:  # fmt: skip
    """Equal elements that are moved are equal elements."""
    made = b.origin(operands[0]) if operands else None
    if made is None or made.name != "graph.full" or name not in _MOVED:
        return None
    t = b.row(name).type_of(tuple(v.tensor_type for v in operands), attributes)
    return b.full(t.shape, t.dtype, cast("float", made.attributes["value"]))


def _joined(
    b: GraphBuilder, name: str, operands: Operands, attributes: Mapping[str, Attribute]
) -> Value | None:  # fmt: skip
    """Slices of one tensor, one behind the other, are a slice of it."""
    if name != "concat" or len(operands) < 2:
        return None
    axis = cast("int", attributes["axis"])
    base: Value | None = None
    begin = end = 0
    for value in operands:
        made = _slice_of(b, value)
        if made is None or not all(n == 1 for n in made.integers("steps")):
            return None
        starts, stops = made.integers("starts"), made.integers("stops")
        whole = [(0, n) for n in made.operands[0].tensor_type.shape]
        whole[axis] = starts[axis], stops[axis]
        follows = base is None or (made.operands[0] is base and starts[axis] == end)
        if not follows or [*zip(starts, stops, strict=True)] != whole:
            return None
        begin, base = begin if base is not None else starts[axis], made.operands[0]
        end = stops[axis]
    assert base is not None
    sizes = cast("tuple[int, ...]", base.tensor_type.shape)
    if (begin, end) == (0, sizes[axis]):
        return base
    starts = tuple(begin if a == axis else 0 for a in range(len(sizes)))
    stops = tuple(end if a == axis else n for a, n in enumerate(sizes))
    return b.op("slice", base, starts=starts, stops=stops, steps=(1,) * len(sizes))


def _slice_of(b: GraphBuilder, value: Value) -> Operation | None:
    """The slice that a value is, maybe by reshapes there and back."""
    made = b.origin(value)
    while made is not None and made.name == "graph.reshape":
        made = b.origin(made.operands[0])
    same = made is not None and made.name == "graph.slice" and made.result.type == value.type
    return made if same else None


def copied(region: Region) -> Region:
    """A region with values of its own, so that one program may have both. It reads its arguments
    alone."""
    new = {v: Value(v.type, v.name) for v in region.arguments}
    operations: list[Operation] = []
    for o in region.operations:
        results = tuple(Value(v.type, v.name) for v in o.results)
        operands = tuple(new[v] for v in o.operands)
        regions = tuple(map(copied, o.regions))
        new.update(zip(o.results, results, strict=True))
        operations.append(replace(o, operands=operands, results=results, regions=regions))
    return Region(tuple(new[v] for v in region.arguments), tuple(operations))


_MOVED = ("broadcast", "reshape", "transpose", "flip", "slice")
FOLDS: dict[str, Fold] = {
    "cast to the own dtype": _own_dtype,
    "broadcast or reshape to the own shape": _own_shape,
    "transpose of a transpose": _turned,
    "equal elements, moved": _equal_elements,
    "slices of one tensor, joined": _joined,
}
"""What is tried before an operation is built, in this order."""


def hashed(attributes: Mapping[str, Attribute]) -> tuple[object, ...]:
    """Attributes as a key; 1, 1.0 and True differ, and so do zeros of two signs."""
    return tuple((k, type(v), repr(v) if isinstance(v, float) else v)
                 for k, v in sorted(attributes.items()))  # fmt: skip
