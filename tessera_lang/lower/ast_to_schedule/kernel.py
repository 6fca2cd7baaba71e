"""The whole of a tile kernel: frame, results, directives, facts, conditions, plan.

Owns what stands around the body. Must not know targets, or how the schedule is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Attribute, PointerType, Program, Value
from tessera_lang.lower.ast_to_schedule.early_exits import clear, leaving_of_function
from tessera_lang.lower.ast_to_schedule.emitter import Emitter
from tessera_lang.lower.ast_to_schedule.expressions import evaluate, hook, node_of
from tessera_lang.lower.ast_to_schedule.materialized_values import keep
from tessera_lang.lower.ast_to_schedule.scratch_arrays import ScratchArrays
from tessera_lang.lower.ast_to_schedule.state import State
from tessera_lang.lower.ast_to_schedule.statements import lower_block
from tessera_lang.lower.ast_to_schedule.value_nodes import Axis
from tessera_lang.lower.ast_to_tile import launch_conditions
from tessera_lang.lower.ast_to_tile.context import Bound, Frame, Lowering
from tessera_lang.lower.ast_to_tile.kernel_parameters import (
    DeclaredParameter,
    KernelFrame,
    declared_parameters,
    slot_name,
    without_unused,
)
from tessera_lang.lower.ast_to_tile.sizes import size_value
from tessera_lang.lower.ast_to_tile.statements import lower_block as lower_lane_block
from tessera_lang.record import replace
from tessera_lang.sema.bound_names import statements
from tessera_lang.sema.side_tables import Local, Multiple, TensorArgument, TileInfo, TypedFunction
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast
from tessera_lang.target.arch.isa_constants import VECTOR_BYTES
from tessera_lang.target.array_facts import size_in_bucket
from tessera_lang.target.launch_plan import Condition, LaunchPlan, ResultPlan, Slot
from tessera_lang.types.shape import DimOp, Sym
from tessera_lang.types.type import Tensor

Lowered = tuple[Program, LaunchPlan, tuple[Diagnostic, ...]]


def lower_tile_kernel(
    typed: TypedFunction, sources: Mapping[str, SourceFile] | None = None
) -> Lowered:
    """Schedule IR and the plan (without group and grid) of a tile kernel sema found no error in.

    With an error among the diagnostics the program is not to be compiled.
    """
    info = typed.tile
    if info is None:
        raise ValueError(f"{typed.declaration.name} is no tile kernel")
    builder = Emitter(typed.declaration.name_span)
    lowering = Lowering(Frame(typed, "kernel"), sources or {}, _expression, lower_lane_block)
    lowering.builder = builder
    state = State(lowering, builder, node_of, evaluate, lower_block, keep)
    state.frames.append(lowering.frame)
    lowering.hook = hook(state)
    frame = KernelFrame(lowering, typed, info.sizes, _equal_sizes(info), multiples=info.multiples)
    with builder.region() as body:
        frame.open()
        for argument in frame.arguments:
            builder.defined_here(argument)
        state.rooms = _rooms(typed, frame, builder)
        state.made_for = _made_for(typed, frame)
        _open_results(state, frame, info)
        state.private = ScratchArrays(
            frame, builder, len(typed.declaration.parameters) + len(info.results)
        )
        state.leaving.append(leaving_of_function(typed, typed.body))
        clear(state.leaving[-1].skipped, lowering.frame, builder)
        lower_block(state, typed.body)
        builder.return_()
    region = without_unused(frame, tuple(body.operations))
    with builder.at(typed.declaration.name_span):
        builder.schedule_kernel(
            typed.declaration.name, region, [slot_name(typed, slot) for slot in frame.slots],
            {**_directives(info), **_facts(typed, frame)},
        )  # fmt: skip
    return builder.program(), _plan(state, frame, info), tuple(lowering.sink.items)


def _equal_sizes(info: TileInfo) -> dict[str, str]:
    """Sizes that the launch holds to be an earlier one."""
    equal: dict[str, str] = {}
    for a in info.agreements:
        if a.operator == "==" and isinstance(a.left, Sym) and isinstance(a.right, Sym):
            equal[a.right.name] = equal.get(a.left.name, a.left.name)
    return equal


def _expression(lowering: Lowering, node: ast.Expr) -> Bound:
    from tessera_lang.lower.ast_to_tile.expressions import lower_expression

    return lower_expression(lowering, node)


# --- results ---------------------------------------------------------------------------------


def _open_results(state: State, frame: KernelFrame, info: TileInfo) -> None:
    """Views of what is returned; a variable that is returned as an array is that view."""
    typed, builder = state.typed, state.b
    first = len(typed.declaration.parameters)
    variables = _returned(typed, len(info.results))
    for i, (dtype, dims) in enumerate(info.results):
        slot = Slot("data", first + i, dtype=dtype.name)
        pointer = frame.slot(slot, PointerType(dtype, "global"), f"result{i}")
        sizes = [size_value(state.low, dim) for dim in dims or (1,)]  # a number: one element
        shape = [builder.known(n) for n in sizes]
        variable = variables[i]
        name = "return" if len(info.results) == 1 else f"return{i}"
        if variable is not None and variable not in state.result_of:
            name = variable.name
        view = builder.view(pointer, sizes, shape=shape, mut=True, aligned=True, name=name)
        state.low.sizes[view] = tuple(sizes) if dims else ()
        state.results.append(view)
        if variable is not None:
            state.result_of.setdefault(variable, view)


def _returned(typed: TypedFunction, count: int) -> list[Local | None]:
    """The variables behind what is returned, that are bound to arrays made here."""
    found: list[Local | None] = [None] * count
    values = (s.value for s in statements(typed.body) if isinstance(s, ast.Return))
    for value in values:
        items = value.items if isinstance(value, ast.TupleExpr) else (value,)
        for i, item in enumerate(items[:count]):
            if item is None:
                continue
            symbol = typed.symbols.get(item)
            made = isinstance(symbol, Local) and typed.made.get(symbol, False)
            found[i] = symbol if isinstance(symbol, Local) and made else None
    return found


# --- attributes ------------------------------------------------------------------------------


def _directives(info: TileInfo) -> dict[str, Attribute]:
    """What the program says of its schedule, each with its origin."""
    made: dict[str, Attribute] = {d.name: d.value for d in info.directives}
    if made:
        made["origins"] = tuple(f"{d.name}=user" for d in info.directives)
    return made


def _facts(typed: TypedFunction, frame: KernelFrame) -> dict[str, Attribute]:
    """Hints and divisors of the launch, one for each argument of the region."""
    declared = declared_parameters(typed)
    hints = [_hint(declared, slot) for slot in frame.slots]
    divisors = [_divisor(declared, slot) for slot in frame.slots]
    return {"hints": tuple(hints), "divisors": tuple(divisors)}


def _tensor(
    declared: tuple[DeclaredParameter, ...], position: int
) -> tuple[Tensor, TensorArgument] | None:
    if position >= len(declared):
        return None
    t, fact = declared[position].type, declared[position].fact
    return (t, fact) if isinstance(t, Tensor) and isinstance(fact, TensorArgument) else None


def _axes(declared: tuple[DeclaredParameter, ...], slot: Slot) -> list[tuple[TensorArgument, int]]:
    """The axes of arrays whose size a slot is."""
    found: list[tuple[TensorArgument, int]] = []
    for position in range(len(declared)):
        both = _tensor(declared, position)
        if both is None:
            continue
        for axis, dim in enumerate(both[0].shape):
            same = slot.kind == "size" and (position, axis) == (slot.parameter, slot.axis)
            if same or (slot.kind == "symbol" and dim == Sym(slot.symbol)):
                found.append((both[1], axis))
    return found


def _rooms(typed: TypedFunction, frame: KernelFrame, b: Emitter) -> dict[Value, Axis]:
    """The axes that sizes with a bound have as tiles."""
    declared = declared_parameters(typed)
    found: dict[Value, Axis] = {}
    for slot, size in zip(frame.slots, frame.arguments, strict=True):
        for fact, axis in _axes(declared, slot):
            bound = fact.buckets[axis] if fact.buckets else None
            if bound is not None:
                exact = size_in_bucket(bound, fact.divisors[axis] if fact.divisors else 1)
                extent = b.number(exact) if exact else size
                found[size] = found[extent] = Axis(extent, bound)
    return found


def _made_for(typed: TypedFunction, frame: KernelFrame) -> dict[Value, int]:
    """The sizes that are numbers in every launch of the code."""
    declared = declared_parameters(typed)
    found: dict[Value, int] = {}
    for slot, size in zip(frame.slots, frame.arguments, strict=True):
        for fact, axis in _axes(declared, slot):
            known = fact.sizes[axis] if fact.sizes else None
            if known is None and fact.buckets and (bound := fact.buckets[axis]) is not None:
                known = size_in_bucket(bound, fact.divisors[axis] if fact.divisors else 1)
            if known is not None:
                found[size] = known
    return found


def _hint(declared: tuple[DeclaredParameter, ...], slot: Slot) -> int:
    known = [fact.hints[axis] for fact, axis in _axes(declared, slot) if fact.hints]
    return known[0] if known else 0


def _divisor(declared: tuple[DeclaredParameter, ...], slot: Slot) -> int:
    if slot.kind == "data":
        both = _tensor(declared, slot.parameter)
        if both is None:
            return VECTOR_BYTES
        return 16 if both[1].aligned else both[0].dtype.bytes
    if slot.kind == "stride":
        both = _tensor(declared, slot.parameter)
        if both is not None and both[1].pitches and slot.axis != both[1].unit:
            return max(1, 16 // both[0].dtype.bytes)
        return 1
    known = [fact.divisors[axis] for fact, axis in _axes(declared, slot) if fact.divisors]
    return max(known, default=1)


# --- the plan --------------------------------------------------------------------------------


def _plan(state: State, frame: KernelFrame, info: TileInfo) -> LaunchPlan:
    lowering = state.low
    agreed = tuple(
        Condition(a.left, a.operator, a.right, a.text, lowering.position(a.span))
        for a in info.agreements
    )
    results = (
        *(
            ResultPlan(dtype.name, dims, i in state.zeroed)
            for i, (dtype, dims) in enumerate(info.results)
        ),
        *(state.private.plans if state.private is not None else ()),
    )
    return LaunchPlan(
        kernel=lowering.frame.typed.declaration.name,
        parameters=frame.parameters(),
        brackets=frame.brackets(),
        slots=tuple(frame.slots),
        group=(1,),
        grid=None,
        sites=tuple(lowering.sites),
        prints=tuple(lowering.prints),
        conditions=(
            *(_divides(m, lowering) for m in info.multiples),
            *(
                _at_launch(c, frame)
                for c in (
                    *launch_conditions.conditions(lowering, info.conditions),
                    *lowering.conditions,
                    *agreed,
                )
            ),
        ),
        results=tuple(replace(r, dims=tuple(frame.at_launch(d) for d in r.dims)) for r in results),
    )


def _divides(m: Multiple, lowering: Lowering) -> Condition:
    text = f"{m.parameter}.shape[{m.axis}] % {m.factor} == 0"
    return Condition(DimOp("%", Sym(m.whole), m.factor), "==", 0, text, lowering.position(m.span))


def _at_launch(c: Condition, frame: KernelFrame) -> Condition:
    of = frame.at_launch
    others = tuple((of(left), how, of(right)) for left, how, right in c.others)
    return replace(c, left=of(c.left), right=of(c.right), others=others)
