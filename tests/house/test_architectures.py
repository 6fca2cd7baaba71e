"""Architectures are listed in one place, and everybody else asks for features."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.places import short, source_files

ROWS = "tessera_lang/target/arch/"
USAGE = "tessera_lang/driver/commands/"  # examples of commands name one, as a user does
NAME = re.compile(r"\b(?:sm|compute)_\d+[af]?\b")
HINT = re.compile(r"(?:sm|compute)_\d|capability|\"(?:a|f|sm_)\"")  # a file without is not parsed


def named(text: str, name: str = "") -> Iterator[str]:
    """Where a module names an architecture, compares a capability, or takes a name apart."""
    if not HINT.search(text):
        return
    tree = ast.parse(text)
    prose = {id(n.value) for n in ast.walk(tree)
             if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)}  # fmt: skip
    for node in ast.walk(tree):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in prose and NAME.search(node.value):
                yield f"{where} {node.value!r}"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            asked = any(isinstance(s, ast.Attribute) and s.attr == "capability" for s in sides)
            if asked and any(isinstance(s, ast.Tuple | ast.Constant) for s in sides):
                yield f"{where} compares a capability"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = [a.value for a in node.args if isinstance(a, ast.Constant)]
            taken = node.func.attr in ("startswith", "endswith", "removeprefix", "removesuffix")
            if taken and set(given) & {"a", "f", "sm_"}:
                yield f"{where} takes a name apart"


def found_in(modules: list[Path]) -> list[str]:
    return [f for p in modules for f in named(p.read_text(encoding="utf-8"), short(p))]


def test_no_module_lists_architectures_but_their_own() -> None:
    modules = [p for p in source_files() if not short(p).startswith((ROWS, USAGE))]
    assert len(modules) > 400
    assert found_in(modules) == []


def test_commands_name_one_in_examples_and_helps_alone() -> None:
    """Each is part of a sentence or of a command, not a name to compare with."""
    found = found_in([p for p in source_files() if short(p).startswith(USAGE)])
    assert found and all(" " in f.partition(" ")[2].strip("'\"") for f in found)


@pytest.mark.parametrize(
    "text",
    [
        '"x".startswith("sm_")', 'arch.name.endswith("a")', 'ROWS = {"sm_90": 1}',
        "arch.capability >= (9, 0)", 'x = arch in ("sm_80", "sm_86")', 'f".target sm_80 {x}"',
    ],
)  # fmt: skip
def test_each_way_to_name_one_is_seen(text: str) -> None:
    assert list(named(text))


def test_prose_may_name_one() -> None:
    assert not list(named('"""Code of sm_90 and later."""\n# sm_80\n'))
