"""What the checked runs of a process have looked at, and what not. Must not know how."""

from __future__ import annotations

from tessera_backend.cpu.checked.code import Facts
from tessera_backend.cpu.checked.lane_orders import Setting
from tessera_backend.runtime.bound_arguments import Bound
from tessera_lang.locks import free_lock
from tessera_lang.record import dataclass, field
from tessera_lang.target.launch_plan import LaunchPlan

_MOST_SHAPES = 3  # of a kernel that are told

_LOOKED_AT = (
    "looked at, for these arguments: races in shared and global memory, reads of shared memory and "
    "results that nobody has written, barriers, scopes of atomics, indices that wrap, loops "
    "without an end"
)
_NOT = (
    "not looked at: other arguments and sizes, other orders of lanes, the order in which atomics "
    "come, what lies behind products of tiles"
)  # fmt: skip


@dataclass(slots=True)
class _Seen:
    """Launches of one kernel."""

    facts: Facts
    group: tuple[int, ...]
    count: int = 0
    grids: dict[tuple[int, ...], None] = field(default_factory=dict[tuple[int, ...], None])
    sizes: dict[str, None] = field(default_factory=dict[str, None])


_kernels: dict[str, _Seen] = {}
_settings: dict[Setting, None] = {}
_noting = free_lock()


def note_launch(plan: LaunchPlan, facts: Facts, bound: Bound, setting: Setting) -> None:
    with _noting:
        seen = _kernels.setdefault(plan.kernel, _Seen(facts, plan.group))
        seen.count += 1
        seen.grids.setdefault(bound.axes)
        if len(seen.sizes) <= _MOST_SHAPES:
            seen.sizes.setdefault(_shapes(plan, bound))
        _settings.setdefault(setting)


def _shapes(plan: LaunchPlan, bound: Bound) -> str:
    parts: list[str] = []
    for at, slot in enumerate(plan.slots):
        array = bound.slots.arrays.get(at)
        if array is not None and slot.parameter < len(plan.parameters):
            shape = "x".join(map(str, array.shape))
            parts.append(f"{plan.parameters[slot.parameter].name} {shape}")
    return " ".join(parts)


def checked_report() -> tuple[str, ...]:
    """The kernels with their groups, grids, sizes and what of their memory was proved, the orders
    of lanes, and what a run in checked mode looks at."""
    if not _kernels:
        return ("checked: no kernel ran in checked mode",)
    lines = [_line(name, seen) for name, seen in sorted(_kernels.items())]
    lines += [_orders(s) for s in _settings]
    return (*lines, _LOOKED_AT, _NOT)


def _line(name: str, seen: _Seen) -> str:
    group = "x".join(map(str, seen.group))
    grids = ["x".join(map(str, g)) for g in seen.grids]
    shown = ", ".join(grids[:_MOST_SHAPES]) + (" ..." if len(grids) > _MOST_SHAPES else "")
    sizes = list(seen.sizes)
    told = "; ".join(sizes[:_MOST_SHAPES]) + (" ..." if len(sizes) > _MOST_SHAPES else "")
    facts = seen.facts
    looked = ", ".join(dict.fromkeys(r.name for r in facts.roots))
    parts = [f"checked: `{name}` {seen.count}x, groups of {group}, grid {shown}; {told}"]
    parts += [f"looked at {looked}"] if looked else ["nothing to look at"]
    parts += [f"proved {', '.join(facts.proved)}"] if facts.proved else []
    parts += [f"not looked at {', '.join(facts.blind)}"] if facts.blind else []
    return "; ".join(parts)


def _orders(setting: Setting) -> str:
    seed = f" (seed {setting.seed})" if "random" in setting.orders else ""
    return f"orders of lanes: {', '.join(setting.orders)}{seed}"
