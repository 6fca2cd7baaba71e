"""The actions that build expressions, called by the machine as it reduces.

Owns the nodes of expressions and the faults inside literals. Must not know statements. The
names of the methods are the names behind ``->`` in ``tessera.lark``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.source import Anchor, Span
from tessera_lang.syntax import ast, faults, literals
from tessera_lang.syntax.fstring import read_fstring
from tessera_lang.syntax.lexer import Token
from tessera_lang.syntax.semantic_values import Chain, flat

Values = list[Any]
ReadExpression = Callable[[int, int], ast.Expr]


class ExpressionActions:
    """Builds nodes whose spans hang on ``anchor``.

    ``read_expression`` parses the part of the text between two offsets; f-strings need it.
    """

    def __init__(self) -> None:
        self.anchor = Anchor("")
        self.base = 0
        self.diagnostics: list[Diagnostic] = []
        self.read_expression: ReadExpression = lambda start, end: ast.ErrorExpr(
            self.span(start, end)
        )

    def at(self, anchor: Anchor, diagnostics: list[Diagnostic]) -> None:
        """Hangs all that is built from now on ``anchor``."""
        self.anchor = anchor
        self.base = anchor.offset
        self.diagnostics = diagnostics

    def span(self, start: int, end: int) -> Span:
        return Span(self.anchor, start - self.base, end - self.base)

    def token_span(self, token: Token) -> Span:
        return Span(self.anchor, token.start - self.base, token.end - self.base)

    # --- lists ----------------------------------------------------------------------------

    def empty(self, _c: Values, _start: int, _end: int) -> Chain:
        return None

    def none(self, _c: Values, _start: int, _end: int) -> None:
        return None

    def first(self, c: Values, _start: int, _end: int) -> Chain:
        return (None, c[0])

    def pair(self, c: Values, _start: int, _end: int) -> Chain:
        return ((None, c[0]), c[2])

    def append(self, c: Values, _start: int, _end: int) -> Chain:
        return (c[0], c[1])

    def append_separated(self, c: Values, _start: int, _end: int) -> Chain:
        return (c[0], c[2])

    def leading(self, c: Values, _start: int, _end: int) -> Chain:
        return c[0]

    def second(self, c: Values, _start: int, _end: int) -> Any:
        return c[1]

    # --- atoms ----------------------------------------------------------------------------

    def name(self, c: Values, start: int, end: int) -> ast.Expr:
        text = c[0][1]
        if not text:
            return ast.ErrorExpr(self.span(start, end))
        base = self.base
        return ast.Name(Span(self.anchor, start - base, end - base), text)

    def number(self, c: Values, start: int, end: int) -> ast.Expr:
        text = c[0][1]
        span = self.span(start, end)
        if text.isdecimal() and len(text) < 16 and (text[0] != "0" or text == "0"):
            return ast.IntLit(span, int(text))
        value = literals.number(text)
        if isinstance(value, literals.Fault):
            self.diagnostics.append(faults.malformed_number(span, text, value.help))
            return ast.ErrorExpr(span)
        if isinstance(value[0], float):
            return ast.FloatLit(span, value[0])
        return ast.IntLit(span, value[0], value[1])

    def strings(self, c: Values, start: int, end: int) -> ast.Expr:
        tokens = cast("tuple[Token, ...]", flat(c[0]))
        span = self.span(start, end)
        if not any("f" in literals.split_string(token.text)[0] for token in tokens):
            return ast.StringLit(span, "".join(self._plain(token) for token in tokens))
        parts: list[str | ast.FormattedValue] = []
        for token in tokens:
            for part in self._formatted(token):
                if isinstance(part, str) and parts and isinstance(parts[-1], str):
                    parts[-1] += part
                else:
                    parts.append(part)
        return ast.FString(span, tuple(parts))

    def _plain(self, token: Token) -> str:
        prefix, _, body = literals.split_string(token.text)
        value, fault = literals.unescape(body, raw="r" in prefix)
        self._report_escape(token, body, fault)
        return value

    def _formatted(self, token: Token) -> list[str | ast.FormattedValue]:
        prefix, quote, body = literals.split_string(token.text)
        if "f" not in prefix:
            return [self._plain(token)]
        start = token.start + len(prefix) + len(quote)
        parts, problem = read_fstring(
            body, start, self.read_expression, self.span, self.diagnostics.append
        )
        result: list[str | ast.FormattedValue] = []
        for part in parts:
            if isinstance(part, str):
                text, fault = literals.unescape(part, raw="r" in prefix)
                self._report_escape(token, body, fault)
                result.append(text)
            else:
                result.append(part)
        if problem is not None:
            message, at = problem
            self.diagnostics.append(faults.bad_format(self.span(at, at + 1), message))
        return result

    def _report_escape(self, token: Token, body: str, fault: literals.Fault | None) -> None:
        if fault is not None:
            at = token.start + token.text.index(body) + fault.at
            self.diagnostics.append(faults.bad_escape(self.span(at, at + 2), fault.message))

    def true_literal(self, _c: Values, start: int, end: int) -> ast.Expr:
        return ast.BoolLit(self.span(start, end), True)

    def false_literal(self, _c: Values, start: int, end: int) -> ast.Expr:
        return ast.BoolLit(self.span(start, end), False)

    def none_literal(self, _c: Values, start: int, end: int) -> ast.Expr:
        return ast.NoneLit(self.span(start, end))

    def tuple_display(self, c: Values, start: int, end: int) -> ast.Expr:
        items = flat(c[1]) if len(c) > 2 else ()
        return ast.TupleExpr(self.span(start, end), items)

    def bare_tuple(self, c: Values, start: int, end: int) -> ast.Expr:
        return ast.TupleExpr(self.span(start, end), flat(c[0]))

    def list_display(self, c: Values, start: int, end: int) -> ast.Expr:
        items = flat(c[1]) if len(c) > 2 else ()
        return ast.ListExpr(self.span(start, end), items)

    def comprehension(self, c: Values, start: int, end: int) -> ast.Expr:
        """Of several loops the later ones stand in the element of the first."""
        rounds = flat(c[2])
        found, span = c[1], self.span(start, end)
        for i, (target, iterable, conditions) in reversed(list(enumerate(rounds))):
            joined = i + 1 < len(rounds)
            found = ast.Comprehension(span, found, target, iterable, conditions, joined)
        return found

    def round(self, c: Values, _start: int, _end: int) -> tuple[ast.Expr, ast.Expr, Any]:
        self.check_target(c[1])
        return (c[1], c[3], flat(c[4]))

    def entry(self, c: Values, _start: int, _end: int) -> tuple[ast.Expr, ast.Expr]:
        return (c[0], c[2])

    def dict_display(self, c: Values, start: int, end: int) -> ast.Expr:
        entries = flat(c[1]) if len(c) > 2 else ()
        keys = tuple(entry[0] for entry in entries)
        return ast.DictExpr(self.span(start, end), keys, tuple(entry[1] for entry in entries))

    # --- operators ------------------------------------------------------------------------

    def binary(self, c: Values, start: int, end: int) -> ast.Expr:
        left, operator, right = c
        anchor, base = self.anchor, self.base
        return ast.Binary(
            Span(anchor, start - base, end - base),
            operator[1],
            Span(anchor, operator[2] - base, operator[3] - base),
            left,
            right,
        )

    def unary(self, c: Values, start: int, end: int) -> ast.Expr:
        return ast.Unary(self.span(start, end), c[0][1], c[1])

    def bool_or(self, c: Values, start: int, end: int) -> ast.Expr:
        return ast.BoolOp(self.span(start, end), "or", flat(c[0]))

    def bool_and(self, c: Values, start: int, end: int) -> ast.Expr:
        return ast.BoolOp(self.span(start, end), "and", flat(c[0]))

    def compare_first(self, c: Values, _start: int, _end: int) -> Any:
        return (c[0], (None, (c[1][1], c[2])))

    def compare_next(self, c: Values, _start: int, _end: int) -> Any:
        first, rest = c[0]
        return (first, (rest, (c[1][1], c[2])))

    def compare(self, c: Values, start: int, end: int) -> ast.Expr:
        first, chain = c[0]
        rest = flat(chain)
        operators = tuple(operator for operator, _ in rest)
        return ast.Compare(self.span(start, end), first, operators, tuple(e for _, e in rest))

    def operator_not_in(self, c: Values, start: int, end: int) -> Token:
        return Token("in", "not in", start, end)

    def operator_is_not(self, c: Values, start: int, end: int) -> Token:
        return Token("is", "is not", start, end)

    def conditional(self, c: Values, start: int, end: int) -> ast.Expr:
        return ast.Conditional(self.span(start, end), c[2], c[0], c[4])

    def lambda_expression(self, c: Values, start: int, end: int) -> ast.Expr:
        return ast.Lambda(self.span(start, end), flat(c[1]), c[3])

    # --- postfix --------------------------------------------------------------------------

    def attribute(self, c: Values, start: int, end: int) -> ast.Expr:
        value, _, name = c
        if not name[1]:
            return ast.ErrorExpr(self.span(start, end), value)
        return ast.Attribute(self.span(start, end), value, name[1], self.token_span(name))

    def keyword(self, c: Values, start: int, end: int) -> ast.Keyword:
        name = c[0]
        return ast.Keyword(self.span(start, end), name[1], self.token_span(name), c[2])

    def call(self, c: Values, start: int, end: int) -> ast.Expr:
        span = self.span(start, end)
        if len(c) == 3:
            return ast.Call(span, c[0], ())
        positional: list[ast.Expr] = []
        keywords: dict[str, ast.Keyword] = {}
        for argument in flat(c[2]):
            if not isinstance(argument, ast.Keyword):
                if keywords:
                    message = "a positional argument cannot follow a keyword argument"
                    self.diagnostics.append(faults.bad_argument(argument.span, message))
                positional.append(argument)
            elif argument.name in keywords:
                message = f"the argument '{argument.name}' is given twice"
                known = keywords[argument.name].name_span
                self.diagnostics.append(faults.bad_argument(argument.name_span, message, known))
            else:
                keywords[argument.name] = argument
        return ast.Call(span, c[0], tuple(positional), tuple(keywords.values()))

    def call_of_rounds(self, c: Values, start: int, end: int) -> ast.Expr:
        """``sum(x * x for x in y)``: the function goes through the items, as of a list."""
        items = self.comprehension([c[1], c[2], c[3]], c[1][2], c[4][3])
        return ast.Call(self.span(start, end), c[0], (items,))

    def subscript(self, c: Values, start: int, end: int) -> ast.Expr:
        items = flat(c[2])
        match items:
            case (ast.TupleExpr(items=()),):  # `x[()]`: no axis has an index
                items = ()
            case _:
                pass
        return ast.Subscript(self.span(start, end), c[0], items)

    def slice_item(self, c: Values, start: int, end: int) -> ast.Expr:
        step = c[4] if len(c) == 5 else None
        return ast.SliceExpr(self.span(start, end), c[0], c[2], step)

    # --- targets --------------------------------------------------------------------------

    def check_target(self, target: ast.Expr) -> None:
        """Reports what cannot be assigned to."""
        waiting = [target]
        while waiting:
            part = waiting.pop()
            match part:
                case ast.TupleExpr() | ast.ListExpr() if part.items:
                    waiting.extend(reversed(part.items))
                case ast.Name() | ast.Attribute() | ast.Subscript() | ast.ErrorExpr():
                    pass
                case _:
                    self.diagnostics.append(faults.bad_target(part.span, describe(part)))


_WORDS: dict[type[Any], str] = {
    ast.IntLit: "a number",
    ast.FloatLit: "a number",
    ast.StringLit: "a string",
    ast.FString: "a string",
    ast.BoolLit: "a truth value",
    ast.NoneLit: "None",
    ast.Call: "the result of a call",
    ast.Compare: "a comparison",
    ast.Conditional: "a conditional expression",
    ast.Lambda: "a lambda",
    ast.TupleExpr: "an empty tuple",
    ast.ListExpr: "an empty list",
    ast.DictExpr: "a dict",
    ast.Comprehension: "a list comprehension",
}


def describe(expression: ast.Expr) -> str:
    """What an expression is, in words."""
    return _WORDS.get(type(expression), "the result of an operator")
