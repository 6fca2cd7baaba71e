"""Generated programs do bit for bit what plain Python says, at both levels of optimization."""

from __future__ import annotations

import argparse
import math
import os
import sys
from fractions import Fraction

import numpy as np
import pytest

from tests.fuzz import divided, numbers
from tests.fuzz.programs import DTYPES, generate, rewritten_case, run_cases
from tests.sampling import few

pytestmark = pytest.mark.optimized

QUICK = [pytest.param("cpu", s) for s in range(0, 56, 8)]
ON_DEVICE = [pytest.param("cuda", s, marks=pytest.mark.gpu) for s in range(0, 64, 16)]


@pytest.mark.parametrize(("target", "seed"), [*QUICK, *ON_DEVICE])
@pytest.mark.sample(1)
def test_programs(target: str, seed: int, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if "TESSERA_CACHE" not in os.environ:
        monkeypatch.setenv("TESSERA_CACHE", "off")
    cases = [generate(seed + k) for k in few(range(8), 3, whole)]
    found = run_cases(cases, target, (0, 3) if target == "cpu" else (3,))
    assert not found, "\n\n".join(map(str, found))


@pytest.mark.parametrize("target", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_other_forms_of_a_program_do_the_same(
    target: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "TESSERA_CACHE" not in os.environ:
        monkeypatch.setenv("TESSERA_CACHE", "off")
    cases = [generate(seed) for seed in few(range(900, 908), 2, whole)]
    others = [rewritten_case(case) for case in cases]
    assert all(a.kernel.text() != b.kernel.text() for a, b in zip(cases, others, strict=True))
    found = run_cases(others, target, (0, 3) if target == "cpu" else (3,))
    assert not found, "\n\n".join(map(str, found))


SLOW = [pytest.param(s, marks=pytest.mark.slow) for s in range(0, 200, 20)]


@pytest.mark.parametrize("first", [24, *SLOW])
def test_checked_mode_blames_no_program(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They communicate by barriers only: every order of lanes gives the same, without a fault."""
    monkeypatch.setenv("TESSERA_CACHE", "off")
    monkeypatch.setenv("TESSERA_CHECKED", "1")
    cases = [generate(first + k) for k in range(3 if first == 24 else 20)]
    found = run_cases(cases, "cpu", (0,))
    assert not found, "\n\n".join(map(str, found))


def test_the_same_seed_gives_the_same_program() -> None:
    for seed in range(5):
        assert generate(seed).kernel.text() == generate(seed).kernel.text()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f8e5m2"])
def test_the_reference_rounds_like_others(dtype: str) -> None:
    """Rounding of the reference against NumPy and ml_dtypes, on values around each step."""
    r = np.random.default_rng(0)
    values = (r.standard_normal(3000) * 10.0 ** r.integers(-9, 6, 3000)).astype(np.float32)
    for x in values.tolist():
        found = numbers.rounded(x, dtype)
        with np.errstate(all="ignore"):
            expected = float(np.float32(x).astype(DTYPES[dtype]))
        if dtype == "f8e5m2" and math.isinf(expected):
            expected = math.copysign(57344.0, x)
        assert found == expected, x
        assert numbers.rounded_exactly(Fraction(x), dtype) == expected, x


class Scripted(divided.Worker):
    """Processes that say where they are, and then stay there, fail or end."""

    def command(self, count: int, seconds: float) -> list[str]:
        said = f"import sys, time; print('at {self.seed}, 0 done, 0 differences', file=sys.stderr)"
        ends = ["time.sleep(100)", "sys.exit(3)"]
        end = f"print('{count} programs, 0 differences', file=sys.stderr)"
        at = (self.seed - 1) // (divided.BLOCK * self.chosen.jobs)
        return [sys.executable, "-c", f"{said}; sys.stderr.flush(); {[*ends, end][at]}"]


def test_a_process_that_stays_or_fails_counts_and_another_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(divided, "PATIENCE", 1.0)
    monkeypatch.setattr(divided, "Worker", Scripted)
    chosen = argparse.Namespace(
        count=48, jobs=2, seed=1, seconds=30.0, target="cpu", levels="3", rewritten=False,
        unchecked=True,
    )  # fmt: skip
    assert divided.divided(chosen) == ([24, 24], 4)
