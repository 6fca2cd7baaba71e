"""What a forked child needs: locks that no thread of its parent still holds.

Owns the locks that are made free in a child. Must not know what they guard: the threads that
held them are gone there, and what they guard is written as a whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()


def free_lock() -> threading.Lock:
    """A lock that is free in a forked child."""
    made = threading.Lock()
    _locks.add(made)
    return made


def free_reentrant_lock() -> threading.RLock:
    """The same, for a thread that may hold it twice."""
    made = threading.RLock()
    _locks.add(made)
    return made


def wait_before_forks(enter: Callable[[], Any], leave: Callable[[], Any]) -> None:
    """For what cannot be made free from outside: a fork waits until it can be entered."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=enter, after_in_parent=leave, after_in_child=leave)


def _free() -> None:
    for held in list(_locks):
        held._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
