"""Where the sources lie, for the tests of the house."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "tessera_lang": ROOT / "tessera_lang",
    "tessera_grammar": ROOT / "grammar" / "tessera_grammar",
    "tessera_backend": ROOT / "backend" / "tessera_backend",
    "tessera_lsp": ROOT / "lsp" / "tessera_lsp",
    "tessera_stdlib": ROOT / "stdlib" / "tessera_stdlib",
}


@cache
def source_files() -> tuple[Path, ...]:
    """Python files of the five packages, in order."""
    return tuple(sorted(p for root in PACKAGES.values() for p in root.rglob("*.py")))


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree, in no order; ``ast.walk`` takes twice as long."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        for name in node._fields:
            held = getattr(node, name, None)
            if isinstance(held, ast.AST):
                pending.append(held)
            elif isinstance(held, list):
                pending += [n for n in held if isinstance(n, ast.AST)]


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def kept_files() -> tuple[Path, ...]:
    """Files that are or would be committed; empty outside a checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    names = done.stdout.decode("utf-8").split("\0")
    return tuple(path for name in names if name and (path := ROOT / name).is_file())
