"""Random convolutions: right on every target, and on the matrix units where their dtypes are."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.driver.session import Session
from tessera_lang.opt.schedule.decide import tile_coarsening
from tessera_lang.opt.schedule.query.kernel_facts import Facts
from tessera_lang.target.backend import TargetOptions
from tests.fuzz.convolutions import (
    Array,
    Choice,
    convolution,
    differs,
    random_choice,
    shapes_of,
    text_of,
)
from tests.fuzz.products import placed
from tests.on_device import call
from tests.sampling import few

CASES = list(itertools.product(range(40), ("cpu", "sm_90a", "sm_80")))
"""Programs of a block of seeds, on a target."""


def ran(text: str, arguments: tuple[Array, ...], where: str) -> Any:
    arch, target = (where, "cpu") if where.startswith("sm_") else ("", where)
    options = replace(options_from_environment(), target=target, arch_as=arch)
    module = Module("<source>", SessionProvider("<source>", options, text=text), target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(module.kernel, list(arguments), target)


def tried(seed: int, where: str) -> str:
    r = np.random.default_rng(seed)
    choice = random_choice(r)
    made = convolution(choice, r)
    found = differs(made, lambda text, arguments: ran(text, arguments, where))
    return f"seed {seed}: {choice}: {found}\n{made.text}" if found else ""


@pytest.mark.parametrize(("block", "where"), CASES)
@pytest.mark.sample(1)
def test_results_are_what_numpy_has(block: int, where: str, whole: bool) -> None:
    for seed in few(range(4 * block, 4 * block + 4), 2, whole):
        assert not (said := tried(seed, where)), said


@pytest.mark.gpu
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(b, marks=pytest.mark.slow) for b in range(1, 10))]
)
def test_results_on_a_gpu(block: int) -> None:
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        assert not (said := tried(seed, "cuda")), said


def emitted(choice: Choice) -> tuple[Any, str]:
    session = Session(overlay={"k.tessera": text_of(choice)})
    machine = session.machine("cuda", "sm_90a")
    shapes = [f"{n}: {choice.dtype}{list(s)}" for n, s in shapes_of(choice).items()]
    wanted = session.signature("k.tessera", "kernel", ", ".join(shapes))
    options = TargetOptions("cuda", machine.arch)
    artifact = session.compile_kernel("k.tessera", "kernel", wanted, options, ("ptx",))
    schedule = session.for_machine("k.tessera", "kernel", wanted, machine)
    assert artifact.resources.spill_bytes == 0
    return schedule, artifact.texts["ptx"]


SIZES = (32, 64, 96)
ALL = [
    Choice(rank, dtype, (2,) * (rank - 1) + (1,), (1,) * (rank - 1) + (3,), 1, image, weights,
           then, (64, 32, 64), (*SIZES, *(3,) * rank, *(25,) * (rank - 1), 250))
    for rank in (1, 2, 3) for dtype in ("bf16", "f16") for image in ("first", "last")
    for weights in ("o i k", "i o k", "k o i", "k i o", "o k i")
    for then in ("plain", "bias", "sums", "twice")
]  # fmt: skip


@pytest.mark.parametrize("choice", ALL, ids=str)
@pytest.mark.sample(1)
def test_products_are_asynchronous_and_in_rings(choice: Choice) -> None:
    made, ptx = emitted(choice)
    found = placed(made, ptx)
    assert found.asked == 1
    assert not found.missing, [d.message for d in made.remarks]


def copies(choice: Choice) -> int:
    schedule, _ = emitted(choice)
    return sum(len(launch.lowered[1].copies) for launch in schedule.launches)


@pytest.mark.slow
def test_what_few_tiles_read_is_not_copied() -> None:
    """A small image and its weights are not worth a launch, however often they are read."""
    small, large = (1, 64, 64, 3, 3, 4, 20), (32, 64, 256, 3, 3, 250, 250)
    for sizes, weights, count in (
        (small, "o i k", 0), (small, "k o i", 0), (large, "k o i", 1), (large, "o i k", 2),
    ):  # fmt: skip
        choice = Choice(
            2, "bf16", (1, 1), (1, 1), 1, "first", weights, "plain", (64, 32, 64), sizes
        )
        assert copies(choice) == count


@pytest.mark.parametrize("where", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("block", range(10))
@pytest.mark.slow
def test_the_largest_tiles_are_right(
    block: int, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neighbouring tiles as one, whatever that costs: also those that begin at shifted places."""
    wider: list[int] = []

    def area(facts: Facts, _: object) -> float:
        wider.append(sum(int(d.shape[0]) * int(d.shape[1]) for d in facts.dots))
        return -wider[-1]

    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tile_coarsening, "_price", area)
    monkeypatch.setattr(tile_coarsening, "WIDER_WORTH", 1)
    for seed in range(2000 + 4 * block, 2004 + 4 * block):
        assert not (said := tried(seed, where)), said
    assert len(set(wider)) > 1
