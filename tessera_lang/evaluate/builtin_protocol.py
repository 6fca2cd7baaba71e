"""What a function of the language needs of the evaluator.

Owns the protocol and the shape of such a function. Must not know any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from tessera_lang.evaluate.arguments import Arguments
from tessera_lang.evaluate.modules import Modules
from tessera_lang.evaluate.value import Derivative, HostFunction, Scope
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.host_world import World


class Host(Protocol):
    """What a builtin needs of the evaluator."""

    world: World
    modules: Modules

    def text(self, value: object, span: Span, format: str = "") -> str: ...
    def truth(self, value: object, span: Span) -> bool: ...
    def iterate(self, value: object, span: Span) -> Iterator[object]: ...
    def value(self, e: ast.Expr, scope: Scope) -> object: ...
    def as_operand(self, value: object, span: Span) -> object: ...
    def call_value(self, function: HostFunction | Derivative, arguments: Arguments) -> object: ...
    def file(self, name: str, path: str) -> str: ...
    def arguments_of(self, function: Derivative, arguments: Arguments) -> dict[str, object]: ...
    def profiled(self, arguments: Arguments, path: str) -> None: ...


Function = Callable[[Host, Arguments, str], object]
"""A builtin: the evaluator, the arguments, and the path of the file that calls."""
