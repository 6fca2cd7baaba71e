"""Accesses that hang on data: nobody follows lanes for them, and everything else is followed."""

from __future__ import annotations

import pytest

from tessera_lang.analysis import check_shared
from tessera_lang.analysis.lanes.unknown_accesses import untraced
from tests.unit.lowering import lower_source

HEAD = """
@kernel tile[(64,)] shared(4_KiB)
def k(x: f32[n], p: i64[n], far: index, out: mut f32[n]):
    s = tshared.alloc((64,), f32)
    t = tile_linear_id()
"""


def stores(body: str) -> list[bool]:
    """Of each store into shared memory, in order, whether lanes show nothing of it."""
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    kernel = lower_source(text)[0].operations[0]
    sizes = [v for v in kernel.regions[0].arguments if v.name == "n"]
    found = untraced(kernel, sizes)
    return [
        o in found for o in kernel.walk()
        if o.name == "tile.store" and len(o.operands) == 3 and o.operands[1].name == "s"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "hidden"),
    [
        ("s[t] = 1.0", False),
        ("s[n % 64] = 1.0", False),
        ("s[63 - t // 2] = x[t]", False),
        ("for j in range(4): s[t * 4 + j] = 1.0", False),
        ("s[p[t]] = 1.0", True),
        ("s[p[t] % 64 + t] = 1.0", True),
        ("s[far] = 1.0", True),
        ("if x[t] > 0.0: s[t] = 1.0", True),
        ("for j in range(p[t]): s[t] = 1.0", True),
        ("a = t if t < n else 5\ns[a] = 1.0", False),
        ("a = p[t] if t < n else p[0]\ns[a] = 1.0", True),
        ("a = 0\nfor j in range(n): a = p[j]\ns[a] = 1.0", False),  # none if there is no j
    ],
)
def test_one_store(body: str, hidden: bool) -> None:
    assert stores(body) == [hidden]


def test_a_race_beside_places_out_of_data_is_found() -> None:
    """What hangs on data hides no pair of accesses that does not."""
    hidden = "".join(f"    s[p[t + {j}]] = x[{j}]\n" for j in range(4))
    text = HEAD + hidden + "    s[t] = x[t]\n    out[t] = s[63 - t]\n"
    program, plan, _ = lower_source(text)
    found = check_shared(program.operations[0], plan)
    assert [d.code for d in found.errors] == ["T0410"]


def test_what_is_not_proved_is_said_once_for_each_access() -> None:
    """Not once for each pair."""
    text = HEAD + "".join(f"    s[p[t + {j}]] = x[{j}]\n" for j in range(40))
    program, plan, _ = lower_source(text)
    found = check_shared(program.operations[0], plan)
    assert found.races == "not proved"
    assert len(found.unproved) <= 80
