"""The launch plan: everything a runtime must know to run a compiled kernel.

A value of the compiler, made once per kernel and signature; the runtime only executes it.
It survives as JSON in the cache and in the manifest of ``tesserac build``. Must not know
NumPy, the driver or how arrays are held.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Literal, cast

from tessera_lang.record import dataclass, field
from tessera_lang.types.shape import Dim, dim_from_json, dim_to_json, evaluate_dim, symbols_of

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
LARGEST_SIZE = 1 << 48
"""Elements along some axes of an array, at most: a launch refuses more, so that compiled code may
rely on it. Axes of none do not count: ``(0, 2**60)`` is refused too."""


SMALL_SIZE = 1 << 30
SMALL_BYTES = 1 << 31
SMALL_LANES = 1 << 31


def reach(shape: Sequence[int]) -> int:
    """Elements along all axes that have any: the largest product of sizes of an array."""
    return prod(n for n in shape if n)


def is_small(shape: Sequence[int], strides: Sequence[int], element: int) -> bool:
    """Whether 32 bits hold all that is reckoned of an array: no axis has more than ``SMALL_SIZE``
    elements, there are fewer than ``SMALL_BYTES``, and none is as many bytes or more from the
    first. A launch of code for such arrays has fewer than ``SMALL_LANES`` lanes in all."""
    far = sum(max(n - 1, 0) * abs(stride) for n, stride in zip(shape, strides, strict=True))
    few = max(shape, default=0) <= SMALL_SIZE and reach(shape) < SMALL_BYTES
    return few and (far + 1) * element <= SMALL_BYTES


@dataclass(frozen=True, slots=True)
class ParameterPlan:
    """One parameter of the kernel as the caller sees it.

    ``dims`` are the sizes the annotation names (symbols bind at the call, in order; a plain
    symbol binds on first sight, anything else is checked); empty with ``rank`` > 0 where the
    parameter has no annotation. ``contiguous`` and ``aligned`` are the launch facts that
    this variant was compiled for: row-major without gaps, base a multiple of 16 bytes. ``small``
    is one more, of all arrays or none: see ``is_small``.
    ``span`` is (file, line, column), 1-based, of the parameter. ``value`` is what a
    ``constant`` was compiled for (a dtype by its name), None where that is not known.
    ``sizes``, ``divisors``, ``unit``, ``pitches`` and ``buckets`` are the further facts that
    code of a tile kernel may rely on (see ``sema.typed.TensorArgument``); of a lane kernel they
    are empty.
    """

    name: str
    kind: Literal["tensor", "scalar", "constant"]
    dtype: str
    rank: int = 0
    dims: tuple[Dim, ...] = ()
    mut: bool = False
    contiguous: bool = False
    aligned: bool = False
    span: tuple[str, int, int] = ("", 0, 0)
    value: int | float | bool | str | None = None
    sizes: tuple[int | None, ...] = ()
    divisors: tuple[int, ...] = ()
    unit: int = -1
    pitches: bool = False
    buckets: tuple[int | None, ...] = ()
    small: bool = False

    @property
    def declared(self) -> str:
        """What the annotation says, for a message."""
        head = "mut " if self.mut else ""
        if self.rank and not self.dims:
            return f"{head}{self.dtype} array of rank {self.rank}"
        dims = f"[{', '.join(map(str, self.dims))}]" if self.rank else ""
        return f"{head}{self.dtype}{dims}"


@dataclass(frozen=True, slots=True)
class Slot:
    """One 64-bit argument of the compiled code, in order.

    ``data``: address of the first element of parameter ``parameter``; ``bytes``: its elements by
    value, row-major (the runtime gives the address of host memory that the launch copies);
    ``size`` and ``stride``: of its axis ``axis`` (strides in elements, may be negative or 0);
    ``symbol``: the value of size ``symbol``; ``scalar``: the parameter's value in the low bits;
    ``groups``: number of groups; ``fault``: address of the fault record. ``parameter`` counts
    the results of a tile kernel behind its parameters. ``tensor_map``: 128 bytes by value, a map
    of the array whose box is ``box`` elements (outermost axis first, one number an axis of the
    array) with that ``swizzle`` in bytes; ``axes`` are the array's axes in the order of the box.
    ``workspace`` and ``scratch``: the plan's memory of that name. ``print``: see ``PRINT_WORDS``.
    """

    kind: Literal[
        "data", "bytes", "size", "stride", "symbol", "scalar", "groups", "fault", "tensor_map",
        "workspace", "scratch", "print",
    ]  # fmt: skip
    parameter: int = -1
    axis: int = -1
    symbol: str = ""
    dtype: str = "index"
    box: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class FaultSite:
    """A guarded operation that may report: what it does to which array, and the line."""

    kind: Literal["read", "write", "atomic", "division", "step", "assert"]
    what: str
    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class PrintText:
    """A line that lanes print: ``pieces`` of text with a value between each two of them, of
    ``dtypes`` and shown as ``formats`` say ("" for the usual way)."""

    pieces: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


PRINT_WORDS = 1 << 17
"""64-bit words of the buffer that the ``print`` slot gives: the number of words taken, the number
of lines that found no room, and the lines, each its text + 1, group, lane and values."""


Compared = tuple[Dim, Comparison, Dim]


@dataclass(frozen=True, slots=True)
class Condition:
    """A fact checked once at the call: ``left <comparison> right``, or one of ``others``, with its
    source text. Only where there are no others is the comparison itself a fact."""

    left: Dim
    comparison: Comparison
    right: Dim
    text: str
    span: tuple[str, int, int] = ("", 0, 0)
    others: tuple[Compared, ...] = ()

    @property
    def alternatives(self) -> tuple[Compared, ...]:
        return ((self.left, self.comparison, self.right), *self.others)

    @property
    def symbols(self) -> frozenset[str]:
        """The sizes that it is about."""
        return frozenset[str]().union(
            *(symbols_of(d) for left, _, right in self.alternatives for d in (left, right))
        )

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it holds for these sizes. What divides by zero does not. Raises KeyError for an
        unbound size, and ZeroDivisionError where nothing else is left."""
        divided: ZeroDivisionError | None = None
        for left, comparison, right in self.alternatives:
            try:
                if _HOLDS[comparison](evaluate_dim(left, sizes), evaluate_dim(right, sizes)):
                    return True
            except ZeroDivisionError as fault:
                divided = fault
        if divided is not None:
            raise divided
        return False


