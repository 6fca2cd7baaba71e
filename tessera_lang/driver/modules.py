"""Finds the file that an import means.

Owns the roots (the standard library, the importing file's folder, ``--path`` folders) and
that nothing leads out of them. Must not know what is in a file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import cache

from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.record import dataclass

SUFFIX = ".tessera"
_PACKAGES_OF_PYTHON = frozenset(
    ("numpy", "torch", "cupy", "jax", "numba", "triton", "pandas", "scipy", "matplotlib")
)


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a module cannot be imported, for a diagnostic."""

    code: str
    message: str
    helps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@cache
def standard_library() -> str | None:
    """The folder of the standard library's files; None where it is not installed."""
    from importlib.util import find_spec

    spec = find_spec("tessera_stdlib")
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(spec.submodule_search_locations))


class ModuleFinder:
    """Looks modules up by dotted name. ``exists`` says whether a file is there."""

    def __init__(self, search_paths: Iterable[str], exists: Callable[[str], bool]) -> None:
        self._paths = tuple(search_paths)
        self._exists = exists

    def find(self, name: str, importer: str) -> str | Refused:
        """The path of the module ``name`` as the file ``importer`` imports it."""
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            return Refused(
                "T0132", f"`{name}` is no module name",
                ("a module is named by words with dots between: `std.reduce`",),
            )  # fmt: skip
        if parts[0] == "std":
            return self._standard(name, parts[1:])
        folder = "" if importer.startswith("<") else os.path.dirname(importer)
        for root in (folder, *self._paths):
            path = os.path.join(root, *parts) + SUFFIX
            if self._exists(path):
                return path if _inside(path, root) else _outside(name, path)
        return self._missing(name, folder, parts)

    def _standard(self, name: str, parts: list[str]) -> str | Refused:
        root = standard_library()
        if root is None:
            helps = ("install tessera-lang again",)
            return Refused("T0903", "the standard library is not installed", helps)
        if parts:
            path = os.path.join(root, *parts) + SUFFIX
            if os.path.isfile(path) and _inside(path, root):
                return path
        public = [n for n in standard_modules() if "_" not in n]  # others are parts of these
        close = nearest(".".join(parts), public)
        known = ", ".join(f"`std.{n}`" for n in public)
        helps = (f"the standard library has {known}",) if known else ()
        helps = (f"did you mean `std.{close}`?",) if close else helps
        return Refused("T0130", f"the standard library has no `{name}`", helps)

    def _missing(self, name: str, folder: str, parts: list[str]) -> Refused:
        wanted = os.path.join(*parts) + SUFFIX
        places = [os.path.join(root, wanted) for root in (folder, *self._paths)]
        helps = ["put the file beside the importing one, or name its folder with `--path`"]
        if parts[0] in sys.stdlib_module_names or parts[0] in _PACKAGES_OF_PYTHON:
            helps = ["modules of Python cannot be imported: a program has files of its own, "
                     "`std`, `op` and `math`"]  # fmt: skip
        close = nearest(parts[0], ("std",)) if len(parts) > 1 else None
        if close and ".".join(parts[1:]) in standard_modules():
            helps.insert(0, f"did you mean `std.{'.'.join(parts[1:])}`?")
        if f"std.{name}" in (f"std.{n}" for n in standard_modules()):
            helps.insert(0, f"did you mean `std.{name}`?")
        notes = tuple(
            f"looked for {place}" if not root or os.path.isdir(root) else f"{root} is no folder"
            for root, place in zip((folder, *self._paths), places, strict=True)
        )
        return Refused("T0130", f"there is no module `{name}`", tuple(helps), notes)


@cache
def standard_modules() -> tuple[str, ...]:
    """Names of the modules of the standard library, without ``std.``."""
    root = standard_library()
    if root is None or not os.path.isdir(root):
        return ()
    names = sorted(os.listdir(root))
    return tuple(n.removesuffix(SUFFIX) for n in names if n.endswith(SUFFIX))


def _inside(path: str, root: str) -> bool:
    """Whether a file, links followed, lies in a root."""
    real_root, real = os.path.realpath(root or "."), os.path.realpath(path)
    try:
        return os.path.commonpath((real, real_root)) == real_root
    except ValueError:  # two drives
        return False


def _outside(name: str, path: str) -> Refused:
    return Refused(
        "T0132", f"`{name}` is {path}, a link to a file outside of that folder",
        ("name the folder of the file with `--path`",),
    )  # fmt: skip
