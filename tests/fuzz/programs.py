"""Generated programs against plain Python, bit for bit.

``python -m tests.fuzz.programs --seconds 60 --seed 1 [--target cuda]`` runs until the time is
over and prints what differs, with the smallest program it finds; ``--count 10000 --jobs 16
--target both`` runs so many on both targets.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

import tessera_lang as tessera
from tests.fuzz import program as p
from tests.fuzz import refusals
from tests.fuzz.divided import BLOCK, divided, say_where
from tests.fuzz.generate import Generator, arguments
from tests.fuzz.metamorphic import blocks, expressions, operands, put, rewritten
from tests.stdlib.arrays import DTYPES


@dataclass
class Difference:
    """What a program did otherwise than it should."""

    kernel: p.Kernel
    seed: int
    optimize: int
    text: str

    def __str__(self) -> str:
        return f"seed {self.seed}, optimize {self.optimize}: {self.text}\n\n{self.kernel.text()}"


def to_numpy(array: p.Array, layout: int) -> Any:
    """The elements as an array: contiguous, with steps, or reversed."""
    dtype = DTYPES[array.dtype]
    with np.errstate(all="ignore"):
        if array.dtype.startswith("f") and array.dtype != "f64":
            flat = np.array(array.items, np.float64).astype(np.float32).astype(dtype)
        else:
            flat = np.array(array.items, dtype)
    value = flat.reshape(array.shape)
    if layout == 0:
        return value
    steps = tuple(slice(None, None, 2 if layout == 1 else -1) for _ in array.shape)
    base = np.zeros([n * 2 if layout == 1 else n for n in array.shape], dtype)
    view = base[steps]
    view[...] = value
    return view


def differs(expected: p.Array, found: Any) -> str:
    """Where the two are not the same bits; NaN is NaN."""
    items = found.reshape(-1)
    for at, e in enumerate(expected.items):
        f = items[at].item() if not hasattr(items[at], "__float__") else items[at]
        if isinstance(e, float):
            value = float(f)
            same = (e != e and value != value) or (
                e == value and math.copysign(1.0, e) == math.copysign(1.0, value)
            )
        else:
            same = int(e) == int(f)
        if not same:
            return f"element {at} is {f}, and {e} is right"
    return ""


@dataclass
class Case:
    kernel: p.Kernel
    seed: int
    expected: dict[str, p.Array]
    faults: int
    judged: p.Judged


def evaluated(kernel: p.Kernel, seed: int) -> Case:
    """What the program does in Python. Raises Endless."""
    arrays, scalars = arguments(kernel, seed)
    launch = kernel.run(arrays, scalars)
    return Case(kernel, seed, arrays, launch.faults, launch.judged)


def planted(seed: int) -> bool:
    """Whether the program of a seed has accesses that may be outside."""
    return seed % 5 == 0


def generate(seed: int) -> Case:
    """The first program from this seed on that ends soon."""
    while True:
        kernel = Generator(seed, faults=planted(seed)).kernel()
        try:
            return evaluated(kernel, seed)
        except p.Endless:
            seed += 1_000_000


def rewritten_case(case: Case) -> Case:
    """The program in another form: what it must do is what the first form does."""
    kernel = rewritten(case.kernel, case.seed)
    again = evaluated(kernel, case.seed)
    assert bool(again.faults) == bool(case.faults), "a rewrite changed the faults"
    for name, array in case.expected.items():
        assert not differs(array, to_numpy(again.expected[name], 0)), "a rewrite changed a result"
    return Case(kernel, case.seed, case.expected, case.faults, again.judged)


def compared(case: Case, module: Any, optimize: int, text: str) -> Difference | None:
    """Run a case of a compiled module."""
    kernel = case.kernel
    arrays, scalars = arguments(kernel, case.seed)
    r = random.Random(case.seed)
    given: list[Any] = []
    outputs: dict[str, Any] = {}
    for q in kernel.parameters:
        if not q.shape:
            given.append(_scalar(scalars[q.name], q.dtype))
            continue
        value = to_numpy(arrays[q.name], r.choice((0, 0, 1, 2)))
        given.append(value)
        if q.mut:
            outputs[q.name] = value
    faulted = ""
    try:
        kernel.launched(getattr(module, kernel.name))(*given)
        if module_target(module) == "cuda":
            tessera.synchronize()
    except tessera.TesseraError as fault:
        if refused_rightly(case, fault, text):
            return None
        faulted = str(fault)
    if bool(faulted) != bool(case.faults):
        said = faulted or "no fault was reported, and there is one"
        return Difference(kernel, case.seed, optimize, said)
    if "T0853" in faulted:  # a checked run ends at the first fault
        return None
    for name, found in outputs.items():
        wrong = differs(case.expected[name], found)
        if wrong:
            return Difference(kernel, case.seed, optimize, f"{name}: {wrong}")
    return None


def module_target(module: Any) -> str:
    return "cuda" if repr(module).endswith("cuda>") else "cpu"


def _scalar(value: Any, dtype: str) -> Any:
    if dtype == "index":
        return int(value)
    return value


def text_of(cases: list[Case]) -> str:
    return "\n".join(c.kernel.text() for c in cases) + "\n"


def compiled(
    cases: list[Case], target: str, levels: tuple[int, ...], check: bool = True
) -> list[tuple[int, Any]]:
    """The module of these programs at each level; all share one front end. Raises TesseraError."""
    text = text_of(cases)
    found: list[tuple[int, Any]] = []
    session: Any = None
    for level in levels:
        options = replace(options_from_environment(), target=target, optimize=level)
        provider = SessionProvider("<source>", options, text=text, session=session)
        session = provider.session()
        if check and not found:
            faults = [d for d in session.check("<source>") if d.severity == "error"]
            if faults:
                raise session.error(faults)
        found.append((level, Module("<source>", provider, target)))  # type: ignore[arg-type]
    return found


def refused_rightly(case: Case, fault: Exception, text: str) -> bool:
    """Whether every error of a program with planted faults is about one. ``text``: that of the
    module."""
    if not isinstance(fault, tessera.TesseraError) or not planted(case.seed):
        return False
    errors = [d for d in fault.diagnostics if d.severity == "error"]
    return bool(errors) and all(
        d.span is not None
        and refusals.refused_rightly(case.kernel, case.judged, d.code, text[d.span.lo : d.span.hi])
        for d in errors
    )


def run_cases(
    cases: list[Case], target: str, levels: tuple[int, ...], check: bool = True
) -> list[Difference]:
    """All differences of these cases, compiled as one module. ``check``: all of it first, also for
    signatures that no launch asks for."""
    found: list[Difference] = []
    try:
        modules = compiled(cases, target, levels, check)
    except Exception as fault:  # the compiler's own faults are what we look for
        if len(cases) > 1:
            return [d for c in cases for d in run_cases([c], target, levels, check)]
        if refused_rightly(cases[0], fault, text_of(cases)):
            return []
        return [_failed(cases[0], levels[0], "does not compile", fault)]
    for optimize, module in modules:
        for case in cases:
            try:
                difference = compared(case, module, optimize, text_of(cases))
            except Exception as fault:
                difference = _failed(case, optimize, "does not run", fault)
            if difference:
                found.append(difference)
    return found


def _failed(case: Case, optimize: int, what: str, fault: Exception) -> Difference:
    text = f"{what}: {type(fault).__name__}: {fault}"
    return Difference(case.kernel, case.seed, optimize, text)


# --- smaller programs --------------------------------------------------------------------------


def reduced(difference: Difference, target: str, seconds: float = 20) -> Difference:
    """The same difference from a program with statements left out."""
    until = time.monotonic() + seconds
    best, kind = difference, _kind(difference.text)
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for kernel in _smaller(best.kernel):
            if time.monotonic() > until:
                break
            try:
                case = evaluated(kernel, best.seed)
            except Exception:
                continue
            again = run_cases([case], target, (best.optimize,))
            if again and _kind(again[0].text) == kind:
                best, changed = again[0], True
                break
    return best


def _kind(text: str) -> str:
    """What sort of difference it is, so that a reduction keeps to it."""
    for word in ("is right", "does not compile", "does not run", "no fault", "error["):
        if word in text:
            code = text[text.index("error[") + 6 :][:5] if "error[" in text else ""
            return word + code
    return text.split(":")[0]


def _smaller(kernel: p.Kernel) -> Iterator[p.Kernel]:
    """Copies with one statement less, or an expression replaced by one of its operands."""
    count = len(list(blocks(kernel)))
    for b in range(count):
        size = len(list(blocks(kernel))[b])
        for s in reversed(range(size)):
            smaller = copy.deepcopy(kernel)
            block = list(blocks(smaller))[b]
            removed = block.pop(s)
            yield smaller
            for inner in removed.blocks():
                if inner:
                    again = copy.deepcopy(kernel)
                    list(blocks(again))[b][s : s + 1] = copy.deepcopy(inner)
                    yield again
    for h in range(len(kernel.helpers)):
        smaller = copy.deepcopy(kernel)
        del smaller.helpers[h]
        if smaller.helpers or "h_" not in smaller.text():
            yield smaller
    yield from _simpler(kernel)


def _simpler(kernel: p.Kernel) -> Iterator[p.Kernel]:
    total = len(list(expressions(kernel)))
    for at in range(total):
        for pick in range(4):
            smaller = copy.deepcopy(kernel)
            owner, key, e = list(expressions(smaller))[at]
            inner = [x for _, _, x in operands(e)]
            same = [x for x in inner if x.dtype == e.dtype]
            if pick >= len(same):
                break
            put(owner, key, same[pick])
            yield smaller


# --- the command -----------------------------------------------------------------------------


def search(chosen: argparse.Namespace, targets: tuple[str, ...]) -> tuple[int, int]:
    """How many programs ran, and how many differences were found and printed."""
    until = time.monotonic() + chosen.seconds if chosen.seconds else math.inf
    seed, found, done = chosen.seed, 0, 0
    levels = tuple(int(x) for x in chosen.levels)
    while time.monotonic() < until and (not chosen.count or done < chosen.count):
        if chosen.where:
            say_where(seed, done, found)
        cases = [generate(seed + k) for k in range(BLOCK)]
        if chosen.rewritten:
            cases = [rewritten_case(case) for case in cases]
        seed, done = seed + BLOCK * chosen.stride, done + BLOCK
        for target in targets:
            for difference in run_cases(cases, target, levels, not chosen.unchecked):
                found += 1
                print(reduced(difference, target), flush=True)
                print("-" * 80)
    return done, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="the most time; 60 without --count")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1, help="every so many blocks of 8 seeds")
    parser.add_argument("--target", choices=("cpu", "cuda", "both"), default="cpu")
    parser.add_argument("--levels", default="03", help="levels of optimisation, a digit each")
    parser.add_argument("--count", type=int, default=0, help="the most programs")
    parser.add_argument("--jobs", type=int, default=1, help="processes; needs --count")
    parser.add_argument("--rewritten", action="store_true", help="each in another form")
    parser.add_argument("--unchecked", action="store_true", help="compile what runs, no more")
    parser.add_argument("--where", action="store_true", help="say the seed of each block")
    parser.add_argument("--json", type=Path, help="where to write what was counted")
    chosen = parser.parse_args()
    if chosen.jobs > 1 and not chosen.count:
        parser.error("--jobs needs --count")
    if not chosen.count and chosen.seconds is None:
        chosen.seconds = 60.0
    os.environ.setdefault("TESSERA_CACHE", "off")
    began = time.monotonic()
    targets = ("cpu", "cuda") if chosen.target == "both" else (chosen.target,)
    if chosen.jobs > 1:
        each, found = divided(chosen)
    else:
        done, found = search(chosen, targets)
        each = [done]
    done = sum(each)
    if chosen.json:
        said = {
            "programs": done, "differences": found, "first seed": chosen.seed,
            "seeds": f"process j of {chosen.jobs}: each {chosen.jobs}th block of {BLOCK}, from j",
            "programs of each process": each,
            "targets": list(targets), "levels": chosen.levels, "rewritten": chosen.rewritten,
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        chosen.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    print(f"{done} programs, {found} differences", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
