"""Findings are found again at the places where the operations of a program stand now."""

from __future__ import annotations

from tessera_lang.analysis.kept_findings import Findings
from tessera_lang.diagnostics import Diagnostic, Label
from tessera_lang.source import Anchor, Span

OLD, NEW = Anchor("a.tessera", 10), Anchor("a.tessera", 10)


def spans(anchor: Anchor, *starts: int) -> tuple[Span, ...]:
    return tuple(Span(anchor, start, start + 3) for start in starts)


def fault(at: Span, label: Span) -> Diagnostic:
    return Diagnostic("T0414", "two lanes meet", at, labels=(Label(label, "here too"),))


def test_what_moved_is_found_at_its_new_place() -> None:
    before, after = spans(OLD, 0, 10, 20), spans(NEW, 0, 14, 24)
    known = Findings()
    known.put("program", before, (fault(before[2], before[1]),))
    assert known.get("program", before) == (fault(before[2], before[1]),)
    assert known.get("program", after) == (fault(after[2], after[1]),)
    assert known.get("another", after) is None


def test_what_may_be_said_otherwise_is_looked_at_anew() -> None:
    before = spans(OLD, 0, 10, 20)
    for after in (
        spans(NEW, 0, 20, 10),  # another order
        spans(NEW, 0, 10, 10),  # two at one place
        spans(NEW, 0, 10),
    ):
        known = Findings()
        known.put("program", before, ())
        assert known.get("program", after) is None
    elsewhere = Findings()
    elsewhere.put("program", before, (fault(before[2], Span(OLD, 90, 91)),))
    assert elsewhere.get("program", spans(NEW, 0, 14, 24)) is None


def test_the_oldest_are_forgotten() -> None:
    known = Findings(2)
    for name in ("one", "two"):
        known.put(name, (), ())
    assert known.get("one", ()) == ()
    known.put("three", (), ())
    assert len(known) == 2 and known.get("two", ()) is None
