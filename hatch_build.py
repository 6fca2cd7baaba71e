"""What an index page shows of the distribution: the readme as one can read it there, and addresses.

A relative link leads nowhere on an index page. With the project's address (``home`` in
``pyproject.toml``) links lead to its files; as long as there is none they are their text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Code first, in fences and within a line: what looks like a link in there is none.
_CODE_OR_LINK = re.compile(
    r"^```.*?^```|`[^`\n]+`|\[([^\]]+)\]\((?!https?:|mailto:|#)([^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def readable(text: str, home: str) -> str:
    """A page without relative links; code is left alone."""

    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        if target is None:
            return found[0]
        if home:
            return f"[{label}]({home}/blob/main/{target})"
        return label if label == target else f"{label} (`{target}`)"

    return _CODE_OR_LINK.sub(link, text)


class Metadata(MetadataHookInterface):
    """The hook of hatchling."""

    def update(self, metadata: dict[str, Any]) -> None:
        home = str(self.config.get("home", "")).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readable(text, home)}
        if home:
            metadata["urls"] = {
                "Homepage": home,
                "Documentation": f"{home}/blob/main/docs/index.md",
                "Changelog": f"{home}/blob/main/CHANGELOG.md",
                "Issues": f"{home}/issues",
            }
