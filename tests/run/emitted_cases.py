"""The kernels that ``tests.run.emitted`` compiles, with what each is compiled for.

Lane kernels of the library and of the examples take the signatures that their own tests and
``LANE_SIGNATURES`` give; tile kernels are listed here, with sizes that take them on the ways that
there are: whole tiles and cut ones, few rows, short and long sums, rows that fit and that do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import attention, guards, rows
from benchmarks.gemm_sweep import CLASSES, WORK

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "stdlib" / "tessera_stdlib"
EXAMPLES = ROOT / "examples"
LANE_SIGNATURES = guards.SIGNATURES


@dataclass(frozen=True)
class TileCase:
    """A tile kernel with a signature. ``where`` names the folder of its files; ``text`` is the
    program, or else ``path`` is its file. ``turned``: arrays stored as their transposes."""

    where: str
    kernel: str
    signature: str
    path: str = ""
    text: str = ""
    turned: tuple[str, ...] = ()


def _linalg() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for m, n, k in (
        (256, 128, 192), (129, 67, 72), (4096, 4096, 4096), (1000, 1000, 1000), (1, 8192, 8192),
        (16, 8192, 8192), (256, 8192, 28672), (1792, 1792, 8192),
    ):  # fmt: skip
        yield "_matmul", f"a: bf16[{m}, {k}], b: bf16[{k}, {n}], OUT=bf16", ()
    for m, n, k in ((4096, 4096, 4096), (512, 512, 512), (4097, 4095, 4099), (64, 28672, 8192)):
        yield "_matmul", f"a: bf16[{m}, {k}], b: bf16[{k}, {n}], OUT=bf16", ("b",)
    for dtype in ("f16", "f32", "f64"):
        yield "_matmul", f"a: {dtype}[256, 192], b: {dtype}[192, 128], OUT={dtype}", ()
    yield "_matmul", "a: i8[64, 64], b: i8[64, 64], OUT=i32", ("b",)
    yield "_matmul", "a: bf16[3, 65, 64], b: bf16[3, 64, 65], OUT=bf16", ("b",)
    yield "_matmul", "a: bf16[8, 1024, 1024], b: bf16[8, 1024, 1024], OUT=bf16", ()
    yield "_matmul", "a: f32[256, 192], b: bf16[192, 128], OUT=bf16", ()
    for m, n, k in ((256, 128, 192), (129, 67, 72), (4096, 4096, 4096)):
        yield "matmul_tf32", f"a: f32[{m}, {k}], b: f32[{k}, {n}]", ()
        yield "matmul_f32x3", f"a: f32[{m}, {k}], b: f32[{k}, {n}]", ()
        scales = f"scale_a: f32[{m}], scale_b: f32[{n}], OUT=bf16"
        yield "_matmul_f8", f"a: f8e4m3[{m}, {k}], b: f8e4m3[{k}, {n}], {scales}", ("b",)
    for m, n, k in ((256, 128, 192), (2048, 4096, 4096)):
        sizes = f"c: bf16[{m}, {n}], a: bf16[{m}, {k}], b: bf16[{k}, {n}]"
        yield "_addmm", f"{sizes}, alpha: f32, beta: f32, OUT=bf16, S=f32", ()
    for how, m, n, k in (
        ("relu", 256, 128, 192), ("gelu", 129, 67, 72), ("silu", 4096, 14336, 4096)
    ):  # fmt: skip
        sizes = f"x: bf16[{m}, {k}], w: bf16[{n}, {k}], bias: bf16[{n}]"
        yield "_linear", f'{sizes}, OUT=bf16, how="{how}"', ()
    for m, k in ((256, 192), (129, 72), (8192, 8192)):
        yield "gemv", f"a: bf16[{m}, {k}], x: bf16[{k}]", ()


def _nn() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for m, n in ((5, 1), (7, 129), (3, 8192), (2, 40000), *rows.SHAPES):
        weight = f", weight: bf16[{n}]"
        for kernel, more in (
            ("_softmax_rows", ""), ("_layernorm", f"{weight}, bias: bf16[{n}], eps=1e-5"),
            ("_rmsnorm", f"{weight}, eps=1e-6"),
        ):  # fmt: skip
            yield kernel, f"x: bf16[{m}, {n}]{more}", ()
    for m, n in ((7, 129), (2, 40000), (4096, 32768)):
        yield "_log_softmax_rows", f"x: f32[{m}, {n}]", ()
        yield "_softmax_rows", f"x: f32[{m}, {n}]", ()
    for kernel in ("_softmax_columns", "_log_softmax_columns"):
        yield kernel, "x: f32[5, 33, 6]", ()
    yield "transpose", "x: f32[131, 67]", ()
    yield "transpose", "x: bf16[16384, 16384]", ()


def _layers() -> Iterator[tuple[str, str, str]]:
    """The module, a kernel of it and a signature."""
    steps = "sd: i32, sh: i32, pd: i32, ph: i32, pw: i32"
    spread = f"{steps}, dd: i32, dh: i32, dw: i32"
    for dtype in ("f32", "bf16"):
        yield (
            "conv",
            "_convolve",
            (
                f"x: {dtype}[4, 32, 1, 58, 58], f: {dtype}[1, 64, 32, 1, 3, 3], "
                f"bias: {dtype}[1, 64], "
                f"y: {dtype}[4, 64, 1, 56, 56], {spread}, A=f32, SW=1"
            ),
        )
        yield (
            "conv",
            "_transposed",
            (
                f"x: {dtype}[2, 32, 1, 20, 21], f: {dtype}[1, 32, 64, 1, 4, 4], "
                f"bias: {dtype}[1, 64], "
                f"y: {dtype}[2, 64, 1, 42, 22, 2], {spread}, A=f32, SW=2, "
                f"CI={32 if dtype == 'f32' else 64}"
            ),
        )
        yield "conv", "_cut", f"x: {dtype}[3000, 44], y: {dtype}[3000, 43]"
        yield "loss", "_rounded", f"y: f32[300], T={dtype}"
        x, y = f"x: {dtype}[8, 1, 57, 130]", f"y: mut {dtype}[8, 1, 28, 65]"
        kernel = "kd: i32, kh: i32, kw: i32"
        yield "pool", "_greatest", f"{x}, {y}, {kernel}, {spread}, SW=2"
        yield "pool", "_mean", f"{x}, {y}, {kernel}, {steps}, divisor: i32, A=f32, SW=2"
        rows = ", ".join(f"{n}: {{}}f32[24]" for n in ("mean", "rest", "variance"))
        yield "norm", "_moments", f"x: {dtype}[8, 24, 1000], {rows.format(*['mut '] * 3)}, A=f32"
        yield "norm", "_widened", f"x: {dtype}[24], A=f32"
        yield (
            "norm",
            "_normalized",
            (
                f"x: {dtype}[8, 24, 1000], {rows.format('', '', '')}, weight: f32[24], "
                "bias: f32[24], "
                "examples: i32, channels: i32, eps: f32, A=f32, W=f32"
            ),
        )
        pair = f"x: {dtype}[100000], t: {dtype}[100000], p: f32"
        yield "loss", "_elements", f'{pair}, A=f32, how="huber"'
        yield "loss", "_summed", f'{pair}, divisor: f32, A=f32, how="mse"'
        classes = f"x: {dtype}[300, 1000], target: i64[300], y: f32[300], ignored: i64"
        yield "loss", "_picked", f"{classes}, A=f32"
        yield "loss", "_entropies", f"{classes}, smoothing: f32, A=f32"
        yield (
            "topk",
            "_taken",
            (
                f"x: {dtype}[30, 1000], columns: i64[1000], values: {dtype}[30, 5], "
                "places: i64[30, 5], LARGEST=True, K=i32, MOST=2147483647"
            ),
        )
    yield "einsum", "_of_one", 'a: f32[300, 200], LETTERS="ij->ji"'
    yield "einsum", "_of_two", 'a: bf16[8, 300, 64], b: bf16[8, 64, 200], LETTERS="bij,bjk->bik"'
    yield (
        "einsum",
        "_of_three",
        'a: f32[30, 40], b: f32[40, 50], c: f32[50, 20], LETTERS="ij,jk,kl->il"',
    )
    yield (
        "loss",
        "_over_classes",
        ("y: f32[300], target: i64[300], ignored: i64, A=f32, T=f32, MEAN=True"),
    )


_SCORES = "2, 2, 2048, 2048"


def _attention() -> Iterator[tuple[str, str]]:
    """A kernel of std.attention and a signature."""
    for dtype, d, right in (("bf16", 64, 0), ("bf16", 128, -1), ("f16", 96, 0), ("f32", 64, -1)):
        some, most = (32, 64) if dtype == "f32" else (64, 128)
        rows, keys = f"{dtype}[16, 2, 2048, {d}]", f"{dtype}[16, 2048, {d}]"
        how = f"LEFT=-1, RIGHT={right}, how='plain', scale: f32, inner: f32"
        given, sums = f"q: {rows}, k: {keys}, v: {keys}", "f32[16, 2, 2048]"
        made = f"o: mut {rows}, lse: mut {sums}"
        yield "_forward", f"{given}, {made}, BM={most}, BN={most}, STEP=1, {how}"
        given += f", go: {rows}, high: {sums}, delta: {sums}"
        made = f"dk: mut {keys}, dv: mut {keys}"
        yield "_of_queries", f"{given}, dq: mut {rows}, BM={most}, BN={some}, {how}, factor: f32"
        few = 32 if d > 64 else some
        both = f"BM={few}, BN={most}, K=True, V=True"
        yield "_of_keys", f"{given}, {made}, {both}, {how}, factor: f32"
        flat = f"o: {dtype}[65536, {d}], go: {dtype}[65536, {d}], lse: f32[65536]"
        yield "_rows", f"{flat}, delta: mut f32[65536], high: mut f32[65536]"
        pages = f"k: {dtype}[900, 64, 8, {d}], v: {dtype}[900, 64, 8, {d}], table: i32[16, 40]"
        given = f"q: {dtype}[16, 8, 1, 4, {d}], {pages}, lengths: i32[16]"
        made = f"o: mut {dtype}[16, 8, 1, 4, {d}], lse: mut f32[16, 8, 1, 4]"
        yield "_paged", f"{given}, {made}, BM=64, BN=64, PARTS=1, STEP=0, {how}"
    rows, keys, scores = (f"bf16[{n}]" for n in ("2, 2, 2048, 224", "2, 2048, 224", _SCORES))
    window = "BLOCK=128, LEFT=-1, RIGHT=0"
    given = f"q: {rows}, k: {keys}, v: {keys}, go: {rows}, high: f32[2, 2, 2048]"
    made = f"delta: f32[2, 2, 2048], dv: mut {keys}, ds: mut {scores}, scale: f32, inner: f32"
    yield "_of_values", f"{given}, {made}, BM=64, BN=64, {window}, how='plain'"
    yield (
        "_by_keys",
        f"ds: {scores}, q: {rows}, dk: mut {keys}, factor: f32, BM=64, BN=64, {window}",
    )
    given = f"ds: {scores}, k: {keys}, dq: mut {rows}, factor: f32"
    yield "_by_queries", f"{given}, BM=128, BN=64, LEFT=-1, RIGHT=0"


def _benchmarks() -> Iterator[TileCase]:
    for heads, length, size, (bm, bn) in attention.SHAPES:
        arrays = ", ".join(f"{x}: bf16[{heads}, {length}, {size}]" for x in "qkv")
        signature = f"{arrays}, scale: f32, BM={bm}, BN={bn}"
        yield TileCase("benchmarks.attention", "attention", signature, text=attention.SOURCE)
    for kernel, signature in (
        ("vec_add", "x: f32[268435456], y: f32[268435456]"),
        ("gelu_bias", "x: bf16[16384, 16384], bias: bf16[16384]"),
        ("transposed", "x: bf16[16384, 16384]"),
    ):
        yield TileCase("benchmarks.rows", kernel, signature, text=rows.SOURCE)
    # Of each class of the sweep those that differ in kind.
    for name, some in (("few", 2), ("short", 2), ("long", 1), ("odd", 1), ("batched", 3),
                       ("dtypes", 3), ("epilogues", 4)):  # fmt: skip
        for how, work, size in CLASSES[name][:some]:
            yield _swept(how, work, size)


def _swept(how: str, work: str, size: tuple[int, ...]) -> TileCase:
    """A row of the sweep of products, as ``benchmarks.gemm_sweep`` writes it."""
    dtype, layout = how.split()
    *batch, m, n, k = size
    inside = layout == "tn" and not batch
    more, result = WORK[work]
    out = "i32" if dtype == "i8" else dtype
    text = (
        f"@op.kernel\ndef kernel(a, b{more}):\n    x = a @ b{'.T' if inside else ''}\n"
        f"    return ({result}).to({out})\n"
    )
    shapes = {"a": (*batch, m, k), "b": (*batch, *((n, k) if inside else (k, n)))}
    shapes |= {"c": (n,)} if "c" in more else {"r": (m, n)} if "r" in more else {}
    signature = ", ".join(f"{x}: {dtype}[{', '.join(map(str, s))}]" for x, s in shapes.items())
    turned = ("b",) if layout == "tn" and batch else ()
    return TileCase(f"benchmarks.gemm_sweep.{work}", "kernel", signature, "", text, turned)


def tile_cases() -> list[TileCase]:
    """All tile kernels that are compiled."""
    found: list[TileCase] = []
    for module, cases in (("linalg", _linalg()), ("nn", _nn())):
        path = str(LIBRARY / f"{module}.tessera")
        found += [TileCase(f"std.{module}", k, s, path, "", t) for k, s, t in cases]
    cases = (*_layers(), *(("attention", *case) for case in _attention()))
    for module, kernel, signature in cases:
        path = str(LIBRARY / f"{module}.tessera")
        found.append(TileCase(f"std.{module}", kernel, signature, path))
    for step, kernel, text in (
        ("2_tiles", "matmul", "A: f32[{m}, {k}], B: f32[{k}, {n}], C: f32[{m}, {n}]"),
        ("3_shared", "matmul", "A: f32[{m}, {k}], B: f32[{k}, {n}], C: f32[{m}, {n}]"),
        ("4_pipeline", "matmul", "A: bf16[{m}, {k}], B: bf16[{k}, {n}], C: f32[{m}, {n}]"),
        ("5_schedule", "linear", "x: bf16[{m}, {k}], w: bf16[{n}, {k}], bias: bf16[{n}]"),
        ("6_whole", "matmul", "A: f32[{m}, {k}], B: f32[{k}, {n}]"),
    ):
        for m, n, k in ((100, 130, 70), (1024, 1024, 1024)):
            path = str(EXAMPLES / "matmul" / f"{step}.tessera")
            signature = text.format(m=m, n=n, k=k)
            found.append(TileCase(f"examples.{step}", kernel, signature, path))
    return [*found, *_benchmarks()]


def lane_files() -> dict[str, Path]:
    """The files of which the lane kernels are compiled, by the name of the folder."""
    found = {f"std.{f.stem}": f for f in sorted(LIBRARY.glob("*.tessera"))}
    for f in (*sorted(EXAMPLES.glob("*.tessera")), *sorted(EXAMPLES.glob("*/*.tessera"))):
        found[f"examples.{f.stem}"] = f
    return found
