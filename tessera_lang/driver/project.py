"""The settings of a project: ``tessera.toml`` in a folder, mostly the working folder, or the
nearest above it.

Owns which keys there are and what they may hold. They stand below the environment, and that below
the command line. Must not know who uses them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.diagnostics.nearest import nearest
from tessera_lang.diagnostics.render import render
from tessera_lang.driver.config_spans import Text
from tessera_lang.record import dataclass, field
from tessera_lang.source import SourceFile, Span

NAME = "tessera.toml"
MOST_BYTES = 1 << 20
TARGETS = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Project:
    """What the file says; a key that it has not is not there. ``path`` are folders as they lie."""

    file: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    check: Mapping[str, bool] = field(default_factory=dict[str, bool])


def project(folder: str | None = None) -> Project | None:
    """The project of a folder, without one of the working folder. Raises TesseraError where its
    file is not usable."""
    try:
        file = nearest_file(os.getcwd() if folder is None else folder)
    except OSError:  # the folder is gone, or cannot be read
        file = None
    if file is None:
        return None
    status = os.stat(file)
    return _read(file, (status.st_mtime_ns, status.st_size))


def nearest_file(folder: str) -> str | None:
    """The file of settings in a folder or the nearest above it."""
    while True:
        file = os.path.join(folder, NAME)
        if os.path.isfile(file):
            return file
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above


@cache
def _read(file: str, stamp: tuple[int, int]) -> Project:
    import tomllib

    if stamp[1] > MOST_BYTES:
        raise _refused(file, "is too large for settings")
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            text = Text(SourceFile(os.path.relpath(file), stream.read()))
    except UnicodeDecodeError as error:
        what = f"is not TOML: byte {error.start} is no UTF-8"
        raise _refused(file, what, helps=("save the file as UTF-8",)) from None
    except OSError as error:
        raise _refused(file, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    try:
        found = tomllib.loads(text.source.text)
    except tomllib.TOMLDecodeError as error:
        message, span = text.of_fault(str(error))
        what = f"is not TOML: {message[:1].lower()}{message[1:]}"
        raise _refused(file, what, text, span) from None
    except RecursionError:
        raise _refused(file, "is nested too deep") from None
    checks = found.pop("check", {})
    if not isinstance(checks, dict):
        raise _refused(file, "`check` is a table: `[check]`", text, text.of_key("check"))
    settings = {k: _value(file, text, k, v, _KEYS, "") for k, v in found.items()}
    inner = cast("dict[str, object]", checks)
    flags = {k: _value(file, text, k, v, _CHECK_KEYS, "check.") for k, v in inner.items()}
    return Project(file, settings, flags)


def _value(
    file: str,
    text: Text,
    key: str,
    value: object,
    keys: Mapping[str, Callable[[str, object], Any]],
    head: str,
) -> Any:
    """A setting in the form that options have it. Raises TesseraError."""
    span = text.of_key(f"{head}{key}")
    if key not in keys:
        close = nearest(key, keys)
        known = ", ".join(f"`{head}{k}`" for k in keys)
        help_text = f"did you mean `{head}{close}`?" if close else f"the keys are {known}"
        raise _refused(file, f"has no setting `{head}{key}`", text, span, (help_text,))
    try:
        return keys[key](file, value)
    except ValueError as error:
        raise _refused(file, f"`{head}{key}` {error}", text, span) from None


def _one_of(*allowed: object) -> Callable[[str, object], object]:
    def check(_: str, value: object) -> object:
        if isinstance(value, bool) or value not in allowed:
            shown = ", ".join(f"`{a}`" for a in allowed[:-1])
            raise ValueError(f"is {shown} or `{allowed[-1]}`")
        return value

    return check


def _text(_: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is a string")
    return value


def _flag(_: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is `true` or `false`")
    return value


def _folders(file: str, value: object) -> tuple[str, ...]:
    """Folders beside the file or below: a project names nothing outside of itself."""
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    root = os.path.dirname(file)
    found: list[str] = []
    for item in items:
        if not isinstance(item, str):
            raise ValueError('is a list of folders: `["lib"]`')
        folder = os.path.normpath(os.path.join(root, item))
        real, real_root = os.path.realpath(folder), os.path.realpath(root)
        if os.path.isabs(item) or os.path.commonpath((real, real_root)) != real_root:
            raise ValueError(f"names {item!r}, which is outside of the project's folder")
        if not os.path.isdir(folder):
            raise ValueError(f"names {item!r}, which is no folder")
        found.append(folder)
    return tuple(found)


_KEYS: dict[str, Callable[[str, object], Any]] = {
    "path": _folders, "target": _one_of(*TARGETS), "arch": _text, "bounds": _one_of("guard", "off"),
    "optimize": _one_of(0, 3),
}  # fmt: skip
_CHECK_KEYS: dict[str, Callable[[str, object], Any]] = {
    "strict": _flag, "lints": _flag, "explain-guards": _flag, "remarks": _flag,
}  # fmt: skip


def _refused(
    file: str,
    what: str,
    text: Text | None = None,
    span: Span | None = None,
    helps: tuple[str, ...] = (),
) -> TesseraError:
    """The file is named as it is reached from the working folder; a span brings its line."""
    found = Diagnostic("T0820", f"{os.path.relpath(file)} {what}", span, helps=helps)
    if text is None or span is None:
        return TesseraError((found,))
    return TesseraError((found,), render((found,), {text.source.path: text.source}).rstrip())


def defaults_of_commands() -> dict[str, dict[str, Any]]:
    """What the options of subcommands are where neither line nor environment says. Raises
    TesseraError."""
    found = project()
    if found is None:
        return {}
    # `optimize` has no option: ``options.from_environment`` knows it.
    settings = {k: v for k, v in found.settings.items() if k != "optimize"}
    if "path" in settings:
        settings["search"] = settings.pop("path")
    checks = {k.replace("explain-", ""): v for k, v in found.check.items()}
    names = ("check", "run", "test", "build", "emit", "fix")
    return {name: {**settings, **(checks if name == "check" else {})} for name in names}
