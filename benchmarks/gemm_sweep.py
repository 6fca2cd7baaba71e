"""Products of matrices of many shapes beside cuBLAS (torch), with the schedule that was chosen.

Run: python -m benchmarks.gemm_sweep [class ...]
Classes: middle, few, short, long, odd, batched, dtypes, epilogues. The shapes are none of
``benchmarks.gemm``. Every result is checked against float64 (a sample of rows) before timing;
rows are printed as they are measured, and sorted by ratio at the end. Peers of work behind a
product are what torch has in one call of cuBLASLt, and a second kernel where it has none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import tessera_lang as tessera
from benchmarks.harness import Report, Row, median_device_seconds
from tessera_lang.driver.session import Session

Size = tuple[int, ...]

CLASSES: dict[str, list[tuple[str, str, Size]]] = {
    "middle": [
        ("bf16 nn", "product", size)
        for size in (
            (768, 768, 768), (1280, 1280, 1280), (1536, 1536, 1536), (2560, 2560, 2560),
            (3072, 3072, 3072), (5120, 5120, 5120), (2048, 5120, 1280), (1024, 11008, 4096),
            (7168, 2048, 7168), (4096, 11008, 4096), (2560, 2560, 8192),
        )
    ] + [("bf16 tn", "product", (2048, 14336, 4096)), ("bf16 tn", "product", (1536, 6144, 1536))],
    "few": [
        ("bf16 tn", "product", size)
        for size in (
            (1, 4096, 4096), (8, 4096, 4096), (16, 4096, 14336), (32, 7168, 2048),
            (64, 4096, 4096), (64, 14336, 4096), (128, 4096, 14336), (128, 14336, 4096),
            (256, 4096, 4096), (512, 4096, 4096), (16, 128256, 4096), (128, 128256, 4096),
        )
    ],
    "short": [
        ("bf16 nn", "product", size)
        for size in ((8192, 8192, 64), (8192, 8192, 256), (16384, 1024, 1024), (65536, 256, 256))
    ],
    "long": [
        ("bf16 nn", "product", size)
        for size in ((1024, 1024, 8192), (768, 768, 16384), (4096, 256, 16384))
    ],
    "odd": [
        ("bf16 nn", "product", size)
        for size in (
            (1111, 1111, 1111), (1500, 1500, 1500), (2049, 2049, 2049), (3000, 3000, 3000),
            (777, 1555, 3333), (4104, 4104, 4104),
        )
    ],
    "batched": [
        ("bf16 nn", "product", (8, 1024, 1024, 1024)), ("bf16 tn", "product", (64, 512, 512, 64)),
        ("bf16 nn", "product", (32, 128, 128, 4096)), ("bf16 nn", "product", (4, 4096, 4096, 512)),
    ],
    "dtypes": [
        ("f16 nn", "product", (2560, 2560, 2560)), ("f16 tn", "product", (64, 14336, 4096)),
        ("i8 tn", "product", (4096, 4096, 4096)),
    ],
    "epilogues": [
        ("bf16 tn", work, size)
        for size in ((2048, 4096, 4096), (4096, 14336, 4096))
        for work in ("bias", "gelu", "residual", "gate")
    ],
}  # fmt: skip
"""What the operands are and how they lie, the work, and sizes: a batch, m, n, k. ``tn``: the second
operand is stored as its transpose."""

WORK = {
    "product": ("", "x"),
    "bias": (", c", "x + c[None, :]"),
    "gelu": (", c", "op.gelu(x + c[None, :])"),
    "residual": (", r", "x + r"),
    "gate": (", r", "op.silu(x) * r"),
}
SAMPLE = 48


@dataclass
class Case:
    """One row: operands, what is made of them, and who makes it."""

    name: str
    dtype: str
    text: str
    signature: str
    arrays: list[object]
    peer: Callable[[], object]
    want: object
    operations: int


def main() -> None:
    names = sys.argv[1:] or list(CLASSES)
    report = Report("products of matrices of many shapes")
    wake()
    for name in names:
        for how, work, size in CLASSES[name]:
            try:
                case = made_case(how, work, size)
                row = measured(case)
                row.notes += f"; {chosen_schedule(case.text, case.signature)}"
                report.add(row)
            except Exception as error:  # one row that fails must not end the others
                print(f"{how} {work} {size} FAILED: {str(error)[:300]}", flush=True)
        if report.rows:
            report.save("gemm_sweep")  # what is measured is kept if the rest is cut off
    print()
    for row in sorted(report.rows, key=lambda r: r.ratio("tessera", "cublas")):
        print(f"{row.ratio('tessera', 'cublas'):.3f} {row.name:<40} {row.notes}")


def wake() -> None:
    """A card that has rested is slow for a while, and so are the first calls of cuBLAS."""
    import torch

    x = torch.randn(4096, 4096, dtype=torch.bfloat16, device="cuda")
    for _ in range(300):
        x @ x
    torch.cuda.synchronize()


def made_case(how: str, work: str, size: Size, checked: bool = True) -> Case:
    """Operands on the device and the program. ``checked``: with what some rows should be."""
    import torch

    dtype, layout = how.split()
    *batch, m, n, k = size
    torch.manual_seed(0)

    def made(*shape: int):
        if dtype == "i8":
            return torch.randint(-9, 9, shape, dtype=torch.int8, device="cuda")
        kind = torch.bfloat16 if dtype == "bf16" else torch.float16
        return torch.randn(*shape, dtype=kind, device="cuda")

    a, b = made(*batch, m, k), made(*batch, *((n, k) if layout == "tn" else (k, n)))
    right = b.transpose(-1, -2) if layout == "tn" else b
    more = {"": [], ", c": [made(n)], ", r": [made(m, n)]}[WORK[work][0]]
    peer, want = _peer(dtype, work, a, right, more, checked)
    swapped = ".T" if layout == "tn" else ""
    out = "i32" if dtype == "i8" else dtype
    product = f"a @ b{swapped}" if not batch else "a @ b"
    if batch and layout == "tn":
        b = right
    text = (
        f"@op.kernel\ndef kernel(a, b{WORK[work][0]}):\n    x = {product}\n"
        f"    return ({WORK[work][1]}).to({out})\n"
    )
    shapes = zip(("a", "b", WORK[work][0][2:]), (a, b, *more), strict=False)
    signature = ", ".join(f"{x}: {dtype}[{', '.join(map(str, t.shape))}]" for x, t in shapes)
    name = f"{dtype} {','.join(map(str, size))} {layout} {work}".removesuffix(" product")
    count = 2 * m * n * k * (batch[0] if batch else 1)
    return Case(name, dtype, text, signature, [a, b, *more], peer, want, count)


def _peer(dtype: str, work: str, a, b, more, checked: bool) -> tuple[Callable[[], object], object]:
    """The call of torch, and some rows of the result in f64."""
    import torch

    if not checked:
        return lambda: None, None
    x = a[..., :SAMPLE, :].double() @ b.double()
    silu, gelu = torch.nn.functional.silu, torch.nn.functional.gelu
    if work == "product":
        return (lambda: torch._int_mm(a, b)) if dtype == "i8" else (lambda: torch.matmul(a, b)), x
    c = more[0]
    rows = c.double() if c.dim() == 1 else c[:SAMPLE].double()
    if work == "gelu":
        return lambda: torch._addmm_activation(c, a, b, use_gelu=True), gelu(x + rows)
    if work == "gate":
        return lambda: silu(torch.matmul(a, b)).mul_(c), silu(x) * rows
    return lambda: torch.addmm(c, a, b), x + rows


def measured(case: Case, runs: int = 0, warmup: int = 5) -> Row:
    """Both times, after the result was compared; ``runs`` 0: as many as the size asks for."""
    import torch

    kernel = tessera.compile(case.text, target="cuda").kernel
    got = torch.as_tensor(kernel(*case.arrays), device="cuda")[..., :SAMPLE, :].double()
    error = (got - case.want).norm() / case.want.norm()
    assert error < 1e-2, f"relative error {error:.2e}"
    times = median_device_seconds(
        {"tessera": lambda: kernel(*case.arrays), "cublas": case.peer},
        runs=runs or (10 if case.operations > 1e12 else 30), warmup=warmup,
    )  # fmt: skip
    rate = case.operations / times["tessera"] / 1e12
    return Row(case.name, times, 0, "", f"{rate:.0f} TFLOP/s")


def chosen_schedule(text: str, signature: str) -> str:
    """The schedule of a program: tiles, clusters, parts."""
    session = Session(overlay={"kernel.tessera": text})
    wanted = session.signature("kernel.tessera", "kernel", signature)
    machine = session.machine("cuda", "sm_90a")
    kernel = session.for_machine("kernel.tessera", "kernel", wanted, machine).schedule.operations[0]
    said = kernel.attributes
    found = [" x ".join(map(str, numbers(said.get("tile"))))]
    if said.get("cluster"):
        found.append(f"clusters of {' x '.join(map(str, numbers(said['cluster'])))}")
    if said.get("split", 1) != 1:
        found.append(f"{said['split']} parts" + (", dealt out" if said.get("stream") else ""))
    if said.get("swap"):
        found.append("transposed")
    return ", ".join(found)


def numbers(held: object) -> tuple[object, ...]:
    return held if isinstance(held, tuple) else ()


if __name__ == "__main__":
    main()
