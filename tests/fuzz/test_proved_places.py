"""Places made of the lane, of data and of a loop counter at random: what is called proved has no
two lanes at one place, for data at random."""

from __future__ import annotations

import random

import pytest

from tessera_lang.analysis import check_shared
from tests.unit.lowering import lower_source

LANES, CELLS = 16, 64
DATA = ["q", "q & 3", "q % 3", "q * 16", "q << 4", "q * 8", "q * 48", "(q & 1) * 16", "q * 32"]
COUNTED = ["k", "k % 2", "(k + 1) % 2", "k & 1", "k % 3", "(k + 2) % 3", "1 - k % 2"]
OWN = ["t", "15 - t", "t // 2", "t % 8", "t ^ 1", "2 * t", "t * 3 % 16", "t"]


def place(r: random.Random) -> str:
    """One index of a flat buffer, or two."""

    def rest() -> str:
        other = r.choice([r.choice(DATA), f"({r.choice(COUNTED)}) * {r.choice([16, 16, 8])}", "0"])
        return f"({other}) {r.choice(['+', '+', '|', '-'])} ({r.choice(OWN)})"

    if r.random() < 0.5:
        return rest()
    return f"({r.choice([*DATA, *COUNTED])}, {r.choice([*OWN, rest()])})"


def text(store: str, load: str, flat: tuple[bool, bool]) -> str:
    names = ["s" if one else "w" for one in flat]
    return (
        f"@kernel tile[({LANES},)]\ndef f(p: i32[n], h: index, out: mut f32[{LANES}]):\n"
        f"    s = tshared.alloc(({CELLS},), f32)\n    w = tshared.alloc((4, 16), f32)\n"
        f"    t = tile_linear_id()\n    acc = 0.0\n    for k in range(h):\n"
        f"        q = index(p[k * {LANES} + t])\n"
        f"        {names[0]}[{store}] = f32(t)\n"
        f"        acc += {names[1]}[{load}]\n        tbarrier()\n    out[t] = acc\n"
    )


def cell(where: str, t: int, q: int, k: int) -> tuple[int, ...] | None:
    found = eval(where, {}, {"t": t, "q": q, "k": k})
    cells = found if isinstance(found, tuple) else (found,)
    sizes = (4, 16) if len(cells) == 2 else (CELLS,)
    return cells if all(0 <= c < n for c, n in zip(cells, sizes, strict=True)) else None


def meets(r: random.Random, store: str, load: str) -> bool:
    for k in range(6):
        for _ in range(6):
            data = [r.randrange(-2, 9) for _ in range(LANES)]
            puts = [cell(store, t, data[t], k) for t in range(LANES)]
            gets = [cell(load, t, data[t], k) for t in range(LANES)]
            for t in range(LANES):
                for u in range(LANES):
                    if t != u and puts[t] is not None and puts[t] in (puts[u], gets[u]):
                        return True
    return False


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(1)
def test_what_is_proved_does_not_meet(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(25):
        store = place(r)
        load = store if r.random() < 0.5 else place(r)
        flat = tuple(not x.startswith("(") or "," not in x for x in (store, load))
        shown = [x if f else x[1:-1] for x, f in zip((store, load), flat, strict=True)]
        lowered, plan, _ = lower_source(text(shown[0], shown[1], (flat[0], flat[1])))
        found = check_shared(lowered.operations[0], plan)
        if found.races == "proved":
            assert not meets(r, store, load), (store, load)
