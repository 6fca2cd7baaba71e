"""Runs Tile IR for all lanes of some groups at once, and shows every access to the shadows.

A value is a number that all lanes share, or an array of one number a lane. Lanes that do not take
part are masked. Must not know argument blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera_backend.cpu.asynchronous.numbers import (
    cast_to,
    garbage,
    numpy_type,
    scalar_operation,
)
from tessera_backend.cpu.checked.faults import CheckedFault, NotChecked
from tessera_backend.cpu.checked.shadow import Array, ArrayShadow, Clock, Touch
from tessera_lang.ir.core import BufferType, Operation, Region, Value, ViewType
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import F32, INDEX, DType

MOST_TURNS = 1 << 20
"""Turns of a `while` after which it is taken for endless."""
_WARP = 32
_EXACT = ("neg", "abs", "min", "max", "select", "cast", "bitcast")
"""What rounds nothing, or does so itself."""

Report = tuple[int, int, int, int, int, int]


@dataclass(eq=False)
class Memory:
    """Elements of an array, or of a buffer with one copy a group (``local``). An array that a
    kernel may not write has no shadow: nothing can go wrong there."""

    data: Array
    shadow: ArrayShadow | None
    local: bool = False


@dataclass(slots=True)
class Exit:
    """Lanes that left a construct, and the values they left with."""

    mask: Array
    values: list[Any] = field(default_factory=list[Any])

    def add(self, mask: Array, values: Sequence[Any]) -> None:
        if not self.values:
            self.values = list(values)
        else:
            self.values = [_where(mask, v, old) for v, old in zip(values, self.values, strict=True)]
        self.mask = self.mask | mask


@dataclass(slots=True)
class Frame:
    """A loop or scope around what runs."""

    kind: str
    broken: Exit
    again: Exit


def _where(mask: Array, a: Any, b: Any) -> Any:
    choose: Any = np.where
    return a if a is b else choose(mask, a, b)


class Machine:
    """One step of groups ``first`` to ``first + count`` of a launch of ``groups``."""

    def __init__(
        self, kernel: Operation, group: tuple[int, ...], grid: tuple[int, ...], first: int,
        count: int, clock: Clock, printed: Callable[[int, int, int, list[int]], None],
    ) -> None:  # fmt: skip
        self.kernel = kernel
        self.group = group
        self.grid = grid
        self.width = int(np.prod(group))
        self.count = count
        self.size = count * self.width
        self.clock = clock
        self.lane = np.tile(np.arange(self.width), count)
        self.groups = np.repeat(np.arange(first, first + count), self.width)
        self.lanes = self.groups * self.width + self.lane
        self.rows = np.repeat(np.arange(count), self.width)
        self.values: dict[Value, Any] = {}
        self.frames: list[Frame] = []
        self.returned = np.zeros(self.size, np.bool_)
        self.reports: list[Report] = []
        self.printed = printed

    def run(self) -> None:
        with np.errstate(all="ignore"):
            self._region(self.kernel.regions[0], np.ones(self.size, np.bool_))

    # --- control -------------------------------------------------------------------------------

    def _region(self, region: Region, mask: Array) -> tuple[Array, list[Any]]:
        """Lanes that come to the end of a region, and the values they bring."""
        for o in region.operations:
            kind = o.name.removeprefix("tile.")
            if kind in ("yield", "condition"):
                return mask, self._get(o.operands)
            if kind in ("break", "continue", "leave", "return"):
                self._exit(kind, mask, self._get(o.operands))
                return np.zeros_like(mask), []
            if o.regions:
                mask = getattr(self, f"_{kind}")(o, mask)
                if not mask.any():
                    return mask, []
                continue
            self._operation(o, kind, mask)
        return mask, []

    def _exit(self, kind: str, mask: Array, values: list[Any]) -> None:
        if kind == "return":
            self.returned |= mask
            return
        wanted = "scope" if kind == "leave" else "loop"
        frame = next(f for f in reversed(self.frames) if f.kind == wanted)
        (frame.again if kind == "continue" else frame.broken).add(mask, values)

    def _frame(self, kind: str) -> Frame:
        frame = Frame(kind, Exit(np.zeros(self.size, np.bool_)),
                      Exit(np.zeros(self.size, np.bool_)))  # fmt: skip
        self.frames.append(frame)
        return frame

    def _if(self, o: Operation, mask: Array) -> Array:
        condition = np.broadcast_to(np.asarray(self.values[o.operands[0]]), (self.size,))
        out = Exit(np.zeros(self.size, np.bool_))
        for region, taken in zip(o.regions, (mask & condition, mask & ~condition), strict=True):
            if taken.any():
                end, values = self._region(region, taken)
                if end.any():
                    out.add(end, values)
        self._put(o.results, out.values)
        return out.mask

    def _scope(self, o: Operation, mask: Array) -> Array:
        frame = self._frame("scope")
        self._region(o.regions[0], mask)
        self.frames.pop()
        self._put(o.results, frame.broken.values)
        return frame.broken.mask

    def _for(self, o: Operation, mask: Array) -> Array:
        lower, upper, step, *carried = self._get(o.operands)
        region, done = o.regions[0], Exit(np.zeros(self.size, np.bool_))
        stuck = mask & np.equal(step, 0)
        if stuck.any():
            self._report(o, stuck, 0, 0, 0)
        i, step = np.asarray(lower), np.asarray(step)
        live, turns = mask & ~stuck, 0
        while True:
            more: Array = _where(step > 0, i < upper, i > upper)
            out = mask & ~more if turns == 0 else live & ~more
            out |= stuck if turns == 0 else False
            done.add(out, carried)
            live = live & more
            if not live.any():
                break
            live, carried = self._turn(region, live, [i, *carried], carried, done)
            i, turns = i + step, turns + 1
        self._put(o.results, done.values)
        return done.mask

    def _turn(
        self, region: Region, live: Array, arguments: list[Any], carried: list[Any], done: Exit
    ) -> tuple[Array, list[Any]]:
        """One turn of a loop: the lanes that go on, with their values; ``done`` takes others."""
        frame = self._frame("loop")
        self.values.update(zip(region.arguments, arguments, strict=True))
        end, values = self._region(region, live)
        self.frames.pop()
        if end.any():
            frame.again.add(end, values)
        if frame.broken.mask.any():
            done.add(frame.broken.mask, frame.broken.values)
        if not frame.again.mask.any():
            return frame.again.mask, carried
        merged = [_where(frame.again.mask, new, old)
                  for new, old in zip(frame.again.values, carried, strict=True)]  # fmt: skip
        return frame.again.mask, merged

    def _while(self, o: Operation, mask: Array) -> Array:
        head, body = o.regions
        carried, done, live = self._get(o.operands), Exit(np.zeros(self.size, np.bool_)), mask
        for _ in range(MOST_TURNS):
            self.values.update(zip(head.arguments, carried, strict=True))
            live, (test, *onward) = self._region(head, live)
            more = live & test
            done.add(live & ~more, onward)
            if not more.any():
                self._put(o.results, done.values)
                return done.mask
            live, carried = self._turn(body, more, onward, onward, done)
            if not live.any():
                self._put(o.results, done.values)
                return done.mask
        raise CheckedFault(
            f"a loop does not end: {MOST_TURNS} turns, and lanes are still in it",
            o,
            None,
            ("a lane waits for its group at barriers only, and else for groups before its own",),
        )

    # --- operations ----------------------------------------------------------------------------

    def _get(self, values: Sequence[Value]) -> list[Any]:
        return [self.values[v] for v in values]

    def _put(self, names: Sequence[Value], values: Sequence[Any]) -> None:
        """Nothing where no lane brought anything: then none goes on."""
        if values:
            self.values.update(zip(names, values, strict=True))

    def _operation(self, o: Operation, kind: str, mask: Array) -> None:
        name = f"_do_{kind.replace('.', '_')}"
        rule: Callable[[Operation, Array], Any] | None = getattr(self, name, None)
        if rule is not None:
            result = rule(o, mask)
            if o.results:
                self.values[o.result] = result
            return
        if len(o.results) != 1 or not isinstance(o.result.type, DType):
            raise NotChecked(o.name)
        self.values[o.result] = self._arithmetic(o, kind, mask)

    def _arithmetic(self, o: Operation, kind: str, mask: Array) -> Any:
        operands = self._get(o.operands)
        if kind in ("floordiv", "mod") and o.result.type.is_integer:  # type: ignore[union-attr]
            zero = mask & np.equal(operands[1], 0)
            if zero.any():
                self._report(o, zero, 0, 0, 0)
        if kind == "approx":
            return operands[1]
        to: DType = o.result.type  # type: ignore[assignment]
        if to.bits == 8 and to.is_float and kind not in _EXACT:
            operands = [np.asarray(v).astype(np.float32) for v in operands]
            return cast_to(scalar_operation(o, kind, operands), F32, to)
        try:
            found = _numbers(o, kind, operands)
        except AssertionError:
            raise NotChecked(o.name) from None
        if to == INDEX and kind in ("add", "sub", "mul"):
            self._overflow(o, kind, operands, found, mask)
        kept = numpy_type(to)
        return found if getattr(found, "dtype", None) == kept else np.asarray(found).astype(kept)

    def _overflow(self, o: Operation, kind: str, v: list[Any], found: Any, mask: Array) -> None:
        a, b = v
        if kind == "mul":
            wide = np.multiply(a, b, dtype=np.float64)
            wrong = np.abs(wide - found) > 2.0**60
        else:
            sign = a ^ b if kind == "sub" else ~(a ^ b)
            wrong = (sign & (a ^ found)) < 0
        wrong = mask & wrong
        if wrong.any():
            at = int(np.argmax(wrong))
            raise CheckedFault("an index leaves 64 bits", o, None, (self._who(at),))

    def _who(self, at: int) -> str:
        return f"in group {self.groups[at]}, lane {self.lane[at]}"

    def _report(
        self, o: Operation, wrong: Array, axis: int, index: Any, bound: int
    ) -> None:  # fmt: skip
        """The first lane's fault of a site."""
        site = o.attributes.get("site", -1)
        if isinstance(site, int) and site >= 0:
            at = int(np.argmax(wrong))
            number = int(np.broadcast_to(index, (self.size,))[at])
            self.reports.append(
                (site + 1, axis, number, bound, int(self.groups[at]), int(self.lane[at]))
            )

    def _do_constant(self, o: Operation, mask: Array) -> Any:
        return numpy_type(o.result.type)(o.attributes["value"])  # type: ignore[arg-type]

    def _do_lane_linear(self, o: Operation, mask: Array) -> Any:
        return self.lane

    def _do_lane_index(self, o: Operation, mask: Array) -> Any:
        return _axis_of(self.lane, self.group, o)

    def _do_group_linear(self, o: Operation, mask: Array) -> Any:
        return self.groups

    def _do_group_index(self, o: Operation, mask: Array) -> Any:
        return _axis_of(self.groups, self.grid, o)

    def _do_group_count(self, o: Operation, mask: Array) -> Any:
        axis = o.attributes["axis"]
        return np.int64(np.prod(self.grid) if axis == -1 else self.grid[axis])  # type: ignore[index]

    def _do_assert(self, o: Operation, mask: Array) -> None:
        wrong = mask & ~np.asarray(self.values[o.operands[0]])
        if wrong.any():
            self._report(o, wrong, 0, 0, 0)

    def _do_print(self, o: Operation, mask: Array) -> None:
        words = [_words(np.broadcast_to(v, (self.size,))) for v in self._get(o.operands)]
        for at in np.nonzero(mask)[0].tolist():
            self.printed(
                int(o.attributes["text"]), int(self.groups[at]), int(self.lane[at]),  # type: ignore[arg-type]
                [int(w[at]) for w in words],
            )  # fmt: skip

    # --- synchronization -----------------------------------------------------------------------

    def _do_barrier(self, o: Operation, mask: Array) -> None:
        self._all_of_group(o, mask, "the barrier")
        self.clock.meet(np.unique(self.groups[mask]))

    def _all_of_group(self, o: Operation, mask: Array, what: str) -> None:
        counts = mask.reshape(self.count, self.width).sum(axis=1)
        wrong = (counts != 0) & (counts != self.width)
        if wrong.any():
            row = int(np.argmax(wrong))
            missing = int(np.argmin(mask.reshape(self.count, self.width)[row]))
            raise CheckedFault(
                f"{int(counts[row])} of {self.width} lanes of group "
                f"{int(self.groups[row * self.width])} get to {what}", o, None,
                (f"lane {missing} does not",),
            )  # fmt: skip

    def _do_fence(self, o: Operation, mask: Array) -> None:
        if o.attributes["scope"] in ("device", "mesh"):
            groups = np.unique(self.groups[mask])
            self.clock.release(groups)
            self.clock.acquire(groups)

    def _warps(self, value: Any, fill: Any) -> Array:
        """Rows of 32 lanes; what a short last warp has not is ``fill``."""
        rows = np.broadcast_to(value, (self.size,)).reshape(self.count, self.width)
        short = -self.width % _WARP
        if short:
            rows = np.concatenate([rows, np.full((self.count, short), fill, rows.dtype)], axis=1)
        return rows.reshape(self.count, -1, _WARP)

    def _flat(self, rows: Array) -> Array:
        return rows.reshape(self.count, -1)[:, : self.width].reshape(self.size)

    def _do_warp_reduce(self, o: Operation, mask: Array) -> Any:
        self._all_of_group(o, mask, "a warp operation")
        kind = str(o.attributes["kind"])
        rows = self._warps(self.values[o.operands[0]], 0).copy()
        there = self._warps(np.ones(self.size, np.bool_), False)
        step = _WARP // 2
        combine: Any = {"add": np.add, "min": np.minimum, "max": np.maximum}[kind]
        while step:
            new = combine(rows[..., :step], rows[..., step : 2 * step])
            both = there[..., step : 2 * step]
            rows[..., :step] = np.where(both, new, rows[..., :step])
            step //= 2
        return self._flat(np.repeat(rows[..., :1], _WARP, axis=2))

    def _do_warp_shuffle(self, o: Operation, mask: Array) -> Any:
        self._all_of_group(o, mask, "a warp operation")
        own, lane = self._get(o.operands)
        rows = self._warps(own, 0)
        wanted = (self._warps(lane, 0) & (_WARP - 1)).astype(np.int64)
        there = self._warps(np.ones(self.size, np.bool_), False)
        found = np.take_along_axis(rows, wanted, axis=2)
        return self._flat(np.where(np.take_along_axis(there, wanted, axis=2), found, rows))

    def _do_warp_vote(self, o: Operation, mask: Array) -> Any:
        self._all_of_group(o, mask, "a warp operation")
        every = o.attributes["kind"] == "all"
        rows = self._warps(self.values[o.operands[0]], every)
        found = rows.all(axis=2, keepdims=True) if every else rows.any(axis=2, keepdims=True)
        return self._flat(np.repeat(found, _WARP, axis=2))

    def _do_warp_ballot(self, o: Operation, mask: Array) -> Any:
        self._all_of_group(o, mask, "a warp operation")
        rows = self._warps(self.values[o.operands[0]], False).astype(np.uint64)
        bits = (rows << np.arange(_WARP, dtype=np.uint64)).sum(axis=2, keepdims=True)
        return self._flat(np.repeat(bits, _WARP, axis=2)).astype(np.uint32)

    # --- memory --------------------------------------------------------------------------------

    def _do_view(self, o: Operation, mask: Array) -> Any:
        memory, *numbers = self._get(o.operands)
        assert isinstance(o.result.type, ViewType)
        rank = len(o.result.type.shape)
        if tuple(int(n) for n in numbers[:rank]) != memory.data.shape:
            raise NotChecked("tile.view of another shape")
        return memory

    def _do_shared_alloc(self, o: Operation, mask: Array) -> Any:
        t = o.result.type
        assert isinstance(t, BufferType)
        kind = numpy_type(t.dtype)
        data = np.full((self.count, *t.shape), garbage(kind), kind)
        name = str(o.attributes["name"])
        return Memory(data, ArrayShadow(name, t.shape, self.width, self.count), True)

    def _places(
        self, o: Operation, mask: Array, memory: Memory, indices: Sequence[Value]
    ) -> tuple[Array, tuple[Array, ...], Array]:
        """Lanes that touch an element, its place in ``data``, and the cells of the shadow."""
        inside = mask
        given = [np.broadcast_to(self.values[v], (self.size,)) for v in indices]
        shape = memory.data.shape[1:] if memory.local else memory.data.shape
        for axis, (i, n) in enumerate(zip(given, shape, strict=True)):
            ok = (i >= 0) & (i < n)
            wrong = inside & ~ok
            if wrong.any():
                self._report(o, wrong, axis, i, n)
                inside = inside & ok
        taking = np.nonzero(inside)[0]
        place = tuple(i[taking] for i in given)
        cells = np.zeros(len(taking), np.int64)
        if memory.shadow is None:
            return taking, place, cells
        for i, n in zip(place, shape, strict=True):
            cells = cells * n + i
        if memory.local:
            rows = self.rows[taking]
            return taking, (rows, *place), cells + rows * memory.shadow.cells
        return taking, place, cells

    def _do_load(self, o: Operation, mask: Array) -> Any:
        memory = self.values[o.operands[0]]
        lanes, place, cells = self._places(o, mask, memory, o.operands[1:])
        if memory.shadow is not None:
            memory.shadow.read(Touch(o, cells, self.lanes[lanes]), self.clock)
        out = np.zeros(self.size, memory.data.dtype)
        out[lanes] = memory.data[place]
        return out

    def _do_store(self, o: Operation, mask: Array) -> None:
        memory = self.values[o.operands[1]]
        lanes, place, cells = self._places(o, mask, memory, o.operands[2:])
        value = np.broadcast_to(self.values[o.operands[0]], (self.size,))[lanes]
        touch = Touch(o, cells, self.lanes[lanes])
        memory.shadow.write(touch, self.clock, _same_bits(memory.data[place], value))
        memory.data[place] = value
        memory.shadow.collide(touch, ~_same_bits(memory.data[place], value))

    def _atomics(self, o: Operation, mask: Array, at: int) -> tuple[Memory, Array, Any]:
        memory = self.values[o.operands[at]]
        lanes, place, cells = self._places(o, mask, memory, o.operands[at + 1 :])
        order, scope = str(o.attributes["order"]), str(o.attributes["scope"])
        groups = np.unique(self.groups[lanes])
        if order in ("acquire", "acq_rel"):
            self.clock.acquire(groups)
        narrow = not memory.local and scope in ("tile", "group")
        memory.shadow.atomic(Touch(o, cells, self.lanes[lanes]), self.clock, narrow)
        if order in ("release", "acq_rel"):
            self.clock.release(groups)
        return memory, lanes, place

    def _do_atomic(self, o: Operation, mask: Array) -> Any:
        memory, lanes, place = self._atomics(o, mask, 1)
        value = np.broadcast_to(self.values[o.operands[0]], (self.size,))
        kind, data = str(o.attributes["kind"]), memory.data
        out = np.zeros(self.size, data.dtype)
        for n, lane in enumerate(lanes.tolist()):  # one after the other, as atomics are
            at = tuple(int(p[n]) for p in place)
            out[lane] = old = data[at]
            given = value[lane]
            data[at] = given if kind == "exchange" else _numbers(o, kind, [old, given])
        return out

    def _do_atomic_cas(self, o: Operation, mask: Array) -> Any:
        memory, lanes, place = self._atomics(o, mask, 2)
        expected, desired = (np.broadcast_to(v, (self.size,)) for v in self._get(o.operands[:2]))
        data, out = memory.data, np.zeros(self.size, memory.data.dtype)
        for n, lane in enumerate(lanes.tolist()):
            at = tuple(int(p[n]) for p in place)
            out[lane] = old = data[at]
            if old.tobytes() == expected[lane].tobytes():
                data[at] = desired[lane]
        return out

    def _do_atomic_load(self, o: Operation, mask: Array) -> Any:
        memory, lanes, place = self._atomics(o, mask, 0)
        out = np.zeros(self.size, memory.data.dtype)
        out[lanes] = memory.data[place]
        return out

    def _do_atomic_store(self, o: Operation, mask: Array) -> None:
        memory = self.values[o.operands[1]]
        if memory.shadow.written is not None:
            _, _, cells = self._places(o, mask, memory, o.operands[2:])
            memory.shadow.written[cells] = True
        memory, lanes, place = self._atomics(o, mask, 1)
        memory.data[place] = np.broadcast_to(self.values[o.operands[0]], (self.size,))[lanes]


def _numbers(o: Operation, kind: str, operands: list[Any]) -> Any:
    """As the language has it: -0.0 is below +0.0."""
    found = scalar_operation(o, kind, operands)
    if kind not in ("min", "max") or np.asarray(found).dtype.kind not in "fV":
        return found
    a, b = (np.asarray(v) for v in operands)
    first = np.signbit(a) == (kind == "min")
    return _where((a == 0) & (b == 0), _where(first, a, b), found)


def _axis_of(linear: Any, sizes: tuple[int, ...], o: Operation) -> Any:
    axis = o.attributes["axis"]
    assert isinstance(axis, int)
    below = int(np.prod(sizes[axis + 1 :], initial=1))
    return linear // below % sizes[axis]


def _same_bits(a: Any, b: Any) -> Array:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)


def _words(v: Any) -> Any:
    bits = np.dtype(f"u{v.dtype.itemsize}")
    return np.ascontiguousarray(v).view(bits).astype(np.int64)
