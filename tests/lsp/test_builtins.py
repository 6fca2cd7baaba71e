"""Hover and completion know every builtin that a program uses, and no other: one question for
each place in the examples, the library and the pages where one stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tessera_lsp.ide.completion import completions
from tessera_lsp.ide.document import Document
from tessera_lsp.ide.hover import hover

from tessera_lang.driver.session import Session
from tessera_lang.evaluate.builtin_names import MATH_NUMBERS
from tessera_lang.sema import builtins

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    *sorted((ROOT / "examples").rglob("*.tessera")),
    *sorted((ROOT / "stdlib").rglob("*.tessera")),
]
DOTTED = re.compile(r"(?<![\w.])(op|schedule|tshared|tlocal|math|fast|tile)\.(\w+)")
PAGES = [*sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```tessera(?: right)?\n(.*?)^```", re.S | re.M)


def used() -> dict[str, tuple[str, int]]:
    """A program that uses each builtin of a module, and where."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCES]
    texts += [m[1] for page in PAGES for m in BLOCK.finditer(page.read_text(encoding="utf-8"))]
    found: dict[str, tuple[str, int]] = {}
    for text in texts:
        for m in DOTTED.finditer(text):
            line = text[text.rfind("\n", 0, m.start()) + 1 : m.start()]
            if "#" not in line and line.count('"') % 2 == 0 and line.count("`") % 2 == 0:
                found.setdefault(m[0], (text, m.start(2)))
    return found


USED = used()
KNOWN = [*builtins.FUNCTIONS, *builtins.TILE_FUNCTIONS, *(f"op.{n}" for n in builtins.OP_BUILT)]


def document(text: str) -> Document:
    session = Session()
    path = str(ROOT / "examples" / "asked.tessera")
    session.set_text(path, text, 1)
    return Document(session, path)


def test_programs_use_most_builtins() -> None:
    assert len(USED) > 50


@pytest.mark.parametrize("name", sorted(USED))
@pytest.mark.sample(12)
def test_hover_of_what_a_program_uses(name: str) -> None:
    text, at = USED[name]
    found = hover(document(text), at + 1)
    assert found is not None and "Not built yet" not in found.markdown, found
    said = found.markdown.split("```")[-1].strip()
    assert said, found.markdown


@pytest.mark.parametrize("name", sorted(USED))
@pytest.mark.sample(12)
def test_completion_of_what_a_program_uses(name: str) -> None:
    text, at = USED[name]
    if name == "op.kernel":
        pytest.skip("behind @ stand the words of a head")
    labels = {c.label: c for c in completions(document(text), at)}
    assert name.partition(".")[2] in labels
    assert labels[name.partition(".")[2]].documentation


HEAD = "@op.kernel\ndef f(x: f32[n]) -> f32[n]:\n    {}\n    return x\n"


@pytest.mark.parametrize("name", sorted({n for n in KNOWN if "." in n}))
def test_every_builtin_says_how_it_is_called(name: str) -> None:
    text = HEAD.format(name)
    found = hover(document(text), text.index(name) + len(name) - 1)
    assert found is not None and "Not built yet" not in found.markdown
    info = builtins.TILE_FUNCTIONS.get(name) or builtins.FUNCTIONS.get(name)
    for parameter in info.parameters if info is not None and not info.variadic else ():
        assert re.search(rf"\b{parameter}\b", found.markdown), found.markdown


@pytest.mark.parametrize("module", ["schedule", "op", "tile", "math", "fast"])
def test_completion_in_a_tile_kernel_has_what_the_checker_has(module: str) -> None:
    text = HEAD.format(f"{module}.")
    labels = {
        c.label for c in completions(document(text), text.index(f"{module}.") + len(module) + 1)
    }
    wanted = {n.partition(".")[2] for n in builtins.TILE_FUNCTIONS if n.startswith(f"{module}.")}
    numbers = {*MATH_NUMBERS} if module in ("op", "math") else set[str]()
    assert wanted | numbers <= labels
    others = {n for n in labels if not builtins.is_built(f"{module}.{n}")}
    assert others <= labels_of_library(module) | numbers


def labels_of_library(module: str) -> set[str]:
    """Functions of ``std.math`` and ``std.fast`` stand behind ``math.`` and ``fast.``."""
    path = ROOT / "stdlib" / "tessera_stdlib" / f"{module}.tessera"
    if not path.is_file():
        return set()
    return set(re.findall(r"^def (\w+)", path.read_text(encoding="utf-8"), re.M))
