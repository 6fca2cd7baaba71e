"""Ctrl-C while the main thread is in the code of a kernel.

Owns the wish to stop: Python runs its handler when the code returns, so somebody has to tell the
code. A thread waits for the byte that Python's own handler in C writes, and puts ``STOP`` into the
counter of the launch: no thread takes another group, and a ``while`` that sees it leaves the
kernel. Must not know kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from typing import Any

STOP = 1 << 62
"""Beyond every number of groups. The code of a ``while`` compares the counter with it."""


class Interrupts:
    """The launch of the main thread, for the thread that waits."""

    def __init__(self) -> None:
        self.counter: ctypes.c_int64 | None = None
        self._main = threading.main_thread().ident
        self._tried = False
        self._words: Any = None
        self._places = (0, 0, 0)

    def share(self, words: Any, main: int, watching: int, counter: int) -> None:
        """Words that machine code launches by: at ``main`` the identity of the main thread, at
        ``watching`` 1 once launches are watched, at ``counter`` the address of the counter of a
        launch that it begins in the main thread, 0 when it has ended."""
        self._words, self._places = words, (main, watching, counter)
        self._tell()

    def _tell(self) -> None:
        if self._words is not None:
            main, watching, counter = self._places
            self._words[main], self._words[watching] = self._main or 0, int(self._tried)
            self._words[counter] = 0

    def watch(self, counter: ctypes.c_int64) -> bool:
        """Called before the code of a launch; whether ``done`` is to be called behind it. Only the
        main thread is interrupted."""
        if threading.get_ident() != self._main:
            return False
        if not self._tried:
            self._tried = True
            self._begin()
            self._tell()
        self.counter = counter
        return True

    def done(self, counter: ctypes.c_int64) -> None:
        """Raises KeyboardInterrupt where the launch was stopped and Python has not said so."""
        self.counter = None
        if counter.value >= STOP:
            raise KeyboardInterrupt

    def forget(self) -> None:
        """In a forked child, which has its parent's pipe and none of its threads."""
        if self._tried:
            with contextlib.suppress(ValueError, OSError):
                signal.set_wakeup_fd(-1)
        words, places = self._words, self._places
        self.__init__()
        self._words, self._places = words, places
        self._tell()

    def _begin(self) -> None:
        """Somebody else who is woken already (an event loop) stays so; then Ctrl-C waits for the
        end of the launch."""
        try:
            reading, writing = os.pipe()
            os.set_blocking(writing, False)
            before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        except (ValueError, OSError, AttributeError):
            return
        if before != -1:
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)
            return
        wait = threading.Thread(target=self._wait, args=(reading,), daemon=True)
        wait.name = "tessera-interrupts"
        wait.start()

    def _wait(self, reading: int) -> None:
        while numbers := os.read(reading, 64):
            counter = self.counter or self._in_machine_code()
            if counter is None or signal.SIGINT not in numbers:
                continue
            # Who handles the signal another way goes on with what it does.
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                counter.value = STOP

    def _in_machine_code(self) -> ctypes.c_int64 | None:
        """The counter of a launch that machine code began; its memory stays."""
        address = 0 if self._words is None else self._words[self._places[2]]
        return ctypes.c_int64.from_address(address) if address else None


interrupts = Interrupts()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=interrupts.forget)
