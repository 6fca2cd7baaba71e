"""The rows of ``benchmarks.library``, a function for each module: checked, then measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tessera_lang as tessera
from benchmarks import cub

Contenders = dict[str, Callable[[], object]]


class Rows(Protocol):
    """Where rows go."""

    def row(
        self, name: str, contenders: Mapping[str, Callable[[], object]], bytes_: int
    ) -> None: ...


def _tensor(value: Any) -> Any:
    import torch

    return torch.as_tensor(value, device="cuda")


def _close(name: str, got: Any, want: Any, bound: Any) -> None:
    """Both in f64, within a bound, element by element."""
    worst = (_tensor(got).double().reshape(-1) - _tensor(want).double().reshape(-1)).abs()
    assert bool((worst <= bound).all()), f"{name}: {worst.max().item()} off"


def scan(rows: Rows) -> None:
    import torch

    std = tessera.load("std.scan")
    for power in (28, 24, 20):
        n = 1 << power
        x = torch.randn(n, device="cuda")
        want = torch.cumsum(x.double(), 0)
        bound = 1e-5 * torch.cumsum(x.double().abs(), 0) + 1e-6
        _close("inclusive", std.inclusive(x), want, bound)
        _close("cub", cub.scan_in_place(cub.array(x.clone())), want, 100 * bound)
        _close("exclusive", std.exclusive(x)[1:], want[:-1], bound[1:])
        assert torch.equal(std.inclusive(x), std.inclusive(x))
        y, z = cub.array(x), cub.array(x.clone())
        peers: Contenders = {
            "torch": lambda x=x: torch.cumsum(x, 0),
            "cupy": lambda y=y: cub.cupy().cumsum(y),
            "cub": lambda z=z: cub.scan_in_place(z),
        }
        inclusive: Contenders = {"tessera": lambda x=x: std.inclusive(x)}
        rows.row(f"std.scan.inclusive f32 2^{power}", inclusive | peers, 8 * n)
        if power == 28:
            exclusive: Contenders = {"tessera": lambda x=x: std.exclusive(x)}
            rows.row(f"std.scan.exclusive f32 2^{power}", exclusive | peers, 8 * n)
            heads = torch.rand(n, device="cuda") < 1e-3
            _segments(std, x, heads)
            segmented: Contenders = {"tessera": lambda x=x, h=heads: std.segmented(x, h)}
            # Those without segments are for comparison: they read less and compute less.
            plain: Contenders = {f"{name} plain": peers[name] for name in ("torch", "cub")}
            by_key = cub.sum_by_key(x, heads)
            if by_key is not None:
                segmented["cub"], found = by_key
                segmented["cub"]()
                bound = 1e-3 * std.segmented(x.abs(), heads) + 1e-5
                _close("cub by key", found, std.segmented(x, heads), bound)
            rows.row(f"std.scan.segmented f32 2^{power}", segmented | plain, 9 * n)
        del want, bound


def _segments(std: Any, x: Any, heads: Any) -> None:
    """Integers, so that a difference of two running sums is exact."""
    import torch

    whole = (x * 10).int()
    total = torch.cumsum(whole.long(), 0)
    before = total - whole
    start = torch.cummax(torch.where(heads, torch.arange(len(x), device="cuda"), 0), 0).values
    assert torch.equal(std.segmented(whole, heads).long(), total - before[start])


def histogram(rows: Rows) -> None:
    import torch

    std = tessera.load("std.histogram")
    n = 1 << 28
    for name, top in (("random bytes", 256), ("one byte", 1)):
        x = torch.randint(0, top, (n,), dtype=torch.uint8, device="cuda")
        want = torch.bincount(x, minlength=256)
        y = cub.array(x)
        assert torch.equal(_tensor(std.histogram(x)).long(), want)
        assert torch.equal(_tensor(cub.histogram_even(y, 256)).long(), want)
        contenders: Contenders = {
            "tessera": lambda x=x: std.histogram(x),
            "cupy": lambda y=y: cub.cupy().bincount(y, minlength=256),
            "cub": lambda y=y: cub.histogram_even(y, 256),
        }
        rows.row(f"std.histogram {name} 2^28", contenders, n)
    n = 1 << 26
    x = torch.randint(0, 1000, (n,), dtype=torch.int32, device="cuda")
    want = torch.bincount(x, minlength=1000)
    y = cub.array(x)
    assert torch.equal(_tensor(std.bincount(x, 1000)).long(), want)
    assert torch.equal(_tensor(cub.histogram_even(y, 1000)).long(), want)
    bins: Contenders = {
        "tessera": lambda: std.bincount(x, 1000),
        "torch": lambda: torch.bincount(x, minlength=1000),
        "cupy": lambda: cub.cupy().bincount(y, minlength=1000),
        "cub": lambda: cub.histogram_even(y, 1000),
    }
    rows.row("std.bincount i32 1000 bins 2^26", bins, 4 * n)


def transpose(rows: Rows) -> None:
    import torch

    std = tessera.load("std.transpose")
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        x = torch.randn(16384, 16384, device="cuda").to(dtype)
        assert torch.equal(_tensor(std.transpose(x)), x.T)
        # CuPy has no bfloat16; it moves bits as well.
        y = cub.array(x if size == 4 else x.view(torch.int16))
        contenders: Contenders = {
            "tessera": lambda x=x: std.transpose(x),
            "torch": lambda x=x: x.T.contiguous(),
            "cupy": lambda y=y: cub.cupy().ascontiguousarray(y.T),
        }
        rows.row(f"std.transpose {dtype} 16384^2", contenders, 2 * size * x.numel())


def reduce(rows: Rows) -> None:
    import torch

    std = tessera.load("std.reduce")
    n = 1 << 28
    x = torch.randn(n, device="cuda")
    m = x.view(16384, 16384)
    y, z = cub.array(x), cub.array(m)
    ours: Contenders = {
        "sum": lambda: std.sum(x),
        "max": lambda: std.max(x),
        "argmax": lambda: std.argmax(x),
        "sum of rows": lambda: std.sum(m, axis=1),
        "sum of columns": lambda: std.sum(m, axis=0),
    }
    torchs: Contenders = {
        "sum": lambda: torch.sum(x),
        "max": lambda: torch.max(x),
        "argmax": lambda: torch.argmax(x),
        "sum of rows": lambda: torch.sum(m, 1),
        "sum of columns": lambda: torch.sum(m, 0),
    }
    cubs: Contenders = {
        "sum": lambda: y.sum(),
        "max": lambda: y.max(),
        "argmax": lambda: y.argmax(),
        "sum of rows": lambda: z.sum(axis=1),
        "sum of columns": lambda: z.sum(axis=0),
    }
    for name, f in ours.items():
        want = _tensor(torchs[name]()).double()
        bound = 0 if "max" in name else 1e-3 * want.reshape(-1).abs() + 1.0
        _close(name, f(), want, bound)
        _close(f"cupy {name}", cubs[name](), want, bound)
        contenders: Contenders = {"tessera": f, "torch": torchs[name], "cupy": cubs[name]}
        rows.row(f"std.reduce {name} f32 2^28", contenders, 4 * n)


def sort(rows: Rows) -> None:
    import torch

    std = tessera.load("std.sort")
    for power in (26, 20):
        n = 1 << power
        for name, x in (
            ("i32", torch.randint(-(1 << 31), 1 << 31, (n,), device="cuda").int()),
            ("f32", torch.randn(n, device="cuda")),
        ):
            assert torch.equal(_tensor(std.sort(x)), torch.sort(x).values)
            y = cub.array(x)
            contenders: Contenders = {
                "tessera": lambda x=x: std.sort(x),
                "torch": lambda x=x: torch.sort(x),
                "cupy": lambda y=y: cub.cupy().sort(y),
            }
            rows.row(f"std.sort {name} 2^{power}", contenders, 0)


def sparse(rows: Rows) -> None:
    """Matrices of random columns, as cuSPARSE multiplies them for CuPy."""
    import torch

    std = tessera.load("std.sparse")
    m = 1 << 22
    for name, each in (("16 a row", 16), ("0 to 10 a row", 5)):
        lengths = torch.full((m,), each, device="cuda")
        if each == 5:
            lengths = torch.randint(0, 11, (m,), device="cuda")
        offsets = torch.zeros(m + 1, dtype=torch.int32, device="cuda")
        offsets[1:] = torch.cumsum(lengths, 0)
        stored = int(offsets[-1])
        # Near the diagonal, so that the vector is read in order and not at random.
        row = torch.repeat_interleave(torch.arange(m, device="cuda"), lengths)
        columns = (row + torch.randint(0, 1000, (stored,), device="cuda")).clamp(max=m - 1).int()
        values, x = torch.randn(stored, device="cuda"), torch.randn(m, device="cuda")
        products = values.double() * x.double()[columns]
        want = torch.zeros(m, dtype=torch.float64, device="cuda").index_add_(0, row, products)
        _close(name, std.matvec(offsets, columns, values, x), want, 1e-4)
        contenders: Contenders = {
            "tessera": lambda a=(offsets, columns, values, x): std.matvec(*a),
            "cupy": _csr_product(values, columns, offsets, x, want),
        }
        rows.row(f"std.sparse.matvec f32 2^22 rows, {name}", contenders, 8 * stored + 12 * m)


def _csr_product(values: Any, columns: Any, offsets: Any, x: Any, want: Any) -> Callable[[], Any]:
    """CuPy's product, checked."""
    from cupyx.scipy.sparse import csr_matrix

    parts = cub.array(values), cub.array(columns), cub.array(offsets)
    matrix, vector = csr_matrix(parts, shape=(len(want), len(x))), cub.array(x)
    _close("cupy", matrix @ vector, want, 1e-4)
    return lambda: matrix @ vector


