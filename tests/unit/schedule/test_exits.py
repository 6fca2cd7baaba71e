"""``break``, ``continue`` and early ``return``: what Python does, in tile kernels and in lanes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tests.unit.schedule import control_programs as programs


def loaded(text: str) -> Any:
    provider = SessionProvider("<source>", options_from_environment(), text=text)
    return Module("<source>", provider, "cpu")


def compared(seeds: range, tiles: bool) -> None:
    bodies = {f"k{seed}": programs.body_of(seed, tiles) for seed in seeds}
    module = loaded("\n\n".join(programs.kernel_text(k, b, tiles) for k, b in bodies.items()))
    for name, body in bodies.items():
        x = np.random.default_rng(len(name)).integers(0, 9, programs.N).astype(np.int32)
        out, kept = programs.ran_by_python(body, x, tiles)
        got, got_tiles = np.zeros_like(out), np.zeros_like(kept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(module, name)(*((x, got, got_tiles) if tiles else (x, got)))
        shown = "\n".join(body)
        assert (got == out).all(), (name, got, out, shown)
        assert (got_tiles == kept).all(), (name, got_tiles, kept, shown)


def test_tile_kernels_as_python() -> None:
    compared(range(6), True)


def test_lane_kernels_as_python() -> None:
    compared(range(6), False)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [True, False])
@pytest.mark.parametrize("part", range(10))
def test_more_as_python(part: int, tiles: bool) -> None:
    compared(range(6 + 20 * part, 26 + 20 * part), tiles)
