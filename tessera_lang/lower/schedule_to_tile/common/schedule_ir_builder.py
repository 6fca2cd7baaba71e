"""Operations of Schedule IR in a row, on numbers and tiles, each by one call.

Owns the spelling. Must not know what is computed.
"""

from __future__ import annotations

from tessera_lang.ir.core import Attribute, IRType, Operation, TileType, Value
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.types.dtype import BOOL, INDEX, DType


class Line:
    """Operations in a row."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def constant(self, value: int, dtype: DType = INDEX) -> Value:
        return self._emit("tile.constant", (), dtype, {"value": value})

    def binary(self, name: str, a: Value, b: Value) -> Value:
        attributes: dict[str, Attribute] = {"site": -1} if name == "floordiv" else {}
        return self._emit(f"tile.{name}", (a, b), a.type, attributes)

    def less(self, a: Value, b: Value) -> Value:
        return self._emit("tile.cmp", (a, b), BOOL, {"predicate": "lt"})

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self._emit("tile.select", (condition, a, b), a.type, {})

    def cast(self, a: Value, dtype: DType) -> Value:
        return self._emit("tile.cast", (a,), dtype, {})

    def add(self, a: Value, b: Value) -> Value:
        return self._emit("tile.add", (a, b), a.type, {}, a.name)

    def iterations(self, lower: Value, upper: Value, step: Value) -> Value:
        """How often a loop with these bounds runs."""
        span = self.binary("max", self.binary("sub", upper, lower), self.constant(0))
        up = self.binary("sub", self.binary("add", span, step), self.constant(1))
        return self.binary("floordiv", up, step)

    def zeros(self, t: TileType) -> Value:
        value = 0.0 if t.dtype.is_float else 0
        zero = self._emit("tile.constant", (), t.dtype, {"value": value}, "zero")
        return self._emit(PREFIX + "full", (zero,), t, {}, "start")

    def _emit(
        self, name: str, operands: tuple[Value, ...], type_: IRType,
        attributes: dict[str, Attribute], hint: str = "",
    ) -> Value:  # fmt: skip
        result = Value(type_, hint)
        self.operations.append(Operation(name, operands, (result,), attributes))
        return result
