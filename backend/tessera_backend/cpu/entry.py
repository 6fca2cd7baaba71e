"""The function a thread calls: takes groups in order and runs them.

``void kernel(ptr slots, ptr counter, i64 total, i64 gx, i64 gy, i64 gz, i64 chunk,
ptr scratch)``: ``slots`` are the plan's 64-bit arguments in order, ``counter`` a 64-bit word
that all threads of the launch share and that begins at 0, ``total`` the number of groups, gx,
gy, gz the groups along each axis (1 where there is none), ``chunk`` how many groups a thread
takes at a time, ``scratch`` memory of the thread's own, a multiple of 64. Groups start in
order; a group may wait for lower-numbered ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import cast

from tessera_backend.cpu.array_contraction import find_own_arrays
from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.emit_group import GroupEmitter
from tessera_backend.cpu.group_plan import GroupPlan, Planner
from tessera_backend.cpu.interleaved_groups import RowRuns, row_runs
from tessera_backend.cpu.lane_loops import Scratch
from tessera_backend.cpu.liveness import find_spilled
from tessera_backend.cpu.privatized_atomics import Counters
from tessera_backend.cpu.products import product_rules
from tessera_backend.cpu.simd_target import vector_unit, vector_width
from tessera_backend.cpu.target_hooks import CpuDialect
from tessera_backend.llvm.emitter import LaneEmitter, Rule, scalar_type
from tessera_backend.llvm.lane_rules import lane_emitter
from tessera_backend.llvm.small_floats import from_bits
from tessera_backend.llvm.text import FunctionText, ModuleText
from tessera_backend.llvm.types import bits_type
from tessera_lang.ir.core import BufferType, Operation, PointerType, Value
from tessera_lang.ir.definitions import BUFFERS
from tessera_lang.record import dataclass
from tessera_lang.target.launch_plan import LaunchPlan
from tessera_lang.types.dtype import BOOL


@dataclass(frozen=True, slots=True)
class CpuModule:
    """LLVM text of a kernel and the scratch bytes each thread needs. ``apart``: the same without
    its ``shared`` functions, which other kernels have too, and a module of those; ``entries``:
    which of them it calls."""

    text: str
    scratch_bytes: int
    shared_bytes: int
    apart: str = ""
    shared: str = ""
    entries: tuple[str, ...] = ()


_PARAMETERS = (
    "ptr noalias readonly %slots, ptr noalias %counter, i64 %total, i64 %gx, i64 %gy, i64 %gz, "
    "i64 %chunk, ptr noalias align 64 %scratch"
)


class Form:
    """How the code of a kernel is written; checked mode has a form of its own."""

    def planner(self, kernel: Operation) -> Planner:
        return Planner(kernel)

    def dialect(self, kernel: Operation, target: CodeTarget) -> CpuDialect:
        return CpuDialect(*dialect_arguments(kernel, target))

    def runs(self, kernel: Operation) -> RowRuns | None:
        """Whether groups side by side run row by row."""
        return row_runs(kernel)

    def rules(self, rules: Mapping[str, Rule]) -> Mapping[str, Rule]:
        return rules

    def own_arrays(self, tree: GroupPlan) -> frozenset[Value]:
        """Arrays of a lane of which all lanes use the same memory."""
        return find_own_arrays(tree)

    def counters(self, kernel: Operation, scratch: Scratch) -> Counters | None:
        """Arrays that a thread updates for itself first."""
        return Counters(kernel, scratch)

    def enter(self, e: LaneEmitter) -> None:
        """Behind the arguments, in front of all groups."""

    def begin(self, e: LaneEmitter, position: str) -> str:
        """At the begin of a group: its number, by how many began before it."""
        return position

    def group(
        self, tree: GroupPlan, e: LaneEmitter, dialect: CpuDialect, scratch: Scratch
    ) -> GroupEmitter:
        return GroupEmitter(tree, e, dialect, scratch)


def dialect_arguments(
    kernel: Operation, target: CodeTarget
) -> tuple[tuple[int, ...], int, bool, bool, bool]:
    group = kernel.integers("group")
    rank = cast("int", kernel.attributes["grid_rank"])
    arm = not target.triple.startswith("x86_64")
    return group, rank, target.has_fma, arm, target.has_f16c


def emit_kernel(
    kernel: Operation, plan: LaunchPlan, target: CodeTarget, form: Form | None = None
) -> CpuModule:
    """The module of one ``tile.kernel``. Raises Divergent and NotLowered."""
    form = form or Form()
    runs = form.runs(kernel)
    arguments = kernel.regions[0].arguments
    tree = form.planner(runs.kernel if runs else kernel).plan()
    kernel = tree.kernel
    tree.spilled.update(find_spilled(tree))
    module, f, scratch = ModuleText(), FunctionText(), Scratch()
    dialect = form.dialect(kernel, target)
    e = lane_emitter(module, f, dialect, plan.kernel)
    counters = form.counters(kernel, scratch)
    rules = counters.rules(e.rules) if counters else e.rules
    e.rules = form.rules({**rules, **product_rules(vector_unit(target), scratch)})
    dialect.own = form.own_arrays(tree)
    shared_bytes = _shared(kernel, dialect, scratch)
    pointers = [a for a in arguments if isinstance(a.type, PointerType)]
    tables = [o.result for o in kernel.walk() if o.name == "tile.table"]
    dialect.set_roots(module, [*pointers, *tables, *dialect.shared, None])
    _arguments(e, arguments, plan)
    form.enter(e)
    loops = _take_groups(e, dialect, form, runs)
    form.group(tree, e, dialect, scratch).emit("group.end")
    _next_group(e, counters, loops)
    _finish(module, f, scratch, plan.entry, target)
    attributes = "nounwind" + ("" if target.red_zone else " noredzone")
    footer = (
        f'attributes #0 = {{ {attributes} "no-builtins" "probe-stack"="inline-asm" '
        f'"target-cpu"="{target.cpu}" "target-features"="{target.features}" '
        f"{vector_width(target)}}}"
    )
    around = f'target triple = "{target.triple}"', footer
    apart = module.render_apart(*around) if module.entries else ("", "")
    return CpuModule(
        module.render(*around), scratch.size, shared_bytes, *apart, entries=module.entries
    )


def _shared(kernel: Operation, dialect: CpuDialect, scratch: Scratch) -> int:
    """Places for the buffers of a group, also those of which each lane has its own part (the
    lanes lie side by side); the bytes of the others."""
    total = 0
    for op in kernel.walk():
        if op.name in BUFFERS and isinstance(op.result.type, BufferType):
            size = prod(op.result.type.shape) * op.result.type.dtype.bytes
            dialect.shared[op.result] = scratch.take(0 if op.result in dialect.own else size)
            total += size if op.result.type.space == "shared" else 0
    return total


def _arguments(e: LaneEmitter, arguments: Sequence[Value], plan: LaunchPlan) -> None:
    """Binds the kernel's arguments to the slots."""
    for number, argument in enumerate(arguments):
        address = e.f.value(f"getelementptr inbounds i64, ptr %slots, i64 {number}")
        if isinstance(argument.type, PointerType):
            e.bind(argument, e.f.value(f"load ptr, ptr {address}, align 8"))
            continue
        raw = e.f.value(f"load i64, ptr {address}, align 8")
        e.bind(argument, _from_slot(e, raw, argument))
        if number < len(plan.slots) and plan.slots[number].kind == "fault":
            e.fault = raw
    for number, slot in enumerate(plan.slots):
        if slot.kind == "fault" and not e.fault:
            address = e.f.value(f"getelementptr inbounds i64, ptr %slots, i64 {number}")
            e.fault = e.f.value(f"load i64, ptr {address}, align 8")
        if slot.kind == "print":
            address = e.f.value(f"getelementptr inbounds i64, ptr %slots, i64 {number}")
            e.prints = e.f.value(f"load i64, ptr {address}, align 8")


