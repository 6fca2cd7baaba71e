"""For tests: the machine of ``machine.py`` with roles, clusters and what is asynchronous on Hopper.

The roles of all groups of a cluster are tasks of which one runs at a time; a task that waits
hands over. What was issued happens as late as the protocol allows: copies land when no task
can go on without one, products are computed when they are waited for, stores leave when their
buffer is asked back. A copy that is on its way leaves poison where it will land. So a missing
wait, a slot freed too early and a result used too soon show as wrong numbers or as ``Early``;
a protocol that stops is ``Stuck``.

``launch(program, plan, *arguments)`` as there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera_lang.ir.core import (
    BarrierType,
    BufferType,
    Operation,
    Program,
    Region,
    TensorMapType,
    TileType,
    Value,
)
from tessera_lang.target.plan import LaunchPlan, Slot
from tessera_lang.types.dtype import DTYPES, DType
from tessera_lang.types.shape import evaluate_dim
from tests.unit.schedule import reference
from tests.unit.schedule.reference import garbage, numpy_type
from tests.unit.schedule_to_tile.machine import Machine, Memory, with_copies

Array = np.ndarray[Any, Any]
_PASSING = ("mma.async", "mma.wait", "yield", "for", "if", "once", "roles")


class Early(AssertionError):
    """Something was used before it was there."""


class Stuck(AssertionError):
    """Every task waits for another."""


class _Stopped(BaseException):
    """Another task has failed."""


class Tasks:
    """Tasks that run one at a time, in a fixed order."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        self.tasks: list[Task] = []
        self.running: Task | None = None
        self.late: list[Callable[[], None]] = []
        self.failure: BaseException | None = None

    def add(self, body: Callable[[], None]) -> Task:
        task = Task(self, body)
        self.tasks.append(task)
        return task

    def run(self) -> None:
        """Until all tasks, those that tasks add too, are done."""
        with self.turn:
            self.hand_over()
            while self.failure is None and any(not t.done for t in self.tasks):
                self.turn.wait()
            self.turn.notify_all()
        for task in self.tasks:
            task.thread.join()
        if self.failure is not None:
            raise self.failure

    def block(self, ready: Callable[[], bool]) -> None:
        """The running task waits until ``ready``."""
        task = self.running
        assert task is not None
        if ready():
            return
        task.ready = ready
        with self.turn:
            self.hand_over()
            self.sleep(task)

    def sleep(self, task: Task) -> None:
        while self.running is not task:
            if self.failure is not None:
                raise _Stopped
            self.turn.wait()

    def hand_over(self) -> None:
        """Let the next task that can go on run; where none can, something late happens."""
        start = self.tasks.index(self.running) + 1 if self.running in self.tasks else 0
        order = [*self.tasks[start:], *self.tasks[:start]]
        while True:
            waiting = [t for t in order if not t.done]
            following = next((t for t in waiting if t.ready()), None)
            if following is not None or not waiting:
                self.running = following
                if following is not None:
                    following.ready = lambda: True
                break
            if not self.late:
                self.failure = self.failure or Stuck("every task waits")
                break
            self.late.pop(0)()
        self.turn.notify_all()


class Task:
    def __init__(self, tasks: Tasks, body: Callable[[], None]) -> None:
        self.tasks = tasks
        self.done = False
        self.ready: Callable[[], bool] = lambda: True
        self.thread = threading.Thread(target=self._run, args=(body,), daemon=True)
        self.thread.start()

    def _run(self, body: Callable[[], None]) -> None:
        tasks = self.tasks
        try:
            with tasks.turn:
                tasks.sleep(self)
            with np.errstate(all="ignore"):
                body()
        except _Stopped:
            pass
        except BaseException as error:
            tasks.failure = tasks.failure or error
        with tasks.turn:
            self.done = True
            if tasks.failure is None:
                tasks.hand_over()
            tasks.turn.notify_all()


