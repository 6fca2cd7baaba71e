"""Launches on a CUDA device beside PyTorch, CuPy and JAX."""

from __future__ import annotations

import threading
from collections.abc import Callable
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

N = 1024
TEXT = """\
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def add(x: f32[n], y: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] + y[i]

@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def gather(x: f32[n], at: i32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[at[i]]

def twice(x):
    out = op.empty(x.shape, f32)
    middle = op.empty(x.shape, f32)
    add(x, x, middle)
    add(middle, x, out)
    return out
"""


@pytest.fixture(scope="module")
def m() -> Any:
    return tessera.compile(TEXT)


@pytest.fixture
def xyo() -> tuple[Any, Any, Any]:
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda")
    return x, y, torch.empty_like(x)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(TesseraError) as caught:
        call()
    return caught.value.diagnostics[0].code


def test_tensors_in_any_layout(m: Any, xyo: Any) -> None:
    x, y, out = xyo
    for _ in range(3):
        m.add(x, y, out)
    assert torch.equal(out, x + y)
    m.add(x[1:], y[1:], out[:-1])
    assert torch.equal(out[:-1], x[1:] + y[1:])
    wide = torch.zeros(2 * N, device="cuda")
    m.add(x, y, wide[::2])
    assert torch.equal(wide[::2], x + y) and not wide[1::2].any()
    empty = torch.empty(0, device="cuda")
    m.add(empty, empty, torch.empty(0, device="cuda"))


def test_checks_stay_on(m: Any, xyo: Any) -> None:
    x, y, out = xyo
    m.add(x, y, out)
    assert refused(lambda: m.add(x, y, x)) == "T0836"
    assert refused(lambda: m.add(x, y, out[:5])) == "T0834"
    assert refused(lambda: m.add(x, y, out.double())) == "T0832"
    assert refused(lambda: m.add(x, y, torch.randn(N, dtype=torch.complex64).conj().imag)) != ""


def test_swapped_storage(m: Any, xyo: Any) -> None:
    x, y, out = xyo
    m.add(x, y, out)
    bound = m.add.bind(x, y, out)
    bound()
    out.data = torch.zeros(N, device="cuda")
    m.add(x, y, out)
    assert torch.equal(out, x + y)
    assert refused(bound) == "T0851"


def test_a_fault_surfaces_in_a_program_that_waits_elsewhere(m: Any) -> None:
    x = torch.arange(N, device="cuda", dtype=torch.float32)
    at = torch.arange(N, device="cuda", dtype=torch.int32)
    out = torch.zeros_like(x)
    at[70] = 5000
    m.gather(x, at, out)
    torch.cuda.synchronize()
    with pytest.raises(TesseraError) as caught:
        m.add(x, x, out)
    d = caught.value.diagnostics[0]
    assert d.code == "T0845" and "5000" in d.notes[0] and "group 1, lane 6" in d.notes[1]
    assert out[70] == 0 and out[71] == 71
    m.add(x, x, out)
    m.gather(x, at, out)
    assert refused(tessera.synchronize) == "T0845"
    tessera.synchronize()


def test_streams(m: Any) -> None:
    stream = torch.cuda.Stream()
    x, out = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
        m.add(x, x, out)
    stream.synchronize()
    assert bool((out == 6).all())
    m.add.on(stream)(x, x, out)
    m.add(x, x, out, stream=stream)
    stream.synchronize()


def test_numpy_and_our_own_arrays(m: Any) -> None:
    x = np.ones(N, np.float32)
    d, out = tessera.to_device(np.arange(N, dtype=np.float32)), tessera.to_device(0 * x)
    m.add(d, d, out)
    assert tessera.from_device(out).tolist() == (2 * np.arange(N)).tolist()
    assert torch.from_dlpack(out)[5] == 10
    assert torch.as_tensor(out, device="cuda")[5] == 10
    cuda = tessera.compile(TEXT, target="cuda")
    host = np.zeros(N, np.float32)
    cuda.add(x[::-1], x, host[::-1])
    assert (host == 2).all()


def test_cupy(m: Any) -> None:
    cupy = pytest.importorskip("cupy")
    x, wide = cupy.ones(N, dtype=cupy.float32), cupy.zeros(2 * N, dtype=cupy.float32)
    m.add(x, x, wide[::2])
    assert bool((wide[::2] == 2).all())


def test_jax(m: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jnp = pytest.importorskip("jax.numpy")
    x, out = jnp.arange(N, dtype=jnp.float32), torch.zeros(N, device="cuda")
    m.add(x, x, out)
    assert out[7] == 14
    assert refused(lambda: m.add(out, out, x)) == "T0835"


def test_threads(m: Any) -> None:
    faults: list[BaseException] = []

    def work(i: int) -> None:
        try:
            x = torch.full((N,), float(i), device="cuda")
            out = torch.zeros_like(x)
            torch.cuda.synchronize()
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(300):
                    m.add(x, x, out)
            stream.synchronize()
            assert bool((out == 2 * i).all())
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_a_thread_without_a_context(m: Any) -> None:
    d, out = (tessera.to_device(np.ones(N, np.float32)) for _ in "ab")
    m.add(d, d, out)
    done: list[object] = []

    def work() -> None:
        try:
            m.add(d, d, out)
            done.append(None)
        except BaseException as fault:
            done.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [None]


def test_functions_are_recorded_and_played(m: Any) -> None:
    for n in (64, 64, 100, 64):
        x = torch.randn(n, device="cuda")
        out = m.twice(x)
        assert torch.allclose(out, 3 * x) and out.data_ptr() != x.data_ptr()
    a, b = m.twice(x), m.twice(2 * x)
    assert torch.allclose(a, 3 * x) and torch.allclose(b, 6 * x)


DECIDED = """
@kernel tile[(8, 8)] grid[(ceil_div(m, 8), ceil_div(n, 8))]
def product(a: f32[p, k], b: f32[k, q], out: mut f32[m, n]):
    i = group_id(0) * 8 + tile_id(0)
    j = group_id(1) * 8 + tile_id(1)
    total = f32(0.0)
    for t in range(k): total += a[i, t] * b[t, j]
    if i < m and j < n: out[i, j] = total
"""


@pytest.mark.parametrize("rows", [20, 24])
def test_a_guard_that_is_decided_before_its_loop_reports_as_in_it(rows: int) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((rows, 9), (9, 24)))
    outs: list[Any] = []
    for target in ("cpu", "cuda"):
        module, out = tessera.compile(DECIDED, target=target), np.ones((24, 24), np.float32)

        def call(module: Any = module, out: Any = out) -> None:
            module.product(a, b, out)
            tessera.synchronize()

        if rows < 24:
            assert refused(call) == "T0845"
        else:
            call()
        outs.append(out)
    assert np.array_equal(*outs) and not outs[0][rows:].any()
