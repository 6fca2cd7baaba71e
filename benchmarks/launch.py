"""What a launch and a call of the library cost the host: small arrays on PyTorch tensors.

100 tensors in rotation, beside torch.add(out=) and, where installed, Triton. Wall clock of
many launches without synchronization, so the queue is never full: what Python and the driver
take. Run: python -m benchmarks.launch
"""

from __future__ import annotations

import time
from collections.abc import Callable

import tessera_lang as tessera
from benchmarks.harness import Report, Row

TENSORS = 100
LAUNCHES = 400


def seconds_per_launch(step: Callable[[int], object]) -> float:
    """Median over repetitions of the mean host time of one launch."""
    import statistics

    import torch

    means: list[float] = []
    for _ in range(15):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(LAUNCHES):
            step(i % TENSORS)
        means.append((time.perf_counter() - start) / LAUNCHES)
        torch.cuda.synchronize()
    return statistics.median(means)


def triton_add() -> Callable[..., object] | None:
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    @triton.jit
    def kernel(a, b, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        tl.store(out + i, tl.load(a + i, mask=mask) + tl.load(b + i, mask=mask), mask=mask)

    return lambda a, b, out: kernel[(1,)](a, b, out, a.numel(), BLOCK=1024)


def library_calls() -> dict[str, tuple[Callable[[int], object], Callable[[int], object]]]:
    """Calls of the library that return new arrays, and what torch has beside each."""
    import torch

    def made(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        return [torch.randn(*shape, device="cuda").to(dtype) for _ in range(TENSORS)]

    nn, matmul = tessera.load("std.nn"), tessera.load("std.linalg").matmul
    relu = tessera.compile(RELU, target="cuda").relu
    x, a, b = made(64, 256), made(128, 128, dtype=torch.bfloat16), made(128, 128)
    b = [t.to(torch.bfloat16) for t in b]
    w, c = torch.randn(256, device="cuda"), torch.randn(256, device="cuda")
    norm = torch.nn.functional.layer_norm
    return {
        "std.linalg.matmul": (lambda i: matmul(a[i], b[i]), lambda i: torch.matmul(a[i], b[i])),
        "std.nn.softmax": (lambda i: nn.softmax(x[i]), lambda i: torch.softmax(x[i], -1)),
        "std.nn.layernorm": (
            lambda i: nn.layernorm(x[i], w, c), lambda i: norm(x[i], (256,), w, c)),
        "a tile kernel, relu": (lambda i: relu(x[i]), lambda i: torch.relu(x[i])),
    }  # fmt: skip


def measure_library(report: Report) -> None:
    """The least of three medians of each, in turn; results of both are the same."""
    import torch

    for name, steps in library_calls().items():
        ours, theirs = (torch.as_tensor(step(1), device="cuda").float() for step in steps)
        assert torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2), name
        found: tuple[list[float], list[float]] = ([], [])
        for step in steps:
            for i in range(TENSORS):
                step(i)
        for _ in range(3):
            for times, step in zip(found, steps, strict=True):
                times.append(seconds_per_launch(step))
        best = {"tessera": min(found[0]), "torch": min(found[1])}
        report.add(Row(f"{name}, host", best, goal=">= 1.0x torch"))


RELU = """\
@op.kernel
def relu(x):
    return op.relu(x)
"""


def main() -> None:
    import torch

    report = Report("launch from Python")
    add = tessera.load("std.elementwise").add
    tensors = [tuple(torch.randn(1000, device="cuda") for _ in range(3)) for _ in range(TENSORS)]
    for a, b, out in tensors:
        add(a, b, out)
        assert torch.equal(out, a + b)
    bound = [add.bind(a, b, out) for a, b, out in tensors]
    steps: dict[str, Callable[[int], object]] = {
        "tessera": lambda i: add(*tensors[i]),
        "bound": lambda i: bound[i](),
        "torch": lambda i: torch.add(tensors[i][0], tensors[i][1], out=tensors[i][2]),
    }
    triton = triton_add()
    if triton is not None:
        steps["triton"] = lambda i: triton(*tensors[i])
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for i in range(TENSORS):
            step(i)
    for _ in range(3):
        for name, step in steps.items():
            times[name].append(seconds_per_launch(step))
    best = {name: min(t) for name, t in times.items()}
    bound_time = best.pop("bound")
    report.add(Row("add of 1000 f32, checks on", best, goal=">= 1.0x torch"))
    report.add(
        Row(
            "the same, bound",
            {"tessera": bound_time, "torch": best["torch"]},
            goal=">= 1.25x torch",
        )
    )
    measure_library(report)
    report.save("launch")


if __name__ == "__main__":
    main()
