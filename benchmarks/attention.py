"""Attention written as a tile kernel: two products that depend on each other in one loop.

Run: python -m benchmarks.attention
Beside torch's fused kernels (cuDNN's and its own) in the same run, the L2 cache flushed before each
run; every result is checked against float64 (one head) over a poisoned output. Nothing of the
compiler knows this program: ``opt.schedule.overlap`` and ``peel`` are what make it fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tessera_lang as tessera
from benchmarks.harness import Report, Row, median_device_seconds

SOURCE = """\
@op.kernel
def attention[BM: int, BN: int](
    q: bf16[h, s, d], k: bf16[h, t, d], v: bf16[h, t, d], scale: f32
) -> bf16[h, s, d]:
    o = op.empty_like(q)
    for hi, i in op.tile_range(h, s, step=(1, BM)):
        top = op.full((BM,), -inf, f32)
        total = op.zeros((BM,), f32)
        acc = op.zeros((BM, d), f32)
        for j in op.tile_range(t, step=BN):
            logits = q[hi, i:i+BM, :] @ k[hi, j:j+BN, :].T
            higher = max(top, op.max(logits, axis=1) * scale)
            p = fast.exp2(logits * scale - higher[:, None])
            shrink = fast.exp2(top - higher)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p @ v[hi, j:j+BN, :]
            top = higher
        o[hi, i:i+BM, :] = (acc * (1.0 / total)[:, None]).to(bf16)
    return o
"""
SHAPES = (
    (16, 4096, 128, (128, 128)),
    (16, 16384, 128, (128, 128)),
    (32, 2048, 128, (128, 128)),
    (16, 4095, 128, (128, 128)),
    (32, 4096, 64, (192, 128)),
)
"""Heads, length, size of a head, and the tile."""


def main() -> None:
    import torch

    report = Report("attention")
    torch.manual_seed(0)
    kernel = tessera.compile(SOURCE, target="cuda").attention
    for heads, length, size, tile in SHAPES:
        q, k, v = (torch.randn(heads, length, size, device="cuda", dtype=torch.bfloat16)
                   for _ in range(3))  # fmt: skip
        scale = math.log2(math.e) / math.sqrt(size)

        def ours(t: Any = (q, k, v), tile: Any = tile, scale: float = scale) -> Any:
            return kernel(*t, scale, BM=tile[0], BN=tile[1])

        name = f"attention bf16 {heads} x {length} x {size}"
        try:
            _check(torch.as_tensor(ours(), device="cuda"), q, k, v)
        except Exception as error:  # one row that fails must not end the others
            print(f"{name:<44} FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        times = median_device_seconds({"tessera": ours, **_peers(q, k, v)}, runs=20)
        rate = 4 * heads * length * length * size / times["tessera"] / 1e12
        report.add(Row(name, times, 0, ">= 1.0x cudnn", f"{rate:.0f} TFLOP/s"))
    if report.rows:
        report.save("attention")


def _check(got: Any, q: Any, k: Any, v: Any) -> None:
    """One head against float64, relative to the norm."""
    scores = q[0].double() @ k[0].double().T / math.sqrt(q.shape[-1])
    want = scores.softmax(dim=1) @ v[0].double()
    error = (got[0].double() - want).norm() / want.norm()
    assert not got.isnan().any(), "poison in the result"
    assert error < 1e-2, f"relative error {error:.2e}"


def _peers(q: Any, k: Any, v: Any) -> dict[str, Callable[[], Any]]:
    """The kernels of torch that take these tensors."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    found: dict[str, Callable[[], Any]] = {}
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION),
                          ("flash", SDPBackend.FLASH_ATTENTION)):  # fmt: skip

        def run(backend: Any = backend) -> Any:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q[None], k[None], v[None])

        try:
            run()
        except RuntimeError as error:
            print(f"no {name}: {str(error)[:80]}")
            continue
        found[name] = run
    return found


if __name__ == "__main__":
    main()
