"""Plain kernels in Triton, what we are compared with: products and what goes over rows.

Written as its tutorials teach: blocks, loops, `tl.dot`, descriptors (TMA) where lines lie 16 bytes
apart, and a few configurations of which the fastest counts. Imported only where Triton is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def _place(pid, m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The block of a program: blocks that share operands one after the other."""
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    width = GROUP * columns
    first = (pid // width) * GROUP
    size = min(rows - first, GROUP)
    return first + (pid % width) % size, (pid % width) // size


@triton.jit
def _product_of_descriptors(
    a, b, c, m, n, k, B_IS_TURNED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    i, j = _place(tl.program_id(0), m, n, BM, BN, GROUP)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for p in range(0, k, BK):
        left = a.load([i * BM, p])
        right = b.load([j * BN, p]).T if B_IS_TURNED else b.load([p, j * BN])
        total = tl.dot(left, right, total)
    c.store([i * BM, j * BN], total.to(c.dtype))


@triton.jit
def _product_of_pointers(
    a, b, c, m, n, k, a_row, a_column, b_row, b_column, c_row, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    i, j = _place(tl.program_id(0), m, n, BM, BN, GROUP)
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    at = tl.arange(0, BK)
    left = a + (rows % m)[:, None] * a_row + at[None, :] * a_column
    right = b + at[:, None] * b_row + (columns % n)[None, :] * b_column
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for p in range(0, k, BK):
        x = tl.load(left, mask=at[None, :] < k - p, other=0.0)
        y = tl.load(right, mask=at[:, None] < k - p, other=0.0)
        total = tl.dot(x, y, total, input_precision=PRECISION)
        left += BK * a_column
        right += BK * b_row
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    place = c + rows[:, None] * c_row + columns[None, :]
    tl.store(place, total.to(c.dtype.element_ty), mask=inside)


Config = tuple[int, int, int, int, int]
"""Rows, columns and contraction of a block, warps, stages."""
LARGE: tuple[Config, ...] = (
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 4, 4), (128, 128, 64, 8, 4),
    (64, 256, 64, 4, 4), (64, 128, 64, 4, 5),
)  # fmt: skip
FEW_ROWS: tuple[Config, ...] = (
    (16, 64, 128, 4, 5), (16, 128, 128, 4, 4), (64, 64, 128, 4, 4), (64, 128, 64, 4, 5),
)  # fmt: skip


def best(runs: dict[Any, Callable[[], object]]) -> Callable[[], object]:
    """The fastest of several ways to do the same; those that do not fit are left out."""
    times: dict[Any, float] = {}
    for name, run in runs.items():
        try:
            times[name] = triton.testing.do_bench(run, warmup=5, rep=25)
        except (triton.runtime.errors.OutOfResources, RuntimeError):
            continue
    return runs[min(times, key=lambda name: times[name])]


def product(a: Any, b: Any, precision: str = "tf32") -> Callable[[], Any]:
    """``a @ b`` into a new array of the dtype of ``a``, by the fastest configuration.

    f32 operands are multiplied as ``precision`` says: tf32 or ieee.
    """
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    wide = a.element_size() == 4
    turned = b.stride(0) == 1 and b.stride(1) != 1
    lines = (a.stride(0), b.stride(1) if turned else b.stride(0), n)
    described = not wide and all(x * a.element_size() % 16 == 0 for x in lines)
    scale = 2 if wide else 1
    runs: dict[Any, Callable[[], Any]] = {}
    for bm, bn, bk, warps, stages in FEW_ROWS if m <= 64 else LARGE:
        key = (bm, bn, bk // scale, warps, stages)
        make = _described if described else _pointed
        runs[key] = make(a, b, m, n, k, turned, key, precision)
    return best(runs)


def _described(
    a: Any, b: Any, m: int, n: int, k: int, turned: bool, config: Config, _: str
) -> Callable[[], Any]:
    bm, bn, bk, warps, stages = config
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    left = TensorDescriptor.from_tensor(a, [bm, bk])
    right = TensorDescriptor.from_tensor(b.t() if turned else b, [bn, bk] if turned else [bk, bn])

    def run() -> Any:
        c = torch.empty(m, n, device=a.device, dtype=a.dtype)
        out = TensorDescriptor.from_tensor(c, [bm, bn])
        _product_of_descriptors[grid](
            left, right, out, m, n, k, turned, bm, bn, bk, 8, num_warps=warps, num_stages=stages
        )
        return c

    return run


def _pointed(
    a: Any, b: Any, m: int, n: int, k: int, _: bool, config: Config, precision: str
) -> Callable[[], Any]:
    bm, bn, bk, warps, stages = config
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)

    def run() -> Any:
        c = torch.empty(m, n, device=a.device, dtype=a.dtype)
        _product_of_pointers[grid](
            a, b, c, m, n, k, *a.stride(), *b.stride(), n, precision, bm, bn, bk, 8,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return c

    return run


# --- rows --------------------------------------------------------------------------------------


@triton.jit
def _softmax_rows(x, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * n + at, (e / tl.sum(e, axis=0)).to(y.dtype.element_ty), mask=at < n)


@triton.jit
def _softmax_long(x, y, n, BLOCK: tl.constexpr):
    """Rows that registers do not hold are read twice."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for p in range(0, n, BLOCK):
        v = tl.load(x + row * n + p + at, mask=at < n - p, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, v)
        total = total * tl.exp(top - higher) + tl.exp(v - higher)
        top = higher
    most = tl.max(top, axis=0)
    scale = 1.0 / tl.sum(total * tl.exp(top - most), axis=0)
    for p in range(0, n, BLOCK):
        v = tl.load(x + row * n + p + at, mask=at < n - p, other=0.0).to(tl.float32)
        out = (tl.exp(v - most) * scale).to(y.dtype.element_ty)
        tl.store(y + row * n + p + at, out, mask=at < n - p)


@triton.jit
def _norm_rows(x, w, b, y, n, eps, CENTRED: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    if CENTRED:
        v = tl.where(at < n, v - tl.sum(v, axis=0) / n, 0.0)
    scaled = v * (1.0 / tl.sqrt(tl.sum(v * v, axis=0) / n + eps))
    scaled *= tl.load(w + at, mask=at < n, other=0.0).to(tl.float32)
    if CENTRED:
        scaled += tl.load(b + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, scaled.to(y.dtype.element_ty), mask=at < n)


@triton.jit
def _norm_long(x, w, b, y, n, eps, CENTRED: tl.constexpr, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for p in range(0, n, BLOCK):
        v = tl.load(x + row * n + p + at, mask=at < n - p, other=0.0).to(tl.float32)
        total += v
        squares += v * v
    mean = tl.sum(total, axis=0) / n if CENTRED else 0.0
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n - mean * mean + eps)
    for p in range(0, n, BLOCK):
        inside = at < n - p
        v = tl.load(x + row * n + p + at, mask=inside, other=0.0).to(tl.float32)
        v = (v - mean) * scale * tl.load(w + p + at, mask=inside, other=0.0).to(tl.float32)
        if CENTRED:
            v += tl.load(b + p + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + row * n + p + at, v.to(y.dtype.element_ty), mask=inside)


_WHOLE = 32768
"""Columns of the longest row that a program holds."""


def rows(name: str, x: Any, w: Any, b: Any) -> Callable[[], Any]:
    """softmax, rmsnorm or layernorm of the last axis."""
    m, n = x.shape
    given = (n,) if name == "softmax" else (n, 1e-6 if name == "rmsnorm" else 1e-5,
                                            name == "layernorm")  # fmt: skip
    short, long = (_softmax_rows, _softmax_long) if name == "softmax" else (_norm_rows, _norm_long)
    arrays = (x,) if name == "softmax" else (x, w, b)
    blocks = [triton.next_power_of_2(n)] if n <= _WHOLE else [4096, 8192]
    kernel = short if n <= _WHOLE else long

    def run(block: int, warps: int) -> Any:
        y = torch.empty_like(x)
        kernel[(m,)](*arrays, y, *given, block, num_warps=warps)
        return y

    return best({(k, v): lambda k=k, v=v: run(k, v) for k in blocks for v in (4, 8, 16, 32)})


@triton.jit
def _gelu_bias(x, bias, y, columns, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < count).to(tl.float32)
    v += tl.load(bias + at % columns, mask=at < count).to(tl.float32)
    v = v * 0.5 * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + at, v.to(y.dtype.element_ty), mask=at < count)


@triton.jit
def _sum(x, y, z, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < count) + tl.load(y + at, mask=at < count)
    tl.store(z + at, v, mask=at < count)


@triton.jit
def _turned(x, y, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (i[:, None] < m) & (j[None, :] < n)
    v = tl.load(x + i[:, None] * n + j[None, :], mask=inside)
    tl.store(y + j[:, None] * m + i[None, :], v.T, mask=inside.T)


def gelu_bias(x: Any, bias: Any) -> Callable[[], Any]:
    return _elements(x, lambda y, grid, block, warps: _gelu_bias[grid](
        x, bias, y, x.shape[1], x.numel(), block, num_warps=warps))  # fmt: skip


def vec_add(x: Any, y: Any) -> Callable[[], Any]:
    return _elements(x, lambda z, grid, block, warps: _sum[grid](
        x, y, z, x.numel(), block, num_warps=warps))  # fmt: skip


def _elements(x: Any, launch: Callable[..., object]) -> Callable[[], Any]:
    def run(block: int, warps: int) -> Any:
        y = torch.empty_like(x)
        launch(y, (triton.cdiv(x.numel(), block),), block, warps)
        return y

    return best({(k, v): lambda k=k, v=v: run(k, v) for k, v in ((1024, 4), (2048, 8), (4096, 8))})


def transposed(x: Any) -> Callable[[], Any]:
    m, n = x.shape

    def run(block: int, warps: int) -> Any:
        y = torch.empty(n, m, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(m, block), triton.cdiv(n, block))
        _turned[grid](x, y, m, n, block, block, num_warps=warps)
        return y

    return best({(k, v): lambda k=k, v=v: run(k, v) for k, v in ((64, 4), (64, 8), (128, 8))})