@dataclass(eq=False)
class Barriers:
    """Transaction barriers: how many phases are complete, what the open one waits for."""

    arrivals: int
    count: int
    complete: list[int] = field(init=False)
    missing: list[int] = field(init=False)
    bytes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.complete = [0] * self.count
        self.missing = [self.arrivals] * self.count
        self.bytes = [0] * self.count

    def arrive(self, slot: int) -> None:
        assert self.missing[slot] > 0, "more arrivals than the barrier takes"
        self.missing[slot] -= 1
        self._close(slot)

    def expect(self, slot: int, count: int) -> None:
        self.bytes[slot] += count

    def _close(self, slot: int) -> None:
        if self.missing[slot] == 0 and self.bytes[slot] == 0:
            self.complete[slot] += 1
            self.missing[slot] = self.arrivals

    def land(self, slot: int, count: int) -> None:
        self.bytes[slot] -= count
        self._close(slot)

    def passed(self, slot: int, phase: int) -> bool:
        return self.complete[slot] % 2 != phase % 2


@dataclass(eq=False)
class Issued:
    """A product on its way."""

    compute: Callable[[], Array]
    shape: tuple[int, ...]
    dtype: Any
    found: Array | None = None

    def value(self) -> Array:
        if self.found is None:
            self.found = self.compute()
        return self.found


@dataclass(eq=False)
class Map:
    """An array seen through a tensor map: its axes in the order of the box."""

    array: Array
    box: tuple[int, ...]

    def read(self, at: Sequence[int]) -> Array:
        out = np.zeros(self.box, self.array.dtype)
        inside, part = self._both(at)
        out[part] = self.array[inside]
        return out

    def write(self, at: Sequence[int], box: Array) -> None:
        inside, part = self._both(at)
        self.array[inside] = box[part]

    def _both(self, at: Sequence[int]) -> tuple[Any, Any]:
        inside: list[slice] = []
        part: list[slice] = []
        for start, n, size in zip(at, self.box, self.array.shape, strict=True):
            low, high = max(0, start), max(0, min(size, start + n))
            inside.append(slice(min(low, size), max(low, high) if low < size else size))
            first = low - start
            part.append(slice(first, first + max(0, high - low)))
        return tuple(inside), tuple(part)


