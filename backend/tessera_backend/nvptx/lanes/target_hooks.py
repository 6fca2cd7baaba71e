"""What the NVPTX target adds to the shared emitter: ids, barriers, scopes, instructions.

LLVM ends the process on an intrinsic that it cannot select, so ``lowers`` answers from a
table; every row of it is compiled in a test. Must not know plans or parameters.
"""

from __future__ import annotations

from math import prod

from tessera_backend.llvm.emitter import AtomicForm, Dialect, LaneEmitter, Place
from tessera_backend.nvptx.lanes.own_memory import own_memory, unrolled
from tessera_lang.analysis.ranges.divisibility import Divisors
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass
from tessera_lang.target.arch import Architecture
from tessera_lang.target.arch.isa_constants import WARP
from tessera_lang.types.dtype import BF16, DType
from tessera_lang.types.type import Space

_FLOATS = frozenset({"half", "float", "double"})
_BULK_PTX = 80  # that has the bulk copies
_INTEGERS = frozenset({"i8", "i16", "i32", "i64"})
LOWERS: dict[str, frozenset[str]] = {
    "fma": _FLOATS,
    "sqrt": _FLOATS,
    "floor": _FLOATS,
    "ceil": _FLOATS,
    "trunc": _FLOATS,
    "roundeven": _FLOATS,
    "minimum": _FLOATS,
    "maximum": _FLOATS,
    "fabs": _FLOATS,
    "fptosi.sat": _FLOATS,
    "fptoui.sat": _FLOATS,
    "ctlz": _INTEGERS,
}
"""Intrinsics that NVPTX selects, with the types of their first operand."""

# Constant memory is the bank of a kernel's parameters: LLVM knows an array there by its parameter,
# whose pointers have no space.
_ADDRESS_SPACES = {"global": 1, "shared": 3, "constant": 0, "local": 0}
_CONSTANT_BANK = 1 << 16
"""Bytes of constants that a module may hold; others are in global memory."""
_SYNC_SCOPES = {
    "tile": 'syncscope("block") ',
    "group": 'syncscope("block") ',
    "device": 'syncscope("device") ',
    "mesh": "",
}
_PTX_SCOPES = {"tile": "cta", "group": "cta", "device": "gpu", "mesh": "sys"}
_PTX_TYPES = {
    # atomicrmw operation: PTX operation and letter of its type, by width
    "add": ("add", "u"),
    "and": ("and", "b"),
    "or": ("or", "b"),
    "xor": ("xor", "b"),
    "xchg": ("exch", "b"),
    "max": ("max", "s"),
    "min": ("min", "s"),
    "umax": ("max", "u"),
    "umin": ("min", "u"),
    "fadd": ("add", "f"),
}
_CONSTRAINTS = {"i16": "h", "i32": "r", "i64": "l", "half": "h", "float": "f", "double": "d"}
_APPROXIMATIONS = {
    "log2": "lg2.approx", "sin": "sin.approx", "cos": "cos.approx", "tanh": "tanh.approx",
    "sqrt": "sqrt.approx", "rsqrt": "rsqrt.approx", "reciprocal": "rcp.approx.ftz",
}  # fmt: skip
_DIMENSIONS = "xyz"


