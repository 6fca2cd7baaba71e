"""``break``, ``continue`` and early ``return``: what Python does, in tile kernels and in lanes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tests.unit.schedule import control_programs as programs


def loaded(text: str, target: str = "cpu") -> Any:
    arch_as, target = (target, "cpu") if target.startswith("sm_") else ("", target)
    options = replace(options_from_environment(), target=target, arch_as=arch_as)
    return Module("<source>", SessionProvider("<source>", options, text=text), target)


def compared(seeds: range, tiles: bool, target: str = "cpu") -> None:
    bodies = {f"k{seed}": programs.body_of(seed, tiles) for seed in seeds}
    text = "\n\n".join(programs.kernel_text(k, b, tiles) for k, b in bodies.items())
    module = loaded(text, target)
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


GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_tile_kernels_as_python(target: str) -> None:
    compared(range(4), True, target)


def test_lane_kernels_as_python() -> None:
    compared(range(4), False)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90a", GPU])
@pytest.mark.parametrize("part", range(5))
def test_more_tile_kernels_as_python(part: int, target: str) -> None:
    compared(range(4 + 20 * part, 24 + 20 * part), True, target)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_more_lane_kernels_as_python(part: int) -> None:
    compared(range(4 + 20 * part, 24 + 20 * part), False)
