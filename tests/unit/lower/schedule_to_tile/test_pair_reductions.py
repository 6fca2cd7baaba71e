"""Independent reductions across warps meet one barrier, with the bits that each has alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.lower.schedule_to_tile.common import pair_reductions
from tessera_lang.target.backend import TargetOptions

pytest.importorskip("llvmlite")
BODIES = {
    "moments": ("    a = op.sum(v)\n    b = op.sum(v * v)\n    y[i, :] = v * a + b\n", 1),
    "of a mean": ("    c = v - op.mean(v)\n    a = op.mean(c)\n    b = op.mean(c * c)\n"
                  "    y[i, :] = (c - a) * b\n", 1),
    "two kinds": ("    a = op.max(v)\n    b = op.sum(v)\n    y[i, :] = (v - a) * b\n", 1),
    "used between": ("    a = op.sum(v)\n    d = a * 2.0 + 1.0\n    b = op.max(op.abs(v))\n"
                     "    y[i, :] = v * d + b\n", 1),
    "four": ("    a = op.sum(v)\n    b = op.max(v)\n    c = op.min(v)\n    d = op.sum(op.abs(v))\n"
             "    y[i, :] = (v - a) * b + c * d\n", 2),
    "one after the other": ("    a = op.max(v)\n    b = op.sum(v - a)\n    y[i, :] = v * b\n", 0),
    "a store between": ("    a = op.sum(v)\n    y[i, :] = v * a\n    b = op.max(v)\n"
                        "    y[i, :] = y[i, :] + b\n", 0),
    "places": ("    a = op.argmax(v)\n    b = op.sum(v)\n    y[i, :] = v * b + f32(a)\n", 0),
    "in a branch": ("    a = op.sum(v)\n    if i > 2:\n        b = op.max(v)\n"
                    "        y[i, :] = v * a + b\n    else:\n        y[i, :] = v * a\n", 0),
}  # fmt: skip
SIZES = (1000, 2048, 5001)
CASES = list(itertools.product(BODIES, ("sm_80", "sm_90a"), SIZES))


def source(body: str) -> str:
    return (
        "@op.kernel\ndef k(x: f32[m, n], y: mut f32[m, n]):\n"
        "  for i in op.tile_range(m, step=1):\n    v = x[i, :]\n" + BODIES[body][0]
    )


@pytest.mark.parametrize(("body", "arch", "size"), CASES)
@pytest.mark.sample(12)
def test_bits_are_the_same(
    body: str, arch: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the asynchronous model runs it, which sees a race of scratch, too; rows stay on, so that
    a buffer is used again."""
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    compare(body, size, "cpu", monkeypatch)


@pytest.mark.gpu
@pytest.mark.parametrize("body", BODIES)
def test_bits_are_the_same_on_a_gpu(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in SIZES:
        compare(body, size, "cuda", monkeypatch)


def compare(body: str, size: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_CACHE", "off")
    x = np.random.default_rng(1).standard_normal((7, size)).astype(np.float32)
    found: list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]] = []
    for paired in (True, False):
        with monkeypatch.context() as patch:
            if not paired:
                patch.setattr(pair_reductions, "_partner", lambda *_: None)
            y = np.full_like(x, np.nan)
            tessera.compile(source(body), target=target).k(x, y)
        found.append(y)
    assert not np.isnan(found[0]).any()
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("body", BODIES)
def test_each_pair_spares_a_barrier(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paired = barriers(body)
    monkeypatch.setattr(pair_reductions, "_partner", lambda *_: None)
    assert barriers(body) - paired == BODIES[body][1]


def barriers(body: str) -> int:
    session = Session(overlay={"k.tessera": source(body)})
    signature = session.signature("k.tessera", "k", "x: f32[64, 2048], y: mut f32[64, 2048]")
    options = TargetOptions("cuda", "sm_90")
    made = session.compile_kernel("k.tessera", "k", signature, options, ("ptx",))
    return made.texts["ptx"].count("bar.sync")