@dataclass(frozen=True, slots=True)
class Role:
    """The lanes that run the code being emitted: ``lanes`` from warp ``first`` on.

    ``barrier`` is the hardware's number of their barrier; ``single``: only one of them runs.
    """

    first: int
    lanes: int
    barrier: int = 0
    single: bool = False

    @property
    def warps(self) -> int:
        return -(-self.lanes // WARP)


class NvptxDialect(Dialect):
    """One kernel: ``group`` lanes per axis, ``grid_rank`` axes of the grid, last fastest.

    ``role`` is the whole group outside ``tile.roles``. ``warp_number`` is the operand (i32) of
    the warp's number in the group, known to be the same in all of its lanes; "" where the kernel
    has no use for one. ``cluster``: groups of a cluster. ``short_turns``: loops that the emitter
    unrolls are short, for fewer registers; ``has_turns``: there are such loops. ``waits``: lanes
    may wait for each other in loops. ``unchanging``: asynchronous products in loops whose first
    operand lies in registers and is the same in every iteration. ``products_beside``: of each
    product those of the same body.
    """

    name = "cuda"
    divisors: Divisors

    def __init__(
        self, arch: Architecture, group: tuple[int, ...], grid_rank: int,
        shared: dict[Operation, str], cluster: int = 1,
    ) -> None:  # fmt: skip
        self.arch = arch
        self.cluster = cluster
        self.group = group
        self.grid_rank = max(grid_rank, 1)
        self._shared = shared
        self.role = Role(0, prod(group))
        self.warp_number = ""
        self.short_turns = self.has_turns = self.waits = False
        self.unchanging = frozenset[Operation]()
        self.products_beside = dict[Operation, tuple[Operation, ...]]()
        self._constants = 0

    @property
    def has_bulk_copies(self) -> bool:
        """Whether one instruction moves, or asks for, many bytes of an array."""
        return self.arch.has("bulk_copy") and self.arch.ptx >= _BULK_PTX

    # Where a lane is.
    def lane_linear(self, e: LaneEmitter) -> str:
        rank = len(self.group)
        linear = self.lane_index(e, 0)
        for axis in range(1, rank):
            scaled = e.f.value(f"mul nuw nsw i64 {linear}, {self.group[axis]}")
            linear = e.f.value(f"add nuw nsw i64 {scaled}, {self.lane_index(e, axis)}")
        return linear

    def lane_index(self, e: LaneEmitter, axis: int) -> str:
        """In a role (of a group of one axis) counted from its first lane."""
        dimension = _DIMENSIONS[len(self.group) - 1 - axis]
        lane = self._special(e, f"tid.{dimension}", self.group[axis])
        if self.role.first:
            return e.f.value(f"sub nuw nsw i64 {lane}, {WARP * self.role.first}")
        return lane

    def role_warp(self, e: LaneEmitter) -> str:
        """Number of the warp in its role (i32); uniform for ptxas where ``warp_number`` is."""
        if self.role.warps == 1:
            return "0"
        if not self.warp_number:
            lane = e.f.value(f"trunc i64 {self.lane_linear(e)} to i32")
            return e.f.value(f"lshr i32 {lane}, 5")
        if not self.role.first:
            return self.warp_number
        return e.f.value(f"sub nuw nsw i32 {self.warp_number}, {self.role.first}")

    def group_linear(self, e: LaneEmitter) -> str:
        linear = self.group_index(e, 0)
        for axis in range(1, self.grid_rank):
            scaled = e.f.value(f"mul nuw nsw i64 {linear}, {self.group_count(e, axis)}")
            linear = e.f.value(f"add nuw nsw i64 {scaled}, {self.group_index(e, axis)}")
        return linear

    def group_index(self, e: LaneEmitter, axis: int) -> str:
        dimension = _DIMENSIONS[self.grid_rank - 1 - axis]
        return self._special(e, f"ctaid.{dimension}", _grid_limit(dimension))

    def group_count(self, e: LaneEmitter, axis: int) -> str:
        if axis >= 0:
            dimension = _DIMENSIONS[self.grid_rank - 1 - axis]
            return self._special(e, f"nctaid.{dimension}", _grid_limit(dimension) + 1)
        total = self.group_count(e, 0)
        for other in range(1, self.grid_rank):
            total = e.f.value(f"mul nuw nsw i64 {total}, {self.group_count(e, other)}")
        return total

    def _special(self, e: LaneEmitter, register: str, limit: int) -> str:
        """A special register as i64; it is known to be below ``limit``."""
        name = f"@llvm.nvvm.read.ptx.sreg.{register}"
        e.module.declare(f"i32 {name}()")
        narrow = e.f.value(f"call range(i32 0, {limit}) i32 {name}()")
        return e.f.value(f"zext nneg i32 {narrow} to i64")

    # Synchronization.
    def barrier(self, e: LaneEmitter) -> None:
        """Of the lanes of the role; those of one warp need no barrier of the group.

        ptxas joins the lanes of a warp before a barrier of the group, and moves that up over
        stores: a lane would wait for others before it gives them back their lock. Over
        ``bar.warp.sync``, which orders memory, it moves nothing.
        """
        role = self.role
        if self.waits:
            self._meet_warp(e)
        if role.lanes == prod(self.group):
            e.module.declare("void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #1")
            e.f.line("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)")
        elif role.warps == 1:
            if not self.waits:
                self._meet_warp(e)
        else:
            self.named_barrier(e, role.barrier, role.lanes, wait=True)

    def _meet_warp(self, e: LaneEmitter) -> None:
        e.module.declare("void @llvm.nvvm.bar.warp.sync(i32) #1")
        e.f.line("call void @llvm.nvvm.bar.warp.sync(i32 -1)")

    def named_barrier(
        self, e: LaneEmitter, number: int | str, lanes: int, *, wait: bool
    ) -> None:  # fmt: skip
        """Barrier ``number`` of the hardware, for ``lanes`` lanes; without ``wait`` only arrive."""
        name = f"@llvm.nvvm.barrier.cta.{'sync' if wait else 'arrive'}.aligned.count"
        e.module.declare(f"void {name}(i32, i32) #1")
        e.f.line(f"call void {name}(i32 {number}, i32 {lanes})")

    def fence(self, e: LaneEmitter, scope: str) -> None:
        if scope != "tile":  # a lane sees its own accesses in order
            e.f.line(f"fence {self.syncscope(scope)}seq_cst")

    # Memory.
    def pointer_type(self, space: Space) -> str:
        return f"ptr addrspace({_ADDRESS_SPACES[space]})"

    def constant(self, e: LaneEmitter, definition: str, size: int) -> str:
        self._constants += -(-size // 16) * 16
        space = 4 if self._constants <= _CONSTANT_BANK else 1
        name = e.module.new_global("table", f"internal addrspace({space}) constant {definition}")
        return f"addrspacecast (ptr addrspace({space}) @{name} to ptr)"

    def shared_pointer(self, e: LaneEmitter, op: Operation) -> str:
        return self._shared[op]

    def local_pointer(self, e: LaneEmitter, op: Operation) -> str:
        return own_memory(e, op)

    def loop_suffix(self, e: LaneEmitter, op: Operation) -> str:
        return unrolled(e, op)

    def access_suffix(self, e: LaneEmitter, place: Place, write: bool) -> str:
        """Arrays that the kernel may not write are read through the read-only path."""
        if write or place.mut or place.space not in ("global", "constant"):
            return ""
        return ", !invariant.load " + e.module.metadata("!{}")

    # Atomics.
    def syncscope(self, scope: str) -> str:
        return _SYNC_SCOPES[scope]

    def atomic_form(self, kind: str, dtype: DType, space: Space, scope: str) -> AtomicForm:
        if dtype.is_float:
            if kind == "add":
                native = dtype.bits >= 16 and (dtype != BF16 or self.arch.has("bf16_atomics"))
                return "native" if native else "cas"
            return "native" if kind == "exchange" and dtype.bits >= 32 else "cas"
        return "native"

    def read_modify_write(
        self, e: LaneEmitter, place: Place, address: str, operation: str, llvm_type: str,
        value: str, scope: str, order: str,
    ) -> str:  # fmt: skip
        """LLVM's NVPTX drops the order and the scope of ``atomicrmw`` on whole words (it
        writes ``atom`` alone, which is relaxed and of the device): what asks for more is
        written out in PTX."""
        brief = llvm_type == "i16" and operation == "fadd"  # bf16, which lives in 16 bits
        whole = brief or (llvm_type in _CONSTRAINTS and llvm_type != "i16")
        if not whole or (order == "monotonic" and scope != "mesh" and not brief):
            return super().read_modify_write(
                e, place, address, operation, llvm_type, value, scope, order
            )
        if operation == "sub":
            operation, value = "add", e.f.value(f"sub {llvm_type} 0, {value}")
        ptx, letter = _PTX_TYPES[operation]
        bits = {"half": 16, "float": 32, "double": 64}.get(llvm_type) or int(llvm_type[1:])
        if operation == "xchg" and not llvm_type.startswith("i"):
            word = f"i{bits}"
            given = e.f.value(f"bitcast {llvm_type} {value} to {word}")
            old = self.read_modify_write(e, place, address, "xchg", word, given, scope, order)
            return e.f.value(f"bitcast {word} {old} to {llvm_type}")
        kind = ".noftz.bf16" if brief else f".{letter}{bits}"
        if llvm_type == "half":
            kind = ".noftz.f16"
        semantics = "relaxed" if order == "monotonic" else order
        instruction = f"atom.{semantics}.{_PTX_SCOPES[scope]}.{place.space}.{ptx}{kind}"
        register = _CONSTRAINTS[llvm_type]
        pointer = self.pointer_type(place.space)
        return e.f.value(
            f'call {llvm_type} asm sideeffect "{instruction} $0, [$1], $2;", '
            f'"={register},l,{register},~{{memory}}"({pointer} {address}, {llvm_type} {value})'
        )

    def compare_exchange(
        self, e: LaneEmitter, place: Place, address: str, expected: str, desired: str,
        bits: int, scope: str, order: str,
    ) -> str:  # fmt: skip
        """16 bits have an instruction of their own; LLVM makes a loop on the word for 8."""
        if bits != 16:
            return super().compare_exchange(
                e, place, address, expected, desired, bits, scope, order
            )
        semantics = "relaxed" if order == "monotonic" else order
        instruction = f"atom.{semantics}.{_PTX_SCOPES[scope]}.{place.space}.cas.b16"
        pointer = self.pointer_type(place.space)
        return e.f.value(
            f'call i16 asm sideeffect "{instruction} $0, [$1], $2, $3;", '
            f'"=h,l,h,h,~{{memory}}"({pointer} {address}, i16 {expected}, i16 {desired})'
        )

    # Instruction selection.
    def lowers(self, intrinsic: str, llvm_type: str) -> bool:
        return llvm_type in LOWERS.get(intrinsic, frozenset())

    def exp2(self, e: LaneEmitter, value: str) -> str | None:
        """Subnormal results are 0: to keep them takes three instructions more."""
        name = "@llvm.nvvm.ex2.approx.ftz.f"
        e.module.declare(f"float {name}(float)")
        return e.f.value(f"call float {name}(float {value})")

    def approximate(self, e: LaneEmitter, kind: str, value: str) -> str | None:
        instruction = _APPROXIMATIONS[kind]
        return e.f.value(f'call float asm "{instruction}.f32 $0, $1;", "=f,f"(float {value})')

    def narrow(self, e: LaneEmitter, value: str, dtype: DType) -> str | None:
        """bf16 has an instruction from sm_80 on."""
        if dtype != BF16:
            return None
        short = e.f.value(f"fptrunc float {value} to bfloat")
        return e.f.value(f"bitcast bfloat {short} to i16")

    def narrow_whole(self, e: LaneEmitter, value: str, dtype: DType) -> str | None:
        """LLVM joins the conversions of an integer, and that of -1 or 0 to bf16, which it makes of
        a condition, gives 1 for -1 (seed 1379): it is not to know the second one."""
        if dtype != BF16:
            return None
        name = "@llvm.nvvm.f2bf16.rn"
        e.module.declare(f"bfloat {name}(float)")
        short = e.f.value(f"call bfloat {name}(float {value})")
        return e.f.value(f"bitcast bfloat {short} to i16")


def _grid_limit(dimension: str) -> int:
    """Groups along a dimension of the hardware, at most."""
    return 2**31 - 1 if dimension == "x" else 65535
