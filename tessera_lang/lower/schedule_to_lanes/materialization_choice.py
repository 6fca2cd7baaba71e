"""Which tiles are stored in memory, and which are computed where they are used.

A tile is *lazy* where the loop that uses it can compute its elements: one user loop, no write to
what it reads in between, nothing costly done twice. Owns ``Placement``. Must not know how loops
are made.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import (
    ARRAY_READS,
    EXITS,
    GENERATES,
    IN_PLACE,
    LOOPS,
    MIXES,
    MOVES,
    WRITES,
)
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.lower.schedule_to_lanes.def_use import Source, is_tile, tile_type
from tessera_lang.target.tuned_constants import CHEAP_OPERATIONS
from tessera_lang.types.dtype import DType

# Operations that compute their operand's elements themselves.
_EVALUATE = WRITES | MIXES | LOOPS | EXITS
# Operations whose element comes from another place of the operand.
DISPLACES = MOVES - IN_PLACE
_COSTLY = ("tile.div", "tile.sqrt", "tile.floordiv", "tile.mod")


class Placement:
    """``lazy``: tiles that are not stored. ``wide``: the dtype in which products read a tile.

    ``widen``: whether factors are stored in that dtype. ``lean``: whether factors that are cheap to
    read again are not stored, so that less memory is needed."""

    def __init__(self, source: Source, widen: bool, lean: bool = False) -> None:
        self._source = source
        self._lean = lean
        self._costs: dict[Value, int] = {}
        self._uses: dict[Value, dict[Operation, None]] = {}
        self.lazy: set[Value] = set()
        self.wide: dict[Value, DType] = {}
        self._writers = [op for op in source.order if op.name in WRITES]
        for op in source.order:
            for result in op.results:
                if is_tile(result):
                    self._costs[result] = self._cost(op)
        for op in reversed(source.order):
            for result in op.results:
                if is_tile(result):
                    self._decide(op, result)
        if widen:
            self._widen()

    def uses(self, value: Value) -> list[Operation]:
        """The operations in which elements of a tile are read."""
        if value not in self._uses:
            found: dict[Operation, None] = {}
            for user in self._source.users.get(value, ()):
                if user.name not in _EVALUATE and any(r in self.lazy for r in user.results):
                    for result in user.results:
                        found.update(dict.fromkeys(self.uses(result)))
                else:
                    found[user] = None
            self._uses[value] = found
        return list(self._uses[value])

    # --- the decision -----------------------------------------------------------------------

    def _cost(self, op: Operation) -> int:
        """Operations to compute an element again; at most 1000."""
        if op.name in MIXES or op.regions or op.name in GENERATES:
            return 0
        inner = sum(self._costs.get(v, 0) for v in op.operands)
        if op.name in MOVES:
            return inner
        return min(1000, inner + (2 * CHEAP_OPERATIONS if op.name in _COSTLY else 1))

    def _decide(self, op: Operation, value: Value) -> None:
        if op.name in MIXES or op.regions:
            return
        uses = self.uses(value)
        direct = self._source.users.get(value, [])
        lean = self._lean and self._costs[value] < CHEAP_OPERATIONS
        if not lean and any(self._is_factor(user, value) for user in direct):
            return
        if self._reads(op) and any(self._is_written(op, use) for use in uses):
            return
        if op.name in GENERATES or not uses:
            self.lazy.add(value)
            return
        if any(self._source.crosses_loop(value, use) for use in uses):
            if op.name in DISPLACES:
                self.lazy.add(value)  # the operand is stored
            return
        cheap = self._costs[value] < CHEAP_OPERATIONS or op.name in DISPLACES
        again = len(uses) > 1 or any(user.name in DISPLACES for user in direct)
        if cheap or not again or self._only_moved(direct, uses):
            self.lazy.add(value)

    def _only_moved(self, direct: list[Operation], uses: list[Operation]) -> bool:
        """Whether each element is still read at most once, elsewhere."""
        moved = len(direct) == 1 and direct[0].name in (f"{PREFIX}transpose", f"{PREFIX}extract")
        return len(uses) == 1 and moved

    def _is_factor(self, user: Operation, value: Value) -> bool:
        """Whether a product reads the tile, as it is or transposed."""
        if user.name == f"{PREFIX}dot":
            return value in user.operands[:2] and not self._is_transpose(value)
        if user.name == f"{PREFIX}transpose":
            return any(
                after.name == f"{PREFIX}dot" and user.result in after.operands[:2]
                for after in self._source.users.get(user.result, ())
            )
        return False

    def _is_transpose(self, value: Value) -> bool:
        op = self._source.definition.get(value)
        return op is not None and swaps_matrix(op)

    def _reads(self, op: Operation) -> bool:
        return op.name in ARRAY_READS

    def _is_written(self, op: Operation, use: Operation) -> bool:
        """Whether something is written to the array that ``op`` reads before ``use`` is done."""
        root = self._root(op.operands[0])
        place, first = self._source.place[op], self._source.index[op]
        last = self._source.index_in(use, place)
        assert last is not None
        for writer in self._writers:
            if self._root(_array_of(writer)) is not root:
                continue
            if writer is use and self._same_place(op, use):
                continue
            at = self._source.index_in(writer, place)
            if at is not None and first < at <= last:
                return True
        return False

    def _same_place(self, load: Operation, store: Operation) -> bool:
        """Whether each element that ``store`` writes is computed from that element alone."""
        same = (
            load.name == f"{PREFIX}load"
            and store.operands[1] is load.operands[0]
            and load.attributes["dims"] == store.attributes["dims"]
            and load.attributes["steps"] == store.attributes.get("steps")  # a scatter has none
        )
        rank = len(tile_type(load.result).sizes)
        starts = load.operands[1 : len(load.operands) - rank]
        return (
            same
            and store.operands[2 : 2 + len(starts)] == starts
            and self._stays(load.result, set())
        )

    def _stays(self, value: Value, seen: set[Value]) -> bool:
        """Whether the lazy users of a tile all read the element of their own place; those of what
        was seen do, or the walk has ended."""
        if value in seen:
            return True
        seen.add(value)
        for user in self._source.users.get(value, ()):
            lazy = [r for r in user.results if r in self.lazy]
            if lazy and (user.name in DISPLACES or not all(self._stays(r, seen) for r in lazy)):
                return False
        return True

    def _root(self, view: Value) -> Value:
        op = self._source.definition.get(view)
        return view if op is None or op.name != "tile.view" else op.operands[0]

    # --- products ---------------------------------------------------------------------------

    def _widen(self) -> None:
        """Factors are stored in the dtype in which they are multiplied; that is exact."""
        for op in self._source.order:
            if op.name != f"{PREFIX}dot":
                continue
            dtype = op.result.element_dtype
            for value in op.operands[:2]:
                self.wide.setdefault(self.stored_factor(value)[0], dtype)

    def stored_factor(self, value: Value) -> tuple[Value, bool]:
        """The stored tile behind a factor, and whether the factor is its transpose."""
        op = self._source.definition.get(value)
        if op is not None and value in self.lazy and swaps_matrix(op):
            inner, transposed = self.stored_factor(op.operands[0])
            return inner, not transposed
        return value, False


def swaps_matrix(op: Operation) -> bool:
    """Whether an operation is the transpose of the last two axes."""
    if op.name != f"{PREFIX}transpose":
        return False
    permutation = op.integers("permutation")
    n = len(permutation)
    return permutation == (*range(n - 2), n - 1, n - 2)


def _array_of(op: Operation) -> Value:
    return op.operands[2] if op.name == "tile.atomic_cas" else op.operands[1]
