"""Diagnostics as a SARIF 2.1.0 document, for tools that collect results of checks.

Owns the mapping to the standard's objects. Columns count characters. Must not know where the
text goes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import quote

from tessera_lang.diagnostics.codes import all_codes
from tessera_lang.diagnostics.diagnostic import Diagnostic, Fix
from tessera_lang.source import SourceFile, Span

Files = Mapping[str, SourceFile]
_Object = dict[str, object]
_LEVELS = {"error": "error", "warning": "warning", "note": "note", "hint": "note"}


def sarif(diagnostics: Sequence[Diagnostic], files: Files) -> str:
    """The document; ends in a line break."""
    codes = sorted({d.code for d in diagnostics})
    driver: _Object = {"name": "tesserac", "rules": [_rule(code) for code in codes]}
    with suppress(PackageNotFoundError):
        driver["semanticVersion"] = version("tessera-lang")
    run: _Object = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, codes.index(d.code), files) for d in diagnostics],
    }
    return json.dumps({"version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> _Object:
    row = all_codes().get(code)
    if row is None:
        return {"id": code}
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in row.slug.split("-")),
        "shortDescription": {"text": row.summary},
        "help": {"text": f"`tesserac explain {code}` shows a wrong and a right example."},
    }


def _result(d: Diagnostic, rule: int, files: Files) -> _Object:
    lines = [d.message, *(f"note: {n}" for n in d.notes), *(f"help: {h}" for h in d.helps)]
    result: _Object = {
        "ruleId": d.code,
        "ruleIndex": rule,
        "level": _LEVELS[d.severity],
        "message": {"text": "\n".join(lines)},
        "properties": {"certainty": d.certainty},
    }
    if d.span is not None:
        result["locations"] = [_location(d.span, files)]
    if d.labels:
        result["relatedLocations"] = [
            {"id": i, **_location(label.span, files), "message": {"text": label.text}}
            for i, label in enumerate(d.labels)
        ]
    fixes = [_fix(f, files) for f in d.fixes if all(e.span.file in files for e in f.edits)]
    if fixes:
        result["fixes"] = fixes
    return result


def _location(span: Span, files: Files) -> _Object:
    place: _Object = {"artifactLocation": _artifact(span.file)}
    if span.file in files:
        place["region"] = _region(span, files)
    return {"physicalLocation": place}


def _artifact(path: str) -> _Object:
    if path.startswith("<"):  # standard input, a text without a file
        return {"uri": quote(path.strip("<>") or "text")}
    if os.path.isabs(path):
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(path.replace("\\", "/"))}


def _region(span: Span, files: Files) -> _Object:
    file = files[span.file]
    line, column = file.position(span.lo)
    end_line, end_column = file.position(max(span.lo, span.hi))
    return {
        "startLine": line + 1,
        "startColumn": column + 1,
        "endLine": end_line + 1,
        "endColumn": end_column + 1,
    }


def _fix(fix: Fix, files: Files) -> _Object:
    by_file: dict[str, list[_Object]] = {}
    for edit in fix.edits:
        by_file.setdefault(edit.span.file, []).append(
            {
                "deletedRegion": _region(edit.span, files),
                "insertedContent": {"text": edit.replacement},
            }
        )
    changes = [
        {"artifactLocation": _artifact(path), "replacements": edits}
        for path, edits in by_file.items()
    ]
    return {"description": {"text": fix.title}, "artifactChanges": changes}
