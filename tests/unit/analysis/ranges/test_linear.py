"""Proofs about linear expressions: what is remembered is what would be found again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera_lang.analysis.ranges.linear import Case, Knowledge, Linear

ATOMS = 4
TERMS = st.dictionaries(st.integers(0, ATOMS - 1), st.integers(-3, 3).filter(bool), max_size=3)
EXPRESSIONS = st.builds(
    lambda terms, constant: Linear(tuple(sorted(terms.items())), constant),
    TERMS, st.integers(-9, 9),
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("push"), EXPRESSIONS), st.tuples(st.just("pop"), st.integers(0, 3)),
    st.tuples(st.just("bound"), st.tuples(st.integers(0, ATOMS - 1), st.integers(-5, 5))),
    st.tuples(st.just("split"), st.tuples(st.integers(1, ATOMS - 1), EXPRESSIONS, EXPRESSIONS)),
    st.tuples(st.just("ask"), st.tuples(EXPRESSIONS, st.integers(1, 3), st.booleans())),
)  # fmt: skip


@settings(deadline=None, max_examples=120)
@given(st.lists(STEPS, min_size=4, max_size=25))
def test_nothing_is_remembered_beyond_what_it_was_found_under(
    steps: list[tuple[str, object]],
) -> None:
    """Facts come and go, bounds and cases change."""
    known = Knowledge([(0, 7)] * ATOMS)
    for name, value in steps:
        match name, value:
            case "push", Linear() as fact:
                known.facts.append(fact)
            case "pop", int(mark):
                del known.facts[mark:]
            case "bound", (int(atom), int(low)):
                known.bound(atom, (low, low + 6))
            case "split", (int(atom), Linear() as a, Linear() as b):
                cases: tuple[Case, ...] = (
                    (a.replaced(atom, Linear()), ()), (b.replaced(atom, Linear()), (a,))
                )  # fmt: skip
                known.split(atom, cases)
            case _, (Linear() as asked, int(depth), bool(enough)):
                fresh = Knowledge(list(known.intervals), list(known.facts), dict(known.cases))
                wanted = fresh.lower(asked, depth, 0 if enough else None)
                assert known.lower(asked, depth, 0 if enough else None) == wanted
            case _:
                raise AssertionError(name)


@pytest.mark.parametrize("count", [10, 100])
def test_the_same_question_is_answered_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Knowledge([(0, 100)] * 2)
    known.holds(Linear(((0, -1), (1, 1)), -1))
    found, plain = [0], Knowledge._by_facts  # pyright: ignore[reportPrivateUsage]

    def counted(self: Knowledge, *arguments: object) -> int:
        found[0] += 1
        return plain(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Knowledge, "_by_facts", counted)
    for _ in range(count):
        assert known.proves(Linear(((0, -1), (1, 1)), -1))
    assert found[0] <= 3
