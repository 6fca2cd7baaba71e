"""PTX modules as one: a file has one header, whatever kernels are in it.

Owns the header and the names of a module. Must not know how PTX is made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^\.(version|target|address_size)\s+(.*?)\s*$", re.MULTILINE)
_DECLARED = re.compile(
    r"^(?:\.\w+\s+(?:\d+\s+)?)*\.(?:shared|global|const)\s+[^;={]*?([A-Za-z_$%][\w$]*)\s*(?:\[|=|;)",
    re.MULTILINE,
)


_FILE = re.compile(r'^[ \t]*\.file[ \t]+(\d+)[ \t]+("[^"]*").*\n?', re.MULTILINE)
_LOCATION = re.compile(r"^([ \t]*\.loc[ \t]+)(\d+)", re.MULTILINE)


def joined(modules: Sequence[str]) -> str:
    """One module of several: the newest version and the most special target of them. Variables of
    a module that another has too get names of their own."""
    if len(modules) < 2:
        return "".join(modules)
    headers = [dict(_HEADER.findall(m)) for m in modules]
    version = max((h["version"] for h in headers), key=lambda v: tuple(map(int, v.split("."))))
    target = max((h["target"] for h in headers), key=lambda t: (len(t), t))
    taken: set[str] = set()
    files: dict[str, int] = {}
    bodies: list[str] = []
    for module in modules:
        body = _with_files(_HEADER.sub("", module), files).strip("\n")
        for name in dict.fromkeys(_DECLARED.findall(body)):
            other, number = name, 1
            while other in taken:
                number += 1
                other = f"{name}__{number}"
            if other != name:
                body = re.sub(rf"(?<![\w$.]){re.escape(name)}(?![\w$])", other, body)
            taken.add(other)
        bodies.append(body)
    head = f".version {version}\n.target {target}\n.address_size {headers[0]['address_size']}\n"
    named = "".join(f"\n.file\t{number} {name}" for name, number in files.items())
    return "\n\n".join((head.rstrip("\n") + named, *bodies)) + "\n"


def _with_files(body: str, files: dict[str, int]) -> str:
    """A module without the names of its files, which get their numbers in ``files``."""
    own = {m[1]: files.setdefault(m[2], len(files) + 1) for m in _FILE.finditer(body)}
    if not own:
        return body
    return _LOCATION.sub(lambda m: f"{m[1]}{own.get(m[2], m[2])}", _FILE.sub("", body))
