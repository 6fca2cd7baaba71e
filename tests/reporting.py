"""What a run of the tests tells: each failure at once, and the processor time of every test.

A run of thousands of tests that is cut off by a time limit says nothing of what it found if the
failures stand at its end. Processor time is the measure of a test, since wall time on a machine
that does other things as well says little of it.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

CPU = "cpu_seconds"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times",
        metavar="FILE",
        type=Path,
        help="write the processor time of every test, its fixtures and processes, to FILE",
    )


def _spent() -> float:
    """Seconds of processor time that this process and those it waited for have taken."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was spent since the test began, into the report: the last phase has all of it."""
    report = yield
    report.user_properties.append((CPU, _spent() - item.stash.setdefault(_BEGUN, 0.0)))
    return report


_BEGUN = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEGUN] = _spent()
    return (yield)


class Reporter:
    """Lives in the process that writes to the terminal, which with xdist runs no test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._file: Path | None = config.getoption("--cpu-times")
        self._spent: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._tell(report)
        for name, value in report.user_properties:
            if name == CPU:
                self._spent[report.nodeid] = float(str(value))
        if report.when == "teardown" and len(self._spent) % 100 == 0:
            self._write()  # what is known so far, should the run be cut off

    def _tell(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            return
        worker = getattr(report, "worker_id", "")
        phase = "" if report.when == "call" else f" ({report.when})"
        terminal.write_line("")
        terminal.write_line(f"FAILED AT ONCE {report.nodeid}{phase} {worker}".rstrip(), red=True)
        terminal.write_line(report.longreprtext)
        terminal.flush()

    def pytest_sessionfinish(self) -> None:
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        lines = [f"{seconds:10.3f} {test}" for test, seconds in self._spent.items()]
        lines.sort(reverse=True)
        self._file.write_text("\n".join([*_by_folder(self._spent), "", *lines, ""]), "utf-8")


def _by_folder(spent: dict[str, float]) -> list[str]:
    """A line for all, for each folder and for each file, with the seconds of its tests."""
    sums: defaultdict[str, float] = defaultdict(float)
    for test, seconds in spent.items():
        path = Path(test.partition("::")[0])
        for place in (path, *path.parents):
            sums[place.as_posix()] += seconds
    return [f"{seconds:10.1f} {place}" for place, seconds in sorted(sums.items())]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporter(config), "tessera-reporter")
