"""Programs in the manner of public suites of race checkers: what `check` says, and checked mode."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.fuzz.verdicts import Case, cases, judged

ALL = list(cases())
RUN = [c for c in ALL if "not run" not in c.hint]
SIZES = {"n": 256, "m": 4, "k": 2, "e": 64, "w": 4, "grid_groups": 4}


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
@pytest.mark.sample(6)
def test_verdict(case: Case) -> None:
    verdict, codes = judged(case)
    if case.right:
        hint = case.hint.removesuffix("not run").strip()
        assert verdict == {"open": "not proved", "checked": "checked"}.get(hint, "proved"), codes
    else:
        expected = case.hint.removesuffix("not run").strip() or "error"
        said = {"open": "not proved", "silent": "proved"}.get(expected, expected)
        assert verdict == said, codes
        assert case.code in codes or case.hint in ("open", "silent")


COUNTS = {"warp_synchronous_tail": 1, "two_buffers": 2, "two_parts": 2, "flag_by_turns": 1}


@pytest.mark.parametrize("case", list(cases("messages")), ids=lambda c: c.name)
def test_one_message_for_a_buffer_between_two_barriers(case: Case) -> None:
    assert len(judged(case)[1]) == COUNTS[case.name]


def arguments(case: Case) -> tuple[list[Any], int]:
    """Arrays and numbers for a kernel, and the groups of the launch where the call says them."""
    head = re.findall(r"^def \w+\((.*?)\)", case.text, re.MULTILINE)[-1]
    known = dict(SIZES)
    for name, value in re.findall(r"(?:where|and) (\w+) == ([^:]+?)(?: and |:)", case.text):
        known[name] = eval(value, {"ceil_div": ceil_div}, dict(known))
    for name, factor in re.findall(r"(?:where|and) (\w+) % (\d+) == 0", case.text):
        known[name] = ceil_div(known[name], int(factor)) * int(factor)
    found: list[Any] = []
    for name, dtype, sizes in re.findall(r"(\w+): (?:mut |const )?(\w+)(?:\[([^\]]*)\])?", head):
        kinds = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "u8": np.uint8}
        kind = kinds.get(dtype, np.int64)
        if not sizes:
            found.append(4)
            continue
        shape = [eval(x, {}, dict(known)) for x in sizes.split(",")]
        made = np.zeros(shape, kind)
        if name in ("x", "y"):
            made = (np.arange(made.size) % 7).reshape(shape).astype(kind)
        elif name in ("p", "q"):
            made = np.arange(made.size).reshape(shape).astype(kind)
        found.append(made)
    return found, 0 if "grid[" in case.text else SIZES["grid_groups"]


def launched(case: Case) -> list[Any]:
    kernel = getattr(tessera.compile(case.text, target="cpu"), case.name)
    given, groups = arguments(case)
    (kernel[groups] if groups else kernel)(*given)
    return given


@pytest.mark.parametrize("case", [c for c in RUN if c.right], ids=lambda c: c.name)
@pytest.mark.sample(3)
def test_right_programs_run_clean(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """In three orders, with the results of the usual run."""
    plain = launched(case)
    monkeypatch.setenv("TESSERA_CHECKED", "1")
    for a, b in zip(plain, launched(case), strict=True):
        assert np.array_equal(a, b, equal_nan=True)
