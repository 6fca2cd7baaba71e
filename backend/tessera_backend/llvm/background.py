"""Work of another program, or of LLVM, that is waited for later. Must not know what it does.

It needs nothing of the compiler, whose lock the thread that waits may hold.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_PLACES = threading.BoundedSemaphore(os.cpu_count() or 1)
"""A kernel may have many launches: no more at once than there are processors."""


def begin(work: Callable[[], T], ends: bool = False) -> Callable[[], T]:
    """Starts ``work`` in a thread of its own; what is given waits for it, and gives or raises what
    it did. A process that ends waits for none of it, unless it ``ends``: what runs in the process
    itself is not to be cut off. A forked child does again what its parent had begun."""
    made: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            with _PLACES:
                made.append(work())
        except BaseException as error:  # noqa: BLE001  # raised again where it is waited for
            raised.append(error)

    thread = threading.Thread(target=run, name="tessera-code", daemon=not ends)
    process = os.getpid()
    thread.start()

    def wait() -> T:
        if os.getpid() != process and not (made or raised):
            return work()
        thread.join()
        if raised:
            raise raised[0]
        return made[0]

    return wait
