"""The source files that names on the command line stand for.

Owns the walk through folders. Must not know what is in a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

SUFFIX = ".tessera"


def source_files(names: Iterable[str]) -> list[str]:
    """Files as named, folders by the source files in them, in order of name; each once.

    Hidden folders and links to folders are not followed.
    """
    found: dict[str, None] = {}
    for name in names:
        if os.path.isdir(name):
            found.update(dict.fromkeys(_in_folder(name)))
        else:
            found[name] = None
    return list(found)


def _in_folder(folder: str) -> Iterable[str]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(files):
            if name.endswith(SUFFIX) and not name.startswith("."):
                yield os.path.normpath(os.path.join(at, name))
