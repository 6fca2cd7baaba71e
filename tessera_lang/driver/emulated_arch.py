"""``--as``: which architectures' code the CPU runs operation by operation, and on which target.

Must not know who runs it.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.target.arch import find_architecture, unknown_architecture


def refused_as(target: str, arch_as: str) -> Diagnostic | None:
    """Why code for an architecture cannot be run on the CPU; ``auto`` means the CPU here."""
    if find_architecture(arch_as) is None:
        return unknown_architecture(arch_as, "no architecture whose code runs on the CPU (--as)")
    if target not in ("auto", "cpu"):
        return Diagnostic(
            "T0814", f"--as {arch_as} runs code for a GPU on the CPU, and the target is `{target}`",
            helps=("leave --target out, or say `--target cpu`",),
        )  # fmt: skip
    return None
