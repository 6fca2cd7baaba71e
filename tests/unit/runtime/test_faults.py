"""Records of faults: a look at them waits for the kernel that writes them."""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

import pytest
from tessera_backend.runtime import faults
from tessera_backend.runtime.faults import WORDS, Faults

from tessera_lang import TesseraError
from tests.unit.lowering import lower_source

TEXT = "@kernel tile[(64,)] grid[(1,)]\ndef f(x: f32[n], out: mut f32[m]):\n    out[0] = x[n + m]\n"


@dataclass
class Device:
    """A kernel whose second warp faults after the first one's fault can be seen."""

    memory: Any = field(default_factory=lambda: memoryview(bytearray(8 * WORDS * 16)).cast("q"))
    waits: int = 0

    def claim(self) -> None:
        """The first step of a lane's report: a compare and swap on the first word."""
        if self.memory[0] == 0:
            self.memory[0] = 1

    def finish(self) -> None:
        self.waits += 1
        self.claim()
        self.memory[1:6] = memoryview(bytearray(40)).cast("q")

    def records(self) -> Faults:
        block = types.SimpleNamespace(pointer=0, view=lambda: self.memory.cast("B"))
        return Faults(lambda size: block, self.finish)


def test_a_fault_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    records = device.records()
    records.slot(lower_source(TEXT)[1])
    monkeypatch.setattr(faults, "_devices", {0: records})
    device.claim()
    with pytest.raises(TesseraError, match="T0845"):
        faults.report_all()
    assert device.waits == 1
    faults.report_all()
    assert device.waits == 1, "no wait where nothing was reported"
