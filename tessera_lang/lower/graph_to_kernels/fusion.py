"""Which values of a graph are computed by one loop over cascaded reductions, and which kernels a
graph becomes.

Owns the choice, by bytes and operations, and what is said of it. Must not know the text of kernels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import cast

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.calls import CALL, called
from tessera_lang.ir.graph.operators import is_operator
from tessera_lang.ir.graph.regions import function_of
from tessera_lang.lower.graph_to_kernels.cascaded_reductions import StreamKernel
from tessera_lang.lower.graph_to_kernels.clusters import (
    GraphKernel,
    Planned,
    cost_of,
    in_order,
    single_kernel,
    uses_of,
)
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    COLUMNS,
    ONE,
    ROWS,
    STREAM,
    Window,
    Windows,
    covers,
    is_elementwise,
    moved,
    sizes_of,
    space_of,
    whole,
)
from tessera_lang.lower.graph_to_kernels.kernel_text import KernelText
from tessera_lang.lower.graph_to_kernels.reduction_terms import (
    CutError,
    NotFused,
    Terms,
    is_of_rows,
    is_softmax_of_rows,
)
from tessera_lang.lower.graph_to_kernels.row_tiles import most_rows, usual_rows
from tessera_lang.opt.graph.decompose import keeps_elements
from tessera_lang.record import dataclass, field
from tessera_lang.target.tuned_constants import (
    HELD_BY_A_LOOP,
    LONGEST_LINE_OF_A_TILE,
    LONGEST_ROW,
    OPERATIONS_OF_A_BYTE,
)

_REDUCTIONS = ("graph.sum", "graph.reduce_max", "graph.reduce_min", "graph.matmul")
_ALONG = ("prod", "argmax", "argmin", "cumsum", "cumprod", "sort", "argsort")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that could have been computed by a loop of its own, and why it is not; ``apart``: one
    that has a kernel before a loop that could have computed it."""

    value: Value
    why: str
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels of a graph, in an order in which they run."""

    kernels: tuple[GraphKernel, ...]
    refusals: tuple[Refusal, ...]


def plan_of(
    function: Operation, numbers: Collection[Value], tile: tuple[int, ...] = ()
) -> Plan:  # fmt: skip
    """``numbers``: parameters that are numbers, not arrays. ``tile``: rows and places along the
    stream of the tiles of loops, where the program says them. A product that is stored, and that
    loops compute again, may be read by them: the plan that takes less time is taken."""
    planner = _Planner(function, numbers, tile)
    plan = planner.plan()
    given = {v for k in plan.kernels for v in k.results}
    again = (planner.products & given) - {*function.regions[0].terminator.operands}
    if not again:
        return plan
    other = _Planner(function, numbers, tile, kept=again).plan()
    return min(plan, other, key=lambda p: cost_of(function, p.kernels))


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that is written, and for each of its values where it is and of which part."""

    kernel: StreamKernel
    parts: dict[Value, tuple[str, Windows]]
    apart: tuple[Refusal, ...] = ()


