"""Code of checked mode as bytes: an object, and what its caller must know of it.

Must not know launches.
"""

from __future__ import annotations

import json
from typing import Any

from tessera_backend.cpu.checked import shadow_words as w
from tessera_backend.cpu.checked.emit import CheckedForm
from tessera_backend.cpu.checked.shadow_elision import Root, Roots, lanes_of, waits
from tessera_lang.ir.core import Operation
from tessera_lang.record import dataclass
from tessera_lang.source import Anchor, Span

KIND = "checked"
"""Of an artifact whose code is looked at."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the launch of checked code needs. ``roots``: what has shadows, in order; ``places``:
    of the numbered operations; ``waits``: groups may wait for those before them."""

    roots: tuple[Root, ...]
    places: tuple[Span | None, ...]
    lanes: int
    waits: bool
    barriers: bool
    proved: tuple[str, ...]
    blind: tuple[str, ...]


def facts_of(kernel: Operation, form: CheckedForm, roots: Roots) -> Facts:
    """Behind the emission, which numbers the operations."""
    spans: dict[int, Span | None] = {}
    for op, number in form.look.numbers.items():
        spans[number] = None if number == w.MOST_OPERATIONS - 1 else op.span
    return Facts(
        tuple(form.roots), tuple(spans.values()), lanes_of(kernel), waits(kernel),
        kernel.holds("tile.barrier"), roots.proved, roots.blind,
    )  # fmt: skip


def encode(facts: Facts, code: bytes) -> bytes:
    held = {
        "roots": [
            [r.name, r.argument, r.element, list(r.kinds), r.fresh, list(r.shape), r.alone]
            for r in facts.roots
        ],
        "places": [None if s is None else [s.file, s.lo, s.hi] for s in facts.places],
        "lanes": facts.lanes, "waits": facts.waits, "barriers": facts.barriers,
        "proved": list(facts.proved), "blind": list(facts.blind),
    }  # fmt: skip
    return json.dumps(held).encode() + b"\n" + code


def decode(code: bytes) -> tuple[Facts, bytes]:
    """Raises ValueError, KeyError or TypeError where the bytes are none of ``encode``."""
    head, _, rest = code.partition(b"\n")
    held: dict[str, Any] = json.loads(head)
    roots = tuple(
        Root(name, argument, element, tuple(kinds), fresh, tuple(shape), alone)
        for name, argument, element, kinds, fresh, shape, alone in held["roots"]
    )
    places = tuple(None if p is None else Span(Anchor(p[0]), p[1], p[2]) for p in held["places"])
    return Facts(
        roots, places, held["lanes"], held["waits"], held["barriers"], tuple(held["proved"]),
        tuple(held["blind"]),
    ), rest  # fmt: skip
