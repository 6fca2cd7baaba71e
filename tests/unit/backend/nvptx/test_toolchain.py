"""Finding ptxas, running it, reading its report; what happens where it is not there."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
from tessera_backend.nvptx.backend import BACKEND
from tessera_backend.nvptx.toolchain import disassembly, nvidia_tools, ptxas
from tessera_backend.nvptx.toolchain.nvidia_tools import Tool, find_tool, run_tool

from tessera_lang.diagnostics import TesseraError
from tessera_lang.target.arch import architecture_named, architecture_of
from tessera_lang.target.backend import TargetOptions
from tests.unit.backend.nvptx.kernels import needs_ptxas
from tests.unit.backend.nvptx.test_ptx import element_wise

REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas warning : Registers are spilled to local memory in function 'k'
ptxas info    : Function properties for k
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 42 registers, used 1 barriers, 16 bytes cumulative stack size, 1040 bytes smem
"""
VERSION = "Cuda compilation tools, release 13.0, V13.0.88"

posix = pytest.mark.skipif(os.name == "nt", reason="the stand-ins are shell scripts")


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment without NVIDIA's tools; the folder is on ``PATH``."""
    for name in ("TESSERA_PTXAS", "TESSERA_NVDISASM", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nvidia_tools, "_package_candidates", lambda name: [])
    nvidia_tools._find.cache_clear()
    return tmp_path


def test_the_report_is_read() -> None:
    resources = ptxas.parse_report(REPORT)
    assert (resources.registers, resources.spill_bytes) == (42, 32)
    assert (resources.shared_bytes, resources.local_bytes) == (1040, 16)


def test_notes_with_a_number_and_warnings_are_diagnostics() -> None:
    found = ptxas.parse_warnings(REPORT)
    assert [d.severity for d in found] == ["warning", "warning"]
    assert "C7510" in found[0].message and "spilled" in found[1].message


def test_no_ptxas_is_no_error(no_tools: Path) -> None:
    assert find_tool("ptxas") is None
    made = BACKEND.compile(*element_wise(), TargetOptions("cuda", "sm_90"), ())
    assert made.kind == "ptx" and made.code.startswith(b".version 7.8")
    assert made.resources.registers == -1


