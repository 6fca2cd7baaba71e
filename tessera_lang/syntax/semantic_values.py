"""What the actions build between tokens and nodes: headers of blocks, lists in the making.

Owns the values that never leave this package. Must not know how lines form blocks.
"""

from __future__ import annotations

from typing import Any, Literal

from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.lexer import Token

# A list in the making: (everything before, last) pairs end in None. Unlike a list it may be
# shared by two tries of the machine, so that recovery can go back.
Chain = tuple[Any, Any] | None


def flat(chain: Chain) -> tuple[Any, ...]:
    items: list[Any] = []
    while chain is not None:
        chain, item = chain
        items.append(item)
    items.reverse()
    return tuple(items)


@dataclass(frozen=True, slots=True)
class BranchHeader:
    """``if test``, ``elif test`` and ``else``."""

    span: Span
    keyword: Literal["if", "elif", "else"]
    test: ast.Expr | None


@dataclass(frozen=True, slots=True)
class WhileHeader:
    span: Span
    test: ast.Expr


@dataclass(frozen=True, slots=True)
class ForHeader:
    span: Span
    target: ast.Expr
    iterable: ast.Expr


@dataclass(frozen=True, slots=True)
class WithHeader:
    span: Span
    context: ast.Expr
    target: ast.Expr | None


@dataclass(frozen=True, slots=True)
class DefHeader:
    span: Span
    name: Token
    name_span: Span
    brackets: tuple[ast.Parameter, ...]
    parameters: tuple[ast.Parameter, ...]
    returns: ast.TypeExpr | None
    where: tuple[ast.Expr, ...]


@dataclass(frozen=True, slots=True)
class LostHeader:
    """A line that opened a block and could not be read; ``names`` are those seen in it."""

    span: Span
    names: tuple[ast.Name, ...]


Header = BranchHeader | WhileHeader | ForHeader | WithHeader | DefHeader | LostHeader


@dataclass(frozen=True, slots=True)
class SimpleLine:
    statements: tuple[ast.Stmt, ...]


@dataclass(frozen=True, slots=True)
class HeaderLine:
    """``suite`` holds the statements behind the ':' on the same line; ``end`` is behind ':'."""

    header: Header
    end: Span
    suite: tuple[ast.Stmt, ...] | None


@dataclass(frozen=True, slots=True)
class DecoratorLine:
    decorator: ast.Decorator


ParsedLine = SimpleLine | HeaderLine | DecoratorLine
