"""Which values are computed by kernels of whole rows, each of which is read once.

Owns the choice. Must not know the text of kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.lower.graph_to_kernels.cascaded_reductions import StreamKernel
from tessera_lang.lower.graph_to_kernels.clusters import (
    GraphKernel,
)
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    ONE,
    ROWS,
    STREAM,
    Window,
    Windows,
    sizes_of,
    space_of,
)
from tessera_lang.lower.graph_to_kernels.planning import (
    Loop,
    Planning,
    check_sizes,
)
from tessera_lang.lower.graph_to_kernels.reduction_terms import (
    CutError,
    NotFused,
    is_of_rows,
    is_softmax_of_rows,
)
from tessera_lang.lower.graph_to_kernels.row_tiles import most_rows, usual_rows
from tessera_lang.record import dataclass
from tessera_lang.target.tuned_constants import (
    LONGEST_ROW,
)


@dataclass(frozen=True, slots=True)
class RowKernels:
    """Kernels of whole rows."""

    state: Planning

    def kernel(self, value: Value) -> GraphKernel | None:
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
        kernel = self.state.assembled(loop)
        self.state.of_length[kernel.results] = length
        return kernel

    def merged(self) -> list[GraphKernel]:
        """Kernels that read the same rows become one where none needs what the other gives."""
        for kernel in list(self.state.found):
            length = self.state.of_length.get(kernel.results)
            before = self.state.found[: self.state.found.index(kernel)] if length else []
            for other in [k for k in before if self.state.of_length.get(k.results) == length]:
                merged = self._merged(other, kernel, length or 0)
                if merged is not None:
                    self.state.found.remove(other)
                    self.state.found[self.state.found.index(kernel)] = kernel = merged
        return self.state.found

    def _merged(self, one: GraphKernel, other: GraphKernel, length: int) -> GraphKernel | None:
        shared = {v for v in one.arguments if isinstance(v, Value) and v in other.arguments}
        if not any(sizes_of(v)[-1:] == (length,) for v in shared):
            return None
        values = list(dict.fromkeys((*one.results, *other.results)))
        try:
            loop = self._held(values, length)
        except NotFused:
            return None
        others = [k for k in self.state.found if k is not one and k is not other]
        spaces = {tuple(space_of(v, w)) for v, (_, w) in loop.parts.items()}
        if len(spaces) > 1 or self.state.needs_itself(values, loop.kernel, others):
            return None
        kernel = self.state.assembled(loop)
        # Together they may read a product that a loop of theirs computed, and that nobody stores.
        stored = {v for k in others for v in k.results}
        if any(v in self.state.order and v not in stored for v in kernel.arguments
               if isinstance(v, Value)):  # fmt: skip
            return None
        self.state.of_length[kernel.results] = length
        return kernel

    def _first_of_rows(self, value: Value) -> Operation | None:
        """The nearest operation along rows, if they are short enough to be held."""
        found = self.state.nearest(value, lambda o: is_of_rows(o) or is_softmax_of_rows(o))
        if found is None:
            return None
        return found if 1 < sizes_of(found.operands[0])[-1] <= LONGEST_ROW else None

    def _held(self, values: Sequence[Value], length: int) -> Loop:
        """A kernel of values whose rows are held. Raises NotFused."""
        rows = usual_rows(length)
        found = self._held_rows(values, length, rows)
        most = most_rows(found.kernel, length)
        return found if rows <= most else self._held_rows(values, length, most)

    def _held_rows(self, values: Sequence[Value], length: int, rows: int) -> Loop:
        windows = {v: self._row_windows(v, length, rows) for v in values}
        cuts = set[Value]()
        leaves = {v for v in self.state.needed if v not in values and v not in self.state.of_rows}
        for _ in range(len(self.state.made) + 1):
            kernel = StreamKernel(
                self.state.terms(leaves | cuts, length), rows, 0, False, self.state.numbers
            )
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
            check_sizes(kernel, windows)
            return Loop(kernel, {v: (p.text, windows[v]) for v, p in parts.items()})
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

    def _with_other_rows(self, value: Value, loop: Loop, length: int) -> Loop:
        """The kernel, with other values that are needed and read the same rows."""
        values = [value]
        space = space_of(value, loop.parts[value][1])
        for other in sorted(
            self.state.needed - self.state.there - {value}, key=lambda v: -self.state.order[v]
        ):
            if self._depend(value, other, loop):
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
                and not self.state.needs_itself(both.parts, both.kernel, self.state.found)
            ):
                values.append(other)
                loop = both
        return loop

    def _depend(self, value: Value, other: Value, loop: Loop) -> bool:
        """Whether another value needs that of a kernel, or the kernel needs the other."""
        state = self.state
        one, two = state.bits((value,)), state.bits((other,))
        return bool(state.below((other,)) & one or state.below(loop.kernel.arguments) & two)
