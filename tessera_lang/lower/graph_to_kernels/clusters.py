"""Which operators of a graph become one tile kernel, and its text.

Here a kernel computes one value: an operator, with the operators of each element that it alone uses
written where they are used. Nothing is rounded otherwise for that. Owns the choice and the text.
Must not know how a kernel is compiled or launched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import cast

from tessera_lang.ir.core import Operation, Region, TensorType, Value
from tessera_lang.ir.graph.calls import Called
from tessera_lang.ir.graph.operator import Operator
from tessera_lang.ir.graph.operators import is_operator, operator_of
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.target.tuned_constants import OPERATIONS_OF_A_BYTE, OPERATORS_OF_A_KERNEL
from tessera_lang.types.dtype import DType

NAME = "call"
_OF_ELEMENTS = ("sum", "mean", "prod", "reduce_max", "reduce_min", "any", "all")
"""What takes each element of its operand once, so that the operand may be computed there."""


@dataclass(frozen=True, slots=True)
class GraphKernel:
    """A tile kernel of its own. ``arguments``: values of the graph, or numbers; ``results``: what
    it returns, in order. ``origin``: the part of the program that computes the first of them.
    ``operator``: what computes it; ``tile``: rows and places of the tiles of a loop. ``call``: of a
    kernel of the program, which has no text here; ``arguments`` are its operands then. ``regions``:
    of the control flow ``control``, which has no text either. ``first``: the kernel that this one
    is again, where what that gave is not kept."""

    source: str
    arguments: tuple[Value | float, ...]
    results: tuple[Value, ...]
    origin: Span | None
    operator: str = ""
    tile: tuple[int, ...] = ()
    call: Called | None = None
    regions: tuple[Planned, ...] = ()
    control: Operation | None = None
    first: GraphKernel | None = None

    @property
    def path(self) -> str:
        """One for each text: runtimes keep kernels by it."""
        if self.call is not None:
            return self.call.file
        return f"<graph: {self.source.strip()}>"


@dataclass(frozen=True, slots=True)
class Planned:
    """A region as a function, and the kernels that it becomes."""

    function: Operation
    kernels: tuple[GraphKernel, ...]


Shape = tuple[int, ...]


def uses_of(body: Region) -> Counter[Value]:
    """How often each value is used."""
    return Counter(v for o in body.operations for v in o.operands)


def single_kernel(
    made: dict[Value, Operation], uses: Counter[Value], numbers: Collection[Value], value: Value
) -> GraphKernel:
    """The kernel of one value. ``numbers``: parameters that are numbers, not arrays."""
    return _Writer(made, uses, numbers).kernel(value)


class _Writer:
    """The text of one kernel."""

    def __init__(
        self, made: dict[Value, Operation], uses: Counter[Value], numbers: Collection[Value]
    ) -> None:
        self._made = made
        self._uses = uses
        self._numbers = numbers
        self._names: dict[Value | tuple[str, float], str] = {}
        self._arguments: list[Value | float] = []
        self._parameters: list[str] = []
        self._count = 0
        self._product: Operation | None = None
        self._of_elements = False

    def kernel(self, value: Value) -> GraphKernel:
        operation = self._made[value]
        text = operator_of(operation).source
        if not isinstance(text, str):
            return GraphKernel(
                text(operation), operation.operands, (value,), operation.span, operation.name
            )
        self._of_elements = operator_of(operation).elementwise
        text, shape = self._operation(operation)
        wanted = _sizes(value.tensor_type)
        if shape != wanted:
            text = self._spread(text, shape, value.tensor_type)
        parameters = ", ".join(self._parameters)
        tile = "" if self._product is None else _tile(self._product)
        source = f"@op.kernel\ndef {NAME}({parameters}):\n{tile}    return {text}\n"
        given = tuple(self._arguments)
        return GraphKernel(source, given, (value,), operation.span, operation.name)

    def _spread(self, text: str, shape: Shape, t: TensorType) -> str:
        """Of the shape that it stands for: axes of one element are stretched."""
        if not shape:
            # What is made of arrays of rank 0 may be a tile, which the cast makes a number.
            return f"op.full({_shown(_sizes(t))}, {t.dtype}({text}), dtype={t.dtype})"
        return f"op.broadcast_to({text}, {_shown(_sizes(t))})"

    # --- expressions -------------------------------------------------------------------

    def _operand(self, value: Value, user: Operation) -> tuple[str, Shape]:
        """An operand as text, and the shape that the text has: axes that are stretched may have
        one element there, and a number none."""
        operation = self._made.get(value)
        if operation is None or not self._written_here(operation, user):
            return self._argument(value), _sizes(value.tensor_type)
        return self._operation(operation)

    def _written_here(self, operation: Operation, user: Operation) -> bool:
        """Whether an operator is written where it is used."""
        name, row = operation.name, operator_of(user)
        if row.name == "matmul":
            return _swaps(operation)
        takes = row.elementwise or _adds_axes(user) or row.name in ("broadcast", *_OF_ELEMENTS)
        if not takes:
            return False
        if name in ("graph.full", "graph.broadcast", "graph.arange") or _adds_axes(operation):
            return True
        once = self._uses[operation.result] == 1
        if name == "graph.matmul":
            return once and row.elementwise and self._of_elements and self._product is None
        if user.name == "graph.cast" and once and not operation.result.tensor_type.rank:
            return operator_of(operation).name in _OF_ELEMENTS
        fits = operator_of(operation).elementwise and self._count < OPERATORS_OF_A_KERNEL
        return fits and (once or self._is_cheap(operation))

    def _is_cheap(self, operation: Operation) -> bool:
        """Whether computing a value again takes no more time than reading it: a step or two for
        each element of one array, beside which all others are small."""
        shape = _sizes(operation.result.tensor_type)
        operands = tuple(_sizes(v.tensor_type) for v in operation.operands)
        work = operator_of(operation).work(operands, shape)
        large = {v for v in operation.operands if self._is_large(v, math.prod(shape))}
        return len(large) <= 1 and work <= 2.0 * math.prod(shape)

    def _is_large(self, value: Value, size: int) -> bool:
        """Whether a value is an array of so many elements, and not a smaller one stretched."""
        operation = self._made.get(value)
        while operation is not None and operation.name == "graph.broadcast" or (
            operation is not None and _adds_axes(operation)
        ):  # fmt: skip
            value = operation.operands[0]
            operation = self._made.get(value)
        constant = operation is not None and operation.name == "graph.full"
        return not constant and math.prod(_sizes(value.tensor_type)) >= size

    def _operation(self, operation: Operation) -> tuple[str, Shape]:
        self._count += 1
        row = operator_of(operation)
        t = operation.result.tensor_type
        if row.name == "matmul":
            return self._of_product(operation), _sizes(t)
        if row.name == "full":
            return self._number(cast("float", operation.attributes["value"]), t.dtype), ()
        if row.name == "broadcast":
            return self._operand(operation.operands[0], operation)
        if _adds_axes(operation):
            text, shape = self._operand(operation.operands[0], operation)
            return self._with_axes(text, shape, operation)
        if row.elementwise:
            return self._elementwise(operation, row)
        texts: list[str] = []
        for value in operation.operands:
            text, shape = self._operand(value, operation)
            if shape != _sizes(value.tensor_type):
                text = self._spread(text, shape, value.tensor_type)
            texts.append(text)
        return _filled(operation, row, texts), _sizes(t)

    def _of_product(self, operation: Operation) -> str:
        """A product; beside what follows element by element it is rounded as it is alone."""
        self._product = operation
        texts = [self._operand(v, operation)[0] for v in operation.operands]
        text = _filled(operation, operator_of(operation), texts)
        return f"({text}).to({operation.result.tensor_type.dtype})" if self._of_elements else text

    def _elementwise(self, operation: Operation, row: Operator) -> tuple[str, Shape]:
        parts = [self._operand(v, operation) for v in operation.operands]
        shapes = [s for _, s in parts if s]
        shape: Shape = ()
        if shapes:
            together = zip(*shapes, strict=True)
            shape = tuple(0 if 0 in sizes else max(sizes) for sizes in together)
        return _filled(operation, row, [text for text, _ in parts]), shape

    def _with_axes(self, text: str, shape: Shape, operation: Operation) -> tuple[str, Shape]:
        """A value with new axes of one element; a number needs none."""
        have = _sizes(operation.operands[0].tensor_type)
        if not shape or not have:
            return text, ()
        wanted = _sizes(operation.result.tensor_type)
        items: list[str] = []
        sizes: list[int] = []
        at = 0
        for n in wanted:
            if at < len(have) and n == have[at]:
                items.append(":")
                sizes.append(shape[at])
                at += 1
            else:
                items.append("None")
                sizes.append(1)
        return f"{text}[{', '.join(items)}]", tuple(sizes)

    # --- leaves ------------------------------------------------------------------------

    def _number(self, value: float, dtype: DType) -> str:
        if isinstance(value, bool):
            return str(value)
        if not dtype.is_float:
            return f"{dtype}({int(value)})"
        if math.isfinite(value) and not _is_plain(value):
            key = (dtype.name, value)
            if key not in self._names:
                self._names[key] = self._parameter(f": {dtype}", value, "c")
            return self._names[key]
        return f"{dtype}({float(value)!r})"

    def _argument(self, value: Value) -> str:
        if value not in self._names:
            t = value.tensor_type
            if value in self._numbers:
                annotation = f": {t.dtype}"
            else:
                annotation = _annotation(t, f"x{len(self._parameters)}")
            self._names[value] = self._parameter(annotation, value, "x")
        return self._names[value]

    def _parameter(self, annotation: str, argument: Value | float, head: str) -> str:
        name = f"{head}{len(self._parameters)}"
        self._parameters.append(f"{name}{annotation}")
        self._arguments.append(argument)
        return name


def _tile(product: Operation) -> str:
    """The tile that the program says of a product."""
    tile = product.attributes.get("tile", ())
    return f"    schedule.tile({tile})\n" if tile else ""


def _is_plain(value: float) -> bool:
    """Whether a number is written into a kernel; others are arguments, so that one kernel serves
    all of them."""
    return abs(value) in (0.0, 0.5, 1.0, 2.0)


def _annotation(t: TensorType, name: str) -> str:
    """The type of an array: axes of one element are typed, so that they are stretched."""
    sizes = ("1" if n == 1 else f"{name}_axis{i}" for i, n in enumerate(t.shape))
    return f": {t.dtype}[{', '.join(sizes)}]"


def _sizes(t: TensorType) -> Shape:
    """A shape of numbers: graphs that run have no others."""
    assert all(isinstance(n, int) for n in t.shape), t
    return cast("Shape", t.shape)


def _shown(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def _swaps(operation: Operation) -> bool:
    """Whether an operation exchanges the last two axes."""
    if operation.name != "graph.transpose":
        return False
    axes = operation.integers("axes")
    rank = len(axes)
    return rank > 1 and axes == (*range(rank - 2), rank - 1, rank - 2)


def _adds_axes(operation: Operation) -> bool:
    """Whether an operation only adds axes of one element."""
    if operation.name != "graph.reshape":
        return False
    have, wanted = (v.tensor_type.shape for v in (operation.operands[0], operation.result))
    rest = iter(wanted)
    return len(have) < len(wanted) and all(any(n == m for m in rest) for n in have)


def _filled(operation: Operation, row: Operator, texts: list[str]) -> str:
    """The expression of an operator over the texts of its operands."""
    t = operation.result.tensor_type
    shape = _sizes(t)
    words: dict[str, object] = dict(operation.attributes)
    words.update(shape=_shown(shape), dtype=t.dtype.name, length=shape[0] if shape else 1)
    a = operation.attributes
    if row.name == "logsumexp":
        words["axis_of"] = operation.integers("axes")[0]
    if row.name == "slice":
        limits = (operation.integers(n) for n in ("starts", "stops", "steps"))
        words["index"] = ", ".join(
            f"{start}:{stop}" + (f":{step}" if step != 1 else "")
            for start, stop, step in zip(*limits, strict=True)
        )
    if row.name == "pad":
        pairs = zip(operation.integers("before"), operation.integers("after"), strict=True)
        words["widths"] = f"({', '.join(f'({p}, {q})' for p, q in pairs)},)"
        words["value"] = repr(a["value"])
    if row.operands and row.operands[-1].endswith("..."):
        words[row.operands[-1][:-3]] = ", ".join(texts)
    else:
        words.update(zip(row.operands, texts, strict=True))
    assert isinstance(row.source, str), row.name
    return row.source.format(**words)


def in_order(kernels: list[GraphKernel]) -> tuple[GraphKernel, ...]:
    """Each behind those whose results it needs."""
    makers = {v: k for k in kernels for v in k.results}
    done: dict[int, GraphKernel] = {}

    def visit(kernel: GraphKernel) -> None:
        if id(kernel) in done:
            return
        for v in kernel.arguments:
            if isinstance(v, Value) and v in makers:
                visit(makers[v])
        done[id(kernel)] = kernel

    for kernel in reversed(kernels):
        visit(kernel)
    return tuple(done.values())


def computed_by(function: Operation, kernel: GraphKernel) -> list[Operation]:
    """The operators whose results a kernel computes, in order."""
    makers = _makers(function)
    found = _computed(makers, kernel.first or kernel)
    return [o for v, o in makers.items() if v in found]


def _makers(function: Operation) -> dict[Value, Operation]:
    return {o.result: o for o in function.regions[0].operations[:-1] if is_operator(o)}


def _computed(makers: Mapping[Value, Operation], kernel: GraphKernel) -> set[Value]:
    given = {v for v in kernel.arguments if isinstance(v, Value)}
    found, left = set[Value](), list(kernel.results)
    while left:
        value = left.pop()
        if value not in found and value not in given and value in makers:
            found.add(value)
            left.extend(makers[value].operands)
    return found


def cost_of(function: Operation, kernels: Sequence[GraphKernel]) -> float:
    """The time of kernels in that of bytes of memory: what they read and write, and the products
    that they compute."""
    total, makers = 0.0, _makers(function)
    for kernel in kernels:
        ends = {v for v in (*kernel.arguments, *kernel.results) if isinstance(v, Value)}
        total += sum(float(math.prod(_sizes(v.tensor_type)) * v.tensor_type.dtype.bytes)
                     for v in ends)  # fmt: skip
        for o in map(makers.__getitem__, _computed(makers, kernel.first or kernel)):
            if o.name == "graph.matmul":
                shape, left = _sizes(o.result.tensor_type), _sizes(o.operands[0].tensor_type)
                rate = OPERATIONS_OF_A_BYTE[max(2, o.result.tensor_type.dtype.bytes)]
                total += 2.0 * math.prod(shape) * left[-1] / rate
    return total
