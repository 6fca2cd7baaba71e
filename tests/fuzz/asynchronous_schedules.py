"""Random schedules for Hopper, through the runtime: ``arch_as`` beside the CPU's ordinary way.

Every schedule says what makes the code asynchronous: tiles, stages, roles, clusters, groups that
stay, swizzles, padding. Where nothing is reordered (sums of small integers are exact in any
grouping) the bits are those of the kernel without a schedule.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.diagnostics import TesseraError
from tessera_lang.record import replace
from tests.fuzz.tile_programs import Array
from tests.fuzz.tile_programs_reference import evaluated, wrong
from tests.fuzz.tile_schedules import KERNELS, Kernel, arguments, program_of

_STAGED = ("product", "product_and_sum", "into", "loops", "two_sums", "buffers", "attention",
           "triangle", "chain")  # fmt: skip
CHOSEN = tuple(k for k in KERNELS if k.name in _STAGED)
SIZES = (64, 65, 72, 128, 130, 192)


def directives(r: random.Random, kernel: Kernel) -> list[str]:
    """Of each kind one in most schedules."""
    every = {
        "pipeline_stages": r.randrange(1, 6),
        "warp_specialize": r.random() < 0.8,
        "cluster": r.choice(((1, 1), (2, 1), (1, 2), (2, 2))),
        "persistent": r.random() < 0.7,
        "swizzle": r.choice((0, 32, 64, 128)),
    }
    lines = [f"schedule.{name}({value})" for name, value in every.items() if r.random() < 0.6]
    if kernel.axes:
        shape = tuple(r.choice((64, 128, 128, 32)) for _ in range(kernel.axes))
        lines.append(f"schedule.tile({shape})")
    if r.random() < 0.3:
        lines.append(f"schedule.use_shared_memory(True, padding={r.choice((0, 4, 8))})")
    return lines


def called(
    kernel: Kernel, lines: Sequence[str], sizes: dict[str, int], seed: int, arch_as: str = ""
) -> tuple[list[Array], list[Array]]:
    """What a kernel writes and returns on the CPU, and its arguments before the call."""
    program = program_of(kernel, "bf16", lines)
    given = arguments(program, sizes, kernel.exact, seed)
    before = [a.copy() for a in given]
    options = replace(options_from_environment(), target="cpu", arch_as=arch_as)
    provider = SessionProvider("<source>", options, text=program.text())
    module: Any = Module("<source>", provider, "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = module.kernel(*given)
    written = [a for p, a in zip(program.parameters, given, strict=True) if p.mut]
    results: list[Any] = [] if found is None else [found]
    if isinstance(found, tuple):
        results = list(found)  # pyright: ignore[reportUnknownArgumentType]
    return [np.asarray(x) for x in (*written, *results)], before


def compared(seed: int, arch_as: str = "sm_90a") -> str:
    """``equal``, ``refused``, or what is wrong."""
    r = random.Random(seed)
    kernel = CHOSEN[seed % len(CHOSEN)]
    lines = directives(r, kernel)
    sizes = {s: r.choice(SIZES) for s in "mnk"}
    if r.random() < 0.5:
        sizes = {s: r.choice((64, 128, 192)) for s in "mnk"}
    sizes["d"] = r.choice((16, 32, 64))
    try:
        found, before = called(kernel, lines, sizes, seed, arch_as)
    except TesseraError as error:
        codes = [d.code for d in error.diagnostics if d.severity == "error"]
        refused = codes and all(c.startswith(("T06", "T07")) for c in codes)
        return "refused" if refused else f"{kernel.name} {lines} {sizes}: {error}"
    plain, _ = called(kernel, (), sizes, seed)
    program = program_of(kernel, "bf16", ())
    arrays = {p.name: (a, p.dtype) for p, a in zip(program.parameters, before, strict=True)}
    with np.errstate(all="ignore"):
        tensors, results = evaluated(program.body, arrays, sizes)
    right = [tensors[p.name] for p in program.parameters if p.mut] + results
    for r64, mine, other in zip(right, found, plain, strict=True):
        difference = wrong(r64, mine)
        if not difference and kernel.exact and mine.tobytes() != other.tobytes():
            difference = "the bits are others than without a schedule"
        if difference:
            return f"{kernel.name} {lines} {sizes}: {difference}"
    return "equal"
