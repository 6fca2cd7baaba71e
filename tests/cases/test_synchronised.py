"""Right kernels that wait by atomics (``tests/run/synchronised``): values on both targets, checked
mode in three orders, and code for a GPU in which no lane waits with a lock in its hand."""

from __future__ import annotations

import re

import pytest
from tessera_backend.nvptx.toolchain.nvidia_tools import find_tool
from tessera_backend.nvptx.toolchain.ptxas import find_ptxas

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.typing_protocols import Target
from tests.fuzz.agreement import nothing_proved, unchecked
from tests.run.synchronised import NOT_ON_A_CPU, compiled, launched, programs
from tests.stdlib.arrays import TARGETS

TEXTS = programs()
LOCKS = [n for n, t in TEXTS.items() if re.search("lock|turn|chain", n) and "tbarrier" in t]
needs_sass = pytest.mark.skipif(
    find_ptxas() is None or find_tool("nvdisasm") is None, reason="no ptxas or no nvdisasm"
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.sample(8)
def test_values(name: str, target: Target) -> None:
    if target == "cpu" and name in NOT_ON_A_CPU:
        pytest.skip("all lanes wait for all")
    with unchecked():
        assert not launched(name, TEXTS[name], compiled(TEXTS[name], name, target), 0)


@pytest.mark.parametrize("name", sorted({*TEXTS} - NOT_ON_A_CPU))
@pytest.mark.sample(8)
def test_nothing_is_blamed_in_checked_mode(name: str) -> None:
    with unchecked(), nothing_proved():
        assert not launched(name, TEXTS[name], compiled(TEXTS[name], name, "cpu"), 0)


@needs_sass
@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.sample(1)
def test_lanes_meet_behind_what_they_release(name: str) -> None:
    """ptxas joins the lanes of a warp before a barrier. If that came before the store which gives a
    lock back, the one lane that has it would wait for those that wait for the lock."""
    session = Session(overlay={"kernel.tessera": TEXTS[name]})
    signature = session.signature("kernel.tessera", name)
    options = TargetOptions("cuda", "sm_90a")
    with unchecked():
        made = session.compile_kernel("kernel.tessera", name, signature, options, ("sass",))
    code = re.findall(r"\b(WARPSYNC\.ALL|STS|ATOMS|BAR\.SYNC|BRA)\b", made.texts["sass"])
    assert "BAR.SYNC" in code
    meetings = [at for at, word in enumerate(code) if word == "WARPSYNC.ALL"]
    assert all(code[at + 1] == "BAR.SYNC" for at in meetings), code
