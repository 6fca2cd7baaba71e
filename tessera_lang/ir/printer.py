"""Prints programs in MLIR's generic form, byte for byte the same in any process.

Owns the layout of the text and the names of values. Must not know what operations mean.
Attributes are printed in the order of their names; names of values are their hints, made
unique within one kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from tessera_lang.ir.core import Operation, Program, Region, Value
from tessera_lang.ir.spelling import attribute_text, string_text, type_text
from tessera_lang.source import Span
from tessera_lang.types.dtype import DType

Locate = Callable[[Span], tuple[str, int, int]]
"""Gives file, 1-based line and 1-based column of a span."""

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_$.]")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")


def print_program(program: Program, *, names: bool = True, locate: Locate | None = None) -> str:
    """The text of a program, one line an operation, ends in a newline (empty if no operation).

    ``names=False`` numbers all values. ``locate`` adds a ``loc("file":line:column)`` to
    every operation that has a span.
    """
    printer = _Printer(names, locate)
    shared = any(operation.results for operation in program.operations)
    for operation in program.operations:
        if not shared:
            printer.forget()
        printer.operation(operation, 0)
    return "".join(f"{line}\n" for line in printer.lines)


def print_operations(operations: Iterable[Operation]) -> list[str]:
    """Texts of some operations of one kernel, in which a value has one name throughout."""
    printer = _Printer(True, None)
    texts: list[str] = []
    for operation in operations:
        printer.lines.clear()
        printer.operation(operation, 0)
        texts.append("\n".join(printer.lines))
    return texts


class _Printer:
    def __init__(self, names: bool, locate: Locate | None) -> None:
        self.lines: list[str] = []
        self._hints = names
        self._locate = locate
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self._suffix: dict[str, int] = {}
        self._number = 0

    def forget(self) -> None:
        """Begin with fresh names: nothing of before can be seen from here on."""
        self._names.clear()
        self._taken.clear()
        self._suffix.clear()
        self._number = 0

    def name(self, value: Value) -> str:
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = self._fresh(value.name if self._hints else "")
        return known

    def _fresh(self, hint: str) -> str:
        if not hint:
            self._number += 1
            return f"%{self._number - 1}"
        base = _NOT_A_NAME.sub("_", hint)
        if not _BARE.fullmatch(base):
            base = f"_{base}"
        name, n = base, self._suffix.get(base, 0)
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._suffix[base] = n
        self._taken.add(name)
        return f"%{name}"

    def operation(self, operation: Operation, depth: int) -> None:
        pad = "  " * depth
        results = ", ".join([self.name(v) for v in operation.results])
        operands = ", ".join([self.name(v) for v in operation.operands])
        head = f'{pad}{results} = "' if results else f'{pad}"'
        head = f'{head}{operation.name}"({operands})'
        if operation.regions:
            head += " ("
            for i, region in enumerate(operation.regions):
                self.lines.append(head + "{")
                self._region(region, depth)
                head = pad + ("}, " if i + 1 < len(operation.regions) else "})")
        self.lines.append(head + self._tail(operation))

    def _region(self, region: Region, depth: int) -> None:
        if region.arguments:
            arguments = ", ".join(
                [f"{self.name(v)}: {type_text(v.type)}" for v in region.arguments]
            )
            self.lines.append(f"{'  ' * depth}^bb0({arguments}):")
        for operation in region.operations:
            self.operation(operation, depth + 1)

    def _tail(self, operation: Operation) -> str:
        parts: list[str] = []
        if operation.attributes:
            dtype = _value_dtype(operation)
            items = sorted(operation.attributes.items())
            texts = [f"{key} = {attribute_text(value, dtype)}" for key, value in items]
            parts.append(f" {{{', '.join(texts)}}}")
        parts.append(f" : {_types(operation.operands)} -> ")
        outer = _types(operation.results)
        parts.append(outer[1:-1] if len(operation.results) == 1 else outer)
        if self._locate is not None and operation.span is not None:
            file, line, column = self._locate(operation.span)
            parts.append(f" loc({string_text(file)}:{line}:{column})")
        return "".join(parts)


def _types(values: Sequence[Value]) -> str:
    return f"({', '.join([type_text(v.type) for v in values])})"


def _value_dtype(operation: Operation) -> DType | None:
    """The dtype in which a constant's value is written."""
    if operation.name.endswith(".constant") and len(operation.results) == 1:
        t = operation.results[0].type
        return t if isinstance(t, DType) else None
    return None
