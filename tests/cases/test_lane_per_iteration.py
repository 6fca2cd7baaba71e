"""Kernels written an element at a time: on a GPU a lane takes an iteration, not a group."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tessera_lang.target.tuned_constants import LANE_ITERATIONS

Array = np.ndarray[Any, np.dtype[Any]]
TARGETS = ["cpu", "as sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)]

POOL = """
@op.kernel
def f[K: int, S: int, P: int, D: int](x: f32[b, h, w], y: mut f32[b, oh, ow]):
    span = D * (K - 1) + 1
    for i, p, q in op.tile_range(b, oh, ow, step=1):
        top = max(p * S - P, (p * S - P) % D)
        left = max(q * S - P, (q * S - P) % D)
        y[i, p, q] = op.max(
            x[i, top:min(top + span, p * S - P + span):D, left:min(left + span, q * S - P + span):D]
        )
"""
PROGRAMS: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "a copy": ("y[i, j] = x[i, j] * 2.0", lambda x: x * 2),
    "a stencil": (
        "y[i, j] = 0.25 * (x[max(i - 1, 0), j] + x[min(i + 1, m - 1), j]"
        " + x[i, max(j - 1, 0)] + x[i, min(j + 1, n - 1)])",
        lambda x: 0.25 * (
            x[np.maximum(np.arange(len(x)) - 1, 0)]
            + x[np.minimum(np.arange(len(x)) + 1, len(x) - 1)]
            + x[:, np.maximum(np.arange(x.shape[1]) - 1, 0)]
            + x[:, np.minimum(np.arange(x.shape[1]) + 1, x.shape[1] - 1)]
        ),
    ),
    "a window": (
        "y[i, j] = op.sum(x[i:min(i + 3, m), j:min(j + 2, n)])",
        lambda x: sum(
            np.pad(x, ((0, 3), (0, 2)))[a : a + len(x), b : b + x.shape[1]]
            for a in range(3) for b in range(2)
        ),
    ),
    "a condition": (
        "if (i + j) % 3 == 0:\n    y[i, j] = x[i, j]\nelse:\n    y[i, j] = -x[i, j]",
        lambda x: np.where((np.indices(x.shape).sum(0)) % 3 == 0, x, -x),
    ),
    "taps in a loop": (
        "s = 0.0\nfor k in range(4):\n    if j + k < n:\n        s += x[i, j + k] * f32(k + 1)\n"
        "y[i, j] = s",
        lambda x: sum((k + 1) * np.pad(x, ((0, 0), (0, 4)))[:, k : k + x.shape[1]]
                      for k in range(4)),
    ),
    "a product": (
        "s = 0.0\nfor k in range(m):\n    s += x[i, k % n] * x[k, j]\ny[i, j] = s",
        lambda x: np.stack([x[:, k % x.shape[1]] for k in range(len(x))], axis=1) @ x,
    ),
    "several at once": (
        "t = x[i, j:j+1] + op.arange(1).to(f32)\ny[i, j:j+1] = op.exp(t) - t",
        lambda x: np.exp(x) - x,
    ),
}  # fmt: skip
KERNEL = """
@op.kernel
def f(x: f32[m, n], y: mut f32[m, n]):
    for i, j in op.tile_range(m, n, step=1):
{}
"""


def kernel(body: str) -> str:
    return KERNEL.format("\n".join(f"        {line}" for line in body.split("\n")))


def loaded(text: str, target: str, folder: Path) -> Any:
    path = folder / "k.tessera"
    path.write_text(text)
    how = {"target": "cpu", "arch_as": target[3:]} if target[:2] == "as" else {"target": target}
    return tessera.load(str(path), **how).f


def by_lanes(text: str, signature: str, arch: str = "sm_90a") -> bool:
    """Whether the decided schedule gives each iteration to a lane."""
    session = Session(overlay={"k.tessera": text})
    options = TargetOptions("cuda", arch)
    wanted = session.signature("k.tessera", "f", signature)
    made = session.for_machine("k.tessera", "f", wanted, session.machine("cuda", arch))
    assert options.arch == arch
    return made.schedule.operations[0].attributes.get("iterations") == "lanes"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.sample(2)
def test_elements(name: str, target: str, tmp_path: Path) -> None:
    """Also where the last group has lanes without an iteration, and where there is none."""
    body, wanted = PROGRAMS[name]
    f = loaded(kernel(body), target, tmp_path)
    assert by_lanes(kernel(body), "x: f32[128, 257], y: f32[128, 257]")
    for m, n in ((128, 257), (1, LANE_ITERATIONS + 1), (5, 7), (0, 3)):
        x = np.random.default_rng(m).normal(size=(m, n)).astype(np.float32)
        y = np.zeros_like(x)
        f(x, y)
        if x.size:
            expected = wanted(x.astype(np.float64))
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-4)


def pooled(x: Array, k: int, s: int, p: int, d: int) -> Array:
    def count(n: int) -> int:
        return (n + 2 * p - d * (k - 1) - 1) // s + 1

    b, h, w = x.shape
    padded = np.pad(x, ((0, 0), (p, p), (p, p)), constant_values=-np.inf)
    out = np.full((b, count(h), count(w)), -np.inf, x.dtype)
    for i, j in itertools.product(range(k), range(k)):
        rows = slice(i * d, i * d + s * (out.shape[1] - 1) + 1, s)
        columns = slice(j * d, j * d + s * (out.shape[2] - 1) + 1, s)
        out = np.maximum(out, padded[:, rows, columns])
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", [(3, 2, 1, 3), (2, 2, 0, 1), (3, 1, 1, 1), (4, 3, 2, 2)])
@pytest.mark.sample(1)
def test_windows_with_steps(form: tuple[int, int, int, int], target: str, tmp_path: Path) -> None:
    k, s, p, d = form
    x = np.random.default_rng(k).normal(size=(3, 150, 171)).astype(np.float32)
    wanted = pooled(x, k, s, p, d)
    y = np.zeros_like(wanted)
    loaded(POOL, target, tmp_path)(x, y, K=k, S=s, P=p, D=d)
    np.testing.assert_array_equal(y, wanted)


def test_each_iteration_of_a_window_is_a_lane() -> None:
    """Its length is bounded by what the program says: ``min(a + 7, ...) - a``."""
    sizes = "x: f32[16, 512, 512], y: f32[16, 254, 254], K=3, S=2, P=1, D=3"
    assert by_lanes(POOL, sizes) and by_lanes(POOL, sizes, "sm_80")
    assert not by_lanes(POOL, sizes.replace("K=3", "K=12").replace("D=3", "D=1"))


@pytest.mark.parametrize(
    "step", ["a = max(a, i - {0})\nb = min(b, n - {0} + i)", "a = a + a\nb = a + b"]
)
def test_bounds_of_long_expressions_take_no_time(step: str) -> None:
    """Every part of a number is looked at once, however many ways lead to it."""
    lines = "\n".join(step.format(k) for k in range(1, 40)).replace("\n", "\n        ")
    text = (
        "@op.kernel\ndef f(x: f32[m, n], y: mut f32[m, n]):\n"
        "    for i, j in op.tile_range(m, n, step=1):\n        a = j\n        b = j + 3\n"
        f"        {lines}\n        y[i, j] = op.sum(x[i, min(a, n):min(b, n)])\n"
    )
    begin = time.process_time()
    by_lanes(text, "x: f32[512, 512], y: f32[512, 512]")
    assert time.process_time() - begin < 10


GROUPS = {
    "rows": ("for i in op.tile_range(m, step=1):\n    y[i, :] = op.softmax(x[i, :])",
             "x: f32[65536, 64], y: f32[65536, 64]"),
    "sums of rows": ("for i in op.tile_range(m, step=1):\n    y[i, 0] = op.sum(x[i, :])",
                     "x: f32[65536, 8], y: f32[65536, 8]"),
    "columns of any length": (
        "for j in op.tile_range(n, step=1):\n    y[0, j] = op.sum(x[:, j])",
        "x: f32[512, 65536], y: f32[512, 65536]"),
    "tiles": ("for i, j in op.tile_range(m, n, step=(16, 64)):\n"
              "    y[i:i+16, j:j+64] = x[i:i+16, j:j+64] * 2.0",
              "x: f32[4096, 4096], y: f32[4096, 4096]"),
    "few": ("for i, j in op.tile_range(m, n, step=1):\n    y[i, j] = x[i, j] * 2.0",
            "x: f32[16, 16], y: f32[16, 16]"),
    "across lines": ("for i, j in op.tile_range(n, m, step=1):\n"
                     "    y[j, i] = op.max(x[j:min(j + 3, m), i])",
                     "x: f32[4096, 4096], y: f32[4096, 4096]"),
    "as was said": ("schedule.warps(4)\nfor i, j in op.tile_range(m, n, step=1):\n"
                    "    y[i, j] = x[i, j] * 2.0", "x: f32[4096, 4096], y: f32[4096, 4096]"),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPS)
def test_what_stays_with_groups(name: str) -> None:
    body, signature = GROUPS[name]
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    text = f"@op.kernel\ndef f(x: f32[m, n], y: mut f32[m, n]):\n{lines}\n"
    assert not by_lanes(text, signature)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.sample(1)
def test_no_memory_of_lanes_is_left(arch: str) -> None:
    """What an iteration holds is in registers, and nothing is shared or waited for."""
    session = Session(overlay={"k.tessera": POOL})
    sizes = "x: f32[16, 512, 512], y: f32[16, 254, 254], K=3, S=2, P=1, D=3"
    made = session.compile_kernel(
        "k.tessera", "f", session.signature("k.tessera", "f", sizes), TargetOptions("cuda", arch),
        ("ptx",),
    )  # fmt: skip
    text = made.texts["ptx"]
    assert not re.search(r"(ld|st)\.(local|shared)|bar\.sync", text)
    assert made.resources.spill_bytes <= 0
