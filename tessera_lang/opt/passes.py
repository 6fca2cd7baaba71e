"""What a pass is: a frozen value, so that a pipeline is a tuple and a runner can time,
verify and name each step. Must not know any pass."""

from __future__ import annotations

from collections.abc import Callable

from tessera_lang.ir.core import Level, Program
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of a pipeline: what it takes, what it gives, and the function."""

    name: str
    takes: Level
    gives: Level
    run: Callable[[Program], Program]
