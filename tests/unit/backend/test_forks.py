"""A child of a process whose other threads are in the middle of something."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import llvmlite.binding.ffi as ffi
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.locks import free_lock, free_reentrant_lock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

SOURCE = """
@kernel tile[(32,)] grid[(ceil_div(n, 32),)]
def times(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[i] * 5.0
"""


def child_of(lock: AbstractContextManager[Any], seconds: float, work: Callable[[], bool]) -> int:
    """What becomes of ``work`` in a child that is forked while another thread holds a lock."""
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            threading.Event().wait(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        done = 3
        threading.Timer(20, os._exit, (4,)).start()
        try:
            done = 0 if work() else 1
        finally:
            os._exit(done)
    status = os.waitpid(child, 0)[1]
    thread.join()
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("made", [free_lock, free_reentrant_lock])
def test_a_lock_that_another_thread_held_is_free(made: Callable[[], Any]) -> None:
    lock = made()
    assert child_of(lock, 0.1, lambda: bool(lock.acquire(timeout=5))) == 0
    assert lock.acquire(timeout=5), "it is whole in the parent"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_compiles_while_its_parent_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", "off")
    module = tessera.compile(SOURCE, target="cpu")
    x, out = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)

    def work() -> bool:
        module.times(x, out)
        return bool((out == x * 5).all())

    lock: Any = vars(type(ffi.lib))["_lock"].__get__(ffi.lib)
    tessera.compile(SOURCE.replace("5.0", "6.0"), target="cpu").times(x, out)  # LLVM is loaded
    assert child_of(lock, 0.1, work) == 0
