"""The CPU as the shared emitter sees it: one thread runs a group, lane after lane.

Ids are what the lane loops last set. Memory of the group, and atomics no wider in scope than
it, need no atomicity. Roots that cannot overlap are told to LLVM as alias scopes; accesses of
a lane loop whose lanes are independent belong to its access group. Must not know the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tessera_backend.cpu.interrupts import STOP
from tessera_backend.llvm.emitter import AtomicForm, Dialect, LaneEmitter, NotLowered, Place
from tessera_backend.llvm.small_floats import narrow_f16, widen_f16
from tessera_backend.llvm.text import ModuleText
from tessera_backend.llvm.types import memory_type
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.types.dtype import F16, DType
from tessera_lang.types.type import Space


class CpuDialect(Dialect):
    """``has_fma``: whether the CPU fuses; without it that of f64 is integer code.
    ``saturates``: whether its conversions to integers do; else LLVM would convert vectors
    element by element.
    ``has_f16c``: whether it converts f16; else that is integer code, where LLVM would call a
    library."""

    name = "cpu"

    def __init__(
        self, group: tuple[int, ...], grid_rank: int, has_fma: bool, saturates: bool = False,
        has_f16c: bool = True,
    ) -> None:  # fmt: skip
        self.group = group
        self.grid_rank = grid_rank
        self.has_fma = has_fma
        self.saturates = saturates
        self.has_f16c = has_f16c
        self.group_id = "0"
        self.group_ids: tuple[str, ...] = ("0", "0", "0")
        self.group_counts: tuple[str, ...] = ("1", "1", "1")
        self.groups_total = "1"
        self.lane = "0"
        self.lane_ids: tuple[str, ...] = tuple("0" for _ in group)
        self.access_group = ""
        self.shared: dict[Value, str] = {}
        self.own: frozenset[Value] = frozenset()  # arrays of which all lanes use the same memory
        self.inside: frozenset[Operation] = frozenset()  # accesses found in bounds
        self._scopes: dict[Value | None, tuple[str, str]] = {}

    def set_roots(self, module: ModuleText, roots: Sequence[Value | None]) -> None:
        """Roots of memory that never overlap; None stands for what lanes keep."""
        domain = module.distinct("!{{self}}")
        scopes = [module.distinct(f"!{{{{self}}, {domain}}}") for _ in roots]
        for root, own in zip(roots, scopes, strict=True):
            others = ", ".join(s for s in scopes if s != own)
            self._scopes[root] = (
                module.metadata(f"!{{{own}}}"), module.metadata(f"!{{{others}}}")
            )  # fmt: skip

    def suffix(self, root: Value | None) -> str:
        own, others = self._scopes[root]
        apart = self.access_group and root not in self.own
        group = f", !llvm.access.group {self.access_group}" if apart else ""
        return f", !alias.scope {own}, !noalias {others}{group}"

    def bounds_of(self, op: Operation) -> str:
        return "proved" if op in self.inside else super().bounds_of(op)

    def access_suffix(self, e: LaneEmitter, place: Place, write: bool) -> str:
        return self.suffix(place.root)

    def lane_linear(self, e: LaneEmitter) -> str:
        return self.lane

    def lane_index(self, e: LaneEmitter, axis: int) -> str:
        return self.lane_ids[axis] if axis < len(self.group) else "0"

    def group_linear(self, e: LaneEmitter) -> str:
        return self.group_id

    def group_index(self, e: LaneEmitter, axis: int) -> str:
        return self.group_ids[axis]

    def group_count(self, e: LaneEmitter, axis: int) -> str:
        return self.groups_total if axis < 0 else self.group_counts[axis]

    def barrier(self, e: LaneEmitter) -> None:
        raise NotLowered("tile.barrier", "divergent control", self.name)

    def fence(self, e: LaneEmitter, scope: str) -> None:
        if scope not in ("tile", "group"):
            e.f.line("fence seq_cst")

    def counted(self, e: LaneEmitter, op: Operation) -> Callable[[str], str]:
        """A ``while`` may never end: each turn looks whether the launch was interrupted, and leaves
        the kernel then."""

        def condition(holds: str) -> str:
            f = e.f
            count = f.value("load atomic i64, ptr %counter monotonic, align 8")
            go_on = f.label("while.goes.on")
            f.branch_if(f.value(f"icmp uge i64 {count}, {STOP}"), "exit", go_on)
            f.place(go_on)
            return holds

        return condition

    def shared_pointer(self, e: LaneEmitter, op: Operation) -> str:
        return self.shared[op.result]

    def local_pointer(self, e: LaneEmitter, op: Operation) -> str:
        kind = op.result.type
        if op.result not in self.own or not isinstance(kind, BufferType):
            return ""
        return e.f.slot(f"[{prod(kind.shape[:-1])} x {memory_type(kind.dtype)}]", align=64)

    def atomic_form(self, kind: str, dtype: DType, space: Space, scope: str) -> AtomicForm:
        if space == "shared" or scope in ("tile", "group"):
            return "plain"
        return super().atomic_form(kind, dtype, space, scope)

    def lowers(self, intrinsic: str, llvm_type: str) -> bool:
        if intrinsic in ("fptosi.sat", "fptoui.sat"):
            return self.saturates
        return self.has_fma or intrinsic != "fma"

    def widen(self, e: LaneEmitter, value: str, dtype: DType) -> str | None:
        return None if dtype != F16 or self.has_f16c else widen_f16(e, value)

    def narrow(self, e: LaneEmitter, value: str, dtype: DType) -> str | None:
        return None if dtype != F16 or self.has_f16c else narrow_f16(e, value)
