"""What the compiler makes of known kernels, written into files, and what differs between two such
folders: the question "did this change any code?" for work that should change none.

``python -m tests.run.emitted --out DIR [--arch sm_90a,cpu] [--only std.nn,attention] [--jobs 2]``
writes for every kernel, signature and architecture the decided schedule, Tile IR, the plan of the
launch, and PTX (LLVM's text and a hash of the object on a CPU), or why it was refused.
``python -m tests.run.emitted --compare BEFORE AFTER [--kinds ptx,tile]`` prints what differs and
ends with 1 if anything does.

What LLVM and ptxas make of equal texts is equal, so neither is asked to optimize code that a CPU
runs or to assemble PTX, which takes most of the time, unless ``--assemble`` is said: it also shows
what is made again where registers spill.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.commands.kernel_selection import target_options
from tessera_lang.driver.session import Session
from tessera_lang.driver.signatures import complete_signature, read_signature
from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.ir.printer import print_program
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TensorArgument
from tessera_lang.target.array_facts import array_facts
from tessera_lang.target.launch_plan import is_small
from tests.run.emitted_cases import LANE_SIGNATURES, ROOT, TileCase, lane_files, tile_cases

ARCHITECTURES = ("sm_80", "sm_90a", "sm_120", "cpu")
KINDS = ("schedule", "remarks", "tile", "plan", "llvm", "ptx", "object", "refused")
_PROCESSOR = "x86-64-v3" if platform.machine() in ("x86_64", "AMD64") else "native"
_TEXT = "given.tessera"
_ASSEMBLED = "TESSERA_EMITTED_ASSEMBLED"  # for the processes that the work is spread over
Files = dict[str, str]
"""The end of a file's name, and what stands in it."""


# --- one kernel ------------------------------------------------------------------------------


def tile_kernel(case: TileCase, arch: str) -> Files:
    """What becomes of a tile kernel, with the signature of a launch."""
    session = Session(overlay={_TEXT: case.text} if case.text else {})
    path = case.path or _TEXT
    try:
        signature = signature_of_a_launch(session, path, case, arch)
        machine = session.machine("cpu" if arch == "cpu" else "cuda", _processor(arch))
        made = session.for_machine(path, case.kernel, signature, machine)
        found = {
            "schedule": _texts([launch.schedule for launch in made.launches]),
            "remarks": "".join(f"{d.code} {d.severity}: {d.message}\n" for d in made.remarks),
        }
        if any(launch.lowered is None for launch in made.launches):
            return found | {"refused": found["remarks"]}
        lowered = [launch.lowered for launch in made.launches if launch.lowered is not None]
        found["tile"] = _texts([program for program, _ in lowered])
        return found | _code(session, path, case.kernel, signature, arch)
    except TesseraError as error:
        return {"refused": _said(error)}


def lane_kernel(session: Session, path: str, kernel: str, signature: Any, arch: str) -> Files:
    """What becomes of a lane kernel, for small arrays without gaps at multiples of 16 bytes."""
    facts = tuple(
        replace(a, aligned=True, contiguous=True, small=arch != "cpu")
        if isinstance(a, TensorArgument) else a
        for a in signature
    )  # fmt: skip
    try:
        found = {"tile": print_program(session.tile(path, kernel, facts)[0])}
        return found | _code(session, path, kernel, facts, arch)
    except TesseraError as error:
        return {"refused": _said(error)}


def signature_of_a_launch(session: Session, path: str, case: TileCase, arch: str) -> Any:
    """The signature that a call with arrays of these sizes gives a tile kernel."""
    function = next(f for f in session.kernels(path) if f.name == case.kernel)
    scope = session.scope(path)
    full = complete_signature(function, scope, read_signature(case.signature))
    bare = tuple(
        TensorArgument(a.dtype, a.rank, contiguous=True, aligned=True)
        if isinstance(a, TensorArgument) else a
        for a in full
    )  # fmt: skip
    needed, whole = session.asked(path, case.kernel, bare)
    names = [p.name for p in (*function.brackets, *function.parameters)]
    found: list[Any] = []
    for name, a in zip(names, full, strict=True):
        if isinstance(a, TensorArgument):
            sizes = [n or 0 for n in a.sizes]
            strides = _strides(sizes, name in case.turned)
            mine = ([x for n, x in axes if n == name] for axes in (needed, whole))
            f = array_facts(sizes, strides, a.dtype.bytes, *mine)
            a = TensorArgument(
                a.dtype, a.rank, name not in case.turned, True, f.sizes, f.hints, f.divisors,
                f.unit, f.pitches, f.buckets,
            )  # fmt: skip
            assert is_small(sizes, strides, a.dtype.bytes) or prod(sizes) >= 1 << 28
        found.append(a)
    return tuple(found)


def _strides(sizes: Sequence[int], turned: bool) -> list[int]:
    strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    if turned:
        strides[-2:] = [1, sizes[-2]]
    return strides


def _code(session: Session, path: str, kernel: str, signature: Any, arch: str) -> Files:
    on_cpu = arch == "cpu"
    options = target_options("cpu" if on_cpu else "cuda", _processor(arch))
    if on_cpu and _ASSEMBLED not in os.environ:
        options = replace(options, optimize=0)
    stages = ("llvm",) if on_cpu else ("ptx",)
    first = session.compile_kernel(path, kernel, signature, options, stages)
    launches = (first, *first.then)
    found = {"plan": "".join(
        json.dumps(a.plan.to_json(), indent=1, sort_keys=True) + "\n" for a in launches
    )}  # fmt: skip
    if on_cpu:
        hashes = [hashlib.sha256(a.code).hexdigest() for a in launches]
        found["object"] = "".join(f"{h}\n" for h in hashes)
    found[stages[0]] = "\n".join(a.texts[stages[0]] for a in launches)
    return found


