"""Calls of kernels in Graph IR: what a call says, and its rule.

A call is a function of its operands: a kernel that writes into an array takes what the array held,
and gives what it holds then. Owns how arguments that are no operands are spelt. Must not know how a
kernel is compiled or launched.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import cast

from tessera_lang.ir.core import Attribute, Operation, TensorType, VerifyError
from tessera_lang.ir.tile.op_definition import AttributeDef, OpDef
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType, dtype_named

CALL = "graph.call"
OPERAND, NUMBER = "%", "#"
"""Stand for an operand among the arguments: an array, and a number of the host program."""

CALL_OP = OpDef(
    CALL, ("operands...",), "graph_call", results=-1,
    attributes=(
        AttributeDef("file", "str"), AttributeDef("kernel", "str"),
        AttributeDef("arguments", "strs"), AttributeDef("constants", "strs"),
        AttributeDef("groups", "ints"),
        AttributeDef("writes", "ints"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Called:
    """What is called. ``arguments``: as texts (``spelt``), or what stands for an operand;
    ``groups``: of the launch, None where the kernel says it; ``writes``: the operands that it
    writes, whose new contents are its last results, in order."""

    file: str
    kernel: str
    arguments: tuple[str, ...]
    constants: tuple[str, ...] = ()
    groups: tuple[int, ...] | None = None
    writes: tuple[int, ...] = ()

    @property
    def attributes(self) -> dict[str, Attribute]:
        """As attributes of a call."""
        return {
            "file": self.file, "kernel": self.kernel, "arguments": self.arguments,
            "constants": self.constants, "groups": self.groups or (), "writes": self.writes,
        }  # fmt: skip

    @property
    def numbers(self) -> set[int]:
        """The operands that are numbers."""
        places = (a for a in self.arguments if a in (OPERAND, NUMBER))
        return {i for i, a in enumerate(places) if a == NUMBER}

    def given(self, operands: Sequence[object]) -> tuple[object, ...]:
        """The arguments of a launch."""
        rest = iter(operands)
        return tuple([next(rest) if a in (OPERAND, NUMBER) else _read(a) for a in self.arguments])

    def given_constants(self) -> dict[str, object]:
        """What stands in brackets."""
        pairs = (text.partition("=") for text in self.constants)
        return {name: _read(text) for name, _, text in pairs}


def called(operation: Operation) -> Called:
    """What a call says."""
    return Called(
        str(operation.attributes["file"]), str(operation.attributes["kernel"]),
        operation.strings("arguments"), operation.strings("constants"),
        operation.integers("groups") or None, operation.integers("writes"),
    )  # fmt: skip


def spelt(value: object) -> str | None:
    """A number, a text or a dtype as an argument; None for what is no such thing."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, bool | int | str):
        return repr(value)
    if isinstance(value, float):
        return f"float({str(float(value))!r})"
    return None


def _read(text: str) -> object:
    dtype = dtype_named(text)
    if dtype is not None:
        return dtype
    if text.startswith("float("):
        return float(cast("str", ast.literal_eval(text[len("float(") : -1])))
    return cast("object", ast.literal_eval(text))


def check_call(operation: Operation) -> None:
    """Raises VerifyError."""
    said = called(operation)
    try:
        said.given(operation.operands)
        said.given_constants()
    except (ValueError, SyntaxError):
        raise VerifyError("has an argument that is no number, text or dtype", operation) from None
    except StopIteration:
        raise VerifyError("has an operand for each argument", operation) from None
    if sum(a in (OPERAND, NUMBER) for a in said.arguments) != len(operation.operands):
        raise VerifyError("has an argument for each operand", operation)
    written = said.writes
    if not operation.results or len(written) > len(operation.results):
        raise VerifyError("gives what it returns, and what it writes", operation)
    if not all(isinstance(v.type, TensorType) for v in (*operation.operands, *operation.results)):
        raise VerifyError("takes and gives tensors", operation)
    behind = operation.results[len(operation.results) - len(written) :]
    for place, result in zip(written, behind, strict=True):
        if not 0 <= place < len(operation.operands):
            raise VerifyError(f"has no operand {place}", operation)
        if operation.operands[place].type != result.type:
            raise VerifyError(f"gives the operand {place} another type", operation)
