"""Lane loops of few lanes: those that vectors run are vectorized, others unrolled as before.

The code is made for one processor by name, so that it is the same on every machine.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tessera_backend.cpu.host_cpu import host_machine
from tessera_backend.cpu.vectorization_hints import LaneLoopCosts

import tessera_lang as tessera
from tessera_lang.driver.commands import group

pytestmark = pytest.mark.optimized

GROUPS = [(4, 8), (8, 16), (16, 16), (2, 32), (32, 8), (2, 4, 16), (16,), (32,)]

SUM = """
@kernel tile[{group}] grid[(ceil_div(m, {y}), ceil_div(n, {x}))]
def taps(a: f32[m, n], w: f32[k], out: mut f32[m, n]):
    i = group_id(0) * {y} + {row}
    j = group_id(1) * {x} + {column}
    if i < m and j + k <= n:
        acc = 0.0
        for q in range(k): acc += a[i, j + q] * w[q]
        out[i, j] = acc
"""
FLIP = """
@kernel tile[{group}] grid[(ceil_div(m, {y}), ceil_div(n, {x}))]
def taps(a: f32[m, n], w: f32[k], out: mut f32[n, m]):
    i = group_id(0) * {y} + {row}
    j = group_id(1) * {x} + {column}
    if i < m and j < n: out[j, i] = a[i, j]
"""


def source(text: str, lanes: tuple[int, ...]) -> str:
    """A kernel of which the last axis of a group goes along rows, the one before over them."""
    last = len(lanes) - 1
    row = "0" if last == 0 else f"tile_id({last - 1})"
    if last == 2:
        row = f"(tile_id(0) * {lanes[1]} + {row})"
    y = int(np.prod(lanes[:-1]))
    axes = f"({', '.join(map(str, lanes))},)"
    return text.format(group=axes, y=y, x=lanes[-1], row=row, column=f"tile_id({last})")


def llvm(text: str, tmp_path: Path) -> str:
    path = tmp_path / "taps.tessera"
    path.write_text(text, encoding="utf-8")
    arch = "x86-64-v3" if host_machine() == "x86_64" else "generic"
    asked = ["emit", str(path), "--stage=llvm", "--target=cpu", f"--arch={arch}"]
    done = CliRunner().invoke(group, asked)
    assert done.exit_code == 0, done.output
    return str(done.output)


@pytest.mark.parametrize("lanes", GROUPS, ids=str)
@pytest.mark.sample(2)
def test_a_sum_over_taps_is_of_vectors(
    lanes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All multiplications of the loop without guards: the neighbours along a row at once."""
    kept: list[bool] = []
    answer = LaneLoopCosts.stays_a_loop
    monkeypatch.setattr(
        LaneLoopCosts,
        "stays_a_loop",
        lambda own, piece: kept.append(answer(own, piece)) or kept[-1],
    )
    text = llvm(source(SUM, lanes), tmp_path)
    assert any(kept) and re.search(r"fmul <(4|8) x float>", text)
    width = 8 if host_machine() == "x86_64" else 4
    assert f"load <{width} x float>" in text and f"fadd <{width} x float>" in text


@pytest.mark.parametrize("lanes", GROUPS, ids=str)
@pytest.mark.sample(2)
def test_a_transpose_is_no_loop_that_is_kept(lanes: tuple[int, ...], tmp_path: Path) -> None:
    """Half of its accesses lie apart: vectors would do them one by one."""
    assert "llvm.loop.unroll.disable" not in llvm(source(FLIP, lanes), tmp_path)


@pytest.mark.parametrize("lanes", GROUPS, ids=str)
@pytest.mark.parametrize("shape", [(1, 9), (16, 37), (33, 64), (70, 129)], ids=str)
@pytest.mark.sample(1)
def test_results_are_those_of_one_lane_after_the_other(
    lanes: tuple[int, ...], shape: tuple[int, int]
) -> None:
    """Bit for bit, in groups that are whole and in those at the edges."""
    rng = np.random.default_rng(sum(shape))
    a, w = rng.standard_normal(shape, np.float32), rng.standard_normal(5, np.float32)
    m, n = shape
    want = np.full(shape, np.float32(7))
    acc: Any = np.zeros((m, n - 4), np.float32)
    for q in range(5):
        acc = acc + a[:, q : n - 4 + q] * w[q]
    want[:, : n - 4] = acc
    found = np.full(shape, np.float32(7))
    tessera.compile(source(SUM, lanes), target="cpu").taps(a, w, found)
    np.testing.assert_array_equal(found, want)
    flipped = np.full((n, m), np.nan, np.float32)
    tessera.compile(source(FLIP, lanes), target="cpu").taps(a, w, flipped)
    np.testing.assert_array_equal(flipped, a.T)


WARPS = """
@kernel tile[(256,)] grid[(1,)]
def taps(x: u32[n], out: mut u32[n]):
    keys = tlocal.alloc((16,), u32)
    t = tile_id(0)
    for s in range(16): keys[s] = x[min(t * 16 + s, n - 1)] if n > 0 else u32(0)
    total = u32(0)
    for s in range(16): total += warp_shuffle(keys[s], lane_id() ^ 1)
    if t < n: out[t] = total
"""


def test_copies_between_lanes_stay_loops(tmp_path: Path) -> None:
    """Each copy of 256 lanes as straight code would be thirty lines; there are many of them."""
    text = llvm(WARPS, tmp_path)
    assert text.count("\n") < 1100


@pytest.mark.slow  # the cheap case is the one above: what took the time were such copies
@pytest.mark.parametrize(("elements", "seconds"), [(1000, 1.5), (10_000, 4.5)])
def test_sorting_compiles_in_time(elements: int, seconds: float) -> None:
    """In processor time, which does not depend on what else the machine does: five kernels of a
    radix sort took seven seconds, and take three; one that sorts a few thousand takes half of one.
    """
    import os
    import subprocess
    import sys

    run = (
        "import time, numpy as np, tessera_lang as tessera\n"
        "f = tessera.load('std.sort', target='cpu').sort\n"
        "begin = time.process_time()\n"
        f"f(np.arange({elements}, dtype=np.float32)[::-1].copy())\n"
        "print(time.process_time() - begin)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, check=True,
        env={**os.environ, "TESSERA_CACHE": "off"},
    )  # fmt: skip
    assert float(done.stdout) < seconds
