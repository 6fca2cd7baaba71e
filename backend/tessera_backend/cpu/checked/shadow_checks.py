"""LLVM code of one touch of an element: its shadow is read, compared and written.

The comparisons that nearly always decide stand in place; what they leave open goes to
``slow_paths.py``. Must not know how lanes are ordered.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera_backend.cpu.checked import shadow_words as w
from tessera_backend.cpu.checked.shadow_elision import WHAT, Root
from tessera_backend.llvm import small_floats
from tessera_backend.llvm.emitter import LaneEmitter, Place
from tessera_backend.llvm.fault_reports import unlikely
from tessera_backend.llvm.memory import load_element
from tessera_backend.llvm.types import bits_type
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field


@dataclass(frozen=True, slots=True)
class Times:
    """Operands: the word of the time, and those of the last barrier and of the group's begin."""

    now: str
    barrier: str
    begin: str


@dataclass(slots=True)
class Looking:
    """State of the emission. ``lanes``: of a group; ``moves``: whether lanes or groups hand
    something over, at which the time moves; ``only_writing``: atomics of which nobody uses what
    was there before; ``times`` where they are known, ``who`` the lane of the code being written."""

    roots: dict[Value, Root]
    lanes: int
    moves: bool
    only_writing: frozenset[Operation] = frozenset()
    numbers: dict[Operation, int] = field(default_factory=dict[Operation, int])
    times: Times | None = None
    who: str = ""

    # --- words ------------------------------------------------------------------------------

    def number_of(self, op: Operation) -> int:
        return self.numbers.setdefault(op, min(len(self.numbers), w.MOST_OPERATIONS - 1))

    def word(self, e: LaneEmitter, index: int) -> str:
        address = e.f.value(f"getelementptr inbounds i64, ptr %ctx, i64 {index}")
        return e.f.value(f"load i64, ptr {address}")

    def read_times(self, e: LaneEmitter) -> Times:
        return Times(*(self.word(e, i) for i in (w.NOW, w.BARRIER, w.BEGIN)))

    def _times(self, e: LaneEmitter) -> Times:
        if self.times is None:
            return self.read_times(e)
        if not self.moves:
            return self.times
        return Times(self.word(e, w.NOW), self.times.barrier, self.times.begin)

    def mine(self, e: LaneEmitter, op: Operation, now: str) -> str:
        """The word of a touch at this time."""
        own = e.f.value(f"or i64 {now}, {self.number_of(op) << w.OPERATION_SHIFT}")
        return e.f.value(f"or i64 {own}, {self.who or (w.MANY if self.lanes > 1 else 0)}")

    # --- touches ----------------------------------------------------------------------------

    def touch(self, e: LaneEmitter, op: Operation, place: Place, pointer: str) -> None:
        """Look at an access of the element at ``pointer``, which follows."""
        root = self.roots.get(place.root)
        if root is None:
            return
        _Touch(self, e, op, place, pointer, root, self._times(e)).emit()

    def fault(self, e: LaneEmitter, op: Operation, case: int, holds: str, cell: str = "0") -> None:
        """A record where ``holds``, of a case that has no earlier touch."""
        cold, on = e.f.label("fault"), e.f.label("go_on")
        e.f.branch_if(holds, cold, on, unlikely(e))
        e.f.place(cold)
        mine = self.mine(e, op, self._times(e).now)
        e.f.line(f"call void @checked.record(ptr %ctx, i64 {case}, i64 {mine}, i64 0, i64 {cell})")
        e.f.place(on)


_CASES: dict[tuple[w.Kind, w.Kind], int] = {
    ("read", "write"): w.READ_WRITTEN, ("write", "write"): w.WRITE_WRITTEN,
    ("write", "read"): w.WRITE_READ, ("read", "atomic"): w.READ_UPDATED,
    ("write", "atomic"): w.WRITE_UPDATED, ("atomic", "write"): w.UPDATE_WRITTEN,
    ("atomic", "read"): w.UPDATE_READ,
}  # fmt: skip


