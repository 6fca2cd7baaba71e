"""Options of a compilation and of the command line.

Owns their names, defaults and environment variables (``TESSERA_*``). Must not know who
parses them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from tessera_lang.record import dataclass
from tessera_lang.target.backend import TargetOptions

ColorChoice = Literal["auto", "always", "never"]
TARGETS = ("auto", "cpu", "cuda")
BOUNDS = ("guard", "off")


@dataclass(frozen=True, slots=True)
class Options:
    """What a compilation depends on beside the source. Every field has a variable
    ``TESSERA_`` and its name in capitals; ``TESSERA_PATH`` holds several folders."""

    target: str = "auto"
    arch: str = ""
    path: tuple[str, ...] = ()
    bounds: str = "guard"
    optimize: int = 3
    time_passes: bool = False
    arch_as: str = ""

    def for_target(self, target: str, arch: str) -> TargetOptions:
        """What a backend is told; ``target`` and ``arch`` are decided."""
        arch_as = self.arch_as if target == "cpu" else ""
        return TargetOptions(target, arch, self.bounds, self.optimize, arch_as)


def from_environment(environment: Mapping[str, str] | None = None) -> Options:
    """Options as the environment sets them. Raises ValueError naming a bad variable."""
    env = os.environ if environment is None else environment
    target = env.get("TESSERA_TARGET", "auto")
    bounds = env.get("TESSERA_BOUNDS", "guard")
    optimize = env.get("TESSERA_OPTIMIZE", "3")
    if bounds not in BOUNDS:
        raise ValueError(f"TESSERA_BOUNDS is {bounds!r}; it is `guard` or `off`")
    if optimize not in ("0", "3"):
        raise ValueError(f"TESSERA_OPTIMIZE is {optimize!r}; it is 0 or 3")
    folders = [p for p in env.get("TESSERA_PATH", "").split(os.pathsep) if p]
    return Options(
        target=target,
        arch=env.get("TESSERA_ARCH", ""),
        path=tuple(folders),
        bounds=bounds,
        optimize=int(optimize),
        time_passes=env.get("TESSERA_TIME_PASSES", "") not in ("", "0"),
        arch_as=env.get("TESSERA_ARCH_AS", ""),
    )
