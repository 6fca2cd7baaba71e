"""Whether a long piece of work is still wanted.

Owns the point at which work may be left: where nothing is half made, the compiler calls ``pause``,
and whoever waits for the thread has a turn, or raises ``Dropped``. Must not know who waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Dropped(BaseException):
    """Nobody wants the result any more; no fault, so that nothing on the way reports it."""


class _Turn(threading.local):
    give: Callable[[], None] | None = None


_turn = _Turn()


@contextmanager
def giving_turns(give: Callable[[], None] | None) -> Generator[None]:
    """Within this, ``pause`` calls ``give`` in this thread; None: nobody waits."""
    before = _turn.give
    _turn.give = give
    try:
        yield
    finally:
        _turn.give = before


def pause() -> None:
    """Where work may be left or interrupted. Raises Dropped."""
    if _turn.give is not None:
        _turn.give()
