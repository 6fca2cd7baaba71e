"""The command of the language server where the packages it needs are not installed."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import importlib.util, sys

find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *at: None if name in {names!r} else find(name, *at)
sys.argv = ["tessera-lsp", *{arguments!r}]
from tessera_lsp.server.main import main
main()
"""


def run(names: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    script = WITHOUT.format(names=names, arguments=arguments)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60, check=False, stdin=subprocess.DEVNULL)  # fmt: skip


def test_it_says_what_to_install() -> None:
    for names in (("pygls",), ("lsprotocol",), ("pygls", "lsprotocol")):
        done = run(names)
        assert done.returncode == 2
        assert "'tessera-lang[lsp]'" in done.stderr and "Traceback" not in done.stderr
        assert all(name in done.stderr for name in names) and done.stdout == ""


def test_version_and_help_need_nothing() -> None:
    for argument in ("--version", "--help"):
        done = run(("pygls", "lsprotocol"), argument)
        assert done.returncode == 0 and "tessera-lsp" in done.stdout
