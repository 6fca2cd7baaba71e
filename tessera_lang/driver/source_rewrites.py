"""Sources that a command rewrites: written in place, shown as a difference, or only named.

Owns how a file on disk is replaced. Must not know what the new text is for.
"""

from __future__ import annotations

import difflib
import os
import stat
import tempfile


def difference(path: str, before: str, after: str) -> str:
    """A unified difference; empty where there is none."""
    lines = difflib.unified_diff(
        _lines(before), _lines(after), f"a/{path}", f"b/{path}", lineterm="\n"
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed ends one, so that ends can differ too."""
    parts = text.split("\n")
    return [*(f"{part}\n" for part in parts[:-1]), *([parts[-1]] if parts[-1] else [])]


def replace_file(path: str, text: str) -> None:
    """Give a file a new text: all of it or, where that fails, the old one stays. Raises OSError.

    A link keeps pointing where it did, and the file keeps its permissions.
    """
    target = os.path.realpath(path)
    mode = stat.S_IMODE(os.stat(target).st_mode)
    handle, scratch = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".tessera-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode("utf-8"))
        os.chmod(scratch, mode)
        os.replace(scratch, target)
    except BaseException:
        os.unlink(scratch)
        raise
