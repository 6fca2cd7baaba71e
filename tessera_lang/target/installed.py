"""What is installed beside the compiler: entry points and versions.

Reads the folders of distributions on ``sys.path``. ``importlib.metadata`` says the same and
more, but to import it takes longer than all else that a process does which finds its kernel
in the cache; it is asked where something other than plain folders is on the path. Must not
know what the entries stand for.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

_FOLDERS = (".dist-info", ".egg-info")


class EntryPoint(NamedTuple):
    """``value`` is ``package.module`` or ``package.module:name``."""

    name: str
    value: str

    def load(self) -> Any:
        module, _, path = self.value.partition("[")[0].replace(" ", "").partition(":")
        found: Any = import_module(module)
        for name in path.split(".") if path else ():
            found = getattr(found, name)
        return found


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entries of a group, by name."""
    if not _only_folders():
        from importlib import metadata

        found = [EntryPoint(e.name, e.value) for e in metadata.entry_points(group=group)]
    else:
        found = [e for text in _entry_texts(tuple(sys.path)) for e in _entries(text, group)]
    return tuple(sorted(found, key=lambda e: e.name))


def version_of(name: str) -> str:
    """The version of an installed distribution; "" where there is none."""
    known = _distributions(tuple(sys.path)).get(_normal(name)) if _only_folders() else None
    if known is not None and known[1]:
        return known[1]
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _only_folders() -> bool:
    """Whether nothing but folders can hold a distribution."""
    hooks = any(f is not PathFinder and hasattr(f, "find_distributions") for f in sys.meta_path)
    return not hooks and not any(os.path.isfile(entry) for entry in sys.path)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@lru_cache(maxsize=1)
def _distributions(path: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """Folder and version of each distribution by its name; the first on the path counts."""
    found: dict[str, tuple[str, str]] = {}
    for folder in path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            stem, kind = os.path.splitext(name)
            if kind in _FOLDERS:
                distribution, _, version = stem.partition("-")
                place = os.path.join(folder, name)
                found.setdefault(_normal(distribution), (place, version))
    return found


@lru_cache(maxsize=1)
def _entry_texts(path: tuple[str, ...]) -> tuple[str, ...]:
    texts: list[str] = []
    for folder, _ in _distributions(path).values():
        try:
            with open(os.path.join(folder, "entry_points.txt"), encoding="utf-8") as file:
                texts.append(file.read())
        except (OSError, UnicodeDecodeError):
            continue
    return tuple(texts)


def _entries(text: str, group: str) -> list[EntryPoint]:
    found: list[EntryPoint] = []
    section = ""
    for line in map(str.strip, text.splitlines() if group in text else ()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            found.append(EntryPoint(name.strip(), value.strip()))
    return found