@dataclass(eq=False)
class HopperMachine(Machine):
    """One group of a cluster."""

    tasks: Tasks = field(default_factory=Tasks)
    peers: list[HopperMachine] = field(default_factory=list["HopperMachine"])
    consumers: int = 0
    open: list[Issued] = field(default_factory=list[Issued])
    grouped: list[list[Issued]] = field(default_factory=list[list[Issued]])
    leaving: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    stores: dict[int, list[list[Callable[[], None]]]] = field(
        default_factory=dict[int, list[list[Callable[[], None]]]]
    )
    leader: int | None = None
    dirty: dict[Any, str] = field(default_factory=dict[Any, str])
    arrived: int = 0
    given: list[Any] = field(default_factory=list[Any])
    role: str = ""
    ended: bool = False

    def region(self, region: Region) -> tuple[str, tuple[Any, ...]]:
        for o in region.operations:
            kind = o.name.removeprefix("tile.")
            if kind not in _PASSING and any(
                isinstance(self.values.get(v), Issued) for v in o.operands
            ):
                raise Early(f"{o.name} uses a product that nobody has waited for")
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

    # --- roles ------------------------------------------------------------------------------

    def _roles(self, o: Operation) -> None:
        names: Any = o.attributes["names"]
        warps: Any = o.attributes["warps"]
        self.consumers = warps[-1] // 4
        started = [
            self.tasks.add(lambda r=region: self._role(r))
            for _, region in zip(names, o.regions, strict=True)
        ]
        self.tasks.block(lambda: all(t.done for t in started))

    def _role(self, region: Region) -> None:
        self.region(region)

    def _once(self, o: Operation) -> None:
        each = o.attributes.get("each") == "warp_group"
        for leader in range(self.consumers if each else 1):
            self.leader = leader
            self.region(o.regions[0])
            self.leader = None

    def _op_role_warp(self, o: Operation) -> Any:
        assert self.leader is not None, "all warps run here, not one"
        return (np.int64(4 * self.leader),)

    def _op_named_barrier(self, o: Operation) -> Any:
        return self._op_barrier(o)

    def _op_cluster_rank(self, o: Operation) -> Any:
        return (np.int64(self.peers.index(self)),)

    def _op_cluster_reduce(self, o: Operation) -> Any:
        assert self.arrived, "a group writes the memory of one that may not have begun"
        self.given.append(self.get(o.operands)[0])
        turn = len(self.given)
        self.tasks.block(lambda: all(len(p.given) >= turn for p in self.peers))
        parts = [p.given[turn - 1] for p in self.peers]
        combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
        while len(parts) > 1:
            paired = [combine[str(o.attributes["kind"])](a, b)
                      for a, b in zip(parts[::2], parts[1::2], strict=False)]  # fmt: skip
            parts = paired + parts[len(parts) - len(parts) % 2 :]
        return (parts[0],)

    def _op_cluster_barrier(self, o: Operation) -> Any:
        self.arrived += 1
        turn = self.arrived
        self.tasks.block(lambda: all(p.arrived >= turn for p in self.peers))
        return ()

    # --- barriers ---------------------------------------------------------------------------

    def _op_mbarrier_alloc(self, o: Operation) -> Any:
        t, arrivals = o.result.type, o.attributes["arrivals"]
        assert isinstance(t, BarrierType) and isinstance(arrivals, int)
        return (Barriers(arrivals, t.count),)

    def _op_mbarrier_wait(self, o: Operation) -> Any:
        barrier, slot, phase = self.get(o.operands)
        self.tasks.block(lambda: barrier.passed(int(slot), int(phase)))
        return ()

    def _op_mbarrier_expect(self, o: Operation) -> Any:
        barrier, slot = self.get(o.operands)
        size = o.attributes["bytes"]
        assert isinstance(size, int)
        barrier.expect(int(slot), size)
        barrier.arrive(int(slot))
        return ()

    def _op_mbarrier_arrive(self, o: Operation) -> Any:
        slot = int(self.values[o.operands[1]])
        there = self.peers if o.attributes["across"] == "cluster" else [self]
        for peer in there:
            assert not peer.ended, "arrives at a group that has ended"
            for _ in range(self.consumers):
                peer.values[o.operands[0]].arrive(slot)
        return ()

    # --- copies -----------------------------------------------------------------------------

    def _op_tma_load(self, o: Operation) -> Any:
        tensor_map, buffer, barrier, slot, *numbers = o.operands
        rank = len(buffer.type.shape)  # type: ignore[union-attr]
        places = self.numbers(numbers)
        at, where = places[rank:], places[:rank]
        m: Map = self.values[tensor_map]
        mask = o.attributes.get("multicast", 0)
        assert isinstance(mask, int)
        there = [p for i, p in enumerate(self.peers) if mask >> i & 1] if mask else [self]
        taken, number = m.read(at), int(self.values[slot])
        for peer in there:
            self._issue(peer, buffer, barrier, number, where, taken)
        return ()

    def _issue(
        self, peer: HopperMachine, buffer: Value, barrier: Value, slot: int, where: list[int],
        taken: Array,
    ) -> None:  # fmt: skip
        memory: Memory = peer.values[buffer]
        assert isinstance(buffer.type, BufferType)
        box = _placed(taken, buffer.type)
        place = (
            *where[:-2],
            *(slice(s, s + n) for s, n in zip(where[-2:], box.shape, strict=True)),
        )
        assert memory.data[place].shape == box.shape, "a box beyond its buffer"
        memory.data[place] = garbage(memory.data.dtype)

        def land() -> None:
            memory.data[place] = box
            peer.values[barrier].land(slot, box.nbytes)

        self.tasks.late.append(land)

    def _op_tma_store(self, o: Operation) -> Any:
        buffer, tensor_map, *numbers = o.operands
        rank = len(buffer.type.shape)  # type: ignore[union-attr]
        places = self.numbers(numbers)
        where, at = places[:rank], places[rank:]
        memory: Memory = self.values[buffer]
        if self.dirty.get(memory, "clean") != "clean":
            raise Early("a store reads what was written without a fence and a barrier")
        m: Map = self.values[tensor_map]
        assert isinstance(buffer.type, BufferType)
        lines, width = m.box[-2:]
        shape = (
            (lines, width)
            if (buffer.type.layout is None or buffer.type.layout.major)
            else (width, lines)
        )
        place = (*where[:-2], *(slice(s, s + n) for s, n in zip(where[-2:], shape, strict=True)))

        def leave() -> None:
            part = memory.data[place]
            part = part if buffer.type.layout is None or buffer.type.layout.major else part.T  # type: ignore[union-attr]
            m.write(at, part.reshape(m.box))

        self.leaving.append(leave)
        return ()

    def _op_tma_commit(self, o: Operation) -> Any:
        assert self.leader is not None
        self.stores.setdefault(self.leader, []).append(self.leaving)
        self.leaving = []
        return ()

    def _op_tma_wait(self, o: Operation) -> Any:
        pending = o.attributes["pending"]
        assert isinstance(pending, int) and self.leader is not None
        held = self.stores.get(self.leader, [])
        while len(held) > pending:
            for leave in held.pop(0):
                leave()
        return ()

    def _op_write_tile(self, o: Operation) -> Any:
        self.dirty[self.values[o.operands[1]]] = "written"
        return super()._op_write_tile(o)

    def _op_fence_async(self, o: Operation) -> Any:
        for memory in self.dirty:
            self.dirty[memory] = "fenced"
        return ()

    def _op_barrier(self, o: Operation) -> Any:
        for memory, state in self.dirty.items():
            self.dirty[memory] = "clean" if state == "fenced" else state
        return super()._op_barrier(o)

    # --- products ---------------------------------------------------------------------------

    def put(self, values: Sequence[Value], given: Sequence[Any]) -> None:
        for value, item in zip(values, given, strict=True):
            if isinstance(item, Issued):
                assert isinstance(value.type, TileType) and item.shape == value.type.sizes
                self.values[value] = item
            else:
                super().put([value], [item])

    def _op_mma_async(self, o: Operation) -> Any:
        accumulator, a, b, flag, *starts = o.operands
        places = self.numbers(starts)
        sides: list[Callable[[], Array]] = []
        for value, name in ((a, "transpose_a"), (b, "transpose_b")):
            if isinstance(value.type, BufferType):
                rank = len(value.type.shape)
                at, places = places[:rank], places[rank:]
                sides.append(self._matrix(value, at, bool(o.attributes[name])))
            else:
                held = self.values[value]
                sides.append(lambda held=held: held)
        start, add = self.values[accumulator], bool(self.values[flag])
        t = o.result.type
        assert isinstance(t, TileType)

        def compute() -> Array:
            held = start.value() if isinstance(start, Issued) else start
            left, right = (side().astype(held.dtype) for side in sides)
            product = np.matmul(left, right)
            return (held + product if add else product).astype(held.dtype)

        issued = Issued(compute, t.sizes, numpy_type(t.dtype))
        self.open.append(issued)
        return (issued,)

    def _matrix(self, value: Value, at: list[int], turned: bool) -> Callable[[], Array]:
        memory: Memory = self.values[value]
        if self.dirty.get(memory, "clean") != "clean":
            raise Early("a product reads what was written without a fence and a barrier")
        box = (*at[:-2], slice(at[-2], None), slice(at[-1], None))
        return lambda: memory.data[box].T if turned else memory.data[box]

    def _op_mma_commit(self, o: Operation) -> Any:
        self.grouped.append(self.open)
        self.open = []
        return ()

    def _op_mma_wait(self, o: Operation) -> Any:
        pending = o.attributes["pending"]
        assert isinstance(pending, int)
        while len(self.grouped) > pending:
            for issued in self.grouped.pop(0):
                issued.value()
        return tuple(
            v.found if isinstance(v, Issued) and v.found is not None else v
            for v in self.get(o.operands)
        )


