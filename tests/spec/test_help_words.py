"""Names that the texts of messages send a reader to exist: functions of the language and of the
library, directives, options and settings, wherever a help of the compiler quotes one."""

from __future__ import annotations

import ast as python
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tessera_lang.sema import builtins
from tests.house.places import nodes

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tessera_lang", "backend/tessera_backend")
QUOTED = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"(?<![\w.])(op|schedule|tshared|tlocal|math|fast|tile|std)((?:\.\w+)+)\(")
OPTION = re.compile(r"`(?:tesserac (\w+) )?[^`]*?(--[a-z][\w-]+)[^`]*`")
FOREIGN = {"op.autotunable", "op.meshgrid", "op.lexsort"}


@cache
def texts() -> tuple[tuple[Path, str], ...]:
    return tuple(_texts())


def _texts() -> Iterator[tuple[Path, str]]:
    """String literals of the sources that are no docstrings, f-strings with `{}` for values."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if "`" not in source:
                continue  # it quotes nothing
            every = list(nodes(python.parse(source)))
            docs = {id(n.value) for n in every if isinstance(n, python.Expr)}
            for node in every:
                if id(node) in docs:
                    continue
                if isinstance(node, python.Constant) and isinstance(node.value, str):
                    yield path, node.value
                elif isinstance(node, python.JoinedStr):
                    parts = (str(v.value) if isinstance(v, python.Constant) else "{}"
                             for v in node.values)  # fmt: skip
                    yield path, "".join(parts)


def named() -> dict[str, Path]:
    return {
        f"{m[1]}{m[2]}": path
        for path, text in texts()
        for quoted in QUOTED.finditer(text)
        for m in DOTTED.finditer(quoted[1])
    }


def library() -> set[str]:
    found = set[str]()
    for path in (ROOT / "stdlib" / "tessera_stdlib").glob("*.tessera"):
        names = re.findall(r"^def (\w+)", path.read_text(encoding="utf-8"), re.M)
        found |= {f"std.{path.stem}.{n}" for n in names}
        if path.stem in ("math", "fast"):
            found |= {f"{path.stem}.{n}" for n in names}
    return found


def test_functions_that_messages_name_exist() -> None:
    known = {*builtins.FUNCTIONS, *builtins.TILE_FUNCTIONS, *(f"op.{n}" for n in builtins.OP_BUILT),
             *library(), *FOREIGN}  # fmt: skip
    names = named()
    assert len(names) > 20
    assert not {n: str(p) for n, p in names.items() if n not in known}


def test_options_that_messages_name_exist() -> None:
    from tessera_lang.driver.commands import COMMANDS

    sources = (ROOT / "tessera_lang" / "driver" / "commands").glob("*.py")
    given = "".join(p.read_text(encoding="utf-8") for p in sources)
    found = {(m[1], m[2]) for _, text in texts() for m in OPTION.finditer(text)}
    ours = {(c, o) for c, o in found if c in COMMANDS}
    assert ours
    assert not {pair for pair in ours if f'"{pair[1]}"' not in given}
