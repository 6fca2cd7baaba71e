"""Signatures of kernels and functions as Python's ``inspect`` and ``help`` show them.

Annotations are those of the file, as written. Must not know how arguments are checked.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

from tessera_backend.runtime.module_interface import ParameterInfo

_EMPTY = inspect.Parameter.empty
_LAUNCH = "stream"
"""What every launch takes beside the parameters of its kernel."""


class AsWritten(str):
    """A piece of a file, shown without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def python_signature(
    parameters: Sequence[ParameterInfo], brackets: Sequence[ParameterInfo], returns: str,
    *, launches: bool,
) -> inspect.Signature:  # fmt: skip
    """``brackets`` are given by name only; ``launches`` adds ``stream``."""
    positional = positional_only(parameters)
    found = [_parameter(p, _kind(i < positional)) for i, p in enumerate(parameters)]
    named = inspect.Parameter.KEYWORD_ONLY
    found += [_parameter(p, named) for p in brackets if not iskeyword(p.name)]
    if launches and _LAUNCH not in {p.name for p in (*parameters, *brackets)}:
        found.append(inspect.Parameter(_LAUNCH, named, default=None))
    return inspect.Signature(
        found, return_annotation=AsWritten(returns) if returns else inspect.Signature.empty
    )


def positional_only(parameters: Sequence[ParameterInfo]) -> int:
    """How many of the first parameters Python cannot name: a word of its own is among them."""
    return max((i for i, p in enumerate(parameters, 1) if iskeyword(p.name)), default=0)


def _kind(positional: bool) -> Any:
    kinds = inspect.Parameter
    return kinds.POSITIONAL_ONLY if positional else kinds.POSITIONAL_OR_KEYWORD


def _parameter(p: ParameterInfo, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(
        p.name, kind, default=default_of(p) if has_default(p) else _EMPTY,
        annotation=AsWritten(p.declared) if p.declared else _EMPTY,
    )  # fmt: skip


def has_default(p: ParameterInfo) -> bool:
    """Whether a call may leave the parameter out."""
    return p.default is not None or bool(p.written)


def default_of(p: ParameterInfo) -> object:
    """The value, or its text where that is no literal."""
    if p.default is not None:
        return p.default
    try:
        return ast.literal_eval(p.written)
    except (ValueError, SyntaxError):
        return AsWritten(p.written)
