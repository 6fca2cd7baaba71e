"""What an operator of Graph IR is: the columns of its row.

Owns the vocabulary of the table, and that no column is missing. Must not know any operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from tessera_lang.ir.core import Attribute, Operation, TensorType, Value
from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef
from tessera_lang.record import dataclass, field, field_names
from tessera_lang.types.dtype import DType
from tessera_lang.types.shape import Dim

PREFIX = "graph."
Types = tuple[TensorType, ...]
Shape = tuple[Dim, ...]
Attributes = Mapping[str, Attribute]


class OperandError(Exception):
    """Operands that an operator does not take, in the words of the user."""


ShapeRule = Callable[[str, Types, Attributes], Shape]
"""The shape of the result. Raises OperandError, which names both operands and the axis."""
DTypeRule = Callable[[str, Types, Attributes], DType]
"""The dtype of the result. Raises OperandError."""

Gradient = Callable[[Any, Operation, Value], tuple[Value | None, ...]]
"""What the gradient of the result (the last argument) gives to each operand: operations of a
``GraphBuilder``, the first argument. None: nothing, as to a place or a condition."""


@dataclass(frozen=True, slots=True)
class NoGradient:
    """An operator through which no gradient goes, and why. ``zero``: because its result does not
    change with its operands, so that the gradient is 0; else asking for one is refused."""

    why: str
    zero: bool = True


Work = Callable[[tuple[tuple[int, ...], ...], tuple[int, ...]], float]
"""Arithmetic operations, of the sizes of the operands and of the result. Bytes are those of the
tensors themselves."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a result is made of parts, by factors: each axis of an operand and of the result is a
    factor (a name), or None where the axis has to be whole. Splitting a factor on all operands that
    have it splits the result along it; a factor in ``joined`` is not in the result, whose parts are
    joined by that reduction (``sum``, ``max``, ``min``, ``prod``, ``any``, ``all``)."""

    operands: tuple[tuple[str | None, ...], ...]
    result: tuple[str | None, ...]
    joined: Mapping[str, str]


ShardingRule = Callable[[Types, Attributes, TensorType], Sharding]

Tolerance = Literal["exact", "rounded", "few ulp", "sum"]
"""How near the result is to the reference. ``exact``: the same bits. ``rounded``: the exact result,
rounded once. ``few ulp``: some units in the last place of each element. ``sum``: a small multiple
of the unit roundoff times the number of terms, of the sum of the terms' magnitudes."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that an operator refuses: types of its operands as they are printed, attributes, and a
    part of what it says."""

    operands: tuple[str, ...]
    says: str
    attributes: Attributes = field(default_factory=dict[str, Attribute])


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator; every column is needed.

    ``operands``: names, one that ends in ``...`` for any number. ``errors``: what it refuses, an
    example each. ``reference``: an expression of NumPy over the operands (floats as float64) and
    the attributes, by their names. ``source``: the expression of a tile kernel that computes it:
    ``{a}`` is an operand, ``{axes}`` an attribute, ``{shape}`` and ``{dtype}`` those of the result;
    or what writes the text of a kernel of its own, whose parameters are the operands.
    """

    name: str
    operands: tuple[str, ...]
    attributes: tuple[AttributeDef, ...]
    shape: ShapeRule
    dtype: DTypeRule
    errors: tuple[Refused, ...]
    reference: str
    source: str | Callable[[Operation], str]
    gradient: Gradient | NoGradient
    work: Work
    sharding: ShardingRule
    tolerance: Tolerance
    elementwise: bool

    @property
    def definition(self) -> OpDef:
        """The row that printer, parser and verifier read."""
        return OpDef(PREFIX + self.name, self.operands, "graph_operator",
                     attributes=self.attributes)  # fmt: skip

    def type_of(self, operands: Types, attributes: Attributes) -> TensorType:
        """The type of the result. Raises OperandError."""
        variadic = any(n.endswith("...") for n in self.operands)
        if len(operands) != len(self.operands) and not (variadic and operands):
            takes = ", ".join(self.operands) or "nothing"
            raise OperandError(f"`{self.name}` takes {takes}, not {len(operands)} operands")
        shape = self.shape(self.name, operands, attributes)
        return TensorType(self.dtype(self.name, operands, attributes), shape)


_MAY_BE_EMPTY = ("operands", "attributes", "elementwise")


def table(*groups: tuple[Operator, ...]) -> dict[str, Operator]:
    """The operators by name. Raises TypeError where a column is empty, or a name stands twice."""
    found: dict[str, Operator] = {}
    for operator in (o for group in groups for o in group):
        for column in field_names(operator):
            if column not in _MAY_BE_EMPTY and not getattr(operator, column):
                raise TypeError(f"operator {operator.name} has no {column}")
        if operator.name in found:
            raise TypeError(f"operator {operator.name} stands twice in the table")
        found[operator.name] = operator
    return found
