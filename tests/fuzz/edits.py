"""Random edits of examples and of the library, for as long as is asked: after each, what the server
says is what a fresh one says, in each encoding (``tests/lsp/test_random_edits.py``).

    python -m tests.fuzz.edits --from 1000 --edits 10000 --seconds 3600

Prints each history that failed, with its seed, and at the end how many edits were compared.
``--from SEED --edits 10`` runs one again.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
import traceback
from pathlib import Path

from tests.lsp.test_random_edits import ENCODINGS, SAMPLES, SLOW, compared

LENGTH = 10  # edits of a history
RARE = 0.1  # how much rarer histories of a file are whose check takes seconds


def sample_of(seed: int) -> Path:
    weights = [*(1.0 for _ in SAMPLES), *(RARE for _ in SLOW)]
    return random.Random(seed).choices([*SAMPLES, *SLOW], weights)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--edits", type=int, default=10_000, help="in each encoding")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--log", type=Path, default=None, help="where failures and counts go too")
    options = parser.parse_args()
    end, failed, done, seed = time.monotonic() + options.seconds, list[int](), 0, options.first
    log = options.log.open("a", encoding="utf-8") if options.log is not None else None
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # a check makes many objects and drops few in circles

    def say(text: str) -> None:
        for stream in (sys.stdout, *((log,) if log is not None else ())):
            stream.write(text + "\n")
            stream.flush()

    while done < options.edits and time.monotonic() < end:
        try:
            for _ in compared(seed, sample_of(seed), LENGTH):
                done += 1
                if time.monotonic() > end:
                    break
        except Exception:  # whatever it is, with its seed
            failed.append(seed)
            said = traceback.format_exc()[-4000:]
            say(f"seed {seed} ({sample_of(seed).name}) failed:\n{said}")
        seed += 1
        if seed % 10 == 0:
            say(f"{done} edits, seeds {options.first} to {seed - 1}, {len(failed)} failed")
    say(f"at the end {done} edits in each of {', '.join(ENCODINGS)}, seeds {options.first} to "
        f"{seed - 1}, failed: {failed or 'none'}")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
