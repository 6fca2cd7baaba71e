"""For tests: runs Tile IR one operation at a time, lanes as generators that stop at barriers.

Written apart from the compiler's own arithmetic, on NumPy scalars, so that the two check
each other. Only the dtypes that NumPy has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera_lang.ir.core import BufferType, Operation, Region, Value
from tessera_lang.types.dtype import DType

_NUMPY = {
    "bool": np.bool_, "index": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    **{f"i{b}": getattr(np, f"int{b}") for b in (8, 16, 32, 64)},
    **{f"u{b}": getattr(np, f"uint{b}") for b in (8, 16, 32, 64)},
}  # fmt: skip

Lane = Generator[None, None, tuple[str, tuple[Any, ...]]]


def numpy_type(dtype: DType) -> Any:
    return _NUMPY[dtype.name]


@dataclass
class Run:
    """One group: arrays by view or buffer, faults reported, and a hook per value."""

    kernel: Operation
    group_index: int
    groups: int
    shared: dict[Value, np.ndarray[Any, Any]] = field(default_factory=dict)
    faults: list[int] = field(default_factory=list)
    given: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    seen: Callable[[Value, Any], None] = lambda value, number: None
    touched: Callable[[Operation, bool], None] = lambda operation, inside: None


def launch(
    kernel: Operation,
    arguments: Sequence[Any],
    groups: int,
    seen: Callable[[Value, Any], None] | None = None,
    touched: Callable[[Operation, bool], None] | None = None,
    which: Sequence[int] | None = None,
) -> list[int]:
    """Run a kernel on NumPy arrays and numbers, one per region argument; the fault sites.

    ``which``: the groups that run, where there are too many to run all."""
    faults: list[int] = []
    lanes = math.prod(kernel.attributes["group"])  # type: ignore[arg-type]
    for g in which if which is not None else range(groups):
        run = Run(kernel, g, groups, faults=faults)
        run.seen = seen or run.seen
        run.touched = touched or run.touched
        waiting = [_Lane(run, lane).run(arguments) for lane in range(lanes)]
        while waiting:
            still: list[Lane] = []
            for lane_run in waiting:
                try:
                    next(lane_run)
                    still.append(lane_run)
                except StopIteration:
                    pass
            assert len(still) in (0, len(waiting)), "a barrier was met by some lanes only"
            waiting = still
    return faults


class _Lane:
    def __init__(self, run: Run, lane: int) -> None:
        self.group = run
        self.lane = lane
        self.values: dict[Value, Any] = {}

    def run(self, arguments: Sequence[Any]) -> Lane:
        region = self.group.kernel.regions[0]
        self.values.update(zip(region.arguments, arguments, strict=True))
        return (yield from self.region(region))

    def get(self, values: Sequence[Value]) -> tuple[Any, ...]:
        return tuple(self.values[v] for v in values)

    def put(self, values: Sequence[Value], numbers: Sequence[Any]) -> None:
        for value, number in zip(values, numbers, strict=True):
            self.values[value] = number
            if isinstance(value.type, DType):
                self.group.seen(value, number)

    def region(self, region: Region) -> Lane:
        for operation in region.operations:
            kind = operation.name.removeprefix("tile.")
            if kind in ("yield", "break", "continue", "leave", "return", "condition"):
                return kind, self.get(operation.operands)
            if kind == "barrier":
                yield
                continue
            if kind.startswith("warp_"):
                self.group.given[self.lane] = self.get(operation.operands)
                yield
                result = _warp(operation, kind, self.group.given, self.lane)
                yield  # all have read before any lane gives its next value
                self.put(operation.results, (result,))
                continue
            if operation.regions:
                exit_ = yield from getattr(self, f"_{kind}")(operation)
                if exit_ is not None:
                    return exit_
                continue
            with np.errstate(all="ignore"):
                self.put(operation.results, self.compute(operation, kind))
        raise AssertionError("a region without a terminator")

    # --- control ----------------------------------------------------------------------------

    def _if(self, o: Operation) -> Generator[None, None, Any]:
        taken = o.regions[0 if self.values[o.operands[0]] else 1]
        kind, values = yield from self.region(taken)
        if kind != "yield":
            return kind, values
        self.put(o.results, values)
        return None

    def _scope(self, o: Operation) -> Generator[None, None, Any]:
        kind, values = yield from self.region(o.regions[0])
        if kind != "leave":
            return kind, values
        self.put(o.results, values)
        return None

    def _for(self, o: Operation) -> Generator[None, None, Any]:
        lower, upper, step, *carried = self.get(o.operands)
        if step == 0:
            self.group.faults.append(o.attributes["site"])  # type: ignore[arg-type]
        for i in range(int(lower), int(upper), int(step)) if step else ():
            self.put(o.regions[0].arguments, (type(lower)(i), *carried))
            kind, values = yield from self.region(o.regions[0])
            if kind in ("leave", "return"):
                return kind, values
            carried = list(values)
            if kind == "break":
                break
        self.put(o.results, carried)
        return None

    def _while(self, o: Operation) -> Generator[None, None, Any]:
        carried = self.get(o.operands)
        while True:
            self.put(o.regions[0].arguments, carried)
            _, (go, *carried) = yield from self.region(o.regions[0])
            if not go:
                break
            self.put(o.regions[1].arguments, carried)
            kind, carried = yield from self.region(o.regions[1])
            if kind in ("leave", "return"):
                return kind, carried
            if kind == "break":
                break
        self.put(o.results, carried)
        return None

    # --- values -----------------------------------------------------------------------------

    def compute(self, o: Operation, kind: str) -> tuple[Any, ...]:
        if kind in _MEMORY:
            return self.access(o, kind)
        run, a = self.group, self.get(o.operands)
        axis = o.attributes.get("axis", -1)
        match kind:
            case "constant":
                return (_convert(o.attributes["value"], o.result.type),)
            case "lane_linear":
                return (np.int64(self.lane),)
            case "lane_index":
                shape = run.kernel.attributes["group"]
                return (np.int64(np.unravel_index(self.lane, shape)[axis]),)  # type: ignore[arg-type,index]
            case "group_linear" | "group_index":
                return (np.int64(run.group_index),)
            case "group_count":
                return (np.int64(run.groups),)
            case "view":
                return (a[0],)
            case "shared.alloc":
                t = o.result.type
                assert isinstance(t, BufferType)
                if o.result not in run.shared:
                    run.shared[o.result] = np.zeros(t.shape, numpy_type(t.dtype))
                return (run.shared[o.result],)
            case "fence" | "assume":
                return ()
            case "assert":
                if not a[0]:
                    run.faults.append(o.attributes["site"])  # type: ignore[arg-type]
                return ()
            case _:
                return (_arithmetic(o, kind, a, run.faults),)

    def access(self, o: Operation, kind: str) -> tuple[Any, ...]:
        count = {"load": 0, "atomic_load": 0, "atomic_cas": 2}.get(kind, 1)
        array, *indices = self.get(o.operands[count:])
        place = tuple(int(i) for i in indices)
        inside = all(0 <= i < n for i, n in zip(place, array.shape, strict=True))
        self.group.touched(o, inside)
        if not inside:
            assert o.attributes["bounds"] == "guarded", "a proved access is outside"
            self.group.faults.append(o.attributes["site"])  # type: ignore[arg-type]
            return (array.dtype.type(0),) if o.results else ()
        old = array[place]
        values = self.get(o.operands[:count])
        if kind in ("store", "atomic_store"):
            array[place] = values[0]
        elif kind == "atomic":
            array[place] = _UPDATES[str(o.attributes["kind"])](old, values[0])
        elif kind == "atomic_cas" and old == values[0]:
            array[place] = values[1]
        return (old,) if o.results else ()


def _warp(o: Operation, kind: str, given: dict[int, tuple[Any, ...]], lane: int) -> Any:
    """A warp operation as ``lane`` sees it, from what every lane of the group gave."""
    first = lane // 32 * 32
    values = {n: given[first + n][0] for n in range(32) if first + n in given}
    if kind == "warp_shuffle":
        return values.get(int(given[lane][1]) & 31, given[lane][0])
    if kind == "warp_vote":
        return np.bool_(any(values.values()) if o.attributes["kind"] == "any" else
                        all(values.values()))  # fmt: skip
    if kind == "warp_ballot":
        return np.uint32(sum(1 << n for n, value in values.items() if value))
    if kind == "warp_match":
        return np.uint32(sum(1 << n for n, value in values.items() if value == given[lane][0]))
    combine = {"add": lambda a, b: a + b, "min": np.minimum, "max": np.maximum}
    step = 16
    with np.errstate(all="ignore"):
        while step:
            for n in range(step):
                if n + step in values:
                    update = combine[str(o.attributes["kind"])]
                    values[n] = update(values[n], values[n + step])
            step //= 2
    return values[0]


_MEMORY = ("load", "store", "atomic", "atomic_cas", "atomic_load", "atomic_store")
_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": np.minimum,
    "max": np.maximum,
    "exchange": lambda a, b: b,
}


def _convert(value: Any, t: Any) -> Any:
    """Python or NumPy number to a dtype: ints wrap, floats saturate into ints."""
    target = numpy_type(t)
    if t.is_float or t.kind == "bool":
        return target(value)
    low, high = int(np.iinfo(target).min), int(np.iinfo(target).max)
    if isinstance(value, (float, np.floating)):
        if math.isnan(value):
            return target(0)
        return target(low if value <= low else high if value >= high else int(value))
    return target((int(value) - low) % (high - low + 1) + low)


def _arithmetic(o: Operation, kind: str, a: tuple[Any, ...], faults: list[int]) -> Any:
    t = o.result.type
    assert isinstance(t, DType)
    if kind in ("cast", "cmp", "select", "bitcast"):
        return _other(o, kind, a, t)
    if t.is_float:
        return numpy_type(t)(_FLOATS[kind](*a))
    if kind in ("floordiv", "mod") and a[1] == 0:
        faults.append(o.attributes["site"])  # type: ignore[arg-type]
        return numpy_type(t)(0)
    exact = [int(x) for x in a]
    if kind == "not" and t.kind == "bool":
        return np.bool_(not exact[0])
    if kind in ("shl", "shr"):
        count = exact[1] if 0 <= exact[1] < t.bits else t.bits
        return _convert(exact[0] << count if kind == "shl" else exact[0] >> count, t)
    return _convert(_INTEGERS[kind](*exact), t)


def _other(o: Operation, kind: str, a: tuple[Any, ...], t: DType) -> Any:
    match kind:
        case "cast":
            return _convert(a[0], t)
        case "bitcast":
            return a[0].view(numpy_type(t))
        case "select":
            return a[1] if a[0] else a[2]
        case _:
            compare = {"eq": "__eq__", "ne": "__ne__", "lt": "__lt__", "le": "__le__"}
            x, y = a if o.attributes["predicate"] not in ("gt", "ge") else a[::-1]
            mirrored = {"gt": "lt", "ge": "le"}
            name = str(o.attributes["predicate"])
            return np.bool_(getattr(x, compare[mirrored.get(name, name)])(y))


_INTEGERS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "neg": lambda a: -a, "abs": abs, "not": lambda a: ~a,
}  # fmt: skip
_FLOATS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b, "min": np.minimum, "max": np.maximum, "neg": lambda a: -a,
    "abs": abs, "sqrt": np.sqrt, "exp2": np.exp2, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round": np.rint, "approx": lambda a, exact: exact,
    "either": lambda exact, quick: exact,
}  # fmt: skip
