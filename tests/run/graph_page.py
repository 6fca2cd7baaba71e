"""The table of operators in docs/graph.md, made from ``tessera_lang/ir/graph``.

``python -m tests.run.graph_page --write`` writes it; without the flag it is printed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tessera_lang.ir.graph.operator import NoGradient, Operator
from tessera_lang.ir.graph.operators import OPERATORS

PAGE = Path(__file__).parents[2] / "docs" / "graph.md"
_MARKED = re.compile("(<!-- operators: begin -->\n).*?(<!-- operators: end -->)", re.S)


def _row(row: Operator) -> str:
    attributes = ", ".join(f"`{a.name}`" for a in row.attributes)
    gradient = "yes"
    if isinstance(row.gradient, NoGradient):
        gradient = "0" if row.gradient.zero else "none"
    meaning = row.reference.replace("|", "\\|")
    cells = (f"`{row.name}`", ", ".join(row.operands), attributes, f"`{meaning}`", gradient,
             row.tolerance)  # fmt: skip
    return f"| {' | '.join(cells)} |"


def section() -> str:
    """The operators as a table of Markdown."""
    head = ["| `graph.` | operands | attributes | meaning | gradient | tolerance |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    return "\n".join([*head, *map(_row, OPERATORS.values())]) + "\n"


def in_page(text: str) -> str:
    """The page with the table as it is now."""
    return _MARKED.sub(lambda m: f"{m[1]}\n{section()}\n{m[2]}", text)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(section())