def _placed(box: Array, buffer: BufferType) -> Array:
    """A box as the matrix of the buffer: its contiguous axis is the last of the array."""
    flat = box.reshape(-1, box.shape[-1])
    return flat if buffer.layout is None or buffer.layout.major == 1 else flat.T


def launch(program: Program, plan: LaunchPlan, *arguments: Any, most: int = 3) -> tuple[Array, ...]:
    """Runs every cluster, at most ``most`` of them where groups take tile after tile."""
    sizes = reference._bound(plan, arguments)  # pyright: ignore[reportPrivateUsage]
    results = [
        np.full(
            tuple(evaluate_dim(d, sizes) for d in r.dims), garbage(numpy_type(DTYPES[r.dtype])),
            numpy_type(DTYPES[r.dtype]),
        )
        for r in plan.results
    ]  # fmt: skip
    assert plan.grid is not None
    cluster = int(np.prod(plan.cluster or (1,)))
    groups = int(np.prod([evaluate_dim(d, sizes) for d in plan.grid]))
    assert groups % cluster == 0
    if plan.persistent:
        groups = min(groups, most * cluster)
    arrays = with_copies(plan, [*arguments, *results])
    for first in range(0, groups, cluster):
        _run_cluster(program, plan, arrays, sizes, (first, cluster, groups))
    return tuple(results)


