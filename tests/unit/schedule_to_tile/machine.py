"""For tests: runs register-tile Tile IR on NumPy arrays, a whole tile at a time.

Written apart from the lowering and from every backend. Asynchronous copies land at their
``wait`` only. Every element of shared and global memory remembers what was done to it since the
last barrier, by which lanes (the layout of the access): touching what others have written, or
overwriting what others have read, without a barrier between raises ``Race``. Shared memory
starts as poison, and a copy that has not landed leaves poison, so that a missing wait or a wrong
stage shows in the results too.

``launch(program, plan, *arguments)`` takes what the caller of the kernel would give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera_lang.ir.core import BufferType, Operation, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.target.plan import LaunchPlan
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import evaluate_dim
from tests.unit.schedule import reference
from tests.unit.schedule.reference import garbage, numpy_type, reduced, scalar_operation

Array = np.ndarray[Any, Any]
Land = Callable[[], None]
"""What an asynchronous copy does when it arrives."""


class Race(AssertionError):
    """Two lanes touch one element without a barrier between."""


@dataclass(eq=False)
class Memory:
    """An array with, for each element, who wrote it and who read it since the last barrier:
    0 nobody, -1 several, else the number of an access (equal for equal lanes)."""

    data: Array
    written: Array = field(init=False)
    read: Array = field(init=False)
    place: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self.written, self.read = self._marks(), self._marks()

    def _marks(self) -> Array:
        """One for each element, with the strides of the data."""
        strides = [s // self.data.itemsize for s in self.data.strides]
        span = 1 + sum(max(0, n - 1) * s for n, s in zip(self.data.shape, strides, strict=True))
        flat = np.zeros(span, np.int64)
        return np.lib.stride_tricks.as_strided(flat, self.data.shape, [8 * s for s in strides])

    def overlaps(self, other: Memory) -> bool:
        """Whether two buffers share bytes of the group's shared memory."""
        return self.place[0] < other.place[1] and other.place[0] < self.place[1]

    def barrier(self) -> None:
        self.written[...] = 0
        self.read[...] = 0

    def view(self, sizes: Sequence[int], strides: Sequence[int]) -> Memory:
        made = object.__new__(Memory)
        for name in ("data", "written", "read"):
            array = getattr(self, name)
            steps = [s * array.itemsize for s in strides]
            plain = array.view(f"V{array.itemsize}")  # NumPy knows no strides of some dtypes
            strided = np.lib.stride_tricks.as_strided(plain, sizes, steps)
            setattr(made, name, strided.view(array.dtype))
        return made


