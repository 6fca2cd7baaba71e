"""Plain functions that launch several kernels on a CUDA device: whose memory, which stream.

What a recorded call computes and where its memory lies is ``test_tape.py``'s, without a device.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError

pytest.importorskip("llvmlite")
torch: Any = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
pytestmark = pytest.mark.gpu

N = 5000
TEXT = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def add_to(x: i32[n], out: mut i32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = out[i] + x[i]

@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def count(x: i32[n], few: mut i32[k]):
    i = grid_tile_linear_id()
    if i < n:
        atomic_add(few[x[i] % k], 1)

def mixed(x, times):
    first = op.zeros(x.shape, i32)
    add_to(x, first)
    few = op.zeros((7,), i32)
    count(x, few)
    second = op.zeros(x.shape, i32)
    add_to(first, second)
    for k in range(times):
        add_to(first, second)
        scratch = op.zeros((999,), i32)
        count(second, scratch)
    return second, few, op.reshape(second, (2, -1)), x

def into(x, out):
    add_to(x, out)
    add_to(x, out)
    return out

def scaled_zero(x, a):
    return op.full((1,), a)

@kernel tile[(128,)] grid[(1,)]
def draw(x: i32[128], seen: mut u32[5], out: mut i32[128]):
    i = tile_linear_id()
    out[i] = x[i] + i32(atomic_add(seen[3], 1))
    tbarrier()
    if i == 0: seen[3] = 0

def drawn(x):
    out = op.empty((128,), i32)
    again = op.empty((128,), i32)
    seen = op.workspace((5,), u32)
    draw(x, seen, out)
    draw(out, seen, again)
    draw(again, op.workspace((5,), u32), out)
    return out
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return tessera.compile(TEXT)


def numbers(seed: int) -> Any:
    torch.manual_seed(seed)
    return torch.randint(0, 1000, (N,), dtype=torch.int32, device="cuda")


def right(x: Any, found: Any, times: int = 2) -> bool:
    second, few, halves, same = found
    counts = torch.bincount(x % 7, minlength=7)
    whole = torch.equal(second, x * (times + 1)) and torch.equal(few.long(), counts)
    return bool(whole and torch.equal(halves.reshape(-1), second) and same is x)


def test_results_that_are_all_kept(m: Any) -> None:
    """In a loop, with memory of others in between: no result lies in another or in scratch."""
    xs = [numbers(seed) for seed in range(30)]
    found: list[Any] = []
    noise: list[Any] = []
    for x in xs:
        found.append(m.mixed(x, 2))
        noise.append(torch.full((999,), -1, dtype=torch.int32, device="cuda"))
        if len(noise) > 3:
            noise.clear()
    assert all(right(x, f) for x, f in zip(xs, found, strict=True))
    ranges = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for f in found for t in f[:2])
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
    for f in found:
        assert f[2].data_ptr() == f[0].data_ptr()
        f[0].fill_(-5)
        f[1].fill_(-5)
    assert all(right(x, m.mixed(x, 2)) for x in xs)


def test_memory_is_given_back(m: Any) -> None:
    x = numbers(1)
    m.mixed(x, 2)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        m.mixed(x, 2)
    assert torch.cuda.memory_allocated() == before


def test_constants_of_a_call_are_told_apart(m: Any) -> None:
    x = numbers(2)
    for _ in range(2):
        for times in (0, 1, 3):
            assert right(x, m.mixed(x, times), times)
        for a in (0.0, -0.0, 1.5):
            got = m.scaled_zero(x, a)
            assert got.item() == a and torch.signbit(got).item() == (str(a)[0] == "-")


def test_streams_at_once(m: Any) -> None:
    streams = [torch.cuda.Stream() for _ in range(4)]
    xs = [numbers(seed) for seed in range(4)]
    torch.cuda.synchronize()
    found: list[Any] = []
    for _ in range(10):
        for stream, x in zip(streams, xs, strict=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000)
                found.append(m.mixed(x, 2))
    torch.cuda.synchronize()
    assert all(right(xs[i % 4], f) for i, f in enumerate(found))


def test_a_call_waits_for_its_stream(m: Any) -> None:
    stream = torch.cuda.Stream()
    x = torch.zeros(N, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        x.fill_(3)
        found = m.mixed(x, 2)
        x.fill_(1000)
    stream.synchronize()
    assert bool((found[0] == 9).all())


def test_threads_on_one_stream_and_on_their_own(m: Any) -> None:
    faults: list[BaseException] = []

    def work(i: int) -> None:
        try:
            x = numbers(i)
            torch.cuda.synchronize()
            stream = torch.cuda.Stream() if i % 2 else torch.cuda.default_stream()
            with torch.cuda.stream(stream):
                found = [m.mixed(x, 2) for _ in range(40)]
                stream.synchronize()
                assert all(right(x, f) for f in found)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_a_recorded_graph(m: Any) -> None:
    """The graph owns its memory: calls outside use others, and a replay zeroes what it needs."""
    x, keys = numbers(3), numbers(4)
    sort = tessera.load("std.sort").sort
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        m.mixed(x, 2)
        sort(keys)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = m.mixed(x, 2)
        ordered = sort(keys)
    for seed in range(3):
        x.copy_(numbers(10 + seed))
        keys.copy_(numbers(20 + seed))
        kept = m.mixed(keys, 2), sort(x)
        graph.replay()
        assert right(x, found) and torch.equal(ordered, torch.sort(keys).values)
        assert right(keys, kept[0]) and torch.equal(kept[1], torch.sort(x).values)


def test_written_arguments(m: Any) -> None:
    """Another address each time, also unaligned ones, and memory that is shared."""
    x = numbers(5)
    for start in (0, 4, 1, 0, 2):
        out = torch.zeros(N + 8, dtype=torch.int32, device="cuda")
        part = out[start : start + N]
        assert m.into(x, part).data_ptr() == part.data_ptr()
        assert torch.equal(part, 2 * x) and out.sum() == 2 * x.sum()
    both = torch.zeros(N + 8, dtype=torch.int32, device="cuda")
    for _ in range(2):
        with pytest.raises(TesseraError) as caught:
            m.into(both[4 : N + 4], both[:N])
        assert caught.value.diagnostics[0].code == "T0836"
    assert torch.equal(m.into(x, both[:N]), 2 * x)


def test_arrays_of_our_own_and_of_cupy(m: Any) -> None:
    given = np.random.default_rng(0).integers(0, 1000, N).astype(np.int32)
    found = [m.mixed(tessera.to_device(given), 2) for _ in range(4)]
    for second, few, _, _ in found:
        assert (second.numpy() == 3 * given).all()
        assert (few.numpy() == np.bincount(given % 7, minlength=7)).all()
    cupy = pytest.importorskip("cupy")
    x = cupy.asarray(given)
    for _ in range(3):
        second, few, _, _ = m.mixed(x, 2)
        assert (second.numpy() == 3 * given).all()


def test_arrays_on_two_devices_are_refused_after_a_call(m: Any) -> None:
    x = numbers(6)
    m.into(x, torch.zeros_like(x))
    with pytest.raises(TesseraError) as caught:
        m.into(x, np.zeros(N, np.int32))
    assert caught.value.diagnostics[0].code == "T0844"


@pytest.mark.parametrize(("m", "n", "k"), [(64, 512, 8192), (1000, 1000, 1000), (1024, 1536, 4096)])
def test_products_in_a_recorded_graph(m: int, n: int, k: int) -> None:
    """What a kernel keeps for its stream is not the graph's, whatever runs beside a replay."""
    matmul = tessera.load("std.linalg").matmul
    torch.manual_seed(m)
    a, b = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (k, n)))
    matmul(a, b)
    torch.cuda.synchronize()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        found = matmul(a, b)
    for seed in range(3):
        torch.manual_seed(seed)
        a.normal_()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            graph.replay()
        beside = matmul(a, b)
        torch.cuda.synchronize()
        assert torch.equal(found, beside)


def test_a_workspace_is_zeros_for_every_launch_of_a_stream_and_of_a_graph(m: Any) -> None:
    x = torch.arange(128, dtype=torch.int32, device="cuda") * 1000
    wanted = sum(range(128)) * 1003

    def right(found: Any) -> bool:
        return int(found.sum()) == wanted and bool((found - x < 3 * 128).all())

    side = torch.cuda.Stream()
    for _ in range(5):
        assert right(m.drawn(x))
        with torch.cuda.stream(side):
            other = m.drawn(x)
        side.synchronize()
        assert right(other)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = m.drawn(x)
    for _ in range(3):
        recorded.zero_()
        graph.replay()
        assert right(recorded) and right(m.drawn(x))
