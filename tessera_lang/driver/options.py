"""Options of a compilation and of the command line.

Owns their names, defaults and environment variables (``TESSERA_*``). Must not know who
parses them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from tessera_lang.record import dataclass
from tessera_lang.target.backend import TargetOptions

ColorChoice = Literal["auto", "always", "never"]
TARGETS = ("auto", "cpu", "cuda")
BOUNDS = ("guard", "off")
LANE_ORDERS = ("all", "forward", "reverse", "random")


@dataclass(frozen=True, slots=True)
class Options:
    """What a compilation depends on beside the source. Every field has a variable
    ``TESSERA_`` and its name in capitals; ``TESSERA_PATH`` holds several folders."""

    target: str = "auto"
    arch: str = ""
    path: tuple[str, ...] = ()
    bounds: str = "guard"
    optimize: int = 3
    arch_as: str = ""
    checked: bool = False
    lane_order: str = "all"
    lane_seed: int = 1

    def for_target(self, target: str, arch: str) -> TargetOptions:
        """What a backend is told; ``target`` and ``arch`` are decided."""
        arch_as = self.arch_as if target == "cpu" else ""
        checked = self.checked and target == "cpu"
        return TargetOptions(target, arch, self.bounds, self.optimize, arch_as, checked)


def _is_on(value: str) -> bool:
    return value.lower() not in ("", "0", "no", "off", "false")


def _of_project(folder: str | None) -> Mapping[str, Any]:
    from tessera_lang.driver.project import project

    found = project(folder)
    return {} if found is None else found.settings


def from_environment(
    environment: Mapping[str, str] | None = None, folder: str | None = None
) -> Options:
    """Options as the environment sets them, else the project of ``folder`` or the working folder,
    which counts where no ``environment`` is given. Raises ValueError naming a bad variable, and
    TesseraError for a bad project."""
    env = os.environ if environment is None else environment
    own: Mapping[str, Any] = _of_project(folder) if environment is None else {}
    target = env.get("TESSERA_TARGET", str(own.get("target", "auto")))
    bounds = env.get("TESSERA_BOUNDS", str(own.get("bounds", "guard")))
    optimize = env.get("TESSERA_OPTIMIZE", str(own.get("optimize", 3)))
    if bounds not in BOUNDS:
        raise ValueError(f"TESSERA_BOUNDS is {bounds!r}; it is `guard` or `off`")
    if optimize not in ("0", "3"):
        raise ValueError(f"TESSERA_OPTIMIZE is {optimize!r}; it is 0 or 3")
    lane_order, lane_seed = env.get("TESSERA_LANE_ORDER", "all"), env.get("TESSERA_LANE_SEED", "1")
    if lane_order not in LANE_ORDERS:
        raise ValueError(f"TESSERA_LANE_ORDER is {lane_order!r}; it is one of {LANE_ORDERS}")
    if not lane_seed.isdecimal():
        raise ValueError(f"TESSERA_LANE_SEED is {lane_seed!r}; it is a number from 0 up")
    named = env.get("TESSERA_PATH")
    folders: Iterable[str] = own.get("path", ()) if named is None else named.split(os.pathsep)
    return Options(
        target=target,
        arch=env.get("TESSERA_ARCH", str(own.get("arch", ""))),
        path=tuple(p for p in folders if p),
        bounds=bounds,
        optimize=int(optimize),
        arch_as=env.get("TESSERA_ARCH_AS", ""),
        checked=_is_on(env.get("TESSERA_CHECKED", "")),
        lane_order=lane_order,
        lane_seed=int(lane_seed),
    )
