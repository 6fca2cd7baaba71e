"""Cascaded reductions as one loop: reductions along one axis, of which later ones need the results
of earlier ones, computed tile by tile.

A sum whose terms are G(x) * H(d) of earlier results d carries the sum for the d of the elements so
far; when d becomes d', it is multiplied by H(d') / H(d). Here H is either a factor that is the same
along the axis and stands behind the loop, or ``exp`` of a sum in which d stands, whose quotient is
``exp`` of a difference; both only where ``ranges`` proves that each partial sum is in range. What
splits in neither way has its d from a kernel of its own.

Owns the text of such a kernel. Must not know which values are fused, nor why.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.operators import operator_of
from tessera_lang.lower.graph_to_kernels.indexing_maps import (
    COLUMNS,
    INNER,
    ROWS,
    STREAM,
    Window,
    Windows,
    is_elementwise,
    labels_of,
    moved,
    sizes_of,
    whole,
)
from tessera_lang.lower.graph_to_kernels.overflow_proofs import Ranges, inner_windows
from tessera_lang.lower.graph_to_kernels.reduction_terms import (
    Atoms,
    CutError,
    NotFused,
    Term,
    Terms,
)
from tessera_lang.lower.graph_to_kernels.running_normalizers import follow, rest_of, step_of, within
from tessera_lang.lower.graph_to_kernels.tile_text import (
    Part,
    Running,
    aligned,
    number_part,
    number_text,
    places_part,
    turned,
    wide_of,
)
from tessera_lang.record import dataclass, field
from tessera_lang.target.tuned_constants import LONGEST_LINE_OF_A_TILE
from tessera_lang.types.dtype import F32, DType

Phase = Literal["old", "loop", "after"]
"""Running results before this part of the axis, with it, and with all of it."""

_SUMS = ("graph.sum", "graph.matmul")
_NEUTRAL = {"graph.reduce_max": -math.inf, "graph.reduce_min": math.inf}
_LOG2E = math.log2(math.e)
_LARGEST = "3.0e38"
_NO_SPLIT = "what it stands in is neither a factor of the terms nor in the exponent of `exp`"
_NO_BOUND = "in the exponent of `exp` it is not the greatest of all the rest so far"
_OUT_OF_RANGE = "the sum without it as a factor may leave the range of floats"


@dataclass(slots=True, eq=False)
class StreamKernel:
    """A loop being written, or a kernel of whole rows. ``rows`` and ``steps``: elements of a tile
    along the rows and along the stream; ``narrow``: whether products take what is computed in 16
    bits. ``products``: those of which tiles are computed, with the parts and the operations;
    ``sums``: reductions along the stream; ``reduced``: what each reduces, and the
    term that changes nothing; ``numbers``: parameters of the graph that are numbers."""

    terms: Terms
    rows: int
    steps: int
    narrow: bool
    numbers: Collection[Value]
    arguments: list[Value] = field(default_factory=list[Value])
    before: list[str] = field(default_factory=list[str])
    body: list[str] = field(default_factory=list[str])
    behind: list[str] = field(default_factory=list[str])
    updates: list[str] = field(default_factory=list[str])
    running: dict[tuple[Value, Windows], Running] = field(
        default_factory=lambda: dict[tuple[Value, Windows], Running]()
    )
    products: dict[Value, dict[tuple[str, ...], float]] = field(
        default_factory=lambda: dict[Value, "dict[tuple[str, ...], float]"]()
    )
    sums: set[Value] = field(default_factory=set[Value])
    reduced: list[tuple[Value, Windows, float]] = field(
        default_factory=list["tuple[Value, Windows, float]"]
    )
    names: dict[Value, str] = field(default_factory=dict[Value, str])
    sizes: dict[int, str] = field(default_factory=dict[int, str])
    _weights: dict[tuple[Phase, frozenset[object]], Part] = field(
        default_factory=lambda: dict["tuple[Phase, frozenset[object]]", Part]()
    )
    _parts: dict[tuple[Phase, Value, Windows], Part] = field(
        default_factory=lambda: dict["tuple[Phase, Value, Windows]", Part]()
    )
    guarded: set[tuple[Value, Windows]] = field(default_factory=set["tuple[Value, Windows]"])
    _count: int = 0

    def size(self, n: int) -> str:
        """How a size is spelt: one name for all axes that are as long."""
        if n == 1:
            return "1"
        return self.sizes.setdefault(n, f"n{len(self.sizes)}")

    # --- parts of values ---------------------------------------------------------------

    def part(self, value: Value, windows: Windows, phase: Phase) -> Part:
        """A part of a value, computed where the phase is. Raises NotFused."""
        key = phase, value, windows
        if key not in self._parts:
            self._parts[key] = self._part(value, windows, phase)
        return self._parts[key]

    def _part(self, value: Value, windows: Windows, phase: Phase) -> Part:
        operation = self.terms.made.get(value)
        if operation is None or value in self.terms.leaves:
            return self._read(value, windows)
        if operation.name == "graph.full":
            return number_part(operation)
        inner = moved(operation, windows)
        if inner is not None:
            return self.part(operation.operands[0], inner, phase)
        if operation.name == "graph.arange":
            return places_part(operation, windows, self.size)
        if self.terms.reduces(value, windows):
            return self._result(value, windows, phase)
        if self.terms.held and operation.name == "graph.softmax":
            return self._softmax(operation, windows)
        if operation.name == "graph.matmul" and value in self.terms.large:
            return self._product(operation, windows, phase)
        if is_elementwise(operation):
            return self._elementwise(operation, windows, phase)
        raise CutError(value, self.terms.why_apart(operation))

    def _named(self, text: str, labels: tuple[str, ...], dtype: DType, phase: Phase) -> Part:
        name = f"t{self._count}"
        self._count += 1
        (self.behind if phase == "after" else self.body).append(f"{name} = {text}")
        return Part(name, labels, dtype)

    def _read(self, value: Value, windows: Windows) -> Part:
        if value not in self.names:
            self.names[value] = f"x{len(self.arguments)}"
            self.arguments.append(value)
        name, dtype = self.names[value], value.tensor_type.dtype
        text = f"{name}[{', '.join(w.index for w in windows)}]" if windows else f"{name}[()]"
        if value in self.numbers:
            text = name
        return turned(text, windows, dtype)

    def wide(self, part: Part) -> Part:
        """A part in the dtype of arithmetic."""
        wide = wide_of(part.dtype)
        if wide == part.dtype:
            return part
        text = f"{part.text}.to({wide})" if part.labels else f"{wide}({part.text})"
        return Part(text, part.labels, wide)

    def _elementwise(self, operation: Operation, windows: Windows, phase: Phase) -> Part:
        name, t = operation.name, operation.result.tensor_type
        dtype = wide_of(t.dtype)
        if name == "graph.exp":
            return self._exponential(operation, windows, phase)
        parts = [self.wide(self.part(v, windows, phase)) for v in operation.operands]
        labels = labels_of(tuple({Window(x, "") for p in parts for x in p.labels}))
        if name == "graph.cast":
            (part,) = parts
            if part.dtype == dtype:
                return part
            text = f"{part.text}.to({dtype})" if labels else f"{dtype}({part.text})"
            return self._named(text, labels, dtype, phase)
        row = operator_of(operation)
        words: dict[str, object] = dict(operation.attributes)
        words["dtype"] = dtype.name
        texts = (aligned(p, labels) for p in parts)
        words.update(zip(row.operands, texts, strict=True))
        return self._named(str(row.source).format(**words), labels, dtype, phase)

    # --- products ----------------------------------------------------------------------

    def _product(self, operation: Operation, windows: Windows, phase: Phase) -> Part:
        """A product of which a tile is needed: all of what it contracts at once."""
        left, right = operation.operands
        count = sizes_of(left)[-1]
        whole_axes = any(w.label in (INNER, COLUMNS) for w in windows)
        if count > LONGEST_LINE_OF_A_TILE:
            why = f"it contracts {count} elements, and a tile has {LONGEST_LINE_OF_A_TILE}"
            raise CutError(operation.result, why)
        if phase == "after" or whole_axes:
            raise CutError(operation.result)
        self.terms.check_factors(operation)
        inner = whole(INNER)
        a = self._factor(left, (*windows[:-1], inner), phase)
        b = self._factor(right, (*windows[:-2], inner, windows[-1]), phase)
        labels = labels_of(windows)
        if len(labels) != 2 or len(a.labels) != 2 or len(b.labels) != 2:
            raise CutError(operation.result)
        if windows[-2].label == labels[0]:
            text = f"{a.text} @ {b.text}.T"
        else:
            text = f"{b.text} @ {a.text}.T"
        dtype = wide_of(operation.result.tensor_type.dtype)
        work = 2.0 * math.prod(sizes_of(operation.result)) * count
        axes = tuple(w.label or w.index for w in windows)
        self.products.setdefault(operation.result, {})[axes] = work
        return self._named(f"({text}).to({dtype})", labels, dtype, phase)

    def _factor(self, value: Value, windows: Windows, phase: Phase) -> Part:
        """A factor of a product, in its own dtype."""
        if value not in self.terms.large:
            value, windows = self.terms.in_memory(value, windows)
            return self._read(value, windows)
        part = self.part(value, windows, phase)
        dtype = value.tensor_type.dtype
        if part.dtype == dtype:
            return part
        return Part(f"{part.text}.to({dtype})", part.labels, dtype)

    # --- reductions --------------------------------------------------------------------

    def _result(self, value: Value, windows: Windows, phase: Phase) -> Part:
        found = self._run(value, windows)
        if found.scaled and phase != "after":
            raise CutError(value, _OUT_OF_RANGE)
        name = f"{found.name}n" if phase == "loop" and not self.terms.held else found.name
        part = Part(name, found.labels, found.dtype)
        if phase != "after" and (value, windows) in self.guarded:
            none = number_text(_NEUTRAL[self.terms.made[value].name], found.dtype)
            text = f"op.where({name} == {none}, {number_text(0.0, found.dtype)}, {name})"
            return self._named(text, found.labels, found.dtype, phase)
        return self._times(part, found.pulled, phase)

    def _times(self, part: Part, terms: Sequence[Term], phase: Phase) -> Part:
        for value, windows, power in terms:
            other = self.wide(self.part(value, windows, phase))
            labels = labels_of(tuple({Window(x, "") for x in (*part.labels, *other.labels)}))
            sign = "*" if power > 0 else "/"
            text = f"{aligned(part, labels)} {sign} {aligned(other, labels)}"
            part = self._named(text, labels, part.dtype, phase)
        return part

    def _run(self, value: Value, windows: Windows) -> Running:
        key = value, windows
        if key in self.running:
            return self.running[key]
        operation = self.terms.made[value]
        source = operation.operands[0]
        axis = len(sizes_of(source)) - 1
        if operation.name != "graph.matmul":
            (axis,) = operation.integers("axes")
        self.terms.stream = sizes_of(source)[axis]
        inner = inner_windows(operation, windows, self._along())
        self.sums.add(value)
        self.reduced.append((source, inner, _NEUTRAL.get(operation.name, 0.0)))
        if self.terms.held:
            found = self._of_row(operation, inner)
        elif operation.name in _SUMS:
            found = self._sum(operation, windows, inner)
        else:
            found = self._extreme(operation, windows, inner)
        self.running[key] = found
        return found

    def _along(self) -> Window:
        """The part of the stream that the loop is at; all of it where it is held."""
        if self.terms.held:
            return Window(STREAM, ":")
        return Window(STREAM, f"j:j+{self.steps}", self.steps)

    def _of_row(self, operation: Operation, inner: Windows) -> Running:
        """A reduction of rows that are held."""
        part = self.wide(self.part(operation.operands[0], inner, "loop"))
        if STREAM not in part.labels:
            raise CutError(operation.result)
        word = operation.name.removeprefix("graph.").removeprefix("reduce_")
        dtype = wide_of(operation.result.tensor_type.dtype)
        labels = tuple(x for x in part.labels if x != STREAM)
        text = f"op.{word}({part.text}, axis={part.labels.index(STREAM)})"
        if word == "sum" and part.dtype != dtype:
            text = f"{text}.to({dtype})" if labels else f"{dtype}({text})"
        made = self._named(text, labels, dtype, "loop")
        return Running(made.text, labels, dtype, ())

    def _softmax(self, operation: Operation, windows: Windows) -> Part:
        part = self.wide(self.part(operation.operands[0], windows, "loop"))
        (axis,) = (operation.integer("axis"),)
        if windows[axis].label != STREAM or STREAM not in part.labels:
            raise CutError(operation.result)
        self.sums.add(operation.result)
        text = f"op.softmax({part.text}, axis={part.labels.index(STREAM)})"
        return self._named(text, part.labels, part.dtype, "loop")

    def _start(
        self, number: str, labels: tuple[str, ...], dtype: DType, columns: int, value: Value
    ) -> str:  # fmt: skip
        """The variable of a result, which has one element for each row, or for each row and
        column of a product. Raises CutError of others."""
        if ROWS not in labels or INNER in labels or (COLUMNS in labels) != bool(columns):
            raise CutError(value)
        name = f"r{len(self.running)}_{self._count}"
        self._count += 1
        sizes = {ROWS: str(self.rows), COLUMNS: self.size(columns)}
        shape = ", ".join(sizes[x] for x in labels)
        if labels:
            text = f"op.full(({shape}{',' * (len(labels) == 1)}), {number}, {dtype})"
        else:
            text = f"{dtype}({number})"
        self.before.append(f"{name} = {text}")
        return name

    def _extreme(self, operation: Operation, windows: Windows, inner: Windows) -> Running:
        """A maximum or a minimum: numbers that multiply or are added along all of the axis stand
        outside of it."""
        source = operation.operands[0]
        if self.terms.streams(source, inner):
            raise CutError(self.terms.first_result(source))
        word = operation.name.removeprefix("graph.reduce_")
        dtype = wide_of(operation.result.tensor_type.dtype)
        atoms = self.terms.sum_of(source, inner)
        ((value, part), scale), *rest = atoms.items()
        simple = not rest and scale > 0 and dtype.is_float
        inside = self.wide(self.part(value, part, "loop") if simple
                           else self.part(source, inner, "loop"))  # fmt: skip
        if STREAM not in inside.labels:
            raise CutError(operation.result)
        text = f"op.{word}({inside.text}, axis={inside.labels.index(STREAM)})"
        if simple and scale != 1.0:
            text = f"{text} * {number_text(scale, dtype)}"
        labels = tuple(x for x in inside.labels if x != STREAM)
        first = "-inf" if word == "max" else "inf"
        if not dtype.is_float:
            raise CutError(operation.result)
        name = self._start(first, labels, dtype, 0, operation.result)
        self.body.append(f"{name}n = {word}({name}, {text})")
        self.updates.append(f"{name} = {name}n")
        return Running(name, labels, dtype, ())

    def _sum(self, operation: Operation, windows: Windows, inner: Windows) -> Running:
        source, t = operation.operands[0], operation.result.tensor_type
        if not t.dtype.is_float:
            raise CutError(operation.result)
        term, pulled, shift, scales = self._split(source, inner)
        if STREAM not in term.labels:
            raise CutError(source)
        dtype = wide_of(t.dtype)
        if operation.name == "graph.matmul":
            added, labels, columns = self._sum_of_products(operation, windows, term)
        else:
            labels, columns = tuple(x for x in term.labels if x != STREAM), 0
            added = f"op.sum({term.text}, axis={term.labels.index(STREAM)})"
        name = self._start("0.0", labels, dtype, columns, operation.result)
        factor = self._correction(shift, labels, dtype) + self._steps_of(scales, labels)
        self.body.append(f"{name}n = {name}{factor} + {added}")
        self.updates.append(f"{name} = {name}n")
        self._undo_guards(name, labels, dtype, shift)
        self._rescale(name, labels, scales)
        return Running(name, labels, dtype, pulled, bool(scales))

    def _sum_of_products(
        self, operation: Operation, windows: Windows, term: Part
    ) -> tuple[str, tuple[str, ...], int]:
        right = operation.operands[1]
        count = sizes_of(right)[-1]
        if windows[-1].label != COLUMNS or windows[-2].label != ROWS:
            raise NotFused("the product that is a result has its rows and columns in another order")
        if count > LONGEST_LINE_OF_A_TILE:
            raise NotFused(f"a row of the result has {count} elements, and a tile has room for"
                           f" {LONGEST_LINE_OF_A_TILE}")  # fmt: skip
        other = self._factor(right, (*windows[:-2], self._along(), windows[-1]), "loop")
        if term.labels != (ROWS, STREAM) or other.labels != (STREAM, COLUMNS):
            raise CutError(operation.operands[0])
        narrow = operation.operands[0].tensor_type.dtype
        text = term.text if term.dtype == narrow else f"{term.text}.to({narrow})"
        return f"{text} @ {other.text}", (ROWS, COLUMNS), count

    # --- terms of sums -----------------------------------------------------------------

    def _split(
        self, source: Value, inner: Windows
    ) -> tuple[Part, tuple[Term, ...], Atoms, tuple[Term, ...]]:
        """A term without the factors that are multiplied behind the loop, these, what stands in the
        exponents of the others of results that are not known before its end, and the divisors that
        follow such results."""
        terms = self.terms.factors(source, inner, 1)
        along = [x for x in terms if STREAM in labels_of(x[1])]
        if not along or along[0][2] < 0:
            raise CutError(source)
        ranges = Ranges(self.terms)
        outside = ranges.outside([x for x in terms if x not in along])
        inside = [x for x in terms if x not in outside]
        shift: Atoms = {}
        for value, part, power in along:
            self._add_shift(ranges, value, part, power, shift)
        scales = tuple(x for x in inside if x not in along and self.terms.streams(*x[:2]))
        if scales and not follow(self.terms, ranges, inside, scales):
            raise CutError(self.terms.first_result(scales[0][0]), _OUT_OF_RANGE)
        if ranges.in_any_order(inside) and not scales:
            return self._product_of(inside), outside, shift, ()
        within = {x[:2]: self._within(x, "loop") for x in scales}
        return self.wide(self._without(source, inner, outside, within)), outside, shift, scales

    # --- divisors that follow results ---------------------------------------------------

    def _within(self, scale: Term, phase: Phase) -> Part:
        part = self.wide(self.part(*scale[:2], phase))
        return self._named(within(part.text, scale[2], part.dtype), part.labels, part.dtype, phase)

    def _steps_of(self, scales: Sequence[Term], labels: tuple[str, ...]) -> str:
        """What a sum is multiplied by when divisors have become others."""
        found = ""
        for scale in scales:
            before, now = self._within(scale, "old"), self._within(scale, "loop")
            text = step_of(before.text, now.text, scale[2], now.dtype)
            part = self._named(text, now.labels, now.dtype, "loop")
            found += f" * {aligned(part, labels)}"
        return found

    def _rescale(self, name: str, labels: tuple[str, ...], scales: Sequence[Term]) -> None:
        """A sum relative to the divisors of the loop becomes one relative to those of the
        program."""
        for scale in scales:
            kept, part = self._within(scale, "after"), self.wide(self.part(*scale[:2], "after"))
            count, one = self.size(self.terms.stream), number_text(1.0, part.dtype)
            rest = rest_of(kept.text, part.text, scale[2])
            text = f"op.where({count} > 0, {rest}, {one})"
            found = self._named(text, part.labels, part.dtype, "after")
            self.behind.append(f"{name} = {name} * {aligned(found, labels)}")

    def _product_of(self, terms: Sequence[Term]) -> Part:
        value, windows, _ = terms[0]
        part = self.wide(self.part(value, windows, "loop"))
        return self._times(part, terms[1:], "loop")

    def _add_shift(
        self, ranges: Ranges, value: Value, windows: Windows, power: int, shift: Atoms
    ) -> None:
        """Adds what earlier results do to a factor: to the exponent of ``exp``, of which they are
        the greatest that is so far."""
        if not self.terms.streams(value, windows):
            return
        operation = self.terms.made[value]
        if operation.name != "graph.exp":
            raise CutError(self.terms.first_result(value), _NO_SPLIT)
        exponent = self.terms.sum_of(operation.operands[0], windows)
        atoms = {k: power * x for k, x in exponent.items()}
        moving = [k for k in atoms if self.terms.streams(*k)]
        own = ranges.own_extreme(atoms)
        for key in moving:
            if STREAM in labels_of(key[1]):
                raise CutError(self.terms.first_result(key[0]), _NO_SPLIT)
            if key != own:
                raise CutError(self.terms.first_result(key[0]), _NO_BOUND)
            shift[key] = shift.get(key, 0.0) + atoms[key]
            self._guard(key)

    def _without(
        self, value: Value, windows: Windows, outside: Sequence[Term],
        within: Mapping[tuple[Value, Windows], Part],
    ) -> Part:  # fmt: skip
        """A term in the order in which it is written, without the factors that stand outside, and
        with those of ``within`` for others."""
        if (value, windows) in within:
            return within[value, windows]
        gone = {x[:2] for x in outside}
        factors = self.terms.factors(value, windows, 1)
        if not any(x[:2] in gone or x[:2] in within for x in factors):
            return self.part(value, windows, "loop")
        operation = self.terms.made[value]
        inner = moved(operation, windows)
        if inner is not None or operation.name == "graph.cast":
            return self._without(operation.operands[0], inner or windows, outside, within)
        left, right = (
            [x[:2] in gone for x in self.terms.factors(v, windows, 1)] for v in operation.operands
        )
        if all(right):
            return self._without(operation.operands[0], windows, outside, within)
        if all(left) and operation.name == "graph.mul":
            return self._without(operation.operands[1], windows, outside, within)
        b = self.wide(self._without(operation.operands[1], windows, outside, within))
        one = Part(number_text(1.0, b.dtype), (), b.dtype)
        a = one if all(left) else self.wide(
            self._without(operation.operands[0], windows, outside, within))  # fmt: skip
        labels = labels_of(tuple({Window(x, "") for x in (*a.labels, *b.labels)}))
        sign = "*" if operation.name == "graph.mul" else "/"
        return self._named(
            f"{aligned(a, labels)} {sign} {aligned(b, labels)}", labels, b.dtype, "loop"
        )

    # --- extremes of no elements that count -----------------------------------------------

    def _guard(self, key: tuple[Value, Windows]) -> None:
        """A result that is the extreme of no elements that count is 0 in what the loop computes:
        the terms so far are exponentials of -inf, and add nothing."""
        value, windows = self._bare(*key)
        if value is None or (value, windows) in self.guarded:
            return
        self.guarded.add((value, windows))
        for made in [k for k in self._parts if k[0] != "after" and self.terms.streams(*k[1:])]:
            del self._parts[made]
        for wanted in [k for k in self._weights if k[0] != "after"]:
            del self._weights[wanted]

    def _is_replaced(self, key: tuple[Value, Windows]) -> bool:
        """Whether a value is an extreme, or 0 where that is infinite, as what softmax is relative
        to: a sum of its terms is but a quotient, or in a logarithm."""
        operation = self.terms.made.get(key[0])
        if operation is None or not operation.operands:
            return False
        inner = moved(operation, key[1])
        if inner is not None:
            return self._is_replaced((operation.operands[0], inner))
        return operation.name == "graph.where" and Ranges(self.terms).is_extreme(*key)

    def _bare(self, value: Value, windows: Windows) -> tuple[Value | None, Windows]:
        """The extreme that a value is, where nothing replaces infinite ones."""
        operation = self.terms.made[value]
        if operation.name in _NEUTRAL:
            return value, windows
        inner = moved(operation, windows)
        return (None, windows) if inner is None else self._bare(operation.operands[0], inner)

    def _undo_guards(self, name: str, labels: tuple[str, ...], dtype: DType, shift: Atoms) -> None:
        """Behind the loop a sum relative to an infinite extreme is NaN, as its terms are; without
        any element it is 0."""
        for key in shift:
            value, windows = self._bare(*key)
            if value is None:
                continue
            part = self.wide(self.part(value, windows, "after"))
            count = self.size(self.terms.stream)
            text = f"op.where({count} > 0, {part.text} - {part.text}, {number_text(0.0, dtype)})"
            found = self._named(text, part.labels, dtype, "after")
            self.behind.append(f"{name} = {name} + {aligned(found, labels)}")

    # --- exponentials ------------------------------------------------------------------

    def _exponential(self, operation: Operation, windows: Windows, phase: Phase) -> Part:
        """``exp`` of a sum: one multiplication and addition for each element, in units of log2,
        where scores are products of 16 bits and a factor that all terms have is of no matter. That
        factor is a rounding error of the greatest score: not a float for scores above 2**30."""
        source, dtype = operation.operands[0], wide_of(operation.result.tensor_type.dtype)
        atoms = self.terms.sum_of(source, windows)
        full = [k for k in atoms if len(labels_of(k[1])) > 1]
        exact = not (self.narrow and any(map(self._is_replaced, atoms)))
        if dtype != F32 or len(full) != 1 or len(atoms) < 2 or exact:
            part = self.wide(self.part(source, windows, phase))
            return self._named(f"op.exp({part.text})", part.labels, dtype, phase)
        (own,) = full
        tile = self.wide(self.part(*own, phase))
        rest = self._weighted({k: x for k, x in atoms.items() if k != own}, phase, dtype)
        labels = labels_of(tuple({Window(x, "") for x in (*tile.labels, *rest.labels)}))
        scale = number_text(atoms[own] * _LOG2E, dtype)
        text = f"math.fma({aligned(tile, labels)}, {scale}, {aligned(rest, labels)})"
        return self._named(f"fast.exp2({text})", labels, dtype, phase)

    def _weighted(self, atoms: Atoms, phase: Phase, dtype: DType, unit: float = _LOG2E) -> Part:
        """A sum of values times numbers, in units of log2 or others."""
        wanted = phase, frozenset[object]((*atoms.items(), unit))
        if wanted in self._weights:
            return self._weights[wanted]
        found: Part | None = None
        for (value, windows), number in atoms.items():
            part = self.wide(self.part(value, windows, phase))
            text = f"{part.text} * {number_text(number * unit, dtype)}"
            if found is None:
                found = self._named(text, part.labels, dtype, phase)
                continue
            labels = labels_of(tuple({Window(x, "") for x in (*part.labels, *found.labels)}))
            one = self._named(text, part.labels, dtype, phase)
            both = f"{aligned(found, labels)} + {aligned(one, labels)}"
            found = self._named(both, labels, dtype, phase)
        assert found is not None
        self._weights[wanted] = found
        return found

    def _correction(self, shift: Atoms, labels: tuple[str, ...], dtype: DType) -> str:
        """What a sum is multiplied by when earlier results have become others."""
        moving = {k: x for k, x in shift.items() if x}
        if not moving:
            return ""
        exact = not (self.narrow and any(map(self._is_replaced, moving)))
        unit = 1.0 if exact else _LOG2E
        before = self._weighted(moving, "old", dtype, unit)
        now = self._weighted(moving, "loop", dtype, unit)
        step = f"{now.text} - {before.text}"
        step = f"({step}) * {number_text(_LOG2E, dtype)}" if exact else step
        word = "fast.exp2" if dtype == F32 else "op.exp2"
        # Before the first element that counts the sum is 0, and stays so for a finite factor.
        text = f"min({word}({step}), {dtype}({_LARGEST}))"
        part = self._named(text, now.labels, dtype, "loop")
        return f" * {aligned(part, labels)}"
