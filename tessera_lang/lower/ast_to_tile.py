"""Typed lane kernels -> Tile IR and the launch plan.

Owns the kernel's frame: slots, views, sizes, the plan. Statements and expressions are in
their own files. Must not know targets.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.analysis import (
    check_barriers,
    check_bounds,
    check_shared,
    ranges,
    uniformity,
)
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import IRType, Operation, PointerType, Program, Region, Value
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower import conditions
from tessera_lang.lower.context import Frame, Lowering
from tessera_lang.lower.expressions import lower_expression
from tessera_lang.lower.sizes import size_value
from tessera_lang.lower.statements import lower_block
from tessera_lang.opt.tile.shared_memory import check_shared_budget, shared_bytes
from tessera_lang.record import dataclass, field, replace
from tessera_lang.sema.typed import (
    Argument,
    ConstantArgument,
    KernelInfo,
    Local,
    TensorArgument,
    TypedFunction,
)
from tessera_lang.source import SourceFile, Span
from tessera_lang.target.plan import LaunchPlan, ParameterPlan, Slot
from tessera_lang.types.dtype import INDEX, DType
from tessera_lang.types.shape import Sym, symbols_of
from tessera_lang.types.type import Scalar, Tensor, Type

GRID_GROUPS = "grid_groups"


def lower_kernel(
    typed: TypedFunction, sources: Mapping[str, SourceFile] | None = None
) -> tuple[Program, LaunchPlan, tuple[Diagnostic, ...]]:
    """The program and plan of a kernel that sema found no error in.

    ``sources`` (files by path) give fault sites their line and text. The diagnostics hold
    those of the checks on the IR too (barriers, bounds, budget); with an error among them
    the program is not to be compiled.
    """
    info = typed.kernel
    if info is None:
        raise ValueError(f"{typed.declaration.name} is no kernel")
    lowering = Lowering(
        Frame(typed, "kernel"), sources or {}, lower_expression, lower_block, group=info.group
    )
    entry = _Entry(lowering, typed, info)
    lowering.builder.span = typed.declaration.name_span
    with lowering.builder.region() as top:
        entry.open()
    with lowering.builder.region() as body:
        lower_block(lowering, typed.declaration.body)
        if not lowering.builder.terminated:
            lowering.builder.return_()
    operations = (*top.operations, *lowering.allocations, *body.operations)
    region = _without_unused(entry, operations)
    name = typed.declaration.name
    kernel = Builder(typed.declaration.name_span)
    kernel.kernel(
        name,
        region,
        group=info.group,
        grid_rank=len(info.grid) if info.grid else _axes_used(region),
        parameters=[_slot_name(typed, slot) for slot in entry.slots],
        shared_budget=-1 if info.shared_budget is None else info.shared_budget,
    )
    plan = LaunchPlan(
        kernel=name,
        parameters=entry.parameters(),
        slots=tuple(entry.slots),
        group=info.group,
        grid=info.grid,
        shared_bytes=shared_bytes(kernel.program().operations[0]),
        sites=tuple(lowering.sites),
        conditions=conditions.conditions(lowering, info.conditions),
    )
    program = kernel.program()
    found = tuple(lowering.sink.items)
    if not lowering.sink.has_errors:
        found = (*found, *_checks(program.operations[0], plan))
    return program, plan, found


def _checks(kernel: Operation, plan: LaunchPlan) -> tuple[Diagnostic, ...]:
    """What is surely wrong and shows only in the IR."""
    uniform, known = uniformity(kernel), ranges(kernel)
    barriers = check_barriers(kernel, uniform)
    bounds = check_bounds(kernel, known)
    found = (*barriers, *bounds, *check_shared_budget(kernel))
    if barriers:
        return found
    shared = check_shared(kernel, plan, uniform, known).errors
    # A write that is always outside writes nothing: that is said once.
    return (*found, *(d for d in shared if not (bounds and d.code == "T0411")))


def finish_plan(program: Program, plan: LaunchPlan) -> LaunchPlan:
    """The plan with what the passes made of the program: the shared memory it takes."""
    return replace(plan, shared_bytes=shared_bytes(program.operations[0]))


@dataclass(frozen=True, slots=True)
class DeclaredParameter:
    """A parameter in parentheses with what it is bound to; ``local`` unless compile-time."""

    name: str
    span: Span
    fact: Argument
    local: Local | None = None
    type: Type | None = None


def declared_parameters(typed: TypedFunction) -> tuple[DeclaredParameter, ...]:
    """Parameters of a kernel in the order of its declaration, compile-time ones too."""
    declaration = typed.declaration
    facts = typed.signature[len(declaration.brackets) :]
    locals_ = {local.name: local for local in typed.parameters}
    types = dict(zip(typed.parameters, typed.parameter_types, strict=True))
    made: list[DeclaredParameter] = []
    for p, fact in zip(declaration.parameters, facts, strict=True):
        local = locals_.get(p.name)
        kind = types[local] if local is not None else None
        made.append(DeclaredParameter(p.name, p.name_span, fact, local, kind))
    return tuple(made)


@dataclass(slots=True)
class _Entry:
    """The arguments of the kernel region, one per slot, and what is made of them."""

    lowering: Lowering
    typed: TypedFunction
    info: KernelInfo
    slots: list[Slot] = field(default_factory=list[Slot])
    arguments: list[Value] = field(default_factory=list[Value])
    named: frozenset[str] = frozenset()

    def open(self) -> None:
        """Slots for pointers, strides, scalars and sizes; then a view per array."""
        self.named = frozenset({size.name for size in self.info.sizes} | {GRID_GROUPS})
        declared = declared_parameters(self.typed)
        tensors: list[tuple[int, DeclaredParameter, Value, list[Value]]] = []
        for position, parameter in enumerate(declared):
            t, local = parameter.type, parameter.local
            if isinstance(t, Tensor) and isinstance(parameter.fact, TensorArgument):
                pointer = self._pointer(position, parameter.name, t)
                tensors.append((position, parameter, pointer, self._strides(position, parameter)))
            elif isinstance(t, Scalar) and local is not None:
                slot = Slot("scalar", position, dtype=t.dtype.name)
                self.lowering.frame.variables[local] = self._slot(slot, t.dtype, local.name)
        for local in self.info.sizes:
            self.lowering.frame.variables[local] = self._symbol(local.name)
        for position, parameter, pointer, strides in tensors:
            self._view(position, parameter, pointer, strides)

    def _slot(self, slot: Slot, t: IRType, name: str) -> Value:
        value = Value(t, name)
        self.slots.append(slot)
        self.arguments.append(value)
        return value

    def _pointer(self, position: int, name: str, t: Tensor) -> Value:
        slot = Slot("data", position, dtype=t.dtype.name)
        return self._slot(slot, PointerType(t.dtype, t.space), name)

    def _strides(self, position: int, parameter: DeclaredParameter) -> list[Value]:
        fact = parameter.fact
        if not isinstance(fact, TensorArgument) or fact.contiguous:
            return []
        return [
            self._slot(Slot("stride", position, axis), INDEX, f"{parameter.name}_stride{axis}")
            for axis in range(fact.rank)
        ]

    def _symbol(self, name: str) -> Value:
        symbols = self.lowering.symbols
        if name not in symbols:
            if name == GRID_GROUPS:
                symbols[name] = self.lowering.builder.group_count(-1, name)
            else:
                symbols[name] = self._slot(Slot("symbol", symbol=name), INDEX, name)
        return symbols[name]

    def _view(
        self, position: int, parameter: DeclaredParameter, pointer: Value, strides: list[Value]
    ) -> None:
        t, fact, local = parameter.type, parameter.fact, parameter.local
        assert isinstance(t, Tensor) and isinstance(fact, TensorArgument) and local is not None
        sizes: list[Value] = []
        for axis, dim in enumerate(t.shape):
            if isinstance(dim, Sym) and dim.name not in self.named:
                slot = Slot("size", position, axis)
                name = f"{local.name}_size{axis}"
                self.lowering.symbols[dim.name] = self._slot(slot, INDEX, name)
            sizes.append(size_value(self.lowering, dim))
        view = self.lowering.builder.view(
            pointer,
            sizes,
            strides,
            shape=[dim if isinstance(dim, int) else None for dim in t.shape],
            mut=t.mut,
            aligned=fact.aligned,
            name=local.name,
        )
        self.lowering.sizes[view] = tuple(sizes)
        self.lowering.frame.variables[local] = view

    def parameters(self) -> tuple[ParameterPlan, ...]:
        """How the caller sees each parameter."""
        return tuple(self._parameter(p) for p in declared_parameters(self.typed))

    def _parameter(self, p: DeclaredParameter) -> ParameterPlan:
        span = self.lowering.position(p.span)
        if isinstance(p.type, Tensor) and isinstance(p.fact, TensorArgument):
            t, fact = p.type, p.fact
            dims = t.shape if all(symbols_of(d) <= self.named for d in t.shape) else ()
            return ParameterPlan(
                p.name, "tensor", t.dtype.name, fact.rank, dims, t.mut, fact.contiguous,
                fact.aligned, span,
            )  # fmt: skip
        if isinstance(p.type, Scalar) and p.local is not None:
            return ParameterPlan(p.name, "scalar", p.type.dtype.name, span=span)
        value = p.fact.value if isinstance(p.fact, ConstantArgument) else None
        kind = "dtype" if isinstance(value, DType) else type(value).__name__
        shown = value.name if isinstance(value, DType) else value
        return ParameterPlan(p.name, "constant", kind, span=span, value=shown)


def _without_unused(entry: _Entry, operations: tuple[Operation, ...]) -> Region:
    """The kernel region without sizes and strides that nothing reads; pointers stay."""
    used: dict[Value, None] = {}
    for operation in operations:
        for inner in operation.walk():
            used.update(dict.fromkeys(inner.operands))
    keep = [
        i
        for i, slot in enumerate(entry.slots)
        if slot.kind in ("data", "scalar") or entry.arguments[i] in used
    ]
    entry.slots = [entry.slots[i] for i in keep]
    entry.arguments = [entry.arguments[i] for i in keep]
    return Region(tuple(entry.arguments), operations)


def _slot_name(typed: TypedFunction, slot: Slot) -> str:
    """The name of a slot in the printed kernel."""
    if slot.kind == "symbol":
        return slot.symbol
    name = typed.declaration.parameters[slot.parameter].name
    return f"{name}.{slot.kind}{slot.axis}" if slot.kind in ("size", "stride") else name


def _axes_used(region: Region) -> int:
    """The rank of a grid that the call gives: the axes the kernel asks for, at least one."""
    axes = [
        axis
        for operation in region.operations
        for inner in operation.walk()
        if inner.name in ("tile.group_index", "tile.group_count")
        and isinstance(axis := inner.attributes["axis"], int)
    ]
    return max((0, *axes)) + 1