@dataclass(eq=False)
class Machine:
    """One group at a time."""

    values: dict[Value, Any]
    group: int
    groups: int
    memories: list[Memory] = field(default_factory=list[Memory])
    lanes: dict[Any, int] = field(default_factory=dict[Any, int])
    issued: list[Land] = field(default_factory=list[Land])
    committed: list[list[Land]] = field(default_factory=list[list[Land]])

    # --- structure --------------------------------------------------------------------------

    def region(self, region: Region) -> tuple[str, tuple[Any, ...]]:
        for o in region.operations:
            kind = o.name.removeprefix("tile.")
            if kind in ("yield", "break", "continue", "leave", "return", "condition"):
                return kind, self.get(o.operands)
            if o.regions:
                left = getattr(self, f"_{kind}")(o)
                if left is not None:
                    return left
                continue
            method = getattr(self, f"_op_{kind.replace('.', '_')}", None)
            self.put(o.results, method(o) if method else (self.elementwise(o, kind),))
        raise AssertionError("a region without a terminator")

    def get(self, values: Sequence[Value]) -> tuple[Any, ...]:
        return tuple(self.values[v] for v in values)

    def numbers(self, values: Sequence[Value]) -> list[int]:
        return [int(self.values[v]) for v in values]

    def put(self, values: Sequence[Value], given: Sequence[Any]) -> None:
        for value, item in zip(values, given, strict=True):
            if isinstance(value.type, TileType):
                assert item.shape == value.type.shape, (value, item.shape)
                assert item.dtype == numpy_type(value.type.dtype), (value, item.dtype)
            self.values[value] = item

    def _if(self, o: Operation) -> Any:
        kind, values = self.region(o.regions[0 if self.values[o.operands[0]] else 1])
        return self._left(o, kind, values, "yield")

    def _scope(self, o: Operation) -> Any:
        return self._left(o, *self.region(o.regions[0]), "leave")

    def _left(self, o: Operation, kind: str, values: Any, own: str) -> Any:
        if kind != own:
            return kind, values
        self.put(o.results, values)
        return None

    def _for(self, o: Operation) -> Any:
        lower, upper, step = self.numbers(o.operands[:3])
        carried: Sequence[Any] = self.get(o.operands[3:])
        for i in range(lower, upper, step):
            self.put(o.regions[0].arguments, (np.int64(i), *carried))
            kind, values = self.region(o.regions[0])
            if kind in ("leave", "return"):
                return kind, values
            carried = values
            if kind == "break":
                break
        self.put(o.results, carried)
        return None

    def _while(self, o: Operation) -> Any:
        carried: Sequence[Any] = self.get(o.operands)
        while True:
            self.put(o.regions[0].arguments, carried)
            _, (test, *carried) = self.region(o.regions[0])
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

    # --- scalars and element-wise work --------------------------------------------------------

    def elementwise(self, o: Operation, kind: str) -> Any:
        result = o.result.type
        dtype = numpy_type(result.dtype if isinstance(result, TileType) else result)  # type: ignore[arg-type]
        if isinstance(result, TileType):
            for v in o.operands:
                same = not isinstance(v.type, TileType) or v.type.layout == result.layout
                assert same, f"layouts differ: {o}"
        found = np.asarray(scalar_operation(o, kind, list(self.get(o.operands))))
        return found.astype(dtype) if isinstance(result, TileType) else dtype(found)

    def _op_constant(self, o: Operation) -> Any:
        return (numpy_type(o.result.type)(o.attributes["value"]),)  # type: ignore[arg-type]

    def _op_group_linear(self, o: Operation) -> Any:
        return (np.int64(self.group),)

    def _op_group_count(self, o: Operation) -> Any:
        return (np.int64(self.groups),)

    def _op_lane_linear(self, o: Operation) -> Any:
        return (np.int64(0),)

    def _op_assert(self, o: Operation) -> Any:
        return ()

    def _op_view(self, o: Operation) -> Any:
        memory, *numbers = self.get(o.operands)
        t = o.result.type
        assert isinstance(t, ViewType)
        rank = len(t.shape)
        sizes, strides = [int(n) for n in numbers[:rank]], [int(n) for n in numbers[rank:]]
        if t.contiguous:
            strides = [int(np.prod(sizes[i + 1 :])) for i in range(rank)]
        return (memory.view(sizes, strides),)

    def _op_load(self, o: Operation) -> Any:
        memory, *indices = self.get(o.operands)
        place = tuple(int(i) for i in indices)
        if all(0 <= i < n for i, n in zip(place, memory.data.shape, strict=True)):
            return (memory.data[place],)
        return (memory.data.dtype.type(0),)

    def _op_store(self, o: Operation) -> Any:
        value, memory, *indices = self.get(o.operands)
        memory.data[tuple(int(i) for i in indices)] = value
        return ()

    # --- tiles ----------------------------------------------------------------------------------

    def _shape(self, o: Operation) -> tuple[int, ...]:
        assert isinstance(o.result.type, TileType)
        return o.result.type.sizes

    def _op_splat(self, o: Operation) -> Any:
        (value,) = self.get(o.operands)
        return (np.full(self._shape(o), value),)

    def _op_coordinate(self, o: Operation) -> Any:
        shape, axis = self._shape(o), o.attributes["axis"]
        assert isinstance(axis, int)
        t = o.result.type
        along = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return (np.broadcast_to(along, shape).astype(numpy_type(t.dtype)),)  # type: ignore[union-attr]

    def _scratch(self, o: Operation) -> None:
        """Operations with scratch begin with a barrier and touch all of it."""
        for value in o.operands[1:]:
            self._op_barrier(o)
            memory: Memory = self.values[value]
            self._touch_write(memory, (slice(None),), ("scratch", id(o), len(self.lanes)))

    def _op_reduce_tile(self, o: Operation) -> Any:
        self._scratch(o)
        axis, kind = int(o.attributes["axis"]), str(o.attributes["kind"])  # type: ignore[arg-type]
        found = reduced(self.values[o.operands[0]], axis, kind)
        t = o.result.type
        dtype = numpy_type(t.dtype if isinstance(t, TileType) else t)  # type: ignore[arg-type]
        return (found.astype(dtype),) if isinstance(t, TileType) else (dtype(found),)

    def _op_scan_tile(self, o: Operation) -> Any:
        self._scratch(o)
        kind, axis = str(o.attributes["kind"]), int(o.attributes["axis"])  # type: ignore[arg-type]
        step = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[kind]
        data = self.values[o.operands[0]].copy()
        rows = np.moveaxis(data, axis, 0)
        for i in range(1, len(rows)):
            rows[i] = step(rows[i - 1], rows[i])
        if not o.attributes["inclusive"]:
            rows[1:] = rows[:-1].copy()
            rows[:1] = reference.identity(kind, data.dtype)
        return (data,)

    def _op_expand_tile(self, o: Operation) -> Any:
        axis = int(o.attributes["axis"])  # type: ignore[arg-type]
        wide = np.expand_dims(self.values[o.operands[0]], axis)
        return (np.broadcast_to(wide, self._shape(o)).copy(),)

    def _op_transpose_tile(self, o: Operation) -> Any:
        return (np.transpose(self.values[o.operands[0]], o.attributes["permutation"]),)  # type: ignore[arg-type]

    def _op_convert(self, o: Operation) -> Any:
        self._scratch(o)
        return (self.values[o.operands[0]],)

    def _op_slice_tile(self, o: Operation) -> Any:
        starts: Any = o.attributes["starts"]
        at = tuple(slice(s, s + n) for s, n in zip(starts, self._shape(o), strict=True))
        return (self.values[o.operands[0]][at],)

    def _op_dot(self, o: Operation) -> Any:
        a, b, accumulator, *starts = o.operands
        places = self.numbers(starts)
        sides: list[Array] = []
        for value in (a, b):
            if isinstance(value.type, BufferType):
                memory: Memory = self.values[value]
                rank = memory.data.ndim
                at, places = places[:rank], places[rank:]
                box = (*at[:-2], slice(at[-2], None), slice(at[-1], None))
                self._touch_read(memory, box, ("dot", id(o)))
                sides.append(memory.data[box])
            else:
                sides.append(self.values[value])
        total = self.values[accumulator]
        product = np.matmul(sides[0].astype(total.dtype), sides[1].astype(total.dtype))
        return ((total + product).astype(total.dtype),)

    # --- memory -----------------------------------------------------------------------------------

    def _number(self, lanes: Any) -> int:
        return self.lanes.setdefault(lanes, len(self.lanes) + 1)

    def _touch_read(self, memory: Memory, box: Any, lanes: Any) -> None:
        number = self._number(lanes)
        others = memory.written[box]
        if np.any((others != 0) & (others != number)):
            raise Race(f"reads what others wrote: {lanes}")
        held = memory.read[box]
        memory.read[box] = np.where((held == 0) | (held == number), number, -1)

    def _touch_write(self, memory: Memory, box: Any, lanes: Any) -> None:
        number = self._number(lanes)
        self._take(memory, lanes)
        for held in (memory.written[box], memory.read[box]):
            if np.any((held != 0) & (held != number)):
                raise Race(f"overwrites what others touched: {lanes}")
        memory.written[box] = number

    def _box(self, o: Operation, first: int, rank: int, memory: Memory) -> tuple[Any, Any, Any]:
        """Where the extent lies in the array."""
        numbers = self.numbers(o.operands[first:])
        starts, extents = numbers[: memory.data.ndim], numbers[memory.data.ndim :][:rank]
        dims: tuple[int, ...] = o.attributes["dims"]  # type: ignore[assignment]
        steps: tuple[int, ...] = o.attributes["steps"]  # type: ignore[assignment]
        box: list[Any] = list(starts)
        if all(extents):
            for d, e, s in zip(dims, extents, steps, strict=True):
                assert starts[d] >= 0 and starts[d] + (e - 1) * s < memory.data.shape[d], o
                box[d] = slice(starts[d], starts[d] + (e - 1) * s + 1, s)
        else:
            box = [slice(0, 0) if i in dims else 0 for i in range(len(starts))]
        return tuple(box), extents, dims

    def _taken(self, memory: Memory, box: Any, dims: Any, extents: Any, shape: Any) -> Array:
        out = np.zeros(shape, memory.data.dtype)
        if all(extents):
            kept = sorted(dims)
            part = np.transpose(memory.data[box], [kept.index(d) for d in dims])
            out[tuple(slice(0, e) for e in extents)] = part
        return out

    def _check_vector(self, o: Operation, memory: Memory, box: Any, extents: Any) -> None:
        """Pieces of ``vector`` bytes are aligned where the operation says so."""
        vector = o.attributes.get("vector", 1)
        assert isinstance(vector, int)
        if not all(extents) or vector <= memory.data.itemsize:
            return
        dims: Any = o.attributes["dims"]
        unit = next(d for d in dims if memory.data.strides[d] == memory.data.itemsize)
        start = box[unit].start
        assert start * memory.data.itemsize % vector == 0, f"start {start} of {o}"
        for axis, stride in enumerate(memory.data.strides):
            many = isinstance(box[axis], slice) or box[axis]
            assert axis == unit or not many or stride % vector == 0, f"stride {stride}: {o}"
        if o.attributes.get("whole"):
            n = extents[list(dims).index(unit)] * memory.data.itemsize
            assert n % vector == 0, f"extent {n} bytes of {o}"

    def _op_load_tile(self, o: Operation) -> Any:
        memory: Memory = self.values[o.operands[0]]
        shape = self._shape(o)
        box, extents, dims = self._box(o, 1, len(shape), memory)
        self._check_vector(o, memory, box, extents)
        t: Any = o.result.type
        self._touch_read(memory, box, ("view", str(t.layout), str(box), dims))
        return (self._taken(memory, box, dims, extents, shape),)

    def _op_store_tile(self, o: Operation) -> Any:
        tile, memory = self.get(o.operands[:2])
        t: Any = o.operands[0].type
        box, extents, dims = self._box(o, 2, tile.ndim, memory)
        self._check_vector(o, memory, box, extents)
        self._touch_write(memory, box, ("view", str(t.layout), str(box), dims))
        if all(extents):
            part = tile[tuple(slice(0, e) for e in extents)]
            kept = sorted(dims)
            memory.data[box] = np.transpose(part, [list(dims).index(d) for d in kept])
        return ()

    def _op_gather_tile(self, o: Operation) -> Any:
        memory, *numbers = self.get(o.operands)
        shape = self._shape(o)
        dims: Any = o.attributes["dims"]
        extents = [int(n) for n in numbers[memory.data.ndim :]]
        out = np.zeros(shape, memory.data.dtype)
        for at in np.ndindex(*extents):
            place: list[int] = []
            for d, start in enumerate(numbers[: memory.data.ndim]):
                along = at[list(dims).index(d)] if d in dims else 0
                place.append(int(start[along]) if np.ndim(start) else int(start) + along)
            if all(0 <= p < n for p, n in zip(place, memory.data.shape, strict=True)):
                out[at] = memory.data[tuple(place)]
        return (out,)

    def _op_shared_alloc(self, o: Operation) -> Any:
        t = o.result.type
        assert isinstance(t, BufferType)
        dtype = numpy_type(t.dtype)
        memory = Memory(np.full(t.shape, garbage(dtype), dtype))
        offset = o.attributes.get("offset")
        if isinstance(offset, int):
            memory.place = (
                offset,
                offset + (t.layout or SharedLayout()).bytes(t.shape, t.dtype.bytes),
            )
        self.memories.append(memory)
        return (memory,)

    def _take(self, memory: Memory, lanes: Any) -> None:
        """A buffer is used: others with some of its bytes lose what they hold."""
        for other in self.memories:
            if other is memory or not other.overlaps(memory):
                continue
            if np.any(other.written) or np.any(other.read):
                raise Race(f"takes bytes that others still touch: {lanes}")
            if any(
                land.__defaults__ == (other,)
                for lands in (*self.committed, self.issued)
                for land in lands
            ):
                raise Race(f"takes bytes that a copy still writes: {lanes}")
            other.data[...] = garbage(other.data.dtype)

    def _part(self, starts: Sequence[Value], shape: Sequence[int], memory: Memory) -> Any:
        numbers = self.numbers(starts)
        outer = len(numbers) - len(shape)
        for n, size, whole in zip(numbers[outer:], shape, memory.data.shape[outer:], strict=True):
            assert 0 <= n <= whole - size, (numbers, shape, memory.data.shape)
        assert all(0 <= n < w for n, w in zip(numbers[:outer], memory.data.shape, strict=False))
        inner = (slice(n, n + size) for n, size in zip(numbers[outer:], shape, strict=True))
        return (*numbers[:outer], *inner)

    def _op_read_tile(self, o: Operation) -> Any:
        memory: Memory = self.values[o.operands[0]]
        box = self._part(o.operands[1:], self._shape(o), memory)
        t: Any = o.result.type
        self._touch_read(memory, box, ("buffer", id(memory), str(t.layout), str(box)))
        return (memory.data[box].copy(),)

    def _op_write_tile(self, o: Operation) -> Any:
        tile, memory = self.get(o.operands[:2])
        t: Any = o.operands[0].type
        box = self._part(o.operands[2:], tile.shape, memory)
        self._touch_write(memory, box, ("buffer", id(memory), str(t.layout), str(box)))
        memory.data[box] = tile
        return ()

    # --- copies and barriers --------------------------------------------------------------------

    def _op_memcpy_async(self, o: Operation) -> Any:
        view, buffer = self.get(o.operands[:2])
        dims: Any = o.attributes["dims"]
        rank = len(dims)
        shape = buffer.data.shape[buffer.data.ndim - rank :]
        box, extents, _ = self._box(o, 2, rank, view)
        vector = o.attributes["vector"]
        assert isinstance(vector, int) and vector >= max(4, view.data.itemsize)
        self._check_vector(o, view, box, extents)
        place = self._part(o.operands[2 + view.data.ndim + rank :], shape, buffer)
        lanes = ("copy", id(o), len(self.lanes))
        self._touch_read(view, box, ("view", "copy", str(box), dims))
        self._touch_write(buffer, place, lanes)
        taken = self._taken(view, box, dims, extents, shape)
        buffer.data[place] = garbage(buffer.data.dtype)

        def land(buffer: Memory = buffer) -> None:
            buffer.data[place] = taken
            buffer.written[place] = self._number(lanes)

        self.issued.append(land)
        return ()

    def _op_memcpy_commit(self, o: Operation) -> Any:
        self.committed.append(self.issued)
        self.issued = []
        return ()

    def _op_memcpy_wait(self, o: Operation) -> Any:
        pending = o.attributes["pending"]
        assert isinstance(pending, int)
        while len(self.committed) > pending:
            for land in self.committed.pop(0):
                land()
        return ()

    def _op_barrier(self, o: Operation) -> Any:
        for memory in self.memories:
            memory.barrier()
        return ()


