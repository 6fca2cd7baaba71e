"""For tests: runs Schedule IR on NumPy arrays, one operation after the other.

Written apart from every lowering, so that they can be checked against it. A tile is its
elements and a *state* for each: VALID; FILLED, beyond the extent but with a value that the IR
promises (zeros of a load, the fill of a mask); POISON, beyond the extent and unspecified (NaN,
or a garbage number). A POISON element that reaches memory, a reduction or a condition raises
``Leak``: whoever relied on it is wrong.

``evaluate(program, arguments)`` takes one argument per region argument: an array for a pointer
(its strides count), a number for anything else. ``launch(program, plan, *arguments)`` takes
what the caller of the kernel would give, and returns the results.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tessera_lang.ir.core import Operation, PointerType, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import Sym, evaluate_dim

Array = np.ndarray[Any, Any]
VALID, FILLED, POISON = 0, 1, 2

_NUMPY: dict[str, Any] = {
    "bool": np.bool_, "index": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
    **{f"i{b}": getattr(np, f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": getattr(np, f"uint{b}") for b in (8, 16, 32, 64)},
}  # fmt: skip
_SMALL_FLOATS = ("f16", "bf16", "f8e4m3", "f8e5m2")
OPEN_SIZES: Mapping[str, int] = {"$0": 16, "$1": 32, "$2": 8, "$3": 16, "$4": 8, "$5": 8}
"""What the open sizes of a schedule are worth unless the caller says it."""


class Leak(AssertionError):
    """An element that does not exist was observed."""


class Fault(AssertionError):
    """A start or an extent outside what the IR allows."""


def numpy_type(dtype: DType) -> Any:
    return _NUMPY[dtype.name]


@dataclass
class Tile:
    data: Array
    state: Array


def valid(data: Array) -> Tile:
    return Tile(data, np.zeros(data.shape, np.int8))


def garbage(dtype: Any) -> Any:
    """What stands where nothing is promised."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return True
    if kind.kind in "iu":
        return kind.type(77)
    return kind.type(np.nan)


def poisoned(data: Array, state: Array) -> Tile:
    state = np.where(state != VALID, POISON, VALID).astype(np.int8)
    return Tile(np.where(state == POISON, garbage(data.dtype), data).astype(data.dtype), state)


def _rows(n: Any) -> list[Any]:
    """A start, or the place of each row; None where there is none."""
    if not isinstance(n, Tile):
        return [int(n)]
    return [int(x) if s == VALID else None for x, s in zip(n.data, n.state, strict=True)]


@dataclass
class Run:
    """``faults``: sites of what was reported. ``shuffle``: run grid iterations in a random
    order, which must not change anything. ``touched`` is told of every place that is accessed."""

    sizes: Mapping[str, int] = field(default_factory=lambda: OPEN_SIZES)
    shuffle: np.random.Generator | None = None
    touched: Callable[[Operation, Array, tuple[int, ...]], None] | None = None
    faults: list[int] = field(default_factory=list)
    values: dict[Value, Any] = field(default_factory=dict)


def evaluate(program: Program, arguments: Sequence[Any], run: Run | None = None) -> list[int]:
    """Runs the kernel; arrays are written in place. The fault sites that were reported."""
    (kernel,) = program.operations
    run = run or Run()
    region = kernel.regions[0]
    for value, argument in zip(region.arguments, arguments, strict=True):
        if isinstance(value.type, DType):
            argument = numpy_type(value.type)(argument)
        run.values[value] = argument
    with np.errstate(all="ignore"):
        _Evaluator(run).region(region)
    return run.faults


