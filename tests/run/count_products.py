"""Where the products of generated tile programs go on Hopper, counted one by one, and how well
registers are estimated.

``python -m tests.run.count_products [--seed 20000] [--count 300] [--jobs 2] [--out FILE]
[--registers] [--library]`` compiles programs of ``tests.fuzz.tile_programs_many`` for sm_90a. A
third of them gets sizes that all tiles divide, half sizes that none does, and a sixth odd sizes,
whose lines no copy engine takes. Each product that is no wgmma out of a ring of two buffers or
more is printed with what the compiler says of it. ``--registers`` and ``--library``: how well the
registers of these programs are estimated, and of tile kernels of the library and the benchmarks.

The estimate is that of ``analysis.resources.register_pressure``; beside it stands with how few
registers ptxas spills nothing. The report of ptxas does not show that: it holds more where it may,
and of kernels whose roles set their registers it names those that a lane begins with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tessera_backend.nvptx.toolchain.ptxas import find_ptxas

from tessera_lang.analysis.resources.register_pressure import pressure
from tessera_lang.diagnostics import TesseraError
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation
from tessera_lang.target.arch.isa_constants import LANE_REGISTERS
from tessera_lang.target.backend import TargetOptions
from tests.fuzz.products import placed
from tests.fuzz.tile_programs import large, signature_text
from tests.fuzz.tile_programs_many import generate
from tests.run.emitted import signature_of_a_launch
from tests.run.emitted_cases import TileCase, tile_cases

ARCH = "sm_90a"
UNITS = (64, 8, 8, 64, 8, 1)
"""Of what the sizes of a program are multiples, by its seed."""
LIMITS = re.compile(
    r"^\.(maxntid|reqntid|minnctapersm|maxnreg) .*$|^\s*setmaxnreg.*$", re.MULTILINE
)
STEP = 8
"""Registers by which the search for the fewest goes."""
PATH = "kernel.tessera"
Record = dict[str, Any]


def needed_registers(ptx: str) -> int:
    """With how few registers of a lane ptxas spills nothing, up to the step of the search: with
    more it holds more than it must. 256 where it spills with all there are."""
    tool = find_ptxas()
    assert tool is not None, "there is no ptxas"
    low, high = 3, LANE_REGISTERS // STEP + 1  # in steps: too few, enough
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "k.ptx").write_text(LIMITS.sub("", ptx), encoding="ascii")
        while high - low > 1:
            middle = (low + high) // 2
            argv = [tool.path, f"-arch={ARCH}", "-v", f"-maxrregcount={min(middle * STEP, 255)}",
                    "-o", "k.cubin", "k.ptx"]  # fmt: skip
            done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
            spills = re.findall(r"(\d+) bytes spill", done.stdout + done.stderr)
            enough = done.returncode == 0 and bool(spills) and not any(map(int, spills))
            low, high = (low, middle) if enough else (middle, high)  # it refuses far too few
    return high * STEP


def _compiled(
    session: Session, path: str, kernel: str, wanted: Any, registers: bool = True
) -> tuple[Any, list[Record]]:
    """A kernel for Hopper, and the registers of each launch."""
    machine = session.machine("cuda", ARCH)
    made = session.for_machine(path, kernel, wanted, machine)
    options = TargetOptions("cuda", ARCH)
    artifact = session.compile_kernel(path, kernel, wanted, options, ("ptx",))
    # A schedule that spills may have been decided again: what stands is what was assembled.
    made = session.for_machine(path, kernel, wanted, machine)
    rows: list[Record] = []
    for launch, code in zip(made.launches, (artifact, *artifact.then), strict=True):
        assert launch.lowered is not None
        program = launch.lowered[0].operations[0]
        found = pressure(program)
        told = any("spilled" in d.message for d in artifact.diagnostics)
        rows.append({
            "estimate": max(p.total for p in found), "tiles": max(p.tiles for p in found),
            "ptxas": needed_registers(code.texts["ptx"]) if registers else -1,
            "report": code.resources.registers,
            "spilled": code.resources.spill_bytes, "told": told,
            "roles": len(found), "warps": _lanes(program) // 32,
        })  # fmt: skip
    return (made, "\n".join(a.texts["ptx"] for a in (artifact, *artifact.then))), rows


def _lanes(kernel: Operation) -> int:
    return kernel.integers("group")[0]


def of_seed(seed: int, registers: bool = False) -> Record:
    """What becomes of the program of a seed."""
    program, unit = generate(seed), UNITS[seed % len(UNITS)]
    record: Record = {"name": str(seed), "unit": unit, "dtype": program.dtype,
                      "words": program.words}  # fmt: skip
    session = Session(overlay={PATH: program.text()})
    try:
        sizes = signature_text(program, large(program, unit))
        wanted = session.signature(PATH, "kernel", sizes)
        (made, ptx), launches = _compiled(session, PATH, "kernel", wanted, registers)
        record["launches"] = launches
    except Exception as error:
        return record | {"fault": str(error)[:500]}
    found = placed(made, ptx)
    record |= {"products": found.asked, "legal": found.legal, "wgmma": found.wgmma,
               "ring": found.ring, "instructions": ptx.count("wgmma.mma_async")}  # fmt: skip
    if found.ring < found.legal:
        record |= {"why": found.why, "silent": found.silent}
    return record


def of_case(case: TileCase) -> Record:
    """The registers of a kernel of the library."""
    record: Record = {"name": f"{case.where}.{case.kernel} {case.signature}"}
    session = Session(overlay={PATH: case.text} if case.text else {})
    path = case.path or PATH
    try:
        wanted = signature_of_a_launch(session, path, case, ARCH)
        _, record["launches"] = _compiled(session, path, case.kernel, wanted)
    except (TesseraError, AssertionError) as error:
        return record | {"fault": str(error)[:500]}
    return record


# --- the report ------------------------------------------------------------------------------


def counted(records: Sequence[Record]) -> Record:
    """The sums over programs, by what their sizes are multiples of."""
    found: Record = {}
    for name, some in (
        ("all", records),
        *((f"multiples of {u}", [r for r in records if r["unit"] == u]) for u in (64, 8, 1)),
    ):
        done = [r for r in some if "legal" in r]
        legal, ring = sum(r["legal"] for r in done), sum(r["ring"] for r in done)
        found[name] = {
            "programs": len(some), "faults": len(some) - len(done),
            "products": sum(r["products"] for r in done), "legal": legal, "ring": ring,
            "wgmma": sum(r["wgmma"] for r in done), "share": round(ring / max(1, legal), 3),
            "without a remark": [r["name"] for r in done if r.get("silent")],
        }  # fmt: skip
    return found


def estimated(records: Sequence[Record]) -> Record:
    """How far estimates are from what ptxas takes, and what spilled."""
    rows = [row for r in records for row in r.get("launches", ()) if row["ptxas"] > 0]
    errors = sorted(row["estimate"] / row["ptxas"] - 1 for row in rows)
    sizes = sorted(abs(e) for e in errors)
    if not rows:
        return {}

    def at(values: list[float], share: float) -> float:
        return round(values[min(len(values) - 1, int(share * len(values)))], 3)

    return {
        "launches": len(rows), "median": at(errors, 0.5), "5th": at(errors, 0.05),
        "95th": at(errors, 0.95), "95th of the size": at(sizes, 0.95),
        "spilled": sum(row["spilled"] > 0 for row in rows),
        "spilled in silence": sum(row["spilled"] > 0 and not row["told"] for row in rows),
    }  # fmt: skip


def _print(records: Sequence[Record]) -> None:
    for r in records:
        if "fault" in r:
            print(f"{r['name']}: FAULT {r['fault'][:300]}")
        elif r.get("ring", 0) < r.get("legal", 0):
            print(f"{r['name']} (multiples of {r['unit']}): {r['ring']} of {r['legal']} in a ring, "
                  f"{r['wgmma']} wgmma, nothing said at {r['silent']}")  # fmt: skip
            for line in r["why"][:6]:
                print(f"    {line[:200]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=20000)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--registers", action="store_true", help="of the programs")
    parser.add_argument("--library", action="store_true", help="registers of its kernels")
    parser.add_argument("--out", default="", help="a file for everything")
    chosen = parser.parse_args()
    os.environ.setdefault("TESSERA_CACHE", "off")
    with ProcessPoolExecutor(chosen.jobs) as pool:
        seeds = range(chosen.seed, chosen.seed + chosen.count)
        programs = list(pool.map(of_seed, seeds, [chosen.registers] * chosen.count))
        library = list(pool.map(of_case, tile_cases())) if chosen.library else []
    _print(programs)
    result = {"products": counted(programs), "registers of programs": estimated(programs),
              "registers of the library": estimated(library)}  # fmt: skip
    print(json.dumps(result, indent=1))
    if chosen.out:
        everything = result | {"programs": programs, "library": library}
        Path(chosen.out).write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