def stencil(rows: Rows) -> None:
    import torch
    from cupyx.scipy import ndimage

    std = tessera.load("std.stencil")
    x = torch.randn(16384, 16384, device="cuda")
    y = cub.array(x)
    got = std.laplace2d(x)
    _close("laplace", ndimage.laplace(y, mode="constant"), got, 1e-4)
    laplace: Contenders = {
        "tessera": lambda: std.laplace2d(x),
        "cupy": lambda: ndimage.laplace(y, mode="constant"),
    }
    rows.row("std.stencil.laplace2d f32 16384^2", laplace, 8 * x.numel())
    del got
    flat = x.reshape(-1)
    line = cub.array(flat)
    for w in (5, 31):
        weights = torch.randn(w, device="cuda")
        taps = cub.array(weights)
        got = std.convolve1d(flat, weights)
        _close("convolve1d", ndimage.convolve1d(line, taps, mode="constant"), got, 1e-3)
        contenders: Contenders = {
            "tessera": lambda v=weights: std.convolve1d(flat, v),
            "cupy": lambda t=taps: ndimage.convolve1d(line, t, mode="constant"),
        }
        rows.row(f"std.stencil.convolve1d f32 2^28, {w} weights", contenders, 8 * flat.numel())


def random(rows: Rows) -> None:
    """Only written: 4 bytes a number, as a fill does. CuPy by its generator of the same kind."""
    import torch

    std = tessera.load("std.random")
    n = 1 << 28
    out = torch.full((n,), 9.0, device="cuda")
    cupy = cub.cupy()
    rng = cupy.random.Generator(cupy.random.Philox4x3210(1))
    ours: Contenders = {
        "uniform": lambda: std.fill_uniform(out, 1),
        "normal": lambda: std.fill_normal(out, 1),
    }
    peers: dict[str, Contenders] = {
        "uniform": {
            "torch": lambda: out.uniform_(),
            "cupy": lambda: rng.random(n, dtype=cupy.float32),
        },
        "normal": {
            "torch": lambda: out.normal_(),
            "cupy": lambda: rng.standard_normal(n, dtype=cupy.float32),
        },
    }
    for name, f in ours.items():
        f()
        got = out.double()
        mean, spread = (0.5, 12**-0.5) if name == "uniform" else (0.0, 1.0)
        assert abs(got.mean().item() - mean) < 1e-3 and abs(got.std().item() - spread) < 1e-3
        del got
        contenders: Contenders = {"tessera": f, "fill": lambda: out.fill_(1.0)}
        rows.row(f"std.random.{name} f32 2^28", contenders | peers[name], 4 * n)
