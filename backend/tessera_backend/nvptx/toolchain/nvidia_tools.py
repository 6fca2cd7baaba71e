"""Finding NVIDIA's command-line tools and running them safely.

Looked for, in order: the environment variable of the tool, NVIDIA's Python packages, the
CUDA toolkit, ``PATH``. Never the current directory. Must not know what a tool is for.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
from pathlib import Path

from tessera_lang.record import dataclass

TIMEOUT_SECONDS = 120
_PROBE_SECONDS = 20
_SUFFIX = ".exe" if os.name == "nt" else ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that was found, and the release it says it is."""

    path: str
    version: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; ``status`` is None where it was stopped for taking too long."""

    status: int | None
    output: str


def find_tool(name: str) -> Tool | None:
    """The tool of that name that runs and says its version; None where there is none."""
    environment = (
        os.environ.get(f"TESSERA_{name.upper()}", ""),
        os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""),
        os.environ.get("PATH", ""),
    )  # fmt: skip
    return _find(name, environment)


@functools.lru_cache(maxsize=32)
def _find(name: str, environment: tuple[str, ...]) -> Tool | None:
    own, *homes, path = environment
    candidates = [Path(own)] if own else _package_candidates(name)
    if not own:
        candidates += [Path(home, "bin", name + _SUFFIX) for home in homes if home]
        candidates += [Path(d, name + _SUFFIX) for d in path.split(os.pathsep) if d]
    for candidate in candidates:
        if not candidate.is_absolute() or not _runnable(candidate):
            continue
        version = _version(str(candidate))
        if version:
            return Tool(str(candidate), version)
    return None


def _package_candidates(name: str) -> list[Path]:
    """Where NVIDIA's wheels put programs: ``nvidia/<part>/bin``."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    found: list[Path] = []
    for root in roots:
        try:
            parts = sorted(Path(root).iterdir(), reverse=True)
        except OSError:
            continue
        found += [part / "bin" / (name + _SUFFIX) for part in parts]
    return found


def _runnable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except OSError:
        return False


def _version(path: str) -> str:
    try:
        outcome = run_tool([path, "--version"], os.path.dirname(path), _PROBE_SECONDS)
    except OSError:
        return ""
    match = re.search(r"release [\d.]+, V([\d.]+)", outcome.output)
    return match.group(1) if match and outcome.status == 0 else ""


def run_tool(argv: list[str], directory: str, timeout: float = TIMEOUT_SECONDS) -> Outcome:
    """Run a program in a directory with no input; output and errors together.

    Raises OSError where it cannot be started.
    """
    environment = {**os.environ, "TMPDIR": directory, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as expired:
        return Outcome(None, (expired.output or b"").decode("utf-8", "replace"))
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"))
