"""Ctrl-C while a kernel runs on the CPU: the run ends within a second, with exit code 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of a POSIX system")

ENDLESS = {
    "one lane": """
@kernel tile[(1,)] grid[(1,)]
def k(x: mut f32[n]):
    i = 0
    while i < n:
        x[i] = 1.0
""",
    "many lanes": """
@kernel tile[(64,)] grid[(9,)]
def k(x: mut f32[n]):
    i = tile_id(0) % 2
    while i < n:
        x[i] = x[i] + 1.0
""",
    "for some lanes": """
@kernel tile[(64,)] grid[(1,)]
def k(x: mut f32[n]):
    i = tile_id(0)
    while i < 3:
        x[0] = f32(i)
    tbarrier()
    x[1] = 2.0
""",
    "in a loop": """
@kernel tile[(1,)] grid[(1,)]
def k(x: mut f32[n]):
    for j in range(5):
        i = 0
        while i < n: x[i] = f32(j)
""",
    "many groups": """
@kernel tile[(1,)] grid[(2000000000,)]
def k(x: mut f32[n]):
    s = f32(0.0)
    for j in range(n * 4096): s = s * 0.5 + x[j % n]
    if s > 9.0: x[0] = s
""",
}
RUN = "\nx = op.zeros((4,))\nprint('begins')\nk(x)\nprint('ends')\n"
PYTHON = """
import sys
import numpy as np
import tessera_lang as tessera
m = tessera.load(sys.argv[1], target="cpu")
print("begins", flush=True)
for _ in range(2):
    try:
        m.k(np.zeros(4, np.float32))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def started(command: list[str]) -> subprocess.Popen[str]:
    """A process that listens to SIGINT, whatever this one does, and is about to run its kernel."""
    made = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert made.stdout is not None
    line = ""
    while "begins" not in line:
        line = made.stdout.readline()
        assert line, made.communicate()
    return made


def interrupt(process: subprocess.Popen[str], wait: float = 1.5) -> float:
    """Seconds from the signal until the process says or does something."""
    time.sleep(wait)  # it compiles first
    assert process.poll() is None
    begin = time.perf_counter()
    process.send_signal(signal.SIGINT)
    return begin


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.sample(1)
def test_a_run(tmp_path: Path, name: str) -> None:
    path = tmp_path / "endless.tessera"
    path.write_text(ENDLESS[name] + RUN, encoding="utf-8")
    process = started(
        [sys.executable, "-m", "tessera_lang.driver.cli", "run", str(path), "--target", "cpu"]
    )
    begin = interrupt(process)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.perf_counter() - begin < 3.0  # a second, on a machine that does much else
    assert "ends" not in out


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_python_goes_on(tmp_path: Path) -> None:
    """A call raises KeyboardInterrupt, and the next one is interrupted just so."""
    path = tmp_path / "endless.tessera"
    path.write_text(ENDLESS["many lanes"], encoding="utf-8")
    process = started([sys.executable, "-c", PYTHON, str(path)])
    assert process.stdout is not None
    for wait in (1.5, 0.5):
        begin = interrupt(process, wait)
        assert process.stdout.readline() == "interrupted\n"
        assert time.perf_counter() - begin < 3.0
    process.communicate(timeout=20)
    assert process.returncode == 0


OFTEN = """
import sys
import numpy as np
import tessera_lang as tessera
m = tessera.load(sys.argv[1], target="cpu")
x = np.zeros(4, np.float32)
for _ in range(40):
    m.k(x)
x[0] = 1
print("begins", flush=True)
for _ in range(2):
    try:
        m.k(x)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
x[0] = 0
m.k(x)
"""


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_launch_that_was_short_before(tmp_path: Path) -> None:
    """Machine code has begun it."""
    path = tmp_path / "endless.tessera"
    path.write_text("""
@kernel tile[(1,)] grid[(1,)]
def k(x: mut f32[n]):
    while x[0] > 0.0: x[1] = x[1] + 1.0
""")
    process = started([sys.executable, "-c", OFTEN, str(path)])
    assert process.stdout is not None
    for _ in range(2):
        begin = interrupt(process, 0.5)
        assert process.stdout.readline() == "interrupted\n"
        assert time.perf_counter() - begin < 3.0
    process.communicate(timeout=20)
    assert process.returncode == 0
