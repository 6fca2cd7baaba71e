"""Whether the compiler refused a program with planted faults for one of them.

It may refuse what it sees to be wrong every time it runs, whether or not a lane comes by: then the
place is one whose index or divisor was planted, or each lane that came by met a fault. A refusal of
any other place is the compiler's fault. Must not know how the compiler decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.fuzz import program as p
from tests.fuzz.metamorphic import blocks, operands

CERTAIN = {"T0402": "outside", "T0223": "zero"}
"""Codes of what is surely wrong: a place outside of its array, a division by 0."""


def refused_rightly(kernel: p.Kernel, judged: p.Judged, code: str, text: str) -> bool:
    """``text``: the place or divisor that the diagnostic of that code points at."""
    what = CERTAIN.get(code)
    return what is not None and any(
        _is_faulty(node, judged, where)
        for node, kind, shown, where in _suspects(kernel)
        if kind == what and _plain(shown) == _plain(text)
    )


def _plain(text: str) -> str:
    """The text without white space and the brackets around it, which spans leave out."""
    text = "".join(text.split())
    while text.startswith("(") and text.endswith(")") and _closes_last(text):
        text = text[1:-1]
    return text


def _closes_last(text: str) -> bool:
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return at == len(text) - 1
    return False


def _is_faulty(node: object, judged: p.Judged, where: list[p.Expr]) -> bool:
    good, bad = judged.get(id(node), (0, 0))
    return not good and (bad > 0 or any(e.planted for root in where for e in _parts(root)))


def _parts(root: p.Expr) -> Iterator[p.Expr]:
    yield root
    for _, _, inner in operands(root):
        yield from _parts(inner)


Suspect = tuple[object, str, str, list[p.Expr]]
"""A node, what can be wrong with it, the text that a report would show, what may be planted."""


def _suspects(kernel: p.Kernel) -> Iterator[Suspect]:
    for block in blocks(kernel):
        for s in block:
            yield from _of(s)
            tests = [test for test, _ in s.branches] if isinstance(s, p.If) else []
            for root in (*tests, *(e for _, _, e in operands(s))):
                for e in _parts(root):
                    yield from _of(e)


def _of(node: Any) -> Iterator[Suspect]:
    match node:
        case p.Load() | p.Store():
            place = f"{node.array}[{', '.join(e.text() for e in node.indices)}]"
            yield node, "outside", place, node.indices
        case p.Reduce():
            yield node, "outside", node.place(), node.indices
        case p.Atomic():
            yield node, "outside", f"{node.array}[{node.index.text()}]", [node.index]
        case p.Binary(operator="//" | "%"):
            yield node, "zero", node.right.text(), [node.right]
        case p.Call(function="ceil_div"):
            yield node, "zero", node.operands[-1].text(), [node.operands[-1]]
        case p.Update(operator="//" | "%"):
            yield node, "zero", node.expr.text(), [node.expr]
        case _:
            pass
    if isinstance(node, p.Store) and node.operator in ("//", "%"):
        yield node, "zero", node.expr.text(), [node.expr]
