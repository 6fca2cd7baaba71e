"""Lanes in parts: which axes a group gets, and that each lane does what it did as one of a row."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner
from tessera_backend.cpu.host_cpu import host_machine

import tessera_lang as tessera
from tessera_lang.driver.commands import group

# Parts that a kernel takes of its lane, the lanes, and the axes that the group gets.
TAKEN = {
    "warps": ("(t // 32) * 1000 + t % 32", 256, "8, 32"),
    "bits": ("(t >> 5) * 1000 + (t & 31)", 256, "8, 32"),
    "remainder": ("t % 64", 128, "2, 64"),
    "axis": ("tile_id(0) // 32 * 7 + tile_id(0) % 32", 64, "2, 32"),
    "three": ("t // 128 * 100 + t // 32 % 4 * 10 + t % 128 + t % 32 * 3", 512, "4, 4, 32"),
    "two that do not nest": ("t % 48 * 100 + t % 32", 96, "3, 32"),
    "uneven": ("t // 36 * 100 + t % 36", 108, "3, 36"),
    "too short": ("t // 16 * 100 + t % 16", 64, "64"),
    "no divisor": ("t // 40 * 100 + t % 40", 64, "64"),
    "not of the lane": ("(t + 1) // 32 * 100 + (t + 1) % 32", 64, "64"),
    "no mask": ("t & 20", 64, "64"),
    "whole": ("t // 64 * 100 + t % 64", 64, "64"),
    "a vote": ("t + (1 if warp_any(t == 40) else 0)", 64, "2, 32"),
}
KERNEL = """
@kernel tile[({lanes},)] grid[(ceil_div(n, {lanes}),)]
def k(x: i64[n], out: mut i64[n]):
    t = tile_linear_id()
    i = grid_tile_linear_id()
    if i < n: out[i] = x[min(i, n - 1)] * 100000 + i64({value})
