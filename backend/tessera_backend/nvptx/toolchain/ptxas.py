"""PTX to machine code with ptxas, and what it reports: registers, spills, warnings.

Where there is no ptxas the PTX goes to the driver as it is. Must not know Tile IR or LLVM.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tessera_backend.nvptx.toolchain.nvidia_tools import Outcome, Tool, find_tool, run_tool
from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import LANE_REGISTERS
from tessera_lang.target.backend import Resources

INSTALL = "`pip install tessera-lang[ptxas]`, or set TESSERA_PTXAS to the path of one"
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_ENTRY = re.compile(r"\.entry (\w+)")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_WARNING = re.compile(r"^ptxas (?:info|warning)\s*:\s*(?:\(?(C\d+)\)?\s*)?(.*)$", re.MULTILINE)
_UNKNOWN_ARCHITECTURE = re.compile(r"is not defined for option 'gpu-name'|Unsupported \.version")

_WAITS = "asynchronous products wait for each other: two to four times as slow"
REMARKS = {
    "C7508": "the registers of the roles are not set: `setmaxnreg` is ignored",
    "C7510": f"{_WAITS}; a function is called between them",
    "C7511": f"{_WAITS}; their accumulators do not fit into the registers",
    "C7512": f"{_WAITS}; their accumulators do not fit into the registers",
    "C7513": f"{_WAITS}; an operand in registers is written while they read it",
    "C7514": f"{_WAITS}; an accumulator is read or written while they run",
    "C7515": f"{_WAITS}; an accumulator is made on several ways that meet",
    "C7517": "a wait for asynchronous products was put in where their results are touched",
}
"""What a note of ptxas means for the kernel."""

_OF_NO_COST = frozenset({"C7519"})
"""Notes of a fence (``warpgroup.arrive``) that ptxas put in front of products whose first operand
it has just copied: no product waits for another, and there is nothing to change."""

_BOUNDS = re.compile(r"^\.reqntid .*$", re.MULTILINE)
_ONE_GROUP = ".minnctapersm 1"


@dataclass(frozen=True, slots=True)
class Assembly:
    """What ptxas made, and of which text; an empty ``cubin`` says that this ptxas is too old for
    the target."""

    cubin: bytes
    resources: Resources
    diagnostics: tuple[Diagnostic, ...] = ()
    ptx: str = ""


_NAMES = re.compile(r'^([ \t]*\.file[ \t]+(\d+)[ \t]+)".*"', re.MULTILINE)
"""Names of sources: not all come through, so that machine code has their numbers."""


def find_ptxas() -> Tool | None:
    """The ptxas to use, None where there is none."""
    return find_tool("ptxas")


def assemble(tool: Tool, ptx: str, arch: str, optimize: int = 3, lines: bool = False) -> Assembly:
    """Machine code for one architecture, with the lines of ``.loc`` where they are asked for
    (and for a file its number there).
    Raises TesseraError where ptxas refuses.

    ptxas gives a lane fewer registers than there are, so that more groups run at a time, and
    spills for it; and it does not know how many a lane begins with, so that roles cannot set
    theirs (C7508). Both are mended by saying that one group at a time is enough.
    """
    made = _assembled(tool, ptx, arch, optimize, lines)
    if not _wants_registers(made) or _ONE_GROUP in ptx:
        return made
    bound = _BOUNDS.sub(rf"\g<0>\n{_ONE_GROUP}", ptx, count=1)
    again = _assembled(tool, bound, arch, optimize, lines)
    return again if _loss(again) < _loss(made) else made


def _wants_registers(made: Assembly) -> bool:
    """Whether code is slower than it must be, and a lane can have more registers."""
    ignored = any("C7508" in d.message for d in made.diagnostics)
    return ignored or (made.resources.spill_bytes > 0 and made.resources.registers < LANE_REGISTERS)


def _loss(made: Assembly) -> tuple[int, int]:
    return len(made.diagnostics), made.resources.spill_bytes


def _assembled(tool: Tool, ptx: str, arch: str, optimize: int, lines: bool) -> Assembly:
    argv = [
        tool.path, f"-arch={arch}", f"-O{3 if optimize else 1}", "-v",
        *(["-lineinfo"] if lines else []), "-o", "kernel.cubin", "kernel.ptx",
    ]  # fmt: skip
    try:
        with tempfile.TemporaryDirectory(prefix="tessera-") as directory:
            text = _NAMES.sub(r'\g<1>"\g<2>"', ptx) if lines else ptx
            Path(directory, "kernel.ptx").write_text(text, encoding="ascii")
            outcome = run_tool(argv, directory)
            made = Path(directory, "kernel.cubin")
            cubin = made.read_bytes() if outcome.status == 0 and made.exists() else b""
    except OSError as error:
        raise _failure(
            f"ptxas could not be run: {error.strerror or error}",
            (), ("check that the temporary directory can be written (TMPDIR)", INSTALL),
        ) from error  # fmt: skip
    if not cubin:
        return _without_code(tool, outcome, arch, ptx)
    resources = parse_report(outcome.output)
    found = parse_warnings(outcome.output)
    return Assembly(cubin, resources, found, ptx)


def _without_code(tool: Tool, outcome: Outcome, arch: str, ptx: str) -> Assembly:
    kernels = ", ".join(f"`{name}`" for name in _ENTRY.findall(ptx))
    if outcome.status is None:
        raise _failure(
            f"ptxas {tool.version} took too long for {kernels}", (), ("use a smaller kernel",)
        )
    if _UNKNOWN_ARCHITECTURE.search(outcome.output):
        warning = Diagnostic(
            "T0878",
            f"ptxas {tool.version} does not know {arch}; the driver will translate the PTX",
            severity="warning",
            helps=("install a newer one: " + INSTALL,),
        )
        return Assembly(b"", Resources(), (warning,))
    if outcome.status < 0:
        raise _failure(
            f"ptxas {tool.version} was ended by signal {-outcome.status} while it compiled"
            f" {kernels}", (), ("see that there is memory enough", "or use a smaller kernel"),
        )  # fmt: skip
    lines = tuple(line for line in outcome.output.splitlines() if line.strip())[:8]
    raise _failure(
        f"ptxas {tool.version} refused the PTX of {kernels}", lines,
        ("this is a fault of Tessera: please report it with the kernel",),
    )  # fmt: skip


def _failure(message: str, notes: tuple[str, ...], helps: tuple[str, ...]) -> TesseraError:
    return TesseraError((Diagnostic("T0878", message, notes=notes, helps=helps),))


def parse_report(output: str) -> Resources:
    """Registers, spills, shared and local memory from the lines of ``ptxas -v``."""
    registers = _REGISTERS.search(output)
    shared = _SHARED.search(output)
    stack = _STACK.search(output)
    return Resources(
        registers=int(registers.group(1)) if registers else -1,
        spill_bytes=int(stack.group(2)) + int(stack.group(3)) if stack else -1,
        shared_bytes=int(shared.group(1)) if shared else 0,
        local_bytes=int(stack.group(1)) if stack else -1,
    )


def parse_warnings(output: str) -> tuple[Diagnostic, ...]:
    """Numbered notes of ptxas (a serialised pipeline is C7510) and its warnings."""
    found: list[Diagnostic] = []
    for match in _WARNING.finditer(output):
        number, text = match.group(1) or "", match.group(2).strip()
        if number in _OF_NO_COST:
            continue
        if number or "warning" in match.group(0)[:16]:
            shown = f"ptxas {number}: {text}" if number else f"ptxas: {text}"
            notes = (REMARKS[number],) if number in REMARKS else ()
            found.append(Diagnostic("T0881", shown, severity="warning", notes=notes))
    return tuple(found)
