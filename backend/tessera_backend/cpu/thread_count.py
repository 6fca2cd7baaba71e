"""How many threads a launch on the CPU may use: what was set, the environment, or the processors.

Must not know launches.
"""

from __future__ import annotations

import operator
import os
from typing import Any, SupportsIndex

from tessera_backend.cpu.host_cpu import processor_count
from tessera_lang.diagnostics import Diagnostic, TesseraError

MOST_THREADS = 256
VARIABLE = "TESSERA_NUM_THREADS"


class _Number:
    """0: not decided yet; the environment is read at the first launch. ``words``: where machine
    code looks at place ``at`` whether launches have one thread."""

    chosen = 0
    words: Any = None
    at = 0

    @classmethod
    def choose(cls, number: int) -> None:
        cls.chosen = number
        if cls.words is not None:
            cls.words[cls.at] = int(number == 1)


def thread_count() -> int:
    """Threads of a launch, the calling one included. Raises TesseraError (T0856) where the
    environment says something else than a number."""
    return _Number.chosen or _of_environment()


def share_thread_count(words: Any, at: int) -> None:
    """From now on ``words[at]`` is 1 while launches are known to have one thread, otherwise 0."""
    _Number.words, _Number.at = words, at
    _Number.choose(_Number.chosen)


def set_thread_count(count: object) -> None:
    """From the next launch on, in this process; None: as the environment says, again. Raises
    TesseraError (T0856) for what is no integer from 1 to 256."""
    if count is None:
        _Number.choose(0)
        return
    if isinstance(count, bool) or not isinstance(count, SupportsIndex):
        raise _refused(f"{count!r} is no number of threads")
    number = operator.index(count)
    if not 1 <= number <= MOST_THREADS:
        raise _refused(f"{number} is no number of threads")
    _Number.choose(number)


def _of_environment() -> int:
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        number = min(processor_count(), MOST_THREADS)
    else:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
        if not 1 <= number <= MOST_THREADS:
            raise _refused(f"{VARIABLE} is {text[:40]!r}, no number of threads")
    _Number.choose(number)
    return number


def _refused(what: str) -> TesseraError:
    helps = (f"give an integer from 1 to {MOST_THREADS}",)
    return TesseraError((Diagnostic("T0856", what, helps=helps),))
