"""docs/stdlib.md names what the files declare, and every declaration says what it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera_lang.evaluate.modules import is_test
from tessera_lang.source import SourceFile
from tessera_lang.syntax import ast, parse_module

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "stdlib" / "tessera_stdlib").glob("*.tessera"))
PUBLIC = {
    "arrays",
    "attention",
    "reduce",
    "conv",
    "einsum",
    "elementwise",
    "group",
    "math",
    "scan",
    "sort",
    "histogram",
    "linalg",
    "loss",
    "nn",
    "norm",
    "pool",
    "random",
    "sparse",
    "stencil",
    "topk",
    "transpose",
}
INTERNAL = {
    "each",
    "each_pair",
    "one",
    "two",
    "combined",
    "identity",
    "along_warp",
    "along_row",
    "along_segments",
    "told",
    "asked",
    "scan_once",
    "scanned",
    "no_heads",
}


def declared(path: Path) -> list[ast.FunctionDef]:
    parsed = parse_module(SourceFile(str(path), path.read_text()))
    assert not parsed.diagnostics
    return list(parsed.module.functions)


@pytest.mark.sample(14)
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_function_has_a_docstring(path: Path) -> None:
    for function in declared(path):
        assert function.docstring, f"{function.name} of {path.name} has no docstring"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_the_page_lists_what_there_is(name: str) -> None:
    page = (ROOT / "docs" / "stdlib.md").read_text()
    part = page.split(f"## std.{name}\n", 1)[1].split("\n## ", 1)[0]
    listed = re.findall(r"^\| `(\w+)\(", part, re.MULTILINE)
    functions = declared(ROOT / "stdlib" / "tessera_stdlib" / f"{name}.tessera")
    names = [f.name for f in functions if not is_test(f)]
    assert listed == [n for n in names if n not in INTERNAL and n[0] != "_"]
