"""Checked mode apart from the checker: kernels that nothing is refused of and nothing proved of.

``fault`` runs a kernel in three orders of lanes and says what checked mode finds. The same
programs are judged by the checker: a kernel that is proved and is found at fault here, or certainly
wrong and right here, is a fault of the one or of the other.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from tessera_backend.cpu.checked import checked_launch
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

import tessera_lang as tessera
from tessera_lang.analysis import owned
from tessera_lang.analysis.races.shared_check import Unproved
from tessera_lang.analysis.ranges.integer_ranges import Ranges
from tessera_lang.ir.core import Operation
from tessera_lang.ir.definitions import ALLOCATIONS
from tessera_lang.record import replace
from tessera_lang.target.typing_protocols import Target
from tests.stdlib.arrays import DTYPES

SIZES = (
    {"n": 256, "m": 4}, {"n": 100, "m": 3}, {"n": 1, "m": 1}, {"n": 0, "m": 2}, {"n": 33, "m": 5},
    {"n": 32, "m": 33}, {"n": 20, "m": 40}, {"n": 64, "m": 64}, {"n": 48, "m": 48, "k": 48, "w": 9},
    {"n": 256, "m": 513}, {"n": 1024, "m": 1024},
)  # fmt: skip
"""Those that the ``where`` facts of a kernel allow are launched. Other sizes are 4."""
GROUPS = 4
ELISION = "tessera_backend.cpu.checked.shadow_elision."
CHECKS = "tessera_lang.lower.ast_to_tile.kernel._checks"
TURNS = 1 << 14
"""Of a loop that waits, and of any other, after which it is endless here."""


def _no_buffers(kernel: Operation, known: object) -> Unproved:
    every = frozenset(o.result for o in kernel.walk() if o.name in ALLOCATIONS)
    return Unproved(every, every)


def _no_arrays(kernel: Operation) -> tuple[dict[Any, Any], Ranges]:
    return {}, owned(kernel)[1]


@contextmanager
def unchecked() -> Generator[None]:
    """Nothing is refused: what a kernel does must not depend on a proof."""
    with patch(CHECKS, return_value=()):
        yield


@contextmanager
def nothing_proved() -> Generator[None]:
    """Checked mode, and each element has its shadow."""
    with ExitStack() as stack:
        stack.enter_context(patch(ELISION + "unproved_buffers", _no_buffers))
        stack.enter_context(patch(ELISION + "owned", _no_arrays))
        stack.enter_context(patch.object(checked_launch, "MOST_WAITS", TURNS))
        stack.enter_context(patch.object(checked_launch, "MOST_TURNS", 1 << 22))
        stack.enter_context(patch.dict(os.environ, {"TESSERA_CHECKED": "1"}))
        yield


def module_of(text: str, target: Target = "cpu") -> Any:
    options = replace(options_from_environment(), target=target)
    return Module("<source>", SessionProvider("<source>", options, text=text), target)


def header(text: str) -> tuple[str, str]:
    """Name and parameters of the last function."""
    return re.findall(r"^def (\w+)\((.*?)\)", text, re.MULTILINE | re.DOTALL)[-1]


def arguments(text: str, sizes: dict[str, int], seed: int = 0) -> list[Any]:
    """Whole numbers for what is read (floats are all different, and with a ``seed`` as many of them
    are below 0 as above), zeros for what is written, 4 for scalars."""
    random = np.random.default_rng(seed)
    given: list[Any] = []
    pattern = r"(\w+): (?:(mut|const) )?(\w+)(?:\[([^\]]*)\])?"
    for name, how, dtype, shape in re.findall(pattern, header(text)[1]):
        if not shape:
            given.append(4.0 if dtype.startswith("f") else 4)
            continue
        names = {**dict.fromkeys(re.findall(r"[a-z_]\w*", shape), 4), **sizes, "ceil_div": _up}
        extents = [int(eval(s, {}, names)) for s in re.split(r",(?![^(]*\))", shape) if s.strip()]
        count = math.prod(extents)
        if name in ("p", "q"):
            values = np.arange(count) // (1 + seed)
        elif how == "mut":
            values = np.zeros(count)
        elif dtype.startswith("f"):
            values = random.permutation(count) - count // (2 if seed else 4)
        else:
            values = random.integers(0 if dtype[0] in "ub" else -4, 9, count)
        given.append(values.reshape(extents).astype(DTYPES[dtype]))
    return given


def _up(a: int, b: int) -> int:
    return -(-a // b)


def sizes_of(text: str) -> Iterator[dict[str, int]]:
    """Those that the text states come first."""
    stated = {a: int(b) for a, b in re.findall(r"(\w+) == (\d+)", text.split("):")[0])}
    for sizes in SIZES:
        yield {**sizes, "grid_groups": GROUPS, **stated}


def launch(text: str, sizes: dict[str, int], seed: int = 0) -> list[Any]:
    """The arguments after a run of the last kernel of the text. Raises TesseraError."""
    kernel = getattr(module_of(text), header(text)[0])
    given = arguments(text, sizes, seed)
    (kernel if "grid[" in text else kernel[GROUPS])(*given)
    return given


REFUSED = {"T0838", "T0801", "T0802", "T0803", "T0804"}
"""Arguments that a kernel does not take."""


NO_LAUNCH = "no launch"


def fault(text: str, launches: int = 7, seed: int = 0, *, outside: bool = False) -> str:
    """The first fault that checked mode finds in so many launches of different sizes, "" for none.
    ``seed``: 1 for indices ``p`` and ``q`` of which several are alike. ``outside``: an access out
    of bounds, which these sizes may make, is a fault too."""
    done = 0
    for sizes in sizes_of(text):
        found = fault_with(text, sizes, seed)
        if found == NO_LAUNCH:
            continue
        if found and (outside or not found.startswith("T0845")):
            return f"{found} ({sizes})"
        done += 1
        if done == launches:
            break
    return "" if done else NO_LAUNCH


def fault_with(text: str, sizes: dict[str, int], seed: int = 0) -> str:
    """The same of one launch; "no launch" where the kernel refuses these sizes."""
    with unchecked(), nothing_proved(), warnings.catch_warnings():
        warnings.simplefilter("ignore", tessera.TesseraWarning)
        try:
            launch(text, sizes, seed)
        except tessera.TesseraError as error:
            first = error.diagnostics[0]
            return NO_LAUNCH if first.code in REFUSED else f"{first.code} {first.message}"
    return ""
