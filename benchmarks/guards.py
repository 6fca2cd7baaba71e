"""What guards cost at run time, what the analyses that drop them cost of a compilation, and what
they give: indices of 32 bits.

Run: python -m benchmarks.guards [share] [narrow] [cost]

``share`` needs no GPU: every lane kernel of the standard library is compiled for sm_90, for the
signatures of its own tests. ``narrow`` needs none either: registers and instructions of the same
kernels for small arrays, and with all indices in 64 bits. ``cost`` times kernels whose guards
nothing proves away beside the same kernels under ``--bounds=off``, on one GPU.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tessera_lang as tessera
from benchmarks.harness import RESULTS, Report, Row, machine, median_device_seconds
from tessera_lang.driver import session
from tessera_lang.driver.commands.kernel_selection import target_options
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.modules import kernel_level
from tessera_lang.lower.ast_to_tile import kernel as lane_kernel
from tessera_lang.opt.tile import narrow_indices, prove_bounds
from tessera_lang.record import replace
from tessera_lang.sema.side_tables import TensorArgument

SIGNATURES = {
    "arrays": ("T=f64",),
    "elementwise": ("T=f32", "S=i32, T=f32"),
    "layout": ("T=f32",),
    "reduce_kernels": (
        'how="sum", A=f32, T=f32, O=f32', 'how="max", V=f32, T=f32', 'how="max", V=f32',
        'how="sum", L=8, A=f32, T=f32, O=f32', 'how="max", L=8, V=f32, S=f32, T=f32',
    ),
    "scan_on_cpu": (
        'how="sum", exclusive=False, alone=False, rows=8, T=f32, A=f32, O=f32',
        'how="sum", A=f32', 'how="sum", rows=8, A=f32, O=f32',
    ),
    "sort_on_cpu": (
        'kind="float", bits=32, T=f32, K=u32, W=u32, rows: index',
        'kind="float", ties=False, bits=32, T=f32, K=u32',
        'bits=32, K=u32, S=u32', "S=u32", 'pairs=False, bits=32, K=u32, S=u32, V=i64',
        'kind="float", pairs=False, bits=32, T=f32, K=u32, S=u32, V=i64',
    ),
    "reduce_parts": ('how="max", V=f32, T=f32, O=f32', 'how="max", V=f32, T=f32'),
}  # fmt: skip
"""For kernels that no test of their own file calls."""

GUARDED = """
@kernel tile[(256,)] grid[(ceil_div(n, 256),)]
def scale(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    out[i] = x[i] * 2.0


@kernel tile[(256,)] grid[(ceil_div(n, 256),)]
def gather(x: f32[m], at: i32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[at[i]]


@kernel tile[(8, 32)] grid[(ceil_div(m, 8), ceil_div(n, 32))]
def laplace(x: f32[m, n], out: mut f32[m, n]):
    i = group_id(0) * 8 + tile_id(0)
    j = group_id(1) * 32 + tile_id(1)
    if 0 < i and i < m - 1 and 0 < j and j < n - 1:
        k = i * n + j
        r = k // n
        out[r, j] = x[r - 1, j] + x[r + 1, j] + x[r, j - 1] + x[r, j + 1] - 4.0 * x[r, j]


@kernel tile[(8, 32)] grid[(ceil_div(m, 8), ceil_div(n, 32))]
def shifted(x: f32[m, n], out: mut f32[m, n], by: index):
    i = group_id(0) * 8 + tile_id(0)
    r = i + by
    j = group_id(1) * 32 + tile_id(1)
    if 0 < i and i < m - 1 and 0 < j and j < n - 1:
        out[r, j] = x[r - 1, j] + x[r + 1, j] + x[r, j - 1] + x[r, j + 1] - 4.0 * x[r, j]


@kernel tile[(16, 16)] grid[(ceil_div(m, 16), ceil_div(n, 16))]
def product(a: f32[m, k], b: f32[k, n], out: mut f32[m, n]):
    i = group_id(0) * 16 + tile_id(0)
    j = group_id(1) * 16 + tile_id(1)
    total = f32(0.0)
    for t in range(k): total += a[i, t] * b[t, j]
    out[i, j] = total


@kernel tile[(16, 16)] grid[(ceil_div(m, 16), ceil_div(n, 16))] shared(2_KiB)
def staged(a: f32[m, k], b: f32[k, n], out: mut f32[m, n]):
    y = tile_id(0)
    x = tile_id(1)
    i = group_id(0) * 16 + y
    j = group_id(1) * 16 + x
    left = tshared.alloc((16, 16), f32)
    right = tshared.alloc((16, 16), f32)
    total = f32(0.0)
    for t in range(ceil_div(k, 16)):
        left[y, x] = a[i, t * 16 + x]
        right[y, x] = b[t * 16 + y, j]
        tbarrier()
        for s in range(16): total += left[y, s] * right[s, x]
        tbarrier()
    out[i, j] = total


@kernel tile[(8, 32)] grid[(ceil_div(m, 8), ceil_div(n, 32))]
def blur(x: f32[p, q], w: f32[r, c], out: mut f32[m, n]):
    i = group_id(0) * 8 + tile_id(0)
    j = group_id(1) * 32 + tile_id(1)
    total = f32(0.0)
    for u in range(r):
        for v in range(c): total += w[u, v] * x[i + u, j + v]
    out[i, j] = total
"""
"""Kernels that are right and do not say so to the compiler."""


# --- the share of a compilation ----------------------------------------------------------------


class Clock:
    """CPU time spent in functions of modules while they are replaced."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0

    def timed(self, f: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.depth += 1
            begin = time.process_time()
            try:
                return f(*arguments, **named)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.seconds += time.process_time() - begin

        return call


@contextmanager
def analyses(clock: Clock) -> Iterator[None]:
    """Every call of an analysis counts."""
    places = [(lane_kernel, name) for name in ("uniformity", "ranges", "check_barriers",
              "check_arrays", "check_bounds", "check_shared", "check_shared_budget")]  # fmt: skip
    places += [(prove_bounds, "ranges"), (narrow_indices, "ranges")]
    before = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, clock.timed(getattr(module, name)))
    try:
        yield
    finally:
        for (module, name), f in zip(places, before, strict=True):
            setattr(module, name, f)


def library() -> str:
    """The folder of the standard library."""
    from tessera_lang.driver.modules import standard_library

    return (standard_library() or "").rstrip("/")


def files(folder: str) -> list[str]:
    """The modules of a folder."""
    return sorted(f.removesuffix(".tessera") for f in os.listdir(folder) if f.endswith(".tessera"))


def with_facts(signature: Any, small: bool = False) -> tuple[Any, ...]:
    """A signature for arrays without gaps at multiples of 16 bytes."""
    return tuple(
        replace(a, aligned=True, small=small) if isinstance(a, TensorArgument) else a
        for a in signature
    )


def instances(name: str, folder: str) -> Iterator[tuple[str, Any]]:
    """The lane kernels of a file with the signatures of its tests."""
    path = f"{folder}/{name}.tessera"
    found = Session()
    found.check(path, SIGNATURES.get(name, ()))
    if name == "reduce_kernels":
        found.check(f"{folder}/reduce.tessera")
    kernels = {
        (function.name, with_facts(signature)): None
        for function, signature in found.seen(path)
        if kernel_level(function) == "lane"
    }
    yield from kernels


def share() -> None:
    """The analyses' part of parsing, checking, lowering, LLVM and ptxas together."""
    folder, options = library(), target_options("cuda", "sm_90")
    rows: list[dict[str, Any]] = []
    for name in files(folder):
        clock, whole, count = Clock(), 0.0, 0
        for kernel, signature in instances(name, folder):
            with analyses(clock):
                fresh = Session()
                begin = _spent()
                fresh.compile_kernel(f"{folder}/{name}.tessera", kernel, signature, options)
                whole += _spent() - begin
            count += 1
        if count:
            rows.append({"file": name, "kernels": count, "analyses": clock.seconds, "all": whole})
            print(f"{name:<16} {count:3} kernels  {1e3 * clock.seconds:7.0f} ms of "
                  f"{1e3 * whole:7.0f} ms  {clock.seconds / whole:.3f}", flush=True)  # fmt: skip
    part, total = sum(r["analyses"] for r in rows), sum(r["all"] for r in rows)
    print(f"together {part:.2f} s of {total:.2f} s: {part / total:.3f}   goal < 0.333")
    record = {"title": "analyses", "machine": machine(), "rows": rows, "share": part / total}
    (RESULTS / "analyses.json").write_text(json.dumps(record, indent=1) + "\n")


def _spent() -> float:
    """CPU time of this process and of those that it has waited for: ptxas."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


# --- what 32 bits give -------------------------------------------------------------------------


def instructions(cubin: bytes) -> int:
    """Instructions of the kernels of a cubin, 16 bytes each, by its sections of code."""
    at, size, count = (
        int.from_bytes(cubin[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62))
    )
    headers = [cubin[at + i * size : at + (i + 1) * size] for i in range(count)]
    return sum(
        int.from_bytes(h[32:40], "little") // 16
        for h in headers
        if int.from_bytes(h[4:8], "little") == 1 and int.from_bytes(h[8:16], "little") & 4
    )  # a section of the program that is executable


def made(path: str, kernel: str, signature: Any, small: bool) -> tuple[int, int]:
    """Registers and instructions of a kernel for sm_90."""
    facts = with_facts(signature, small)
    passes, session.NARROWED = session.NARROWED, session.NARROWED if small else ()
    try:
        artifact = Session().compile_kernel(path, kernel, facts, target_options("cuda", "sm_90"))
    finally:
        session.NARROWED = passes
    return artifact.resources.registers, instructions(artifact.code)


def narrowed() -> None:
    """Each lane kernel of the library with indices of 64 bits and of 32."""
    folder, rows = library(), []
    for name in files(folder):
        path = f"{folder}/{name}.tessera"
        for kernel, signature in instances(name, folder):
            before, after = (made(path, kernel, signature, small) for small in (False, True))
            rows.append({"file": name, "kernel": kernel, "wide": before, "narrow": after})
            print(f"{name:<16} {kernel:<20} registers {before[0]:3} -> {after[0]:3}   "
                  f"instructions {before[1]:5} -> {after[1]:5}", flush=True)  # fmt: skip
    ratios = [r["narrow"][1] / r["wide"][1] for r in rows]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    fewer = sum(r["narrow"][0] < r["wide"][0] for r in rows)
    more = sum(r["narrow"][0] > r["wide"][0] for r in rows)
    print(f"{len(rows)} kernels: instructions {mean:.3f} (geometric mean), "
          f"fewer registers in {fewer}, more in {more}")  # fmt: skip
    record = {"title": "narrow", "machine": machine(), "rows": rows, "instructions": mean}
    (RESULTS / "narrow.json").write_text(json.dumps(record, indent=1) + "\n")


# --- the cost at run time ----------------------------------------------------------------------


def _module(how: str) -> tessera.Module:
    """The kernels compiled with guards or without."""
    os.environ["TESSERA_BOUNDS"] = how
    try:
        return tessera.compile(GUARDED, target="cuda")
    finally:
        del os.environ["TESSERA_BOUNDS"]


def cost() -> None:
    """Each kernel with its guards beside itself without."""
    import torch

    report = Report("guards")
    modules = {how: _module(how) for how in ("guard", "off")}
    n, side = 1 << 26, 8192
    x, at = torch.randn(n, device="cuda"), torch.randperm(n, device="cuda").int()
    plane, out = x.view(side, side), torch.empty(n, device="cuda")
    a, b, c = (torch.randn(1024, 1024, device="cuda") for _ in range(3))
    wide, w = torch.randn(1028, 1028, device="cuda"), torch.randn(5, 5, device="cuda")
    calls: list[tuple[str, tuple[Any, ...], int]] = [
        ("scale", (x, out), 8 * n), ("gather", (x, at, out), 12 * n),
        ("laplace", (plane, out.view(side, side)), 8 * n), ("product", (a, b, c), 0),
        ("shifted", (plane, out.view(side, side), 0), 8 * n),
        ("staged", (a, b, c), 0), ("blur", (wide, w, c), 0),
    ]  # fmt: skip
    for name, arguments, bytes_ in calls:
        kernels: dict[str, Any] = {}
        for how, module in modules.items():
            kernels[how] = getattr(module, name)
            kernels[how](*arguments)
        times = median_device_seconds(
            {"tessera": lambda: kernels["guard"](*arguments),  # noqa: B023
             "off": lambda: kernels["off"](*arguments)},  # noqa: B023
        )  # fmt: skip
        slower = times["tessera"] / times["off"] - 1
        report.add(Row(name, times, bytes_, "<= 3 %", f"{100 * slower:+.1f} %"))
    report.save("guards")


def main() -> None:
    for part in sys.argv[1:] or ["share", "narrow", "cost"]:
        {"share": share, "narrow": narrowed, "cost": cost}[part]()


if __name__ == "__main__":
    main()
