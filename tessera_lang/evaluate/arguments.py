"""Arguments of a call in the host program and how they meet parameters.

Owns binding by position, by keyword and by default. Must not know what is called.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Edit, Fix
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.fault import HostFault, fault
from tessera_lang.evaluate.foreign_names import KEYWORDS
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast


@dataclass(frozen=True, slots=True)
class Arguments:
    """The values of one call; ``call`` is where they stand."""

    call: ast.Call
    values: tuple[object, ...]
    keywords: dict[str, object]

    def span_of(self, name: str, position: int) -> Span:
        """Where the argument stands."""
        for keyword in self.call.keywords:
            if keyword.name == name:
                return keyword.span
        if position < len(self.call.arguments):
            return self.call.arguments[position].span
        return self.call.span


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def wrong_count(name: str, takes: str, given: int, span: Span) -> HostFault:
    return fault("T0804", f"`{name}` takes {takes}, and the call has {given}", span)


def bind(
    arguments: Arguments, name: str, parameters: tuple[str, ...], required: int
) -> dict[str, object]:
    """Values by parameter name; absent ones are left out. Raises HostFault."""
    given = len(arguments.values) + len(arguments.keywords)
    least, most = required, len(parameters)
    takes = plural(most, "argument") if least == most else f"{least} to {most} arguments"
    if len(arguments.values) > most:
        raise wrong_count(name, takes, given, arguments.call.span)
    bound = dict(zip(parameters, arguments.values, strict=False))
    for keyword in arguments.call.keywords:
        if keyword.name not in parameters:
            message = f"`{name}` has no parameter `{keyword.name}`"
            other = KEYWORDS.get(keyword.name)
            close = other if other in parameters else nearest(keyword.name, parameters)
            helps = (f"it has {', '.join(f'`{p}`' for p in parameters)}",) if parameters else ()
            if close is None:
                raise fault("T0804", message, keyword.name_span, helps=helps)
            fix = Fix(f"write `{close}`", (Edit(keyword.name_span, close),), "unsafe")
            helps = (f"did you mean `{close}`?", *helps)
            raise fault("T0804", message, keyword.name_span, helps=helps, fixes=(fix,))
        if keyword.name in bound:
            message = f"`{keyword.name}` is given twice"
            raise fault("T0804", message, keyword.name_span)
        bound[keyword.name] = arguments.keywords[keyword.name]
    missing = [p for p in parameters[:required] if p not in bound]
    if missing:
        names = ", ".join(f"`{p}`" for p in missing)
        raise fault("T0804", f"the call of `{name}` lacks {names}", arguments.call.span)
    return bound


def integer_of(value: object, span: Span, what: str) -> int:
    """A value that must be an integer; ``what`` names it in the fault."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise fault("T0818", f"{what} is an integer, not {kind_of(value)}", span)
    return value
