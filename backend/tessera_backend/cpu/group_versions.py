"""What holds for every lane of most groups: a version of the code without the tests.

A guard or a condition that compares numbers affine in the lane's position holds for all lanes
where it holds in the corners of the group. One test a group then chooses code without masks,
branches and guards. Must not know LLVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_backend.cpu.interchange import ARRAY_OPERAND
from tessera_backend.cpu.uniform_values import AGAIN, Scalars
from tessera_lang.ir.core import BufferType, Operation, Region, Value, ViewType
from tessera_lang.ir.definitions import LOOPS
from tessera_lang.ir.pass_type import Pass
from tessera_lang.opt.tile.delinearize_lane_axis import delinearize_lane_axis
from tessera_lang.opt.tile.near_range_remainders import near_range_remainders
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import BOOL, INDEX

FAR = 1 << 40  # strides below this cannot wrap within a group
_MOST_TESTS = 24
_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}

SPLIT_LANES = Pass(
    "delinearize_lane_axis", "tile", "tile", delinearize_lane_axis,
    does="gives the lanes an axis for each part that a kernel takes their row apart into",
)  # fmt: skip
WRAP_REMAINDERS = Pass(
    "near_range_remainders", "tile", "tile", near_range_remainders,
    does="makes the remainder of a neighbour's index a comparison",
)  # fmt: skip

# Coefficient of each axis of the group; None: known at run time only.
Form = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """``a predicate b`` for indices."""

    predicate: str
    a: Value
    b: Value


@dataclass(frozen=True, slots=True)
class Flag:
    """A uniform condition is ``truth``."""

    value: Value
    truth: bool


@dataclass(frozen=True, slots=True)
class Inside:
    """``0 <= index < size``: the size is that of axis ``axis`` of ``array``."""

    index: Value
    array: Value
    axis: int


Test = Compare | Flag | Inside


@dataclass
class Version:
    """What to assume: which side of ifs is taken, which accesses are inside, if ``tests``."""

    sides: dict[Operation, bool] = field(default_factory=dict[Operation, bool])
    inside: set[Operation] = field(default_factory=set[Operation])
    tests: dict[Test, None] = field(default_factory=dict[Test, None])


class Versions:
    """Finds what can be assumed of the pieces of one kernel."""

    def __init__(self, kernel: Operation, scalars: Scalars) -> None:
        self._scalars = scalars
        self._group = kernel.integers("group")
        self._forms: dict[Value, Form | None] = {}
        self._writes: dict[Operation, bool] = {}

    # --- affine numbers ---------------------------------------------------------------------

    def form(self, value: Value) -> Form | None:
        """How an index depends on the lane; None where it is not affine."""
        if value not in self._forms:
            self._forms[value] = None
            self._forms[value] = self._find(value)
        return self._forms[value]

    @property
    def _flat(self) -> Form:
        return (0,) * len(self._group)

    def _find(self, value: Value) -> Form | None:
        if self._scalars.is_from_lanes(value):
            return None  # known only behind the piece that computes it
        if self._scalars.is_scalar(value):
            return self._flat
        loop = self._scalars.loop_of(value)
        if loop is not None:
            return self.form(loop.operands[0])
        op = self._scalars.definition(value)
        if op is None:
            return None
        if op.name == "tile.constant":
            return self._flat
        if op.name == "tile.lane_linear":
            return self._linear()
        if op.name == "tile.lane_index":
            axis = op.attributes["axis"]
            return tuple(int(a == axis) for a in range(len(self._group)))
        if op.name not in AGAIN:
            return None
        forms = [self.form(v) for v in op.operands]
        if any(f is None for f in forms):
            return None
        known = cast("list[Form]", forms)
        if all(f == self._flat for f in known):
            return self._flat
        if value.type != INDEX or any(v.type != INDEX for v in op.operands):
            return None
        return self._combine(op, known)

    def _linear(self) -> Form:
        coefficients: list[int] = []
        stride = 1
        for size in reversed(self._group):
            coefficients.insert(0, stride)
            stride *= size
        return tuple(coefficients)

    def _combine(self, op: Operation, forms: list[Form]) -> Form | None:
        def merge(step: Callable[[int, int], int]) -> Form | None:
            pairs = zip(*forms, strict=True)
            result = tuple(None if a is None or b is None else step(a, b) for a, b in pairs)
            return result if all(c is None or abs(c) < FAR for c in result) else None

        match op.name:
            case "tile.add":
                return merge(lambda a, b: a + b)
            case "tile.sub":
                return merge(lambda a, b: a - b)
            case "tile.mul":
                return self._product(op, forms)
            case _:
                return None

    def _product(self, op: Operation, forms: list[Form]) -> Form | None:
        for (a, _), (b, other) in (
            ((forms[0], op.operands[0]), (forms[1], op.operands[1])),
            ((forms[1], op.operands[1]), (forms[0], op.operands[0])),
        ):
            if b == self._flat:
                factor = self._constant(other)
                if factor is None:
                    return tuple(0 if c == 0 else None for c in a)
                result = tuple(None if c is None else c * factor for c in a)
                return result if all(c is None or abs(c) < FAR for c in result) else None
        return None

    def _constant(self, value: Value) -> int | None:
        op = self._scalars.definition(value)
        if op is None or op.name != "tile.constant":
            return None
        found = op.attributes["value"]
        return found if isinstance(found, int) else None

    # --- conditions -------------------------------------------------------------------------

    def condition(self, value: Value, truth: bool) -> list[Test] | None:
        """Tests that hold in every corner only if ``value`` is ``truth`` in every lane."""
        op = self._scalars.definition(value)
        if op is None or self._scalars.is_from_lanes(value):
            return None
        if self._scalars.is_scalar(value):
            return [Flag(value, truth)]
        if op.name == "tile.not" and value.type == BOOL:
            return self.condition(op.operands[0], not truth)
        if op.name == ("tile.and" if truth else "tile.or"):
            sides = [self.condition(v, truth) for v in op.operands]
            if any(side is None for side in sides):
                return None
            return [test for side in sides for test in side or []]
        if op.name != "tile.cmp" or op.operands[0].type != INDEX:
            return None
        predicate = str(op.attributes["predicate"])
        if predicate not in _NEGATED or any(self.form(v) is None for v in op.operands):
            return None
        return [Compare(predicate if truth else _NEGATED[predicate], *op.operands)]

    # --- pieces -----------------------------------------------------------------------------

    def of_piece(self, operations: list[Operation]) -> Version | None:
        """What to assume of a piece; None where there is nothing to gain."""
        version = Version()
        self._walk(operations, version)
        if not version.tests or len(version.tests) > _MOST_TESTS:
            return None
        return version

    def _walk(self, operations: list[Operation] | tuple[Operation, ...], version: Version) -> None:
        for op in operations:
            if op.name == "tile.if":
                self._if(op, version)
            elif op.name in ARRAY_OPERAND and op.attributes["bounds"] == "guarded":
                self._access(op, version)

    def _if(self, op: Operation, version: Version) -> None:
        works = [self._has_work(region) for region in op.regions]
        if not any(works):
            return
        side = works[0]
        if _moves_an_index(op):
            side = False  # a neighbour is where it is but at the border
        elif all(works):  # a loop stands on the side of what is left over
            side = not self._has_loop(op.regions[0]) or self._has_loop(op.regions[1])
        tests = self.condition(op.operands[0], side)
        if tests is None:
            return
        version.sides[op] = side
        version.tests.update(dict.fromkeys(tests))
        self._walk(op.regions[0 if side else 1].operations, version)

    def _has_work(self, region: Region) -> bool:
        """Whether a side does more than leave."""
        return len(region.operations) > 1

    def _has_loop(self, region: Region) -> bool:
        return any(op.holds(LOOPS) for op in region.operations)

    def _access(self, op: Operation, version: Version) -> None:
        number = ARRAY_OPERAND[op.name]
        array, indices = op.operands[number], op.operands[number + 1 :]
        kind = array.type
        if not isinstance(kind, (ViewType, BufferType)):
            return
        if any(v.type != INDEX or self.form(v) is None for v in indices):
            return
        version.inside.add(op)
        for axis, index in enumerate(indices):
            version.tests.setdefault(Inside(index, array, axis))


def _moves_an_index(op: Operation) -> bool:
    """Whether an ``if`` gives an index, on one side as it was before."""
    if not op.results or any(r.type != INDEX for r in op.results):
        return False
    then, other = op.regions
    return len(other.operations) == 1 and all(o.name in AGAIN for o in then.operations[:-1])
