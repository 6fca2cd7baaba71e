"""Union-find against sets that are merged one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tessera_lang.ir.disjoint_sets import DisjointSets

_NUMBERS = st.integers(0, 12)


@given(st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=24))
def test_classes(pairs: list[tuple[int, int]]) -> None:
    found, expected = DisjointSets[int](), {n: {n} for n in range(13)}
    for a, b in pairs:
        first = found.representative(a)
        found.unite(a, b)
        assert found.representative(b) == first  # that of the first one stands for both
        merged = expected[a] | expected[b]
        for n in merged:
            expected[n] = merged
    for a in expected:
        for b in expected:
            same = found.representative(a) == found.representative(b)
            assert same == (b in expected[a])
