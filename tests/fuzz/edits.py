"""Random edits of examples and of the library, for as long as is asked: after each, what the server
says is what a fresh one says (``tests/lsp/test_random_edits.py``).

    python -m tests.fuzz.edits --encoding utf-16 --from 1000 --edits 10000 --seconds 3600

Prints a line for each history that failed, with its seed, and at the end how many edits were
compared. ``history(SEED, SAMPLES, ENCODING, 10)`` runs one again.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

from tests.lsp.test_random_edits import SAMPLES, history

LENGTH = 10  # edits of a history


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoding", choices=("utf-8", "utf-16", "utf-32"), default="utf-16")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--edits", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--log", type=Path, default=None, help="where failures and counts go too")
    options = parser.parse_args()
    end, failed, done, seed = time.monotonic() + options.seconds, list[int](), 0, options.first
    log = options.log.open("a", encoding="utf-8") if options.log is not None else None

    def say(text: str) -> None:
        for stream in (sys.stdout, *((log,) if log is not None else ())):
            stream.write(text + "\n")
            stream.flush()

    while done < options.edits and time.monotonic() < end:
        try:
            history(seed, SAMPLES, options.encoding, LENGTH)
        except Exception:  # whatever it is, with its seed
            failed.append(seed)
            say(f"{options.encoding} seed {seed} failed:\n{traceback.format_exc()[-4000:]}")
        done, seed = done + LENGTH, seed + 1
        if done % 100 == 0:
            say(f"{options.encoding}: {done} edits, seeds {options.first} to {seed - 1}, "
                f"{len(failed)} histories failed")  # fmt: skip
    say(f"{options.encoding}: {done} edits at the end, seeds {options.first} to {seed - 1}, "
        f"failed: {failed or 'none'}")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
