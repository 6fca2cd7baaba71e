"""What guards cost at run time, and what the analyses that drop them cost of a compilation.

Run: python -m benchmarks.guards [share] [cost]

``share`` needs no GPU: every lane kernel of the standard library is compiled for sm_90, for the
signatures of its own tests. ``cost`` times kernels whose guards nothing proves away beside the same
kernels under ``--bounds=off``, on one GPU.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tessera_lang as tessera
from benchmarks.harness import RESULTS, Report, Row, machine, median_device_seconds
from tessera_lang.driver.commands.kernels import target_options
from tessera_lang.driver.session import Session
from tessera_lang.evaluate.library import kernel_level
from tessera_lang.lower import ast_to_tile
from tessera_lang.opt.tile import bounds, narrow

SIGNATURES = {
    "elementwise": ("T=f32", "S=i32, T=f32"),
    "layout": ("T=f32",),
    "reduce_kernels": (
        'how="sum", A=f32, T=f32, O=f32', 'how="max", V=f32, T=f32', 'how="max", V=f32',
    ),
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


@kernel tile[(16, 16)] grid[(ceil_div(m, 16), ceil_div(n, 16))]
def product(a: f32[m, k], b: f32[k, n], out: mut f32[m, n]):
    i = group_id(0) * 16 + tile_id(0)
    j = group_id(1) * 16 + tile_id(1)
    total = f32(0.0)
    for t in range(k): total += a[i, t] * b[t, j]
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
    places = [(ast_to_tile, name) for name in ("uniformity", "ranges", "check_barriers",
              "check_bounds", "check_shared", "check_shared_budget")]  # fmt: skip
    places += [(bounds, "ranges"), (narrow, "ranges")]
    before = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, clock.timed(getattr(module, name)))
    try:
        yield
    finally:
        for (module, name), f in zip(places, before, strict=True):
            setattr(module, name, f)


def instances(name: str, folder: str) -> Iterator[tuple[str, Any]]:
    """The lane kernels of a file with the signatures of its tests."""
    path = f"{folder}/{name}.tessera"
    found = Session()
    found.check(path, SIGNATURES.get(name, ()))
    if name == "reduce_kernels":
        found.check(f"{folder}/reduce.tessera")
    for function, signature in found.seen(path):
        if kernel_level(function) == "lane":
            yield function.name, signature


def share() -> None:
    """The analyses' part of parsing, checking, lowering, LLVM and ptxas together."""
    from tessera_lang.driver.modules import standard_library

    folder = (standard_library() or "").rstrip("/")
    options = target_options("cuda", "sm_90")
    rows: list[dict[str, Any]] = []
    names = sorted(f.removesuffix(".tessera") for f in os.listdir(folder) if f.endswith(".tessera"))
    for name in names:
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
    calls: list[tuple[str, tuple[Any, ...], int]] = [
        ("scale", (x, out), 8 * n), ("gather", (x, at, out), 12 * n),
        ("laplace", (plane, out.view(side, side)), 8 * n), ("product", (a, b, c), 0),
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
    for part in sys.argv[1:] or ["share", "cost"]:
        {"share": share, "cost": cost}[part]()


if __name__ == "__main__":
    main()
