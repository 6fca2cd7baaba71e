"""Builders of the diagnostics of syntax, one for each kind of fault.

Owns their wording. Must not know how a fault is found.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic, Edit, Fix, Label
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.source import Span


def invalid_character(
    span: Span, character: str, help_text: str = "", replacement: str | None = None
) -> Diagnostic:
    shown = f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"
    helps = (help_text,) if help_text else ()
    fixes: tuple[Fix, ...] = ()
    if replacement is not None:
        visible = replacement.strip()
        helps = (f"write '{visible}'" if visible else "delete it, or write a space",)
        fixes = (Fix(helps[0], (Edit(span, replacement),), "unsafe"),)
    return Diagnostic(
        "T0010", f"the character {shown} has no meaning here", span, helps=helps, fixes=fixes
    )


def unterminated_string(span: Span, quote: str) -> Diagnostic:
    where = "before the end of the line" if len(quote) == 1 else "before the end of the file"
    help_text = f"add the closing {quote}"
    return Diagnostic(
        "T0011", f"this string is not closed {where}", span, label="opened here", helps=(help_text,)
    )


def malformed_number(span: Span, text: str, help_text: str) -> Diagnostic:
    shown = text if len(text) <= 40 else text[:37] + "..."
    return Diagnostic("T0012", f"'{shown}' is not a number", span, helps=(help_text,))


def bad_escape(span: Span, message: str) -> Diagnostic:
    return Diagnostic("T0013", message, span, helps=("write \\\\ for a backslash",))


def bad_format(span: Span, message: str) -> Diagnostic:
    return Diagnostic("T0014", message, span, helps=("write {{ and }} for literal braces",))


def tab_indentation(span: Span, width: int) -> Diagnostic:
    fix = Fix("indent with spaces", (Edit(span, " " * width),))
    return Diagnostic(
        "T0020",
        "indentation contains a tab",
        span,
        helps=("indent with spaces only, four for each level",),
        fixes=(fix,),
    )


def wrong_dedent(span: Span, found: int, levels: tuple[int, ...], opened: Span) -> Diagnostic:
    known = ", ".join(str(level) for level in levels)
    nearest = min(levels, key=lambda level: abs(level - found))
    return Diagnostic(
        "T0021",
        f"this line is indented by {found} spaces, which matches no block around it",
        span,
        labels=(Label(opened, "the innermost block starts here"),),
        helps=(f"the blocks around it are indented by {known}",),
        fixes=(Fix(f"indent by {nearest}", (Edit(span, " " * nearest),), "unsafe"),),
    )


def unexpected_indent(span: Span, expected: int) -> Diagnostic:
    return Diagnostic(
        "T0022",
        "this line is indented, but no block was opened above it",
        span,
        helps=("end the line above with ':' to open a block, or remove the indentation",),
        fixes=(Fix("remove the indentation", (Edit(span, " " * expected),), "unsafe"),),
    )


def missing_block(span: Span, what: str) -> Diagnostic:
    return Diagnostic(
        "T0023",
        f"expected an indented block behind {what}",
        span,
        helps=("indent the lines of the block below it, or write 'pass'",),
    )


def unexpected_token(
    span: Span, expected: str, found: str, helps: tuple[str, ...] = (), fixes: tuple[Fix, ...] = ()
) -> Diagnostic:
    return Diagnostic(
        "T0030", f"expected {expected}, found {found}", span, helps=helps, fixes=fixes
    )


def unclosed_bracket(span: Span, opener: str, closer: str, end: Span) -> Diagnostic:
    return Diagnostic(
        "T0031",
        f"'{opener}' is never closed",
        span,
        label="opened here",
        labels=(Label(end, f"expected '{closer}' at the latest here"),),
        helps=(f"add the missing '{closer}'",),
        fixes=(Fix(f"add '{closer}'", (Edit(end, closer),), "unsafe"),),
    )


def unmatched_closer(span: Span, closer: str, opener: tuple[Span, str, str] | None) -> Diagnostic:
    if opener is None:
        return Diagnostic("T0032", f"'{closer}' closes nothing", span)
    where, opening, expected = opener
    return Diagnostic(
        "T0032",
        f"'{closer}' does not close '{opening}'",
        span,
        labels=(Label(where, "opened here"),),
        helps=(f"close it with '{expected}'",),
    )


def missing_colon(span: Span, what: str) -> Diagnostic:
    return Diagnostic(
        "T0033",
        f"expected ':' behind {what}",
        span,
        helps=("a ':' opens the block",),
        fixes=(Fix("add ':'", (Edit(span, ":"),)),),
    )


def assignment_in_expression(span: Span) -> Diagnostic:
    return Diagnostic(
        "T0034",
        "'=' assigns a value; it cannot stand in a condition",
        span,
        helps=("compare with '=='",),
        fixes=(Fix("write '=='", (Edit(span, "=="),), "unsafe"),),
    )


def not_in_language(span: Span, what: str, instead: str) -> Diagnostic:
    return Diagnostic("T0035", f"{what} not part of the language", span, helps=(instead,))


def format_conversion(span: Span, text: str) -> Diagnostic:
    """`f"{x!r}"`."""
    return Diagnostic(
        "T0035",
        f"the conversion '{text}' of an f-string is not part of the language",
        span,
        helps=("leave it out: a field shows its value as `print` does",),
        fixes=(Fix(f"leave '{text}' out", (Edit(span, ""),)),),
    )


def format_with_name(span: Span, opened: Span, text: str) -> Diagnostic:
    """`f"{x=}"`; ``text`` is what stands before the value."""
    return Diagnostic(
        "T0035",
        "the '=' of a field of an f-string is not part of the language",
        span,
        helps=(f"write the name out: `{text}{{{text[:-1]}}}`",),
        fixes=(Fix("write the name out", (Edit(opened, text), Edit(span, ""))),),
    )


def bad_target(span: Span, what: str) -> Diagnostic:
    return Diagnostic(
        "T0036",
        f"cannot assign to {what}",
        span,
        helps=("the left side is a name, an element like x[i], or a tuple of these",),
    )


def misplaced(span: Span, message: str, help_text: str) -> Diagnostic:
    return Diagnostic("T0037", message, span, helps=(help_text,))


def bad_argument(span: Span, message: str, first: Span | None = None) -> Diagnostic:
    labels = () if first is None else (Label(first, "first given here"),)
    return Diagnostic("T0038", message, span, labels=labels)


def bad_qualifier(span: Span, text: str) -> Diagnostic:
    return Diagnostic(
        "T0039",
        f"'{text}' is not a qualifier of a type",
        span,
        helps=("the qualifiers are 'mut' and 'const'",),
    )


def bad_clause(span: Span, text: str) -> Diagnostic:
    close = nearest(text, ("tile", "shared", "grid", "registers"))
    return Diagnostic(
        "T0040",
        f"'{text}' is not a clause of a decorator",
        span,
        helps=(f"did you mean '{close}'?",)
        if close
        else ("the clauses are tile[...], shared(...), grid[...] and registers(...)",),
    )


def nested_too_deep(span: Span, limit: int) -> Diagnostic:
    return Diagnostic(
        "T0004",
        f"this is nested more than {limit} levels deep",
        span,
        helps=("name parts of it, or move them into functions",),
    )


def too_many_branches(span: Span, limit: int) -> Diagnostic:
    return Diagnostic(
        "T0004",
        f"an `if` with more than {limit} branches",
        span,
        helps=("look the value up in an array or a table, or return from a function",),
    )


def too_many_errors(span: Span | None, limit: int) -> Diagnostic:
    return Diagnostic(
        "T0005",
        f"only the first {limit} syntax errors of this file are shown",
        span,
        severity="note",
    )
