"""Products of matrices of random shapes beside cuBLAS (torch), counted by kind.

Run: python -m benchmarks.gemm_random [--seed 1] [--count 200] [--jobs 16] [--worst 30] [--save]
Sizes are log-uniform, and multiples of 256, 128, 64, 16, 8 or 1; half of the second operands are
stored as their transposes. All kernels are compiled first, by as many processes as there are
processors, and found in the cache then. Every result is checked against float64 (a sample of
rows) before timing. ``--save`` keeps rows and kinds in ``results/gemm_random.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import tessera_lang as tessera
from benchmarks.gemm_sweep import Case, Size, chosen_schedule, made_case, measured, wake
from benchmarks.harness import RESULTS, Report, Row, machine

Shape = tuple[str, Size]
"""How operands lie (``bf16 tn``, ``bf16 nn``), and m, n, k."""

UNITS = (256, 128, 64, 64, 64, 16, 8, 1)
"""Of what a size is a multiple; of each, one is drawn."""
M, N, K = (16, 16384), (128, 16384), (128, 16384)
MOST = 1.2e12
"""Operations of a product at most: longer ones are like those."""
LINE, VECTOR = 64, 8
"""Elements of a line of the cache, and of the least pitch that the copy engine takes."""


def drawn(seed: int, count: int) -> list[Shape]:
    """So many shapes, the same in every process."""
    r, found = random.Random(seed), list[Shape]()
    while len(found) < count:
        m, n, k = (_size(r, *limits) for limits in (M, N, K))
        if 2 * m * n * k <= MOST:
            found.append((r.choice(("bf16 tn", "bf16 nn")), (m, n, k)))
    return found


def _size(r: random.Random, least: int, most: int) -> int:
    unit = r.choice(UNITS)
    size = math.exp(r.uniform(math.log(least), math.log(most)))
    return max(unit, round(size / unit) * unit)


def pitches(shape: Shape) -> tuple[int, int, int]:
    """The row lengths of both operands and of the result, in elements."""
    how, (_, n, k) = shape
    return k, k if how.endswith("tn") else n, n


def kind(shape: Shape) -> str:
    """What is special about a shape: the first that holds."""
    m, n, k = shape[1]
    if any(p % VECTOR for p in pitches(shape)):
        return "pitches the copy engine does not take"
    if min(m, n) <= 64:
        return "few rows or columns"
    if any(p % LINE for p in pitches(shape)):
        return "pitches across cache lines"
    if 2 * m * n * k < 2e9:
        return "small"
    if m * n < 64 * 128 * 128:
        return "long contraction"
    return "short contraction" if k <= 256 else "large"


def compile_ahead(cases: Sequence[Callable[[], Case]], jobs: int) -> None:
    """Every kernel once, in processes of their own, which leave it in the cache."""
    global _CASES
    _CASES = cases  # the processes are forks of this one, which has not begun with the device
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        for number, fault in enumerate(pool.map(_compiled, range(len(cases)))):
            if fault:
                print(f"case {number}: {fault}", flush=True)


_CASES: Sequence[Callable[[], Case]] = ()


def _compiled(number: int) -> str:
    try:
        case = _CASES[number]()
        tessera.compile(case.text, target="cuda").kernel(*case.arrays)
    except Exception as error:  # said again where it is measured
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def by_kind(rows: Sequence[tuple[str, float]]) -> list[dict[str, object]]:
    """Kinds with the numbers of their ratios, and all rows together."""
    names = [*dict.fromkeys(sorted(k for k, _ in rows)), "all"]
    found: list[dict[str, object]] = []
    for name in names:
        ratios = [r for k, r in rows if name in (k, "all")]
        found.append({
            "kind": name, "shapes": len(ratios), "least": round(min(ratios), 3),
            "mean": round(statistics.geometric_mean(ratios), 3),
            "under 1": sum(r < 1 for r in ratios), "under 0.95": sum(r < 0.95 for r in ratios),
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--worst", type=int, default=30, help="rows to print")
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    began = time.monotonic()
    shapes = drawn(chosen.seed, chosen.count)
    compile_ahead([_case_of(s, checked=False) for s in shapes], chosen.jobs)
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    wake()
    report, rows = Report("products of matrices of random shapes"), list[tuple[str, Row]]()
    programs: dict[str, tuple[str, str]] = {}
    for shape in shapes:
        try:
            case = _case_of(shape)()
            rows.append((kind(shape), measured(case, runs=15, warmup=2)))
            programs[case.name] = case.text, case.signature
        except Exception as error:  # one row that fails must not end the others
            print(f"{shape} FAILED: {str(error)[:300]}", flush=True)
    report.rows.extend(row for _, row in rows)
    rows.sort(key=lambda r: _ratio(r[1]))
    for name, row in rows[: chosen.worst]:
        print(f"{_ratio(row):.3f} {row.name:<26} {1e6 * row.seconds['tessera']:7.1f} us "
              f"{name}; {row.notes}; {chosen_schedule(*programs[row.name])}")  # fmt: skip
    kinds = by_kind([(name, _ratio(row)) for name, row in rows])
    for line in kinds:
        print(*(f"{key} {value}" for key, value in line.items()), sep=", ")
    print(f"{time.monotonic() - began:.0f} s")
    if chosen.save:
        record = {
            "title": report.title, "machine": machine(), "seed": chosen.seed, "kinds": kinds,
            "shapes": [[row.name, round(1e6 * row.seconds["tessera"], 2),
                        round(_ratio(row), 3), name] for name, row in rows],
        }  # fmt: skip
        (RESULTS / "gemm_random.json").write_text(json.dumps(record, indent=1) + "\n")


def _case_of(shape: Shape, checked: bool = True) -> Callable[[], Case]:
    how, size = shape
    return lambda: made_case(how, "product", size, checked)


def _ratio(row: Row) -> float:
    return row.ratio("tessera", "cublas")


if __name__ == "__main__":
    main()
