"""The bounds condition of a guarded access, as linear expressions that have to be at least 0.

Must not know groups of accesses.
"""

from __future__ import annotations

from typing import TypeAlias, cast

from tessera_lang.analysis.guards.hoistable_values import NEAR, Ahead
from tessera_lang.analysis.ranges.accesses import ACCESSES
from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.ir.core import Operation, Value
from tessera_lang.record import dataclass, field

_MOST = 12
Terms: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """``sum(coefficient * value) + constant``."""

    terms: tuple[tuple[Value, int], ...]
    constant: int


@dataclass(frozen=True, slots=True)
class Bound:
    """``factor * counter`` of a loop is at most ``most``."""

    factor: int
    most: Sum


@dataclass(slots=True)
class Needs:
    """Sums that are at least 0, by their terms the least constant. ``bounds``: those that hold as
    long as a factor of the counter of a loop is at most the sum."""

    sums: dict[Terms, int] = field(default_factory=dict[Terms, int])
    bounds: dict[tuple[Terms, int], int] = field(default_factory=dict["tuple[Terms, int]", int])

    def need(self, terms: Terms, constant: int) -> None:
        self.sums[terms] = min(constant, self.sums.get(terms, constant))

    def join(self, other: Needs) -> bool:
        """Adds what another access needs; False where that is too much."""
        count = len(self.sums.keys() | other.sums.keys())
        if count + len(self.bounds.keys() | other.bounds.keys()) > _MOST:
            return False
        for terms, constant in other.sums.items():
            self.need(terms, constant)
        for key, constant in other.bounds.items():
            self.bounds[key] = min(constant, self.bounds.get(key, constant))
        return True

    def covers(self, other: Needs) -> bool:
        """Whether what another access needs holds where these do."""
        return all(self.sums.get(t, c + 1) <= c for t, c in other.sums.items()) and all(
            self.bounds.get(k, c + 1) <= c for k, c in other.bounds.items()
        )


def needs_of(access: Operation, ahead: Ahead, split: Operation | None = None) -> Needs | None:
    """What has to hold for an access; None where that is not known ahead, or it never does.

    ``split``: a loop that may be left to a bound: it holds up to there."""
    at = ACCESSES[access.name]
    array, indices = access.operands[at], access.operands[at + 1 :]
    axes = cast("tuple[int, ...]", access.attributes.get("open", range(len(indices))))
    tests = Needs()
    for axis in axes:
        index, size = ahead.form(indices[axis]), _size(array, axis, ahead)
        if index is None or size is None:
            return None
        for form in (index, (size - index).shifted(-1)):
            least = ahead.least(form, split)
            if least is None or not _add(tests, least, ahead, split):
                return None
    return tests


def _size(array: Value, axis: int, ahead: Ahead) -> Linear | None:
    extent = array.array_type.shape[axis]
    if extent is not None:
        return Linear((), extent)
    view = ahead.values.definitions.get(array)
    if view is None or view.name != "tile.view":
        return None
    return ahead.form(view.operands[1 + axis])


def _add(tests: Needs, least: Linear, ahead: Ahead, split: Operation | None) -> bool:
    """Adds a test, and those under which its sums cannot wrap. False: it is never so."""
    factor = 0
    if split is not None:
        counter = ahead.values.atom(split.regions[0].arguments[0])
        factor = -least.coefficient(counter)
        least = least.replaced(counter, Linear())
        if factor < 0:
            raise AssertionError("the least of a sum has the lowest number of what is added")
    bounds = near(tests, least, ahead)
    if bounds is None or (bounds[1] < 0 and not factor):
        return False
    if factor:
        key = least.terms, factor
        tests.bounds[key] = min(least.constant, tests.bounds.get(key, least.constant))
    elif bounds[0] < 0:
        tests.need(least.terms, least.constant)
    return True


def near(tests: Needs, form: Linear, ahead: Ahead) -> tuple[int, int] | None:
    """Bounds of a sum, under tests that are added; None where it might wrap even so."""
    low = high = form.constant
    for atom, coefficient in form.terms:
        value = ahead.values.atoms[atom]
        loop = ahead.values.lasts.get(value)
        for part in (value,) if loop is None else loop.operands[:2]:
            least, most = ahead.values.interval(part, ahead)
            if max(-least, most) > NEAR:
                own = ahead.values.atom(part)
                tests.need(((own, 1),), NEAR)
                tests.need(((own, -1),), NEAR)
        limit = NEAR if loop is None else 2 * NEAR
        least, most = ahead.values.interval(value, ahead)
        ends = [coefficient * max(least, -limit), coefficient * min(most, limit)]
        low, high = low + min(ends), high + max(ends)
    return None if high - low > 1 << 61 else (low, high)
