"""Attention written as a tile kernel, and std.attention with its gradients.

Run: python -m benchmarks.attention [rows whose name holds this word]
Beside torch's fused kernels (cuDNN's and its own) in the same run, the L2 cache flushed before each
run; every result is checked against float64 (one head) over a poisoned output. Nothing of the
compiler knows this program: ``opt.schedule.overlap`` and ``peel`` are what make it fast.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
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
LIBRARY = ((32, 4096, 64), (16, 4096, 128), (8, 4096, 256), (16, 16384, 128))
"""Heads, length and size of a head, of std.attention."""


def main() -> None:
    import torch

    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    report = Report("attention")
    torch.manual_seed(0)
    kernel = tessera.compile(SOURCE, target="cuda").attention
    for heads, length, size, tile in SHAPES:
        q, k, v = _tensors(3, heads, length, size)
        scale = math.log2(math.e) / math.sqrt(size)

        def ours(t: Any = (q, k, v), tile: Any = tile, scale: float = scale) -> Any:
            return kernel(*t, scale, BM=tile[0], BN=tile[1])

        name = f"attention bf16 {heads} x {length} x {size}"
        if wanted in name:
            peers = _peers(q[None], k[None], v[None], False)
            check = partial(_check, q=q, k=k, v=v)
            _row(report, name, ours, peers, check, 4, (heads, length, size))
    std = tessera.load("std.attention", target="cuda")
    for shape, causal in product(LIBRARY, (False, True)):
        kind = f"bf16 {' x '.join(map(str, shape))} {'causal' if causal else 'full'}"
        if wanted in f"std.attention {kind}":
            _forward(report, std, f"std.attention {kind}", shape, causal)
        if wanted in f"std.attention backward {kind}":
            _backward(report, std, f"std.attention backward {kind}", shape, causal)


def _tensors(count: int, *shape: int) -> list[Any]:
    import torch

    return [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(count)]


def _forward(report: Report, std: Any, name: str, shape: Any, causal: bool) -> None:
    q, k, v = (x[None] for x in _tensors(3, *shape))
    _row(
        report, name, lambda: std.attention(q, k, v, causal=causal), _peers(q, k, v, causal),
        lambda o: _check(o[0], q[0], k[0], v[0], causal), 2 if causal else 4, shape,
    )  # fmt: skip


def _backward(report: Report, std: Any, name: str, shape: Any, causal: bool) -> None:
    """The gradients alone, behind a forward pass that is not timed."""
    import torch

    q, k, v, go = (x[None] for x in _tensors(4, *shape))
    o, lse = (torch.as_tensor(x, device="cuda") for x in std.attention_lse(q, k, v, causal=causal))
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    peers: dict[str, Callable[[], Any]] = {}
    for peer, run in _peers(*leaves, causal).items():
        try:
            made = run()
            torch.autograd.grad(made, leaves, go, retain_graph=True)
        except RuntimeError as error:
            print(f"no backward of {peer}: {str(error)[:80]}")
            continue
        peers[peer] = lambda made=made: torch.autograd.grad(made, leaves, go, retain_graph=True)

    def check(found: Any) -> None:
        wanted = _exact_gradients(go, q, k, v, causal)
        for got, exact in zip(found, wanted, strict=True):
            _near(torch.as_tensor(got, device="cuda")[0, 0], exact)

    _row(
        report, name, lambda: std.attention_backward(go, q, k, v, o, lse, causal=causal), peers,
        check, 5 if causal else 10, shape,
    )  # fmt: skip


def _row(
    report: Report, name: str, ours: Callable[[], Any], peers: dict[str, Callable[[], Any]],
    check: Callable[[Any], None], products: int, shape: tuple[int, int, int],
) -> None:  # fmt: skip
    """One row; ``products``: operations for each pair of rows, element of a head and head."""
    import torch

    try:
        found = ours()
        check(found if isinstance(found, tuple) else torch.as_tensor(found, device="cuda"))
    except Exception as error:  # one row that fails must not end the others
        print(f"{name:<44} FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return
    times = median_device_seconds({"tessera": ours, **peers}, runs=20)
    heads, length, size = shape
    rate = products * heads * length * length * size / times["tessera"] / 1e12
    report.add(Row(name, times, 0, ">= 1.0x cudnn", f"{rate:.0f} TFLOP/s"))
    report.save("attention")  # a run that is ended early keeps what it has measured


def _weights(q: Any, k: Any, causal: bool) -> Any:
    """Of one head, in float64."""
    import torch

    scores = q.double() @ k.double().T / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores.softmax(dim=1)


def _check(got: Any, q: Any, k: Any, v: Any, causal: bool = False) -> None:
    """One head against float64, relative to the norm."""
    _near(got[0], _weights(q[0], k[0], causal) @ v[0].double())
    assert not got.isnan().any(), "poison in the result"


def _exact_gradients(go: Any, q: Any, k: Any, v: Any, causal: bool) -> list[Any]:
    import torch

    q, k, v = (x[0, 0].double().requires_grad_() for x in (q, k, v))
    o = _weights(q, k, causal) @ v
    return list(torch.autograd.grad(o, [q, k, v], go[0, 0].double()))


def _near(got: Any, wanted: Any) -> None:
    error = (got.double() - wanted).norm() / wanted.norm()
    assert error < 1e-2, f"relative error {error:.2e}"


def _peers(q: Any, k: Any, v: Any, causal: bool) -> dict[str, Callable[[], Any]]:
    """The kernels of torch that take these tensors."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    found: dict[str, Callable[[], Any]] = {}
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION),
                          ("flash", SDPBackend.FLASH_ATTENTION)):  # fmt: skip

        def run(backend: Any = backend) -> Any:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(q, k, v, is_causal=causal)

        try:
            run()
        except RuntimeError as error:
            print(f"no {name}: {str(error)[:80]}")
            continue
        found[name] = run
    return found


if __name__ == "__main__":
    main()
