"""An independent MLIR parser reads what we print, with unregistered dialects allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Program
from tessera_lang.ir.parser import parse_program
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.types.dtype import DTYPES
from tests.house.places import ROOT
from tests.unit.ir.other_parser import names_read, types_read
from tests.unit.same_program import same_program

BLOCK = re.compile(r"^```tessera(?: right)?\n(.*?)^```", re.S | re.M)


def sources() -> dict[str, str]:
    """Texts of the examples and of the documents' blocks that hold a kernel."""
    found = {p.stem: p.read_text(encoding="utf-8") for p in (ROOT / "examples").glob("*.tessera")}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for i, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            found[f"{page.stem}-{i}"] = match[1]
    return {name: text for name, text in found.items() if "@kernel" in text}


def kernels(source: str, path: str) -> list[Program]:
    """Tile IR of the kernels of a clean text whose annotations say all."""
    session = Session()
    session.set_text(path, source)
    if session.check(path):
        return []
    return [
        session.tile(path, kernel.name, session.signature(path, kernel.name))[0]
        for kernel in session.kernels(path)
        if not kernel.brackets and all(p.annotation for p in kernel.parameters)
    ]


@pytest.mark.slow
def test_real_kernels(tmp_path: Path) -> None:
    seen = 0
    for name, source in sources().items():
        for program in kernels(source, str(tmp_path / f"{name}.tessera")):
            text = print_program(program)
            assert names_read(text) == [o.name for o in program.walk()]
            assert same_program(parse_program(text), program)
            seen += 1
    assert seen >= 5


def test_every_type_and_number() -> None:
    b = Builder()
    for dtype in DTYPES.values():
        values = [0, 1] if dtype.kind in ("bool", "uint", "index") else [0, -1]
        if dtype.is_float:
            values += [-0.0, 1e-5, float("nan")]
        for value in values:
            b.constant(value, dtype, dtype.name)
    text = print_program(b.program())
    assert set(names_read(text)) == {"tile.constant"}
    types = types_read(text)
    assert len(types) == len(DTYPES)
    assert {"f32", "i1", "i32"} <= types
