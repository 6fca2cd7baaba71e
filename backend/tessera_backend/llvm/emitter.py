"""The emitter of one lane's code and what a target adds to it: the ``Dialect``.

How a target is built on this package (the GPU's as well as the CPU's):

1. make a ``ModuleText`` and a ``FunctionText`` (``text.py``);
2. make ``lane_emitter(module, function, dialect, kernel_name)`` (``lane_rules.py``);
3. bind the kernel region's arguments in slot order:
   ``emitter.bind(argument, "%p0")`` (pointers of ``dialect.pointer_type(space)``, i64 for
   index, the register type of ``types.register_type`` for scalars); set ``emitter.fault`` to
   the operand of the fault slot as an ``i64`` address ("" where the plan has none);
4. call ``emit_kernel_body(emitter, region, "exit label")``; every ``tile.return`` branches to
   that label, which the target places and ends (``ret void``);
5. ``module.add_function("define ... {\\n" + function.body() + "\\n}")`` and
   ``module.render(header, footer)``.

The emitter calls the dialect's methods with itself; ``e.f`` is the function being written
(``e.f.value("add i64 %a, 1")`` gives a name, ``e.f.line`` writes without one), ``e.module``
the module (``declare``, ``add_global``, ``metadata``). Ids are i64 operands. A dialect says
in ``lowers`` what its LLVM target can select: LLVM ends the process on what it cannot, so
the emitter asks before it writes an intrinsic, and raises ``NotLowered``.

Floats narrower than 32 bits are computed in f32 and rounded after every operation; nothing
is contracted or reassociated. Must not know a target, nor how lanes become threads or loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from tessera_backend.llvm.debug_lines import DebugLines
from tessera_backend.llvm.text import FunctionText, ModuleText
from tessera_lang.ir.core import Operation, TileType, Value
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import DType
from tessera_lang.types.type import Space

AtomicForm = Literal["native", "cas", "plain"]


@dataclass(frozen=True, slots=True)
class Place:
    """An array or a shared buffer, taken apart into operands.

    ``strides`` (elements) are None for row-major without gaps. ``root`` is the value whose
    memory this is: a kernel argument or a shared buffer; two roots never overlap where one
    of them is written (the launch has checked it). ``layout``: how a shared buffer lies, where
    that is not row-major.
    """

    pointer: str
    space: Space
    dtype: DType
    sizes: tuple[str, ...]
    strides: tuple[str, ...] | None
    root: Value
    mut: bool = True
    layout: SharedLayout | None = None


class Target(Protocol):
    """Where an exit goes. Each writes what ends the block."""

    @property
    def kind(self) -> Literal["loop", "scope", "kernel"]: ...

    def leave(self, e: LaneEmitter, values: tuple[str, ...], how: str) -> None:
        """``how``: break, continue (loops), leave (scopes) or return."""
        ...


class NotLowered(Exception):
    """An operation, or an operation on a dtype, that the target cannot execute."""

    def __init__(self, operation: str, dtype: str, target: str) -> None:
        self.operation, self.dtype, self.target = operation, dtype, target
        super().__init__(f"{operation} on {dtype} does not lower on {target}")


def _as_it_is(condition: str) -> str:
    return condition


class Dialect:
    """Defaults of a flat, sequentially consistent enough machine; a target overrides."""

    name = "generic"
    small = False
    """Whether every element of an array is less than 2^31 bytes from its first."""

    # Where a lane is. Each gives an i64 operand.
    def lane_linear(self, e: LaneEmitter) -> str:
        raise NotImplementedError

    def lane_index(self, e: LaneEmitter, axis: int) -> str:
        raise NotImplementedError

    def group_linear(self, e: LaneEmitter) -> str:
        raise NotImplementedError

    def group_index(self, e: LaneEmitter, axis: int) -> str:
        raise NotImplementedError

    def group_count(self, e: LaneEmitter, axis: int) -> str:
        """Groups along ``axis``; -1 asks for all of them."""
        raise NotImplementedError

    # Synchronization.
    def barrier(self, e: LaneEmitter) -> None:
        raise NotImplementedError

    def fence(self, e: LaneEmitter, scope: str) -> None:
        """Orders the lane's accesses for ``scope`` (tile, group, device, mesh)."""
        raise NotImplementedError

    # Memory.
    def pointer_type(self, space: Space) -> str:
        """``ptr`` or ``ptr addrspace(n)``."""
        return "ptr"

    def constant(self, e: LaneEmitter, definition: str, size: int) -> str:
        """Address, as ``pointer_type("constant")``, of a new constant of ``size`` bytes."""
        del size
        return f"@{e.module.new_global('table', f'internal constant {definition}')}"

    def shared_pointer(self, e: LaneEmitter, op: Operation) -> str:
        """Address of a ``tile.shared.alloc`` as ``pointer_type("shared")``."""
        raise NotImplementedError

    def local_pointer(self, e: LaneEmitter, op: Operation) -> str:
        """Address of a lane's own part of a ``tile.local.alloc``; "" where all lie together and
        ``shared_pointer`` says where."""
        return ""

    def bounds_of(self, op: Operation) -> str:
        """``guarded``, ``proved`` or ``off`` for an access."""
        return str(op.attributes["bounds"])

    def access_suffix(self, e: LaneEmitter, place: Place, write: bool) -> str:
        """Metadata of a plain load or store of an element, beginning with ``, !``; or ""."""
        return ""

    def at(self, e: LaneEmitter, place: Place, pointer: str) -> str:
        """The address of an element that is about to be accessed, which is inside."""
        return pointer

    # Control.
    def loop_suffix(self, e: LaneEmitter, op: Operation) -> str:
        """Metadata of the branch back of a ``tile.for``, beginning with ``, !``; or ""."""
        return ""

    def counted(self, e: LaneEmitter, op: Operation) -> Callable[[str], str]:
        """Called in front of a ``while``: makes the condition (i1) of each turn of it."""
        return _as_it_is

    # Atomics.
    def syncscope(self, scope: str) -> str:
        """``syncscope("...") `` with a space after it, or "" for all of the system."""
        return ""

    def atomic_form(self, kind: str, dtype: DType, space: Space, scope: str) -> AtomicForm:
        """How a read-modify-write is made: ``atomicrmw``, a loop of compare and exchange,
        or without atomicity (where only one thread can see the place).

        ``kind`` is that of ``tile.atomic``. Float min and max, and every float of fewer than
        32 bits, should answer ``cas``: no machine has our rules for NaN and -0.0.
        """
        if dtype.is_float:
            simple = kind in ("add", "sub", "exchange") and dtype.bits >= 32
            return "native" if simple else "cas"
        return "native"

    def read_modify_write(
        self, e: LaneEmitter, place: Place, address: str, operation: str, llvm_type: str,
        value: str, scope: str, order: str,
    ) -> str:  # fmt: skip
        """The old content (``llvm_type``) of ``address``; ``operation`` and ``order`` are
        LLVM's. Override where LLVM does not keep the scope or the order of ``atomicrmw``."""
        return e.f.value(
            f"atomicrmw {operation} {self.pointer_type(place.space)} {address}, "
            f"{llvm_type} {value} {self.syncscope(scope)}{order}, align {place.dtype.bytes}"
        )

    def compare_exchange(
        self, e: LaneEmitter, place: Place, address: str, expected: str, desired: str,
        bits: int, scope: str, order: str,
    ) -> str:  # fmt: skip
        """The old content (``i<bits>``) of ``address``; ``order`` is LLVM's success order.

        Override where the machine compares wider words only.
        """
        failure = "acquire" if order in ("acquire", "acq_rel") else "monotonic"
        pointer = self.pointer_type(place.space)
        pair = e.f.value(
            f"cmpxchg {pointer} {address}, i{bits} {expected}, i{bits} {desired} "
            f"{self.syncscope(scope)}{order} {failure}, align {bits // 8}"
        )
        return e.f.value(f"extractvalue {{ i{bits}, i1 }} {pair}, 0")

    # Instruction selection.
    def lowers(self, intrinsic: str, llvm_type: str) -> bool:
        """Whether ``llvm.<intrinsic>.<type>`` can be selected without a library call.

        Asked for: fma, sqrt, floor, ceil, trunc, roundeven, minimum, maximum, fptosi.sat,
        fptoui.sat (of float and double), ctlz. Where ``minimum``, ``maximum`` or the
        conversions do not lower the emitter writes compares, ``fma`` of float is made of
        doubles, and anything else raises NotLowered.
        """
        return True

    def exp2(self, e: LaneEmitter, value: str) -> str | None:
        """2 to the power of an f32 by an instruction of the machine; None for the shared code."""
        return None

    def approximate(self, e: LaneEmitter, kind: str, value: str) -> str | None:
        """A function of an f32 as ``tile.approx`` names it, by an instruction of the machine."""
        return None

    def widen(self, e: LaneEmitter, value: str, dtype: DType) -> str | None:
        """The f32 of a f16, bf16 or f8 in its register type; None for the shared code."""
        return None

    def narrow(self, e: LaneEmitter, value: str, dtype: DType) -> str | None:
        """The f16, bf16 or f8 nearest an f32; None for the shared code."""
        return None

    def narrow_whole(self, e: LaneEmitter, value: str, dtype: DType) -> str | None:
        """The same of an f32 that comes from an integer of at most 16 bits."""
        return None


