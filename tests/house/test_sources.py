"""Manners of the sources that no linter holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.places import PACKAGES, ROOT, kept_files, nodes, short, source_files

MAX_FILE = 600
MAX_FUNCTION = 60

# A ratchet: what is longer for a reason, with its length. An entry may only shrink, and goes
# once the length is within the limit.
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}

FORBIDDEN_CALLS = {"eval", "exec"}
# Made of fixed pieces, small integers and fields of our own classes, never of names or texts of
# a program.
MAY_MAKE_CODE = {
    "backend/tessera_backend/runtime/launch_fast_path.py",
    "backend/tessera_backend/runtime/recorded_shortcuts.py", "tessera_lang/record.py",
}  # fmt: skip
FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
MACHINE = re.compile(r"/(?:home|Users|root|work)/[A-Za-z]|[A-Z]:\\\\?Users\\")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> list[tuple[str, int]]:
    """The functions of a file with their lengths."""
    return [
        (node.name, (node.end_lineno or 0) - node.lineno + 1)
        for node in nodes(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_files_are_short() -> None:
    lengths = {short(p): p.read_text(encoding="utf-8").count("\n") for p in source_files()}
    hold_ratchet(lengths, LONG_FILES, MAX_FILE)


def test_functions_are_short() -> None:
    lengths: dict[str, int] = {}
    for path in source_files():
        for function, length in functions(path):
            name = f"{short(path)}:{function}"
            lengths[name] = max(lengths.get(name, 0), length)
    hold_ratchet(lengths, LONG_FUNCTIONS, MAX_FUNCTION)


def hold_ratchet(lengths: dict[str, int], known: dict[str, int], limit: int) -> None:
    too_long = {n: k for n, k in lengths.items() if k > max(limit, known.get(n, 0))}
    assert not too_long
    done = {n for n in known if lengths.get(n, 0) <= limit}
    assert not done, "take these out of the list"


def test_modules_say_what_they_own() -> None:
    # By the text: trees of all files are dear to make.
    first = re.compile(r'(?:\s|#.*\n)*(?:"""\s*[^"\s]|"[^"])')
    assert not first.match("# a remark\nimport re") and not first.match('""" """')
    silent = [short(p) for p in source_files() if not first.match(p.read_text(encoding="utf-8"))]
    assert not silent


def test_nothing_reads_code_from_data() -> None:
    found: list[str] = []
    words = re.compile("|".join(sorted(FORBIDDEN_CALLS | FORBIDDEN_MODULES)))
    for path in source_files():
        if not words.search(path.read_text(encoding="utf-8")):
            continue  # a tree of it would have none of these names
        for node in nodes(tree(path)):
            match node:
                case ast.Call(func=ast.Name(id=name)) if (
                    name in FORBIDDEN_CALLS and short(path) not in MAY_MAKE_CODE
                ):
                    found.append(f"{short(path)}:{node.lineno} {name}()")
                case ast.Import(names=names):
                    bad = {n.name.split(".")[0] for n in names} & FORBIDDEN_MODULES
                    found += [f"{short(path)}:{node.lineno} {name}" for name in sorted(bad)]
                case ast.ImportFrom(module=str(module)) if (
                    module.split(".")[0] in FORBIDDEN_MODULES
                ):
                    found.append(f"{short(path)}:{node.lineno} {module}")
                case _:
                    pass
    assert not found


def test_no_vague_names() -> None:
    vague = {"utils.py", "util.py", "helpers.py", "misc.py", "common.py"}
    assert not [short(p) for p in source_files() if p.name in vague or p.name.startswith("new_")]


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_typed(package: str) -> None:
    assert (PACKAGES[package] / "py.typed").is_file()


def text_files() -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for path in kept_files():
        if path.stat().st_size < 2_000_000:
            try:
                out.append((short(path), path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue
    return out


def test_no_paths_of_a_machine() -> None:
    found = [
        f"{name}: {match[0]}"
        for name, text in text_files()
        if name != short(Path(__file__)) and (match := MACHINE.search(text))
    ]
    assert not found


def test_the_lock_file_names_no_registry() -> None:
    lock = ROOT / "vscode-extension" / "package-lock.json"
    assert '"resolved"' not in lock.read_text(encoding="utf-8")
