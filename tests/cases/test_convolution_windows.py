"""Products of windows past the edges of arrays: convolutions with padding, dilation and as the
adjoint, against sums in NumPy, on the CPU and as the code of a GPU, where copies of boxes bring
them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

Array = np.ndarray[Any, np.dtype[Any]]

PADDED = """
@op.kernel
def kernel[PH: int, PW: int, DH: int, DW: int, CO: int = 64, CI: int = 16, W: int = 64](
    x: bf16[b, ci, h, w], f: bf16[co, ci, kh, kw], y: mut bf16[b, co, oh, ow]
):
    for i, p, m, q in op.tile_range(b, oh, co, ow, step=(1, 1, CO, W)):
        acc = op.zeros((CO, W), f32)
        for r in range(kh):
            for s in range(kw):
                for c in op.tile_range(ci, step=CI):
                    part = op.window(x[i, c:c+CI, :, :], (0, p - PH + r*DH, q - PW + s*DW), (CI, 1, W))
                    acc += f[m:m+CO, c:c+CI, r, s] @ part[:, 0, :]
        y[i, m:m+CO, p, q:q+W] = acc[:, 0:ow-q].to(bf16)
"""  # noqa: E501
ADJOINT = """
@op.kernel
def kernel[CO: int = 64, W: int = 64](x: bf16[b, ci, h, w], f: bf16[ci, co, kh, kw]) -> bf16[b, co, h + kh - 1, w + kw - 1]:
    y = op.empty((b, co, h + kh - 1, w + kw - 1), bf16)
    for i, p, m, q in op.tile_range(b, h + kh - 1, co, w + kw - 1, step=(1, 1, CO, W)):
        acc = op.zeros((CO, W), f32)
        for r in range(kh):
            if p >= r and p - r < h:
                for s in range(kw):
                    acc += f[:, m:m+CO, r, s].T @ op.window(x[i, :, p-r, :], (0, q - s), (ci, W))
        y[i, m:m+CO, p, q:q+W] = acc[:, 0:w+kw-1-q].to(bf16)
    return y
"""  # noqa: E501
ROWS = """
@op.kernel
def kernel[P: int, D: int](x: bf16[c, n], f: bf16[o, c, k]) -> f32[o, n]:
    y = op.empty((o, n), f32)
    for m, q in op.tile_range(o, n, step=64):
        acc = op.zeros((64, 64), f32)
        for s in range(k):
            for j in op.tile_range(c, step=32):
                part = op.window(x[j:j+32, :], (0, q - P + s*D), (min(32, c-j), 64))
                acc += f[m:m+64, j:j+32, s] @ part
        y[m:m+64, q:q+64] = acc[:, 0:n-q]
    return y
"""
CHANNELS_LAST = """
@op.kernel
def kernel[P: int, D: int, W: int = 64](x: bf16[n, c], f: bf16[k, c, o]) -> f32[n + 2*P - D*(k-1), o]:
    y = op.empty((n + 2*P - D*(k-1), o), f32)
    for q, m in op.tile_range(n + 2*P - D*(k-1), o, step=(W, 64)):
        acc = op.zeros((W, 64), f32)
        for s in range(k):
            for j in op.tile_range(c, step=64):
                part = op.window(x[:, j:j+64], (q - P + s*D, 0), (W, min(64, c-j)))
                acc += part @ f[s, j:j+64, m:m+64]
        y[q:q+W, m:m+64] = acc[0:min(W, n + 2*P - D*(k-1) - q), :]
    return y
"""  # noqa: E501
PART = """
@op.kernel
def kernel(x: bf16[64, n], f: bf16[64, 64], y: mut f32[64, 64], at: i32):
    for m in op.tile_range(64, step=64):
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(64, step=32):
            acc += f[m:m+64, j:j+32] @ op.window(x[j:j+32, 3:n-2], (0, at), (32, 64))
        y[m:m+64, :] = acc
