"""Races on arrays that are certain: found with two lanes and both lines; nothing else is blamed."""

from __future__ import annotations

import pytest

from tessera_lang.analysis import check_arrays, uniformity
from tessera_lang.diagnostics import Diagnostic
from tests.unit.lowering import lower_source

HEAD = """
@kernel tile[({lanes},)]{grid}
def k(x: f32[n], p: i64[n], v: f32, out: mut f32[m], done: mut i32[m]):
    t = tile_linear_id()
    i = grid_tile_linear_id()
    g = group_linear_id()
"""
OWN_GRID = " grid[(ceil_div(n, 64),)]"


def found(body: str, grid: str = "", lanes: int = 64) -> tuple[Diagnostic, ...]:
    text = HEAD.format(lanes=lanes, grid=grid)
    text += "".join(f"    {line}\n" for line in body.splitlines())
    program, plan, _ = lower_source(text)
    kernel = program.operations[0]
    return check_arrays(kernel, plan, uniformity(kernel))


READ_AND_WRITTEN = {
    "out[0] += x[t]": "lanes 0 and 1 touch `out[0]`",
    "out[0] = out[0] + x[t]": "lanes 0 and 1 touch `out[0]`",
    "done[3] += 1": "lanes 0 and 1 touch `done[3]`",
    "done[0] = i32(t)": "lanes 0 and 1 write different values to `done[0]`",
    "out[0] = 1.0 if t < 32 else 2.0": "lanes 0 and 32 write different values to `out[0]`",
    "if t > 0: out[t] += out[t - 1]": "lanes 1 and 2 touch `out[1]`",
    "out[t] = out[63 - t]": "lanes 0 and 63 touch `out[63]`",
    "if t == 0: out[g] = x[t]\nif t == 1: out[g] += x[t]": "lanes 0 and 1 touch `out[0]`",
    "for j in range(4): out[j] += x[t * 4 + j]": "lanes 0 and 1 touch `out[0]`",
}  # fmt: skip


WRITTEN = {
    "out[g] = x[t]": "lanes 0 and 1 write values that may differ to `out[0]`",
    "out[t // 2] = x[t]": "lanes 0 and 1 write values that may differ to `out[0]`",
    "out[t % 32] = x[t]": "lanes 0 and 32 write values that may differ to `out[0]`",
    "before = atomic_add(done[0], 1)\nout[0] = x[t]":
        "lanes 0 and 1 write values that may differ to `out[0]`",
    "a = 0.0\nfor j in range(t, n, 64): a += x[j]\nout[g] = a":
        "lanes 0 and 1 write values that may differ to `out[0]`",
}  # fmt: skip
"""What is in the arrays decides: a warning."""


@pytest.mark.sample(7)
@pytest.mark.parametrize("body", [*READ_AND_WRITTEN, *WRITTEN])
def test_two_lanes_of_a_group(body: str) -> None:
    for grid in ("", OWN_GRID):
        (race,) = found(body, grid)
        assert race.code == "T0414"
        assert race.severity == ("error" if body in READ_AND_WRITTEN else "warning")
        assert race.message.startswith({**READ_AND_WRITTEN, **WRITTEN}[body])
        assert race.span is not None
        assert race.notes[0].startswith("this happens, for example, in group ")
        assert " of a launch with m = " in race.notes[0]


ACROSS = {
    "out[t] += x[i]": "lane 0 of group 0 and lane 0 of group 1 touch `out[0]`",
    "if t == 0: out[0] += x[g]": "lane 0 of group 0 and lane 0 of group 1 touch `out[0]`",
    "if t == 0: done[0] = i32(g)":
        "lane 0 of group 0 and lane 0 of group 1 write different values to `done[0]`",
    "if t == 0:\n    while done[g] == 0: pass\ntbarrier()\nout[(g + 1) % 2 * 64 + t] = out[i]":
        "lane 0 of group 0 and lane 0 of group 1 touch `out[0]`",
    "if i > 0: out[i] = out[i - 1] if t == 0 else 0.0":
        "lane 0 of group 1 and lane 63 of group 0 touch",
}  # fmt: skip


