"""How far tests optimize code for the CPU: in the fast run not at all, in all others as for users.

Half of what the fast run took was LLVM at work on code that runs once, on few elements. Tests with
the marker ``optimized`` get what users get in every run: those that look at the code, and those
that look for faults that only optimization shows. The others see what the compiler generates, as
users with ``TESSERA_OPTIMIZE=0`` do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tessera_lang.driver.options import Options
from tessera_lang.record import replace
from tessera_lang.target.backend import TargetOptions

FULL, QUICK = 3, 0

_level = FULL


def level() -> int:
    """The level of code for the CPU that the test which runs now asks for."""
    return _level


def environment() -> dict[str, str]:
    """What a process that a test starts gets, to optimize as that test does."""
    return {} if _level == FULL else {"TESSERA_OPTIMIZE": str(_level)}


def optimized_of(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """Values of a parameter; the cases with those ``chosen`` have the marker ``optimized``."""
    return [pytest.param(v, marks=pytest.mark.optimized) if v in chosen else v for v in values]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr") != "not slow":
        return
    config.pluginmanager.register(_Chooser(), "tessera-quick-code")
    given = Options.for_target

    def for_target(self: Options, target: str, arch: str) -> TargetOptions:
        found = given(self, target, arch)
        if target == "cpu" and found.optimize == FULL:
            return replace(found, optimize=level())
        return found

    Options.for_target = for_target


class _Chooser:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        global _level
        whole = item.get_closest_marker("optimized") or item.get_closest_marker("gpu")
        _level = FULL if whole else QUICK