def _run_cluster(
    program: Program, plan: LaunchPlan, arrays: Sequence[Any], sizes: Any,
    place: tuple[int, int, int],
) -> None:  # fmt: skip
    first, cluster, groups = place
    (kernel,) = program.operations
    region = kernel.regions[0]
    tasks = Tasks()
    peers: list[HopperMachine] = []
    for group in range(first, first + cluster):
        memories: list[Memory] = []
        given = [_argument(slot, arrays, sizes, memories) for slot in plan.slots]
        machine = HopperMachine({}, group, groups, memories, tasks=tasks, peers=peers)
        for value, argument in zip(region.arguments, given, strict=True):
            typed = isinstance(value.type, DType)
            machine.values[value] = numpy_type(value.type)(argument) if typed else argument  # type: ignore[arg-type]
            if isinstance(value.type, TensorMapType):
                assert argument.box == value.type.box
        peers.append(machine)
    for machine in peers:
        tasks.add(lambda m=machine: _whole(m, region))
    tasks.run()
    for machine in peers:
        left = machine.issued or machine.open or machine.grouped or any(machine.stores.values())
        assert not left, "something is left under way"
    assert not tasks.late, "a copy lands behind the end"


def _whole(machine: HopperMachine, region: Region) -> None:
    for o in region.operations:
        if o.name in ("tile.mbarrier.alloc", "tile.shared.alloc"):
            kind = o.name.removeprefix("tile.").replace(".", "_")
            machine.put(o.results, getattr(machine, f"_op_{kind}")(o))
    rest = tuple(
        o for o in region.operations if o.name not in ("tile.mbarrier.alloc", "tile.shared.alloc")
    )
    machine.arrived += 1
    machine.tasks.block(lambda: all(p.arrived >= 1 for p in machine.peers))
    machine.region(Region(region.arguments, rest))
    machine.ended = True


def _argument(slot: Slot, arrays: Sequence[Any], sizes: Any, memories: list[Memory]) -> Any:
    match slot.kind:
        case "data":
            memories.append(Memory(arrays[slot.parameter]))
            return memories[-1]
        case "scalar":
            return arrays[slot.parameter]
        case "size":
            return np.int64(arrays[slot.parameter].shape[slot.axis])
        case "stride":
            array = arrays[slot.parameter]
            return np.int64(array.strides[slot.axis] // array.itemsize)
        case "tensor_map":
            array = np.transpose(arrays[slot.parameter], slot.axes)
            assert array.size == 0 or array.strides[-1] == array.itemsize
            assert array.size == 0 or all(s % 16 == 0 for s in array.strides[:-1])
            return Map(array, slot.box)
        case _:
            return np.int64(sizes[slot.symbol])
