"""Index values that are another number in each lane of the grid, by how they are written.

The common forms only, found without any proof: the number of the lane in the grid, and the
counter of a loop that starts there and steps over the grid. Must not know ranges.
"""

from __future__ import annotations

from math import prod

from tessera_lang.ir.core import Operation, Value


def own_places(kernel: Operation) -> frozenset[Value]:
    """Such values; that a counter is also another one in each iteration does not matter here."""
    lanes = prod(kernel.integers("group"))
    made = {v: o for o in kernel.walk() for v in o.results}

    def is_(value: Value, name: str) -> bool:
        return value in made and made[value].name == f"tile.{name}"

    def times_lanes(value: Value, name: str) -> bool:
        """Whether it is ``name`` times the lanes of a group."""
        if lanes == 1 and is_(value, name):
            return True
        if not is_(value, "mul"):
            return False
        a, b = made[value].operands
        number = made[b].attributes.get("value") if is_(b, "constant") else None
        return is_(a, name) and number == lanes

    def is_number(value: Value) -> bool:
        """Whether it is the number of the lane in the grid."""
        if not is_(value, "add"):
            return False
        a, b = made[value].operands
        return any(
            times_lanes(x, "group_linear") and is_(y, "lane_linear") for x, y in ((a, b), (b, a))
        )

    # A number of groups along one axis is not that of all.
    all_axes = all(
        o.attributes["axis"] == -1 for o in made.values() if o.name == "tile.group_count"
    )
    own: set[Value] = {v for v in made if is_number(v)}
    for o in kernel.walk():
        if o.name == "tile.for" and is_number(o.operands[0]):
            if times_lanes(o.operands[2], "group_count") and all_axes:
                own.add(o.regions[0].arguments[0])
    return frozenset(own)
