"""Which loops of a lane are interchanged: steps outside, lanes inside.

A loop may be where no lane leaves it on its own, and is where that puts lanes side by side in
memory (or keeps them in registers of a vector). Must not know LLVM.
"""

from __future__ import annotations

from math import prod
from typing import cast

from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import BLOCKS, LOOPS

FEWEST_LANES = 8
_OF_POSITIONS = frozenset(
    f"tile.{name}" for name in "and or xor shl shr min max cmp not select floordiv mod".split()
)
_SUMS = ("tile.add", "tile.sub", "tile.min", "tile.max")  # of an index that stays inside, too
_LONGEST_RUN = 4
_LONGEST_ROW = 8  # as many neighbours LLVM takes apart
_FAR = 1 << 32  # stands for a stride that is uniform and not known
ARRAY_OPERAND = {"tile.load": 0, "tile.store": 1, "tile.atomic_load": 0, "tile.atomic_store": 1,
          "tile.atomic": 1, "tile.atomic_cas": 2}  # fmt: skip


def inner_axis(group: tuple[int, ...]) -> int:
    """The last axis with more than one lane (0 where there is none)."""
    return max((axis for axis, size in enumerate(group) if size > 1), default=0)


class LaneStrides:
    """How far apart the values of neighbouring lanes are, None where that is not known."""

    def __init__(self, kernel: Operation, uniform: Uniformity) -> None:
        self._uniform = uniform
        self._inner = inner_axis(kernel.integers("group"))
        self._strides: dict[Value, int | None] = {}
        self._constants: dict[Value, int] = {}
        self._definitions: dict[Value, Operation] = {}
        for op in kernel.walk():
            if op.name == "tile.for":
                self._strides[op.regions[0].arguments[0]] = self.of(op.operands[0])
            for result in op.results:
                self._strides[result] = self._find(op)
                self._definitions[result] = op
                value = op.attributes.get("value")
                if op.name == "tile.constant" and isinstance(value, int):
                    self._constants[result] = value

    def of(self, value: Value) -> int | None:
        if self._uniform.is_uniform(value):
            return 0
        return self._strides.get(value)

    def constant(self, value: Value) -> int | None:
        """What a value is, where that is known."""
        return self._constants.get(value)

    def definition(self, value: Value) -> Operation | None:
        return self._definitions.get(value)

    def of_access(self, op: Operation) -> int | None:
        """How far apart neighbouring lanes access an array, in elements of its last axis."""
        array = ARRAY_OPERAND[op.name]
        strides = [self.of(v) for v in op.operands[array + 1 :]]
        if not strides:
            return 0
        if any(s is None for s in strides):
            return None
        if any(strides[:-1]):
            return _FAR
        return strides[-1]

    def _find(self, op: Operation) -> int | None:
        match op.name:
            case "tile.lane_linear":
                return 1
            case "tile.lane_index":
                return int(op.attributes["axis"] == self._inner)
            case "tile.cast":
                return self.of(op.operands[0])
            case "tile.add" | "tile.sub":
                a, b = map(self.of, op.operands)
                if a is None or b is None:
                    return None
                return a + b if op.name == "tile.add" else a - b
            case "tile.mul":
                return self._product(*op.operands)
            case name if name in _OF_POSITIONS and not any(self.of(v) != 0 for v in op.operands):
                return 0  # of what neighbours have in common
            case _:
                return None

    def _product(self, x: Value, y: Value) -> int | None:
        for a, b in ((x, y), (y, x)):
            if self._uniform.is_uniform(b):
                stride = self.of(a)
                if not stride:
                    return stride
                return stride * self._constants.get(b, _FAR)
        return None


class Interchange:
    """The answer for one kernel."""

    def __init__(self, kernel: Operation, uniform: Uniformity) -> None:
        self._uniform = uniform
        self.strides = LaneStrides(kernel, uniform)
        self._wanted: set[Operation] = set()
        lanes = prod(kernel.integers("group"))
        if lanes >= FEWEST_LANES:
            self._region(kernel.regions[0])

    def wanted(self, op: Operation) -> bool:
        return op in self._wanted

    def _region(self, region: Region) -> None:
        for op in region.operations:
            if op.name in BLOCKS or self._legal(op):
                for inner in op.regions:
                    self._region(inner)
                if op.name == "tile.for" and self._profits(op):
                    self._wanted.add(op)

    def _legal(self, op: Operation) -> bool:
        if op.name not in LOOPS:
            return False
        if op not in self._uniform.split_loops:
            return True
        if op.name == "tile.while" or not self._uniform.is_uniform(op.operands[2]):
            return False
        return not _leaves(op)

    def _profits(self, op: Operation) -> bool:
        beside = apart = same = unknown = 0
        for inner in op.walk():
            if inner.name in ARRAY_OPERAND:
                if self._is_row(op, inner):
                    return False
                match self.strides.of_access(inner):
                    case None:
                        unknown += 1
                    case 0:
                        same += 1
                    case 1 | -1:
                        beside += 1
                    case stride if self._is_run(op, stride):
                        beside += 1
                    case _:
                        apart += 1
        if beside:
            return beside >= apart
        if apart or unknown:
            return False
        return same > 0 or op not in self._uniform.split_loops

    def _is_row(self, loop: Operation, access: Operation) -> bool:
        """Whether the steps of a lane go over as many neighbours as lanes are apart: all lanes
        together over all of them, which vectors load and take apart."""
        stride = self.strides.of_access(access)
        if stride is None or not 1 < stride <= _LONGEST_ROW or loop.operands[3:]:
            return False
        lower, upper, step = map(self.strides.constant, loop.operands[:3])
        if lower is None or upper is None or step != 1 or upper - lower != stride:
            return False
        moves: dict[Value, int | None] = {loop.regions[0].arguments[0]: 1}
        return self._moves(access.operands[-1], moves) == 1

    def _moves(self, index: Value, moves: dict[Value, int | None]) -> int | None:
        """How far a step moves an index, None where that is not known; ``moves`` grows."""
        if index not in moves:
            op = self.strides.definition(index)
            parts = [] if op is None else [self._moves(v, moves) for v in op.operands]
            if not any(part != 0 for part in parts):
                moves[index] = 0
            elif op is None or None in parts or op.name not in _SUMS:
                moves[index] = None
            else:
                a, b = cast("list[int]", parts)
                moves[index] = a - b if op.name == "tile.sub" else a + b
        return moves[index]

    def _is_run(self, op: Operation, stride: int) -> bool:
        """Whether lanes that are ``stride`` apart lie closer than the steps of a lane: each
        does a short run of neighbours, and the runs are side by side."""
        if abs(stride) > _LONGEST_RUN or op.name != "tile.for":
            return False
        step = self.strides.constant(op.operands[2])
        return step is None or abs(step) > abs(stride)


def _leaves(loop: Operation) -> bool:
    """Whether some exit inside may end the loop."""

    def visit(region: Region, loops: int, scopes: int) -> bool:
        for op in region.operations:
            if op.name == "tile.return" or (op.name == "tile.break" and not loops):
                return True
            if op.name == "tile.leave" and not scopes:
                return True
            inner_loops = loops + (op.name in LOOPS)
            inner_scopes = scopes + (op.name == "tile.scope")
            if any(visit(r, inner_loops, inner_scopes) for r in op.regions):
                return True
        return False

    return any(visit(region, 0, 0) for region in loop.regions)
