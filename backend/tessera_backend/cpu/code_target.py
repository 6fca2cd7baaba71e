"""What code is written for: a value that text, blocking and LLVM agree on."""

from __future__ import annotations

from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class CodeTarget:
    """``convention``: LLVM's calling convention, "" for C on ELF systems. ``needs``: what the
    processor must have, by LLVM's names (see ``features.py``)."""

    triple: str
    cpu: str
    features: str
    has_fma: bool
    convention: str = ""
    red_zone: bool = True
    needs: tuple[str, ...] = ()

    @property
    def has_f16c(self) -> bool:
        """Whether the CPU converts f16; else LLVM would call a library."""
        return not self.triple.startswith("x86_64") or "f16c" in self.needs
