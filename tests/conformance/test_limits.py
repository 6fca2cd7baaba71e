"""The table of what a tile holds is what the compiler holds: the numbers, and at each of them and
one beyond what `check`, `build` and a call say, on both targets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.lower.ast_to_schedule.demand_driven_evaluation import MOST_PARTS
from tessera_lang.lower.ast_to_schedule.flip_concat_nodes import MOST_COMPARED
from tessera_lang.lower.ast_to_schedule.subscripts import MOST_ELEMENTS
from tessera_lang.lower.schedule_to_tile.lowering import MOST_INSTRUCTIONS
from tessera_lang.record import dataclass, replace
from tessera_lang.sema.tile.array_creation import MOST_CAPACITY
from tessera_lang.sema.tile.sorting import MOST_SORTED
from tessera_lang.sema.tile.subscripts import MOST_LOOKED_UP, MOST_NAMED
from tessera_lang.target.array_facts import CUT_AXIS, WHOLE_AXIS
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.tuned_constants import SCATTER_MOST_ROWS

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "language.md"
TABLE = [
    ("an axis that is taken whole", WHOLE_AXIS),
    ("takes parts of axes, or multiplies", CUT_AXIS),
    ("several axes that are taken whole", MOST_ELEMENTS),
    ("that a loop names without an index", MOST_NAMED),
    ("a tile that is made", MOST_CAPACITY),
    ("a line that `op.sort`", MOST_SORTED),
    ("a table in `table[q]`", MOST_LOOKED_UP),
    ("rows that a tile chooses in a store", SCATTER_MOST_ROWS),
    ("a slice of it in steps", MOST_COMPARED),
    ("parts of tiles that a kernel computes", MOST_PARTS),
    ("instructions of a lane on a GPU", MOST_INSTRUCTIONS),
]
"""What stands in each row of the table, and the number of the compiler."""


def rows() -> list[tuple[str, str, str]]:
    text = MANUAL.read_text(encoding="utf-8")
    part = text.partition("### What a tile holds\n")[2].partition("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    found = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]
    return [(a, b, c) for a, b, c in found[1:]]


def test_the_table_has_the_numbers_of_the_compiler() -> None:
    found = rows()
    assert len(found) == len(TABLE)
    for (said, number, _), (words, limit) in zip(found, TABLE, strict=True):
        assert words in said and int(number) == limit, (said, number)


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel of ``n`` elements that is refused beyond ``most``, with the shapes and dtypes of
    its arrays. ``named``: sizes are names, which the call or the signature says."""

    row: int
    body: str
    arrays: Callable[[int], dict[str, tuple[int, ...]]]
    most: int
    named: bool = True
    integers: str = ""


_CHANGED = """    for q in op.tile_range(x.shape[0], step=1):
        a = x[q, :]
        for i in range({}):
            a = max(a, x[i, :])
        y[q, :] = a
{}"""
"""Rows that change in a loop over tiles: there they are tiles, elsewhere arrays of the call."""
CASES = {
    "a row": Case(
        0, _CHANGED.format("x.shape[0]", ""), lambda n: {"x": (2, n), "y": (2, n)}, WHOLE_AXIS
    ),
    "a row of a known size": Case(
        0, _CHANGED.format("2", ""), lambda n: {"x": (2, n), "y": (2, n)}, WHOLE_AXIS, named=False
    ),
    "a row beside parts": Case(
        1, _CHANGED.format("x.shape[0]", "        y[q, 0:8] = x[1, 0:8]\n"),
        lambda n: {"x": (2, n), "y": (2, n)}, WHOLE_AXIS,
    ),
    "a tile that is made": Case(
        4, "    a = op.full((y.shape[0],), x[0])\n    y[:] = a\n",
        lambda n: {"x": (1,), "y": (n,)}, MOST_CAPACITY,
    ),
    "a line": Case(5, "    y[:] = op.sort(x)\n", lambda n: {"x": (n,), "y": (n,)}, MOST_SORTED),
    "a table": Case(
        6, "    for i in op.tile_range(4, step=2):\n        y[i:i+2, :] = x[q[i:i+2, :]]\n",
        lambda n: {"x": (n,), "q": (4, 4), "y": (4, 4)},
        MOST_LOOKED_UP, named=False, integers="q",
    ),
    "rows of a store": Case(
        7, "    y[q[0:{n}], :] = x[0:{n}, :]\n",
        lambda n: {"x": (n, 8), "q": (n,), "y": (600, 8)}, SCATTER_MOST_ROWS, named=False,
        integers="q",
    ),
}  # fmt: skip


