"""Loops of unknown length in which only some iterations have a barrier, beside a run of lanes."""

from __future__ import annotations

import random

import pytest

from tessera_lang.analysis import check_shared
from tests.unit.lowering import lower_source

LANES, ROUNDS = 4, 13
PLACES = ("t", "3 - t", "(t + 1) % 4", "t ^ 1")
STAGES = ("0", "k % 2", "k % 3", "(k + 1) % 2", "(k + 1) % 3")
WHEN = ("", "", "k % 2 == 0", "k % 2 == 1", "k % 3 != 1", "k % 3 == 2")
Line = tuple[str, str, str, str]
"""What is done ("write", "read", "barrier", "continue"), the stage, the place, and when."""


def body(r: random.Random) -> list[Line]:
    kinds = [*r.choices(("write", "read"), k=r.randint(2, 3)), "barrier"]
    kinds += r.choices(("barrier", "continue", "read"), k=r.randint(0, 2))
    r.shuffle(kinds)
    lines = [(kind, r.choice(STAGES), r.choice(PLACES), r.choice(WHEN)) for kind in kinds]
    if r.random() < 0.5:  # all of it in some iterations only
        lines = [("continue", "", "", r.choice(WHEN[2:])), *((*x[:3], "") for x in lines)]
    return lines


def text(lines: list[Line]) -> str:
    made = {"write": "s[{0}, {1}] = f32(t)", "read": "v += s[{0}, {1}]", "barrier": "tbarrier()",
            "continue": "continue"}  # fmt: skip
    inner = [
        f"        {f'if {when}: ' if when else ''}{made[kind].format(stage, place)}\n"
        for kind, stage, place, when in lines if kind != "continue" or when
    ]  # fmt: skip
    return (
        f"@kernel tile[({LANES},)] grid[(1,)]\ndef k(h: index, out: mut f32[{LANES}]):\n"
        f"    s = tshared.alloc((3, {LANES}), f32)\n    t = tile_linear_id()\n    v = 0.0\n"
        "    for q in range(3): s[q, t] = 0.0\n    tbarrier()\n    for k in range(h):\n"
        f"{''.join(inner)}    out[t] = v\n"
    )


def races(lines: list[Line]) -> bool:
    """Whether two lanes meet in some interval of a loop of ``ROUNDS``."""
    seen: dict[tuple[int, int], dict[str, set[int]]] = {}
    for k in range(ROUNDS):
        for kind, stage, place, when in lines:
            if when and not eval(when, {}, {"k": k}):
                continue
            if kind == "continue":
                if when:
                    break
            elif kind == "barrier":
                seen = {}
            else:
                for t in range(LANES):
                    at = eval(stage, {}, {"k": k}), eval(place, {}, {"t": t})
                    cell = seen.setdefault(at, {"read": set(), "write": set()})
                    cell[kind].add(t)
                    if len(cell["write"]) > 1 or (cell["write"] and cell["read"] - cell["write"]):
                        return True
    return False


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sample(1)
def test_what_is_proved_has_no_race(seed: int) -> None:
    r = random.Random(seed)
    proved = wrong = 0
    for _ in range(40):
        lines = body(r)
        program, plan, diagnostics = lower_source(text(lines))
        told = any(d.code == "T0410" for d in diagnostics)
        meets = races(lines)
        verdict = check_shared(program.operations[0], plan).races if not told else "witness"
        assert verdict != "proved" or not meets, text(lines)
        assert verdict != "witness" or meets, text(lines)
        proved += verdict == "proved"
        wrong += meets
    assert proved > 2 and wrong > 5
