"""What is made at first use, when several threads come first; and locks in a forked child.

Owns ``once``, the lock of the compiler, and the locks that are made free in a child. Must not
know what they guard: the threads that held them are gone there, and what they guard is written
as a whole.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()
_MISSING: Any = object()
Made = TypeVar("Made", bound=Callable[..., Any])


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


def once(make: Made) -> Made:
    """``functools.cache`` for what must be made once: threads that ask at the same moment get the
    same object. Arguments are positional."""
    known: dict[tuple[object, ...], Any] = {}
    lock = free_reentrant_lock()

    def found_or_made(*arguments: Any) -> Any:
        with lock:
            found = known.get(arguments, _MISSING)
            if found is _MISSING:
                found = known[arguments] = make(*arguments)
            return found

    functools.update_wrapper(found_or_made, make)
    found: Any = functools.cache(found_or_made)
    return found


def wait_before_forks(enter: Callable[[], Any], leave: Callable[[], Any]) -> None:
    """For what cannot be made free from outside: a fork waits until it can be entered."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=enter, after_in_parent=leave, after_in_child=leave)


COMPILER = threading.RLock()
"""Held by who asks the compiler or imports parts of it. Its sessions are for one thread at a time,
and two threads that import packages of modules which import each other would wait for one another.
Nobody who holds it waits for a launch or for code of another thread. A fork waits for it: a child
must not have a session in the middle of a question."""
wait_before_forks(COMPILER.acquire, COMPILER.release)


def _free() -> None:
    for held in list(_locks):
        held._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
