"""Tile kernels as one writes them without a schedule, each beside the same kernel with directives.

Run: python -m benchmarks.untuned [name ...] [--check ARCH] [--jobs 16] [--save]
The kernels are those of ``untuned.tessera``. Their rivals are the same text with other steps, and
with directives at the top of the body, as somebody sets who tries what may help: what the compiler
chooses should be within a tenth of the best of them. A rival that does not compile is left out.
Results are compared with torch's first. ``--check ARCH`` compiles all of them without a device, and
prints to which unit products go, what spills, and what the compiler warns of.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tessera_lang as tessera
from benchmarks.gemm_sweep import wake
from benchmarks.harness import Report, Row, median_device_seconds
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions

SOURCE = Path(__file__).with_suffix(".tessera")
LIMIT = 2e-2
"""Of the relative error of results, of which most are rounded to bf16."""


@dataclass(frozen=True)
class Form:
    """Steps, by the names of parameters in brackets, and directives."""

    steps: Mapping[str, int] = field(default_factory=dict[str, int])
    schedule: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = [f"{name}={step}" for name, step in self.steps.items()]
        return ", ".join((*steps, *self.schedule)) or "tessera"


@dataclass(frozen=True)
class Program:
    """A kernel's arguments, as dtype and shape, what torch makes of them, and its rivals.
    ``below``: of integer arguments, what elements are less than; each once where it is negative."""

    arrays: Mapping[str, str]
    want: Callable[..., Any]
    rivals: tuple[Form, ...]
    below: Mapping[str, int] = field(default_factory=dict[str, int])


def _steps(**steps: int) -> Form:
    return Form(steps)


def _said(*schedule: str) -> Form:
    return Form({}, schedule)


WHOLE = (
    _said("tile((128, 256, 64))", "cluster((2, 1))"), _said("tile((256, 128, 64))"),
    _said("tile((128, 128, 64))", "pipeline_stages(5)"), _said("tile((192, 160, 64))"),
)  # fmt: skip
TWO = (
    _said("tile((128, 128, 64))"), _said("tile((128, 128, 64))", "cluster((2, 1))"),
    _said("tile((256, 64, 64))"), _said("tile((192, 96, 64))"),
)  # fmt: skip
TILES = (
    _steps(BN=256), _steps(BM=256), _steps(BM=64), _steps(BN=192),
    Form({}, ("pipeline_stages(4)",)),
)  # fmt: skip
ATTENTION = (
    _steps(BM=128, BN=128), _steps(BM=64, BN=128), _steps(BM=128, BN=64), _steps(BM=128, BN=96),
    Form({"BM": 128, "BN": 128}, ("pipeline_stages(2)",)),
)  # fmt: skip
ROWS = (_said("warps(8)"), _said("warps(4)"), _said("warps(16)"), _said("persistent(True)"))
HEADS = "bf16[16, 4096, 64]"


def _torch() -> Any:
    import torch

    return torch


def _silu(x: Any) -> Any:
    return x * x.sigmoid()


def _places() -> tuple[Any, Any]:
    at = _torch().arange(4096, device="cuda")
    return at[:, None], at[None, :]


def _attended(q: Any, k: Any, v: Any, change: Callable[[Any], Any]) -> Any:
    return change(q.float() @ k.float().transpose(-1, -2)).softmax(-1) @ v.float()


def _windowed(q: Any, k: Any, v: Any) -> Any:
    row, key = _places()
    hidden = (key > row) | (key <= row - 256)
    return _attended(q, k, v, lambda s: (s * 0.125).masked_fill(hidden, float("-inf")))


def _sloped(q: Any, k: Any, v: Any, slope: Any) -> Any:
    row, key = _places()
    far = (row - key).abs().float()
    return _attended(q, k, v, lambda s: s * 0.125 - slope[:, None, None] * far)


def _causal(q: Any, k: Any, v: Any) -> Any:
    row, key = _places()
    scale, hidden = 0.0883883, key > row
    return _attended(
        q, k[:, None], v[:, None], lambda s: (s * scale).masked_fill(hidden, float("-inf"))
    )


def _normed(x: Any, g: Any, w: Any) -> Any:
    y = x.float()
    return (y * (y.square().mean(1, True) + 1e-6).rsqrt() * g).to(x.dtype) @ w


def _nine(x: Any, y: Any) -> Any:
    out = y.clone()
    n, m = x.shape
    at = {(i, j): x[1 + i : n - 1 + i, 1 + j : m - 1 + j] for i in (-1, 0, 1) for j in (-1, 0, 1)}
    sides = at[-1, 0] + at[1, 0] + at[0, -1] + at[0, 1]
    corners = at[-1, -1] + at[-1, 1] + at[1, -1] + at[1, 1]
    out[1:-1, 1:-1] = 0.5 * at[0, 0] + 0.1 * sides + 0.025 * corners
    return out


def _some(x: Any, keep: Any) -> Any:
    return (x.float() * 0.7).masked_fill(keep[None] <= 0, float("-inf")).softmax(1)


def _entropy(x: Any, label: Any) -> Any:
    return _torch().nn.functional.cross_entropy(x.float(), label.long(), reduction="none")


def _residual(x: Any, r: Any, g: Any, b: Any) -> Any:
    return _torch().nn.functional.layer_norm(x.float() + r.float(), (x.shape[1],), g, b)


def _as_bytes(x: Any, q: Any, scale: Any) -> Any:
    return (x.float() / (x.float().abs().amax(1, True) / 127)).round()


def _taps(x: Any, w: Any) -> Any:
    padded = _torch().nn.functional.pad(x.float(), (0, 0, 3, 0))
    return _silu(sum(padded[:, t : t + x.shape[1]] * w[t] for t in range(4)))


PROGRAMS = {
    "scaled_product": Program(
        {"x": "bf16[4096, 2048]", "w": "bf16[2048, 4096]", "s": "f32[4096]", "b": "f32[4096]"},
        lambda x, w, s, b: _torch().nn.functional.gelu((x @ w).float() * s[:, None] + b), WHOLE,
    ),
    "chained_products": Program(
        {"x": "bf16[32768, 128]", "v": "bf16[128, 256]", "w": "bf16[256, 128]"},
        lambda x, v, w: (x @ v).relu() @ w,
        (_steps(BM=128), _steps(BM=192), Form({"BM": 128}, ("persistent(True)",)),
         _said("warp_specialize(False)")),
    ),
    "batched_product": Program(
        {"a": "bf16[32, 512, 512]", "b": "bf16[32, 512, 384]", "c": "f32[32, 384]"},
        lambda a, b, c: (a @ b).float() + c[:, None], WHOLE,
    ),
    "triangle_product": Program(
        {"a": "bf16[4096, 4096]", "b": "bf16[4096, 4096]"}, lambda a, b: a.tril() @ b, TILES
    ),
    "window_attention": Program({"q": HEADS, "k": HEADS, "v": HEADS}, _windowed, ATTENTION),
    "norm_product": Program(
        {"x": "bf16[4096, 1024]", "g": "f32[1024]", "w": "bf16[1024, 4096]"}, _normed, WHOLE
    ),
    "gated_product": Program(
        {"x": "bf16[4096, 2048]", "v": "bf16[2048, 5632]", "w": "bf16[2048, 5632]"},
        lambda x, v, w: _silu((x @ v).float()) * (x @ w).float(), TWO,
    ),
    "gathered_product": Program(
        {"x": "bf16[16384, 1024]", "rows": "i32[8192]", "w": "bf16[1024, 2048]"},
        lambda x, rows, w: x[rows] @ w, TILES, {"rows": 16384},
    ),
    "scattered_rows": Program(
        {"x": "f32[65536, 512]", "rows": "i32[65536]", "y": "mut f32[65536, 512]"},
        lambda x, rows, y: y.index_copy(0, rows.long(), x * 2.0),
        (_steps(BM=8), _steps(BM=16), _steps(BM=64), Form({"BM": 16}, ("warps(8)",))),
        {"rows": -65536},
    ),
    "nine_points": Program(
        {"x": "f32[8192, 8192]", "y": "mut f32[8192, 8192]"}, _nine,
        (_said("tile((8, 256))"), _said("tile((16, 128))"), _said("tile((4, 512))"),
         _said("tile((32, 128))")),
    ),
    "running_sums": Program({"x": "bf16[16384, 4096]"}, lambda x: x.float().cumsum(1), ROWS),
    "some_columns": Program(
        {"x": "bf16[16384, 4096]", "keep": "i32[4096]"}, _some, ROWS, {"keep": 2}
    ),
    "eight_greatest": Program(
        {"x": "f32[16384, 1024]", "y": "mut f32[16384, 8]"}, lambda x, y: x.topk(8).values,
        (_steps(BM=2), _steps(BM=4), _steps(BM=8), _said("warps(4)")),
    ),
    "sloped_attention": Program(
        {"q": HEADS, "k": HEADS, "v": HEADS, "slope": "f32[16]"}, _sloped, ATTENTION
    ),
    "causal_attention": Program(
        {"q": "bf16[4, 4, 4096, 128]", "k": "bf16[4, 4096, 128]", "v": "bf16[4, 4096, 128]"},
        _causal, ATTENTION,
    ),
    "linear_attention": Program(
        dict.fromkeys(("q", "k", "v"), "bf16[256, 2048, 64]"),
        lambda q, k, v: (q.float() @ k.float().transpose(1, 2)).tril() @ v.float(),
        (_steps(BN=128), _said("warps(8)"), _said("pipeline_stages(3)"),
         _said("pipeline_stages(2)")),
    ),
    "cross_entropy": Program(
        {"x": "bf16[8192, 32000]", "label": "i32[8192]"}, _entropy, ROWS, {"label": 32000}
    ),
    "residual_norm": Program(
        {"x": "bf16[16384, 4096]", "r": "bf16[16384, 4096]", "g": "f32[4096]", "b": "f32[4096]"},
        _residual, ROWS,
    ),
    "rows_as_bytes": Program(
        {"x": "bf16[8192, 8192]", "q": "mut i8[8192, 8192]", "scale": "mut f32[8192]"}, _as_bytes,
        ROWS,
    ),
    "nearest_points": Program(
        {"x": "bf16[16384, 64]", "y": "bf16[16384, 64]", "a": "f32[16384]", "b": "f32[16384]"},
        lambda x, y, a, b: (b[None] - 2 * (x @ y.T).float()).amin(1) + a,
        (_steps(BM=128, BN=128), _steps(BM=128), _steps(BN=128), _steps(BM=128, BN=256)),
    ),
    "four_taps": Program(
        {"x": "bf16[8, 4096, 2048]", "w": "f32[4, 2048]"}, _taps,
        (_steps(BM=16, BN=256), _steps(BM=64), _steps(BM=8, BN=512), _steps(BM=16, BN=128)),
    ),
    "weights_of_bytes": Program(
        {"x": "bf16[4096, 4096]", "w": "i8[4096, 4096]", "s": "f32[4096]"},
        lambda x, w, s: x @ (w.float() * s).to(x.dtype),
        (_said("tile((256, 128, 64))"), _said("tile((128, 128, 64))"),
         _said("tile((128, 256, 64))"), _said("tile((192, 128, 64))")),
    ),
}  # fmt: skip


def text_of(name: str, form: Form) -> str:
    """The kernel alone, with directives at the top of its body."""
    found = re.search(rf"@op\.kernel\ndef {name}\b.*?(?=\n@op|\Z)", SOURCE.read_text(), re.DOTALL)
    assert found is not None, name
    said = "".join(f"    schedule.{one}\n" for one in form.schedule)
    return re.sub(r":\n(?=    \w+\W)", f":\n{said}", found[0], count=1)


def forms_of(name: str) -> tuple[Form, ...]:
    return (Form(), *PROGRAMS[name].rivals)


# --- without a device ------------------------------------------------------------------------


def _checked(job: tuple[str, Form, str]) -> dict[str, object]:
    """One form for an architecture: units of its products, spills, and what the compiler says."""
    name, form, arch = job
    session = Session(overlay={"kernel.tessera": text_of(name, form)})
    arrays = ", ".join(f"{n}: {said}" for n, said in PROGRAMS[name].arrays.items())
    said = ", ".join((arrays, *(f"{n}={step}" for n, step in form.steps.items())))
    try:
        wanted = session.signature("kernel.tessera", name, said)
        options = TargetOptions("cuda", arch)
        made = session.compile_kernel("kernel.tessera", name, wanted, options, ("ptx",))
    except Exception as error:  # one that fails must not end the others
        return {"fault": str(error).splitlines()[0]}
    parts = (made, *made.then)
    ptx = "\n".join(a.texts["ptx"] for a in parts)
    return {
        "launches": len(parts), "wgmma": ptx.count("wgmma.mma_async"),
        "mma": len(re.findall(r"\bmma\.sync", ptx)),
        "copies": ptx.count("cp.async.bulk.tensor"),
        "bytes spilled": sum(a.resources.spill_bytes for a in parts),
        "says": [f"{d.code}: {d.message}" for d in made.diagnostics],
    }  # fmt: skip


def check(names: Sequence[str], arch: str, jobs: int) -> None:
    todo = [(name, form, arch) for name in names for form in forms_of(name)]
    with ProcessPoolExecutor(jobs) as pool:
        for (name, form, _), found in zip(todo, pool.map(_checked, todo), strict=True):
            print(f"{name} [{form}]: {found}", flush=True)


# --- on a device -----------------------------------------------------------------------------


def made_arrays(program: Program) -> dict[str, Any]:
    """Random arguments; those that the kernel writes hold zeros."""
    torch = _torch()
    torch.manual_seed(0)
    kinds = {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i8": torch.int8}
    found: dict[str, Any] = {}
    for name, said in program.arrays.items():
        kind, sizes = said.removeprefix("mut ").rstrip("]").split("[")
        shape, below = tuple(map(int, sizes.split(","))), program.below.get(name, 9)
        if said.startswith("mut "):
            found[name] = torch.zeros(shape, dtype=kinds[kind], device="cuda")
        elif below < 0:
            found[name] = torch.randperm(-below, device="cuda")[: shape[0]].to(kinds[kind])
        elif kind in ("i32", "i8"):
            found[name] = torch.randint(0, below, shape, dtype=kinds[kind], device="cuda")
        else:
            found[name] = torch.randn(shape, dtype=kinds[kind], device="cuda")
    return found


def _call(name: str, form: Form, arrays: Mapping[str, Any]) -> Callable[[], Any]:
    kernel = getattr(tessera.compile(text_of(name, form), target="cuda"), name)
    return lambda: kernel(*arrays.values(), **form.steps)


def _first_run(job: tuple[str, Form]) -> str:
    """Compiled in a process of its own, which leaves it in the cache."""
    try:
        _call(*job, made_arrays(PROGRAMS[job[0]]))()
    except Exception as error:
        return f"{job[0]} [{job[1]}] is left out: {str(error).splitlines()[0][:160]}"
    return ""


def measured(name: str, runs: int) -> Row:
    """What the compiler chooses, and every form with directives that compiles."""
    program = PROGRAMS[name]
    arrays = made_arrays(program)
    want = program.want(**arrays).double()
    written = [n for n, said in program.arrays.items() if said.startswith("mut ")]
    contenders: dict[str, Callable[[], object]] = {}
    for form in forms_of(name):
        try:
            run = _call(name, form, arrays)
            for n in written:
                arrays[n].zero_()
            given = run()
        except tessera.TesseraError:
            if not form.steps and not form.schedule:
                raise
            continue
        got = arrays[written[0]] if written else _torch().as_tensor(given, device="cuda")
        error = ((got.double() - want).norm() / want.norm()).item()
        assert error < LIMIT, f"[{form}] relative error {error:.2e}"
        contenders[str(form)] = run
    del want
    times = median_device_seconds(contenders, runs=runs, warmup=2)
    rivals = sorted((s, n) for n, s in times.items() if n != "tessera")
    notes = "; ".join(f"{n} {1e6 * s:.1f} us" for s, n in rivals)
    best = {"directives": rivals[0][0]} if rivals else {}
    return Row(name, {"tessera": times["tessera"], **best}, 0, ">= 0.9x", notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--check", default="", metavar="ARCH")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    chosen = parser.parse_args()
    names = [n for n in PROGRAMS if not chosen.names or n in chosen.names]
    if chosen.check:
        check(names, chosen.check, chosen.jobs)
        return
    forms = [(name, form) for name in names for form in forms_of(name)]
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("fork")) as pool:
        for fault in filter(None, pool.map(_first_run, forms)):
            print(fault, flush=True)
    wake()
    report = Report("tile kernels without a schedule")
    for name in names:
        try:
            report.add(measured(name, chosen.runs))
        except Exception as error:  # one row that fails must not end the others
            print(f"{name} FAILED: {str(error)[:300]}", flush=True)
        if chosen.save and report.rows:
            report.save("untuned")  # what is measured is kept if the rest is cut off


if __name__ == "__main__":
    main()
