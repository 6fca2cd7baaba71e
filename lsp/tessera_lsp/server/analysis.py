"""The thread that owns what is known of files: edits, requests and checks, one after the other.

Owns the order: edits and requests as they came, before any check; a check is interrupted by
requests and dropped for an edit. Must not know what is asked or checked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tessera_lang.cancellation import Dropped, giving_turns
from tessera_lang.record import dataclass, field

logger = logging.getLogger("tessera-lsp")
STACK = 64 << 20  # trees may nest deep, and some systems give a thread half a megabyte


@dataclass(slots=True, eq=False)
class _Message:
    """``changes``: whether no check that began before it may go on after it."""

    work: Callable[[], Any]
    changes: Callable[[], bool]
    done: Future[Any] = field(default_factory=lambda: Future[Any]())


class Analysis:
    """Runs messages, and the checks that ``due`` gives when there is no message.

    ``due``: takes the time and gives a check to run now, or the time at which one is due, or
    None. Both are called in this thread.
    """

    def __init__(self, due: Callable[[float], Callable[[], None] | float | None]) -> None:
        self._due = due
        self._messages: deque[_Message] = deque()
        self._arrived = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], Any], changes: Callable[[], bool]) -> Future[Any]:
        """Have the thread do something; what is cancelled before it begins is not done."""
        message = _Message(work, changes)
        with self._arrived:
            self._messages.append(message)
            if self._thread is None:
                self._start()
            self._arrived.notify()
        return message.done

    def _start(self) -> None:
        before = threading.stack_size(STACK)
        self._thread = threading.Thread(target=self._run, name="analysis", daemon=True)
        self._thread.start()
        threading.stack_size(before)

    def _run(self) -> None:
        while True:
            if self._messages:
                self._do(self._messages.popleft())
                continue
            due = self._due(time.monotonic())
            if callable(due):
                self._check(due)
                continue
            with self._arrived:
                if not self._messages:
                    wait = None if due is None else max(0.0, due - time.monotonic())
                    self._arrived.wait(wait)

    def _do(self, message: _Message) -> None:
        if not message.done.set_running_or_notify_cancel():
            return
        try:
            found = message.work()
        except BaseException as error:  # noqa: BLE001  # whoever waits has it
            message.done.set_exception(error)
        else:
            message.done.set_result(found)

    def _check(self, check: Callable[[], None]) -> None:
        try:
            with giving_turns(self._turn):
                check()
        except Dropped:
            pass
        except Exception:
            logger.exception("a fault of tessera-lsp; please report it with this text")

    def _turn(self) -> None:
        """In the middle of a check: answer what is asked. Raises Dropped before an edit, and before
        what needs a check of its own."""
        while self._messages:
            if self._messages[0].changes():
                raise Dropped
            with giving_turns(None):
                self._do(self._messages.popleft())
