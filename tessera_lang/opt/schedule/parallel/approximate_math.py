"""What is computed less exactly, as nobody sees the difference: powers and quotients by products.

What products take is rounded to a float of at most 16 bits, which hides the error of the machine's
powers (``2 * abs(x) + 4`` units of the last place of an f32 where 65000 of them are one of a
bf16). A sum of such powers has f32 terms: each is off by at most 2**-21 where none is above 1, as
behind ``x - max(x)``. A quotient of what a product gives, rounded so, need not be an f32 rounded
to nearest either. Owns these conditions. Must not know a function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.definitions import MOVES, PERMUTES
from tessera_lang.ir.rewrite import Replacement, rewrite_program
from tessera_lang.opt.schedule.query.def_use import users_of
from tessera_lang.opt.schedule.query.float_ranges import FloatRanges, dtype_of
from tessera_lang.opt.schedule.query.kernel_facts import DOT, MASK, REDUCE, kernel_of
from tessera_lang.record import replace
from tessera_lang.types.dtype import F32

_EITHER = "tile.either"
_Users = Mapping[Value, Sequence[Operation]]


def quick_forms(program: Program) -> Program:
    """``program`` with one form of each function that has two, and marks at quotients; itself where
    there is neither."""
    kernel = kernel_of(program)
    if not kernel.holds((_EITHER, DOT)):
        return program
    return rewrite_program(program, _Choice(users_of(kernel)).step)


class _Choice:
    def __init__(self, users: _Users) -> None:
        self._users = users
        self._ranges = FloatRanges()

    def step(self, operation: Operation) -> Replacement | Operation | None:
        if operation.name == "tile.div" and self._is_rounded(operation):
            operation = replace(operation, attributes={**operation.attributes, "rounded": True})
            self._ranges.see(operation)
            return operation
        if operation.name != _EITHER:
            self._ranges.see(operation)
            return None
        exact, quick = operation.operands
        return Replacement((), (quick if self._is_enough(operation.result, quick) else exact,))

    def _is_enough(self, result: Value, quick: Value) -> bool:
        found = _uses(result, self._users)
        if "other" in found or "factor" not in found:
            return False
        return "term" not in found or self._ranges.of(quick)[1] <= 1

    def _is_rounded(self, division: Operation) -> bool:
        """Whether a quotient of what a product gives is only rounded to a short float."""
        users = self._users.get(division.result, ())
        if dtype_of(division.result) != F32 or not users:
            return False
        short = all(u.name == "tile.cast" and _is_short(u.result) for u in users)
        return short and self._is_of_product(division.operands[0], set())

    def _is_of_product(self, value: Value, seen: set[Value]) -> bool:
        """Whether a product has to do with a tile, which is the sum of a loop perhaps."""
        made = self._ranges.definitions.get(value)
        if value in seen or made is None or not isinstance(value.type, TileType):
            return False
        seen.add(value)
        if made.name == DOT:
            return True
        if made.regions:
            at = made.results.index(value)
            ends = [r.terminator.operands for r in made.regions]
            return any(self._is_of_product(e[at], seen) for e in ends if len(e) > at)
        return any(self._is_of_product(v, seen) for v in made.operands)


def _uses(value: Value, users: _Users) -> set[str]:
    """What becomes of the elements of a tile: factors of products behind a rounding, terms of sums,
    or other things."""
    found: set[str] = set()
    for user in users.get(value, ()):
        if _hands_on(user, value):
            found |= _uses(user.result, users)
        elif user.name == REDUCE and user.attributes["kind"] == "add":
            found.add("term")
        elif user.name == "tile.cast" and _is_short(user.result):
            found.add("factor" if _is_factor(user.result, users) else "other")
        else:
            found.add("other")
    return found


def _is_short(value: Value) -> bool:
    """Whether an approximation in f32 that is rounded to these floats is off by at most 0.51 units
    in their last place."""
    dtype = dtype_of(value)
    return dtype is not None and dtype.is_float and dtype.bits <= 16


def _is_factor(value: Value, users: _Users) -> bool:
    """Whether products take the elements of a tile, and nothing else does."""
    found = users.get(value, ())
    return bool(found) and all(
        _is_factor(user.result, users) if _hands_on(user, value)
        else user.name == DOT and value is not user.operands[2]
        for user in found
    )  # fmt: skip


def _hands_on(user: Operation, value: Value) -> bool:
    """Whether elements of the result are those of a tile, and others are numbers of elsewhere."""
    if user.name == "tile.select":
        return value is not user.operands[0]
    return user.name in MOVES | PERMUTES or user.name == MASK and value is user.operands[0]
