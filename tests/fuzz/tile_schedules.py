"""A schedule never changes a result: kernels under random schedules.

``python -m tests.fuzz.tile_schedules --count 500 --seed 1 [--target cuda] [--jobs 16]``. The
numbers are small integers where a kernel only adds and multiplies, so that every grouping of its
sums is exact and all schedules give the same bits; elsewhere they are equal within the rounding.
What is refused is refused with a diagnostic. ``sm_80`` and ``sm_90a`` as target run Tile IR on
the CPU. On a GPU the arrays lie there in the layouts they have here.
``--jobs`` runs a few seeds a process, so that compiling uses all cores, and a launch that never
ends costs its seeds only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tessera_lang as tessera
from tessera_lang.diagnostics.diagnostic import Diagnostic
from tests.cards import environment
from tests.fuzz.tile_programs import Array, compiled
from tests.fuzz.tile_programs_reference import evaluated, wrong
from tests.fuzz.tile_schedules_cases import (
    KERNELS,
    MOST_INTERPRETED,
    Case,
    Kernel,
    arguments,
    case_of,
    program_of,
)
from tests.on_device import call

RESOURCES = ("T0740", "T0741")  # shared memory; registers
MOST_FAULTS = 24  # more say nothing new

__all__ = ["KERNELS", "Case", "Kernel", "arguments", "case_of", "program_of", "tried"]


@dataclass
class Outcome:
    """``refused``: with which code; ``wrong``: what is; ``bits``: all of them were compared."""

    refused: str = ""
    wrong: str = ""
    bits: bool = False


def called(case: Case, target: str) -> list[Array]:
    """What a kernel gives. Raises TesseraError where the schedule is refused."""
    program, given = case.program, case.given()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = call(compiled(program, target).kernel, given, target)
    results = list(found) if isinstance(found, tuple) else [] if found is None else [found]
    written = [a for p, a in zip(program.parameters, given, strict=True) if p.mut]
    return [np.asarray(x) for x in (*written, *results)]


def tried(case: Case, target: str) -> Outcome:
    try:
        found = called(case, target)
    except tessera.TesseraError as error:
        return refusal(case, target, error)
    except Exception as error:  # what we look for
        return Outcome(wrong=repr(error)[:600])
    try:
        return compared(case, target, found)
    except tessera.TesseraError as error:
        return Outcome(wrong=f"without a schedule: {error}")


def refusal(case: Case, target: str, error: tessera.TesseraError) -> Outcome:
    """Right only if a machine has too few registers or too little memory for what the schedule
    asks for, the message says by how much, and the kernel runs without the schedule."""
    faults = [d for d in error.diagnostics if d.severity == "error"]
    if not (case.lines and faults and target != "cpu" and all(map(_is_too_much, faults))):
        return Outcome(wrong=f"refused: {error}")
    plain = tried(case.plain(), target)
    if plain.wrong:
        return Outcome(wrong=f"without a schedule: {plain.wrong}")
    return Outcome(refused=faults[0].code)


def _is_too_much(fault: Diagnostic) -> bool:
    numbers = [int(n) for n in re.findall(r"(?<![\w])\d+", fault.message)]
    return fault.code in RESOURCES and len(numbers) == 2 and numbers[0] > numbers[1]


def compared(case: Case, target: str, found: list[Array]) -> Outcome:
    """Beside float64, and bit for bit beside the kernel without a schedule."""
    program, given = case.plain().program, case.given()
    arrays = {p.name: (a, p.dtype) for p, a in zip(program.parameters, given, strict=True)}
    with np.errstate(all="ignore"):
        tensors, results = evaluated(program.body, arrays, case.sizes)
    right = [tensors[p.name] for p in program.parameters if p.mut] + results
    for r, f in zip(right, found, strict=True):
        difference = wrong(r, f)
        if difference:
            return Outcome(wrong=difference)
    if case.kernel.exact or (target == "cpu" and not any("tile(" in x for x in case.lines)):
        for plain, f in zip(called(case.plain(), target), found, strict=True):
            if plain.tobytes() != f.tobytes():
                return Outcome(wrong="the bits are others than without a schedule")
        return Outcome(bits=True)
    return Outcome()


def reduced(case: Case, target: str) -> Case:
    """The same wrong result with fewer directives and plain arrays."""
    kind = tried(case, target).wrong[:20]
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(case):
            if tried(smaller, target).wrong[:20] == kind:
                case, changed = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    if case.layouts:
        yield replace(case, layouts=())
    for at in range(len(case.lines)):
        yield replace(case, lines=case.lines[:at] + case.lines[at + 1 :])


@dataclass
class Tally:
    """What became of some seeds. ``dead``: the device is of no use after the last."""

    equal: int = 0
    bits: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    words: Counter[str] = field(default_factory=Counter[str])
    wrong: dict[int, str] = field(default_factory=dict[int, str])
    tried: list[int] = field(default_factory=list[int])
    dead: bool = False

    @staticmethod
    def read(record: dict[str, Any]) -> Tally:
        """From JSON, whose keys are all text."""
        made = Tally(**record)
        made.refused, made.words = Counter(made.refused), Counter(made.words)
        made.wrong = {int(seed): text for seed, text in made.wrong.items()}
        return made

    def add(self, other: Tally) -> None:
        self.equal += other.equal
        self.bits += other.bits
        self.refused += other.refused
        self.words += other.words
        self.wrong |= other.wrong
        self.tried += other.tried
        self.dead = self.dead or other.dead


def tally(seed: int, target: str, without: str = "") -> Tally:
    """One schedule; what is wrong with it is reduced where the device still works."""
    interpreted = target.startswith("sm_")
    case = case_of(seed, MOST_INTERPRETED) if interpreted else case_of(seed)
    made = Tally(tried=[seed])
    if without:
        case.lines = [x for x in case.lines if without not in x]
    outcome = tried(case, target)
    if outcome.refused:
        made.refused[outcome.refused] += 1
    elif outcome.wrong:
        made.dead = target == "cuda" and "CUDA_ERROR" in outcome.wrong
        small = case if made.dead else reduced(case, target)
        made.wrong[seed] = f"{outcome.wrong[:700]}\n{small}"
    else:
        made.equal, made.bits = 1, int(outcome.bits)
        made.words.update(case.words)
    return made


# --- many processes ----------------------------------------------------------------------------


@dataclass
class Child:
    """A process that tries some seeds. ``called_off``: what it has not tried does not count."""

    seeds: range
    process: subprocess.Popen[str]
    until: float
    called_off: bool = False


def started(seeds: range, chosen: argparse.Namespace) -> Child:
    command = [sys.executable, "-m", "tests.fuzz.tile_schedules", "--target", chosen.target,
               "--without", chosen.without, "--seeds", f"{seeds.start}:{seeds.stop}"]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(seeds.start // chosen.chunk),
    )  # fmt: skip
    return Child(seeds, process, time.monotonic() + chosen.patience)


def ended(child: Child) -> Tally | None:
    """What a process found; None while it works. One that died or waits says so of its seeds."""
    late = time.monotonic() > child.until
    try:
        said, faults = child.process.communicate(timeout=0.02)
    except subprocess.TimeoutExpired:
        if not late:
            return None
        child.process.kill()
        said, faults = child.process.communicate()
    done = Tally()
    for line in said.splitlines():
        if line.startswith("{"):
            done.add(Tally.read(json.loads(line)))
    rest = left(child.seeds, done)
    if rest and not done.dead and not child.called_off:
        seed = rest.start
        why = "it does not end" if late else f"the process ended: {faults[-500:]}"
        done.wrong[seed] = f"{why}\n{case_of(seed)}"
        done.tried.append(seed)
    return done


def left(seeds: range, done: Tally) -> range:
    """Those that come behind the last that was tried."""
    return range(max(done.tried, default=seeds.start - 1) + 1, seeds.stop)


def spans(seeds: Iterable[int]) -> list[str]:
    """Numbers in few words: 1-12, 15."""
    found: list[list[int]] = []
    for seed in sorted(seeds):
        if found and found[-1][1] == seed - 1:
            found[-1][1] = seed
        else:
            found.append([seed, seed])
    return [f"{a}-{b}" if a < b else str(a) for a, b in found]


def many(chosen: argparse.Namespace) -> Tally:
    """Seeds from the first on, until so many schedules are equal or the time is over."""
    begin, total = time.monotonic(), Tally()
    waiting: list[range] = []
    running: list[Child] = []
    seed = chosen.seed
    while True:
        over = bool(chosen.seconds) and time.monotonic() - begin > chosen.seconds
        over = over or len(total.wrong) >= MOST_FAULTS or total.equal >= chosen.count
        while not over and len(running) < chosen.jobs:
            if not waiting:
                waiting.append(range(seed, seed + chosen.chunk))
                seed += chosen.chunk
            running.append(started(waiting.pop(), chosen))
        if not running:
            return total
        for child in list(running):
            found = ended(child)
            if found is None:
                if over:
                    child.process.kill()
                    child.called_off = True
                continue
            running.remove(child)
            total.add(found)
            for text in found.wrong.values():
                print(text, flush=True)
            if (rest := left(child.seeds, found)) and not child.called_off:
                waiting.append(rest)


def record(total: Tally, chosen: argparse.Namespace) -> dict[str, Any]:
    """For ``benchmarks/results``: what ran, where, and how often what occurred."""
    from benchmarks.harness import machine

    words = sorted(total.words.items())
    return {
        "title": "results under random schedules", "machine": machine(), "target": chosen.target,
        "seeds": spans(total.tried), "equal": total.equal,
        "equal bit for bit": total.bits, "refused": dict(total.refused), "wrong": total.wrong,
        "kernels": {w: n for w, n in words if any(w == k.name for k in KERNELS)},
        "directives": {w: n for w, n in words if w.startswith("schedule.")},
        "sizes": {w[5:]: n for w, n in words if w.startswith("size ")},
        "layouts": {w[7:]: n for w, n in words if w.startswith("layout ")},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="at most; 0: no limit")
    parser.add_argument("--target", choices=("cpu", "cuda", "sm_80", "sm_90a"), default="cpu")
    parser.add_argument("--without", default="", help="a directive to leave out")
    parser.add_argument("--json", default="", help="a file for seeds and outcomes")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--chunk", type=int, default=12, help="seeds of one process")
    parser.add_argument("--patience", type=float, default=90, help="seconds for one process")
    parser.add_argument("--seeds", default="", help="FIRST:END, in this process, as JSON")
    chosen = parser.parse_args()
    os.environ.setdefault("TESSERA_CACHE", "off")
    if chosen.seeds:
        first, end = map(int, chosen.seeds.split(":"))
        for seed in range(first, end):
            made = tally(seed, chosen.target, chosen.without)
            print(json.dumps(vars(made)), flush=True)
            if made.dead:
                break
        return 0
    total = many(chosen)
    print(f"{total.equal} schedules equal ({total.bits} of them bit for bit), "
          f"{sum(total.refused.values())} refused {dict(total.refused)}, "
          f"{len(total.wrong)} wrong, on {chosen.target}, seeds {', '.join(spans(total.tried))}",
          file=sys.stderr)  # fmt: skip
    if chosen.json:
        with open(chosen.json, "w", encoding="utf-8") as file:
            json.dump(record(total, chosen), file, indent=1)
    return 1 if total.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
