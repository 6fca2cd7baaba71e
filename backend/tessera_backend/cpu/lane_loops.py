"""Lane loops, and where the values of lanes live between them.

Scalars are LLVM values, carried scalars stack slots, varying values that live across pieces
arrays in the thread's scratch memory; masks say which lanes are active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tessera_backend.cpu.group_plan import GroupPlan
from tessera_backend.cpu.target_hooks import CpuDialect
from tessera_backend.llvm.emitter import LaneEmitter, scalar_type
from tessera_backend.llvm.types import memory_type, register_type
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.dtype import BOOL, DType


@dataclass(eq=False)
class Array:
    """One element a lane in scratch memory."""

    pointer: str
    dtype: DType


class Scratch:
    """Lays out the scratch memory of a thread; ``size`` bytes in the end."""

    def __init__(self) -> None:
        self.size = 0
        self.lines: list[str] = []

    def take(self, count: int) -> str:
        """Address of ``count`` bytes, a multiple of 64."""
        name = f"%scratch.{len(self.lines)}"
        self.lines.append(f"{name} = getelementptr inbounds i8, ptr %scratch, i64 {self.size}")
        self.size += -(-max(count, 1) // 64) * 64
        return name


@dataclass(eq=False)
class When:
    """A condition that is the same along the innermost axis, and what the lanes do where it does
    not hold; None: nothing."""

    value: Value
    otherwise: Callable[[], None] | None = None


@dataclass(eq=False)
class Mask:
    """Which lanes are active: an array, or "the lane still has steps" on top of a parent.

    ``end`` is where the group goes on when none is.
    """

    end: str
    array: Array | None = None
    parent: Mask | None = None
    trips: Array | None = None
    step: str = ""
    when: Value | None = None  # the same along the innermost axis; where it fails, none is active


@dataclass
class LaneLoops:
    """State of the code of one group as its lane loops see it.

    ``steps``: variables of loops of the group, with the count of the step.
    """

    plan: GroupPlan
    e: LaneEmitter
    dialect: CpuDialect
    scratch: Scratch
    next_lane: str = ""
    arrays: dict[Value, Array] = field(default_factory=dict[Value, Array])
    slots: dict[Value, str] = field(default_factory=dict[Value, str])
    masks: list[Mask] = field(default_factory=list[Mask])
    steps: dict[Value, tuple[Operation, str]] = field(
        default_factory=dict[Value, tuple[Operation, str]]
    )

    # --- where values live ------------------------------------------------------------------

    @property
    def lanes_count(self) -> int:
        total = 1
        for size in self.dialect.group:
            total *= size
        return total

    def new_array(self, dtype: DType) -> Array:
        return Array(self.scratch.take(self.lanes_count * dtype.bytes), dtype)

    def element(self, array: Array) -> str:
        kind = memory_type(array.dtype)
        return self.e.f.value(
            f"getelementptr inbounds {kind}, ptr {array.pointer}, i64 {self.dialect.lane}"
        )

    def read(self, array: Array) -> str:
        kind = memory_type(array.dtype)
        raw = self.e.f.value(
            f"load {kind}, ptr {self.element(array)}, align {array.dtype.bytes}"
            f"{self.dialect.suffix(None)}"
        )
        return self.e.f.value(f"trunc i8 {raw} to i1") if array.dtype == BOOL else raw

    def write(self, array: Array, value: str) -> None:
        if array.dtype == BOOL:
            value = self.e.f.value(f"zext i1 {value} to i8")
        self.e.f.line(
            f"store {memory_type(array.dtype)} {value}, ptr {self.element(array)}, "
            f"align {array.dtype.bytes}{self.dialect.suffix(None)}"
        )

    def keep(self, owner: Value, value: str) -> None:
        """Writes ``value`` to the slot of ``owner`` if that is a scalar."""
        if owner in self.slots:
            kind = register_type(scalar_type(owner))
            self.e.f.line(f"store {kind} {value}, ptr {self.slots[owner]}")

    def keep_lane(self, owner: Value, value: str) -> None:
        """Writes ``value`` of the current lane to the array of ``owner`` if it has one."""
        if owner in self.arrays:
            self.write(self.arrays[owner], value)

    def make_slots(self, owners: Sequence[Value], *aliases: Sequence[Value]) -> None:
        scalars = self.plan.scalars
        for number, owner in enumerate(owners):
            names = (owner, *(a[number] for a in aliases))
            if scalars.is_scalar(owner):
                slot = self.slots.get(owner) or self.e.f.slot(register_type(scalar_type(owner)))
                for name in names:
                    if scalars.is_scalar(name):
                        self.slots[name] = slot
            if not scalars.is_scalar(owner) or scalars.is_kept_twice(owner):
                array = self.arrays.get(owner) or self.new_array(scalar_type(owner))
                for name in names:
                    self.arrays[name] = array

    def bind_scalars(self, values: Iterable[Value]) -> None:
        for value in values:
            if value in self.slots:
                kind = register_type(scalar_type(value))
                self.e.bind(value, self.e.f.value(f"load {kind}, ptr {self.slots[value]}"))

    def lane_value(self, value: Value) -> str:
        """A value in the current lane: known, made again, or from its array."""
        e = self.e
        if value in e.values:
            return e.operand(value)
        if value in self.steps:
            loop, count = self.steps[value]
            kind = register_type(scalar_type(value))
            lower = self.lane_value(loop.operands[0])
            moved = e.f.value(f"mul {kind} {count}, {e.operand(loop.operands[2])}")
            e.bind(value, e.f.value(f"add {kind} {lower}, {moved}"))
        elif value in self.arrays:
            e.bind(value, self.read(self.arrays[value]))
        else:
            op = self.plan.scalars.again(value)
            if op is None:
                raise KeyError(f"the value {value.name or value} is nowhere")
            for operand in op.operands:
                self.lane_value(operand)
            e.emit(op)
        return e.operand(value)

    # --- lane loops -------------------------------------------------------------------------

    def lanes(
        self, body: Callable[[], None], *, independent: bool = True, rolled: bool = False,
        straight: bool = False, when: When | None = None,
    ) -> None:  # fmt: skip
        """Runs what ``body`` writes for every lane, in order.

        Values bound inside are forgotten. ``independent``: no lane needs another's effects.
        ``rolled``: LLVM is not to unroll the innermost loop before it looks for vectors.
        ``straight``: it may make straight code of the loop, also of its vectors, which is worth its
        time for the work of the kernel and not for masks and copies of values.
        ``when``: what is asked once for the lanes of the innermost loop.
        """
        f, dialect, known = self.e.f, self.dialect, dict(self.e.values)
        if independent:
            dialect.access_group = self.e.module.distinct("!{}")
        axes = [axis for axis, size in enumerate(dialect.group) if size > 1]
        ids = ["0"] * len(dialect.group)
        outer = [self._open(axis, ids) for axis in axes[:-1]]
        if when is None:
            self._innermost(body, axes, ids, self._loop_metadata(rolled, straight))
        else:
            self._set_lane(ids)
            holds, yes, no, join = self.lane_value(when.value), *map(f.label, ("on", "off", "next"))
            f.branch_if(holds, yes, no)
            before = dict(self.e.values)
            for label, inner in ((yes, body), (no, when.otherwise)):
                f.place(label)
                if inner is not None:
                    self._innermost(inner, axes, ids, self._loop_metadata(rolled, straight))
                    self.e.values = dict(before)
                f.branch(join)
            f.place(join)
        # Copies of a loop over few lanes give vectors something to do.
        few = not axes or dialect.group[axes[-1]] < WARP
        around = self.stays_a_loop() if not few and (rolled or not straight) else ""
        for opened in reversed(outer):
            self._close(opened, around)
        dialect.access_group = ""
        dialect.lane, dialect.lane_ids = "0", tuple("0" for _ in dialect.group)
        self.e.values = known

    def _innermost(
        self, body: Callable[[], None], axes: Sequence[int], ids: Sequence[str], metadata: str
    ) -> None:
        ids = list(ids)
        opened = [self._open(axis, ids) for axis in axes[-1:]]
        self._set_lane(ids)
        self.next_lane = self.e.f.label("lane.next")
        body()
        self.e.f.place(self.next_lane)
        for loop in opened:
            self._close(loop, metadata)

    def _open(self, axis: int, ids: list[str]) -> tuple[str, str, str, int]:
        """Begins the loop over an axis: its variable, its head, the position and the size."""
        f = self.e.f
        variable, head = f.slot("i64"), f.label("lane")
        f.line(f"store i64 0, ptr {variable}")
        f.place(head)
        ids[axis] = f.value(f"load i64, ptr {variable}")
        return variable, head, ids[axis], self.dialect.group[axis]

    def _close(self, opened: tuple[str, str, str, int], metadata: str) -> None:
        f = self.e.f
        variable, head, current, size = opened
        following = f.value(f"add nuw nsw i64 {current}, 1")
        f.line(f"store i64 {following}, ptr {variable}")
        done = f.label("lane.done")
        f.branch_if(f.value(f"icmp ult i64 {following}, {size}"), head, done, metadata)
        f.place(done)

    def _set_lane(self, ids: Sequence[str]) -> None:
        linear = "0"
        for size, own in zip(self.dialect.group, ids, strict=True):
            if linear != "0":
                linear = self.e.f.value(f"mul nuw nsw i64 {linear}, {size}")
            if own != "0":
                linear = (
                    own if linear == "0" else self.e.f.value(f"add nuw nsw i64 {linear}, {own}")
                )
        self.dialect.lane, self.dialect.lane_ids = linear, tuple(ids)

    def _loop_metadata(self, rolled: bool, straight: bool) -> str:
        if not self.dialect.access_group:
            return ""
        module = self.e.module
        parallel = module.metadata(
            f'!{{!"llvm.loop.parallel_accesses", {self.dialect.access_group}}}'
        )
        # No "vectorize.enable": LLVM prints a warning wherever it cannot honour it.
        hints = ["{self}", parallel]
        if rolled or not straight:
            done = module.metadata('!{!"llvm.loop.isvectorized", i32 1}')
            disabled = module.metadata('!{!"llvm.loop.unroll.disable"}')
            # A loop of vectors may be unrolled again.
            after = done if straight else f"{done}, {disabled}"
            followup = module.metadata(f'!{{!"llvm.loop.vectorize.followup_all", {after}}}')
            hints += [disabled, followup]
        text = ", ".join(hints)
        return f", !llvm.loop {module.distinct('!{' + text + '}')}"

    def stays_a_loop(self) -> str:
        """What says at the end of a loop that LLVM is not to unroll it."""
        module = self.e.module
        disabled = module.metadata('!{!"llvm.loop.unroll.disable"}')
        return f", !llvm.loop {module.distinct('!{{self}, ' + disabled + '}')}"

    # --- masks ------------------------------------------------------------------------------

    def active(self, mask: Mask | None) -> str:
        """Whether the current lane is active, as i1; "" where every lane is."""
        if mask is None:
            return ""
        if mask.array is not None:
            return self.read(mask.array)
        assert mask.trips is not None
        kind = register_type(mask.trips.dtype)
        left = self.e.f.value(f"icmp ult {kind} {mask.step}, {self.read(mask.trips)}")
        outer = self.active(mask.parent)
        return self.e.f.value(f"and i1 {left}, {outer}") if outer else left

    @property
    def mask(self) -> Mask | None:
        return self.masks[-1] if self.masks else None

    def switch_off(self, depth: int) -> None:
        """The current lane is done with everything that has a mask inside ``depth``."""
        for mask in self.masks[depth:]:
            if mask.array is not None:
                self.write(mask.array, "false")

    def copy_mask(self, end: str) -> Mask:
        """A mask of its own that begins as the current one."""
        array, outer = self.new_array(BOOL), self.mask
        self.lanes(lambda: self.write(array, self.active(outer) or "true"))
        return Mask(end, array, when=outer.when if outer else None)

    def skip_if_idle(self, mask: Mask) -> None:
        """Goes to the end of what ``mask`` stands for if no lane is active."""
        f = self.e.f
        some = f.slot("i1")
        f.line(f"store i1 false, ptr {some}")

        def body() -> None:
            before = f.value(f"load i1, ptr {some}")
            f.line(f"store i1 {f.value(f'or i1 {before}, {self.active(mask)}')}, ptr {some}")

        self.lanes(body)
        go_on = f.label("active")
        f.branch_if(f.value(f"load i1, ptr {some}"), go_on, mask.end)
        f.place(go_on)
