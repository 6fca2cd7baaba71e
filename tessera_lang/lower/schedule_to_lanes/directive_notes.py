"""What a schedule asks for that loops of lanes do not give, each with its reason.

Owns the remarks on directives of this lowering. Must not know how anything is lowered.
"""

from __future__ import annotations

from tessera_grammar.directives import DIRECTIVES, asks_nothing

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation
from tessera_lang.opt.schedule.query.decision_context import said_by_user
from tessera_lang.target.machine import Machine

_LANES = "tiles of this kernel are loops of lanes"


def notes_on_directives(kernel: Operation, machine: Machine) -> list[Diagnostic]:
    """Why directives are not honoured; those whose row has no reason are, wherever code is for."""
    found: list[Diagnostic] = []
    for name, directive in DIRECTIVES.items():
        said = kernel.attributes.get(name)
        if not directive.on_a_core or said is None or not said_by_user(kernel, name):
            continue
        if asks_nothing(directive.parameters[0], said):
            continue
        reason = directive.on_a_core if machine.target == "cpu" else _LANES
        shown = f"({', '.join(map(str, said))})" if isinstance(said, tuple) else str(said)
        message = f"`schedule.{name}({shown})` is not honoured: {reason}"
        found.append(Diagnostic("T0742", message, kernel.span, severity="note"))
    return found
