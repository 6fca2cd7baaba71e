"""What an index page shows: metadata, and a readme whose links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)]+)\)")


def hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metadata(home: str) -> dict[str, Any]:
    pytest.importorskip("hatchling")
    found: dict[str, Any] = {}
    hook().Metadata(str(ROOT), {"home": home}).update(found)
    return found


@pytest.mark.parametrize("home", ["", "https://example.org/tessera/"])
def test_every_link_of_the_readme_leads_somewhere(home: str) -> None:
    text = metadata(home)["readme"]["text"]
    outside = re.sub(r"^```.*?^```|`[^`\n]+`", "", text, flags=re.M | re.S)
    for target in LINK.findall(outside):
        assert target.startswith(("https://", "http://")), target
        if home and target.startswith(home.rstrip("/") + "/blob/main/"):
            path = target.removeprefix(home.rstrip("/") + "/blob/main/").partition("#")[0]
            assert (ROOT / path).exists(), target
    assert "docs/cli.md" in text and "```sh" in text


def test_addresses_are_there_once_there_is_a_home() -> None:
    assert "urls" not in metadata("")
    urls = metadata("https://example.org/tessera/")["urls"]
    assert urls["Homepage"] == "https://example.org/tessera"
    assert {"Documentation", "Changelog", "Issues"} <= set(urls)


def test_code_of_a_page_is_left_alone() -> None:
    page = "[`a`](b.md) and `x[1](y)`\n```python\nx = [f](g.md)\n```\n[c](https://d.e) [f](#g) "
    want = "`a` (`b.md`) and `x[1](y)`\n```python\nx = [f](g.md)\n```\n[c](https://d.e) [f](#g) "
    page, want = page + "[h.md](h.md)\n", want + "h.md\n"
    assert hook().readable(page, "") == want


def test_classifiers_and_keywords() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    trove = pytest.importorskip("trove_classifiers")
    assert project["classifiers"] and not set(project["classifiers"]) - set(trove.classifiers)
    assert len(project["keywords"]) >= 4
    oldest = project["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in project["classifiers"]
    # A licence expression and a classifier of a licence exclude each other.
    assert not any(c.startswith("License ::") for c in project["classifiers"])
    assert sys.version_info[:2] >= tuple(map(int, oldest.split(".")))


def test_the_distribution_has_it() -> None:
    """As hatchling puts it together for an index."""
    core = pytest.importorskip("hatchling.metadata.core")
    manager = pytest.importorskip("hatchling.plugin.manager").PluginManager()
    project = core.ProjectMetadata(str(ROOT), manager)
    assert project.core.readme_content_type == "text/markdown"
    assert project.core.classifiers and project.core.keywords
    assert "](docs/" not in project.core.readme
