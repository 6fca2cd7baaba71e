"""A loop over a name that is a slip is mended by the name alone: its arguments stay."""

from __future__ import annotations

import pytest

from tessera_lang.driver.fixes import edited
from tests.spec.test_fixes import found_in, offers, printed

TILES = """
@op.kernel
def k(x: f32[m, n]) -> f32[m]:
    y = op.zeros((m,), f32)
    for i in {head}:
        y[i] = op.sum(x[i, :])
    return y


x = op.cast(op.reshape(op.arange(10, dtype=i32), (5, 2)), f32)
y = k(x)
for j in range(5):
    print(y[j])
"""
LANES = """
@kernel tile[(32,)]
def k(x: f32[n], out: mut f32[n]):
    i = lane_id()
    if i == 0:
        for j in {head}:
            out[j] = x[j] * 2.0


x = op.cast(op.arange(5, dtype=i32), f32)
y = op.zeros((5,), dtype=f32)
k[1](x, y)
for j in range(5):
    print(y[j])
"""
SLIPS = {
    "op.tile_rnage(m, step=1)": "op.tile_range(m, step=1)",
    "op.tile_ranges(0, m, step=1)": "op.tile_range(0, m, step=1)",
    "op.tilerange(m, step=1)": "op.tile_range(m, step=1)",
    "op.tile_rang(m, step=1, independent=('i',))": "op.tile_range(m, step=1, independent=('i',))",
    "tile_rnage(m, step=1)": "op.tile_range(m, step=1)",
    "op.range(m, step=1)": "op.tile_range(m, step=1)",
    "op.range(m)": "range(m)",
    "rnage(0, m)": "range(0, m)",
    "prange(m)": "range(m)",
}


@pytest.mark.parametrize("head", SLIPS)
def test_a_slip_in_a_tile_kernel(head: str) -> None:
    source = TILES.format(head=head)
    (found,) = offers(source)
    program = edited(source, found[1].edits)
    assert program == TILES.format(head=SLIPS[head])
    assert not [d for d in found_in(program) if d.severity == "error"]
    assert [float(v) for v in printed(program)] == [1.0, 5.0, 9.0, 13.0, 17.0]


@pytest.mark.parametrize("head", ["op.arange(m)", "op.arange(m) + 0", "op.arange(0, m, 1)"])
def test_a_tile_kernel_goes_through_places(head: str) -> None:
    source = TILES.format(head=head)
    assert not found_in(source)
    assert [float(v) for v in printed(source)] == [1.0, 5.0, 9.0, 13.0, 17.0]


@pytest.mark.parametrize("head", ["rnage(n)", "rang(0, n)", "prange(0, n, 1)", "op.arange(n)"])
def test_a_slip_in_lanes(head: str) -> None:
    source = LANES.format(head=head)
    (found,) = offers(source)
    program = edited(source, found[1].edits)
    assert program.count(f"range{head[head.index('(') :]}:") == 1
    assert [float(v) for v in printed(program)] == [0.0, 2.0, 4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("form", "head", "written"),
    [
        (TILES, "enumerate(y)", "for k in range(y.shape[0]):"),
        (TILES, "3 + 2", "for i in range(3 + 2):"),
        (LANES, "5", "for j in range(5):"),
    ],
)
def test_what_is_no_range(form: str, head: str, written: str) -> None:
    (d,) = (d for d in found_in(form.format(head=head)) if d.code == "T0118")
    assert f"`{written}`" in d.helps[0]
    program = form.format(head=head)
    index = written.split()[1]
    for line in program.splitlines():
        if line.lstrip().startswith("for ") and head in line:
            program = program.replace(line.lstrip(), written, 1)
    program = program.replace("[j]", f"[{index}]", 2) if form == LANES else program.replace(
        "y[i] = op.sum(x[i, :])", f"y[{index}] = op.sum(x[{index}, :])"
    )  # fmt: skip
    assert not [d for d in found_in(program) if d.severity == "error"]
