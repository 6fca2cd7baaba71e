"""Loops of a tile kernel that depend on each other: launches of their own, one call.

All run on both targets, and as code of a GPU on the CPU. What is compared is what the loops give
when they run one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tests.on_device import with_layouts
from tests.unit.lower.ast_to_schedule.test_early_exits import loaded

GPU = pytest.param("cuda", marks=pytest.mark.gpu)
TARGETS = ["cpu", "sm_90a", GPU]
Array = np.ndarray[Any, np.dtype[Any]]

SOURCE = """
@op.kernel
def twice(x: f32[n], y: mut f32[n], z: mut f32[n]):
    for i in op.tile_range(n, step=64):
        y[i:i+64] = x[i:i+64] + 1.0
    for j in op.tile_range(n, step=32):
        z[j:j+32] = y[j:j+32] * 2.0

@op.kernel
def turned(x: f32[n], y: mut f32[n]):
    for i in op.tile_range(n, step=64):
        y[i:i+64] = x[i:i+64]
    for i in op.tile_range(n, step=64):
        for k in range(2):
            y[i:i+64] = y[i:i+64] + x[0] * y[i:i+64]
    y[0] = y[n - 1]

@op.kernel
def normalised(x: mut f32[n]):
    s = op.sum(x)
    for i in op.tile_range(n, step=64):
        x[i:i+64] = x[i:i+64] / s

@op.kernel
def share(x: f32[n]):
    return x / op.sum(x)

@op.kernel
def carried(x: f32[n], y: mut f32[n], z: mut f32[n], flags: mut bool[1]):
    top = op.zeros((64,), f32)
    count: index = 0
    any_big = False
    for i in range(0, n - 63, 64):
        top = max(top, x[i:i+64])
        y[i:i+64] = top
        count += 1
        any_big = any_big or op.max(x[i:i+64]) > 0.75
    for j in range(0, n - 63, 64):
        z[j:j+64] = y[j:j+64] - top + f32(count)
    if any_big:
        flags[0] = True

@op.kernel
def made(x: f32[n]) -> f32[n]:
    y = op.zeros((n,), f32)
    for i in op.tile_range(n, step=64):
        y[i:i+64] += x[i:i+64]
    for i in op.tile_range(n, step=128):
        y[i:i+128] = y[i:i+128] * y[i:i+128]
    return y

@op.kernel
def products(a: f32[m, k], b: f32[k, m], c: mut f32[m, m], d: mut f32[m, m]):
    for i, j in op.tile_range(m, m, step=32):
        c[i:i+32, j:j+32] = a[i:i+32, :] @ b[:, j:j+32]
    for i, j in op.tile_range(m, m, step=32):
        d[i:i+32, j:j+32] = c[i:i+32, :] @ c[:, j:j+32]

@op.kernel
def checked(x: f32[n], c: i32, y: mut f32[n], z: mut f32[n]):
    for i in op.tile_range(n, step=64):
        y[i:i+64] = x[i:i+64]
    assert c > 0, "c is positive"
    for i in op.tile_range(n, step=32):
        z[i:i+32] = y[i:i+32] * f32(c)