@pytest.mark.parametrize("body", ACROSS)
def test_two_groups(body: str) -> None:
    """An error where the kernel says that there are several, else a warning."""
    (race,) = found(body, OWN_GRID)
    assert race.severity == "error"
    assert "4 groups" in race.notes[0]
    (race,) = found(body)
    assert race.severity == "warning"
    assert "2 groups" in race.notes[0]


def test_one_group_by_its_own_grid() -> None:
    assert found("if t == 0: out[0] += x[t]", " grid[(1,)]") == ()
    assert found("out[t] = x[t]") == ()  # asks nothing of the grid: the call knows how many


RIGHT = [
    "out[i] = x[i] * 2.0",
    "out[i] += x[i]",
    "for j in range(i, n, grid_tile_count()): out[j] += x[j]",
    "out[n - 1 - i] = x[i]",
    "out[0] = 1.0",
    "out[0] = x[0]",
    "out[0] = v * 2.0",
    "a = 0.0\nfor j in range(n): a += x[j]\nout[0] = a",
    "out[warp_id()] = warp_sum(x[t])",
    "if t == 0: out[g] = x[t]",
    "atomic_add(out[0], x[t])",
    "out[p[t]] += x[t]",
    "if x[t] > 0.0: done[0] = 1",
    "out[0] = min(out[0], 100.0)",
    "out[3] = max(min(v, out[3]), -100.0)",
    "done[0] = (done[0] & 7) | 4",
    "if t == 0: out[g] = x[t]\ntbarrier()\nif t == 1: out[g] += x[t]",
    "if atomic_add(done[0], 1) == 0: out[0] = x[t]",
    'if atomic_add(done[0], 1, order="acq_rel") == 0:\n    out[0] = x[t]',
]


@pytest.mark.sample(9)
@pytest.mark.parametrize("body", RIGHT)
def test_nothing_else_is_blamed(body: str) -> None:
    assert found(body) == ()
    assert found(body, OWN_GRID) == ()


def test_what_helps() -> None:
    def helps(body: str) -> str:
        (race,) = found(body)
        return race.helps[0]

    assert helps("out[0] += x[t]") == "`atomic_add(out[...], ...)` loses no update"
    assert helps("out[0] = max(out[0], x[t])") == "`atomic_max(out[...], ...)` loses no update"
    assert "one lane" in helps("out[0] = x[t]")
    assert "tbarrier" in helps("out[t] = out[63 - t]")


LIMITS_OF_LANES = [
    "out[0] = min(out[0], x[t])",
    "out[0] = min(out[0], f32(t))",
    "out[0] = min(out[0], 1.0) + 1.0",
    "done[0] = min(done[0] & 6, 5)",
    "out[0] = min(out[0], out[0] * 2.0)",
    "a = out[0]\nout[0] = min(a, 1.0)\nout[t + 1] = a",
    "out[0] = min(out[0], 1.0) if t == 0 else max(out[0], 3.0)",
]


@pytest.mark.parametrize("body", LIMITS_OF_LANES)
def test_limits_that_lanes_do_not_share_race(body: str) -> None:
    assert [d.code for d in found(body)] == ["T0414"]


def test_both_lines_are_shown() -> None:
    (race,) = found("a = out[63 - t]\nout[t] = a")
    (label,) = race.labels
    assert race.span is not None
    assert label.span != race.span
    assert (race.label, label.text) == (
        "lane 0 reads `out[63]` here", "lane 63 writes `out[63]` here"
    )  # fmt: skip


def test_one_lane_has_nobody_to_meet() -> None:
    assert found("out[0] += x[t]", " grid[(1,)]", lanes=1) == ()


def test_a_lock_of_many_groups_orders_lanes_that_are_walked_twice() -> None:
    """What a lane stores is asked in a second walk, whose times are not those of its atomics."""
    body = """if t == 0:
    while atomic_cas(done[0], 0, 1, scope="device", order="acquire") != 0: pass
    out[0] += x[g]
    atomic_store(done[0], 0, scope="device", order="release")"""
    assert found(body, " grid[(64,)]", lanes=32) == ()
