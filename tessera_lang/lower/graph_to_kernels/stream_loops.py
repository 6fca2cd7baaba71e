"""Which values are computed by one loop over cascaded reductions of products.

Owns the choice, by bytes and operations, and the tiles. Must not know the text of kernels.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import cast

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.cascaded_reductions import StreamKernel
from tessera_lang.lower.graph_to_kernels.clusters import (
    GraphKernel,
)
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    COLUMNS,
    ONE,
    ROWS,
    Window,
    Windows,
    sizes_of,
    whole,
)
from tessera_lang.lower.graph_to_kernels.loop_costs import best_tile, shape_of, slower
from tessera_lang.lower.graph_to_kernels.planning import (
    REDUCTIONS,
    Loop,
    Planning,
    Refusal,
    bytes_text,
    check_sizes,
)
from tessera_lang.lower.graph_to_kernels.reduction_terms import (
    CutError,
    NotFused,
)
from tessera_lang.record import dataclass
from tessera_lang.target.tuned_constants import (
    HELD_BY_A_LOOP,
    LONGEST_LINE_OF_A_TILE,
    OPERATIONS_OF_A_BYTE,
)


@dataclass(frozen=True, slots=True)
class StreamLoops:
    """Loops over cascaded reductions."""

    state: Planning

    def kernel(self, value: Value) -> GraphKernel | None:
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
            self._check_cost(loop)
        except NotFused as refused:
            self.state.refusals.append(Refusal(first.result, str(refused)))
            return None
        loop = self._joined(value, first, loop)
        self.state.refusals.extend(x for x in loop.apart if x not in self.state.refusals)
        self.state.products.update(loop.kernel.products)
        return self.state.assembled(loop)

    def _joined(self, value: Value, first: Operation, loop: Loop) -> Loop:
        """The loop, with other values that are needed and computed by a loop over the same parts
        of the same products."""
        firsts = {value: first}
        below = self.state.below(loop.kernel.arguments)
        waiting = (
            v for v in self.state.needed - self.state.there - {value}
            if not below & self.state.bits((v,))
        )  # fmt: skip
        known = dict[Value, int]()
        for other in sorted(waiting, key=lambda v: -self.state.order[v]):
            own = self._first_reduction(other)
            if own is None or self.state.below((other,)) & self.state.bits((value,)):
                continue
            if not self._products_of(other, known) & self.state.bits(loop.kernel.products):
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
            if shared and not self.state.needs_itself(both.parts, both.kernel, self.state.found):
                firsts[other], loop = own, both
        return loop

    def _products_of(self, value: Value, known: dict[Value, int]) -> int:
        """The products that a loop of a value may compute, as bits: all below it that are not
        behind what is in memory. ``known``: of values, for what is needed now."""
        state, left = self.state, [value]
        while left:
            at = left[-1]
            operation = state.made.get(at)
            before = () if operation is None else tuple(
                v for v in operation.operands if v not in state.needed or self._is_row_result(v)
            )  # fmt: skip
            if waiting := [v for v in before if v not in known]:
                left += waiting
                continue
            left.pop()
            known[at] = state.bits((at,)) if operation is not None and (
                operation.name == "graph.matmul") else 0  # fmt: skip
            for v in before:
                known[at] |= known[v]
        return known[value]

    def _first_reduction(self, value: Value) -> Operation | None:
        """The nearest reduction of what products compute."""
        return self.state.nearest(
            value, lambda o: o.name in REDUCTIONS and o.operands[0] in self.state.large
        )

    def _written(self, firsts: dict[Value, Operation]) -> Loop:
        """The loop of values, of which each has a first reduction; tiles as long along the stream
        as lanes hold. Raises NotFused."""
        tile = self.state.tile or self._said(next(iter(firsts.values())))
        if tile:
            return self._of_size(firsts, *tile)
        rows, most, room = _tile(next(iter(firsts.values())))
        found = self._of_size(firsts, rows, most)
        shape = shape_of(found) if self.state.machine is not None else None
        if shape is not None and self.state.machine is not None:
            best = best_tile(shape, (rows, most), self.state.machine)
            return found if best == (rows, most) else self._of_size(firsts, *best)
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
        product = self.state.nearest(first.operands[0], lambda o: o.name == "graph.matmul")
        tile = () if product is None else product.attributes.get("tile", ())
        found = cast("tuple[int, ...]", tile)
        return found[:2] if len(found) > 1 else ()

    def _of_size(self, firsts: dict[Value, Operation], rows: int, steps: int) -> Loop:
        windows = {v: self._windows(v, o, rows) for v, o in firsts.items()}
        cuts = dict[Value, str]()
        leaves = self._leaves(firsts)
        narrow = any(map(self._is_of_narrow, firsts.values()))
        for _ in range(len(self.state.made) + 1):
            kernel = StreamKernel(
                self.state.terms(leaves | cuts.keys()), rows, steps, narrow, self.state.numbers
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
            check_sizes(kernel, windows)
            apart = tuple(Refusal(v, why, apart=True) for v, why in cuts.items() if why)
            return Loop(kernel, {v: (p.text, windows[v]) for v, p in parts.items()}, apart)
        raise NotFused("its reductions are no cascade along one axis")

    def _is_of_narrow(self, reduction: Operation) -> bool:
        """Whether what is reduced is made of products of 16 bits: their rounding is larger than
        that of a machine's exponential."""
        left, seen = [reduction.operands[0]], set[Value]()
        while left:
            value = left.pop()
            operation = self.state.made.get(value)
            if operation is None or value in seen or value not in self.state.large:
                continue
            seen.add(value)
            if operation.name != "graph.matmul":
                left.extend(operation.operands)
            elif operation.operands[0].tensor_type.dtype.bits == 16:
                return True
        return False

    def _leaves(self, values: Collection[Value]) -> set[Value]:
        """What is in memory before a loop: what others need too, but for results along its rows
        that it computes on the way, where no product before it does so."""
        state = self.state
        before = state.below(values)
        products = [v for v in state.chained if before & state.bits((v,)) and v not in values]
        there = state.below(products)
        return {
            v for v in state.needed if v not in values
            and (there & state.bits((v,)) or not self._is_row_result(v))
        }  # fmt: skip

    def _is_row_result(self, value: Value) -> bool:
        return value in self.state.of_products

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
        running = self.state.bits(v for v, _ in kernel.running)
        if value is first.result or not running & self.state.below(kernel.arguments):
            return
        if running & self.state.below(self._written({first.result: first}).kernel.arguments):
            return
        again = sum(
            sum(parts.values()) / OPERATIONS_OF_A_BYTE[max(2, product.tensor_type.dtype.bytes)]
            for product, parts in kernel.products.items()
        )
        size = 2.0 * math.prod(sizes_of(first.result)) * first.result.tensor_type.dtype.bytes
        if again > size:
            self.state.needed.add(first.result)
            raise NotFused(
                "what follows it needs other results of the same loop, which would run twice: again"
                f" would take as long as {bytes_text(again)} of memory, and saves"
                f" {bytes_text(size)}"
            )

    def _check_cost(self, loop: Loop) -> None:
        """A loop computes again what other kernels compute or need in memory; it saves that the
        others are written and read. Raises NotFused."""
        kernel, machine = loop.kernel, self.state.machine
        why = slower(loop, machine) if machine is not None else ""
        if why:
            raise NotFused(why)
        again = saved = 0.0
        for product, parts in kernel.products.items():
            operations = sum(parts.values())
            size = product.tensor_type.dtype.bytes
            if product in self.state.products:
                again += operations / OPERATIONS_OF_A_BYTE[max(2, size)]
            saved += 2.0 * size * math.prod(sizes_of(product))
        ends = {*kernel.arguments, *(v for v, _ in kernel.running)}
        moved = sum(float(math.prod(sizes_of(v)) * v.tensor_type.dtype.bytes) for v in ends)
        if len(kernel.running) == 1 and saved <= moved:
            raise NotFused(
                f"its loop would read and write {bytes_text(moved)}, and saves {bytes_text(saved)}"
            )
        if again > saved:
            raise NotFused(
                f"its product is computed by another kernel too: again would take as long as"
                f" {bytes_text(again)} of memory, and saves {bytes_text(saved)}"
            )


def _tile(first: Operation) -> tuple[int, int, int]:
    """Rows of a tile, the most elements along the stream, and how many elements lanes hold: fewer
    of dtypes that lanes multiply."""
    if first.operands[0].tensor_type.dtype.bits <= 16:
        return 128, 128, HELD_BY_A_LOOP
    wide = sizes_of(first.result)[-1] if first.name == "graph.matmul" else 0
    return (64 if wide <= LONGEST_LINE_OF_A_TILE // 2 else 32), 64, HELD_BY_A_LOOP // 2