"""

PATH = "phases.tessera"


@pytest.fixture(params=TARGETS)
def m(request: pytest.FixtureRequest) -> Any:
    return loaded(SOURCE, str(request.param))


def uniform(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(0.5, 1, shape).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 640, 1000])
def test_a_loop_behind_a_loop(m: Any, n: int) -> None:
    x, y, z = uniform(n), np.zeros(n, np.float32), np.zeros(n, np.float32)
    m.twice(x, y, z)
    assert np.array_equal(y, x + 1) and np.array_equal(z, (x + 1) * 2)


def test_a_single_store_behind_loops(m: Any) -> None:
    x, y = uniform(200), np.zeros(200, np.float32)
    m.turned(x, y)
    want = x * (1 + x[0]) * (1 + x[0])
    want[0] = want[-1]
    assert np.allclose(y, want, 1e-6)


def test_a_sum_of_what_is_written(m: Any) -> None:
    x = uniform(1000)
    y = x.copy()
    m.normalised(y)
    assert np.allclose(y, x / x.sum(dtype=np.float64), 1e-5)
    assert np.allclose(m.share(x), x / x.sum(dtype=np.float64), 1e-5)


def test_values_of_a_loop_are_kept_for_the_next(m: Any) -> None:
    x, y, z = uniform(640), np.zeros(640, np.float32), np.zeros(640, np.float32)
    flags = np.zeros(1, bool)
    m.carried(x, y, z, flags)
    top = np.maximum.accumulate(x.reshape(-1, 64), axis=0)
    assert np.array_equal(y, top.ravel())
    assert np.allclose(z, (top - top[-1] + 10).ravel())
    assert flags[0]


def test_results_are_made_once(m: Any) -> None:
    x = uniform(300)
    for _ in range(3):
        assert np.array_equal(m.made(x), x * x)


def test_products_of_products(m: Any) -> None:
    a, b = uniform(96, 40), uniform(40, 96)
    c, d = np.zeros((96, 96), np.float32), np.zeros((96, 96), np.float32)
    m.products(a, b, c, d)
    assert np.allclose(c, a @ b, 1e-4) and np.allclose(d, (a @ b) @ (a @ b), 1e-4)


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_a_fault_between_loops_is_reported(target: str) -> None:
    module = loaded(SOURCE, target)
    x, y, z = uniform(100), np.zeros(100, np.float32), np.zeros(100, np.float32)
    module.checked(x, 3, y, z)
    assert np.array_equal(z, x * 3)

    def wrong() -> None:
        module.checked(x, -1, y, z)
        tessera.synchronize()

    with pytest.raises(tessera.TesseraError, match="c is positive"):
        wrong()


# --- what a call is made of ----------------------------------------------------------------------


def launches_of(name: str, sizes: str = "") -> list[str]:
    """For each launch of a kernel which axes are its grid."""
    session = Session(overlay={PATH: SOURCE})
    found: list[str] = []
    for program in session.scheduled(PATH, name, session.signature(PATH, name, sizes)):
        loops = [o for o in program.operations[0].regions[0].operations if "axes" in o.attributes]
        grids = [o for o in loops if "grid" in cast("tuple[str, ...]", o.attributes["mapping"])]
        axes = [cast("tuple[str, ...]", o.attributes["axes"]) for o in grids]
        found.append(" ".join(map(",".join, axes)))
    return found


@pytest.mark.parametrize(
    ("name", "grids"),
    [
        ("twice", ["i", "j"]),
        ("turned", ["i", ""]),
        ("normalised", ["", "i"]),
        ("share", ["i"]),
        ("carried", ["", "j", ""]),
        ("products", ["i,j", "i,j"]),
        ("checked", ["i", "i"]),
    ],
)
def test_each_loop_has_its_grid(name: str, grids: list[str]) -> None:
    assert launches_of(name) == grids


def test_a_long_sum_is_made_once() -> None:
    """Groups add up what is short themselves: that costs less than a launch. What is long is
    shared by groups."""
    assert launches_of("share", "x: f32[1000000]") == ["part", "i"]
    assert launches_of("normalised", "x: f32[1000000]") == ["part", "i"]
    assert launches_of("share", "x: f32[1000]") == ["i"]


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_bound_calls_and_threads(target: str) -> None:
    """Calls of several threads keep what is theirs, where the stream is the same too."""
    module = loaded(SOURCE, target)
    module.share(uniform(150_000))
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        x = uniform(150_000) * np.float32(1 + number)
        run = module.share.bind(x) if target == "cpu" else (lambda: module.share(x))
        want = x / x.sum(dtype=np.float64)
        found[number] = all(np.allclose(run(), want, 1e-4) for _ in range(5))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == dict.fromkeys(range(4), True)


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_a_built_folder_and_the_cache(target: str, tmp_path: Path) -> None:
    from tessera_backend.runtime.build_folder import write_build
    from tessera_backend.runtime.compiler import _pack, _unpack  # pyright: ignore[reportPrivateUsage]

    from tessera_lang.target.backend import TargetOptions, backend_named

    session = Session(overlay={PATH: SOURCE})
    arch = "native" if target == "cpu" else backend_named("cuda").default_arch()
    options = TargetOptions(target, arch)
    names = ("twice", "share")
    artifacts = [
        session.compile_kernel(PATH, n, session.signature(PATH, n, "x: f32[150000]"), options)
        for n in names
    ]
    assert [len(a.then) for a in artifacts] == [1, 1]
    write_build(tmp_path, artifacts)
    header = (tmp_path / "tessera_twice.h").read_text()
    behind = "tessera_twice_1_then_1" if target == "cpu" else "twice__2"
    assert behind in header and "launch 2 of 2, when the one before has ended: " in header
    module = with_layouts(tessera.load_built(tmp_path), target)
    x, y, z = uniform(150_000), np.zeros(150_000, np.float32), np.zeros(150_000, np.float32)
    module.twice(x, y, z)
    assert np.array_equal(z, (x + 1) * 2)
    assert np.allclose(module.share(x), x / x.sum(dtype=np.float64), 1e-4)

    class Entry:
        header = _pack(artifacts[1])
        payload = b"".join(a.code for a in (artifacts[1], *artifacts[1].then))

    again = _unpack(Entry, artifacts[1].options)  # type: ignore[arg-type]
    assert again is not None and [a.code for a in again.then] == [a.code for a in artifacts[1].then]


def test_checked_mode_follows_a_call() -> None:
    from dataclasses import replace

    from tessera_backend.runtime.api import Module
    from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

    options = replace(options_from_environment(), target="cpu", checked=True)
    module: Any = Module(PATH, SessionProvider(PATH, options, text=SOURCE), "cpu")
    x = uniform(100)
    assert np.array_equal(module.made(x), x * x)
    y = x.copy()
    module.normalised(y)
    assert np.allclose(y, x / x.sum(dtype=np.float64), 1e-5)


@pytest.mark.gpu
def test_a_recorded_graph() -> None:
    torch = pytest.importorskip("torch")
    module: Any = loaded(SOURCE, "cuda")
    x = torch.rand(150_000, device="cuda") + 0.5
    y, z = torch.zeros_like(x), torch.zeros_like(x)
    run: Callable[[], Any] = module.twice.bind(x, y, z)
    shares = module.share(x)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
        module.share(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module.twice(x, y, z)
        shares = module.share(x)
    x.copy_(torch.rand(150_000, device="cuda") + 0.5)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(z, (x + 1) * 2)
    assert torch.allclose(shares, x / x.sum(), 1e-4)


@pytest.mark.gpu
def test_threads_on_one_stream_keep_what_is_theirs() -> None:
    torch = pytest.importorskip("torch")
    module: Any = loaded(SOURCE, "cuda")
    inputs = [torch.rand(150_000, device="cuda") + i for i in range(1, 5)]
    for x in inputs:
        module.share(x)
    bad: list[int] = []

    def work(i: int) -> None:
        x = inputs[i]
        want = x / x.double().sum().float()
        for _ in range(50):
            if not torch.allclose(module.share(x), want, 1e-4):
                bad.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_a_loop_that_stays_says_why_beside_one_that_is_spread() -> None:
    text = """
