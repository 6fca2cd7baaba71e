"""Code of a launch is made while the next is lowered: what waits gives and raises what it did."""

from __future__ import annotations

import os
import threading

import pytest
from tessera_backend.llvm.background import begin
from tessera_backend.nvptx import backend
from tessera_backend.nvptx.toolchain.ptxas import Assembly

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.target.arch import Architecture
from tessera_lang.target.backend import Resources, TargetOptions

TEXT = """
@op.kernel
def f(x: f32[n, d], w: f32[d, k]):
    h = x @ w
    return h, op.sum(h, axis=0), op.max(h, axis=1)
"""
SIZES = "x: f32[512, 256], w: f32[256, 512]"


def test_it_gives_and_raises() -> None:
    assert begin(lambda: 3)() == 3
    error = TesseraError((Diagnostic("T0878", "no"),))

    def refuse() -> int:
        raise error

    waiting = begin(refuse)
    for _ in range(2):
        with pytest.raises(TesseraError) as raised:
            waiting()
        assert raised.value is error


def test_launches_are_assembled_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ends only when a second has begun; one after the other would wait for ever."""
    count, several = 0, threading.Event()

    def assembled(ptx: str, arch: Architecture, optimize: int, lines: bool) -> Assembly:
        nonlocal count
        count += 1
        if count > 1:
            several.set()
        assert several.wait(60)
        return Assembly(b"", Resources())

    monkeypatch.setattr(backend, "_assemble", assembled)
    session = Session(overlay={"k.tessera": TEXT})
    signature = session.signature("k.tessera", "f", SIZES)
    made = session.compile_kernel("k.tessera", "f", signature, TargetOptions("cuda", "sm_90a"))
    assert count == 1 + len(made.then) > 1
    assert all(b".entry" in one.code for one in (made, *made.then))


def test_a_refusal_of_one_launch_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(ptx: str, arch: Architecture, optimize: int, lines: bool) -> Assembly:
        raise TesseraError((Diagnostic("T0878", "ptxas refused the PTX"),))

    monkeypatch.setattr(backend, "_assemble", refuse)
    session = Session(overlay={"k.tessera": TEXT})
    signature = session.signature("k.tessera", "f", SIZES)
    with pytest.raises(TesseraError, match="ptxas refused"):
        session.compile_kernel("k.tessera", "f", signature, TargetOptions("cuda", "sm_90a"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_forked_child_does_again_what_its_parent_had_begun() -> None:
    gate, made = threading.Event(), list[int]()

    def work() -> int:
        made.append(os.getpid())
        gate.wait()
        return os.getpid()

    wait = begin(work, ends=True)
    child = os.fork()
    if not child:
        gate.set()
        os._exit(0 if wait() == os.getpid() else 1)
    gate.set()
    assert os.waitpid(child, 0)[1] == 0
    assert wait() == os.getpid() and made == [os.getpid()]
