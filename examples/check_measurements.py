"""The sums of measurements.tessera again, from Python, beside NumPy's in float64."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

import tessera_lang as tessera

HERE = Path(__file__).resolve().parent


def main() -> int:
    with (HERE / "data" / "mauna_loa_co2.csv").open() as file:
        co2 = np.array([row["co2_ppm"] for row in csv.DictReader(file)], dtype=np.float32)
    out = np.zeros(4, np.float32)
    tessera.load(str(HERE / "sum_reduce.tessera"), target="cpu").sum_reduce(co2, out)
    want = co2.sum(dtype=np.float64)
    worst = float(np.abs(out - want).max() / want)
    print(f"sum_reduce by 4 groups: {out.tolist()}")
    print(f"NumPy in float64:       {want}   (relative difference {worst:.1e})")
    if worst > 1e-5:
        print("they differ", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