def with_copies(plan: LaunchPlan, arrays: Sequence[Any]) -> list[Any]:
    """The arrays and the copies of them that a plan asks for, with poison between lines."""
    out = list(arrays)
    for copy in plan.copies:
        array = arrays[copy.parameter]
        strides = copy.strides(array.shape, array.itemsize)
        span = max((n * s for n, s in zip(array.shape, strides, strict=True)), default=0)
        flat = np.full(max(1, span), garbage(array.dtype.type), array.dtype)
        made = np.lib.stride_tricks.as_strided(
            flat, array.shape, [s * array.itemsize for s in strides]
        )
        made[...] = array
        out.append(made)
    return out


def launch(program: Program, plan: LaunchPlan, *arguments: Any) -> tuple[Array, ...]:
    """Runs every group; the results. Arrays are written in place."""
    sizes = reference._bound(plan, arguments)  # pyright: ignore[reportPrivateUsage]
    results: list[Array] = []
    for r in plan.results:
        dtype = numpy_type(DTYPES[r.dtype])
        shape = tuple(evaluate_dim(d, sizes) for d in r.dims)
        results.append(np.full(shape, garbage(dtype), dtype))
    (kernel,) = program.operations
    region = kernel.regions[0]
    assert plan.grid is not None
    groups = int(np.prod([evaluate_dim(d, sizes) for d in plan.grid]))
    if plan.persistent:
        groups = min(groups, 3)
    arrays = with_copies(plan, [*arguments, *results])
    for group in range(groups):
        given: list[Any] = []
        memories: list[Memory] = []
        for slot in plan.slots:
            match slot.kind:
                case "data":
                    memories.append(Memory(arrays[slot.parameter]))
                    given.append(memories[-1])
                case "scalar":
                    given.append(arrays[slot.parameter])
                case "size":
                    given.append(np.int64(arrays[slot.parameter].shape[slot.axis]))
                case "stride":
                    array = arrays[slot.parameter]
                    given.append(np.int64(array.strides[slot.axis] // array.itemsize))
                case _:
                    given.append(np.int64(sizes[slot.symbol]))
        machine = Machine({}, group, groups, memories)
        for value, argument in zip(region.arguments, given, strict=True):
            typed = isinstance(value.type, DType)
            machine.values[value] = numpy_type(value.type)(argument) if typed else argument  # type: ignore[arg-type]
        with np.errstate(all="ignore"):
            machine.region(region)
        assert not machine.issued and not machine.committed, "copies are left under way"
    return tuple(results)