def _processor(arch: str) -> str:
    return _PROCESSOR if arch == "cpu" else arch


def _texts(programs: Sequence[Any]) -> str:
    return "\n".join(print_program(p).rstrip("\n") + "\n" for p in programs)


def _said(error: TesseraError) -> str:
    return "".join(f"{d.code}: {d.message}\n" for d in error.diagnostics)


# --- all of them -----------------------------------------------------------------------------


def _emit_tile(given: tuple[TileCase, tuple[str, ...], Path]) -> int:
    case, archs, out = given
    words = [case.signature, *(f"{x}.T" for x in case.turned)]
    return sum(
        _written(out / case.where, case.kernel, words, arch, tile_kernel(case, arch))
        for arch in archs
    )


def _emit_lanes(given: tuple[str, Path, tuple[str, ...], Path]) -> int:
    where, path, archs, out = given
    count, session = 0, Session()
    # Signatures that differ in facts alone are one: all are of small arrays without gaps.
    known = {(kernel, _words(s)): s for kernel, s in reversed(lane_kernels(session, path))}
    for (kernel, _), signature in reversed(known.items()):
        for arch in archs:
            files = lane_kernel(session, str(path), kernel, signature, arch)
            count += _written(out / where, kernel, [_words(signature)], arch, files)
    return count


def lane_kernels(session: Session, path: Path) -> list[tuple[str, Any]]:
    """The lane kernels of a file with the signatures that are known of them."""
    session.check(str(path), LANE_SIGNATURES.get(path.stem, ()))
    if path.stem == "reduce_kernels":
        session.check(str(path.with_name("reduce.tessera")))
    found = {
        (function.name, signature): None
        for function, signature in session.seen(str(path))
        if kernel_level(function) == "lane"
    }
    return list(found)


def _words(signature: Any) -> str:
    found: list[str] = []
    for a in signature:
        dtype = getattr(a, "dtype", None)
        if isinstance(a, TensorArgument):
            found.append(f"{a.dtype.name}-{a.rank}{'v' if a.value else ''}")
        elif dtype is not None:
            found.append(dtype.name)
        else:
            found.append(str(getattr(a.value, "name", a.value)))
    return ",".join(found)


def _written(folder: Path, kernel: str, words: Sequence[str], arch: str, files: Files) -> int:
    name = re.sub(r"[^\w.=-]+", "_", ".".join(words)).strip("_")
    if len(name) > 120:
        name = f"{name[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in files.items():
        text = text.replace(f"{ROOT}/", "").rstrip("\n") + "\n"
        (folder / f"{kernel}.{name}.{arch}.{kind}").write_text(text, encoding="utf-8")
    return len(files)


def emit(out: Path, archs: tuple[str, ...], only: Sequence[str], jobs: int) -> int:
    """Everything into a folder; how many files."""
    lanes = [(w, p, archs, out) for w, p in lane_files().items() if _wanted(w, only)]
    tiles = [(c, archs, out) for c in tile_cases() if _wanted(f"{c.where}.{c.kernel}", only)]
    lanes.sort(key=lambda given: -given[1].stat().st_size)  # what takes longest begins first
    if jobs <= 1:
        return sum(map(_emit_lanes, lanes)) + sum(map(_emit_tile, tiles))
    with ProcessPoolExecutor(jobs) as pool:
        made = [pool.submit(_emit_lanes, given) for given in lanes]
        made += [pool.submit(_emit_tile, given) for given in tiles]
        return sum(future.result() for future in made)


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(word in name for word in only)


# --- two folders -----------------------------------------------------------------------------


def compare(before: Path, after: Path, kinds: Sequence[str], lines: int) -> int:
    """Prints what differs, a few lines of each file; how many files do."""
    known, found = ({str(f.relative_to(d)) for f in d.rglob("*") if f.is_file()}
                    for d in (before, after))  # fmt: skip
    differing: Counter[str] = Counter()
    for name in sorted(known | found):
        kind = name.rpartition(".")[2]
        if kind not in kinds:
            continue
        if name not in known or name not in found:
            print(f"only in {after if name in found else before}: {name}")
            differing[kind] += 1
            continue
        old, new = ((d / name).read_text(encoding="utf-8") for d in (before, after))
        if old != new:
            differing[kind] += 1
            _show(name, old, new, lines)
    total = sum(differing.values())
    each = ", ".join(f"{kind} {n}" for kind, n in sorted(differing.items()))
    print(f"{total} of {len(known | found)} files differ{f': {each}' if each else ''}")
    return total


def _show(name: str, old: str, new: str, lines: int) -> None:
    changed = [
        line for line in difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]  # fmt: skip
    print(f"differs: {name} ({len(changed)} lines)")
    for line in changed[:lines]:
        print(f"    {line[:200]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.run.emitted", description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--arch", default=",".join(ARCHITECTURES))
    parser.add_argument("--only", default="", help="parts of names of files and kernels")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--assemble", action="store_true")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--lines", type=int, default=6, help="of each file that differs")
    given = parser.parse_args(arguments)
    if given.compare:
        return int(compare(*given.compare, given.kinds.split(","), given.lines) > 0)
    if given.out is None:
        parser.error("say --out DIR or --compare BEFORE AFTER")
    os.environ.update({_ASSEMBLED: "1"} if given.assemble else {"TESSERA_PTXAS": "none"})
    begin = time.perf_counter()
    only = [word for word in given.only.split(",") if word]
    count = emit(given.out, tuple(given.arch.split(",")), only, given.jobs)
    print(f"{count} files in {time.perf_counter() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
