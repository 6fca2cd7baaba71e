"""The files a kernel may depend on, found without parsing: a scan for import lines.

The scan may find too much (an import in a text) and never too little, so a key made of it
is safe; files of the standard library are part of the compiler's identity instead. Must
not import lark, llvmlite or the parser.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec

from tessera_lang.driver.modules import ModuleFinder, Refused, standard_library
from tessera_lang.record import dataclass

_MAX_BYTES = (8 << 20) + 1
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t\f\ufeff]*"
    r"(?:from[ \t]+(?P<one>[\w.]+)[ \t]+import\b|import[ \t]+(?P<many>[^\n#;]+))",
    re.MULTILINE,
)
_PACKAGES = ("tessera_lang", "tessera_grammar", "tessera_backend", "tessera_stdlib")


@dataclass(frozen=True, slots=True)
class Closure:
    """Texts by path, the loaded file first; ``missing`` are imports that lead nowhere."""

    path: str
    texts: dict[str, str]
    missing: tuple[str, ...]

    def parts(self) -> list[str]:
        """What of it takes part in a cache key."""
        files = [part for path, text in self.texts.items() for part in (path, text)]
        return [self.path, *files, "missing", *self.missing]


def imported_names(text: str) -> list[str]:
    """Module names in import lines, in order of first sight."""
    names: dict[str, None] = {}
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\\\n", " ")
    for match in _IMPORT.finditer(lines):
        if match["one"]:
            names[match["one"]] = None
        else:
            for item in match["many"].split(","):
                words = item.split()
                if words:
                    names[words[0]] = None
    return list(names)


def read_text(path: str) -> str:
    """A source file as the compiler reads it. Raises OSError; bad UTF-8 stays visible."""
    with open(path, "rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8", "surrogateescape")


def closure_of(path: str, folders: tuple[str, ...], text: str | None = None) -> Closure:
    """The file and what it imports, directly or not. Raises OSError for the file itself."""
    finder = ModuleFinder(folders, os.path.isfile)
    library = standard_library() or "\0"
    texts = {path: read_text(path) if text is None else text}
    missing: dict[str, None] = {}
    pending = [path]
    while pending:
        importer = pending.pop(0)
        for name in imported_names(texts[importer]):
            found = finder.find(name, importer)
            if isinstance(found, Refused):
                missing[name] = None
            elif found not in texts and not found.startswith(library):
                try:
                    texts[found] = read_text(found)
                except OSError:
                    missing[name] = None
                    continue
                pending.append(found)
    return Closure(path, texts, tuple(missing))


@functools.cache
def compiler_identity() -> str:
    """A digest of the compiler's own sources and of the standard library."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        spec = find_spec(package)
        for folder in sorted((spec and spec.submodule_search_locations) or ()):
            for name, file in sorted(_source_files(folder, "")):
                data = _bytes_of(file)
                digest.update(f"{package}\0{name}\0{len(data)}\0".encode())
                digest.update(data)
    return digest.hexdigest()


def _source_files(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    """(name below the package, path) of every file that says what code is made."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".tessera", ".lark", ".json")):
                yield prefix + entry.name, entry.path
            elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                yield from _source_files(entry.path, f"{prefix}{entry.name}/")


def _bytes_of(path: str) -> bytes:
    """With one read: there are hundreds of files, and a process waits for all of them."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        return os.read(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)
