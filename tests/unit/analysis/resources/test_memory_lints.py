"""Bank conflicts, sectors, occupancy and guards that stay."""

from __future__ import annotations

import pytest

from tessera_lang.analysis.guards.kept_guards import explain_guards
from tessera_lang.analysis.resources.memory_lints import bank_conflict, check_performance, sectors
from tessera_lang.analysis.resources.occupancy import occupancy, report_occupancy
from tessera_lang.target.arch import ROWS
from tests.unit.lowering import lower_source, optimized


@pytest.mark.parametrize(
    ("stride", "element", "degree"),
    [(0, 4, 1), (1, 4, 1), (2, 4, 2), (32, 4, 32), (33, 4, 1), (16, 4, 16), (1, 8, 1), (2, 8, 2),
     (1, 1, 1), (1, 2, 1), (64, 2, 32), (3, 4, 1)],
)  # fmt: skip
def test_degree_of_strides(stride: int, element: int, degree: int) -> None:
    found = bank_conflict(range(32), [i * stride for i in range(32)], element)
    assert found.degree == degree
    assert degree == 1 or len(found.lanes) == degree


@pytest.mark.parametrize(
    ("stride", "element", "count"),
    [(0, 4, 1), (1, 4, 4), (2, 4, 8), (8, 4, 32), (1, 8, 8), (1, 1, 1)],
)
def test_sectors_of_strides(stride: int, element: int, count: int) -> None:
    assert sectors([()] * 32, [i * stride for i in range(32)], element) == count


TRANSPOSE = """
@kernel tile[(32, 32)] shared(8_KiB) grid[(1,)]
def k(x: f32[m, n], out: mut f32[n, m]):
    buf = tshared.alloc((32, {width}), f32)
    r = tile_id(0)
    c = tile_id(1)
    buf[r, c] = x[{place}]
    tbarrier()
    out[r, c] = buf[c, r]
"""


def lints(text: str) -> list[tuple[str, str]]:
    program, _, _ = lower_source(text)
    return [(d.code, d.severity) for d in check_performance(program.operations[0])]


def test_lints_of_a_transpose() -> None:
    assert lints(TRANSPOSE.format(width=33, place="r, c")) == []
    assert lints(TRANSPOSE.format(width=32, place="r, c")) == [("P1001", "warning")]
    assert lints(TRANSPOSE.format(width=33, place="c, r")) == [("P1002", "warning")]


def test_lint_names_the_lanes_and_the_bank() -> None:
    program, _, _ = lower_source(TRANSPOSE.format(width=32, place="r, c"))
    (found,) = check_performance(program.operations[0])
    assert "32-way" in found.message
    assert "lanes 0, 1, 2, 3, ... touch different words of bank 0" in found.message
    assert found.certainty == "estimated"


def test_strided_loops_are_looked_into() -> None:
    text = """
@kernel tile[(128,)] grid[(1,)]
def k(x: f32[n], out: mut f32[1]):
    acc = 0.0
    for i in range({lower}, n, {step}): acc += x[i]
    out[0] = acc
"""
    assert lints(text.format(lower="tile_linear_id()", step=128)) == []
    assert lints(text.format(lower="tile_linear_id() * 4", step=512)) == [("P1002", "warning")]


def test_occupancy() -> None:
    of = ROWS["sm_90"].limits
    assert occupancy(256, 0, of).percent == 100
    assert occupancy(32, 0, of).limit == "groups"
    found = occupancy(128, 64 << 10, of)
    assert (found.groups, found.limit) == (3, "shared memory")
    assert occupancy(128, 228 << 10, of).groups == 0


def test_occupancy_says_what_it_leaves_out() -> None:
    program, _, _ = lower_source(TRANSPOSE.format(width=33, place="r, c"))
    found = report_occupancy(program.operations[0])
    assert "1024 lanes and 4224 bytes" in found.message
    assert any("registers" in note for note in found.notes)
    said = [name for note in found.notes[:-1] for name in note.split(":")[0].split(", ")]
    assert sorted(said) == sorted(name for name in ROWS if name != "sm_90a")


def test_guards_that_stay() -> None:
    text = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: f32[n], at: i32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    out[i] = x[i]
    if i < n: out[i] = x[at[i]]
"""
    found = explain_guards(optimized(text).operations[0])
    messages = [d.message for d in found]
    assert len(messages) == 3
    assert "read of `x`" in messages[0] and "`i < n`" in messages[0]
    assert "write of `out`" in messages[1]
    assert "`0 <= " in messages[2] and " < n`" in messages[2]
    assert all(d.code == "P1004" and d.span is not None for d in found)


def test_where_guards_are_decided_together() -> None:
    text = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: f32[n], at: i32[n], out: mut f32[n], a: index):
    i = grid_tile_linear_id()
    for t in range(a): out[i] += x[at[i]]
    tbarrier()
    out[i] = 1.0
"""
    looped, *others = explain_guards(optimized(text).operations[0])
    said = [(*d.notes, *(label.text for label in d.labels)) for d in (looped, *others)]
    once = ("a GPU decides it here, with 2 others, in one test",)
    assert said == [once, once, (), once, ()]
