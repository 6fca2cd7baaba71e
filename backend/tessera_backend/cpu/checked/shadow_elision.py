"""Which memory of a kernel has a shadow, and which needs none: nobody writes it, or it is proved.

Owns the choice; must not know LLVM.
"""

from __future__ import annotations

from math import prod
from typing import Literal, TypeAlias

from tessera_backend.cpu.checked.shadow_words import KINDS, Kind
from tessera_backend.cpu.interchange import ARRAY_OPERAND
from tessera_lang.analysis.races.lane_owned_arrays import owned
from tessera_lang.analysis.races.shared_check import unproved_buffers
from tessera_lang.analysis.ranges.integer_ranges import Ranges
from tessera_lang.ir.core import BufferType, Operation, PointerType, Value
from tessera_lang.record import dataclass, replace
from tessera_lang.target.launch_plan import LaunchPlan, Slot

Uses: TypeAlias = "dict[Kind | Literal['narrow', 'other'], None]"
"""What is done to some memory; ``narrow``: by an atomic of the group's scope, ``other``: by what
is no access of an element."""
WHAT: dict[str, Kind] = {
    "tile.load": "read", "tile.store": "write", "tile.atomic": "atomic",
    "tile.atomic_cas": "atomic", "tile.atomic_load": "atomic", "tile.atomic_store": "atomic",
}  # fmt: skip


OF_A_GROUP, OF_A_LANE = -1, -2
"""Instead of an argument's number. Lanes have their parts of a buffer along its last axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """An array or a buffer. ``argument``: its number, or whose buffer it is; ``fresh``: nobody has
    written it when the kernel begins."""

    name: str
    argument: int
    element: int
    kinds: tuple[Kind, ...]
    fresh: bool = False
    shape: tuple[int, ...] = ()
    alone: bool = False  # no two lanes meet there: looked at is only what nobody has written

    @property
    def local(self) -> bool:
        return self.argument < 0


@dataclass(frozen=True, slots=True, eq=False)
class Roots:
    """``looked``: by the value whose memory it is, in order; ``proved``: names of what needs no
    look, as lanes meet there by atomics at most, that reach them all; ``blind``: of what cannot be
    looked at; ``known``: the ranges of the kernel."""

    looked: dict[Value, Root]
    proved: tuple[str, ...]
    blind: tuple[str, ...]
    known: Ranges


def roots_of(kernel: Operation, plan: LaunchPlan) -> Roots:
    uses = _uses(kernel)
    looked: dict[Value, Root] = {}
    proved: list[str] = []
    blind: list[str] = []
    own, known = owned(kernel)
    unproved = unproved_buffers(kernel, known)
    arguments = {a: n for n, a in enumerate(kernel.regions[0].arguments)}
    names = {o.operands[0]: o.result.name for o in kernel.walk() if o.name == "tile.view"}
    for value, found in uses.items():
        number = arguments.get(value, -1)
        slot = plan.slots[number] if 0 <= number < len(plan.slots) else None
        root = _root(value, number, slot, plan, found, names.get(value, ""))
        if root.local and len(found) == 1 and "other" in found:
            continue  # only whole products use it
        if "other" in found or (number >= 0 and (slot is None or slot.kind != "data")):
            blind.append(root.name)
            continue
        if root.local:
            meets = lanes_of(kernel) > 1 and value in unproved.races
            written = value not in unproved.reads
        else:
            meets, written = value not in own, not (root.fresh and "read" in found)
        if not written and not meets:
            looked[value] = replace(root, kinds=("write",), alone=True)
        elif not written or (meets and set(found) != {"atomic"}):
            looked[value] = root
        else:
            proved.append(root.name)
    return Roots(looked, tuple(proved), tuple(blind), known)


def _uses(kernel: Operation) -> dict[Value, Uses]:
    """What is done to each array and buffer that anybody writes."""
    views: dict[Value, Value] = {}
    uses: dict[Value, Uses] = {}
    for o in kernel.walk():
        if o.name == "tile.view":
            views[o.result] = o.operands[0]
        elif o.name in ARRAY_OPERAND:
            array = o.operands[ARRAY_OPERAND[o.name]]
            found = uses.setdefault(views.get(array, array), {})
            found.setdefault(WHAT[o.name])
            if o.name.startswith("tile.atomic") and o.attributes["scope"] in ("tile", "group"):
                found.setdefault("narrow")
        else:
            for v in o.operands:
                if v in views or isinstance(v.type, BufferType):
                    uses.setdefault(views.get(v, v), {}).setdefault("other")
    return {v: f for v, f in uses.items() if isinstance(v.type, BufferType) or set(f) != {"read"}}


def _root(
    value: Value, number: int, slot: Slot | None, plan: LaunchPlan, found: Uses, view: str
) -> Root:  # fmt: skip
    t = value.type
    if isinstance(t, BufferType) and t.space == "local":
        return Root(value.name, OF_A_LANE, t.dtype.bytes, ("write",), True, t.shape)
    if isinstance(t, BufferType):
        return Root(value.name, OF_A_GROUP, t.dtype.bytes, _kinds(found, fresh=True), True, t.shape)
    if not isinstance(t, PointerType):
        raise TypeError("memory is an array or a buffer")
    parameter = slot.parameter if slot is not None else -1
    if 0 <= parameter < len(plan.parameters):
        name, fresh = plan.parameters[parameter].name, False
    else:
        result = parameter - len(plan.parameters)
        mine = 0 <= result < len(plan.results) and not plan.launches_before
        fresh = mine and not plan.results[result].zeroed
        private = 0 <= result < len(plan.results) and plan.results[result].kept
        name = view if private and view else "the result"
    return Root(name, number, t.dtype.bytes, _kinds(found, fresh=fresh), fresh)


def _kinds(found: Uses, *, fresh: bool) -> tuple[Kind, ...]:
    """Whether somebody has written a fresh element is told by the shadow of writes."""
    return tuple(k for k in KINDS if k in found or (k == "write" and fresh))


def waits(kernel: Operation) -> bool:
    """Whether groups may be ordered by atomics: then they run in the order of their numbers."""
    for o in kernel.walk():
        if o.name == "tile.fence" and o.attributes["scope"] in ("device", "mesh"):
            return True
        if o.name.startswith("tile.atomic") and o.attributes["order"] != "relaxed":
            return True
        if o.name == "tile.while" and any(i.name.startswith("tile.atomic") for i in o.walk()):
            return True
    return False


def hands_over(kernel: Operation) -> bool:
    """Whether lanes or groups may be ordered by atomics or fences."""
    for o in kernel.walk():
        if o.name == "tile.fence" or o.name.startswith("tile.atomic"):
            if o.attributes["scope"] != "tile" and o.attributes.get("order") != "relaxed":
                return True
    return waits(kernel)


def lanes_of(kernel: Operation) -> int:
    return prod(kernel.integers("group"))
