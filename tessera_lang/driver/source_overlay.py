"""Source files: unsaved texts before the disk.

Owns reading and the overlay of an editor. Must not know syntax beyond what a readable file
is, nor imports (``modules.py``).
"""

from __future__ import annotations

import os
import stat

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.record import dataclass
from tessera_lang.source import SourceFile

MAX_BYTES = (8 << 20) + 1  # one more than the language reads, so that the reader can say so
STDIN = "<stdin>"


@dataclass(slots=True)
class _Read:
    stamp: tuple[int, int, int]
    file: SourceFile | None
    diagnostics: tuple[Diagnostic, ...]


class Files:
    """Texts by path. A path keeps the spelling it was first seen with."""

    def __init__(self) -> None:
        self._texts: dict[str, SourceFile] = {}
        self._read: dict[str, _Read] = {}
        self._spelling: dict[str, str] = {}

    def spelling(self, path: str) -> str:
        """The one name of a file in this session."""
        if path.startswith("<"):
            return path
        return self._spelling.setdefault(os.path.abspath(path), os.path.normpath(path))

    def set_text(self, path: str, text: str, version: int = 0) -> None:
        """Give a file an unsaved text; it need not exist."""
        name = self.spelling(path)
        old = self._texts.get(name)
        if old is None or old.text != text or old.version != version:
            self._texts[name] = SourceFile(name, text, version)

    def drop_text(self, path: str) -> None:
        """Forget an unsaved text: the file on disk counts again."""
        self._texts.pop(self.spelling(path), None)

    def is_given(self, path: str) -> bool:
        """Whether a file has an unsaved text."""
        return self.spelling(path) in self._texts

    def exists(self, path: str) -> bool:
        return self.spelling(path) in self._texts or os.path.isfile(path)

    def read(self, path: str) -> tuple[SourceFile | None, tuple[Diagnostic, ...]]:
        """The file, or why it cannot be read. Unchanged files are read once."""
        name = self.spelling(path)
        text = self._texts.get(name)
        if text is not None:
            return text, ()
        try:
            status = os.stat(name)
        except (OSError, ValueError) as error:
            return None, (_unreadable(name, error),)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        known = self._read.get(name)
        if known is None or known.stamp != stamp:
            known = self._read[name] = _Read(stamp, *_read(name, status.st_mode))
        return known.file, known.diagnostics

    def known(self) -> dict[str, SourceFile]:
        """Every file read so far, for showing diagnostics."""
        files = {name: r.file for name, r in self._read.items() if r.file is not None}
        return {**files, **self._texts}


def _read(name: str, mode: int) -> tuple[SourceFile | None, tuple[Diagnostic, ...]]:
    from tessera_lang.syntax.limits import decode_source

    if stat.S_ISDIR(mode):
        helps = (f"name a file in it: `{os.path.join(name, 'NAME.tessera')}`",)
        return None, (Diagnostic("T0810", f"{name} is a folder", helps=helps),)
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return None, (Diagnostic("T0810", f"{name} is a device, not a file"),)
    try:
        with open(name, "rb") as stream:
            data = stream.read(MAX_BYTES)
    except OSError as error:
        return None, (_unreadable(name, error),)
    return decode_source(data, name)


def _unreadable(name: str, error: Exception) -> Diagnostic:
    if isinstance(error, FileNotFoundError):
        return Diagnostic("T0810", f"there is no file {name}")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Diagnostic("T0810", f"{name} cannot be read: {reason.lower()}")