def _from_slot(e: LaneEmitter, raw: str, argument: Value) -> str:
    """The scalar in the low bits of a slot."""
    dtype = scalar_type(argument)
    bits = bits_type(dtype)
    low = raw if bits == "i64" else e.f.value(f"trunc i64 {raw} to {bits}")
    return from_bits(e, low, dtype) if dtype.is_float or dtype == BOOL else low


def _take_groups(
    e: LaneEmitter, dialect: CpuDialect, form: Form, runs: RowRuns | None
) -> _RunLoops | None:
    f = e.f
    e.module.declare("i64 @llvm.umin.i64(i64, i64)")
    current = f.slot("i64")
    f.place("take")
    first = f.value("atomicrmw add ptr %counter, i64 %chunk monotonic, align 8")
    f.line(f"store i64 {first}, ptr {current}")
    f.branch_if(f.value(f"icmp uge i64 {first}, %total"), "exit", "chunk.begin")
    f.place("chunk.begin")
    last = f.value(f"add i64 {first}, %chunk")
    f.line(f"%last = call i64 @llvm.umin.i64(i64 {last}, i64 %total)")
    loops = _RunLoops.begin(e, runs, first, current) if runs else None
    f.place("group")
    position = f.value(f"load i64, ptr {current}")
    f.line(f"%group.next = add nuw i64 {position}, 1")
    f.line(f"store i64 %group.next, ptr {current}")
    group = form.begin(e, position)
    dialect.group_id, dialect.groups_total = group, "%total"
    dialect.group_counts = ("%gx", "%gy", "%gz")
    if dialect.grid_rank <= 1:
        dialect.group_ids = (group, "0", "0")
        return loops
    last_axis, rest = "%gz" if dialect.grid_rank > 2 else "%gy", group
    z = f.value(f"urem i64 {rest}, {last_axis}")
    rest = f.value(f"udiv i64 {rest}, {last_axis}")
    if dialect.grid_rank == 2:
        dialect.group_ids = (rest, z, "0")
        return loops
    dialect.group_ids = (f.value(f"udiv i64 {rest}, %gy"), f.value(f"urem i64 {rest}, %gy"), z)
    return loops


