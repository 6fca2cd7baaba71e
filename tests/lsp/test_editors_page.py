"""The page of editors: each feature names its tests, and its examples can be read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "editors.md").read_text(encoding="utf-8")


def test_each_feature_names_tests_that_there_are() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
    features = [r for r in rows if r[0] != "feature"]
    assert len(features) > 25
    for name, _, tests in features:
        found = re.findall(r"`([\w/]+)`", tests)
        assert found, name
        for test in found:
            folder = ROOT if "/" in test else ROOT / "tests" / "lsp"
            assert (folder / f"{test}.py").is_file(), (name, test)


def test_examples_of_settings() -> None:
    helix, zed = (tomllib.loads(t) for t in re.findall(r"```toml\n(.*?)```", PAGE, re.S))
    assert helix["language"][0]["language-servers"] == ["tessera"]
    assert helix["language-server"]["tessera"]["command"] == "tessera-lsp"
    assert zed["language_servers"]["tessera-lsp"]["languages"] == ["Tessera"]
