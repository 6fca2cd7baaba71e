"""LLVM in a process that forks.

Owns that a fork waits for a call of LLVM in another thread to end: the child has LLVM's memory
and llvmlite's lock as they are then. Must not know what is compiled.
"""

from __future__ import annotations

from typing import Any

from tessera_lang.locks import once, wait_before_forks


@once
def forks_wait() -> None:
    """Called before LLVM is used; once is enough."""
    import llvmlite.binding.ffi as ffi

    lock: Any = getattr(ffi.lib, "_lock", None)  # not public: without it forks do not wait
    if lock is not None:
        wait_before_forks(lock.__enter__, lambda: lock.__exit__(None, None, None))
