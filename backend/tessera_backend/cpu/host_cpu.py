"""What is known of this machine's CPU without LLVM."""

from __future__ import annotations

import os
import platform
import sys
from functools import lru_cache


def host_machine() -> str:
    """``x86_64`` or ``aarch64``, or what Python says of another machine."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


@lru_cache(maxsize=1)
def cpu_identity() -> str:
    """Text that differs where ``native`` code may differ: machine, model and features."""
    parts = [host_machine(), sys.platform, os.environ.get("PROCESSOR_IDENTIFIER", "")]
    wanted = ("model name", "cpu family", "model", "stepping", "flags", "features",
              "cpu part", "cpu implementer")  # fmt: skip
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if not key.strip():
                    break  # the first processor is enough
                if key.strip().lower() in wanted:
                    parts.append(value.strip())
    except OSError:
        parts.append(platform.processor())
    return " ".join(p for p in parts if p)


@lru_cache(maxsize=1)
def processor_count() -> int:
    """Processors this process may run on, asked for once."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:
        return max(1, os.cpu_count() or 1)
