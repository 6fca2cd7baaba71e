"""``tessera-lsp``: the language server over standard input and output."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec

from tessera_lang import __version__


def alive(pid: int) -> bool:
    """Whether a process of this machine runs (POSIX only)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def watch_editor(process: Callable[[], int | None], seconds: float = 2.0) -> None:
    """End when the process that started this one, or the editor (by the id it gave), has died
    without closing our input. An id that never was alive here is of another machine."""
    parent, seen = os.getppid(), set[int]()

    def watch() -> None:
        while True:
            time.sleep(seconds)
            pid = process() or 0
            if pid > 0 and alive(pid):
                seen.add(pid)
            if os.getppid() != parent or (pid in seen and not alive(pid)):
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def collect_rarely() -> None:
    """Trees and tables live long and are hardly ever in cycles: looking at all of them after
    each few thousand new objects would be the longest pause an editor sees."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def missing_packages() -> list[str]:
    """What the extra `lsp` brings and is not installed."""
    return [name for name in ("pygls", "lsprotocol") if find_spec(name) is None]


def serve() -> int:
    """Serve until the client goes; 0 if it said so first."""
    from tessera_lsp.server.features import make_server

    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but the protocol may be written there
    server = make_server()
    sys.setswitchinterval(0.001)  # the loop that reads waits so long for a check at most
    collect_rarely()
    if os.name == "posix":
        watch_editor(lambda: server.process_id)
    server.start_io(sys.stdin.buffer, output)
    return 0 if server.ended_well else 1


def is_worth_saying(record: logging.LogRecord) -> bool:
    """A cancellation often crosses the answer on its way: no reader of the output needs to know."""
    return not str(record.msg).startswith("Cancel notification for unknown message")


def main() -> None:
    """The command of this name."""
    parser = argparse.ArgumentParser(prog="tessera-lsp", description="Language server of Tessera.")
    parser.add_argument("--version", action="version", version=f"tessera-lsp {__version__}")
    parser.add_argument("--stdio", action="store_true", help="the default, and the only transport")
    # Clients pass it; the same id comes with the first request.
    parser.add_argument("--clientProcessId", type=int, help=argparse.SUPPRESS)
    parser.parse_args()
    lacking = missing_packages()
    if lacking:
        print(
            f"tessera-lsp: the language server needs {' and '.join(lacking)}, which a plain install"
            " leaves out.\nInstall 'tessera-lang[lsp]': python -m pip install 'tessera-lang[lsp]'",
            file=sys.stderr,
        )
        sys.exit(2)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    logging.getLogger("pygls.protocol.json_rpc").addFilter(is_worth_saying)
    code = serve()
    sys.stderr.flush()
    os._exit(code)  # the thread that reads our input may still wait for it


if __name__ == "__main__":
    main()
