"""``print`` in lanes: the text goes into the launch plan, the numbers into an operation."""

from __future__ import annotations

from collections.abc import Iterator

from tessera_lang.ir.core import Value
from tessera_lang.lower.ast_to_tile.builtin_arguments import scalar
from tessera_lang.lower.ast_to_tile.context import Bound, Lowering
from tessera_lang.syntax import ast
from tessera_lang.target.launch_plan import PrintText


def lower_print(lowering: Lowering, node: ast.Call) -> Bound:
    """One line: its constant pieces, and the values between them."""
    pieces, values, formats = [""], list[Value](), list[str]()
    for part, form in _parts(node):
        text = part if isinstance(part, str) else _known_text(lowering, part, form)
        if text is not None:
            pieces[-1] += text
            continue
        assert not isinstance(part, str)
        values.append(scalar(lowering, part))
        formats.append(form)
        pieces.append("")
    pieces[-1] += "\n"
    line = PrintText(tuple(pieces), tuple(str(v.type) for v in values), tuple(formats))
    if line not in lowering.prints:
        lowering.prints.append(line)
    lowering.builder.span = node.span
    lowering.builder.print(values, lowering.prints.index(line))
    return ()


def _parts(node: ast.Call) -> Iterator[tuple[str | ast.Expr, str]]:
    """Text and expressions in order, with the format of each; arguments are a blank apart."""
    for number, argument in enumerate(node.arguments):
        if number:
            yield " ", ""
        if not isinstance(argument, ast.FString):
            yield argument, ""
            continue
        for part in argument.parts:
            yield (part, "") if isinstance(part, str) else (part.value, part.format)


def _known_text(lowering: Lowering, node: ast.Expr, form: str) -> str | None:
    """The text of an expression that is a string."""
    value = node.value if isinstance(node, ast.StringLit) else None
    if value is None:
        value = lowering.frame.typed.constants.get(node)
    return f"{value:{form}}" if isinstance(value, str) else None
