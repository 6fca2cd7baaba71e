"""Locks, tickets, flags and turns that lanes of several groups wait for, the wait written in
several ways: right ones are no fault, and one without its release or its acquire is told."""

from __future__ import annotations

from itertools import product

import pytest

from tessera_lang.analysis import check_arrays, uniformity
from tessera_lang.diagnostics import Diagnostic
from tests.unit.lowering import lower_source

HEAD = """
@kernel tile[({lanes},)]{grid}
def k(x: f32[n], d: mut i32[8], box: mut f32[8], out: mut f32[m]):
    t, g = tile_linear_id(), group_linear_id()
    i = grid_tile_linear_id()
"""
GRIDS = {
    "1": " grid[(1,)]", "2": " grid[(2,)]", "4": " grid[(4,)]", "call": "",
    "sizes": " grid[(ceil_div(n, {lanes}),)]",
}  # fmt: skip
WAITS = {
    "while": "while {go}: pass",
    "break": "while True:\n    if not ({go}): break",
    "name": "again = True\nwhile again: again = {go}",
}
ORDERS = {
    "orders": ("acquire", "release", "", ""),
    "fences": ("relaxed", "relaxed", 'tfence("device")\n', 'tfence("device")\n'),
}
USES = ("box[0] += x[0]", "v = box[0]\nbox[0] = v + x[0]\nbox[1] = v")


def atomic(name: str, *arguments: str, order: str) -> str:
    return f'atomic_{name}({", ".join(arguments)}, order="{order}", scope="device")'


def lock(wait: str, take: str, give: str, before: str, behind: str, use: str) -> str:
    go = atomic("cas", "d[0]", "0", "1", order=take) + " != 0"
    free = atomic("store", "d[0]", "0", order=give)
    return f"{WAITS[wait].format(go=go)}\n{before}{use}\n{behind}{free}"


def exchange(wait: str, take: str, give: str, before: str, behind: str, use: str) -> str:
    go = atomic("exchange", "d[0]", "1", order=take) + " == 1"
    free = atomic("store", "d[0]", "0", order=give)
    return f"{WAITS[wait].format(go=go)}\n{before}{use}\n{behind}{free}"


def ticket(wait: str, take: str, give: str, before: str, behind: str, use: str) -> str:
    go = atomic("load", "d[1]", order=take) + " != mine"
    free = atomic("store", "d[1]", "mine + 1", order=give)
    return f"mine = atomic_add(d[0], 1)\n{WAITS[wait].format(go=go)}\n{before}{use}\n{behind}{free}"


def turns(wait: str, take: str, give: str, before: str, behind: str, use: str) -> str:
    go = atomic("load", "d[0]", order=take) + " != i"
    free = atomic("store", "d[0]", "i32(i) + 1", order=give)
    return f"{WAITS[wait].format(go=go)}\n{before}{use}\n{behind}{free}"


def flag(wait: str, take: str, give: str, before: str, behind: str, use: str) -> str:
    """A flag for each group, which its other lanes wait for."""
    go = atomic("load", "d[g]", order=take) + " == 0"
    waited = f"{WAITS[wait].format(go=go)}\n{before}out[i] = box[g]"
    given = f"box[g] = 2.0\n{behind}" + atomic("store", "d[g]", "1", order=give)
    return f"if t == 0:\n{indented(given)}\nelse:\n{indented(waited)}"


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


KINDS = {f.__name__: f for f in (lock, exchange, ticket, turns, flag)}


def found(body: str, grid: str, lanes: int) -> tuple[Diagnostic, ...]:
    text = HEAD.format(lanes=lanes, grid=grid.format(lanes=lanes)) + indented(body)
    program, plan, _ = lower_source(text)
    kernel = program.operations[0]
    return check_arrays(kernel, plan, uniformity(kernel))


RIGHT = list(product(KINDS, WAITS, ORDERS, GRIDS, (1, 8, 33, 64)))