@dataclass(slots=True)
class _RunLoops:
    """The loops around the groups of a chunk where they run row by row: over runs of groups, and
    over the rows of each."""

    runs: RowRuns
    run: str  # stack slots
    row: str

    @classmethod
    def begin(cls, e: LaneEmitter, runs: RowRuns, first: str, current: str) -> _RunLoops:
        f = e.f
        made = cls(runs, f.slot("i64"), f.slot("i64"))
        f.line(f"store i64 {first}, ptr {made.run}")
        f.place("run")
        begin = f.value(f"load i64, ptr {made.run}")
        end = f.value(f"add i64 {begin}, {runs.groups}")
        f.line(f"%run.last = call i64 @llvm.umin.i64(i64 {end}, i64 %last)")
        f.line(f"store i64 0, ptr {made.row}")
        f.place("row")
        e.bind(runs.row, f.value(f"load i64, ptr {made.row}"))
        f.line(f"store i64 {begin}, ptr {current}")
        return made

    def end(self, e: LaneEmitter) -> None:
        f = e.f
        f.branch_if(f.value("icmp ult i64 %group.next, %run.last"), "group", "row.end")
        f.place("row.end")
        following = f.value(f"add nuw i64 {e.operand(self.runs.row)}, 1")
        f.line(f"store i64 {following}, ptr {self.row}")
        f.branch_if(f.value(f"icmp ult i64 {following}, {self.runs.rows}"), "row", "run.end")
        f.place("run.end")
        f.line(f"store i64 %run.last, ptr {self.run}")
        f.branch_if(f.value("icmp ult i64 %run.last, %last"), "run", "take")


def _next_group(e: LaneEmitter, counters: Counters | None, loops: _RunLoops | None) -> None:
    if loops:
        loops.end(e)
    else:
        e.f.branch_if(e.f.value("icmp ult i64 %group.next, %last"), "group", "take")
    e.f.place("exit")
    if counters:
        counters.end(e)
    e.f.terminate("ret void")


def _finish(
    module: ModuleText, f: FunctionText, scratch: Scratch, name: str, target: CodeTarget
) -> None:
    body = f.body()
    places = "\n".join(f"  {line}" for line in scratch.lines)
    head = f"entry:\n{places}" if places else "entry:"
    convention = f"{target.convention} " if target.convention else ""
    module.add_function(
        f'define {convention}void @"{name}"({_PARAMETERS}) #0 {{\n'
        f"{body.replace('entry:', head, 1)}\n}}"
    )
