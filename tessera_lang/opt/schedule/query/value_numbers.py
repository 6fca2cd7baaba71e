"""Value numbering of index arithmetic: equal numbers are surely computed alike of the same values.

Owns the numbers; says nothing of what values are. Must not know loops nor accesses.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import is_pure
from tessera_lang.record import dataclass, field


@dataclass(slots=True, eq=False)
class ValueNumbers:
    """Numbers of the values of one kernel, made as they are asked for."""

    definitions: Mapping[Value, Operation]
    _numbers: dict[Value, int] = field(default_factory=dict[Value, int])
    _expressions: dict[Hashable, int] = field(default_factory=dict[Hashable, int])

    def of(self, value: Value | None) -> int:
        """The number of a value; -1 of none."""
        if value is None:
            return -1
        found = self._numbers.get(value)
        if found is None:
            o = self.definitions.get(value)
            key: Hashable = value
            if o is not None and is_pure(o) and not o.regions and len(o.results) == 1:
                attributes = tuple(sorted((n, repr(a)) for n, a in o.attributes.items()))
                key = (o.name, value.type, attributes, *map(self.of, o.operands))
            found = self._expressions.setdefault(key, len(self._expressions))
            self._numbers[value] = found
        return found
