"""The section of docs/architecture.md that lists the passes, made from ``driver/pipeline.py``.

``python -m tests.run.pipeline_page --write`` writes it; without the flag it is printed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tessera_lang.driver.pipeline import stages
from tessera_lang.ir.pass_type import Pass

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
_MARKED = re.compile("(<!-- passes: begin -->\n).*?(<!-- passes: end -->)", re.S)


def section() -> str:
    """All passes as tables of Markdown."""
    lines: list[str] = []
    for stage in stages():
        lines += [f"**{stage.title}** ({stage.where})", "", "| pass | IR | what it does |",
                  "|---|---|---|"]  # fmt: skip
        for one in stage.passes:
            level = one.gives if one.takes == one.gives else f"{one.takes} to {one.gives}"
            how = "decides: " if isinstance(one, Pass) and one.kind == "decide" else ""
            lines.append(f"| `{one.name}` | {level} | {how}{one.does} |")
        lines.append("")
    return "\n".join(lines)


def in_page(text: str) -> str:
    """The page with the section as it is now."""
    return _MARKED.sub(lambda m: f"{m[1]}\n{section()}\n{m[2]}", text)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(section())
