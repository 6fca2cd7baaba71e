"""Code of a kernel whose accesses are looked at: the CPU's, with lanes in an order that is given.

Lanes run one after the other between barriers, as in all code for the CPU; where what they do is
looked at, the order comes from a table of the launch. Must not know how a touch is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from tessera_backend.cpu.checked import shadow_words as w
from tessera_backend.cpu.checked.shadow_checks import Looking
from tessera_backend.cpu.checked.shadow_elision import Roots, hands_over, lanes_of
from tessera_backend.cpu.checked.slow_paths import add_slow_paths
from tessera_backend.cpu.checked.watched_operations import EXACT, seen, unproved
from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.emit_group import ORDERED, GroupEmitter
from tessera_backend.cpu.entry import Form, dialect_arguments
from tessera_backend.cpu.group_plan import GroupPlan, Piece, Planner
from tessera_backend.cpu.interchange import ARRAY_OPERAND
from tessera_backend.cpu.lane_loops import Scratch
from tessera_backend.cpu.target_hooks import CpuDialect
from tessera_backend.llvm.emitter import LaneEmitter, Place, Rule, scalar_type
from tessera_backend.llvm.text import FunctionText
from tessera_backend.llvm.types import float_constant, memory_type
from tessera_lang.analysis.lanes.shared_access_log import only_writing
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import BOOL

GARBAGE = 77
"""What integers hold where nobody has written; floats hold NaN, bools hold true."""


class CheckedDialect(CpuDialect):
    """The CPU, with a look at each access. ``current``: the operation whose code is written."""

    look: Looking
    unproved: set[Operation]
    seen: set[Operation]
    current: Operation | None = None
    loud = False
    """Whether the code being written runs only where the program says so."""

    def at(self, e: LaneEmitter, place: Place, pointer: str) -> str:
        if self.current is not None:
            self.look.touch(e, self.current, place, pointer)
        return pointer

    def fence(self, e: LaneEmitter, scope: str) -> None:
        super().fence(e, scope)
        release(e, self.look.who, scope)
        acquire(e, self.look.who, scope)

    def counted(self, e: LaneEmitter, op: Operation) -> Callable[[str], str]:
        """A `while` ends after a number of turns, with a record."""
        f, go_on = e.f, super().counted(e, op)
        count = f.slot("i64")
        f.line(f"store i64 0, ptr {count}")
        waits = any(o.name.startswith("tile.atomic") for o in op.walk())

        def condition(holds: str) -> str:
            before = f.value(f"load i64, ptr {count}")
            f.line(f"store i64 {f.value(f'add i64 {before}, 1')}, ptr {count}")
            most = self.look.word(e, w.WAITS if waits else w.TURNS)
            over = f.value(f"icmp uge i64 {before}, {most}")
            wrong = f.value(f"and i1 {over}, {holds}")
            self.look.fault(e, op, w.ENDLESS, wrong)
            return go_on(f.value(f"and i1 {holds}, {f.value(f'xor i1 {over}, true')}"))

        return condition


class CheckedGroup(GroupEmitter):
    """A group whose lanes run in an order of the launch where that is to be seen."""

    @property
    def seeing(self) -> CheckedDialect:
        return _dialect(self.e)

    def runs(self, operations: Sequence[Operation]) -> None:
        self.seeing.loud = True
        super().runs(operations)
        self.seeing.loud = False

    def once(self, op: Operation) -> None:
        look = self.seeing.look
        if look.lanes > 1 and self.mask is not None and not self.seeing.seen.isdisjoint(op.walk()):
            look.who = self._active_lane()
        self.runs((op,))
        look.who = ""

    def _active_lane(self) -> str:
        """The one lane that is here, or ``MANY``."""
        f = self.e.f
        slot = f.slot("i64")
        f.line(f"store i64 -1, ptr {slot}")

        def body() -> None:
            before = f.value(f"load i64, ptr {slot}")
            first = f.value(f"icmp slt i64 {before}, 0")
            lane = f.value(f"select i1 {first}, i64 {self.dialect.lane}, i64 {w.MANY}")
            here = f.value(f"select i1 {self.active(self.mask)}, i64 {lane}, i64 {before}")
            f.line(f"store i64 {here}, ptr {slot}")

        self.lanes(body)
        return f.value(f"load i64, ptr {slot}")

    def met(self, op: Operation) -> None:
        """All lanes are at a barrier, or a record says which is not."""
        f, look = self.e.f, self.seeing.look
        if self.mask is not None:
            missing, here = f.slot("i64"), f.slot("i64")
            f.line(f"store i64 -1, ptr {missing}")
            f.line(f"store i64 0, ptr {here}")

            def body() -> None:
                active = self.active(self.mask)
                before = f.value(f"load i64, ptr {missing}")
                own = f.value(f"select i1 {active}, i64 {before}, i64 {self.dialect.lane}")
                f.line(f"store i64 {own}, ptr {missing}")
                one = f.value(f"zext i1 {active} to i64")
                count = f.value(f"load i64, ptr {here}")
                f.line(f"store i64 {f.value(f'add i64 {count}, {one}')}, ptr {here}")

            self.lanes(body)
            lane, count = (f.value(f"load i64, ptr {s}") for s in (missing, here))
            some = f.value(f"icmp ne i64 {count}, 0")
            lacks = f.value(f"icmp sge i64 {lane}, 0")
            look.who = lane
            look.fault(self.e, op, w.MISMATCH, f.value(f"and i1 {some}, {lacks}"), count)
            look.who = ""
        f.line(f"call void @checked.barrier(ptr %ctx, i64 {4 * self.lanes_count})")

    def run_lanes(self, piece: Piece, body: Callable[[], None]) -> None:
        if self._is_seen(piece):
            self._in_order(body)
        else:
            super().run_lanes(piece, body)

    def _is_seen(self, piece: Piece) -> bool:
        seen = self.seeing.seen
        return any(
            inner in seen or inner.name in ORDERED or inner.name == "tile.while"
            for op in piece.operations for inner in op.walk()
        )  # fmt: skip

    def _in_order(self, body: Callable[[], None]) -> None:
        """As ``lanes``, in the order of the table."""
        f, dialect, look, known = self.e.f, self.dialect, self.seeing.look, dict(self.e.values)
        look.times = look.read_times(self.e)
        row = f.value(f"inttoptr i64 {look.word(self.e, w.ROW)} to ptr")
        variable, head = f.slot("i64"), f.label("lane")
        f.line(f"store i64 0, ptr {variable}")
        f.place(head)
        turn = f.value(f"load i64, ptr {variable}")
        at = f.value(f"getelementptr inbounds i32, ptr {row}, i64 {turn}")
        lane = f.value(f"zext i32 {f.value(f'load i32, ptr {at}')} to i64")
        dialect.lane, dialect.lane_ids = lane, self._ids(lane)
        look.who = lane
        self.next_lane = f.label("lane.next")
        body()
        f.place(self.next_lane)
        following = f.value(f"add nuw nsw i64 {turn}, 1")
        f.line(f"store i64 {following}, ptr {variable}")
        done = f.label("lane.done")
        f.branch_if(f.value(f"icmp ult i64 {following}, {self.lanes_count}"), head, done)
        f.place(done)
        dialect.lane, dialect.lane_ids = "0", tuple("0" for _ in dialect.group)
        look.times, look.who = None, ""
        self.e.values = known

    def _ids(self, lane: str) -> tuple[str, ...]:
        f, ids, rest = self.e.f, list[str](), lane
        for size in reversed(self.dialect.group[1:]):
            ids.append(f.value(f"urem i64 {rest}, {size}"))
            rest = f.value(f"udiv i64 {rest}, {size}")
        return (rest, *reversed(ids))


class CheckedForm(Form):
    """``look`` tells what was numbered, when the code is written."""

    def __init__(self, kernel: Operation, plan: LaunchPlan, roots: Roots) -> None:
        self.roots = list(roots.looked.values())
        self.look = Looking(
            roots.looked, lanes_of(kernel), hands_over(kernel), only_writing(kernel)
        )
        self._known = roots.known
        self._block = len(plan.slots)

    def planner(self, kernel: Operation) -> Planner:
        return Planner(kernel, counted=True)

    def dialect(self, kernel: Operation, target: CodeTarget) -> CpuDialect:
        made = CheckedDialect(*dialect_arguments(kernel, target))
        made.look, made.unproved = self.look, unproved(kernel, self._known)
        made.seen = seen(kernel, self.look.roots) | made.unproved
        self._dialect = made
        return made

    def own_arrays(self, tree: GroupPlan) -> frozenset[Value]:
        """None: each element has a shadow word."""
        return frozenset()

    def runs(self, kernel: Operation) -> None:
        """Lanes are a row there, in several orders."""

    def counters(self, kernel: Operation, scratch: Scratch) -> None:
        """None: each access is looked at."""

    def rules(self, rules: Mapping[str, Rule]) -> Mapping[str, Rule]:
        return {
            **rules,
            **{name: _access(rules[name]) for name in ARRAY_OPERAND},
            **{name: _exact(rules[name], name) for name in EXACT},
        }

    def enter(self, e: LaneEmitter) -> None:
        add_slow_paths(e.module)
        f = e.f
        address = f.value(f"getelementptr inbounds i64, ptr %slots, i64 {self._block}")
        f.line(f"%ctx = load ptr, ptr {address}, align 8")
        f.line(f"%launch = {_load_word(w.LAUNCH, f)}")
        at = w.SHADOWS
        for number, root in enumerate(self.roots):
            for kind in root.kinds:
                word = self.look.word(e, at)
                f.line(f"%shadow.{number}.{kind} = inttoptr i64 {word} to ptr")
                at += 1

    def begin(self, e: LaneEmitter, position: str) -> str:
        f, dialect = e.f, self._dialect
        on = f.label("unstopped")
        f.branch_if(f.value(f"icmp eq i64 {self.look.word(e, w.STOP)}, 0"), on, "exit")
        f.place(on)
        for value, pointer in dialect.shared.items():
            if self.look.lanes > 1 and isinstance(value.type, BufferType):
                _poison(e, pointer, value.type)
        size = 4 * self.look.lanes
        return f.value(f"call i64 @checked.begin(ptr %ctx, i64 {position}, i64 {size})")

    def group(
        self, tree: GroupPlan, e: LaneEmitter, dialect: CpuDialect, scratch: Scratch
    ) -> GroupEmitter:
        return CheckedGroup(tree, e, dialect, scratch)


def _load_word(index: int, f: FunctionText) -> str:
    address = f.value(f"getelementptr inbounds i64, ptr %ctx, i64 {index}")
    return f"load i64, ptr {address}"


def _poison(e: LaneEmitter, pointer: str, t: BufferType) -> None:
    """Shared memory as nobody has written it."""
    f, kind = e.f, memory_type(t.dtype)
    value = "1" if t.dtype == BOOL else str(GARBAGE)
    if t.dtype.is_float:
        value = float_constant(float("nan"), t.dtype)
    counter, head, done = f.slot("i64"), f.label("poison"), f.label("poisoned")
    f.line(f"store i64 0, ptr {counter}")
    f.place(head)
    at = f.value(f"load i64, ptr {counter}")
    place = f.value(f"getelementptr inbounds {kind}, ptr {pointer}, i64 {at}")
    f.line(f"store {kind} {value}, ptr {place}")
    following = f.value(f"add nuw nsw i64 {at}, 1")
    f.line(f"store i64 {following}, ptr {counter}")
    f.branch_if(f.value(f"icmp ult i64 {following}, {prod(t.shape)}"), head, done)
    f.place(done)


# --- rules ----------------------------------------------------------------------------------


def _dialect(e: LaneEmitter) -> CheckedDialect:
    assert isinstance(e.dialect, CheckedDialect)
    return e.dialect


def _access(rule: Rule) -> Rule:
    """The rule of an access, with what it does to the order of groups."""

    def checked(e: LaneEmitter, op: Operation) -> None:
        dialect, order = _dialect(e), str(op.attributes.get("order", ""))
        who, scope = dialect.look.who, str(op.attributes.get("scope", ""))
        if order in ("acquire", "acq_rel"):
            acquire(e, who, scope)
        dialect.current = op
        rule(e, op)
        dialect.current = None
        if order in ("release", "acq_rel"):
            release(e, who, scope)

    return checked


_BEYOND_GROUPS = ("device", "mesh")


def acquire(e: LaneEmitter, who: str, scope: str) -> None:
    """What follows comes after what others have released; ``who`` is the lane, where one is
    known."""
    if scope in _BEYOND_GROUPS:
        address = e.f.value(f"getelementptr inbounds i64, ptr %ctx, i64 {w.ACQUIRED}")
        e.f.line(f"store i64 1, ptr {address}")
    if who and scope != "tile":
        e.f.line(f"call void @checked.lane_acquire(ptr %ctx, i64 {who})")


def release(e: LaneEmitter, who: str, scope: str) -> None:
    """What came before is for others that acquire."""
    if who and scope != "tile":
        e.f.line(f"call void @checked.lane_release(ptr %ctx, i64 {who})")
    if scope in _BEYOND_GROUPS:
        e.f.line("call void @checked.release(ptr %ctx)")


def _exact(rule: Rule, name: str) -> Rule:
    """The rule of a sum or product of indices, with a record where it leaves its type."""

    def checked(e: LaneEmitter, op: Operation) -> None:
        dialect = _dialect(e)
        if not dialect.loud or op not in dialect.unproved:
            rule(e, op)
            return
        a, b = map(e.operand, op.operands)
        bits = scalar_type(op.result).bits
        callee, pair = f"@llvm.{EXACT[name]}.with.overflow.i{bits}", f"{{ i{bits}, i1 }}"
        e.module.declare(f"{pair} {callee}(i{bits}, i{bits})")
        both = e.f.value(f"call {pair} {callee}(i{bits} {a}, i{bits} {b})")
        result, over = (e.f.value(f"extractvalue {pair} {both}, {n}") for n in (0, 1))
        dialect.look.fault(e, op, w.OVERFLOW, over, str(bits))
        e.bind(op.result, result)

    return checked
