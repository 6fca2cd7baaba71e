"""Every diagnostic code stands in one table, is raised somewhere, and has a page."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module

from tessera_lang.diagnostics.codes import Code, all_codes, range_modules
from tessera_lang.diagnostics.page_lookup import page_of
from tests.house.places import ROOT, short, source_files

PAGES = ROOT / "docs" / "errors"
TABLES = "tessera_lang.diagnostics.codes"
THIS = "test_codes.py"
CODE = re.compile(r"\"((?:T0|P1)\d{3})\"")


def test_one_row_a_code() -> None:
    seen: dict[str, str] = {}
    twice: list[str] = []
    for name in range_modules():
        rows: dict[str, Code] = import_module(f"{TABLES}.{name}").CODES
        for code, row in rows.items():
            assert row.code == code
            assert code.startswith(name[:3].upper()), f"{code} stands in {name}"
            if code in seen:
                twice.append(f"{code}: {seen[code]}, {name}")
            seen[code] = name
    assert not twice


def test_slugs() -> None:
    slugs = Counter(row.slug for row in all_codes().values())
    assert not [slug for slug, n in slugs.items() if n > 1]
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug) for slug in slugs)
    assert all(row.summary for row in all_codes().values())


def raised_codes() -> dict[str, str]:
    """Codes in string literals outside the tables, with one file that has them."""
    found: dict[str, str] = {}
    for path in source_files():
        if "codes" not in path.parts:
            for code in CODE.findall(path.read_text(encoding="utf-8")):
                found.setdefault(code, short(path))
    return found


def test_raised_codes_are_in_the_table() -> None:
    unknown = {c: f for c, f in raised_codes().items() if c not in all_codes()}
    assert not unknown


def test_codes_of_the_table_are_raised() -> None:
    assert not sorted(set(all_codes()) - set(raised_codes()))


# What is wrong with these cannot be shown as a text in a page.
NO_WRONG_PROGRAM = {"T0001", "T0002", "T0003", "T0004", "T0005"}
ELSEWHERE = {
    **dict.fromkeys(("T0844", "T0870", "T0871", "T0872", "T0873", "T0874", "T0875", "T0876",
                     "T0877"), "a driver or a device, or two of them"),
    "T0855": "an array larger than the memory of most GPUs",
    **dict.fromkeys(("T0878", "T0879", "T0881"), "tools of NVIDIA"),
    **dict.fromkeys(("T0882", "T0890", "T0893"), "another machine, or IR written by hand"),
    **dict.fromkeys(("T0901", "T0902", "T0903", "T0904"), "a fault of ours"),
}  # fmt: skip
"""Codes that no program, script or command of a page ends in, with what it would take. Each has a
test that names it."""
WRONG = re.compile(r"^```(?:tessera|python|sh|toml) wrong$", re.M)
RIGHT = re.compile(r"^```(?:tessera|python|sh|toml) right$", re.M)


def fault_of_page(row: Code) -> str:
    """What a code's page lacks; empty where it is whole."""
    text = page_of(row.code)
    if text is None:
        return "is missing"
    if not text.startswith(f"# {row.code} {row.slug}\n"):
        return "has another title"
    if row.code in ELSEWHERE:
        return "has an example after all" if WRONG.search(text) else ""
    if not WRONG.search(text) and row.code not in NO_WRONG_PROGRAM:
        return "lacks a wrong program"
    return "" if RIGHT.search(text) else "lacks a right program"


def test_what_no_page_shows_has_a_test() -> None:
    tests = ROOT / "tests"
    texts = [p.read_text(encoding="utf-8") for p in tests.rglob("test_*.py") if p.name != THIS]
    named = {code for text in texts for code in re.findall(r"\bT0\d{3}\b", text)}
    assert not sorted({*ELSEWHERE, *NO_WRONG_PROGRAM} - named)


def test_every_code_has_a_page() -> None:
    faults = {row.code: fault for row in all_codes().values() if (fault := fault_of_page(row))}
    assert not faults


def test_pages_have_rows() -> None:
    assert {p.stem for p in PAGES.glob("*.md")} <= {*all_codes(), "README", "index"}