def launch(
    program: Program, plan: LaunchPlan, *arguments: Any, run: Run | None = None
) -> tuple[Array, ...]:
    """Binds the sizes, checks the conditions, allocates the results and runs."""
    sizes = _bound(plan, arguments)
    for c in plan.conditions:
        left, right = evaluate_dim(c.left, sizes), evaluate_dim(c.right, sizes)
        test = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
                ">": operator.gt, ">=": operator.ge}[c.comparison]  # fmt: skip
        if not test(left, right):
            raise ValueError(f"{c.text}: {left} against {right}")
    results: list[Array] = []
    for r in plan.results:
        dtype = numpy_type(DTYPES[r.dtype])
        shape = tuple(evaluate_dim(d, sizes) for d in r.dims)
        results.append(np.full(shape, 0 if r.zeroed else garbage(dtype), dtype))
    arrays = [*arguments, *results]
    given: list[Any] = []
    for slot in plan.slots:
        match slot.kind:
            case "data" | "scalar":
                given.append(arrays[slot.parameter])
            case "size":
                given.append(arrays[slot.parameter].shape[slot.axis])
            case "stride":
                array = arrays[slot.parameter]
                given.append(array.strides[slot.axis] // array.itemsize)
            case "symbol":
                given.append(sizes[slot.symbol])
            case _:
                raise AssertionError(f"no {slot.kind} slot at this level")
    evaluate(program, given, run)
    made = zip(results, plan.results, strict=True)
    return tuple(array for array, r in made if not r.kept)


def _bound(plan: LaunchPlan, arguments: Sequence[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for parameter, argument in zip(plan.parameters, arguments, strict=True):
        if parameter.kind != "tensor":
            continue
        for axis, size in enumerate(argument.shape):
            sizes[f"{parameter.name}.shape[{axis}]"] = size
        for dim, size in zip(parameter.dims, argument.shape, strict=False):
            if isinstance(dim, Sym):
                if sizes.setdefault(dim.name, size) != size:
                    raise ValueError(f"{dim.name} is {sizes[dim.name]} and {size}")
    for parameter, argument in zip(plan.parameters, arguments, strict=True):
        for dim, size in zip(parameter.dims, getattr(argument, "shape", ()), strict=False):
            if evaluate_dim(dim, sizes) != size:
                raise ValueError(f"{dim} is not {size}")
    return sizes


class _Evaluator:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.values = run.values

    # --- structure --------------------------------------------------------------------------

    def region(self, region: Region) -> tuple[str, tuple[Any, ...]]:
        for o in region.operations:
            kind = o.name.removeprefix(PREFIX).removeprefix("tile.")
            if kind in ("yield", "break", "continue", "leave", "return", "condition"):
                return kind, self.get(o.operands)
            if o.regions:
                left = getattr(self, f"_{kind}")(o)
                if left is not None:
                    return left
                continue
            self.compute(o, kind)
        raise AssertionError("a region without a terminator")

    def get(self, values: Sequence[Value]) -> tuple[Any, ...]:
        return tuple(self.values[v] for v in values)

    def put(self, values: Sequence[Value], given: Sequence[Any]) -> None:
        for value, item in zip(values, given, strict=True):
            if isinstance(value.type, TileType):
                shape = self.shape(value)
                assert item.data.shape == shape == item.state.shape, (value, item.data.shape)
                assert item.data.dtype == numpy_type(value.type.dtype), (value, item.data.dtype)
            self.values[value] = item

    def shape(self, value: Value) -> tuple[int, ...]:
        assert isinstance(value.type, TileType)
        return tuple(self.run.sizes[n] if isinstance(n, str) else n for n in value.type.shape)

    def numbers(self, values: Sequence[Value]) -> list[int]:
        return [int(v) for v in self.get(values)]

    def _if(self, o: Operation) -> Any:
        kind, values = self.region(o.regions[0 if self.values[o.operands[0]] else 1])
        if kind != "yield":
            return kind, values
        self.put(o.results, values)
        return None

    def _scope(self, o: Operation) -> Any:
        kind, values = self.region(o.regions[0])
        if kind != "leave":
            return kind, values
        self.put(o.results, values)
        return None

    def _for(self, o: Operation) -> Any:
        n = len(o.attributes["axes"])  # type: ignore[arg-type]
        numbers = self.numbers(o.operands[: 3 * n])
        axes = [
            range(a, b, c)
            for a, b, c in zip(*(numbers[i * n : i * n + n] for i in range(3)), strict=True)
        ]
        if any(s <= 0 for s in numbers[2 * n :]):
            raise Fault("a step that is not positive")
        carried: Sequence[Any] = self.get(o.operands[3 * n :])
        points = list(itertools.product(*axes))
        if self.run.shuffle is not None:
            points = self._shuffled(points, o)
        for point in points:
            self.put(o.regions[0].arguments, (*map(np.int64, point), *carried))
            kind, values = self.region(o.regions[0])
            if kind in ("leave", "return"):
                return kind, values
            carried = values
            if kind == "break":
                break
        self.put(o.results, carried)
        return None

    def _shuffled(self, points: list[Any], o: Operation) -> list[Any]:
        """Axes on the grid in any order, the others in theirs."""
        assert self.run.shuffle is not None
        grid = [i for i, m in enumerate(o.attributes["mapping"]) if m == "grid"]  # type: ignore[arg-type]
        if not grid:
            return points
        keys = {p: self.run.shuffle.random() for p in {tuple(q[i] for i in grid) for q in points}}
        return sorted(points, key=lambda p: keys[tuple(p[i] for i in grid)])

    def _while(self, o: Operation) -> Any:
        carried: Sequence[Any] = self.get(o.operands)
        while True:
            self.put(o.regions[0].arguments, carried)
            kind, (test, *carried) = self.region(o.regions[0])
            assert kind == "condition"
            if not test:
                break
            self.put(o.regions[1].arguments, carried)
            kind, values = self.region(o.regions[1])
            if kind in ("leave", "return"):
                return kind, values
            carried = values
            if kind == "break":
                break
        self.put(o.results, carried)
        return None

    # --- operations -------------------------------------------------------------------------

    def compute(self, o: Operation, kind: str) -> None:
        method = getattr(self, f"_op_{kind}", None)
        if method is not None:
            self.put(o.results, method(o))
            return
        self.put(o.results, (self._elementwise(o, kind),))

    def _elementwise(self, o: Operation, kind: str) -> Any:
        values = self.get(o.operands)
        result = o.result.type
        dtype = numpy_type(result.dtype if isinstance(result, TileType) else result)  # type: ignore[arg-type]
        data = [v.data if isinstance(v, Tile) else v for v in values]
        found = scalar_operation(o, kind, data)
        if not isinstance(result, TileType):
            return dtype(found)
        tiles = [v for v in values if isinstance(v, Tile)]
        out = np.broadcast_to(np.asarray(found).astype(dtype), self.shape(o.result))
        state = np.maximum.reduce([t.state for t in tiles])
        if kind == "cast":  # a value that was promised stays so
            return Tile(out, state)
        if kind == "select":
            condition, a, b = values
            chosen = condition.data if isinstance(condition, Tile) else bool(condition)
            state = np.where(chosen, a.state, b.state)
            if isinstance(condition, Tile):
                state = np.maximum(state, np.where(condition.state == POISON, POISON, VALID))
            return Tile(out, state.astype(np.int8))
        return poisoned(out, state)

    def _op_constant(self, o: Operation) -> tuple[Any, ...]:
        return (numpy_type(o.result.type)(o.attributes["value"]),)  # type: ignore[arg-type]

    def _op_parameter(self, o: Operation) -> tuple[Any, ...]:
        return (np.int64(self.run.sizes[str(o.attributes["name"])]),)

    def _op_assert(self, o: Operation) -> tuple[Any, ...]:
        if not self.values[o.operands[0]]:
            self.run.faults.append(o.attributes["site"])  # type: ignore[arg-type]
        return ()

    def _op_view(self, o: Operation) -> tuple[Any, ...]:
        array, *numbers = self.get(o.operands)
        t = o.result.type
        assert isinstance(t, ViewType) and isinstance(o.operands[0].type, PointerType)
        rank = len(t.shape)
        sizes, strides = [int(n) for n in numbers[:rank]], [int(n) for n in numbers[rank:]]
        assert array.dtype == numpy_type(t.dtype)
        if t.contiguous:
            strides = [int(np.prod(sizes[i + 1 :])) for i in range(rank)]
        steps = [s * array.itemsize for s in strides]
        return (np.lib.stride_tricks.as_strided(array, sizes, steps, writeable=t.mut),)

    def _touch(self, o: Operation, view: Array, place: tuple[int, ...]) -> None:
        if self.run.touched is not None:
            self.run.touched(o, view, place)

    def _op_load(self, o: Operation) -> tuple[Any, ...]:
        if not o.name.startswith(PREFIX):  # of one element
            view, *indices = self.get(o.operands)
            place = tuple(int(i) for i in indices)
            if all(0 <= i < n for i, n in zip(place, view.shape, strict=True)):
                self._touch(o, view, place)
                return (view[place],)
            self.run.faults.append(o.attributes["site"])  # type: ignore[arg-type]
            return (view.dtype.type(0),)
        view, *numbers = self.get(o.operands)
        return (self._read(o, view, [[int(n)] for n in numbers[: view.ndim]], o.result),)

    def _op_gather(self, o: Operation) -> tuple[Any, ...]:
        view, *numbers = self.get(o.operands)
        starts = [_rows(n) for n in numbers[: view.ndim]]
        return (self._read(o, view, starts, o.result),)

    def _read(self, o: Operation, view: Array, starts: list[Any], result: Value) -> Tile:
        shape = self.shape(result)
        data, state = np.zeros(shape, view.dtype), np.full(shape, FILLED, np.int8)
        extents = self.numbers(o.operands[len(o.operands) - len(shape) :])
        whole = self._whole(o, view, starts, extents, shape)
        if whole is not None:
            part = tuple(map(slice, extents))
            data[part], state[part] = whole, VALID
            return Tile(data, state)
        for at, place in self._places(o, view, starts, extents, shape):
            if place is None:
                state[at] = VALID  # a row that is not there gives 0
                continue
            data[at], state[at] = view[place], VALID
            self._touch(o, view, place)
        return Tile(data, state)

    def _whole(
        self, o: Operation, view: Array, starts: list[Any], extents: list[int],
        shape: tuple[int, ...],
    ) -> Array | None:  # fmt: skip
        """What ``_places`` goes through as one array that shares the view's memory; None where
        places are not at equal steps, one is outside, or somebody wants to be told of each."""
        dims: Any = o.attributes["dims"]
        steps: Any = o.attributes.get("steps", (1,) * len(dims))
        if self.run.touched is not None or o.name in (f"{PREFIX}gather", f"{PREFIX}scatter"):
            return None
        if not all(0 < e <= n for e, n in zip(extents, shape, strict=True)):
            return None
        taken: list[Any] = [s[0] for s in starts]
        for d, e, step in zip(dims, extents, steps, strict=True):
            if isinstance(taken[d], slice) or step < 1:
                return None
            taken[d] = slice(taken[d], taken[d] + (e - 1) * step + 1, step)
        for t, n in zip(taken, view.shape, strict=True):
            first, last = (t.start, t.stop - 1) if isinstance(t, slice) else (t, t)
            if not 0 <= first <= last < n:
                return None
        order = sorted(dims)
        return view[tuple(taken)].transpose([order.index(d) for d in dims])

    def _places(
        self, o: Operation, view: Array, starts: list[Any], extents: list[int],
        shape: tuple[int, ...],
    ) -> Any:  # fmt: skip
        """Every coordinate of the extent with its place in the view; None where outside."""
        dims: Any = o.attributes["dims"]
        steps: Any = o.attributes.get("steps", (1,) * len(dims))
        gathered = o.name in (f"{PREFIX}gather", f"{PREFIX}scatter")
        for e, n in zip(extents, shape, strict=True):
            if not 0 <= e <= n:
                raise Fault(f"an extent of {e} in a tile of {shape}: {o}")
        for at in itertools.product(*(range(e) for e in extents)):
            place = [s[0] for s in starts]
            for i, d in enumerate(dims):
                if len(starts[d]) > 1 or (gathered and starts[d][0] is None):
                    place[d] = starts[d][at[i]]
                    if place[d] is None:
                        raise Leak(f"a place that does not exist is read: {o}")
                else:
                    place[d] += at[i] * steps[i]
            inside = all(0 <= p < n for p, n in zip(place, view.shape, strict=True))
            if not inside and not gathered:
                raise Fault(f"{place} is outside of {view.shape}: {o}")
            yield at, tuple(place) if inside else None

    def _op_store(self, o: Operation) -> tuple[Any, ...]:
        return self._write(o, lambda old, new, dtype: new)

    def _op_scatter(self, o: Operation) -> tuple[Any, ...]:
        tile, view, *numbers = self.get(o.operands)
        starts = [_rows(n) for n in numbers[: view.ndim]]
        extents = [int(n) for n in numbers[view.ndim :]]
        written: set[tuple[int, ...]] = set()
        for at, place in self._places(o, view, starts, extents, tile.data.shape):
            if tile.state[at] == POISON:
                raise Leak(f"element {at} is beyond the extent of what is stored: {o}")
            if place in written:
                raise Fault(f"{place} is written twice: {o}")
            if place is not None:
                written.add(place)
                view[place] = tile.data[at]
                self._touch(o, view, place)
        return ()

    def _op_accumulate(self, o: Operation) -> tuple[Any, ...]:
        """Each step is rounded here: exact only where the sums are; ``map_grid`` removes it."""
        step = _REDUCE[str(o.attributes["kind"])]
        return self._write(o, lambda old, new, dtype: step(np.asarray(old).astype(dtype), new))

    def _write(self, o: Operation, combine: Callable[[Any, Any, Any], Any]) -> tuple[Any, ...]:
        tile, view, *numbers = self.get(o.operands)
        starts = [[int(n)] for n in numbers[: view.ndim]]
        extents = [int(n) for n in numbers[view.ndim :]]
        part = tuple(map(slice, extents))
        whole = self._whole(o, view, starts, extents, tile.data.shape)
        if whole is not None and 0 not in view.strides and not (tile.state[part] == POISON).any():
            whole[...] = combine(whole, tile.data[part], tile.data.dtype)
            return ()
        for at, place in self._places(o, view, starts, extents, tile.data.shape):
            if tile.state[at] == POISON:
                raise Leak(f"element {at} is beyond the extent of what is stored: {o}")
            view[place] = combine(view[place], tile.data[at], tile.data.dtype)
            self._touch(o, view, place)
        return ()

    def _op_prefetch(self, o: Operation) -> tuple[Any, ...]:
        return self.get(o.operands)

    def _op_full(self, o: Operation) -> tuple[Any, ...]:
        scalar = self.values[o.operands[0]]
        return (valid(np.full(self.shape(o.result), scalar, np.asarray(scalar).dtype)),)

    def _op_iota(self, o: Operation) -> tuple[Any, ...]:
        shape, axis = self.shape(o.result), int(o.attributes["axis"])  # type: ignore[arg-type]
        along = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        dtype = numpy_type(o.result.type.dtype)  # type: ignore[union-attr]
        return (valid(np.broadcast_to(along, shape).astype(dtype)),)

    def _op_reduce(self, o: Operation) -> tuple[Any, ...]:
        tile, extent = self.get(o.operands)
        axis, kind = int(o.attributes["axis"]), str(o.attributes["kind"])  # type: ignore[arg-type]
        n = int(extent)
        if not 0 <= n <= tile.data.shape[axis]:
            raise Fault(f"{n} elements along axis {axis} of {tile.data.shape}: {o}")
        taken = np.arange(n)
        data = reduced(np.take(tile.data, taken, axis), axis, kind)
        state = np.take(tile.state, taken, axis).max(axis=axis, initial=VALID)
        if isinstance(o.result.type, TileType):
            return (poisoned(data, np.where(state == POISON, POISON, VALID)),)
        if state == POISON:
            raise Leak(f"reduces elements beyond the extent: {o}")
        return (data[()],)

    def _op_scan(self, o: Operation) -> tuple[Any, ...]:
        (tile,) = self.get(o.operands)
        axis, kind = int(o.attributes["axis"]), str(o.attributes["kind"])  # type: ignore[arg-type]
        step = _REDUCE[kind]
        data, state = tile.data.copy(), tile.state.copy()
        rows, marks = np.moveaxis(data, axis, 0), np.moveaxis(state, axis, 0)
        for i in range(1, len(rows)):
            rows[i] = step(rows[i - 1], rows[i])
            marks[i] = np.maximum(marks[i - 1], marks[i])
        if not o.attributes["inclusive"]:
            rows[1:], marks[1:] = rows[:-1].copy(), marks[:-1].copy()
            rows[:1], marks[:1] = identity(kind, data.dtype), VALID
        return (poisoned(data, state),)

    def _op_expand(self, o: Operation) -> tuple[Any, ...]:
        (tile,), axis = self.get(o.operands), int(o.attributes["axis"])  # type: ignore[arg-type]
        return (Tile(np.expand_dims(tile.data, axis), np.expand_dims(tile.state, axis)),)

    def _op_broadcast(self, o: Operation) -> tuple[Any, ...]:
        (tile,), shape = self.get(o.operands), self.shape(o.result)
        return (Tile(np.broadcast_to(tile.data, shape), np.broadcast_to(tile.state, shape)),)

    def _op_transpose(self, o: Operation) -> tuple[Any, ...]:
        (tile,), order = self.get(o.operands), o.attributes["permutation"]
        return (Tile(tile.data.transpose(order), tile.state.transpose(order)),)  # type: ignore[arg-type]

    def _op_mask(self, o: Operation) -> tuple[Any, ...]:
        tile, fill, *extents = self.get(o.operands)
        inside = np.zeros(tile.data.shape, bool)
        inside[tuple(slice(0, int(e)) for e in extents)] = True
        state = np.where(inside, tile.state, FILLED).astype(np.int8)
        return (Tile(np.where(inside, tile.data, fill).astype(tile.data.dtype), state),)

    def _op_extract(self, o: Operation) -> tuple[Any, ...]:
        tile, *starts = self.get(o.operands)
        place = self._part(starts, self.shape(o.result), tile, o)
        return (Tile(tile.data[place], tile.state[place]),)

    def _op_insert(self, o: Operation) -> tuple[Any, ...]:
        tile, part, *numbers = self.get(o.operands)
        rank = tile.data.ndim
        extents = [int(n) for n in numbers[rank:]]
        place = self._part(numbers[:rank], extents, tile, o)
        taken = tuple(slice(0, e) for e in extents)
        data, state = tile.data.copy(), tile.state.copy()
        data[place], state[place] = part.data[taken], part.state[taken]
        return (Tile(data, state),)

    def _part(
        self, starts: Sequence[Any], shape: Sequence[int], tile: Tile, o: Operation
    ) -> tuple[slice, ...]:
        for s, n, size in zip(starts, shape, tile.data.shape, strict=True):
            if n and not 0 <= s <= size - n:
                raise Fault(f"a part of {tuple(shape)} at {starts} of {tile.data.shape}: {o}")
        return tuple(slice(int(s), int(s) + n) for s, n in zip(starts, shape, strict=True))

    def _op_dot(self, o: Operation) -> tuple[Any, ...]:
        a, b, accumulator = self.get(o.operands)
        dtype = accumulator.data.dtype
        product = np.matmul(a.data.astype(dtype), b.data.astype(dtype))
        bad_a = (a.state == POISON).any(axis=-1)[..., :, None]
        bad_b = (b.state == POISON).any(axis=-2)[..., None, :]
        bad = bad_a | bad_b | (accumulator.state == POISON)
        return (poisoned((accumulator.data + product).astype(dtype), bad),)


# --- arithmetic ------------------------------------------------------------------------------

_REDUCE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def identity(kind: str, dtype: Any) -> Any:
    kind_of = np.dtype(dtype)
    if kind in ("add", "any"):
        return kind_of.type(0)
    if kind in ("mul", "all"):
        return kind_of.type(1)
    if kind_of.kind in "iu":
        limits = np.iinfo(kind_of)
        return kind_of.type(limits.min if kind == "max" else limits.max)
    return kind_of.type(-np.inf if kind == "max" else np.inf)


def reduced(data: Array, axis: int, kind: str) -> Array:
    """A reduction as the language means it."""
    if kind in ("any", "all"):
        return np.asarray(getattr(data, kind)(axis=axis))
    if kind in ("argmax", "argmin"):
        if data.shape[axis] == 0:
            shape = data.shape[:axis] + data.shape[axis + 1 :]
            return np.zeros(shape, np.int64)
        wide = data.astype(np.float64) if data.dtype.kind not in "iub" else data
        return np.asarray(getattr(np, kind)(wide, axis=axis)).astype(np.int64)
    found = _REDUCE[kind].reduce(
        data, axis=axis, dtype=data.dtype, initial=identity(kind, data.dtype)
    )  # type: ignore[attr-defined]
    return np.asarray(found).astype(data.dtype)


def scalar_operation(o: Operation, kind: str, v: list[Any]) -> Any:
    """One element-wise operation of Tile IR, as docs/ir.md says."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple(*v)
    match kind:
        case "cast":
            return cast_to(v[0], _dtype_of(o.operands[0]), _dtype_of(o.result))
        case "bitcast":
            return np.asarray(v[0]).view(numpy_type(_dtype_of(o.result)))
        case "cmp":
            return _COMPARE[str(o.attributes["predicate"])](v[0], v[1])
        case "select":
            return np.where(v[0], v[1], v[2])
        case "floordiv" | "mod":
            a, b = np.asarray(v[0]), np.asarray(v[1])
            if a.dtype.kind in "iu":
                safe = np.where(b == 0, b.dtype.type(1), b)
                found = a // safe if kind == "floordiv" else a % safe
                return np.where(b == 0, a.dtype.type(0), found)
            return np.floor(a / b) if kind == "floordiv" else a - np.floor(a / b) * b
        case "shl" | "shr":
            a, n = np.asarray(v[0]), np.asarray(v[1])
            bits = a.dtype.itemsize * 8
            far = (n < 0) | (n >= bits)
            near = np.where(far, 0, n).astype(a.dtype)
            if kind == "shl":
                return np.where(far, a.dtype.type(0), a << near)
            return np.where(far, np.where(a < 0, a.dtype.type(-1), 0) if a.dtype.kind == "i" else 0,
                            a >> near)  # fmt: skip
        case "not":
            return ~np.asarray(v[0])
        case "fma":
            a, b, c = (np.asarray(x) for x in v)
            if a.dtype == np.float64:
                return (a.astype(np.longdouble) * b + c).astype(np.float64)
            return (a.astype(np.float64) * b + c).astype(a.dtype)
        case _:
            raise AssertionError(f"no {o.name} at this level")


_SIMPLE: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "neg": operator.neg,
    "min": np.minimum, "max": np.maximum, "abs": np.abs, "sqrt": np.sqrt, "exp2": np.exp2,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round,
    "approx": lambda a, exact: exact, "either": lambda exact, quick: exact,
}  # fmt: skip
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge,
}  # fmt: skip


def _dtype_of(value: Value) -> DType:
    t = value.type
    dtype = t.dtype if isinstance(t, TileType) else t
    assert isinstance(dtype, DType)
    return dtype


def cast_to(data: Any, source: DType, target: DType) -> Any:
    """Floats to integers saturate; f8 saturates to its largest finite value."""
    data, to = np.asarray(data), numpy_type(target)
    if target.kind == "bool":
        return data != 0
    if source.is_float and target.is_integer:
        limits = np.iinfo(to)
        wide = np.trunc(
            np.nan_to_num(data.astype(np.float64), nan=0.0, posinf=2.0**70, neginf=-(2.0**70))
        )
        low, high = wide <= limits.min, wide >= limits.max
        middle = np.where(low | high, 0, wide).astype(to)
        return np.where(low, to(limits.min), np.where(high, to(limits.max), middle))
    if target.name.startswith("f8"):
        most = float(ml_dtypes.finfo(to).max)
        return np.clip(data.astype(np.float32), -most, most).astype(to)
    if source.name in _SMALL_FLOATS and target.name in _SMALL_FLOATS:
        return data.astype(np.float32).astype(to)
    return data.astype(to)
