"""What a target or an installation cannot do, said in its own code (no page can show these)."""

from __future__ import annotations

import pytest
from tessera_backend.cpu.target_hooks import CpuDialect
from tessera_backend.llvm.emitter import NotLowered
from tessera_backend.nvptx import kernel as nvptx_kernel

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver import modules
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions

FMA = (
    "@kernel tile[(1,)] grid[(1,)]\ndef k(x: f64[n], out: mut f64[n]):\n"
    "    out[0] = math.fma(x[0], x[0], x[0])\n"
)


def codes(source: str, options: TargetOptions) -> list[str]:
    session = Session(overlay={"p.tessera": source})
    with pytest.raises(TesseraError) as caught:
        session.compile_kernel("p.tessera", "k", session.signature("p.tessera", "k"), options)
    return [d.code for d in caught.value.diagnostics]


def test_a_processor_without_an_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """T0890: what a processor lacks and nothing else makes is refused by its name."""

    def has(self: CpuDialect, intrinsic: str, llvm_type: str) -> bool:
        return intrinsic != "sqrt"

    monkeypatch.setattr(CpuDialect, "lowers", has)
    assert codes(FMA.replace("math.fma(x[0], x[0], x[0])", "math.sqrt(x[0])"),
                 TargetOptions("cpu")) == ["T0890"]  # fmt: skip


def test_an_operation_of_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """T0882: what the emitter refuses names the operation and the type."""

    def refused(*_: object, **__: object) -> None:
        raise NotLowered("tile.wgmma", "bf16", "sm_80")

    monkeypatch.setattr(nvptx_kernel, "emit_kernel", refused)
    assert codes(FMA, TargetOptions("cuda", "sm_80")) == ["T0882"]


def test_an_installation_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """T0903: the standard library is a part of the installation."""
    monkeypatch.setattr(modules, "standard_library", lambda: None)
    session = Session(overlay={"p.tessera": "import std.reduce\nprint(1)\n"})
    (found,) = session.check("p.tessera")
    assert found.code == "T0903" and found.helps
