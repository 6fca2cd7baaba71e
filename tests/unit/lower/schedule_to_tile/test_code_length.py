"""Wide tiles: code that would be too long is loops over elements, soon, and the tile is named."""

from __future__ import annotations

import time

import pytest

from tessera_lang.driver.session import Session
from tessera_lang.lower.schedule_to_tile.lowering import MOST_INSTRUCTIONS
from tessera_lang.target.backend import TargetOptions

pytest.importorskip("llvmlite")
LONG = "op.sin(op.cos(op.sin(t))) + op.exp(t)"
WHOLE = f"{LONG} + op.max(t)"  # needs all of the tile before any of it is stored


def compiled(rows: int, columns: int, expression: str, arch: str) -> tuple[list[str], float, int]:
    """What is told, seconds of the processor, and bytes of PTX."""
    text = (
        f"@op.kernel\ndef k(x: f32[{rows}, {columns}], y: mut f32[{rows}, {columns}]):\n"
        f"    for i in op.tile_range({rows}, step={rows}):\n"
        f"        t = x[i:i+{rows}, 0:{columns}]\n"
        f"        y[i:i+{rows}, 0:{columns}] = {expression}\n"
    )
    session = Session(overlay={"k.tessera": text})
    signature = session.signature("k.tessera", "k", "")
    begin = time.process_time()
    made = session.compile_kernel(
        "k.tessera", "k", signature, TargetOptions("cuda", arch), ("ptx",)
    )
    told = [str(d.message) for d in made.diagnostics if d.code == "T0747"]
    return told, time.process_time() - begin, len(made.texts["ptx"])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("shape", [(4, 16384), (4, 65536), (1, 131072), (64, 8192), (2048, 64)])
@pytest.mark.sample(1)
def test_too_long(shape: tuple[int, int], arch: str) -> None:
    told, seconds, size = compiled(*shape, WHOLE, arch)
    assert size < 80 * MOST_INSTRUCTIONS
    assert seconds < 10
    if shape != (4, 16384):  # so little work is a remark
        assert f" {' x '.join(str(n) for n in shape if n > 1)} in" in told[0]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("shape", [(4, 65536), (1, 131072), (64, 8192), (2048, 64)])
@pytest.mark.sample(1)
def test_what_needs_no_whole_tile_is_cut(shape: tuple[int, int], arch: str) -> None:
    assert compiled(*shape, LONG, arch)[0] == []


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("shape", [(4, 1024), (64, 64), (16, 512)])
@pytest.mark.sample(1)
def test_short_enough(shape: tuple[int, int], arch: str) -> None:
    assert compiled(*shape, LONG, arch)[0] == []


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("part", ["x[:, 6:, :, :-1]", "x[:, :, 1:, :]", "x[1:, :, :, :-1]"])
@pytest.mark.sample(3)
def test_a_copy_is_as_long_as_what_it_stores(part: str, arch: str) -> None:
    """Once it was one load and no more, and ptxas took minutes and gigabytes for the stores."""
    text = f"@op.kernel\ndef k(x: i8[m, p, m, q]):\n    return {part}\n"
    session = Session(overlay={"k.tessera": text})
    signature = session.signature("k.tessera", "k", "x: i8[4, 16, 4, 17]")
    begin = time.process_time()
    made = session.compile_kernel(
        "k.tessera", "k", signature, TargetOptions("cuda", arch), ("ptx",)
    )
    assert time.process_time() - begin < 10
    assert len(made.texts["ptx"]) < 80 * MOST_INSTRUCTIONS


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("x", "y", "axis"),
    [((16, 5, 5), (34, 5), -2), ((70, 9, 9), (18, 9), 0), ((8, 100), (200,), 0),
     ((3, 40, 7, 6), (6, 7, 6), 1)],
)  # fmt: skip
@pytest.mark.sample(1)
def test_an_axis_that_is_not_the_last_has_its_reduction_in_short_blocks(
    x: tuple[int, ...], y: tuple[int, ...], axis: int, arch: str
) -> None:
    """Once the sizes of the other axes were not counted: 2,048 elements a lane, and LLVM took
    minutes where every second row of an array of known length was written."""
    shape = [n for i, n in enumerate(x) if i != axis % len(x)]
    names = ", ".join("mpqs"[: len(x)])
    kept = ", ".join(n for i, n in enumerate(names.split(", ")) if i != axis % len(x))
    rest = ", :" * (len(shape) - 1)
    text = (
        f"@op.kernel\ndef k(x: f32[{names}], y: f32[{kept}]):\n    r = op.zeros({y}, f32)\n"
        f"    r[0:{2 * shape[0]}:2{rest}] = op.where(y < 1.0, op.min(x, axis={axis}), 2.0)\n"
        "    return r\n"
    )
    session = Session(overlay={"k.tessera": text})
    sizes = ", ".join(map(str, x)), ", ".join(map(str, shape))
    signature = session.signature("k.tessera", "k", "x: f32[{}], y: f32[{}]".format(*sizes))
    begin = time.process_time()
    made = session.compile_kernel(
        "k.tessera", "k", signature, TargetOptions("cuda", arch), ("ptx",)
    )
    assert time.process_time() - begin < 5
    assert made.texts["ptx"].count("\n") < 3000
