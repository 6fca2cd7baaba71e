"""Copies with their axes in another order: the arguments of the kernel, by doing what it does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tessera_backend.device import permute_copy_kernel
from tessera_backend.nvptx.toolchain.ptxas import assemble, find_ptxas
from tessera_backend.runtime.bound_arguments import BoundCopy

from tessera_lang.target.launch_plan import CopyPlan


def bound(array: np.ndarray, plan: CopyPlan) -> BoundCopy:
    size = array.itemsize
    return BoundCopy(
        0, (1,), size, tuple(array.shape[a] for a in plan.axes),
        tuple(array.strides[a] // size for a in plan.axes), plan.pitch(array.shape, size), 0,
    )  # fmt: skip


def copied(array: np.ndarray, plan: CopyPlan) -> np.ndarray:
    """What the groups of the launch write, seen with the strides of the plan."""
    copy, size = bound(array, plan), array.itemsize
    groups, numbers = permute_copy_kernel.geometry(copy)
    (line, run, line_step, run_step, pitch, across, along, *rest) = numbers
    assert len(rest) == 3 * permute_copy_kernel.OUTER
    assert across * along * np.prod(rest[::3]) == groups
    lines = int(np.prod(copy.shape[:-1]))
    out = np.full(copy.pitch * lines, 255, np.uint8)
    base = array.ctypes.data
    for group in range(groups):
        number, source, target = group, 0, 0
        number, at_line = divmod(number, across)
        number, at_run = divmod(number, along)
        for n, a, b in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            number, at = divmod(number, n)
            source, target = source + at * a, target + at * b
        for i, j in itertools.product(
            range(permute_copy_kernel.LINE), range(permute_copy_kernel.RUN)
        ):
            i, j = at_line * permute_copy_kernel.LINE + i, at_run * permute_copy_kernel.RUN + j
            if i < line and j < run:
                at = base + source + i * line_step + j * run_step
                to = target + j * pitch + i * size
                out[to : to + size] = np.ctypeslib.as_array(
                    (np.ctypeslib.ctypes.c_uint8 * size).from_address(at)
                )
    strides = [s * size for s in plan.strides(array.shape, size)]
    return np.ndarray(array.shape, array.dtype, out.tobytes(), 0, strides)


ORDERS = [(0, 2, 3, 1), (2, 3, 0, 1), (1, 2, 3, 0), (3, 1, 2, 0), (0, 3, 1, 2)]


@pytest.mark.parametrize("axes", ORDERS)
@pytest.mark.parametrize("shape", [(2, 35, 3, 5), (1, 7, 1, 70), (3, 1, 2, 2), (2, 2, 9, 1)])
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.float32, np.float64])
@pytest.mark.sample
def test_every_element_goes_to_its_place(
    axes: tuple[int, ...], shape: tuple[int, ...], dtype: type
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    plan = CopyPlan(0, axes, 16)
    np.testing.assert_array_equal(copied(array, plan), array)
    sliced = np.zeros([n + 2 for n in shape], dtype)[tuple(slice(1, -1) for _ in shape)]
    sliced[...] = array
    np.testing.assert_array_equal(copied(sliced[::-1], plan), array[::-1])


def test_axes_that_follow_each_other_are_one() -> None:
    """Weights of a convolution: the taps are the run."""
    array = np.zeros((4, 5, 3, 3), np.int16)
    copy = bound(array, CopyPlan(0, (0, 2, 3, 1), 16))
    groups, values = permute_copy_kernel.geometry(copy)
    assert groups == 4
    assert values[:5] == [5, 9, 18, 2, 16]
    assert permute_copy_kernel.is_reordered(copy)


def test_lines_of_the_array_are_not_reordered() -> None:
    array = np.zeros((4, 6, 3, 5), np.int16)
    assert not permute_copy_kernel.is_reordered(
        bound(array.transpose(0, 3, 1, 2), CopyPlan(0, (0, 2, 3, 1)))
    )
    assert not permute_copy_kernel.is_reordered(bound(array[:, :1], CopyPlan(0, (0, 2, 3, 1))))


def test_no_elements_are_no_groups() -> None:
    for shape in ((0, 3, 2, 2), (2, 0, 2, 2), (2, 3, 0, 2)):
        copy = bound(np.zeros(shape, np.int16), CopyPlan(0, (0, 2, 3, 1), 16))
        assert permute_copy_kernel.geometry(copy)[0] == 0


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_kernel_is_assembled(arch: str, size: int) -> None:
    tool = find_ptxas()
    if tool is None:
        pytest.skip("no ptxas")
    made = assemble(tool, permute_copy_kernel.ptx(size), arch, 3)
    assert made.cubin
    assert made.resources.spill_bytes == 0
