"""Every example of docs/python.md runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.world.conftest import command_in

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)(?: (\w+))?\n(.*?)^```", re.S | re.M)
_PRINTS = re.compile(r"# prints (.*)$", re.M)


@dataclass(frozen=True)
class Block:
    language: str
    kind: str
    text: str

    @property
    def prints(self) -> list[str]:
        return _PRINTS.findall(self.text)


BLOCKS = [Block(*match) for match in _BLOCK.findall(PAGE)]


def program(*kinds: str) -> tuple[str, list[str]]:
    """The blocks of these kinds as one program, and what it prints."""
    chosen = [b for b in BLOCKS if b.language == "python" and b.kind in kinds]
    future = "from __future__ import annotations\n"
    text = future + "\n".join(b.text.replace(future, "") for b in chosen)
    return text, [line for b in chosen for line in b.prints]


def run(folder: Path, text: str, *, name: str = "program.py") -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text, encoding="utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    return subprocess.run(
        [sys.executable, name], cwd=folder, capture_output=True, text=True, timeout=200,
        check=False, env={**kept, "TESSERA_CACHE_DIR": str(folder / "cache")},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the page, and what its commands make of it."""
    made = tmp_path_factory.mktemp("page")
    tesserac = command_in(made, made)
    (file,) = [b.text for b in BLOCKS if b.language == "tessera"]
    (made / "scale.tessera").write_text(file, encoding="utf-8")
    commands = [line for b in BLOCKS if b.language == "sh" for line in b.text.splitlines()]
    assert len(commands) == 2
    for command in commands:
        done = tesserac(*shlex.split(command)[1:])
        assert done.status == 0, done.err
    return made


def test_the_examples(folder: Path) -> None:
    text, prints = program("")
    done = run(folder, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == prints and len(prints) > 15


def test_the_error(folder: Path) -> None:
    """The traceback of the page, word by word."""
    (fails,) = [b for b in BLOCKS if b.kind == "fails"]
    (shown,) = [b for b in BLOCKS if b.language == "text"]
    before, _ = program("")
    start = before[: before.index("again = m.scale.bind")]
    (folder / "before.py").write_text(start, encoding="utf-8")
    # The page shows the line as the first of its file.
    done = run(folder, "from before import *\n" + fails.text)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if set(line) - set(" ^~")]
    said = [re.sub(r'File ".*?program.py", line 2', 'File "program.py", line 1', x) for x in said]
    assert said == shown.text.splitlines()


def test_the_workers(folder: Path) -> None:
    text, prints = program("worker")
    done = run(folder, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == prints and prints


@pytest.mark.gpu
def test_the_examples_on_a_gpu(folder: Path) -> None:
    text, prints = program("", "gpu")
    done = run(folder, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == prints


def test_every_kind_of_block_is_run() -> None:
    kinds = {(b.language, b.kind) for b in BLOCKS}
    assert kinds == {("tessera", ""), ("sh", ""), ("text", ""), ("python", ""), ("python", "gpu"),
                     ("python", "fails"), ("python", "worker")}  # fmt: skip


def test_the_page_names_all_that_there_is() -> None:
    import tessera_lang as tessera

    for name in tessera.__all__:
        if not name.startswith("__"):
            assert name in PAGE, name
    for method in ("bind", "on(", "__doc__", "numpy", "copy_from", "stream="):
        assert method in PAGE
