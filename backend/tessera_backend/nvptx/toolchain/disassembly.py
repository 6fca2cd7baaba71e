"""SASS, the machine code in readable form, by NVIDIA's disassemblers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tessera_backend.nvptx.toolchain.nvidia_tools import find_tool, run_tool
from tessera_lang.diagnostics import Diagnostic, TesseraError

_TOOLS = (("nvdisasm", ("-c",), ("-g",)), ("cuobjdump", ("-sass",), ()))
"""Their names, how they are asked, and how for the lines of the source too."""
INSTALL = "`pip install nvidia-cuda-cuobjdump`, or install the CUDA toolkit"


def disassemble(cubin: bytes, lines: bool = False) -> str:
    """The SASS of machine code, with the lines that it was assembled with where the tool knows them
    and they are asked for. Raises TesseraError where no tool is found or it fails."""
    for name, arguments, for_lines in _TOOLS:
        tool = find_tool(name)
        if tool is None:
            continue
        arguments = (*arguments, *for_lines) if lines else arguments
        try:
            with tempfile.TemporaryDirectory(prefix="tessera-") as directory:
                Path(directory, "kernel.cubin").write_bytes(cubin)
                outcome = run_tool([tool.path, *arguments, "kernel.cubin"], directory)
        except OSError as error:
            raise _failure(f"{name} could not be run: {error.strerror or error}") from error
        if outcome.status == 0:
            return outcome.output
        raise _failure(f"{name} {tool.version} refused the machine code")
    raise _failure("no disassembler was found, so SASS cannot be shown")


def no_machine_code() -> TesseraError:
    """SASS was asked for where only PTX can be made."""
    return TesseraError(
        (
            Diagnostic(
                "T0879",
                "SASS needs machine code, and no ptxas was found to make it",
                helps=("`pip install tessera-lang[ptxas]`, or set TESSERA_PTXAS",),
            ),
        )
    )


def _failure(message: str) -> TesseraError:
    return TesseraError((Diagnostic("T0879", message, helps=(INSTALL,)),))
