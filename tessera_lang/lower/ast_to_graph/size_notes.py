"""Where the sizes of operands that do not fit together come from.

Owns the way back from an axis of a value to the array that has it first, operator by operator. Must
not know what is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operator import PREFIX
from tessera_lang.ir.graph.operators import OPERATORS

_MOST_NAMED = 6  # operators of a chain that are named
_SAME = ("softmax", "cumsum", "cumprod", "sort", "argsort", "flip")
_UNSAID = ("reshape", "broadcast")
"""What stands between operands that meet, mostly without a word of the program."""
_ORDINALS = ("first", "second", "third")


def size_notes(builder: GraphBuilder, name: str, values: Sequence[Value]) -> tuple[str, ...]:
    """A note for each operand, of the axis that does not fit; none where that is not clear."""
    axes = _unfitting(name, values)
    if axes is None:
        return ()
    notes: list[str] = []
    for i, (value, axis) in enumerate(zip(values, axes, strict=True)):
        found = _origin(builder, value, axis) if i < len(_ORDINALS) else None
        if found is not None:
            size = value.tensor_type.shape[axis]
            notes.append(f"axis {axis} of the {_ORDINALS[i]} operand has size {size} {found}")
    return tuple(notes)


def _unfitting(name: str, values: Sequence[Value]) -> tuple[int, ...] | None:
    """The axis of each operand along which they do not fit together."""
    shapes = [v.tensor_type.shape for v in values]
    if len(shapes) < 2 or not all(shapes):
        return None
    if name == "matmul":
        if len(shapes[0]) < 2 or len(shapes[1]) < 2 or shapes[0][-1] == shapes[1][-2]:
            return None
        return len(shapes[0]) - 1, len(shapes[1]) - 2
    least = min(map(len, shapes))
    for back in range(1, least + 1):
        if len({s[-back] for s in shapes if s[-back] != 1}) > 1:
            return tuple(len(s) - back for s in shapes)
    return None


def _origin(builder: GraphBuilder, value: Value, axis: int) -> str | None:
    """What gave an axis its size; None of a parameter, whose size the caller knows."""
    chain: list[str] = []
    while (operation := builder.origin(value)) is not None:
        name = operation.name.removeprefix(PREFIX)
        step = _before(operation, axis)
        if step is None:
            named = _listed(chain)
            return f"by `{name}`" + (f", through {named}" if named else "")
        if name not in _UNSAID:
            chain.append(name)
        value, axis = step
    if not chain:
        return None
    head = f"from axis {axis} of `{value.name}`" if value.name else "from an array"
    return f"{head}, through {_listed(chain)}"


def _listed(chain: Sequence[str]) -> str:
    """The operators in the order in which they are applied."""
    shown = [f"`{n}`" for n in chain[:_MOST_NAMED]]
    more = ["..."] if len(chain) > _MOST_NAMED else []
    return ", ".join((*more, *reversed(shown)))


def _before(operation: Operation, axis: int) -> tuple[Value, int] | None:
    """The axis of an operand that an axis of the result is; None where the operator makes it."""
    name = operation.name.removeprefix(PREFIX)
    row = OPERATORS.get(name)
    operands = operation.operands
    if row is None or not operands:
        return None
    size = operation.result.tensor_type.shape[axis]
    source, kept = operands[0], axis
    if name == "matmul":
        last = axis == operation.result.tensor_type.rank - 1
        source = operands[1] if last else operands[0]
    elif name == "transpose":
        kept = operation.integers("axes")[axis]
    elif name in ("sum", "mean", "prod", "reduce_max", "reduce_min", "any", "all", "logsumexp"):
        if operation.attributes["keepdims"] is not True:
            gone = operation.integers("axes")
            kept = [i for i in range(source.tensor_type.rank) if i not in gone][axis]
    elif name == "reshape":
        front = operation.result.tensor_type.shape[:axis]
        have = [i for i, n in enumerate(source.tensor_type.shape) if n != 1]
        kept = sum(n != 1 for n in front)
        if size == 1 or kept >= len(have):
            return None
        kept = have[kept]
    elif row.elementwise:
        long = (v for v in operands if v.tensor_type.rank)
        source = next(long, source)
    elif name not in ("broadcast", "concat", "slice", "pad", "take", *_SAME):
        return None
    shape = source.tensor_type.shape
    return (source, kept) if kept < len(shape) and shape[kept] == size else None
