"""T00: files, lexing and syntax."""

from __future__ import annotations

from tessera_lang.diagnostics.codes.model import Code

_ROWS = (
    Code("T0001", "not-text", "A source file is not UTF-8 text."),
    Code("T0002", "file-too-large", "A source file has too many bytes or lines."),
    Code("T0003", "line-too-long", "A line has too many characters."),
    Code("T0004", "nested-too-deep", "Brackets, operators or blocks are nested too deep."),
    Code("T0005", "too-many-errors", "Only the first syntax errors of a file are shown."),
    Code("T0010", "invalid-character", "A character has no meaning in a program."),
    Code("T0011", "unterminated-string", "A string is not closed."),
    Code("T0012", "malformed-number", "A number is not written as numbers are."),
    Code("T0013", "bad-escape", "A backslash in a string starts no escape."),
    Code("T0014", "malformed-f-string", "A field of an f-string is not well formed."),
    Code("T0015", "reordered-text", "A character shows the text in another order than it is read."),
    Code("T0020", "tab-indentation", "Indentation contains a tab."),
    Code("T0021", "wrong-dedent", "A line's indentation matches no block around it."),
    Code("T0022", "unexpected-indent", "A line is indented, but no block was opened."),
    Code("T0023", "missing-block", "A header has no indented block below it."),
    Code("T0030", "unexpected-token", "A line does not go on as the grammar says."),
    Code("T0031", "unclosed-bracket", "A bracket is never closed."),
    Code("T0032", "unmatched-bracket", "A closing bracket does not fit the open one."),
    Code("T0033", "missing-colon", "The ':' that opens a block is missing."),
    Code("T0034", "assignment-in-expression", "'=' stands where '==' was meant."),
    Code("T0035", "not-in-language", "A construct of another language is not part of this one."),
    Code("T0036", "bad-target", "The left side of an assignment cannot be assigned to."),
    Code("T0037", "misplaced-line", "A decorator, 'elif' or 'else' has nothing to belong to."),
    Code("T0038", "bad-argument", "An argument follows keyword arguments, or is given twice."),
    Code("T0039", "bad-qualifier", "The word in front of a type is not a qualifier."),
    Code("T0040", "bad-clause", "The word behind a decorator is not a clause."),
)

CODES: dict[str, Code] = {row.code: row for row in _ROWS}
