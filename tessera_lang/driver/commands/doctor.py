"""``tesserac doctor``: the state of the installation, and what to mend.

Owns the findings about Python, packages, the standard library and the cache; each backend
reports about its own tools.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tessera_lang.driver.commands.flags import examples

if TYPE_CHECKING:
    from pathlib import Path

    from tessera_lang.target.backend import Finding

NEEDED = ("llvmlite", "numpy", "ml_dtypes", "platformdirs")


@click.command(name="doctor", epilog=examples("tesserac doctor", "tesserac doctor --format=json"))
@click.option("--format", "format_", type=click.Choice(["human", "json"]), default="human")
def command(format_: str) -> int:
    """Look at the installation, and say what to mend. Exits with 1 where nothing can run."""
    required = [*_python(), *_packages(), *_standard_library()]
    found = [*required, *_backends(), *_cache()]
    if format_ == "json":
        click.echo(json.dumps([asdict(f) for f in found]))
    else:
        for finding in found:
            click.echo(f"[{'ok' if finding.ok else '--'}] {finding.name}: {finding.detail}")
            if not finding.ok and finding.remedy:
                click.echo(f"     {finding.remedy}")
    return 0 if all(f.ok for f in required) else 1


def _python() -> Iterator[Finding]:
    from tessera_lang.target.backend import Finding

    version = ".".join(map(str, sys.version_info[:3]))
    ok = sys.version_info >= (3, 11)
    yield Finding("python", ok, f"{version} at {sys.executable}", "use Python 3.11 or later")


def _packages() -> Iterator[Finding]:
    from tessera_lang.target.backend import Finding
    from tessera_lang.target.installed import version_of

    for name in NEEDED:
        version = version_of(name)
        if version:
            yield Finding(name, True, version)
        else:
            yield Finding(name, False, "not installed", f"pip install {name}")


def _standard_library() -> Iterator[Finding]:
    from tessera_lang.driver.modules import standard_library, standard_modules
    from tessera_lang.target.backend import Finding

    names = standard_modules()
    where = standard_library()
    detail = f"{', '.join(names)} at {where}" if names else "not found"
    yield Finding("standard library", bool(names), detail, "install tessera-lang again")


def _backends() -> Iterator[Finding]:
    from tessera_lang.target.backend import Finding, backend_named, backend_names

    for name in backend_names():
        try:
            backend = backend_named(name)
            reason = backend.available()
        except Exception as error:  # noqa: BLE001  # a broken backend must not hide the others
            text = f"{type(error).__name__}: {error}"
            yield Finding(f"target {name}", False, text, "install tessera-lang again")
            continue
        yield Finding(f"target {name}", not reason, reason or "works")
        diagnose = getattr(backend, "diagnose", None)
        if diagnose is not None:
            yield from diagnose()


def _cache() -> Iterator[Finding]:
    from tessera_lang.target.backend import Finding
    from tessera_lang.target.runtime import runtime

    try:
        folder = runtime().cache_directory()
    except Exception as error:  # noqa: BLE001  # a broken runtime is a finding
        text = f"{type(error).__name__}: {error}"
        yield Finding("cache", False, text, "install tessera-lang again")
        return
    unused = _unused().removeprefix(f"{folder}: ")
    if unused.startswith("switched off"):
        yield Finding("cache", True, unused)
        return
    reason = unused or _not_writable(folder)
    remedy = "kernels are compiled in every process; set TESSERA_CACHE_DIR to a folder of yours"
    yield Finding("cache", not reason, f"{folder}{f': {reason}' if reason else ''}", remedy)


def _unused() -> str:
    """Why the runtime keeps nothing on disk; empty where it does."""
    from tessera_lang.target.runtime import runtime

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it would warn of stands in the finding
        return str(runtime().cache_stats().get("problem", ""))


def _not_writable(folder: Path) -> str:
    """Why no file can be made in a folder (or where it would be made); empty if one can."""
    at = os.fspath(folder)
    while not os.path.isdir(at) and os.path.dirname(at) != at:
        at = os.path.dirname(at)
    try:
        with tempfile.TemporaryFile(dir=at) as file:
            file.write(bytes(1 << 16))  # on a full disk an empty file can still be made
            file.flush()
            return ""
    except OSError as error:
        return (error.strerror or str(error)).lower()
