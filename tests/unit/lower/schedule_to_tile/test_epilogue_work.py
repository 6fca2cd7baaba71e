"""Element-wise work on a result that leaves in parts, and what it reads beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Operation, TileType
from tessera_lang.record import replace

HEAD = "@op.kernel\ndef kernel(a, b, c, r):\n    schedule.tile((128, 128, 64))\n"
Array = np.ndarray[Any, Any]
RETURNED: dict[str, tuple[str, Callable[[Array, Array, Array], Array]]] = {
    "a bias and a residual": (
        "op.relu(p + c[None, :]) + r", lambda p, c, r: np.maximum(p + c[None, :], 0) + r
    ),
    "a gate": ("p * r", lambda p, c, r: p * r),
    "a scale of each row": ("p * c[:, None] + r", lambda p, c, r: p * c[:, None] + r),
    "a scale of rows and a bias": (
        "(p + c[None, :]) * c[:, None]", lambda p, c, r: (p + c[None, :]) * c[:, None]
    ),
    "a transposed residual": ("p + r.T", lambda p, c, r: p + r.T),
    "computed weights": (
        "p * (c * 2.0 + 1.0)[None, :] - r", lambda p, c, r: p * (c * 2 + 1)[None, :] - r
    ),
    "a stretched column that is computed": (
        "p + (c[:, None] * 0.5 - 1.0)", lambda p, c, r: p + (c[:, None] * 0.5 - 1)
    ),
    "nothing": ("p", lambda p, c, r: p),
}  # fmt: skip
IN_PLACE = """
@op.kernel
def kernel(a, b, r: mut f32[n, n]):
    for i, j in op.tile_range(n, n, step=(128, 128)):
        acc = op.zeros((128, 128), f32)
        for p in op.tile_range(a.shape[1], step=64):
            acc += a[i:i+128, p:p+64] @ b[p:p+64, j:j+128]
        r[i:i+128, j:j+128] = acc + r[j:j+128, i:i+128].T
"""


def on_the_machine(text: str, *arrays: Array) -> Array:
    options = replace(options_from_environment(), target="cpu", arch_as="sm_90a")
    module = Module("<source>", SessionProvider("<source>", options, text=text), "cpu")
    return np.asarray(module.kernel(*arrays))


def tile_ir(text: str, signature: str) -> Operation:
    session = Session(overlay={"kernel.tessera": text})
    wanted = session.signature("kernel.tessera", "kernel", signature)
    machine = session.machine("cuda", "sm_90a")
    made = session.for_machine("kernel.tessera", "kernel", wanted, machine)
    assert made.lowered is not None
    return made.lowered[0].operations[0]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float16)


@pytest.mark.parametrize("n", [128, 200])
@pytest.mark.parametrize("what", RETURNED)
@pytest.mark.sample(1)
def test_results(what: str, n: int) -> None:
    work, reference = RETURNED[what]
    a, b, c, r = numbers(n, 72), numbers(72, n), numbers(n), numbers(n, n)
    text = f"{HEAD}    p = a @ b\n    return ({work}).to(f32)\n"
    a, b, c, r = (x.astype(np.float32) for x in (a, b, c, r))
    want = reference(a @ b, c, r)
    got = on_the_machine(text, *(x.astype(np.float16) for x in (a, b, c, r)))
    np.testing.assert_array_equal(got, want)


def test_an_array_that_is_written_is_read_before() -> None:
    a, b, r = numbers(128, 64), numbers(64, 128), numbers(128, 128).astype(np.float32)
    want = a.astype(np.float32) @ b + r.T
    options = replace(options_from_environment(), target="cpu", arch_as="sm_90a")
    module = Module("<source>", SessionProvider("<source>", options, text=IN_PLACE), "cpu")
    module.kernel(a, b, r)
    np.testing.assert_array_equal(r, want)


def test_only_reads_of_other_arrays_are_moved() -> None:
    kernel = tile_ir(IN_PLACE, "a: f16[512,512], b: f16[512,512], r: f32[512,512]")
    (read,) = (o.result.type for o in kernel.walk() if o.name == "tile.load_tile")
    assert isinstance(read, TileType) and read.sizes == (128, 128)


def test_lanes_hold_a_part_beside_the_accumulators() -> None:
    signature = "a: f16[2048,4096], b: f16[4096,4096], c: f16[4096], r: f16[2048,4096]"
    work = "(op.silu(a @ b + c[None, :]) * r).to(f16)"
    kernel = tile_ir(f"@op.kernel\ndef kernel(a, b, c, r):\n    return {work}\n", signature)
    dots = {v.type.sizes for o in kernel.walk() if "mma" in o.name for v in o.results
            if isinstance(v.type, TileType)}  # fmt: skip
    read = [o.result.type for o in kernel.walk() if o.name == "tile.load_tile"]
    assert dots == {(128, 256)}
    assert read and all(isinstance(t, TileType) and t.sizes[-1] == 64 for t in read)
    assert not any(o.name == "tile.convert" for o in kernel.walk())


@pytest.mark.parametrize("tile", [(64, 32, 64), (128, 160, 64), (64, 96, 64)])
@pytest.mark.sample(1)
def test_results_of_half_lines_leave_by_tma(tile: tuple[int, int, int]) -> None:
    """Columns that are no multiple of 128 bytes, but of 64."""
    text = f"@op.kernel\ndef kernel(a, b):\n    schedule.tile({tile})\n    return (a @ b).to(f16)\n"
    sent = [o for o in tile_ir(text, "a: f16[512,256], b: f16[256,512]").walk()
            if o.name == "tma.store"]  # fmt: skip
    assert len(sent) == tile[1] // 32
    a, b = numbers(200, 72), numbers(72, 200)
    np.testing.assert_array_equal(on_the_machine(text, a, b), a.astype(np.float32) @ b)
