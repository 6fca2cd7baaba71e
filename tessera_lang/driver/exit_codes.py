"""The exit codes of ``tesserac``."""

from __future__ import annotations

from typing import Final

DIAGNOSTICS: Final = 1
USAGE: Final = 2
FAILED_RUN: Final = 3
OUR_FAULT: Final = 101
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
