"""For tests: whether two programs say the same."""

from __future__ import annotations

from tessera_lang.ir.core import Program
from tessera_lang.ir.printer import print_program


def same_program(a: Program, b: Program) -> bool:
    """Whether two programs are equal but for names of values and spans."""
    return a.level == b.level and print_program(a, names=False) == print_program(b, names=False)
