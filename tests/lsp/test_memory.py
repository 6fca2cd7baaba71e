"""What the server takes after many edits, and whether it is as quick as at first."""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path

import pytest

from tests.lsp.raw import Raw
from tests.lsp.test_random_edits import PIECES, SAMPLES

KEYS = 3000
MOST = 250.0  # MB
FILES = 6


def resident(pid: int) -> float:
    """MB of memory that a process has now."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (s for s in status.splitlines() if s.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.slow
def test_an_hour_of_keys(tmp_path: Path) -> None:
    """Keys in several files, with what an editor asks after each, as fast as they are answered:
    names, numbers and lines that were never there before. What is kept does not grow with them."""
    pick = random.Random(7)
    found: list[float] = []
    waits: list[float] = []
    texts = [s.read_text(encoding="utf-8") for s in SAMPLES if s.stat().st_size < 4000][:FILES]
    with Raw() as raw:
        now = {(tmp_path / f"m{i}.tessera").as_uri(): text for i, text in enumerate(texts)}
        first = dict(now)
        for uri, text in now.items():
            raw.open(uri, text)
        for key in range(KEYS):
            uri = pick.choice(list(now))
            text = now[uri]
            lo = pick.randint(0, len(text))
            new = pick.choice([*PIECES, f"n{key} = {key}\n", f"{key}", f"def f{key}(x):\n"])
            now[uri] = first[uri] if pick.random() < 0.2 else text[:lo] + new + text[lo:]
            start = time.perf_counter()
            raw.change(uri, key + 2, {"text": now[uri]})
            line = now[uri].count("\n", 0, lo)
            raw.at("completion", uri, line, 0)
            if not any(p["version"] == key + 2 for p in raw.published):
                raw.diagnostics(uri, key + 2)
            waits.append(time.perf_counter() - start)
            raw.published.clear()
            if key % (KEYS // 20) == 0:
                found.append(resident(raw.process.pid))
        found.append(resident(raw.process.pid))
    half = len(found) // 2
    assert max(found) < MOST, found
    assert found[-1] < found[half] + 15, found
    assert statistics.median(waits[-500:]) < 3 * statistics.median(waits[100:600]) + 0.005
