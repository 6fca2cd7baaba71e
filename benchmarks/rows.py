"""Kernels that memory limits, in tiles: element-wise work, softmax and norms of rows, transposes.

Run: python -m benchmarks.rows [name ...]     names: elements, softmax, rmsnorm, layernorm,
transpose
Beside torch eager, torch.compile, Triton and quack where they are there; every row says which
share it is of a copy of as many bytes in the same run. Results are checked over a poisoned output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tessera_lang as tessera
from benchmarks.harness import Report, Row, median_device_seconds

SHAPES = ((8192, 1024), (8192, 8192), (4096, 32768), (1024, 131072), (4097, 4095))
NAMES = ("elements", "softmax", "rmsnorm", "layernorm", "transpose")
SOURCE = """\
@op.kernel
def vec_add[T: dtype](x: T[n], y: T[n]) -> T[n]:
    return x + y


@op.kernel
def gelu_bias[T: dtype](x: T[m, n], bias: T[n]) -> T[m, n]:
    y = op.empty_like(x)
    y[:, :] = op.gelu(x.to(f32) + bias.to(f32)[None, :]).to(T)
    return y


@op.kernel
def transposed[T: dtype](x: T[m, n]) -> T[n, m]:
    return x.T
"""

Make = Callable[[], Any]


def main() -> None:
    import torch

    names = sys.argv[1:] or list(NAMES)
    report = Report("rows")
    torch.manual_seed(0)
    kernels, nn = tessera.compile(SOURCE), tessera.load("std.nn")
    if "elements" in names:
        x, y = (torch.randn(1 << 28, device="cuda") for _ in range(2))
        others = {"torch": lambda: x + y, **_triton("vec_add", x, y)}
        _measure(report, "vec_add f32 2^28", lambda: kernels.vec_add(x, y), others,
                 3 * 4 << 28, ">= 0.99 of copy", 0.0)  # fmt: skip
        del x, y
        _gelu(report, kernels)
    for name in ("softmax", "rmsnorm", "layernorm"):
        for shape in SHAPES if name in names else ():
            _rows(report, name, nn, shape)
    if "transpose" in names:
        x = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
        others = {"torch": lambda: x.t().contiguous(), **_triton("transposed", x)}
        _measure(report, "transpose bf16 16384", lambda: kernels.transposed(x), others,
                 2 * 2 << 28, ">= 0.92 of copy", 0.0)  # fmt: skip
    if report.rows:
        report.save("rows")


def _gelu(report: Report, kernels: Any) -> None:
    import torch
    from torch.nn import functional

    x = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(16384, device="cuda", dtype=torch.bfloat16)

    def eager() -> Any:
        return functional.gelu(x + bias)

    peers = {"torch": eager, **_compiled(eager), **_triton("gelu_bias", x, bias)}
    want = functional.gelu(x[:64].double() + bias.double())
    _measure(report, "gelu(x + bias) bf16 16384", lambda: kernels.gelu_bias(x, bias), peers,
             2 * x.numel() * 2, ">= 0.97 of copy", 1e-2, want)  # fmt: skip


def _rows(report: Report, name: str, nn: Any, shape: tuple[int, int]) -> None:
    import torch
    from torch.nn import functional

    m, n = shape
    x = torch.randn(m, n, device="cuda", dtype=torch.bfloat16)
    w, b = (torch.randn(n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ours, eager = {
        "softmax": (lambda: nn.softmax(x), lambda: torch.softmax(x, 1)),
        "rmsnorm": (lambda: nn.rmsnorm(x, w), lambda: functional.rms_norm(x, (n,), w, 1e-6)),
        "layernorm": (lambda: nn.layernorm(x, w, b),
                      lambda: functional.layer_norm(x, (n,), w, b, 1e-5)),
    }[name]  # fmt: skip
    exact = {
        "softmax": lambda v: torch.softmax(v, 1),
        "rmsnorm": lambda v: functional.rms_norm(v, (n,), w.double(), 1e-6),
        "layernorm": lambda v: functional.layer_norm(v, (n,), w.double(), b.double(), 1e-5),
    }[name]
    goal = ">= 2x torch" if n % 2 else ">= 0.97 of copy" if n >= 8192 else ""
    peers = {"torch": eager, **_compiled(eager), **_triton("rows", name, x, w, b),
             **_quack(name, x, w)}  # fmt: skip
    _measure(report, f"{name} bf16 {m}x{n}", ours, peers, 2 * x.numel() * 2, goal, 1e-2,
             exact(x[-64:].double()), last=True)  # fmt: skip


def _compiled(f: Make) -> dict[str, Make]:
    """torch.compile, where it works on this machine."""
    import torch

    try:
        made = torch.compile(f)
        made()
    except Exception:  # no compiler, no Triton: the row has one peer less
        return {}
    return {"compile": made}


def _triton(name: str, *arguments: Any) -> dict[str, Make]:
    """Our plain Triton kernels, where Triton is there."""
    try:
        from benchmarks import triton_kernels

        return {"triton": getattr(triton_kernels, name)(*arguments)}
    except Exception as error:
        print(f"no triton: {type(error).__name__}: {str(error)[:160]}", flush=True)
        return {}


def _quack(name: str, x: Any, w: Any) -> dict[str, Make]:
    try:
        import quack
    except ImportError:
        return {}
    made = {"softmax": lambda: quack.softmax(x), "rmsnorm": lambda: quack.rmsnorm(x, w)}.get(name)
    if made is None:
        return {}
    try:
        made()
    except Exception as error:  # rows of odd lengths, which it does not take
        print(f"no quack: {type(error).__name__}: {str(error)[:80]}", flush=True)
        return {}
    return {"quack": made}


def _measure(
    report: Report, name: str, ours: Make, peers: dict[str, Make], moved: int, goal: str,
    limit: float, want: Any = None, last: bool = False,
) -> None:  # fmt: skip
    import torch

    try:
        poison = torch.full((moved // 8,), float("nan"), device="cuda")
        del poison  # its memory is likely that of the result
        got = torch.as_tensor(ours(), device="cuda")
        want = peers["torch"]() if want is None else want
        part = got[-len(want) :] if last else got[: len(want)]
        error = float((part.double() - want.double()).norm() / want.double().norm())
        assert error <= limit and not got.isnan().any(), f"relative error {error:.2e}"
        source = torch.empty(moved // 2, dtype=torch.int8, device="cuda")
        target = torch.empty_like(source)
        contenders = {"tessera": ours, **peers, "copy": lambda: target.copy_(source)}
        times = median_device_seconds(contenders, runs=20)
    except Exception as error:  # one row that fails must not end the others
        print(f"{name:<44} FAILED: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return
    report.add(Row(name, times, moved, goal))


if __name__ == "__main__":
    main()
