"""How far tests optimize code for the CPU: in the fast run little, in all others as for users.

A third of what the fast run took was LLVM at work on code that runs once, on few elements. Level 1
makes it in a sixth of the time. Tests with the marker ``optimized`` get what users get in every
run: those that look at the code, and those that look for faults that only optimization shows.
"""

from __future__ import annotations

import pytest

from tessera_lang.driver.options import Options
from tessera_lang.record import replace
from tessera_lang.target.backend import TargetOptions

FULL, QUICK = 3, 1

_level = FULL


def level() -> int:
    """The level of code for the CPU that the test which runs now asks for."""
    return _level


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
        _level = FULL if item.get_closest_marker("optimized") else QUICK
