"""``tesserac``: the entry point, exit codes and what happens when something fails.

Owns the way from the command line to an exit code. Must not import more than it needs: the
version is answered without click, and each subcommand brings its own imports.

Exit codes: 0 clean, 1 diagnostics, 2 usage, 3 a failed run, 101 a fault of ours, 130 Ctrl-C.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn, TextIO

from tessera_lang.driver.exit_codes import BROKEN_PIPE, INTERRUPTED, OUR_FAULT, USAGE


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``tesserac`` and leave the process with its exit code."""
    # Trees live as long as the process and are hardly ever in cycles: to look at all of them
    # after each few hundred new objects is a third of the time of a check.
    gc.set_threshold(50_000, 10, 10)
    arguments = list(sys.argv[1:] if argv is None else argv)
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """The exit code of ``tesserac`` with these arguments."""
    if arguments in (["--version"], ["-V"]):
        from tessera_lang import __version__

        print(f"tesserac {__version__}")
        return 0
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        return _guarded(arguments)
    except BrokenPipeError:
        _silence()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def _open_streams() -> None:
    """Python has no stream where the caller closed it: what is written there goes nowhere."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _silence() -> None:
    """Nobody reads the output any more: keep the interpreter from complaining at its end."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:  # fmt: skip
    """Notes of the runtime as diagnostics; what other packages warn of without its line."""
    ours = category.__name__ == "TesseraWarning"
    sys.stderr.write(f"{message}\n" if ours else f"warning: {message}\n")


def _takes_settings(arguments: list[str]) -> bool:
    """Whether a project's file counts: help is given without it."""
    compiles = {"check", "run", "test", "build", "emit", "fix"}
    return bool(arguments) and arguments[0] in compiles and not {"-h", "--help"} & {*arguments}


def _guarded(arguments: list[str]) -> int:
    """Run the command; every exception becomes a message and an exit code."""
    import click

    from tessera_lang.driver.commands import group
    from tessera_lang.driver.project import defaults_of_commands

    warnings.showwarning = _show_warning
    try:
        defaults = defaults_of_commands() if _takes_settings(arguments) else {}
        result = group.main(
            args=arguments, prog_name="tesserac", standalone_mode=False, default_map=defaults
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        error.show(sys.stderr)
        return USAGE
    except click.ClickException as error:
        error.show(sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  # the last net: no traceback reaches a user
        return _failed(error, arguments)


def _failed(error: Exception, arguments: list[str]) -> int:
    from tessera_lang.diagnostics import TesseraError

    if isinstance(error, TesseraError):
        from tessera_lang.driver.commands.output import show_error

        return show_error(error)
    if isinstance(error, OSError) and error.errno is not None:
        reason = (error.strerror or str(error)).lower()
        where = f"{error.filename}: " if isinstance(error.filename, (str, bytes)) else ""
        sys.stderr.write(f"error: {where}{reason}\n")
        if error.errno in (errno.ENOSPC, errno.EROFS, errno.EACCES):
            sys.stderr.write("  = help: make room or name another folder; TMPDIR counts too\n")
        return USAGE
    if os.environ.get("TESSERA_BACKTRACE") == "1":
        import traceback

        traceback.print_exception(error)
    from tessera_lang.driver.crash_report import write_report

    sys.stderr.write(write_report(error, arguments))
    return OUR_FAULT


if __name__ == "__main__":
    main()
