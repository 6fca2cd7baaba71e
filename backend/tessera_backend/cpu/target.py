"""What code is written for: a value that text, blocking and LLVM agree on."""

from __future__ import annotations

from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """``convention``: LLVM's calling convention, "" for C on ELF systems."""

    triple: str
    cpu: str
    features: str
    has_fma: bool
    convention: str = ""
    red_zone: bool = True