@op.kernel
def f(x: f32[n], y: mut f32[n], z: mut f32[n]):
    for i in op.tile_range(n, step=1):
        y[i // 2] = x[i]
    for j in op.tile_range(n, step=32):
        z[j:j+32] = y[j:j+32] * 2.0
"""
    session = Session(overlay={PATH: text})
    assert [d.code for d in session.check(PATH)] == ["T0706"]
    programs = session.scheduled(PATH, "f", session.signature(PATH, "f"))
    assert len(programs) == 2


def test_what_is_said_of_tiles_is_said_of_each_launch() -> None:
    text = """
@op.kernel
def f(x: f32[n], y: mut f32[n], z: mut f32[n]):
    schedule.tile(256)
    y[:] = x + 1.0
    z[:] = y * op.max(y)
"""
    session = Session(overlay={PATH: text})
    signature = session.signature(PATH, "f", "x: f32[1000000]")
    made = session.for_machine(PATH, "f", signature, session.machine("cuda", "sm_90"))
    sizes = [launch.schedule.operations[0].attributes["tile"] for launch in made.launches]
    assert len(sizes) > 1 and set(sizes) == {(256,)}


def test_what_is_asserted_of_an_array_is_what_it_was_there() -> None:
    text = """
@op.kernel
def f(x: f32[n], y: mut f32[n], z: mut f32[n]):
    for i in op.tile_range(n, step=64):
        y[i:i+64] = x[i:i+64]
    assert y[0] > 0.0, "y begins above 0"
    for i in op.tile_range(n, step=32):
        y[i:i+32] = z[i:i+32]
"""
    module = loaded(text, "cpu")
    ones, zeros, y = np.ones(200, np.float32), np.zeros(200, np.float32), np.zeros(200, np.float32)
    module.f(ones, y, zeros)
    assert np.array_equal(y, zeros)
    with pytest.raises(tessera.TesseraError, match="above 0"):
        module.f(zeros, y, ones)


REDUCTIONS = """
@op.kernel
def whole(x: f32[m, n]):
    return op.sum(x), op.max(x), op.min(x)

@op.kernel
def columns(x: f32[n, 8], y: mut f32[8]):
    acc = op.full((8,), 3.0, f32)
    top = op.full((8,), -1.0, f32)
    for i in op.tile_range(n, step=64):
        acc += op.sum(x[i:i+64, :], axis=0)
        top = max(top, op.max(x[i:i+64, :], axis=0))
    y[:] = acc + top

@op.kernel
def counted(x: i8[n]) -> i32[1]:
    y = op.zeros((1,), i32)
    y[0] += op.sum(x)
    return y

@op.kernel
def length(x: mut f32[n]):
    x[:] = x / sqrt(op.sum(x * x))

@op.kernel
def running(x: f32[n], y: mut f32[1]):
    s: f32 = 0.0
    for i in op.tile_range(n, step=64):
        s = s * 0.5 + op.sum(x[i:i+64])
    y[0] = s
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1000, 150_008])
@pytest.mark.sample(1)
def test_reductions_of_all_there_is(target: str, n: int) -> None:
    """Long ones are shared by groups: what they give is what one group gives, to rounding."""
    m = loaded(REDUCTIONS, target)
    x = uniform(n)
    wide = x.astype(np.float64)
    total, top, low = m.whole(x.reshape(8, -1))
    assert np.allclose(total, wide.sum(), 1e-5) and top == x.max() and low == x.min()
    y = np.zeros(8, np.float32)
    m.columns(x.reshape(-1, 8), y)
    assert np.allclose(y, wide.reshape(-1, 8).sum(0) + x.reshape(-1, 8).max(0) + 3, 1e-5)
    whole = np.random.default_rng(1).integers(-100, 100, n).astype(np.int8)
    assert m.counted(whole)[0] == whole.astype(int).sum()
    z = x.copy()
    m.length(z)
    assert np.allclose(z, wide / np.linalg.norm(wide), 1e-5)
    one, s = np.zeros(1, np.float32), 0.0
    m.running(x, one)
    for i in range(0, n, 64):
        s = s * 0.5 + wide[i : i + 64].sum()
    assert np.allclose(one, s, 1e-5)
