"""What the lowering to register tiles cannot do, as a value that the driver answers."""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.source import Span


class NotTiled(Exception):
    """A program that has no form with register tiles; another lowering takes it.

    ``reason`` is a clause that stands behind "not lowered to register tiles: "; ``instead`` says
    what to write.
    """

    def __init__(self, reason: str, span: Span | None = None, instead: str = "") -> None:
        self.reason = reason
        self.span = span
        self.instead = instead
        super().__init__(reason)


class TooLong(NotTiled):
    """A schedule whose lanes would have too many ``instructions``; more lanes have fewer each."""

    def __init__(self, instructions: int, reason: str, span: Span | None, instead: str) -> None:
        self.instructions = instructions
        super().__init__(reason, span, instead)


class NotHonoured(NotTiled):
    """One decision of a schedule has no form; the schedule is decided again without it.

    ``decision``: a key of ``opt.schedule.context.Context.refusals``.
    """

    def __init__(self, decision: str, reason: str, span: Span | None = None) -> None:
        self.decision = decision
        super().__init__(reason, span)


class TooLarge(NotTiled):
    """A schedule whose buffers are more than the machine has; one with less of them may fit.

    ``refusal``: what to say where none does; without it the kernel has another form.
    """

    def __init__(self, bytes_: int, refusal: Diagnostic | None = None) -> None:
        self.bytes = bytes_
        self.refusal = refusal
        super().__init__(f"it takes {bytes_} bytes of shared memory")
