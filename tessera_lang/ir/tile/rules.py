"""Type rules of the Tile operations, by the name the table gives them.

Owns which types go together. Must not know where an operation stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from tessera_lang.ir.core import (
    BufferType,
    IRType,
    Operation,
    PointerType,
    TensorMapType,
    TileType,
    Value,
    VerifyError,
    ViewType,
)
from tessera_lang.ir.tile import dot_rules, hopper_rules, tile_rules
from tessera_lang.ir.tile.op_definition import OpDef
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS
from tessera_lang.record import replace
from tessera_lang.types.dtype import BOOL, INDEX, U32, DType, integer_range

Rule = Callable[[Operation], None]


def check_types(
    operations: Iterable[Operation],
    further: Mapping[str, OpDef] | None = None,
    rules: Mapping[str, Rule] | None = None,
) -> None:
    """Types of operands, results and region arguments; ``further`` operations by ``rules``."""
    for operation in operations:
        definition = TILE_OPS.get(operation.name)
        if definition is not None:
            RULES[definition.rule](operation)
        elif further is not None and rules is not None:
            rules[further[operation.name].rule](operation)


def _require(holds: bool, message: str, operation: Operation) -> None:
    if not holds:
        raise VerifyError(message, operation)


def _scalar(value: Value, operation: Operation) -> DType:
    if not isinstance(value.type, DType):
        raise VerifyError("takes and gives scalars", operation)
    return value.type


def element(value: Value, operation: Operation) -> DType:
    """The dtype of a scalar, or of the elements of a tile."""
    if isinstance(value.type, TileType):
        return value.type.dtype
    return _scalar(value, operation)


def with_element(t: IRType, dtype: DType) -> IRType:
    """The scalar or tile type like ``t`` that holds ``dtype``."""
    return replace(t, dtype=dtype) if isinstance(t, TileType) else dtype


def types_of(values: Sequence[Value]) -> tuple[IRType, ...]:
    return tuple(v.type for v in values)


def _in_class(operation: Operation, dtype: DType) -> None:
    holds = {
        "any": True,
        "number": dtype.kind != "bool",
        "integer": dtype.is_integer,
        "float": dtype.is_float,
        "bits": dtype.is_integer or dtype.kind == "bool",
    }
    classes = TILE_OPS[operation.name].classes
    _require(holds[classes], f"takes {classes} types, not {dtype}", operation)


# --- scalars ---------------------------------------------------------------------------------


def _nothing(operation: Operation) -> None:
    """No operand, no result: the counts are all there is to check."""


def _index(operation: Operation) -> None:
    _require(operation.result.type == INDEX, "gives an index", operation)


def _constant(operation: Operation) -> None:
    dtype, value = _scalar(operation.result, operation), operation.attributes["value"]
    if dtype.kind == "bool":
        _require(isinstance(value, bool), "the value of a bool is a bool", operation)
    elif dtype.is_float:
        _require(isinstance(value, float), "the value of a float is a float", operation)
        if not dtype.infinite and isinstance(value, float):
            _require(not math.isinf(value), f"{dtype} has no infinity", operation)
    else:
        low, high = integer_range(dtype)
        holds = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        _require(holds, f"the value is no {dtype}", operation)


def _same(operation: Operation) -> None:
    dtype = element(operation.result, operation)
    for value in operation.operands:
        same = value.type == operation.result.type
        _require(same, "operands and result have one type", operation)
    _in_class(operation, dtype)


def _compare(operation: Operation) -> None:
    a, b = operation.operands
    element(a, operation)
    _require(a.type == b.type, "operands have one type", operation)
    holds = operation.result.type == with_element(a.type, BOOL)
    _require(holds, "gives a bool for each element", operation)


def _select(operation: Operation) -> None:
    condition, a, b = operation.operands
    element(a, operation)
    holds = condition.type in (BOOL, with_element(a.type, BOOL))
    _require(holds, "the condition is a bool, or one for each element", operation)
    same = a.type == b.type == operation.result.type
    _require(same, "the two values and the result have one type", operation)


def _cast(operation: Operation) -> None:
    element(operation.operands[0], operation)
    to = element(operation.result, operation)
    holds = operation.result.type == with_element(operation.operands[0].type, to)
    _require(holds, "keeps the shape and the layout", operation)


def _bitcast(operation: Operation) -> None:
    _cast(operation)
    a, b = element(operation.operands[0], operation), element(operation.result, operation)
    _require(a.bits == b.bits, "the widths differ", operation)


# --- memory ----------------------------------------------------------------------------------


def _view(operation: Operation) -> None:
    pointer, view = operation.operands[0].type, operation.result.type
    if not isinstance(pointer, PointerType) or not isinstance(view, ViewType):
        raise VerifyError("makes a view of a pointer", operation)
    _require(pointer.dtype == view.dtype, "pointer and view have one dtype", operation)
    _require(pointer.space == view.space, "pointer and view have one space", operation)
    numbers = len(view.shape) * (1 if view.contiguous else 2)
    holds = len(operation.operands) == 1 + numbers
    _require(holds, f"takes {numbers} sizes and strides", operation)
    for value in operation.operands[1:]:
        _require(value.type == INDEX, "sizes and strides are index", operation)


def _table(operation: Operation) -> None:
    t, values = operation.result.type, str(operation.attributes["values"])
    holds = isinstance(t, PointerType) and t.space == "constant" and t.dtype.kind != "bool"
    _require(holds, "gives a pointer to numbers in constant memory", operation)
    _require(bool(table_numbers(values)), "holds numbers", operation)


def table_numbers(values: str) -> tuple[int | float, ...]:
    """The numbers that the attribute ``values`` of a ``tile.table`` spells; none where it spells
    something else."""
    try:
        return tuple(float(v) if set(v) & set(".en") else int(v) for v in values.split())
    except ValueError:
        return ()


def _shared_alloc(operation: Operation) -> None:
    t = operation.result.type
    holds = isinstance(t, BufferType) and t.space == "shared"
    _require(holds, "gives a buffer in shared memory", operation)


def _local_alloc(operation: Operation) -> None:
    t = operation.result.type
    holds = isinstance(t, BufferType) and t.space == "local"
    _require(holds, "gives a buffer of which each lane has its own part", operation)


def _access(operation: Operation, array: Value, indices: Sequence[Value]) -> DType:
    t = array.type
    if not isinstance(t, ViewType | BufferType):
        raise VerifyError("reads and writes a view or a buffer", operation)
    holds = len(indices) == len(t.shape)
    _require(holds, f"takes {len(t.shape)} indices, one an axis", operation)
    for value in indices:
        _require(value.type == INDEX, "indices are index", operation)
    return t.dtype


def _written(operation: Operation, array: Value) -> None:
    holds = not isinstance(array.type, ViewType) or array.type.mut
    _require(holds, "writes a view that is not mut", operation)


def _load(operation: Operation) -> None:
    dtype = _access(operation, operation.operands[0], operation.operands[1:])
    _require(operation.result.type == dtype, "gives an element", operation)


def _store(operation: Operation) -> None:
    value, array = operation.operands[:2]
    dtype = _access(operation, array, operation.operands[2:])
    _require(value.type == dtype, "stores an element", operation)
    _written(operation, array)


def _atomic(operation: Operation) -> None:
    _store(operation)
    value = operation.operands[0]
    _require(operation.result.type == value.type, "gives the old element", operation)
    if operation.attributes["kind"] in ("and", "or", "xor"):
        dtype = _scalar(value, operation)
        _require(not dtype.is_float, "takes integers or bools", operation)


def _atomic_cas(operation: Operation) -> None:
    expected, desired, array = operation.operands[:3]
    dtype = _access(operation, array, operation.operands[3:])
    holds = expected.type == desired.type == operation.result.type == dtype
    _require(holds, "compares, stores and gives elements", operation)
    _written(operation, array)


# --- warps -----------------------------------------------------------------------------------


def _whole_word(operation: Operation) -> None:
    dtype = _scalar(operation.operands[0], operation)
    _require(operation.result.type == dtype, "operand and result have one dtype", operation)
    _in_class(operation, dtype)
    _require(dtype.bits in (32, 64), "takes numbers of 32 or 64 bits", operation)


def _warp_shuffle(operation: Operation) -> None:
    _whole_word(operation)
    _require(operation.operands[1].type == INDEX, "the lane is an index", operation)


def _warp_vote(operation: Operation) -> None:
    holds = operation.operands[0].type == operation.result.type == BOOL
    _require(holds, "takes and gives a bool", operation)


def _warp_ballot(operation: Operation) -> None:
    _require(operation.operands[0].type == BOOL, "takes a bool", operation)
    _require(operation.result.type == U32, "gives a u32", operation)


def _warp_match(operation: Operation) -> None:
    value, *scratch = operation.operands
    t = value.type
    holds = isinstance(t, DType) and (t == BOOL or t.is_integer)
    _require(holds, "takes an integer or a bool", operation)
    for buffer in scratch:
        holds = isinstance(buffer.type, BufferType) and buffer.type.dtype == U32
        _require(holds, "the scratch buffer is one of u32", operation)
    _require(operation.result.type == U32, "gives a u32", operation)


def _assert(operation: Operation) -> None:
    _require(operation.operands[0].type == BOOL, "the condition is a bool", operation)


def _assume(operation: Operation) -> None:
    same = all(value.type == INDEX for value in operation.operands)
    _require(same, "is about two indices", operation)


def _print(operation: Operation) -> None:
    for value in operation.operands:
        _scalar(value, operation)


# --- control flow ----------------------------------------------------------------------------


def _kernel(operation: Operation) -> None:
    attributes, region = operation.attributes, operation.regions[0]
    parameters, group = attributes["parameters"], attributes["group"]
    assert isinstance(parameters, tuple) and isinstance(group, tuple)
    holds = len(parameters) == len(region.arguments)
    _require(holds, "names one parameter per argument of its region", operation)
    sizes = [n for n in group if isinstance(n, int) and n > 0]
    holds = len(sizes) == len(group) and 1 <= len(group) <= 3
    _require(holds, "has 1 to 3 positive group sizes", operation)
    rank = attributes["grid_rank"]
    _require(isinstance(rank, int) and 1 <= rank <= 3, "has a grid of rank 1 to 3", operation)
    for value in region.arguments:
        holds = isinstance(value.type, DType | PointerType | TensorMapType)
        _require(holds, "takes pointers, scalars and tensor maps", operation)


def _for(operation: Operation) -> None:
    lower, upper, step, *carried = operation.operands
    dtype = _scalar(lower, operation)
    holds = dtype.is_integer and lower.type == upper.type == step.type
    _require(holds, "the bounds and the step have one integer type", operation)
    types = types_of(carried)
    region = operation.regions[0]
    holds = types_of(region.arguments) == (dtype, *types)
    _require(holds, "the body takes the variable and what is carried", operation)
    _require(types_of(operation.results) == types, "gives what is carried", operation)


def _while(operation: Operation) -> None:
    types = types_of(operation.operands)
    for region in operation.regions:
        _require(types_of(region.arguments) == types, "regions take what is carried", operation)
    _require(types_of(operation.results) == types, "gives what is carried", operation)


def _if(operation: Operation) -> None:
    _require(operation.operands[0].type == BOOL, "the condition is a bool", operation)
    for region in operation.regions:
        _require(not region.arguments, "its regions take no arguments", operation)


def _scope(operation: Operation) -> None:
    _require(not operation.regions[0].arguments, "its region takes no arguments", operation)


def _tiles(operation: Operation) -> None:
    """What has no rule of its own in ``tile_rules`` or ``hopper_rules``."""


RULES: dict[str, Rule] = {
    **{d.rule: _tiles for d in TILE_LEVEL_OPS},
    **tile_rules.RULES, **dot_rules.RULES, **hopper_rules.RULES,
    "nothing": _nothing, "index": _index, "constant": _constant, "same": _same,
    "compare": _compare, "select": _select, "cast": _cast, "bitcast": _bitcast,
    "view": _view, "table": _table, "shared_alloc": _shared_alloc, "local_alloc": _local_alloc,
    "load": _load, "store": _store,
    "atomic": _atomic, "atomic_cas": _atomic_cas, "kernel": _kernel, "for": _for,
    "while": _while, "if": _if, "scope": _scope, "exit": _nothing, "assert": _assert,
    "assume": _assume, "print": _print,
    "warp_reduce": _whole_word, "warp_shuffle": _warp_shuffle, "warp_vote": _warp_vote,
    "warp_ballot": _warp_ballot, "warp_match": _warp_match,
}  # fmt: skip
