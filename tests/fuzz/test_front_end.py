"""Damaged programs: whatever is deleted, doubled, swapped or cut off, ``check`` answers with
diagnostics, soon, and with none that are the compiler's own fault."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera_lang.driver.session import Session

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("stdlib/tessera_stdlib", "examples", "tests/golden/errors")
SAMPLES = sorted(path for f in FOLDERS for path in (ROOT / f).glob("**/*.tessera"))
TOKEN = re.compile(r"\w+|[^\w\s]|[ \t]+|\n")
STRANGE = (
    *("( ) [ ] : , = @ * . - # \\ 0x 1e def if return mut lambda for f32 \" \"\"\"".split()),
    *("\n", "\t", "    ", "é", "\x00", "9" * 30),
)  # fmt: skip


def damaged(text: str, r: random.Random) -> str:
    tokens = TOKEN.findall(text)
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        if not tokens:
            break
        at, other = r.randrange(len(tokens)), r.randrange(len(tokens))
        match r.randrange(6):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = tokens[other]
            case 4:
                tokens.insert(at, r.choice(STRANGE))
            case _:
                tokens = tokens[:at]
    return "".join(tokens)


def texts() -> list[tuple[Path, str]]:
    """The sample files, and the programs of the documents."""
    found = [(p, p.read_text(encoding="utf-8", errors="replace")) for p in SAMPLES]
    for page in sorted((ROOT / "docs").glob("**/*.md")):
        blocks = re.findall(
            r"```tessera[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
        )
        found += [(ROOT / "docs" / "block", block) for block in blocks]
    return found


def programs(seed: int, count: int) -> Iterator[tuple[Path, str]]:
    r, samples = random.Random(seed), texts()
    for _ in range(count):
        path, text = r.choice(samples)
        yield path, damaged(text, r)


def check(session: Session, path: Path, text: str) -> None:
    name = str(path.with_name("damaged.tessera"))
    session.set_text(name, text)
    begin = time.process_time()
    found = session.check(name)
    taken = time.process_time() - begin
    faults = [d for d in found if d.code.startswith("T09")]
    assert not faults, (faults, text)
    # A page of the library with its own tests takes five seconds on a busy machine.
    assert taken < 10.0 + len(text.encode()) / 2_000, (taken, text)
    for d in found:
        assert d.code and d.message


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(1)
def test_damaged_programs(seed: int) -> None:
    session = Session()
    for path, text in programs(seed, 50):
        check(session, path, text)


def _runs(text: str) -> bool:
    """Whether a program has statements of its own at the top, which the evaluator walks."""
    other = ("@", "def", "#", "import", "from", '"')
    lines = (line for line in text.splitlines() if line and not line[0].isspace())
    return len(text) < 2500 and any(not line.startswith(other) for line in lines)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_damaged_host_programs(seed: int) -> None:
    r, session = random.Random(seed), Session()
    samples = [(path, text) for path, text in texts() if _runs(text)]
    for _ in range(200):
        path, text = r.choice(samples)
        check(session, path, damaged(text, r))


def test_a_damaged_argument_costs_its_line_only() -> None:
    session = Session()
    session.set_text("d.tessera", "w = op.cast(op.zeros((3,)), 1 +)\nprint(w[1])\nq = nothing(3)\n")
    assert [d.code for d in session.check("d.tessera")] == ["T0030", "T0101"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_more_damaged_programs(seed: int) -> None:
    session = Session()
    for path, text in programs(seed, 100):
        check(session, path, text)


def test_every_prefix() -> None:
    """A program that is being written, cut off behind each token."""
    text = (ROOT / "examples" / "sum_reduce.tessera").read_text()
    session, at = Session(), 0
    for token in TOKEN.findall(text):
        at += len(token)
        check(session, ROOT / "examples" / "sum_reduce.tessera", text[:at])