@dataclass(slots=True, eq=False)
class _Planner:
    function: Operation
    numbers: Collection[Value]
    tile: tuple[int, ...]
    kept: Collection[Value] = ()
    made: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    calls: dict[Value, Operation] = field(default_factory=dict[Value, Operation])
    order: dict[Value, int] = field(default_factory=dict[Value, int])
    large: set[Value] = field(default_factory=set[Value])
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

    def plan(self) -> Plan:
        (body,) = self.function.regions
        every = body.operations[:-1]
        operations = list(filter(is_operator, every))
        self.made.update({o.result: o for o in operations})
        self.order.update({v: n for n, o in enumerate(every) for v in o.results})
        self.calls.update({v: o for o in every if not is_operator(o) for v in o.results})
        for o in operations:
            if o.name == "graph.matmul" or (
                o.result.tensor_type.rank and keeps_elements(o)
                and any(v in self.large for v in o.operands)
            ):  # fmt: skip
                self.large.add(o.result)
        self._find_row_results()
        uses = uses_of(body)
        self.needed.update(self.kept)
        self.needed.update(v for v in body.terminator.operands if v in self.order)
        while self.needed - self.there:
            value = max(self.needed - self.there, key=lambda v: self.order[v])
            kernel = (
                self._call(value) or self._stream(value) or self._of_rows(value)
                or self._single(value, uses)
            )  # fmt: skip
            self.found.append(kernel)
            self.there.update(kernel.results)
            self.needed.update(
                v for v in kernel.arguments if isinstance(v, Value) and v in self.order
            )
        return Plan(in_order(self._with_merged_rows()), tuple(self.refusals))

    def _single(self, value: Value, uses: Counter[Value]) -> GraphKernel:
        """The kernel of one value; what no loop computes of products is told."""
        other = self._nearest(value, lambda o: o.name.removeprefix("graph.") in _ALONG and any(
            v in self.large for v in o.operands))  # fmt: skip
        if other is not None and all(r.value is not other.result for r in self.refusals):
            self.refusals.append(Refusal(other.result, self._terms(set()).why_apart(other)))
        return single_kernel(self.made, uses, self.numbers, value)

    def _call(self, value: Value) -> GraphKernel | None:
        """The call of a kernel of the program, or the control flow, that gives a value; None for
        other values."""
        operation = self.calls.get(value)
        if operation is None:
            return None
        call = called(operation) if operation.name == CALL else None
        functions = map(function_of, operation.regions)
        regions = tuple(Planned(f, plan_of(f, ()).kernels) for f in functions)
        return GraphKernel("", operation.operands, operation.results, operation.span,
                           operation.name, call=call, regions=regions,
                           control=operation if regions else None)  # fmt: skip

    # --- one loop ------------------------------------------------------------------------

    def _stream(self, value: Value) -> GraphKernel | None:
        """The kernel of a value that needs reductions of products; None where it needs none, or
        is better computed otherwise."""
        first = self._first_reduction(value)
        if first is None:
            return None
        try:
            loop = self._written({value: first})
            if not loop.kernel.products:
                return None
            self._check_order(value, first, loop.kernel)
            self._check_cost(loop.kernel)
        except NotFused as refused:
            self.refusals.append(Refusal(first.result, str(refused)))
            return None
        loop = self._joined(value, first, loop)
        self.refusals.extend(x for x in loop.apart if x not in self.refusals)
        self.products.update(loop.kernel.products)
        return self._assembled(loop)

    def _joined(self, value: Value, first: Operation, loop: _Loop) -> _Loop:
        """The loop, with other values that are needed and computed by a loop over the same parts
        of the same products."""
        firsts = {value: first}
        below = self._ancestors(loop.kernel.arguments)
        waiting = self.needed - self.there - {value} - below
        for other in sorted(waiting, key=lambda v: -self.order[v]):
            own = self._first_reduction(other)
            if own is None or value in self._ancestors([other]):
                continue
            try:
                alone = self._written({other: own})
                both = self._written({**firsts, other: own})
            except NotFused:
                continue
            ours = loop.kernel.products
            shared = any(
                ours.get(v, {}).keys() & w.keys() for v, w in alone.kernel.products.items()
            )
            if shared and not self._needs_itself(both.parts, both.kernel, self.found):
                firsts[other], loop = own, both
        return loop

    def _first_reduction(self, value: Value) -> Operation | None:
        """The nearest reduction of what products compute."""
        return self._nearest(value, lambda o: o.name in _REDUCTIONS and o.operands[0] in self.large)

    def _nearest(self, value: Value, wanted: Callable[[Operation], bool]) -> Operation | None:
        """The nearest operation of a kind that a value is made of, through element-wise operators
        and moves that no kernel gives already."""
        queue, seen = [value], {value}
        while queue:
            operation = self.made.get(queue.pop(0))
            if operation is None:
                continue
            if wanted(operation):
                return operation
            if not (is_elementwise(operation) or _is_move(operation)):
                continue
            for v in operation.operands:
                if v not in seen and v not in self.needed:
                    seen.add(v)
                    queue.append(v)
        return None

    def _written(self, firsts: dict[Value, Operation]) -> _Loop:
        """The loop of values, of which each has a first reduction; tiles as long along the stream
        as lanes hold. Raises NotFused."""
        tile = self.tile or self._said(next(iter(firsts.values())))
        if tile:
            return self._of_size(firsts, *tile)
        rows, most, room = _tile(next(iter(firsts.values())))
        found = self._of_size(firsts, rows, most)
        kernel = found.kernel
        columns = sum(sizes_of(v)[-1] for v, o in firsts.items() if o.name == "graph.matmul")
        tiles = max(1, sum(map(len, kernel.products.values())))
        steps = most
        while steps > 16 and (columns + tiles * steps) * rows > room:
            steps //= 2
        return found if steps == most else self._of_size(firsts, rows, steps)

    def _said(self, first: Operation) -> tuple[int, ...]:
        """Rows and places of the tiles of a loop, where the program says them of a product."""
        tile = first.attributes.get("tile")
        if isinstance(tile, tuple) and len(tile) == 3:
            return cast("tuple[int, ...]", (tile[0], tile[2]))
        product = self._nearest(first.operands[0], lambda o: o.name == "graph.matmul")
        tile = () if product is None else product.attributes.get("tile", ())
        found = cast("tuple[int, ...]", tile)
        return found[:2] if len(found) > 1 else ()

    def _of_size(self, firsts: dict[Value, Operation], rows: int, steps: int) -> _Loop:
        windows = {v: self._windows(v, o, rows) for v, o in firsts.items()}
        cuts = dict[Value, str]()
        leaves = self._leaves(firsts)
        narrow = any(map(self._is_of_narrow, firsts.values()))
        for _ in range(len(self.made) + 1):
            kernel = StreamKernel(
                self._terms(leaves | cuts.keys()), rows, steps, narrow, self.numbers
            )
            try:
                parts = {v: kernel.wide(kernel.part(v, w, "after")) for v, w in windows.items()}
            except CutError as cut:
                if cut.value in firsts or cut.value in cuts:
                    raise NotFused("its reductions are no cascade along one axis") from None
                cuts[cut.value] = cut.why
                continue
            for v, part in parts.items():
                wanted = tuple(w.label for w in windows[v] if w.label)
                if part.labels != wanted or not kernel.running:
                    raise NotFused("it is the same along an axis of its own")
            _check_sizes(kernel, windows)
            apart = tuple(Refusal(v, why, apart=True) for v, why in cuts.items() if why)
            return _Loop(kernel, {v: (p.text, windows[v]) for v, p in parts.items()}, apart)
        raise NotFused("its reductions are no cascade along one axis")

    def _is_of_narrow(self, reduction: Operation) -> bool:
        """Whether what is reduced is made of products of 16 bits: their rounding is larger than
        that of a machine's exponential."""
        left, seen = [reduction.operands[0]], set[Value]()
        while left:
            value = left.pop()
            operation = self.made.get(value)
            if operation is None or value in seen or value not in self.large:
                continue
            seen.add(value)
            if operation.name != "graph.matmul":
                left.extend(operation.operands)
            elif operation.operands[0].tensor_type.dtype.bits == 16:
                return True
        return False

    def _terms(self, leaves: set[Value], held: int = 0) -> Terms:
        return Terms(self.made, leaves, self.large, held)

    def _leaves(self, values: Collection[Value]) -> set[Value]:
        """What is in memory before a loop: what others need too, but for results along its rows
        that it computes on the way, where no product before it does so."""
        before = self._ancestors(values)
        products = [
            v for v in before if v in self.large and v not in values
            and self.made[v].name == "graph.matmul" and self.made[v].operands[0] in self.large
        ]  # fmt: skip
        there = self._ancestors(products)
        return {
            v for v in self.needed if v not in values
            and (v in there or not self._is_row_result(v))
        }  # fmt: skip

    def _is_row_result(self, value: Value) -> bool:
        return value in self.of_products

    def _find_row_results(self) -> None:
        """Results of reductions, and what is made of them element by element: it is cheap to
        compute again where they are."""
        for o in self.made.values():
            of_large = o.name in _REDUCTIONS[:3] and o.operands[0] in self.large
            if of_large or self._is_made_of(o, self.of_products):
                self.of_products.add(o.result)
            if is_of_rows(o) or self._is_made_of(o, self.of_rows):
                self.of_rows.add(o.result)

    def _is_made_of(self, operation: Operation, rows: set[Value]) -> bool:
        if not (is_elementwise(operation) or _is_move(operation)):
            return False
        size = math.prod(sizes_of(operation.result))
        return any(v in rows and math.prod(sizes_of(v)) >= size for v in operation.operands)

    def _windows(self, value: Value, first: Operation, rows: int) -> Windows:
        sizes = sizes_of(value)
        longer = [i for i, n in enumerate(sizes) if n != 1]
        columns = -1
        if first.name == "graph.matmul":
            if not longer or longer[-1] != len(sizes) - 1 or sizes_of(first.result) != sizes:
                raise NotFused("its rows and columns are not the last axes")
            columns = longer.pop()
        if not longer:
            raise NotFused("it has one row, and rows are what groups share")
        at = longer[-1]
        count = iter(range(len(sizes)))
        return tuple(
            whole(COLUMNS) if i == columns
            else Window(ROWS, f"i:i+{rows}", rows) if i == at
            else ONE if n == 1 else Window("", f"b{next(count)}")
            for i, n in enumerate(sizes)
        )  # fmt: skip

    def _check_order(self, value: Value, first: Operation, kernel: StreamKernel) -> None:
        """What follows a reduction may need results of the loop that computes it, made to others:
        the loop would run before those, and again behind them, so that it stores its own. Raises
        NotFused."""
        running = {v for v, _ in kernel.running}
        if value is first.result or not running & self._ancestors(kernel.arguments):
            return
        if running & self._ancestors(self._written({first.result: first}).kernel.arguments):
            return
        again = sum(
            sum(parts.values()) / OPERATIONS_OF_A_BYTE[max(2, product.tensor_type.dtype.bytes)]
            for product, parts in kernel.products.items()
        )
        size = 2.0 * math.prod(sizes_of(first.result)) * first.result.tensor_type.dtype.bytes
        if again > size:
            self.needed.add(first.result)
            raise NotFused(
                "what follows it needs other results of the same loop, which would run twice: again"
                f" would take as long as {_bytes(again)} of memory, and saves {_bytes(size)}"
            )

    def _check_cost(self, kernel: StreamKernel) -> None:
        """A loop computes again what other kernels compute or need in memory; it saves that the
        others are written and read. Raises NotFused."""
        again = saved = 0.0
        for product, parts in kernel.products.items():
            operations = sum(parts.values())
            size = product.tensor_type.dtype.bytes
            if product in self.products:
                again += operations / OPERATIONS_OF_A_BYTE[max(2, size)]
            saved += 2.0 * size * math.prod(sizes_of(product))
        ends = {*kernel.arguments, *(v for v, _ in kernel.running)}
        moved = sum(float(math.prod(sizes_of(v)) * v.tensor_type.dtype.bytes) for v in ends)
        if len(kernel.running) == 1 and saved <= moved:
            raise NotFused(
                f"its loop would read and write {_bytes(moved)}, and saves {_bytes(saved)}"
            )
        if again > saved:
            raise NotFused(
                f"its product is computed by another kernel too: again would take as long as"
                f" {_bytes(again)} of memory, and saves {_bytes(saved)}"
            )

    # --- rows ----------------------------------------------------------------------------

    def _of_rows(self, value: Value) -> GraphKernel | None:
        """The kernel of a value that needs reductions of rows, and the rows again, so that each
        row is read once; None of other values."""
        first = self._first_of_rows(value)
        if first is None:
            return None
        length = sizes_of(first.operands[0])[-1]
        try:
            loop = self._held([value], length)
        except NotFused:
            return None
        loop = self._with_other_rows(value, loop, length)
        rows = [v for v, (_, w) in loop.parts.items() if any(x.index == ":" for x in w)]
        if len(loop.kernel.sums) + len(rows) < 2:
            return None
        kernel = self._assembled(loop)
        self.of_length[kernel.results] = length
        return kernel

    def _with_merged_rows(self) -> list[GraphKernel]:
        """Kernels that read the same rows become one where none needs what the other gives."""
        for kernel in list(self.found):
            length = self.of_length.get(kernel.results)
            before = self.found[: self.found.index(kernel)] if length else []
            for other in [k for k in before if self.of_length.get(k.results) == length]:
                merged = self._merged(other, kernel, length or 0)
                if merged is not None:
                    self.found.remove(other)
                    self.found[self.found.index(kernel)] = kernel = merged
        return self.found

    def _merged(self, one: GraphKernel, other: GraphKernel, length: int) -> GraphKernel | None:
        shared = {v for v in one.arguments if isinstance(v, Value) and v in other.arguments}
        if not any(sizes_of(v)[-1:] == (length,) for v in shared):
            return None
        values = list(dict.fromkeys((*one.results, *other.results)))
        try:
            loop = self._held(values, length)
        except NotFused:
            return None
        others = [k for k in self.found if k is not one and k is not other]
        spaces = {tuple(space_of(v, w)) for v, (_, w) in loop.parts.items()}
        if len(spaces) > 1 or self._needs_itself(values, loop.kernel, others):
            return None
        kernel = self._assembled(loop)
        self.of_length[kernel.results] = length
        return kernel

    def _first_of_rows(self, value: Value) -> Operation | None:
        """The nearest operation along rows, if they are short enough to be held."""
        found = self._nearest(value, lambda o: is_of_rows(o) or is_softmax_of_rows(o))
        if found is None:
            return None
        return found if 1 < sizes_of(found.operands[0])[-1] <= LONGEST_ROW else None

    def _held(self, values: Sequence[Value], length: int) -> _Loop:
        """A kernel of values whose rows are held. Raises NotFused."""
        rows = usual_rows(length)
        found = self._held_rows(values, length, rows)
        most = most_rows(found.kernel, length)
        return found if rows <= most else self._held_rows(values, length, most)

    def _held_rows(self, values: Sequence[Value], length: int, rows: int) -> _Loop:
        windows = {v: self._row_windows(v, length, rows) for v in values}
        cuts = set[Value]()
        leaves = {v for v in self.needed if v not in values and v not in self.of_rows}
        for _ in range(len(self.made) + 1):
            kernel = StreamKernel(self._terms(leaves | cuts, length), rows, 0, False, self.numbers)
            try:
                parts = {v: kernel.wide(kernel.part(v, w, "loop")) for v, w in windows.items()}
            except CutError as cut:
                if cut.value in values or cut.value in cuts:
                    raise NotFused("it is not made of rows") from None
                cuts.add(cut.value)
                continue
            for v, part in parts.items():
                if part.labels != tuple(w.label for w in windows[v] if w.label):
                    raise NotFused("it is the same along an axis of its own")
            _check_sizes(kernel, windows)
            return _Loop(kernel, {v: (p.text, windows[v]) for v, p in parts.items()})
        raise NotFused("it is not made of rows")

    def _row_windows(self, value: Value, length: int, rows: int) -> Windows:
        sizes = sizes_of(value)
        longer = [i for i, n in enumerate(sizes) if n != 1]
        along = len(sizes) - 1 if len(longer) > 1 and sizes[-1] == length else -1
        before = [i for i in longer if i != along]
        if not before or before[-1] == len(sizes):
            raise NotFused("it has one row")
        count = iter(range(len(sizes)))
        of_rows = Window("", "i") if rows == 1 else Window(ROWS, f"i:i+{rows}", rows)
        return tuple(
            Window(STREAM, ":") if i == along
            else of_rows if i == before[-1]
            else ONE if n == 1 else Window("", f"b{next(count)}")
            for i, n in enumerate(sizes)
        )  # fmt: skip

    def _with_other_rows(self, value: Value, loop: _Loop, length: int) -> _Loop:
        """The kernel, with other values that are needed and read the same rows."""
        values = [value]
        space = space_of(value, loop.parts[value][1])
        for other in sorted(self.needed - self.there - {value}, key=lambda v: -self.order[v]):
            if value in self._ancestors([other]) or other in self._ancestors(loop.kernel.arguments):
                continue
            try:
                alone = self._held([other], length)
                both = self._held([*values, other], length)
            except NotFused:
                continue
            rows = {v for v in alone.kernel.arguments if sizes_of(v)[-1:] == (length,)}
            same = space_of(other, both.parts[other][1]) == space
            if (
                same
                and rows.intersection(loop.kernel.arguments)
                and not self._needs_itself(both.parts, both.kernel, self.found)
            ):
                values.append(other)
                loop = both
        return loop

    # --- text ----------------------------------------------------------------------------

    def _assembled(self, loop: _Loop) -> GraphKernel:
        kernel, results = loop.kernel, dict(loop.parts)
        value, (_, windows) = next(iter(loop.parts.items()))
        below = self._ancestors(kernel.arguments)
        phase = "loop" if kernel.terms.held else "after"
        for other, where in list(kernel.running):
            wanted = other in self.needed and other not in self.there and other not in results
            if (
                wanted and other not in below and covers(where, windows)
                and not self._needs_itself((*results, other), kernel, self.found)
            ):  # fmt: skip
                results[other] = kernel.part(other, where, phase).text, where
        text = KernelText(kernel, windows, sizes_of(value), results)
        origin = self.made[value].span
        tile = (kernel.rows, kernel.steps or kernel.terms.held)
        return GraphKernel(
            text.source(), tuple(kernel.arguments), tuple(results), origin, self.made[value].name,
            tile,
        )  # fmt: skip

    def _needs_itself(
        self, values: Collection[Value], kernel: StreamKernel, others: Sequence[GraphKernel]
    ) -> bool:
        """Whether a kernel that gives ``values`` would need some of them: by what it reads, and
        all that the kernels that give this read."""
        needed, left = self._ancestors(kernel.arguments), list(others)
        while before := [k for k in left if needed.intersection(k.results)]:
            left = [k for k in left if k not in before]
            needed |= self._ancestors([v for k in before for v in k.arguments
                                       if isinstance(v, Value)])  # fmt: skip
        return bool(needed.intersection(values))

    def _ancestors(self, values: Collection[Value]) -> set[Value]:
        found, left = set[Value](), list(values)
        while left:
            value = left.pop()
            if value not in found:
                found.add(value)
                operation = self.made.get(value) or self.calls.get(value)
                left.extend(operation.operands if operation is not None else ())
        return found


def _check_sizes(kernel: StreamKernel, values: Collection[Value]) -> None:
    """Each size is that of an axis of what is read. Raises NotFused."""
    known = {0, 1, *(n for v in kernel.arguments for n in sizes_of(v))}
    if not known.issuperset((*kernel.sizes, *(n for v in values for n in sizes_of(v)))):
        raise NotFused("it is the same along an axis of its own")


def _is_move(operation: Operation) -> bool:
    windows = (ONE,) * operation.result.tensor_type.rank
    return moved(operation, windows) is not None


def _tile(first: Operation) -> tuple[int, int, int]:
    """Rows of a tile, the most elements along the stream, and how many elements lanes hold: fewer
    of dtypes that lanes multiply."""
    if first.operands[0].tensor_type.dtype.bits <= 16:
        return 128, 128, HELD_BY_A_LOOP
    wide = sizes_of(first.result)[-1] if first.name == "graph.matmul" else 0
    return (64 if wide <= LONGEST_LINE_OF_A_TILE // 2 else 32), 64, HELD_BY_A_LOOP // 2


def _bytes(count: float) -> str:
    return f"{count / 1e6:.3g} MB"
