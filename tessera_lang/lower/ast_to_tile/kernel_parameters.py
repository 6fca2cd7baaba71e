"""The frame of a kernel: its slots, the views of its arrays, the values of its sizes.

Owns what the launch plan and the kernel's region have in common. Must not know statements,
targets, or whether a kernel is one of lanes or of tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import IRType, Operation, PointerType, Region, Value
from tessera_lang.lower.ast_to_tile.context import Lowering
from tessera_lang.lower.ast_to_tile.sizes import size_value
from tessera_lang.record import dataclass, field
from tessera_lang.sema.side_tables import (
    Argument,
    ConstantArgument,
    Local,
    Multiple,
    TensorArgument,
    TypedFunction,
)
from tessera_lang.source import Span
from tessera_lang.target.launch_plan import ParameterPlan, Slot
from tessera_lang.types.dtype import INDEX, DType
from tessera_lang.types.shape import Dim, DimOp, Sym, dim_op, symbols_of
from tessera_lang.types.type import Scalar, Tensor, Type

GRID_GROUPS = "grid_groups"


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
class KernelFrame:
    """The arguments of the kernel region, one per slot, and what is made of them. ``equal``: sizes
    that the launch holds to be another, by name: one value stands for both."""

    lowering: Lowering
    typed: TypedFunction
    sizes: Sequence[Local]
    equal: Mapping[str, str] = field(default_factory=dict[str, str])
    slots: list[Slot] = field(default_factory=list[Slot])
    arguments: list[Value] = field(default_factory=list[Value])
    named: frozenset[str] = frozenset()
    multiples: tuple[Multiple, ...] = ()

    def open(self) -> None:
        """Slots for pointers, strides, scalars and sizes; then a view per array."""
        names = {size.name for size in self.sizes} | {m.whole for m in self.multiples}
        self.named = frozenset(names | {GRID_GROUPS})
        declared = declared_parameters(self.typed)
        tensors: list[tuple[int, DeclaredParameter, Value, list[Value]]] = []
        for position, parameter in enumerate(declared):
            t, local = parameter.type, parameter.local
            if isinstance(t, Tensor) and isinstance(parameter.fact, TensorArgument):
                pointer = self._pointer(position, parameter.name, t, parameter.fact)
                tensors.append((position, parameter, pointer, self._strides(position, parameter)))
            elif isinstance(t, Scalar) and local is not None:
                slot = Slot("scalar", position, dtype=t.dtype.name)
                self.lowering.frame.variables[local] = self.slot(slot, t.dtype, local.name)
        fixed = fixed_sizes(declared)
        for local in self.sizes:
            multiple = next((m for m in self.multiples if m.name == local.name), None)
            if multiple is not None:
                self.lowering.symbols[local.name] = self._part(multiple, declared)
            elif local.name in fixed:
                self.lowering.symbols[local.name] = self.lowering.builder.index(fixed[local.name])
            self.lowering.frame.variables[local] = self._symbol(local.name)
        for position, parameter, pointer, strides in tensors:
            self._view(position, parameter, pointer, strides)

    def _part(self, m: Multiple, declared: Sequence[DeclaredParameter]) -> Value:
        """A size that the launch says as a multiple of it."""
        facts = [p.fact for p in declared if p.name == m.parameter]
        known = [f.sizes[m.axis] for f in facts if isinstance(f, TensorArgument) and f.sizes]
        builder = self.lowering.builder
        if known and known[0] is not None:
            return builder.index(known[0] // m.factor)
        return builder.binary("floordiv", self._symbol(m.whole), builder.index(m.factor))

    def at_launch(self, dim: Dim, axis: tuple[str, int] | None = None) -> Dim:
        """A size as the launch knows it; ``axis``: of which parameter and axis it is."""
        parts: dict[str, Dim] = {}
        for m in self.multiples:
            if axis == (m.parameter, m.axis):
                return Sym(m.whole)
            parts[m.name] = DimOp("//", Sym(m.whole), m.factor)
        return replaced(dim, parts) if parts else dim

    def slot(self, slot: Slot, t: IRType, name: str) -> Value:
        value = Value(t, name)
        self.slots.append(slot)
        self.arguments.append(value)
        return value

    def _pointer(self, position: int, name: str, t: Tensor, fact: TensorArgument) -> Value:
        """Where the array is. What comes by value is constant memory; a `const` array elsewhere is
        read like any other that nobody writes."""
        slot = Slot("bytes" if fact.value else "data", position, dtype=t.dtype.name)
        space = "constant" if fact.value else "global"
        return self.slot(slot, PointerType(t.dtype, space), name)

    def _strides(self, position: int, parameter: DeclaredParameter) -> list[Value]:
        fact = parameter.fact
        if not isinstance(fact, TensorArgument) or fact.contiguous:
            return []
        return [
            self.lowering.builder.index(1)
            if axis == fact.unit
            else self.slot(Slot("stride", position, axis), INDEX, f"{parameter.name}_stride{axis}")
            for axis in range(fact.rank)
        ]

    def _symbol(self, name: str) -> Value:
        symbols = self.lowering.symbols
        if name not in symbols:
            same = symbols.get(self.equal.get(name, ""))
            if same is not None:
                symbols[name] = same
            elif name == GRID_GROUPS:
                symbols[name] = self.lowering.builder.group_count(-1, name)
            else:
                symbols[name] = self.slot(Slot("symbol", symbol=name), INDEX, name)
        return symbols[name]

    def _view(
        self, position: int, parameter: DeclaredParameter, pointer: Value, strides: list[Value]
    ) -> None:
        t, fact, local = parameter.type, parameter.fact, parameter.local
        assert isinstance(t, Tensor) and isinstance(fact, TensorArgument) and local is not None
        sizes: list[Value] = []
        for axis, dim in enumerate(t.shape):
            known = fact.sizes[axis] if fact.sizes else None
            if known is not None:
                sizes.append(self.lowering.builder.index(known))
                if isinstance(dim, Sym):
                    self.lowering.symbols[dim.name] = sizes[-1]
                continue
            if isinstance(dim, Sym) and dim.name not in self.named:
                same = self.lowering.symbols.get(self.equal.get(dim.name, ""))
                slot = Slot("size", position, axis)
                name = f"{local.name}_size{axis}"
                self.lowering.symbols[dim.name] = same or self.slot(slot, INDEX, name)
            whole = self.at_launch(dim, (parameter.name, axis))
            if isinstance(whole, Sym) and whole.name in self.named:
                sizes.append(self._symbol(whole.name))
            else:
                sizes.append(size_value(self.lowering, dim))
        shape = [
            dim if isinstance(dim, int) else fact.sizes[axis] if fact.sizes else None
            for axis, dim in enumerate(t.shape)
        ]
        alone = self.typed.tile is not None and not t.shape  # one element, with an index
        view = self.lowering.builder.view(
            pointer,
            [self.lowering.builder.index(1)] if alone else sizes,
            strides,
            shape=[1] if alone else shape,
            mut=t.mut,
            aligned=fact.aligned,
            name=local.name,
        )
        self.lowering.sizes[view] = tuple(sizes)
        self.lowering.pointers[view] = pointer
        self.lowering.frame.variables[local] = view

    def parameters(self) -> tuple[ParameterPlan, ...]:
        """How the caller sees each parameter."""
        return tuple(self._parameter(p) for p in declared_parameters(self.typed))

    def brackets(self) -> tuple[ParameterPlan, ...]:
        """The compile-time parameters in brackets, with what the kernel is compiled for."""
        declared = self.typed.declaration.brackets
        return tuple(
            self._parameter(DeclaredParameter(p.name, p.name_span, fact))
            for p, fact in zip(declared, self.typed.signature, strict=False)
        )

    def _parameter(self, p: DeclaredParameter) -> ParameterPlan:
        span = self.lowering.position(p.span)
        if isinstance(p.type, Tensor) and isinstance(p.fact, TensorArgument):
            t, fact = p.type, p.fact
            shape = [self.at_launch(d, (p.name, axis)) for axis, d in enumerate(t.shape)]
            dims = tuple(shape) if all(symbols_of(d) <= self.named for d in shape) else ()
            return ParameterPlan(
                p.name, "tensor", t.dtype.name, fact.rank, dims, t.mut, fact.contiguous,
                fact.aligned, span, small=fact.small,
            )  # fmt: skip
        if isinstance(p.type, Scalar) and p.local is not None:
            return ParameterPlan(p.name, "scalar", p.type.dtype.name, span=span)
        value = p.fact.value if isinstance(p.fact, ConstantArgument) else None
        kind = "dtype" if isinstance(value, DType) else type(value).__name__
        shown = value.name if isinstance(value, DType) else value
        return ParameterPlan(p.name, "constant", kind, span=span, value=shown)


def replaced(dim: Dim, parts: Mapping[str, Dim]) -> Dim:
    """A size with names replaced."""
    if isinstance(dim, Sym):
        return parts.get(dim.name, dim)
    if isinstance(dim, int):
        return dim
    return dim_op(dim.operator, replaced(dim.left, parts), replaced(dim.right, parts))


def fixed_sizes(declared: Sequence[DeclaredParameter]) -> dict[str, int]:
    """Names of sizes that the kernel is compiled for."""
    found: dict[str, int] = {}
    for parameter in declared:
        t, fact = parameter.type, parameter.fact
        if isinstance(t, Tensor) and isinstance(fact, TensorArgument) and fact.sizes:
            for dim, known in zip(t.shape, fact.sizes, strict=True):
                if isinstance(dim, Sym) and known is not None:
                    found[dim.name] = known
    return found


def without_unused(frame: KernelFrame, operations: tuple[Operation, ...]) -> Region:
    """The kernel region without sizes and strides that nothing reads; pointers stay."""
    used: dict[Value, None] = {}
    for operation in operations:
        for inner in operation.walk():
            used.update(dict.fromkeys(inner.operands))
    keep = [
        i
        for i, slot in enumerate(frame.slots)
        if slot.kind in ("data", "bytes", "scalar") or frame.arguments[i] in used
    ]
    frame.slots = [frame.slots[i] for i in keep]
    frame.arguments = [frame.arguments[i] for i in keep]
    return Region(tuple(frame.arguments), operations)


def slot_name(typed: TypedFunction, slot: Slot) -> str:
    """The name of a slot in the printed kernel."""
    if slot.kind == "symbol":
        return slot.symbol
    results = slot.parameter - len(typed.declaration.parameters)
    if typed.tile is not None and results >= len(typed.tile.results):
        return f"private{results}"
    if results >= 0:
        return f"result{results}" if slot.kind == "data" else f"result{results}.{slot.kind}"
    name = typed.declaration.parameters[slot.parameter].name
    return f"{name}.{slot.kind}{slot.axis}" if slot.kind in ("size", "stride") else name