def test_sass_without_ptxas_names_the_remedy(no_tools: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        BACKEND.compile(*element_wise(), TargetOptions("cuda", "sm_90"), ("sass",))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0879" and "ptxas" in diagnostic.helps[0]


def test_sass_without_a_disassembler_names_the_remedy(no_tools: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        disassembly.disassemble(b"\x7fELF")
    assert caught.value.diagnostics[0].code == "T0879"


@posix
def test_the_current_directory_is_never_searched(
    no_tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(no_tools / "ptxas", f"echo '{VERSION}'")
    monkeypatch.chdir(no_tools)
    monkeypatch.setenv("PATH", "." + os.pathsep)
    assert find_tool("ptxas") is None


@posix
def test_the_environment_variable_wins(no_tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(no_tools / "ptxas", f"echo '{VERSION}'")
    other = script(no_tools / "other", "echo 'release 12.4, V12.4.131'")
    assert find_tool("ptxas") == Tool(str(no_tools / "ptxas"), "13.0.88")
    monkeypatch.setenv("TESSERA_PTXAS", str(other))
    assert find_tool("ptxas") == Tool(str(other), "12.4.131")


@posix
def test_a_program_that_is_not_ptxas_is_passed_over(no_tools: Path) -> None:
    script(no_tools / "ptxas", "echo hello")
    assert find_tool("ptxas") is None


@posix
def test_a_ptxas_that_hangs_is_stopped(no_tools: Path) -> None:
    hung = script(no_tools / "slow", f'"{sys.executable}" -c "import time; time.sleep(60)"')
    assert run_tool([str(hung)], str(no_tools), timeout=0.5).status is None


@posix
def test_a_refusal_is_a_diagnostic(no_tools: Path) -> None:
    broken = script(no_tools / "ptxas", "echo 'ptxas fatal   : no'; exit 255")
    with pytest.raises(TesseraError) as caught:
        ptxas.assemble(Tool(str(broken), "13.0.88"), ".version 7.8", "sm_90")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "T0878" and diagnostic.notes == ("ptxas fatal   : no",)


@posix
def test_a_ptxas_that_does_not_know_the_architecture_leaves_it_to_the_driver(
    no_tools: Path,
) -> None:
    said = "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"
    script(
        no_tools / "ptxas",
        f"case $1 in --version) echo '{VERSION}';; *) echo \"{said}\"; exit 255;; esac",
    )
    made = BACKEND.compile(*element_wise(), TargetOptions("cuda", "sm_120"), ())
    assert made.kind == "ptx"
    assert [d.severity for d in made.diagnostics] == ["warning"]


def test_a_directory_that_cannot_be_written_is_a_diagnostic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nonexistent/folder")
    with pytest.raises(TesseraError) as caught:
        ptxas.assemble(Tool("/bin/true", "13.0.88"), "", "sm_90")
    assert caught.value.diagnostics[0].code == "T0878"


@needs_ptxas
def test_bad_ptx_is_refused_with_its_lines() -> None:
    tool = ptxas.find_ptxas()
    assert tool is not None
    with pytest.raises(TesseraError) as caught:
        ptxas.assemble(tool, ".version 7.8\n.target sm_90\nhello\n", "sm_90")
    assert caught.value.diagnostics[0].notes


@needs_ptxas
def test_machine_code_is_the_same_each_time() -> None:
    options = TargetOptions("cuda", "sm_90")
    first, second = (BACKEND.compile(*element_wise(), options, ("llvm",)) for _ in range(2))
    assert first.code == second.code and first.kind == "cubin"
    assert first.texts == second.texts and set(first.texts) == {"llvm", "ptx"}
    assert first.resources.spill_bytes == 0


def test_an_unknown_architecture_is_a_diagnostic() -> None:
    with pytest.raises(TesseraError) as caught:
        BACKEND.compile(*element_wise(), TargetOptions("cuda", "sm_75"), ())
    assert caught.value.diagnostics[0].code == "T0880"


def test_devices_get_the_newest_code_they_run() -> None:
    assert architecture_of((9, 0)).name == "sm_90"
    assert architecture_of((8, 8)).name == "sm_88"
    assert architecture_of((12, 1)).name == "sm_121"
    assert architecture_named("sm_90").specific == "sm_90a"
    for capability in ((7, 5), (13, 0)):
        with pytest.raises(TesseraError):
            architecture_of(capability)


def test_doctor_never_raises_and_names_remedies() -> None:
    findings = BACKEND.diagnose()
    assert [f.name for f in findings][:2] == ["cuda-python", "NVIDIA driver"]
    assert findings[-1].name == "ptxas"
    assert all(f.remedy for f in findings if not f.ok)


STAND_IN = """
for i; do [ "$last" = "-o" ] && out=$i; last=$i; done
echo x > $out
while read -r line; do
    [ "$line" = ".minnctapersm 1" ] && {{ {again}; exit 0; }}
done < kernel.ptx
{first}
"""
SPILL = (
    "echo '  8 bytes stack frame, {0} bytes spill stores, 0 bytes spill loads'; "
    "echo 'ptxas info : Used {1} registers'"
)
IGNORED = "echo 'ptxas info : (C7508) Potential Performance Loss: setmaxnreg ignored'"
PTX = ".version 8.0\n.visible .entry f()\n.reqntid 128\n{ ret; }\n"


@posix
@pytest.mark.parametrize(
    ("first", "again", "taken"),
    [
        (SPILL.format(0, 96), SPILL.format(0, 120), False),  # nothing to mend
        (SPILL.format(8, 96), SPILL.format(0, 120), True),  # fewer groups at a time
        (SPILL.format(8, 96), SPILL.format(12, 120), False),
        (SPILL.format(8, 255), SPILL.format(0, 255), False),  # there are no more registers
        (IGNORED, SPILL.format(0, 168), True),
        (IGNORED, IGNORED, False),
    ],
)
def test_a_lane_gets_the_registers_it_needs(
    no_tools: Path, first: str, again: str, taken: bool
) -> None:
    """ptxas spills for occupancy, and ignores ``setmaxnreg`` where it was not told how many groups
    are enough."""
    tool = script(no_tools / "ptxas", STAND_IN.format(first=first, again=again))
    made = ptxas.assemble(Tool(str(tool), "13.0.88"), PTX, "sm_90a")
    assert (".minnctapersm 1" in made.ptx) == taken
    assert made.ptx.replace("\n.minnctapersm 1", "") == PTX
