"""Places that a counter gives out: no two lanes have one, if nothing else writes the counter."""

from __future__ import annotations

import pytest

from tessera_lang.analysis import unproved_arrays
from tests.unit.lowering import lower_source

TEXT = """
@kernel tile[(64,)] grid[(m,)]
def k(x: f32[m, 64], count: mut i32[2], out: mut f32[n]):
    t = tile_linear_id()
    v = x[group_id(0), t]
    if v > 0.0:
        p = atomic_add(count[0], 1, scope="device", order="relaxed")
        if p < n: out[p] = v
"""
WRONG = {
    "half of it": ("out[p] = v", "out[p // 2] = v"),
    "a counter of each group": ('scope="device"', 'scope="group"'),
    "nothing is added": ("count[0], 1,", "count[0], 0,"),
    "data are added": ("count[0], 1,", "count[0], i32(v),"),
    "one of two counters": ("count[0], 1,", "count[t % 2], 1,"),
    "a counter that goes back": ("atomic_add", "atomic_sub"),
    "set anew": ("    if v > 0.0:", "    count[0] = 0\n    if v > 0.0:"),
    "set anew by an atomic": (
        "    if v > 0.0:",
        "    atomic_exchange(count[0], 0)\n    if v > 0.0:",
    ),
    "another store": ("out[p] = v", "out[p] = v\n        if t < n: out[t] = v"),
    "bits are lost": ("out[p] = v", "out[u8(p)] = v"),
    "of 8 bits": ("mut i32[2]", "mut u8[2]"),
}


def are_proved(text: str) -> bool:
    program, plan, diagnostics = lower_source(text)
    told = [d for d in diagnostics if d.code == "T0414"]
    return not told and not unproved_arrays(program.operations[0], plan)


def test_a_counter_of_all_groups() -> None:
    assert are_proved(TEXT)
    assert are_proved(TEXT.replace("out[p] = v", "out[p] = v\n        if p < n: out[p] += 1.0"))
    assert are_proved(TEXT.replace("count[0], 1,", "count[1], 3,"))


def test_a_counter_of_one_group() -> None:
    assert are_proved(TEXT.replace("(m,)]", "(1,)]").replace('"device"', '"group"'))


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.sample(3)
def test_others_are_not_proved(name: str) -> None:
    old, new = WRONG[name]
    assert old in TEXT
    assert not are_proved(TEXT.replace(old, new))