"""


def numbers(seed: int, *shape: int) -> Array:
    drawn = np.random.default_rng(seed).integers(-2, 3, shape)
    return drawn.astype(np.float32).astype(ml_dtypes.bfloat16)


def wide(x: Array) -> Array:
    return x.astype(np.float32)


def convolved(
    x: Array, f: Array, padding: tuple[int, int], step: tuple[int, int], out: tuple[int, int]
) -> Array:
    """Of ``x`` with axes b, c, h, w and ``f`` with o, c, kh, kw, one tap after the other."""
    edges = [(0, 0), (0, 0), *((p, p + 3 * 64) for p in padding)]
    padded = np.pad(wide(x), edges)
    found = np.zeros((x.shape[0], f.shape[0], *out), np.float32)
    for r in range(f.shape[2]):
        for s in range(f.shape[3]):
            rows, columns = r * step[0], s * step[1]
            seen = padded[:, :, rows : rows + out[0], columns : columns + out[1]]
            found += np.einsum("bchw,oc->bohw", seen, wide(f[:, :, r, s]))
    return found


@pytest.fixture(params=["cpu", "sm_90a", "sm_80", GPU])
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("ci", "co", "size"), [(16, 64, (4, 64)), (32, 40, (3, 70)), (48, 5, (2, 9))]
)
@pytest.mark.parametrize(
    ("padding", "step"), [((1, 1), (1, 1)), ((2, 4), (2, 3)), ((0, 5), (1, 2))]
)
@pytest.mark.sample(1)
def test_with_padding_and_dilation(
    arch: str, padding: tuple[int, int], step: tuple[int, int], ci: int, co: int,
    size: tuple[int, int],
) -> None:  # fmt: skip
    x, f = numbers(1, 2, ci, *size), numbers(2, co, ci, 2, 3)
    out = tuple(
        n + 2 * p - d * (k - 1) for n, p, d, k in zip(size, padding, step, (2, 3), strict=True)
    )
    y = np.zeros((2, co, *out), ml_dtypes.bfloat16)
    more = {"PH": padding[0], "PW": padding[1], "DH": step[0], "DW": step[1]}
    loaded(PADDED, arch).kernel(x, f, y, **more)
    right = convolved(x, f, padding, step, (out[0], out[1]))
    np.testing.assert_array_equal(wide(y), wide(right.astype(ml_dtypes.bfloat16)))


@pytest.mark.parametrize(
    ("ci", "co", "size"), [(16, 64, (3, 128)), (8, 40, (2, 70)), (33, 3, (2, 9))]
)
@pytest.mark.sample(1)
def test_adjoint(arch: str, ci: int, co: int, size: tuple[int, int]) -> None:
    x, f = numbers(3, 1, ci, *size), numbers(4, ci, co, 2, 3)
    y = loaded(ADJOINT, arch).kernel(x, f)
    turned = np.ascontiguousarray(f.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])
    right = convolved(x, turned, (1, 2), (1, 1), (size[0] + 1, size[1] + 2))
    np.testing.assert_array_equal(wide(np.asarray(y)), wide(right.astype(ml_dtypes.bfloat16)))


@pytest.mark.sample(6)
@pytest.mark.parametrize("n", [64, 90, 200])
def test_along_rows(arch: str, n: int) -> None:
    x, f = numbers(5, 48, n), numbers(6, 70, 48, 3)
    y = loaded(ROWS, arch).kernel(x, f, P=4, D=3)
    right = convolved(x[None, :, None], f[:, :, None], (0, 4), (1, 3), (1, n))
    np.testing.assert_array_equal(np.asarray(y), right[0, :, 0])


@pytest.mark.parametrize("n", [64, 128, 200])
@pytest.mark.parametrize("c", [64, 96, 128])
@pytest.mark.sample(2)
def test_where_lines_run_along_channels(arch: str, n: int, c: int) -> None:
    x, f = numbers(9, n, c), numbers(10, 3, c, 72)
    y = loaded(CHANNELS_LAST, arch).kernel(x, f, P=5, D=2)
    seen = np.ascontiguousarray(x.T)[None, :, None], f.transpose(2, 1, 0)[:, :, None]
    right = convolved(*seen, (0, 5), (1, 2), (1, n + 6))
    np.testing.assert_array_equal(np.asarray(y), right[0, :, 0].T)


FAR = """
@op.kernel
def kernel(x: bf16[n, c], f: bf16[c, 64], y: mut f32[z, 64, 64], at: i64[z]):
    for i in op.tile_range(z, step=1):
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(c, step=64):
            acc += op.window(x[:, j:j+64], (at[i], 0), (64, min(64, c-j))) @ f[j:j+64, :]
        y[i, :, :] = acc
"""


def test_windows_as_far_away_as_numbers_go(arch: str) -> None:
    """Coordinates of a copy engine have 32 bits: what is outside of 64 is outside of them."""
    places = [0, -5, 70, 1 << 31, 1 << 32, (1 << 32) + 3, -(1 << 32), -(1 << 62), (1 << 62) + 64]
    x, f = numbers(11, 100, 128), numbers(12, 128, 64)
    at, y = np.int64(places), np.zeros((len(places), 64, 64), np.float32)
    loaded(FAR, arch).kernel(x, f, y, at)
    for found, place in zip(y, places, strict=True):
        padded = np.zeros((64, 128), np.float32)
        rows = np.arange(64, dtype=object) + place
        there = [int(r) if 0 <= r < 100 else -1 for r in rows]
        padded[[i for i, r in enumerate(there) if r >= 0]] = wide(x)[[r for r in there if r >= 0]]
        np.testing.assert_array_equal(found, padded @ wide(f))


@pytest.mark.parametrize("at", [-70, -3, 0, 5, 60, 200])
def test_windows_of_a_part_are_empty_outside_of_the_part(arch: str, at: int) -> None:
    x, f, y = numbers(7, 64, 100), numbers(8, 64, 64), np.zeros((64, 64), np.float32)
    loaded(PART, arch).kernel(x, f, y, at)
    part = np.pad(wide(x[:, 3:98]), ((0, 0), (128, 400)))[:, 128 + at : 192 + at]
    np.testing.assert_array_equal(y, wide(f) @ part)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (PADDED, "x: bf16[8,64,256,256], f: bf16[128,64,5,9], y: mut bf16[8,128,256,256], "
         "PH=2, PW=4, DH=2, DW=3"),
        (ADJOINT, "x: bf16[8,64,512,512], f: bf16[64,64,3,3]"),
        (CHANNELS_LAST, "x: bf16[128,128], f: bf16[3,128,72], P=5, D=2"),
        (ROWS, "x: bf16[256,8192], f: bf16[256,256,9], P=4, D=1"),
    ],
)  # fmt: skip
def test_boxes_bring_them_to_the_asynchronous_unit(text: str, shapes: str) -> None:
    whole = from_source(text, shapes)
    kernels = [m.schedule.operations[0] for m in (whole, *whole.then)]
    dots = [o for k in kernels for o in k.walk() if o.name.endswith("schedule.dot")]
    assert [o.attributes["unit"] for o in dots] == ["wgmma"] * len(dots)
    reads = [o for k in kernels for o in k.walk() if o.attributes.get("outside")]
    assert {o.attributes["copy"] for o in reads} == {"tma"}