Rule = Callable[["LaneEmitter", Operation], None]


def scalar_type(value: Value) -> DType:
    """The dtype of a scalar value."""
    if not isinstance(value.type, DType):
        raise TypeError(f"a scalar was expected, not {value.type}")
    return value.type


def register_count(value: Value) -> int:
    """How many operands stand for a value: one, or one per register of a tile's layout."""
    if not isinstance(value.type, TileType):
        return 1
    if value.type.layout is None:
        raise TypeError("a tile in registers has a layout")
    return value.type.layout.register_count


@dataclass
class LaneEmitter:
    """State of the emission of one lane's code.

    ``fault`` is the i64 operand of the fault record's address ("" without one), ``prints`` that of
    the buffer for printed lines; ``targets``
    are what ``break``, ``continue``, ``leave`` and ``return`` go to, innermost last. ``tiles``
    are register tiles: one operand of the element's register type for each register of the
    layout, in order. ``grouped`` may put operations of a region together before they are emitted.
    ``lines``: has instructions say which operation they are of.
    """

    module: ModuleText
    f: FunctionText
    dialect: Dialect
    kernel: str
    fault: str = ""
    prints: str = ""
    values: dict[Value, str] = field(default_factory=dict[Value, str])
    places: dict[Value, Place] = field(default_factory=dict[Value, Place])
    tiles: dict[Value, tuple[str, ...]] = field(default_factory=dict[Value, tuple[str, ...]])
    coordinates: dict[Value, tuple[str, tuple[int, ...]]] = field(
        default_factory=dict[Value, tuple[str, tuple[int, ...]]]
    )
    targets: list[Target] = field(default_factory=list[Target])
    constants: dict[Value, int] = field(default_factory=dict[Value, int])
    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    grouped: Callable[[Iterable[Operation]], Iterable[Operation]] = iter
    lines: DebugLines | None = None

    def bind(self, value: Value, operand: str) -> None:
        """``value`` stands for ``operand`` from here on."""
        self.values[value] = operand

    def operand(self, value: Value) -> str:
        return self.values[value]

    def parts(self, values: Iterable[Value]) -> tuple[str, ...]:
        """The operands of scalars and tiles in a row: a tile stands for all its registers."""
        out: list[str] = []
        for value in values:
            if isinstance(value.type, TileType):
                out += self.tiles[value]
            else:
                out.append(self.values[value])
        return tuple(out)

    def bind_parts(self, values: Iterable[Value], parts: Sequence[str]) -> None:
        """The inverse of ``parts``."""
        at = 0
        for value in values:
            count = register_count(value)
            if isinstance(value.type, TileType):
                self.tiles[value] = tuple(parts[at : at + count])
            else:
                self.values[value] = parts[at]
            at += count

    def constant(self, value: Value) -> int | None:
        """The value of an integer constant, else None."""
        return self.constants.get(value)

    def call(self, intrinsic: str, llvm_type: str, *arguments: str) -> str:
        """``llvm.<intrinsic>.<type>`` on operands of one type. Raises NotLowered."""
        suffix = {"float": "f32", "double": "f64"}.get(llvm_type, llvm_type)
        if not self.dialect.lowers(intrinsic, llvm_type):
            raise NotLowered(f"llvm.{intrinsic}", llvm_type, self.dialect.name)
        name = f"@llvm.{intrinsic}.{suffix}"
        types = ", ".join([llvm_type] * len(arguments))
        self.module.declare(f"{llvm_type} {name}({types})")
        joined = ", ".join(f"{llvm_type} {a}" for a in arguments)
        return self.f.value(f"call {llvm_type} {name}({joined})")

    def emit(self, op: Operation) -> None:
        """One operation with all it holds. Raises NotLowered."""
        rule = self.rules.get(op.name)
        if rule is None:
            raise NotLowered(op.name, "any dtype", self.dialect.name)
        if self.lines is None:
            rule(self, op)
            return
        outside, self.f.behind = self.f.behind, self.lines.of(op.span)
        rule(self, op)
        self.f.behind = outside

    def emit_all(self, operations: Iterable[Operation]) -> None:
        for op in self.grouped(operations):
            if not self.f.open:  # behind an exit
                break
            self.emit(op)
