"""The table of diagnostic codes, one file per range: ``t00.py`` ... ``t09.py``, ``p10.py``.

Owns the merge. A code stands in exactly one file (a test holds that); nothing here is read
before a code is looked up.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from tessera_lang.diagnostics.codes.model import Code

__all__ = ["Code", "all_codes", "code_named", "range_modules", "slug_of"]


def range_modules() -> tuple[str, ...]:
    """Names of the modules that hold rows, in order."""
    from pkgutil import iter_modules

    return tuple(sorted(m.name for m in iter_modules(__path__) if m.name.startswith(("t0", "p1"))))


@cache
def all_codes() -> dict[str, Code]:
    """Every row by its code, in order of the codes."""
    rows: dict[str, Code] = {}
    for name in range_modules():
        module_rows: dict[str, Code] = import_module(f"{__name__}.{name}").CODES
        for code, row in module_rows.items():
            rows.setdefault(code, row)
    return dict(sorted(rows.items()))


def code_named(name: str) -> Code | None:
    """The row of a code (``T0304``, any case) or of a slug."""
    rows = all_codes()
    row = rows.get(name.upper())
    return row or next((r for r in rows.values() if r.slug == name.lower()), None)


def slug_of(code: str) -> str:
    """The slug of a code; empty where the table lacks it."""
    row = all_codes().get(code)
    return row.slug if row else ""