def refusal(call: Callable[[], object]) -> set[str]:
    try:
        call()
    except tessera.TesseraError as error:
        return {d.code for d in error.diagnostics if d.severity == "error"}
    return set()


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(6)
def test_one_limit_whoever_asks(
    name: str, beyond: int, target: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``whole``: with ptxas, which takes seconds for the largest kernels and refuses none."""
    if not whole:
        monkeypatch.setattr("tessera_backend.nvptx.backend.find_ptxas", lambda: None)
    case = CASES[name]
    n = case.most + beyond
    arrays = case.arrays(n)
    kinds = {a: "i32" if a in case.integers else "f32" for a in arrays}
    shown = {a: ", ".join(map(str, s)) for a, s in arrays.items()}
    signature = ", ".join(f"{a}: {kinds[a]}[{shown[a]}]" for a in arrays)
    if case.named:  # one name for each size, 1 and 2 as they are
        shown = {a: ", ".join("n" if s == n else str(s) for s in v) for a, v in arrays.items()}
    head = ", ".join(f"{a}: mut {kinds[a]}[{shown[a]}]" for a in arrays)
    text = f"@op.kernel\ndef k({head}):\n{case.body.format(n=n)}"
    found = asked(text, signature, target)
    monkeypatch.setitem(os.environ, "TESSERA_ARCH_AS", "sm_90a" if target == "cuda" else "")
    given = [
        (np.arange(np.prod(s)) % 4 if kinds[a] == "i32" else np.ones(s)).reshape(s).astype(
            np.int32 if kinds[a] == "i32" else np.float32
        )
        for a, s in arrays.items()
    ]  # fmt: skip
    found["call"] = refusal(lambda: tessera.compile(text, target="cpu").k(*given))
    code = re.findall(r"`(T\d+)`", rows()[case.row][2] or "") or ["T0700"]
    right = {code[0]} if beyond else set()
    assert all(codes == right for codes in found.values()), found


def asked(text: str, signature: str, target: str) -> dict[str, set[str]]:
    """What `check` and `build` say of a signature."""
    session = Session(overlay={"k.tessera": text})
    session.options = TargetOptions(target, "native" if target == "cpu" else "sm_90a")
    said = session.check("k.tessera", (signature,))
    checked = {d.code for d in said if d.severity == "error"}
    options = replace(session.options, optimize=0)
    built = refusal(lambda: session.compile_kernel(
        "k.tessera", "k", session.signature("k.tessera", "k", signature), options
    ))  # fmt: skip
    return {"check": checked, "build": built}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_slice_in_steps(target: str, beyond: int) -> None:
    """A tile of so many elements, times half of them: 65522, and 66066."""
    columns = 362 + beyond
    text = (
        f"@op.kernel\ndef k(x: f32[m, {columns}], y: mut f32[m, {-(-columns // 2)}]):\n"
        "    for i in op.tile_range(m, step=1):\n"
        f"        y[i, :] = op.cumsum(x[i, 0:{columns}])[::2]\n"
    )
    found = asked(text, f"x: f32[2, {columns}], y: f32[2, {-(-columns // 2)}]", target)
    right = {"T0700"} if beyond else set()
    assert found == {"check": right, "build": right}
