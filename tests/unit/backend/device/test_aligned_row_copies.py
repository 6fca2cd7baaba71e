"""The arguments of the kernel that copies arrays to aligned lines, by doing what it does."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from tessera_backend.device import aligned_row_copies
from tessera_backend.nvptx.toolchain.ptxas import assemble, find_ptxas
from tessera_backend.runtime.bound_arguments import BoundCopy

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions


def copied(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """What the launch copies, line by line, into bytes that were 255."""
    size = array.itemsize
    shape = tuple(array.shape[a] for a in axes)
    strides = tuple(array.strides[a] // size for a in axes)
    pitch = -(-shape[-1] * size // 128) * 128
    copy = BoundCopy(0, (1,), size, shape, strides, pitch, 0)
    groups, values = aligned_row_copies._geometry(copy)  # pyright: ignore[reportPrivateUsage]
    low, high, total, chunks, line, step, *rest = values
    assert groups * aligned_row_copies.LANES >= total
    assert len(values) + 2 == aligned_row_copies.ARGUMENTS
    sizes, jumps = rest[: aligned_row_copies.OUTER], rest[aligned_row_copies.OUTER :]
    base = array.ctypes.data
    out = np.full(step * (total // max(chunks, 1)), 255, np.uint8)
    for piece in range(total):
        number, chunk = divmod(piece, chunks)
        to = number * step + chunk * aligned_row_copies.CHUNK
        at = base + chunk * aligned_row_copies.CHUNK
        for n, jump in zip(sizes, jumps, strict=True):
            at += number % n * jump
            number //= n
        count = min(aligned_row_copies.CHUNK, line - chunk * aligned_row_copies.CHUNK)
        assert base + low <= at and at + count <= base + high
        out[to : to + count] = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(at))
    lines = out.reshape(-1, step)[:, : shape[-1] * size]
    return np.ascontiguousarray(lines).view(array.dtype).reshape(shape)


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 33), (2, 3, 4, 9), (2, 3, 2, 2, 11), (1, 1)])
def test_every_element_goes_to_its_place(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    order = tuple(range(len(shape)))
    np.testing.assert_array_equal(copied(array, order), array)
    sliced = np.zeros([n + 3 for n in shape], np.int16)[tuple(slice(2, -1) for _ in shape)]
    sliced[...] = array
    np.testing.assert_array_equal(copied(sliced, order), array)
    np.testing.assert_array_equal(copied(sliced[::-1], order), array[::-1])


def test_the_contiguous_axis_is_the_last_of_a_copy() -> None:
    array = np.arange(21, dtype=np.float32).reshape(3, 7)
    np.testing.assert_array_equal(copied(array.T, (1, 0)), array)


def test_axes_that_follow_each_other_are_one() -> None:
    array = np.zeros((4, 5, 6, 3), np.int8)
    copy = BoundCopy(0, (), 1, array.shape, array.strides, 128, 0)
    _, values = aligned_row_copies._geometry(copy)  # pyright: ignore[reportPrivateUsage]
    assert values[6:] == [120, 1, 1, 1, 3, 0, 0, 0]


def test_no_elements_are_no_groups() -> None:
    copy = BoundCopy(0, (1,), 2, (0, 5), (5, 1), 128, 0)
    assert aligned_row_copies._geometry(copy)[0] == 0  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_kernel_is_assembled(arch: str) -> None:
    tool = find_ptxas()
    if tool is None:
        pytest.skip("no ptxas")
    made = assemble(tool, aligned_row_copies.ptx(), arch, 3)
    assert made.cubin
    assert made.resources.spill_bytes == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("rank", [4, 5, 6, 7])
@pytest.mark.sample(1)
def test_no_plan_has_more_axes_than_the_kernel_takes(rank: int, arch: str) -> None:
    """Arrays with gaps everywhere: none of their axes is one with its neighbour."""
    names = "abcde"[: rank - 2]
    loops, ones = ", ".join("ijpqr"[: rank - 2]), "1, " * (rank - 2)
    axes = ", ".join(names)
    text = f"""@op.kernel
def f(x: f16[{axes}, m, k], w: f16[k, n]) -> f16[{axes}, m, n]:
    y = op.empty(({axes}, m, n), f16)
    for {loops}, s, o in op.tile_range({axes}, m, n, step=({ones}64, 64)):
        acc = op.zeros((64, 64), f32)
        for t in op.tile_range(k, step=32):
            acc += x[{loops}, s:s+64, t:t+32] @ w[t:t+32, o:o+64]
        y[{loops}, s:s+64, o:o+64] = acc.to(f16)
    return y
"""
    session = Session(overlay={"k.tessera": text})
    shapes = f"x: f16[{'2, ' * (rank - 2)}1024, 1003], w: f16[1003, 2048]"
    wanted = session.signature("k.tessera", "f", shapes)
    made = session.compile_kernel("k.tessera", "f", wanted, TargetOptions("cuda", arch), ("ptx",))
    copies = [c for c in made.plan.copies if c.parameter == 0]
    assert len(copies) == (1 if rank <= aligned_row_copies.OUTER + 1 else 0)
