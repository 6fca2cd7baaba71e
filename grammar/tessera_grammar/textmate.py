"""The TextMate grammar, made from the tables of words.

Owns how words and literals are coloured where no language server runs. Must not know the
parser's table.
"""

from __future__ import annotations

import json
from typing import Any

from tessera_grammar.keywords import KEYWORDS, SIZE_UNITS, SOFT_KEYWORDS, builtins_of

_CONSTANT_WORDS = ("True", "False", "None")
_OPERATOR_WORDS = ("and", "in", "is", "not", "or")
_STORAGE_WORDS = ("def", "lambda")
_CLAUSE_WORDS = ("tile", "shared", "grid", "registers")


def _words(words: tuple[str, ...] | list[str]) -> str:
    return rf"\b(?:{'|'.join(sorted(words))})\b"


def _match(scope: str, pattern: str) -> dict[str, Any]:
    return {"name": f"{scope}.tessera", "match": pattern}


def _include(*names: str) -> list[dict[str, Any]]:
    return [{"include": f"#{name}"} for name in names]


def _string(quote: str, triple: bool) -> dict[str, Any]:
    marks = quote * 3 if triple else quote
    kind = "single" if quote == "'" else "double"
    name = f"string.quoted.{'triple' if triple else kind}.tessera"
    end = marks if triple else rf"{quote}|(?=$)"
    return {
        "name": name,
        "begin": marks,
        "end": end,
        "patterns": [_match("constant.character.escape", r"\\(?:x[0-9a-fA-F]{2}|.)")],
    }


def _raw(rule: dict[str, Any], prefix: str, marks: str) -> dict[str, Any]:
    """The same string, in which a backslash is a character; it still keeps a quote from ending
    it."""
    escape = {"match": r"\\."}
    patterns = [escape if p.get("match", "").startswith(r"\\") else p for p in rule["patterns"]]
    return {**rule, "begin": rf"\b(?i:{prefix}){marks}", "patterns": patterns}


def _format_string(quote: str, triple: bool) -> dict[str, Any]:
    rule = _string(quote, triple)
    marks = quote * 3 if triple else quote
    rule["begin"] = rf"\b(?i:f){marks}"
    field: dict[str, Any] = {
        "name": "meta.interpolation.tessera",
        "begin": r"\{",
        "end": r"\}",
        "patterns": [
            _include("bracket")[0],
            _match("constant.other.format-specifier", r"(?<!:):(?!:)[^{}:\n]*(?=\})"),
            *_include("expression"),
        ],
    }
    rule["patterns"] = [_match("constant.character.escape", r"\{\{|\}\}"), *rule["patterns"], field]
    return rule


def _strings() -> list[dict[str, Any]]:
    forms = [('"', True), ("'", True), ('"', False), ("'", False)]
    plain = [_string(quote, triple) for quote, triple in forms]
    formatted = [_format_string(quote, triple) for quote, triple in forms]
    marks = [quote * 3 if triple else quote for quote, triple in forms]
    raw = [_raw(rule, "fr|rf", m) for rule, m in zip(formatted, marks, strict=True)]
    raw += [_raw(rule, "r", m) for rule, m in zip(plain, marks, strict=True)]
    return [*raw, *formatted, *plain]


def _control_words() -> list[str]:
    other = {*_CONSTANT_WORDS, *_OPERATOR_WORDS, *_STORAGE_WORDS}
    return [word for word in KEYWORDS if word not in other]


def _decorator() -> dict[str, Any]:
    return {
        "name": "meta.decorator.tessera",
        "begin": r"^\s*(@)\s*([A-Za-z_][\w.]*)",
        "beginCaptures": {
            "1": {"name": "punctuation.decorator.tessera"},
            "2": {"name": "entity.name.function.decorator.tessera"},
        },
        "end": r"$",
        "patterns": [
            _match("storage.modifier", rf"{_words(list(_CLAUSE_WORDS))}(?=\s*[\[(])"),
            *_include("bracket"),
            *_include("expression"),
        ],
    }


def _function() -> dict[str, Any]:
    return {
        "match": r"\b(def)\s+([A-Za-z_]\w*)",
        "captures": {
            "1": {"name": "storage.type.function.tessera"},
            "2": {"name": "entity.name.function.tessera"},
        },
    }


def _word_rules() -> list[dict[str, Any]]:
    modifiers = [word for word in SOFT_KEYWORDS if word in ("mut", "const")]
    return [
        _match("storage.modifier", rf"{_words(modifiers)}(?=\s+[A-Za-z_])"),
        _match("keyword.other.where", r"(?<=[)\]\w])\s+where\b(?=\s+\S)"),
        _match("storage.type.function", _words(list(_STORAGE_WORDS))),
        _match("keyword.control", _words(_control_words())),
        _match("keyword.operator.word", _words(list(_OPERATOR_WORDS))),
        _match("constant.language", _words(list(_CONSTANT_WORDS))),
    ]


def _name_rules() -> list[dict[str, Any]]:
    functions = _words(builtins_of("function") + builtins_of("memory"))
    return [
        _match("storage.type", rf"(?<!\.){_words(builtins_of('dtype'))}"),
        _match("support.module", rf"(?<!\.){_words(builtins_of('module'))}(?=\.)"),
        _match("constant.language", rf"(?<!\.){_words(builtins_of('constant'))}"),
        _match("variable.language", rf"(?<!\.){_words(builtins_of('symbol'))}"),
        _match("support.function", rf"(?<!\.){functions}(?=\s*\()"),
        _match("entity.name.function.call", r"\b[A-Za-z_]\w*(?=\s*\()"),
    ]


def _number_rules() -> list[dict[str, Any]]:
    decimal = r"(?:\b[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9][0-9_]*)?"
    return [
        _match("constant.numeric.size", rf"\b[0-9][0-9_]*_(?:{'|'.join(SIZE_UNITS)})\b"),
        _match("constant.numeric.hex", r"\b0[xX][0-9a-fA-F_]+\b"),
        _match("constant.numeric.binary", r"\b0[bB][01_]+\b"),
        _match("constant.numeric", decimal),
    ]


def _operator_rules() -> list[dict[str, Any]]:
    return [
        _match("keyword.operator.assignment", r"(?:\*\*|//|<<|>>|[-+*/%@&|^])=|(?<![=!<>])=(?!=)"),
        _match("keyword.operator", r"\*\*|//|<<|>>|<=|>=|==|!=|->|[-+*/%@&|^~<>]"),
    ]


def _repository() -> dict[str, Any]:
    order = ("comment", "string", "number", "word", "name", "operator")
    return {
        "bracket": {
            "begin": r"[\[({]",
            "end": r"[\])}]",
            "patterns": _include("bracket", "expression"),
        },
        "comment": {"patterns": [_match("comment.line.number-sign", r"#.*$")]},
        "decorator": _decorator(),
        "function": _function(),
        "string": {"patterns": _strings()},
        "number": {"patterns": _number_rules()},
        "word": {"patterns": _word_rules()},
        "name": {"patterns": _name_rules()},
        "operator": {"patterns": _operator_rules()},
        "expression": {"patterns": _include(*order)},
    }


def textmate_grammar() -> str:
    """The grammar as JSON text, the same for the same tables."""
    data = {
        "name": "Tessera",
        "scopeName": "source.tessera",
        "fileTypes": ["tessera"],
        "patterns": _include("decorator", "function", "expression"),
        "repository": _repository(),
    }
    return json.dumps(data, indent=2) + "\n"