_HOLDS: dict[Comparison, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ResultPlan:
    """An array that a tile kernel returns: the runtime allocates it, row-major, and passes it
    behind the parameters. ``zeroed``: all of its bytes are 0 when the kernel begins; the runtime
    sees to it on the stream of the launch. ``kept``: no caller gets it, it is what the launches of
    one call leave for those behind them, or an array that the kernel alone sees; such results stand
    last."""

    dtype: str
    dims: tuple[Dim, ...]
    zeroed: bool = False
    kept: bool = False


COPY_AXES = 5
"""Axes of an array at most of which a copy is made: with any strides, the kernels that copy take a
line and four axes around it."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A copy of a parameter's array that the runtime makes before each launch, on its stream.

    Its axes are numbered as the parameter's; ``axes`` is their order in memory, outermost
    first. Elements along the last of them lie next to each other, the lines begin at multiples
    of ``alignment`` bytes, and what is between lines is nobody's.
    """

    parameter: int
    axes: tuple[int, ...]
    alignment: int = 128

    def strides(self, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
        """The strides of the copy in elements of ``size`` bytes, by axis."""
        out = [1] * len(shape)
        step = self.pitch(shape, size) // size
        for axis in reversed(self.axes[:-1]):
            out[axis] = step
            step *= shape[axis]
        return tuple(out)

    def pitch(self, shape: tuple[int, ...], size: int) -> int:
        """Bytes from line to line."""
        return -(-shape[self.axes[-1]] * size // self.alignment) * self.alignment


COPY_ALIGNMENT = 128
"""Bytes at whose multiples the lines of a copy begin whose axes lie as the array's, and at which
every copy begins."""
REORDERED_ALIGNMENT = 16
"""The same of lines along another axis, which may be short: what the copy engine asks for."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How a call becomes a launch.

    ``group`` lanes per axis (1 to 3 axes, last fastest); ``grid`` groups per axis as sizes,
    or None where the call must say ``k[groups](...)``; ``grid_groups`` bound by a shape shows
    as ``grid == (Sym("grid_groups"),)``. ``grid_rank``: axes of the grid that the code was compiled
    for where the call says it: a launch of fewer or more axes needs other code.
    ``shared_bytes`` is what the code allocates.
    ``sites`` are numbered from 0; the fault record holds the number. ``results`` are the arrays
    the kernel returns (a tuple where there are several). ``cluster``: groups per cluster along
    each axis. ``workspace``: bytes of device memory, zero before the first launch and left zero
    by every launch, given as the ``workspace`` slot; ``scratch``: bytes that hold anything before
    and after, given as the ``scratch`` slot. ``persistent``: the groups walk over all
    tiles, so at most as many are launched as run at once. ``copies``: arrays in a form that the
    code needs, counted behind the results. ``prints``: the lines of ``print``, numbered from 0.
    ``launches_before``: a call is several launches, one behind the other, and this is the one
    behind so many; what is of the whole call (parameters, results, conditions, sites) is in each.
    ``brackets``: the compile-time parameters in brackets, with the values compiled for.
    """

    kernel: str
    parameters: tuple[ParameterPlan, ...]
    slots: tuple[Slot, ...]
    group: tuple[int, ...]
    grid: tuple[Dim, ...] | None
    shared_bytes: int = 0
    sites: tuple[FaultSite, ...] = ()
    conditions: tuple[Condition, ...] = field(default=())
    results: tuple[ResultPlan, ...] = ()
    cluster: tuple[int, ...] = ()
    workspace: Dim = 0
    scratch: Dim = 0
    persistent: bool = False
    copies: tuple[CopyPlan, ...] = ()
    prints: tuple[PrintText, ...] = ()
    launches_before: int = 0
    grid_rank: int = 1
    brackets: tuple[ParameterPlan, ...] = ()

    @property
    def grid_axes(self) -> int:
        """Axes of the grid of every launch."""
        return self.grid_rank if self.grid is None else len(self.grid)

    @property
    def entry(self) -> str:
        """The name of the code of this launch."""
        return f"{self.kernel}__{self.launches_before + 1}" if self.launches_before else self.kernel

    @property
    def first_copy(self) -> int:
        """The number of the first copy among parameters, results and copies."""
        return len(self.parameters) + len(self.results)

    def copy_of(self, number: int) -> CopyPlan | None:
        """The copy of that number; None where it is a parameter or a result."""
        at = number - self.first_copy
        return self.copies[at] if 0 <= at < len(self.copies) else None

    def is_given(self, number: int) -> bool:
        """Whether a call gives an array: no copy, and nothing that launches keep."""
        result = number - len(self.parameters)
        return number < self.first_copy and not (result >= 0 and self.results[result].kept)

    def to_json(self) -> dict[str, object]:
        return {
            "kernel": self.kernel,
            "parameters": [_parameter_to_json(p) for p in self.parameters],
            "brackets": [_parameter_to_json(p) for p in self.brackets],
            "slots": [
                {"kind": s.kind, "parameter": s.parameter, "axis": s.axis,
                 "symbol": s.symbol, "dtype": s.dtype, "box": list(s.box),
                 "axes": list(s.axes), "swizzle": s.swizzle}
                for s in self.slots
            ],
            "group": list(self.group),
            "grid": None if self.grid is None else [dim_to_json(d) for d in self.grid],
            "shared_bytes": self.shared_bytes,
            "sites": [[s.kind, s.what, s.file, s.line, s.column] for s in self.sites],
            "conditions": [
                [[[dim_to_json(a), o, dim_to_json(b)] for a, o, b in c.alternatives], c.text,
                 list(c.span)]
                for c in self.conditions
            ],
            "results": [
                [r.dtype, [dim_to_json(d) for d in r.dims], r.zeroed, r.kept]
                for r in self.results
            ],
            "cluster": list(self.cluster),
            "workspace": dim_to_json(self.workspace),
            "scratch": dim_to_json(self.scratch),
            "persistent": self.persistent,
            "copies": [[c.parameter, list(c.axes), c.alignment] for c in self.copies],
            "prints": [[list(p.pieces), list(p.dtypes), list(p.formats)] for p in self.prints],
            "launches_before": self.launches_before, "grid_rank": self.grid_rank,
        }  # fmt: skip

    @staticmethod
    def from_json(value: object) -> LaunchPlan:
        """The plan that ``to_json`` wrote. Raises ValueError, KeyError or TypeError."""
        d = cast("dict[str, list[object]]", value)
        grid = cast("list[object] | None", d["grid"])
        return LaunchPlan(
            kernel=str(d["kernel"]),
            parameters=tuple(_parameter(cast("dict[str, object]", p)) for p in d["parameters"]),
            brackets=tuple(_parameter(cast("dict[str, object]", p)) for p in d["brackets"]),
            slots=tuple(_slot(cast("dict[str, object]", s)) for s in d["slots"]),
            group=tuple(cast("list[int]", d["group"])),
            grid=None if grid is None else tuple(dim_from_json(g) for g in grid),
            shared_bytes=cast("int", d["shared_bytes"]),
            sites=tuple(FaultSite(*cast("list[str]", s)) for s in d["sites"]),  # type: ignore[arg-type]
            conditions=tuple(_condition(cast("list[object]", c)) for c in d["conditions"]),
            results=tuple(_result(cast("list[object]", r)) for r in d["results"]),
            cluster=tuple(cast("list[int]", d["cluster"])),
            workspace=dim_from_json(d["workspace"]),
            scratch=dim_from_json(d["scratch"]),
            persistent=bool(d["persistent"]),
            copies=tuple(_copy(c) for c in d["copies"]),
            prints=tuple(PrintText(*map(tuple, cast("list[list[str]]", p))) for p in d["prints"]),
            launches_before=cast("int", d["launches_before"]),
            grid_rank=cast("int", d["grid_rank"]),
        )


def _parameter_to_json(p: ParameterPlan) -> dict[str, object]:
    return {
        "name": p.name, "kind": p.kind, "dtype": p.dtype, "rank": p.rank,
        "dims": [dim_to_json(d) for d in p.dims], "mut": p.mut, "contiguous": p.contiguous,
        "aligned": p.aligned, "span": list(p.span), "value": p.value, "sizes": list(p.sizes),
        "divisors": list(p.divisors), "unit": p.unit, "pitches": p.pitches,
        "buckets": list(p.buckets), "small": p.small,
    }  # fmt: skip


_ROWS = ("sizes", "divisors", "buckets")  # fields of a parameter that are rows of numbers


def _slot(s: dict[str, object]) -> Slot:
    box, axes = cast("list[int]", s["box"]), cast("list[int]", s["axes"])
    return Slot(**{**s, "box": tuple(box), "axes": tuple(axes)})  # type: ignore[arg-type]


def _result(r: list[object]) -> ResultPlan:
    dtype, dims, zeroed, kept = r
    sizes = tuple(dim_from_json(x) for x in cast("list[object]", dims))
    return ResultPlan(str(dtype), sizes, bool(zeroed), bool(kept))


def _copy(c: object) -> CopyPlan:
    parameter, axes, *alignment = cast("tuple[int, list[int], int]", c)
    return CopyPlan(parameter, tuple(axes), *alignment)


def _span(value: object) -> tuple[str, int, int]:
    file, line, column = cast("tuple[str, int, int]", value)
    return file, line, column


def _parameter(p: dict[str, object]) -> ParameterPlan:
    dims = tuple(dim_from_json(x) for x in cast("list[object]", p["dims"]))
    rows = {name: tuple(cast("list[object]", p[name])) for name in _ROWS}
    return ParameterPlan(**{**p, **rows, "dims": dims, "span": _span(p["span"])})  # type: ignore[arg-type]


def _condition(c: list[object]) -> Condition:
    alternatives, text, span = c
    compared: list[Compared] = [
        (dim_from_json(left), cast("Comparison", comparison), dim_from_json(right))
        for left, comparison, right in cast("list[list[object]]", alternatives)
    ]
    return Condition(*compared[0], str(text), _span(span), tuple(compared[1:]))