"""


def made(name: str) -> str:
    value, lanes, _ = TAKEN[name]
    text = KERNEL.format(lanes=lanes, value="part" if "warp_" in value else value)
    return text.replace("    if i", f"    part = {value}\n    if i") if "warp_" in value else text


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.sample(8)
def test_axes_of_the_group(name: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tessera"
    path.write_text(made(name), encoding="utf-8")
    asked = [
        "emit",
        str(path),
        "--stage=llvm",
        "--target=cpu",
        "--print-after=delinearize_lane_axis",
    ]
    done = CliRunner().invoke(group, asked)
    assert done.exit_code == 0, done.output
    found = re.search(r"group = \[([^\]]*)\]", str(done.output).replace(" : i64", ""))
    assert found is not None and found[1] == TAKEN[name][2]


@pytest.mark.parametrize("name", TAKEN)
def test_each_lane_does_what_it_did(name: str) -> None:
    kernel = tessera.compile(made(name), target="cpu").k
    value, lanes, _ = TAKEN[name]
    for n in (1, lanes - 1, lanes, 3 * lanes + 5):
        x = np.random.default_rng(n).integers(-100, 100, n)
        out = np.zeros(n, np.int64)
        kernel(x, out)
        want: list[int] = []
        for i in range(n):
            t = i % lanes
            voted = {"warp_any": lambda _, t=t: t >= 32}
            names = {"t": t, "tile_id": lambda axis, t=t: t, **voted}
            want.append(int(x[i]) * 100000 + eval(value, names))
        np.testing.assert_array_equal(out, want)


def shuffles(choose: Random) -> str:
    """A lane that lanes of a warp take their value of: neighbours, one for all, or any."""
    k = choose.randrange(-40, 70)
    return choose.choice(
        [f"lane - {abs(k)}", f"lane + {abs(k)}", f"{k % 32}", f"{k}", "warp", "lane + warp * 3",
         "31 - lane", "lane * 5", f"lane + d - {abs(k)}", "d", "lane - (lane & 3)",
         f"index(i32(lane) + {k})", f"index(u8(lane) + u8({k % 256}))", "index(at)"]
    )  # fmt: skip


@pytest.mark.optimized
@pytest.mark.parametrize("lanes", [32, 64, 96, 128, 40])
@pytest.mark.parametrize("dtype", ["f32", "i64", "u8", "f16"])
@pytest.mark.sample(1)
def test_shuffles_of_neighbours(lanes: int, dtype: str) -> None:
    """Each gives the value that the definition gives, whatever is known of the lanes."""
    choose = Random(f"{lanes} {dtype}")
    sources = [shuffles(choose) for _ in range(12)]
    text = f"@kernel tile[({lanes},)]\ndef k(x: {dtype}[n], d: index, out: mut {dtype}[m, n]):\n"
    text += "    lane = lane_id()\n    warp = warp_id()\n    t = tile_linear_id()\n"
    text += "    at = u32(lane) * 2654435761 >> 20\n    v = x[t]\n"
    for row, source in enumerate(sources):
        text += f"    out[{row}, t] = warp_shuffle(v, {source})\n"
    names = {"f32": np.float32, "i64": np.int64, "u8": np.uint8, "f16": np.float16}
    x = np.random.default_rng(1).integers(0, 100, lanes).astype(names[dtype])
    kernel = tessera.compile(text, target="cpu").k
    for d in (0, 7, -3):
        out = np.zeros((len(sources), lanes), x.dtype)
        kernel[1](x, d, out)
        for row, source in enumerate(sources):
            for t in range(lanes):
                lane = t % 32
                casts = {"index": int, "i32": int, "u8": lambda v: v % 256}
                scope = {"lane": lane, "warp": t // 32, "d": d, **casts}
                scope["at"] = lane * 2654435761 % 2**32 >> 20
                at = eval(source, scope) % 256 if "u8" in source else eval(source, scope)
                other = t - lane + at % 32
                assert out[row, t] == x[other if other < lanes else t], (source, d, t)


@pytest.mark.parametrize(
    "lane",
    ["-1", "32", "67", "-40", "lane ^ 37", "31 - lane", "lane * 9 - 70", "lane % 8 * 4",
     "(lane + 5) % 12", "(lane - 40) % 16", "t % 4 + 1"],
)  # fmt: skip
@pytest.mark.parametrize("lanes", [32, 64])
@pytest.mark.sample(14)
def test_shuffles_of_constants(lanes: int, lane: str) -> None:
    """Of numbers outside of a warp, too, which count modulo 32."""
    text = f"@kernel tile[({lanes},)]\ndef k(x: i32[n], out: mut i32[n]):\n    lane = lane_id()\n"
    text += f"    t = tile_linear_id()\n    out[t] = warp_shuffle(x[t], {lane})\n"
    x = np.random.default_rng(3).integers(0, 100, lanes).astype(np.int32)
    out = np.zeros_like(x)
    tessera.compile(text, target="cpu").k[1](x, out)
    for t in range(lanes):
        assert out[t] == x[t // 32 * 32 + eval(lane, {"lane": t % 32, "t": t}) % 32]


ROWS = """
@kernel tile[(64,)] grid[(ceil_div(n, {width} * 64),)]
def k(x: {dtype}[n], out: mut {dtype}[n]):
    v = tlocal.alloc(({width},), {dtype})
    first = group_id(0) * 64 + warp_id() * 32 + lane_id()
    if (group_id(0) + 1) * 64 * {width} <= n:
        for k in range({width}): v[k] = x[first * {width} + k]
        for k in range({width}): out[first * {width} + k] = v[{width} - 1 - k]
    else:
        for k in range({width}): v[k] = x[min(first * {width} + k, n - 1)]
        for k in range({width}):
            if first * {width} + k < n: out[first * {width} + k] = v[{width} - 1 - k]
"""


@pytest.mark.parametrize("width", [2, 3, 4, 7, 8, 9, 16])
@pytest.mark.parametrize("dtype", ["f32", "u8"])
@pytest.mark.sample(4)
def test_rows_of_neighbours(width: int, dtype: str) -> None:
    """Lanes that go over as many neighbours as they are apart, in groups whole and cut off."""
    kernel = tessera.compile(ROWS.format(width=width, dtype=dtype), target="cpu").k
    for n in (64 * width, 200 * width, 200 * width + 1):
        x = (
            np.random.default_rng(n)
            .integers(0, 255, n)
            .astype({"f32": np.float32, "u8": np.uint8}[dtype])
        )
        out = np.zeros_like(x)
        kernel(x, out)
        at = np.arange(n)
        want = x[np.minimum(at // width * width + width - 1 - at % width, n - 1)]
        np.testing.assert_array_equal(out, want)


@pytest.mark.optimized
@pytest.mark.parametrize("width", [2, 4, 8])
def test_rows_of_neighbours_are_loaded_as_vectors(width: int, tmp_path: Path) -> None:
    """The lanes of a group that is whole: those of one that is not may all want the last."""
    whole = ROWS.format(width=width, dtype="f32").split("    else:")[0]
    path = tmp_path / "k.tessera"
    path.write_text(whole, encoding="utf-8")
    arch = "x86-64-v4" if host_machine() == "x86_64" else "generic"
    asked = ["emit", str(path), "--stage=llvm", "--target=cpu", f"--arch={arch}"]
    done = CliRunner().invoke(group, asked)
    assert done.exit_code == 0, done.output
    body = str(done.output)
    assert re.search(r"load <\d+ x float>", body) and "llvm.masked.gather" not in body
