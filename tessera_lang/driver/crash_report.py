"""Report files: what a fault of ours leaves behind for whoever mends it.

Owns what stands in one and where it goes. Must not hold the user's program beyond the IR
that a failed pass was given.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence

from tessera_lang import __version__
from tessera_lang.driver.internal_fault import InternalFault

WHERE = "the issues page of the project (see `tesserac version --json`)"


def write_report(error: BaseException, arguments: Sequence[str]) -> str:
    """Write the report of a fault; the text that tells the user."""
    lines = [
        "# tesserac: report of an internal error",
        f"version: {__version__}",
        f"python: {platform.python_version()} on {platform.system()} {platform.machine()}",
        f"command: tesserac {' '.join(arguments)}",
    ]
    code = "T0902"
    if isinstance(error, InternalFault):
        code = error.code
        lines.append(f"stage: {error.stage}")
    lines += ["", "".join(traceback.format_exception(error))]
    if isinstance(error, InternalFault) and error.program:
        lines += ["# the program before that stage", error.program]
    reason = (str(error) or type(error).__name__).splitlines()[0]
    text = f"error[{code}]: a fault of the compiler: {reason}\n"
    path = _write("\n".join(lines))
    if path is None:
        return text + "  no report file could be written; set TESSERA_BACKTRACE=1 to see it\n"
    text += f"  a report was written to {path}\n"
    return text + f"  please attach it to a new issue on {WHERE}\n"


def _write(text: str) -> str | None:
    for folder in (os.environ.get("TESSERA_REPORTS"), tempfile.gettempdir(), "."):
        if not folder:
            continue
        try:
            handle, path = tempfile.mkstemp(".txt", "tessera-report-", folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
            return path
        except OSError:
            continue
    sys.stderr.write(text if os.environ.get("TESSERA_BACKTRACE") == "1" else "")
    return None
