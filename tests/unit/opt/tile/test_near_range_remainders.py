"""Remainders without division: which are found, and that each gives what `%` gives in Python."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner

import tessera_lang as tessera
from tessera_lang.driver.commands import group
from tessera_lang.ir.verify import verify
from tessera_lang.opt.tile.near_range_remainders import near_range_remainders
from tests.unit.analysis.ranges.test_ranges_sound import arguments
from tests.unit.random_tile import random_kernel
from tests.unit.tile_interpreter import launch

WRAPPED = {
    "right": "(i + 1) % n",
    "left": "(i + n - 1) % n",
    "left, below": "(i - 1) % n",
    "far": "(i + n) % n",
    "opposite": "(n - 1 - i) % n",
    "minus": "(i - n) % n",
    "itself": "i % n",
    "of a lane": "(tile_id(0) + 5) % 63",
    "of a lane, below": "(tile_id(0) - 40) % 50",
    "uniform": "(group_linear_id() + 1) % (group_linear_id() + 2)",
    "narrow": "index((i32(tile_id(0)) - 3) % i32(61))",
    "a product": "(i * 2) % n",
    "mirrored": "(0 - i - 1) % n",
    "twice": "((i + 1) % n + 1) % n",
}
LEFT = {
    "any distance": "(i + k) % n",
    "three times": "(i + 3 * n) % n",
    "a product": "(i * 3) % n",
    "another size": "i % max(k, 1)",
    "a power of two": "(i + 1) % 64",
    "far below": "(0 - i - 2) % n",
}
KERNEL = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: i64[n], out: mut i64[n], k: index):
    i = grid_tile_linear_id()
    if i < n:
        at = {index}
        out[i] = i64(at) * 1000000 + x[min(max(at, 0), n - 1)]
"""


def python(text: str, i: int, n: int, k: int) -> int:
    """What Python makes of an index."""
    names = {
        "i": i, "n": n, "k": k, "tile_id": lambda axis: i % 64, "max": max, "index": int,
        "group_linear_id": lambda: i // 64, "i32": int,
    }  # fmt: skip
    return eval(text, names)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 63, 64, 65, 200, 1000])
@pytest.mark.sample(1)
def test_each_gives_what_python_gives(n: int) -> None:
    for text in (*WRAPPED.values(), *LEFT.values()):
        kernel = tessera.compile(KERNEL.format(index=text), target="cpu").k
        x = np.random.default_rng(n).integers(0, 1000000, n)
        for k in (0, 1, 7, 3 * n + 2):
            out = np.zeros(n, np.int64)
            kernel(x, out, k)
            at = np.array([python(text, i, n, k) for i in range(n)])
            assert np.array_equal(out, at * 1000000 + x[np.clip(at, 0, n - 1)]), (text, k)


def behind_the_pass(text: str, tmp_path: Path) -> str:
    path = tmp_path / "k.tessera"
    path.write_text(KERNEL.format(index=text), encoding="utf-8")
    asked = [
        "emit",
        str(path),
        "--stage=llvm",
        "--target=cpu",
        "--print-after=near_range_remainders",
    ]
    done = CliRunner().invoke(group, asked)
    assert done.exit_code == 0, done.output
    return str(done.output)


def remainders(text: str) -> int:
    """Those of a constant launch size are not in question."""
    body = text.split('"tile.lane', 1)[-1].split("target triple")[0]
    return len(re.findall(r"tile\.mod", body))


@pytest.mark.parametrize("name", WRAPPED)
def test_those_that_are_found(name: str, tmp_path: Path) -> None:
    assert remainders(behind_the_pass(WRAPPED[name], tmp_path)) == 0


@pytest.mark.parametrize("name", LEFT)
def test_those_that_are_left(name: str, tmp_path: Path) -> None:
    assert remainders(behind_the_pass(LEFT[name], tmp_path)) == 1


def test_random_programs_do_the_same() -> None:
    found = 0
    for seed in range(60):
        program = verify(random_kernel(Random(seed).choice))
        made = verify(near_range_remainders(program))
        found += made is not program
        choose = Random(seed)
        (before,), (after,) = program.operations, made.operations
        for _ in range(3):
            given = arguments(choose)
            other = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
            assert launch(before, given, 3) == launch(after, other, 3), seed
            assert np.array_equal(given[0], other[0]), seed
    assert found > 5


def test_a_zero_divisor_is_told() -> None:
    """Only a divisor that is surely above 0 is looked at."""
    source = """
@kernel tile[(64,)] grid[(1,)]
def k(out: mut i64[n], m: index):
    i = tile_id(0)
    if i < n: out[i] = i64((i + 1) % m)
"""
    kernel = tessera.compile(source, target="cpu").k
    out = np.zeros(64, np.int64)
    kernel(out, 5)
    assert out.tolist() == [(i + 1) % 5 for i in range(64)]
    with pytest.raises(tessera.TesseraError):
        kernel(out, 0)


@pytest.mark.optimized
def test_a_ring_is_of_vectors(tmp_path: Path) -> None:
    """Groups inside read their neighbours side by side."""
    source = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def k(x: f32[n], out: mut f32[n], k: index):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[(i + n - 1) % n] * 0.5 + x[(i + 1) % n]
"""
    path = tmp_path / "ring.tessera"
    path.write_text(source, encoding="utf-8")
    done = CliRunner().invoke(group, ["emit", str(path), "--stage=llvm", "--target=cpu"])
    assert done.exit_code == 0 and " urem " not in done.output and " srem " not in done.output
    assert re.search(r"fmul <(4|8|16) x float>", done.output)
