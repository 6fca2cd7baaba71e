"""Which memory of a kernel has a shadow, and which needs none: nobody writes it, or it is proved.

Owns the choice; must not know LLVM.
"""

from __future__ import annotations

from math import prod

from tessera_backend.cpu.checked.words import KINDS, Kind
from tessera_backend.cpu.interchange import ARRAY_OPERAND
from tessera_lang.analysis.own_cells import owned
from tessera_lang.analysis.shared_check import check_shared
from tessera_lang.ir.core import BufferType, Operation, Value
from tessera_lang.record import dataclass
from tessera_lang.target.plan import LaunchPlan, Slot

_WHAT: dict[str, Kind] = {
    "tile.load": "read", "tile.store": "write", "tile.atomic": "atomic",
    "tile.atomic_cas": "atomic", "tile.atomic_load": "atomic", "tile.atomic_store": "atomic",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """An array or a shared buffer. ``argument``: its number, -1 for a buffer; ``fresh``: nobody
    has written it when the kernel begins."""

    name: str
    argument: int
    element: int
    kinds: tuple[Kind, ...]
    fresh: bool = False
    shape: tuple[int, ...] = ()

    @property
    def local(self) -> bool:
        return self.argument < 0


@dataclass(frozen=True, slots=True, eq=False)
class Roots:
    """``looked``: by the value whose memory it is, in order; ``proved``: names of what needs no
    look, as lanes cannot meet there; ``blind``: of what cannot be looked at."""

    looked: dict[Value, Root]
    proved: tuple[str, ...]
    blind: tuple[str, ...]


def roots_of(kernel: Operation, plan: LaunchPlan) -> Roots:
    uses = _uses(kernel)
    looked: dict[Value, Root] = {}
    proved: list[str] = []
    blind: list[str] = []
    safe = _buffers_proved(kernel, plan)
    alone = owned(kernel)
    arguments = {a: n for n, a in enumerate(kernel.regions[0].arguments)}
    for value, found in uses.items():
        number = arguments.get(value, -1)
        slot = plan.slots[number] if 0 <= number < len(plan.slots) else None
        root = _root(value, number, slot, plan, found)
        if root.local and len(found) == 1 and "other" in found:
            continue  # only whole products use it
        if "other" in found or (number >= 0 and (slot is None or slot.kind != "data")):
            blind.append(root.name)
        elif safe if root.local else value in alone and not (root.fresh and "read" in found):
            proved.append(root.name)
        elif _may_meet(root, found):
            looked[value] = root
    return Roots(looked, tuple(proved), tuple(blind))


def _uses(kernel: Operation) -> dict[Value, dict[str, None]]:
    """What is done to each array and buffer that anybody writes."""
    views: dict[Value, Value] = {}
    uses: dict[Value, dict[str, None]] = {}
    for o in kernel.walk():
        if o.name == "tile.view":
            views[o.result] = o.operands[0]
        elif o.name in ARRAY_OPERAND:
            array = o.operands[ARRAY_OPERAND[o.name]]
            found = uses.setdefault(views.get(array, array), {})
            found.setdefault(_WHAT[o.name])
            if o.name.startswith("tile.atomic") and o.attributes["scope"] in ("tile", "group"):
                found.setdefault("narrow")
        else:
            for v in o.operands:
                if v in views or isinstance(v.type, BufferType):
                    uses.setdefault(views.get(v, v), {}).setdefault("other")
    return {v: f for v, f in uses.items() if isinstance(v.type, BufferType) or set(f) != {"read"}}


def _root(
    value: Value, number: int, slot: Slot | None, plan: LaunchPlan, found: dict[str, None]
) -> Root:
    kinds = tuple(k for k in KINDS if k in found)
    if isinstance(value.type, BufferType):
        name, size, shape = value.name, value.type.dtype.bytes, value.type.shape
        return Root(name, -1, size, ("write", *kinds[kinds[:1] == ("write",) :]), True, shape)
    parameter = slot.parameter if slot is not None else -1
    size = value.type.dtype.bytes  # type: ignore[union-attr]
    if 0 <= parameter < len(plan.parameters):
        return Root(plan.parameters[parameter].name, number, size, kinds)
    result = parameter - len(plan.parameters)
    fresh = 0 <= result < len(plan.results) and not plan.results[result].zeroed
    kinds = ("write", *kinds[kinds[:1] == ("write",) :]) if fresh else kinds
    return Root("the result", number, size, kinds, fresh)


def _may_meet(root: Root, found: dict[str, None]) -> bool:
    """Atomics that reach every group meet nobody."""
    return root.fresh and "read" in found or set(found) != {"atomic"}


def _buffers_proved(kernel: Operation, plan: LaunchPlan) -> bool:
    if not any(o.name in ("tile.shared.alloc", "tile.local.alloc") for o in kernel.walk()):
        return True
    found = check_shared(kernel, plan)
    return (found.races, found.unwritten) == ("proved", "proved")


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


def lanes_of(kernel: Operation) -> int:
    group = kernel.attributes["group"]
    assert isinstance(group, tuple)
    return prod(int(n) for n in group)  # type: ignore[arg-type]
