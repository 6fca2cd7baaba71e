"""Several processes of tests over the CUDA devices of one machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"


def cards() -> list[str]:
    """The devices that may be used, found without starting the driver."""
    if VISIBLE in os.environ:
        return [card for card in os.environ[VISIBLE].split(",") if card]
    nodes = Path("/dev").glob("nvidia[0-9]*")
    return sorted(node.name[6:] for node in nodes if re.fullmatch(r"nvidia\d+", node.name))


def environment(job: int) -> dict[str, str]:
    """The environment of the ``job``-th process: where there are several devices it sees one."""
    found = cards()
    return {**os.environ, VISIBLE: found[job % len(found)]} if len(found) > 1 else {**os.environ}
