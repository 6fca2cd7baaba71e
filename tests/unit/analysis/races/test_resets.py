"""A counter that the last lane to come sets back with a plain store: it has read what the others
left, so that its store is behind theirs at that element, whatever they hand over."""

from __future__ import annotations

import pytest

from tests.fuzz.verdicts import Case, judged

GROUPS = """
@kernel tile[(32,)] grid[(g,)]
def f(x: f32[g], parts: mut f32[g], count: mut i32[2], out: mut f32[2]):
    t = tile_linear_id()
    if t == 0:
        parts[group_linear_id()] = x[group_linear_id()]
        {before}came = atomic_add(count[0], 1{order})
        {test}
            {behind}{last}
"""
LANES = """
@kernel tile[(32,)] grid[(g,)]
def f(x: f32[g, 32], out: mut f32[g, 32]):
    count = tshared.alloc((2,), i32)
    t = tile_linear_id()
    if t < 2: count[t] = 0
    tbarrier()
    came = atomic_add(count[0], 1, scope="group")
    {test}
        {last}
    tbarrier()
    out[group_linear_id(), t] = f32(count[0])
"""
RESET = "count[0] = 0"
ORDERS = {
    "relaxed": ("", "", ""),
    "acq_rel": (', order="acq_rel"', "", ""),
    "fences": ("", 'tfence("device")\n        ', 'tfence("device")\n            '),
}


def verdict(text: str) -> tuple[str, list[str]]:
    return judged(Case("", "f", True, "", "", text))


def groups(last: str, test: str = "if came == i32(g) - 1:", order: str = "relaxed") -> str:
    of, before, behind = ORDERS[order]
    return GROUPS.format(order=of, before=before, behind=behind, test=test, last=last)


@pytest.mark.sample(2)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "last", [RESET, "out[0] = f32(count[0])", f"out[0] = 1.0\n            {RESET}"]
)
def test_last_group_sets_back(last: str, order: str) -> None:
    assert verdict(groups(last, order=order))[0] in ("checked", "proved")


WRONG = {
    "one too early": (RESET, "if came == i32(g) - 2:"),
    "each": (RESET, "if came >= 0:"),
    "the first": (RESET, "if came == 0:"),
    "another element": (
        "count[1] = 0\n        if came == 0:\n            atomic_add(count[1], 1)",
        "if came == i32(g) - 1:",
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", WRONG)
def test_others_still_come(kind: str) -> None:
    found, codes = verdict(groups(*WRONG[kind]))
    assert found == "error", codes
    assert "T0414" in codes


def test_what_others_stored_needs_more_than_the_number() -> None:
    """The number alone hands over nothing else."""
    last = f"for k in range(g): out[0] += parts[k]\n            {RESET}"
    assert verdict(groups(last))[0] == "error"
    assert verdict(groups(last, order="acq_rel"))[0] in ("checked", "proved")
    assert verdict(groups(last, order="fences"))[0] in ("checked", "proved")


def test_a_scope_of_the_group_is_no_order_of_groups() -> None:
    text = groups(RESET).replace("count[0], 1", 'count[0], 1, scope="group"')
    assert verdict(text)[0] == "error"


@pytest.mark.parametrize(("n", "expected"), [(31, ("checked", "proved")), (30, ("error",))])
def test_last_lane_sets_back(n: int, expected: tuple[str, ...]) -> None:
    assert verdict(LANES.format(test=f"if came == {n}:", last=RESET))[0] in expected
