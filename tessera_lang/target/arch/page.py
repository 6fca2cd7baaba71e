"""The table of the architectures as the page ``docs/architectures.md`` shows it.

Run: python -m tessera_lang.target.arch.page. A test holds the page and the rows together.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.target.arch.architecture import FEATURES, Architecture
from tessera_lang.target.arch.rows import MEMBERS, ROWS

BEGIN, END = "<!-- table of architectures -->", "<!-- end of the table of architectures -->"


def table() -> str:
    """Limits, rates and features of every row, then models and further names, as Markdown."""
    return "\n\n".join((_limits(), _features(), _rates(), _models(), _members()))


def _limits() -> str:
    head = ("name", "devices", "PTX", "multiprocessors", "warps", "groups", "registers",
            "shared memory, KiB", "of a group, KiB")  # fmt: skip
    return _lines(head, [(
        f"`{row.name}`", row.devices, f"{row.ptx // 10}.{row.ptx % 10}", row.units,
        row.limits.warps, row.limits.groups, row.limits.registers, row.limits.shared >> 10,
        row.limits.group_shared >> 10,
    ) for row in ROWS.values()])  # fmt: skip


def _features() -> str:
    def marks(row: Architecture) -> tuple[str, ...]:
        return tuple("yes" if row.has(f) else "" for f in FEATURES)

    meanings = "\n".join(f"- `{name}`: {meaning}" for name, meaning in FEATURES.items())
    rows = [(f"`{row.name}`", *marks(row)) for row in ROWS.values()]
    return f"{_lines(('name', *(f'`{f}`' for f in FEATURES)), rows)}\n\n{meanings}"


def _rates() -> str:
    head = ("name", "multiply-adds on matrix units", "without", "bytes of shared memory",
            "of the second-level cache", "of main memory, whole device")  # fmt: skip
    return _lines(head, [(
        f"`{row.name}`", row.rates.matrix, row.rates.scalar, row.rates.shared, row.rates.cache,
        row.rates.memory,
    ) for row in ROWS.values()])  # fmt: skip


def _models() -> str:
    head = ("model", "architecture", "memory, GB a second", "bytes a cycle")
    return _lines(head, [
        (f"`{m.name}`", f"`{row.name}`", m.bandwidth, m.memory)
        for row in ROWS.values() for m in row.models
    ])  # fmt: skip


def _members() -> str:
    return "Further names: " + ", ".join(f"`{n}`" for n in sorted(MEMBERS)) + "."


def _lines(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def in_page(text: str) -> str:
    """A page with the table of now between its marks. Raises ValueError where they are missing."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    from pathlib import Path

    path = Path("docs/architectures.md")
    path.write_text(in_page(path.read_text(encoding="utf-8")), encoding="utf-8")
