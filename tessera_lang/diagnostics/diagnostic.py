"""The diagnostic: one value for the compiler, the command line and the editor.

Owns the model. Must not know how it is printed (``render.py``) or who raised it.
Every code stands in ``codes.py``.
"""

from __future__ import annotations

from typing import Any, Literal

from tessera_lang.record import dataclass, field
from tessera_lang.source import Span

Severity = Literal["error", "warning", "note", "hint"]


@dataclass(frozen=True, slots=True)
class Label:
    """A secondary place that explains the primary one."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that would mend the fault; ``safe`` ones may be applied unseen."""

    title: str
    edits: tuple[Edit, ...]
    applicability: Literal["safe", "unsafe"] = "safe"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """What is wrong, where, what was expected and what to do.

    ``message`` stands alone in the user's words; ``label`` is the short text under the
    primary span; ``notes`` explain, ``helps`` say what to do. ``span`` is absent only
    where no line of a file is concerned (a missing driver, a bad command line).
    """

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    severity: Severity = "error"
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    certainty: Literal["proved", "estimated"] = "proved"


@dataclass(slots=True)
class Sink:
    """Collects diagnostics of one phase; the phases go on after an error."""

    items: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def add(self, diagnostic: Diagnostic) -> None:
        self.items.append(diagnostic)

    @property
    def has_errors(self) -> bool:
        return any(d.severity == "error" for d in self.items)


class TesseraError(Exception):
    """What Python hosts catch: carries the diagnostics that explain it.

    ``str(error)`` is the rendered text where source is at hand, else the messages. Can be
    pickled: it may cross from one process to another.
    """

    __module__ = "tessera_lang"  # where hosts find it

    def __init__(self, diagnostics: tuple[Diagnostic, ...], rendered: str = "") -> None:
        self.diagnostics = diagnostics
        super().__init__(rendered or self._messages())

    def _messages(self) -> str:
        return "; ".join(f"{d.code}: {d.message}" for d in self.diagnostics)

    @property
    def is_bare(self) -> bool:
        """Whether the text is the messages alone, without notes, helps and lines."""
        return self.args == (self._messages(),)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.diagnostics, str(self)), self.__dict__


def _rebuilt(
    kind: type[TesseraError], diagnostics: tuple[Diagnostic, ...], rendered: str
) -> TesseraError:
    """What ``pickle`` calls: a derived class may be made of other things."""
    error = kind.__new__(kind)
    TesseraError.__init__(error, diagnostics, rendered)
    return error