@dataclass(slots=True)
class _Touch:
    """One access, of a root at a time."""

    look: Looking
    e: LaneEmitter
    op: Operation
    place: Place
    pointer: str
    root: Root
    times: Times

    def emit(self) -> None:
        mine = self.look.mine(self.e, self.op, self.times.now)
        cell = self._cell()
        kind = WHAT[self.op.name]
        shadows: dict[w.Kind, str] = {k: self._shadow(k, cell) for k in self.root.kinds}
        old: dict[w.Kind, str] = {
            k: self.e.f.value(f"load i64, ptr {shadows[k]}") for k in self.root.kinds
        }
        against: list[w.Kind] = []
        if not self.root.alone:
            against = [k for k in self.root.kinds if (kind, k) in _CASES]
        open_ = [self._open(old[k]) for k in against]
        if self._needs_a_value(kind):
            open_.append(self._unwritten(old))
        if open_:
            self._cold(open_, lambda: self._decide(kind, against, old, mine, cell))
        if kind == "write" or (self.root.alone and self._puts()):
            self._put(shadows["write"], mine)
            return
        if kind in shadows:
            self._join(old[kind], shadows[kind], mine, cell)

    def _cell(self) -> str:
        """The number of the element, counted from where the array begins."""
        f = self.e.f
        if self.pointer == self.place.pointer:
            return "0"
        to, first = (
            f.value(f"ptrtoint ptr {p} to i64") for p in (self.pointer, self.place.pointer)
        )
        moved = f.value(f"sub i64 {to}, {first}")
        size = self.root.element
        return moved if size == 1 else f.value(f"sdiv exact i64 {moved}, {size}")

    def _shadow(self, kind: w.Kind, cell: str) -> str:
        base = f"%shadow.{self._number()}.{kind}"
        return self.e.f.value(f"getelementptr inbounds i64, ptr {base}, i64 {cell}")

    def _put(self, shadow: str, word: str) -> None:
        self.e.f.line(f"store i64 {word}, ptr {shadow}")

    def _lane_differs(self, old: str) -> str:
        f = self.e.f
        lane = self.look.who or str(w.MANY if self.look.lanes > 1 else 0)
        theirs = f.value(f"and i64 {old}, {w.LANE_MASK}")
        return f.value(f"icmp ne i64 {theirs}, {lane}")

    def _open(self, old: str) -> str:
        """Whether an earlier touch of another lane may be unordered: i1."""
        f = self.e.f
        late = f.value(f"icmp uge i64 {old}, {self.times.barrier}")
        near = (
            f.value(f"and i1 {late}, {self._lane_differs(old)}") if self.look.lanes > 1 else "false"
        )
        if self.root.local:
            return near
        foreign = self._is_foreign(old)
        return f.value(f"or i1 {near}, {foreign}") if near != "false" else foreign

    def _is_foreign(self, old: str) -> str:
        """Whether a group before this one, in this launch, touched the element."""
        f = self.e.f
        gap = f.value(f"sub i64 {old}, %launch")
        width = f.value(f"sub i64 {self.times.begin}, %launch")
        return f.value(f"icmp ult i64 {gap}, {width}")

    def _needs_a_value(self, kind: w.Kind) -> bool:
        return self.root.fresh and kind != "write" and not self._puts()

    def _puts(self) -> bool:
        """Whether an atomic writes a value, whatever was there."""
        return self.op.name == "tile.atomic_store" or self.op in self.look.only_writing

    def _unwritten(self, old: dict[w.Kind, str]) -> str:
        f = self.e.f
        since = self.times.begin if self.root.local else "%launch"
        tests = [
            f.value(f"icmp ult i64 {old[k]}, {since}") for k in ("write", "atomic") if k in old
        ]
        return tests[0] if len(tests) == 1 else f.value(f"and i1 {tests[0]}, {tests[1]}")

    def _cold(self, tests: list[str], body: Callable[[], None]) -> None:
        f = self.e.f
        some = tests[0]
        for test in tests[1:]:
            some = f.value(f"or i1 {some}, {test}")
        cold, on = f.label("look"), f.label("looked")
        f.branch_if(some, cold, on, unlikely(self.e))
        f.place(cold)
        body()
        f.place(on)

    def _what(self, case: int) -> int:
        return self._number() << w.ROOT_SHIFT | case

    def _number(self) -> int:
        return list(self.look.roots.values()).index(self.root)

    # --- what the fast tests leave open -----------------------------------------------------

    def _decide(
        self, kind: w.Kind, against: list[w.Kind], old: dict[w.Kind, str], mine: str, cell: str
    ) -> None:
        f = self.e.f
        if self._needs_a_value(kind):
            what = self._what(w.UNWRITTEN)
            self._when(self._unwritten(old), lambda: f.line(
                f"call void @checked.record(ptr %ctx, i64 {what}, i64 {mine}, i64 0, i64 {cell})"
            ))  # fmt: skip
        for other in against:

            def call(other: w.Kind = other) -> None:
                what = self._what(_CASES[kind, other])
                f.line(
                    f"call void @checked.meet(ptr %ctx, i64 {old[other]}, i64 {mine}, "
                    f"i64 {cell}, i64 {what})"
                )

            tests: list[str] = []
            if kind == "write" and other != "atomic":
                tests.append(self._changes())
            if self.root.local:  # what an earlier group left says nothing
                tests.append(f.value(f"icmp uge i64 {old[other]}, {self.times.begin}"))
            match tests:
                case []:
                    call()
                case [only]:
                    self._when(only, call)
                case _:
                    self._when(f.value(f"and i1 {', '.join(tests)}"), call)

    def _when(self, condition: str, body: Callable[[], None]) -> None:
        f = self.e.f
        then, on = f.label("when"), f.label("on")
        f.branch_if(condition, then, on)
        f.place(then)
        body()
        f.place(on)

    def _changes(self) -> str:
        """Whether a store writes another value than the element has: the same does no harm."""
        dtype = self.place.dtype
        new = small_floats.as_bits(self.e, self.e.operand(self.op.operands[0]), dtype)
        held = small_floats.as_bits(self.e, load_element(self.e, self.place, self.pointer), dtype)
        return self.e.f.value(f"icmp ne {bits_type(dtype)} {new}, {held}")

    # --- reads and atomics ------------------------------------------------------------------

    def _is_narrow(self) -> bool:
        scope = self.op.attributes.get("scope")
        return self.place.space == "global" and scope in ("tile", "group")

    def _join(self, old: str, shadow: str, mine: str, cell: str) -> None:
        """The touch joins those since the barrier; an earlier group's stays where no order is
        known, as any later writer meets it."""
        f = self.e.f
        word = f.value(f"or i64 {mine}, {w.NARROW}") if self._is_narrow() else mine
        if self.look.lanes > 1:
            late = f.value(f"icmp uge i64 {old}, {self.times.barrier}")
            several = f.value(f"and i1 {late}, {self._lane_differs(old)}")
            if self.look.moves:  # a lane that has handed over is met no more
                handed = f.value(f"call i1 @checked.lanes_ordered(ptr %ctx, i64 {old}, i64 {mine})")
                several = f.value(f"and i1 {several}, {f.value(f'xor i1 {handed}, true')}")
            many = f.value(f"select i1 {several}, i64 {w.MANY}, i64 0")
            word = f.value(f"or i64 {word}, {many}")
        if self.root.local:
            self._put(shadow, word)
            return
        keep, join, on = f.label("foreign"), f.label("join"), f.label("joined")
        f.branch_if(self._is_foreign(old), keep, join, unlikely(self.e))
        f.place(keep)
        before = f.value(f"call i1 @checked.ordered(ptr %ctx, i64 {old})")
        if self.op.name != "tile.load":
            self._scopes(old, mine, cell, before)
        f.branch_if(before, join, on)
        f.place(join)
        self._put(shadow, word)
        f.place(on)

    def _scopes(self, old: str, mine: str, cell: str, before: str) -> None:
        """An atomic of another group: one of both has the scope of its group only."""
        f = self.e.f
        theirs = f.value(f"and i64 {old}, {w.NARROW}")
        wrong = f.value(f"icmp ne i64 {theirs}, 0") if not self._is_narrow() else "true"
        unordered = f.value(f"xor i1 {before}, true")
        wrong = f.value(f"and i1 {wrong}, {unordered}")
        what = self._what(w.SCOPE)
        self._when(wrong, lambda: f.line(
            f"call void @checked.record(ptr %ctx, i64 {what}, i64 {mine}, i64 {old}, i64 {cell})"
        ))  # fmt: skip
