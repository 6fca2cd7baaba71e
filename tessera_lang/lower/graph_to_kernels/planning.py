"""What a plan of kernels knows on the way: values, what makes them, and which kernels there are.

Owns that state, questions about it, and how a loop becomes a kernel of the plan. Must not choose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.operators import is_operator
from tessera_lang.lower.graph_to_kernels.cascaded_reductions import StreamKernel
from tessera_lang.lower.graph_to_kernels.clusters import GraphKernel
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    Windows,
    covers,
    is_elementwise,
    moves_nothing,
    sizes_of,
)
from tessera_lang.lower.graph_to_kernels.kernel_text import KernelText
from tessera_lang.lower.graph_to_kernels.reduction_terms import NotFused, Terms, is_of_rows
from tessera_lang.opt.graph.decompose import keeps_elements
from tessera_lang.record import dataclass, field
from tessera_lang.target.machine import Machine

REDUCTIONS = ("graph.sum", "graph.reduce_max", "graph.reduce_min", "graph.matmul")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that could have been computed by a loop of its own, and why it is not; ``apart``: one
    that has a kernel before a loop that could have computed it."""

    value: Value
    why: str
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that is written, and for each of its values where it is and of which part."""

    kernel: StreamKernel
    parts: dict[Value, tuple[str, Windows]]
    apart: tuple[Refusal, ...] = ()


@dataclass(slots=True, eq=False)
class Planning:
    """The values of a function; ``large``: products and what is computed of each of their elements;
    ``chained``: products of those; ``needed``: what is in memory, ``there``: what a kernel of
    ``found`` gives; ``of_products`` and ``of_rows``: results of reductions, and what is made of
    them element by element; ``of_length``: how long the rows of kernels of whole rows are;
    ``products``: those that loops compute."""

    function: Operation
    numbers: Collection[Value]
    tile: tuple[int, ...]
    machine: Machine | None = None
    kept: Collection[Value] = ()
    made: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    calls: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    order: dict[Value, int] = field(default_factory=dict[Value, int])
    large: set[Value] = field(default_factory=set[Value])
    chained: list[Value] = field(default_factory=list[Value])
    needed: set[Value] = field(default_factory=set[Value])
    there: set[Value] = field(default_factory=set[Value])
    of_products: set[Value] = field(default_factory=set[Value])
    of_rows: set[Value] = field(default_factory=set[Value])
    of_length: dict[tuple[Value, ...], int] = field(
        default_factory=lambda: dict["tuple[Value, ...]", int]()
    )
    products: set[Value] = field(default_factory=set[Value])
    found: list[GraphKernel] = field(default_factory=list[GraphKernel])
    refusals: list[Refusal] = field(default_factory=list[Refusal])
    _below: dict[Value, int] = field(default_factory=dict[Value, int])

    def begin(self) -> None:
        """Look at the function: what makes its values, and which are of products and of rows."""
        (body,) = self.function.regions
        every = body.operations[:-1]
        operations = list(filter(is_operator, every))
        self.made.update({o.result: o for o in operations})
        results = (v for o in every for v in o.results)
        self.order.update({v: n for n, v in enumerate(results)})
        self.calls.update({v: o for o in every if not is_operator(o) for v in o.results})
        for o in operations:
            if o.name == "graph.matmul" or (
                o.result.tensor_type.rank and keeps_elements(o)
                and any(v in self.large for v in o.operands)
            ):  # fmt: skip
                self.large.add(o.result)
                if o.name == "graph.matmul" and o.operands[0] in self.large:
                    self.chained.append(o.result)
        number = 0
        for o in every:
            below = self.below(o.operands)
            for v in o.results:
                self._below[v] = below | 1 << number
                number += 1
        self._find_row_results()

    def nearest(self, value: Value, wanted: Callable[[Operation], bool]) -> Operation | None:
        """The nearest operation of a kind that a value is made of, through element-wise operators
        and moves that no kernel gives already."""
        queue, seen = [value], {value}
        while queue:
            operation = self.made.get(queue.pop(0))
            if operation is None:
                continue
            if wanted(operation):
                return operation
            if not (is_elementwise(operation) or moves_nothing(operation)):
                continue
            for v in operation.operands:
                if v not in seen and v not in self.needed:
                    seen.add(v)
                    queue.append(v)
        return None

    def terms(self, leaves: set[Value], held: int = 0) -> Terms:
        return Terms(self.made, leaves, self.large, held)

    def bits(self, values: Iterable[object]) -> int:
        """A set of results of operations, one bit each."""
        found = 0
        for value in values:
            if isinstance(value, Value) and value in self.order:
                found |= 1 << self.order[value]
        return found

    def below(self, values: Iterable[object]) -> int:
        """Values, and all that they are made of, as bits."""
        found = 0
        for value in values:
            if isinstance(value, Value):
                found |= self._below.get(value, 0)
        return found

    def needs_itself(
        self, values: Collection[Value], kernel: StreamKernel, others: Iterable[GraphKernel]
    ) -> bool:
        """Whether a kernel that gives ``values`` would need some of them: by what it reads, and
        all that the kernels that give this read."""
        needed = self.below(kernel.arguments)
        left = [(self.bits(k.results), self.below(k.arguments)) for k in others]
        while before := [below for results, below in left if needed & results]:
            left = [k for k in left if not needed & k[0]]
            for below in before:
                needed |= below
        return bool(needed & self.bits(values))

    def assembled(self, loop: Loop) -> GraphKernel:
        kernel, results = loop.kernel, dict(loop.parts)
        value, (_, windows) = next(iter(loop.parts.items()))
        below = self.below(kernel.arguments)
        phase = "loop" if kernel.terms.held else "after"
        for other, where in list(kernel.running):
            wanted = other in self.needed and other not in self.there and other not in results
            if (
                wanted and not below & self.bits((other,)) and covers(where, windows)
                and not self.needs_itself((*results, other), kernel, self.found)
            ):  # fmt: skip
                results[other] = kernel.part(other, where, phase).text, where
        text = KernelText(kernel, windows, sizes_of(value), results)
        origin = self.made[value].span
        tile = (kernel.rows, kernel.steps or kernel.terms.held)
        return GraphKernel(
            text.source(), tuple(kernel.arguments), tuple(results), origin, self.made[value].name,
            tile,
        )  # fmt: skip

    def _find_row_results(self) -> None:
        """Results of reductions, and what is made of them element by element: it is cheap to
        compute again where they are."""
        for o in self.made.values():
            of_large = o.name in REDUCTIONS[:3] and o.operands[0] in self.large
            if of_large or self._is_made_of(o, self.of_products):
                self.of_products.add(o.result)
            if is_of_rows(o) or self._is_made_of(o, self.of_rows):
                self.of_rows.add(o.result)

    def _is_made_of(self, operation: Operation, rows: set[Value]) -> bool:
        if not (is_elementwise(operation) or moves_nothing(operation)):
            return False
        size = math.prod(sizes_of(operation.result))
        return any(v in rows and math.prod(sizes_of(v)) >= size for v in operation.operands)


def check_sizes(kernel: StreamKernel, values: Collection[Value]) -> None:
    """Each size is that of an axis of what is read. Raises NotFused."""
    known = {0, 1, *(n for v in kernel.arguments for n in sizes_of(v))}
    if not known.issuperset((*kernel.sizes, *(n for v in values for n in sizes_of(v)))):
        raise NotFused("it is the same along an axis of its own")


def bytes_text(count: float) -> str:
    return f"{count / 1e6:.3g} MB"
