"""What a schedule asks for that loops of lanes do not give, each with its reason.

Owns the remarks on directives of this lowering. Must not know how anything is lowered.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Attribute, Operation
from tessera_lang.opt.schedule.query.context import said_by_user
from tessera_lang.target.machine import Machine

_ONE_CORE = {
    "use_shared_memory": "a core has caches, and no memory that is filled by hand",
    "async_copy": "a core has no copies that run beside it",
    "pipeline_stages": "a core has no copies that run beside it",
    "vectorize": "the compiler of the loops chooses their vectors",
    "warps": "a group is one thread of the machine",
    "warp_specialize": "a group is one thread of the machine",
    "cluster": "groups have no memory in common but the machine's",
    "persistent": "the threads of the machine take group after group anyway",
    "swizzle": "a core has no banks to spread over",
}
_LANES = "tiles of this kernel are loops of lanes"
_NOTHING: dict[str, Attribute] = {
    "pipeline_stages": 1, "vectorize": 1, "warps": 1, "swizzle": 0, "cluster": (),
}  # fmt: skip
"""What asks for nothing, where that is not False."""


def notes_on_directives(kernel: Operation, machine: Machine) -> list[Diagnostic]:
    """Why directives are not honoured. ``tile`` and ``unroll`` are, wherever code is for."""
    found: list[Diagnostic] = []
    for name, on_a_core in _ONE_CORE.items():
        said = kernel.attributes.get(name)
        if said is None or not said_by_user(kernel, name) or _asks_nothing(name, said):
            continue
        reason = on_a_core if machine.target == "cpu" else _LANES
        shown = f"({', '.join(map(str, said))})" if isinstance(said, tuple) else str(said)
        message = f"`schedule.{name}({shown})` is not honoured: {reason}"
        found.append(Diagnostic("T0742", message, kernel.span, severity="note"))
    return found


def _asks_nothing(name: str, said: Attribute) -> bool:
    if isinstance(said, tuple):
        return all(n == 1 for n in said)
    return said == _NOTHING.get(name, False)
