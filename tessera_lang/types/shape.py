"""Symbolic sizes: integer expressions over the names that a call binds.

Owns their construction, folding, printing and evaluation. Python semantics: ``//`` and
``%`` floor. Must not know tensors or how sizes are bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, cast

from tessera_lang.record import dataclass

DimOperator = Literal["+", "-", "*", "//", "%", "min", "max", "ceil_div"]


@dataclass(frozen=True, slots=True)
class Sym:
    """A named size, bound at the call. ``grid_groups`` is the number of groups."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DimOp:
    operator: DimOperator
    left: Dim
    right: Dim

    def __str__(self) -> str:
        if self.operator in ("min", "max", "ceil_div"):
            return f"{self.operator}({self.left}, {self.right})"
        return f"({self.left} {self.operator} {self.right})"


Dim = int | Sym | DimOp


def apply_operator(operator: DimOperator, a: int, b: int) -> int:
    """One step on known sizes. Raises ZeroDivisionError as Python does."""
    match operator:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "ceil_div":
            return -(-a // b)


def dim_op(operator: DimOperator, left: Dim, right: Dim) -> Dim:
    """``left operator right``, folded where both are known."""
    if isinstance(left, int) and isinstance(right, int):
        if not (right == 0 and operator in ("//", "%", "ceil_div")):
            return apply_operator(operator, left, right)
    elif operator == "+" and right == 0 or operator in ("*", "//", "ceil_div") and right == 1:
        return left
    elif (operator == "+" and left == 0) or (operator == "*" and left == 1):
        return right
    return DimOp(operator, left, right)


def evaluate_dim(dim: Dim, sizes: Mapping[str, int]) -> int:
    """The value of a size. Raises KeyError for an unbound name, ZeroDivisionError."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        return sizes[dim.name]
    return apply_operator(
        dim.operator, evaluate_dim(dim.left, sizes), evaluate_dim(dim.right, sizes)
    )


def substituted_dim(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """A size with others in the place of its names. Raises KeyError for an unbound name."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        return sizes[dim.name]
    left, right = substituted_dim(dim.left, sizes), substituted_dim(dim.right, sizes)
    return dim_op(dim.operator, left, right)


def symbols_of(dim: Dim) -> frozenset[str]:
    """Names that occur in a size."""
    if isinstance(dim, int):
        return frozenset()
    if isinstance(dim, Sym):
        return frozenset((dim.name,))
    return _symbols_of(dim)


@lru_cache(8192)
def _symbols_of(dim: DimOp) -> frozenset[str]:
    return symbols_of(dim.left) | symbols_of(dim.right)


def dim_to_json(dim: Dim) -> object:
    """A JSON value: an integer, a name, or ``[operator, left, right]``."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, Sym):
        return dim.name
    return [dim.operator, dim_to_json(dim.left), dim_to_json(dim.right)]


_OPERATORS: dict[object, DimOperator] = {
    "+": "+", "-": "-", "*": "*", "//": "//", "%": "%",
    "min": "min", "max": "max", "ceil_div": "ceil_div",
}  # fmt: skip


def dim_from_json(value: object) -> Dim:
    """The size that ``dim_to_json`` wrote. Raises ValueError on anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return Sym(value)
    if isinstance(value, list):
        items = cast("list[object]", value)
        if len(items) == 3 and isinstance(items[0], str) and items[0] in _OPERATORS:
            left, right = dim_from_json(items[1]), dim_from_json(items[2])
            return DimOp(_OPERATORS[items[0]], left, right)
    raise ValueError(f"not a size: {value!r}")


_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|//|[-+*%(),])")


def dim_of_text(text: str) -> Dim:
    """The size that ``str`` wrote: every operation of two sizes stands in parentheses. Raises
    ValueError on anything else."""
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != "".join(text.split()):
        raise ValueError(f"not a size: '{text}'")
    found, rest = _read(tokens)
    if rest:
        raise ValueError(f"not a size: '{text}'")
    return found


def _read(tokens: list[str]) -> tuple[Dim, list[str]]:
    """A size at the front, and what is behind it."""
    head, rest = (tokens[0], tokens[1:]) if tokens else ("", tokens)
    if head.isdigit():
        return int(head), rest
    if head in ("min", "max", "ceil_div") and rest[:1] == ["("]:
        left, rest = _read(rest[1:])
        right, rest = _read(_behind(",", rest))
        return DimOp(_OPERATORS[head], left, right), _behind(")", rest)
    if head == "(":
        left, rest = _read(rest)
        operator = _OPERATORS.get(rest[0] if rest else "")
        if operator is None:
            raise ValueError("a size lacks its operator")
        right, rest = _read(rest[1:])
        return DimOp(operator, left, right), _behind(")", rest)
    if head and (head[0].isalpha() or head[0] == "_"):
        return Sym(head), rest
    raise ValueError(f"not a size: '{head}'")


def _behind(mark: str, tokens: list[str]) -> list[str]:
    if tokens[:1] != [mark]:
        raise ValueError(f"a size lacks '{mark}'")
    return tokens[1:]
