"""Colours Tessera programs in Pygments: in the documentation, and in any tool that uses it.

Owns the order in which words and literals are looked for; the words are those of
``keywords.py``. Registered as ``tessera``. Imported only by Pygments. Must not know the compiler.
"""

from __future__ import annotations

from pygments.lexer import (
    RegexLexer,
    bygroups,  # pyright: ignore[reportUnknownVariableType]
    words,
)
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
)

from tessera_grammar.keywords import KEYWORDS, SIZE_UNITS, SOFT_KEYWORDS, builtins_of

_CONSTANTS = ("True", "False", "None", *builtins_of("constant"))
_OPERATORS = ("and", "in", "is", "not", "or")
_CLAUSES = ("tile", "shared", "grid", "registers")
_CONTROL = tuple(word for word in KEYWORDS if word not in {*_CONSTANTS, *_OPERATORS, "def"})
_PREFIXES = tuple(word for word in SOFT_KEYWORDS if word in ("mut", "const"))


class TesseraLexer(RegexLexer):
    """Pygments' lexer for ``.tessera`` files."""

    name = "Tessera"
    aliases = ("tessera",)
    filenames = ("*.tessera",)
    mimetypes = ("text/x-tessera",)

    tokens = {  # noqa: RUF012  Pygments reads it off the class
        "root": [
            (r"\n", Whitespace),
            (r"^(\s*)(@)([A-Za-z_][\w.]*)", bygroups(Whitespace, Name.Decorator, Name.Decorator)),
            (r"[^\S\n]+", Whitespace),
            (r"#.*$", Comment.Single),
            (r'[fFrR]{0,2}"""(?:\\.|[^\\])*?"""', String.Doc),
            (r"[fFrR]{0,2}'''(?:\\.|[^\\])*?'''", String.Doc),
            (r'[fFrR]{0,2}"(?:\\.|[^"\\\n])*"?', String.Double),
            (r"[fFrR]{0,2}'(?:\\.|[^'\\\n])*'?", String.Single),
            (words(tuple(SIZE_UNITS), prefix=r"\d[\d_]*_", suffix=r"\b"), Number.Integer),
            (r"0[xX][0-9a-fA-F_]+", Number.Hex),
            (r"0[bB][01_]+", Number.Bin),
            (r"(?:\d[\d_]*\.[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?", Number.Float),
            (r"\d[\d_]*[eE][+-]?\d+", Number.Float),
            (r"\d[\d_]*", Number.Integer),
            (r"(def)(\s+)([A-Za-z_]\w*)", bygroups(Keyword, Whitespace, Name.Function)),
            (words(_CLAUSES, prefix=r"(?<=[\])\w] )", suffix=r"(?=[\[(])"), Keyword.Declaration),
            (words(_PREFIXES, prefix=r"\b", suffix=r"(?=\s+[A-Za-z_])"), Keyword.Declaration),
            (r"(?<=[)\]\w] )where\b(?=\s+\S)", Keyword),
            # What stands behind a dot is a member, whatever its name means elsewhere.
            (r"(\.)([A-Za-z_]\w*)", bygroups(Punctuation, Name.Attribute)),
            (words(_OPERATORS, prefix=r"\b", suffix=r"\b"), Operator.Word),
            (words(_CONSTANTS, prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (words(_CONTROL, prefix=r"\b", suffix=r"\b"), Keyword),
            (words(builtins_of("dtype"), prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (words(builtins_of("module"), prefix=r"\b", suffix=r"\b(?=\.)"), Name.Namespace),
            (words(builtins_of("symbol"), prefix=r"\b", suffix=r"\b"), Name.Builtin.Pseudo),
            (words(builtins_of("function") + builtins_of("memory"), prefix=r"\b",
                   suffix=r"(?=\s*\()"), Name.Builtin),
            (r"[A-Za-z_]\w*(?=\s*\()", Name.Function),
            (r"[A-Za-z_]\w*", Name),
            (r"\*\*=?|//=?|<<=?|>>=?|->|[-+*/%@&|^~<>=!]=?", Operator),
            (r"[\[\](){},:;.]", Punctuation),
            (r".", Text),
        ],
    }  # fmt: skip
