"""The actions that build statements, types, parameters and the headers of blocks.

Owns the nodes of one line. Must not know how lines form blocks (``blocks.py``). The names
of the methods are the names behind ``->`` in ``tessera.lark``.
"""

from __future__ import annotations

from typing import cast

from tessera_grammar.keywords import UNSUPPORTED_WORDS

from tessera_lang.record import replace
from tessera_lang.syntax import ast, faults, semantic_values
from tessera_lang.syntax.expression_actions import ExpressionActions, Values
from tessera_lang.syntax.lexer import Token
from tessera_lang.syntax.semantic_values import Chain, flat

CLAUSES = frozenset(("tile", "shared", "grid", "registers"))
QUALIFIERS = ("mut", "const")


class Actions(ExpressionActions):
    """All actions of the table."""

    # --- lines ----------------------------------------------------------------------------

    def line_simple(self, c: Values, _start: int, _end: int) -> semantic_values.ParsedLine:
        return semantic_values.SimpleLine(_one_by_one(c[0]))

    def line_header(self, c: Values, _start: int, _end: int) -> semantic_values.ParsedLine:
        return semantic_values.HeaderLine(c[0], self.token_span(c[1]), None)

    def line_suite(self, c: Values, _start: int, _end: int) -> semantic_values.ParsedLine:
        return semantic_values.HeaderLine(c[0], self.token_span(c[1]), _one_by_one(c[2]))

    def line_decorator(self, c: Values, _start: int, _end: int) -> semantic_values.ParsedLine:
        return semantic_values.DecoratorLine(c[0])

    # --- headers --------------------------------------------------------------------------

    def header_if(self, c: Values, start: int, end: int) -> semantic_values.Header:
        return semantic_values.BranchHeader(self.span(start, end), "if", c[1])

    def header_elif(self, c: Values, start: int, end: int) -> semantic_values.Header:
        return semantic_values.BranchHeader(self.span(start, end), "elif", c[1])

    def header_else(self, _c: Values, start: int, end: int) -> semantic_values.Header:
        return semantic_values.BranchHeader(self.span(start, end), "else", None)

    def header_while(self, c: Values, start: int, end: int) -> semantic_values.Header:
        return semantic_values.WhileHeader(self.span(start, end), c[1])

    def header_for(self, c: Values, start: int, end: int) -> semantic_values.Header:
        self.check_target(c[1])
        return semantic_values.ForHeader(self.span(start, end), c[1], c[3])

    def header_with(self, c: Values, start: int, end: int) -> semantic_values.Header:
        target = c[3] if len(c) == 4 else None
        if target is not None:
            self.check_target(target)
        return semantic_values.WithHeader(self.span(start, end), c[1], target)

    def header_def(self, c: Values, start: int, end: int) -> semantic_values.Header:
        _, name, brackets, _, parameters, _, returns, where = c
        return semantic_values.DefHeader(
            self.span(start, end),
            name,
            self.token_span(name),
            flat(brackets),
            flat(parameters),
            returns,
            flat(where),
        )

    def bracketed(self, c: Values, _start: int, _end: int) -> Chain:
        return c[1]

    def decorator(self, c: Values, start: int, end: int) -> ast.Decorator:
        return ast.Decorator(self.span(start, end), c[1], flat(c[2]))

    def clause(self, c: Values, start: int, end: int) -> ast.Clause:
        name, bracket = c[0], c[1][1]
        if name[1] not in CLAUSES:
            self.diagnostics.append(faults.bad_clause(self.token_span(name), name[1]))
        arguments = flat(c[2]) if len(c) > 3 else ()
        return ast.Clause(self.span(start, end), name[1], arguments, bracket)

    # --- simple statements ----------------------------------------------------------------

    def expression_statement(self, c: Values, start: int, end: int) -> ast.Stmt:
        return ast.ExprStmt(self.span(start, end), c[0])

    def assign(self, c: Values, start: int, end: int) -> ast.Stmt:
        self.check_target(c[0])
        return ast.Assign(self.span(start, end), c[0], c[2])

    def assign_chained(self, c: Values, start: int, end: int) -> tuple[ast.Stmt, ...]:
        """``a = b = e``: the value, then each target from left to right."""
        targets, value, span = flat(c[0]), c[2], self.span(start, end)
        for target in targets:
            self.check_target(target)
        first, *rest = targets
        made: list[ast.Stmt] = []
        if isinstance(first, ast.Name):
            made.append(ast.Assign(span, first, value))
            held = first.id
        elif isinstance(value, ast.Name):
            held, rest = value.id, list(targets)
        else:
            held, rest = f"_chained{start}", list(targets)
            made.append(ast.Assign(span, ast.Name(value.span, held), value))
        for target in rest:
            again = _literal_again(value) or ast.Name(value.span, held)
            made.append(ast.Assign(span, target, again))
        return tuple(made)

    def annotated(self, c: Values, start: int, end: int) -> ast.Stmt:
        target = c[0]
        self._check_single(target)
        if isinstance(target, ast.Name) and target.id in UNSUPPORTED_WORDS:
            instead = UNSUPPORTED_WORDS[target.id]
            fault = faults.not_in_language(target.span, f"'{target.id}' is", instead)
            self.diagnostics.append(fault)
        value = c[4] if len(c) == 5 else None
        return ast.AnnotatedAssign(self.span(start, end), target, c[2], value)

    def augmented(self, c: Values, start: int, end: int) -> ast.Stmt:
        target, operator, value = c
        self._check_single(target)
        where = self.token_span(operator)
        return ast.AugmentedAssign(self.span(start, end), target, operator[1][:-1], where, value)

    def _check_single(self, target: ast.Expr) -> None:
        if isinstance(target, ast.TupleExpr | ast.ListExpr):
            self.diagnostics.append(faults.bad_target(target.span, "several targets here"))
        else:
            self.check_target(target)

    def pass_statement(self, _c: Values, start: int, end: int) -> ast.Stmt:
        return ast.Pass(self.span(start, end))

    def break_statement(self, _c: Values, start: int, end: int) -> ast.Stmt:
        return ast.Break(self.span(start, end))

    def continue_statement(self, _c: Values, start: int, end: int) -> ast.Stmt:
        return ast.Continue(self.span(start, end))

    def return_statement(self, c: Values, start: int, end: int) -> ast.Stmt:
        return ast.Return(self.span(start, end), c[1] if len(c) == 2 else None)

    def assert_statement(self, c: Values, start: int, end: int) -> ast.Stmt:
        return ast.Assert(self.span(start, end), c[1], c[3] if len(c) == 4 else None)

    # --- imports --------------------------------------------------------------------------

    def dotted_path(self, c: Values, start: int, end: int) -> Token:
        return Token("NAME", f"{c[0][1]}.{c[2][1]}", start, end)

    def imported(self, c: Values, start: int, end: int) -> ast.ImportedName:
        alias = c[2][1] if len(c) == 3 else None
        return ast.ImportedName(self.span(start, end), c[0][1], alias)

    def import_statement(self, c: Values, start: int, end: int) -> ast.Stmt:
        return ast.Import(self.span(start, end), flat(c[1]))

    def from_statement(self, c: Values, start: int, end: int) -> ast.Stmt:
        module = c[1]
        names = flat(c[3] if len(c) == 4 else c[4])
        return ast.FromImport(self.span(start, end), module[1], self.token_span(module), names)

    # --- parameters and types -------------------------------------------------------------

    def parameter(self, c: Values, start: int, end: int) -> ast.Parameter:
        return ast.Parameter(self.span(start, end), c[0][1], self.token_span(c[0]), None, None)

    def parameter_default(self, c: Values, start: int, end: int) -> ast.Parameter:
        return ast.Parameter(self.span(start, end), c[0][1], self.token_span(c[0]), None, c[2])

    def parameter_typed(self, c: Values, start: int, end: int) -> ast.Parameter:
        default = c[4] if len(c) == 5 else None
        name = self.token_span(c[0])
        return ast.Parameter(self.span(start, end), c[0][1], name, c[2], default)

    def types(self, c: Values, start: int, end: int) -> ast.TypeExpr:
        """The types of several results; ``start`` is the arrow's place."""
        items = (*flat(c[2]), c[4])
        span = self.span(start, end)
        return ast.TypeExpr(span, "", ast.TupleExpr(span, ()), None, items)

    def type_plain(self, c: Values, start: int, end: int) -> ast.TypeExpr:
        return ast.TypeExpr(self.span(start, end), "", c[0], None)

    def type_shaped(self, c: Values, start: int, end: int) -> ast.TypeExpr:
        return ast.TypeExpr(self.span(start, end), "", c[0], flat(c[2]))

    def type_rank_zero(self, c: Values, start: int, end: int) -> ast.TypeExpr:
        return ast.TypeExpr(self.span(start, end), "", c[0], ())

    def type_qualified_rank_zero(self, c: Values, start: int, end: int) -> ast.TypeExpr:
        return self._qualified(c[0], c[1], (), start, end)

    def type_qualified(self, c: Values, start: int, end: int) -> ast.TypeExpr:
        return self._qualified(c[0], c[1], None, start, end)

    def type_qualified_shaped(self, c: Values, start: int, end: int) -> ast.TypeExpr:
        return self._qualified(c[0], c[1], flat(c[3]), start, end)

    def _qualified(
        self, word: Token, base: ast.Expr, shape: tuple[ast.Expr, ...] | None, start: int, end: int
    ) -> ast.TypeExpr:
        span = self.span(start, end)
        match word.text:
            case "mut":
                return ast.TypeExpr(span, "mut", base, shape)
            case "const":
                return ast.TypeExpr(span, "const", base, shape)
            case _:
                self.diagnostics.append(faults.bad_qualifier(self.token_span(word), word.text))
                return ast.TypeExpr(span, "", base, shape)


def _one_by_one(chain: Chain) -> tuple[ast.Stmt, ...]:
    """The statements of a line; a chain of assignments is several."""
    found: list[ast.Stmt] = []
    for item in flat(chain):
        several = cast("tuple[ast.Stmt, ...]", item if isinstance(item, tuple) else (item,))
        found.extend(several)
    return tuple(found)


def _literal_again(e: ast.Expr) -> ast.Expr | None:
    """A number, string or truth value once more: each target takes the dtype that it meets."""
    match e:
        case ast.IntLit() | ast.FloatLit() | ast.StringLit() | ast.BoolLit() | ast.NoneLit():
            return replace(e)
        case ast.Unary(operand=ast.IntLit() | ast.FloatLit() as number):
            return replace(e, operand=replace(number))
        case _:
            return None
