"""Generated programs in several processes, of which none waits for ever.

Process j takes the blocks j, j + jobs, j + 2 jobs ... of the seeds. One that stays at a block is
ended, the block counts as a difference, and another process goes on behind it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import IO

from tests.cards import environment

BLOCK = 8
"""Programs of one module; their seeds follow on each other."""
PATIENCE = 90.0
"""Seconds for a block, and for the smallest program of a difference."""

_AT = re.compile(rb"^at (\d+), (\d+) done, (\d+) differences$", re.M)
_END = re.compile(rb"^(\d+) programs, (\d+) differences$", re.M)


def say_where(seed: int, done: int, found: int) -> None:
    """What a process says before each block."""
    print(f"at {seed}, {done} done, {found} differences", file=sys.stderr, flush=True)


@dataclass
class Worker:
    """A process, and what those before it in its place did. What it says goes to a file: a pipe
    that nobody reads would stop it."""

    job: int
    chosen: argparse.Namespace
    seed: int
    until: float
    done: int = 0
    found: int = 0
    file: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    changed: float = field(default_factory=time.monotonic)
    size: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Whether there was something left to do."""
        chosen = self.chosen
        each = -(-chosen.count // (chosen.jobs * BLOCK)) * BLOCK
        left, seconds = each - self.done, self.until - time.monotonic()
        if left <= 0 or seconds <= 0:
            return False
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self.changed, self.size = time.monotonic(), 0
        self.process = subprocess.Popen(
            self.command(left, seconds), stdout=sys.stdout, stderr=self.file,
            env=environment(self.job),
        )  # fmt: skip
        return True

    def command(self, count: int, seconds: float) -> list[str]:
        chosen = self.chosen
        command = [sys.executable, "-m", "tests.fuzz.programs", "--target", chosen.target]
        command += ["--levels", chosen.levels, "--stride", str(chosen.jobs), "--where"]
        command += ["--count", str(count), "--seed", str(self.seed)]
        command += ["--seconds", str(seconds)] * (chosen.seconds is not None)
        return command + ["--rewritten"] * chosen.rewritten + ["--unchecked"] * chosen.unchecked

    def ended(self) -> bool:
        """Whether this place is done. Ends a process that stays where it is, and goes on."""
        if self.process is None:
            return True
        status = self.process.poll()
        said = self.said()
        if status is None:
            if len(said) != self.size:
                self.size, self.changed = len(said), time.monotonic()
            if time.monotonic() - self.changed < PATIENCE:
                return False
            self.process.kill()
            self.process.wait()
        end = _END.search(said)
        if end:
            self.done, self.found = self.done + int(end[1]), self.found + int(end[2])
            self.process = None
            return True
        why = "does not end" if status is None else f"ended the process ({status})"
        return not self.went_on(why, said)

    def went_on(self, why: str, said: bytes) -> bool:
        """Whether another process goes on behind the block that this one was at."""
        places = _AT.findall(said)
        if not places:
            raise SystemExit(f"a process {why} before its first program: {said[-2000:]!r}")
        seed, done, found = map(int, places[-1])
        print(f"one of the seeds {seed} to {seed + BLOCK - 1} {why}", flush=True)
        self.done, self.found = self.done + done + BLOCK, self.found + found + 1
        self.seed = seed + BLOCK * self.chosen.jobs
        self.process = None
        return self.start()

    def said(self) -> bytes:
        """All of it, without moving the place at which the process writes."""
        return os.pread(self.file.fileno(), os.fstat(self.file.fileno()).st_size, 0)


def divided(chosen: argparse.Namespace) -> tuple[list[int], int]:
    """How many programs each process ran, and how many differences there were."""
    until = time.monotonic() + (chosen.seconds or 1e9)
    workers = [Worker(job, chosen, chosen.seed + job * BLOCK, until) for job in range(chosen.jobs)]
    for worker in workers:
        worker.start()
    busy = workers
    while busy:
        busy = [worker for worker in busy if not worker.ended()]
        time.sleep(0.2)
    return [worker.done for worker in workers], sum(worker.found for worker in workers)