@pytest.mark.parametrize(("kind", "wait", "orders", "grid", "lanes"), RIGHT)
@pytest.mark.sample(2)
def test_what_is_waited_for_orders_lanes_of_all_groups(
    kind: str, wait: str, orders: str, grid: str, lanes: int
) -> None:
    for use in USES[: 1 if kind == "flag" else 2]:
        body = KINDS[kind](wait, *ORDERS[orders], use)
        assert found(body, GRIDS[grid], lanes) == (), body


MISSING = {
    "acquire": ("relaxed", "release", "", ""),
    "release": ("acquire", "relaxed", "", ""),
    "fence_behind": ("relaxed", "relaxed", 'tfence("device")\n', ""),
    "fence_before": ("relaxed", "relaxed", "", 'tfence("device")\n'),
}
WRONG = list(product(KINDS, WAITS, MISSING, ("1", "2", "4", "sizes"), (8, 33, 64)))


@pytest.mark.parametrize(("kind", "wait", "missing", "grid", "lanes"), WRONG)
@pytest.mark.sample(2)
def test_half_a_hand_over_is_told(
    kind: str, wait: str, missing: str, grid: str, lanes: int
) -> None:
    body = KINDS[kind](wait, *MISSING[missing], USES[0])
    told = [d for d in found(body, GRIDS[grid], lanes) if d.code == "T0414"]
    assert told, body
    if missing in ("acquire", "release") and kind != "turns":
        assert any("is relaxed and" in d.message for d in told), [d.message for d in told]


def chain(give: str, take: str, before: str, behind: str) -> str:
    """Lane 0 of the first group by way of lane 1 and of lane 0 of the second to lane 1 there."""
    narrow = [a.replace("device", "group") for a in (before, behind)]

    def wait(n: int, order: str, scope: str) -> str:
        return f'while atomic_load(d[{n}], order="{order}", scope="{scope}") == 0: pass\n'

    def put(n: int, order: str, scope: str) -> str:
        return f'atomic_store(d[{n}], 1, order="{order}", scope="{scope}")\n'

    first = f"box[0] = 2.0\n{narrow[1]}" + put(0, give, "group")
    second = wait(0, take, "group") + narrow[0] + behind + put(1, give, "device")
    third = wait(1, take, "device") + before + narrow[1] + put(2, give, "group")
    fourth = wait(2, take, "group") + narrow[0] + "out[0] = box[0]\n"
    return (
        f"if g == 0:\n    if t == 0:\n{indented(indented(first))}"
        f"    elif t == 1:\n{indented(indented(second))}"
        f"else:\n    if t == 0:\n{indented(indented(third))}"
        f"    elif t == 1:\n{indented(indented(fourth))}"
    )


@pytest.mark.parametrize("orders", ORDERS)
def test_lanes_hand_on_what_they_took_over(orders: str) -> None:
    take, give, before, behind = ORDERS[orders]
    assert found(chain(give, take, before, behind), GRIDS["2"], 33) == ()


@pytest.mark.parametrize("who", ["0", "37", "537", "1023"])
@pytest.mark.sample(1)
def test_one_lane_of_many_hands_over_behind_a_barrier(who: str) -> None:
    """Not all of the lanes are followed: those that are not may hand over too."""
    given = f'if t == {who}: atomic_store(d[0], 1, order="release", scope="device")'
    waited = 'while atomic_load(d[0], order="acquire", scope="device") == 0: pass'
    body = f"""if g == 0:
    for j in range(30): out[t] = f32(j)
    box[t % 8] = 1.0
    tbarrier()
    {given}
else:
    if t == {who}:
        {waited}
    tbarrier()
    out[1024 + t] = box[t % 8]"""
    assert [d for d in found(body, GRIDS["2"], 1024) if d.code == "T0414"] == []
    wrong = body.replace(f"    {given}\n", "    pass\n").replace(waited, "pass")
    assert [d.severity for d in found(wrong, GRIDS["2"], 1024)] == ["error"]
