"""Tile kernels as users write them, from the source to the numbers, beside NumPy.

On the CPU always; on a GPU where there is one. Sizes are 0, 1, around the tile, and odd.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.runtime.call_diagnostics import TesseraWarning

import tessera_lang as tessera
from tessera_lang.driver.session import Session

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
BF16 = np.dtype(ml_dtypes.bfloat16)
Array = np.ndarray[Any, np.dtype[Any]]


def module(source: str, target: str) -> Any:
    return tessera.compile(source, target=target)


def random(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def near(got: Array, want: Array, rtol: float = 1e-5, scale: float | None = None) -> None:
    assert got.shape == want.shape
    error = np.linalg.norm(got.astype(np.float64) - want)
    assert error <= rtol * max(scale or float(np.linalg.norm(want)), 1e-30), error


# --- element-wise ----------------------------------------------------------------------------

ELEMENTWISE = """
@op.kernel
def add(A, B, C):
    C[:] = A + B

@op.kernel
def axpy(x, y, a: f32):
    return a * x + y

@op.kernel
def rows(x: f32[m, n], v: f32[n]) -> f32[m, n]:
    return x * v[None, :]

@op.kernel
def halves(x: f32[n]) -> f16[n]:
    return x.to(f16)
"""


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("n", [0, 1, 3, 127, 128, 129, 1000, 4099])
def test_elementwise(target: str, n: int) -> None:
    m = module(ELEMENTWISE, target)
    x, y, out = random(n), random(n, seed=1), np.full(n, np.nan, np.float32)
    assert m.add(x, y, out) is None
    assert np.array_equal(out, x + y)
    got = m.axpy(x, y, 2.5)
    assert got.dtype == np.float32 and np.array_equal(got, np.float32(2.5) * x + y)
    assert np.array_equal(m.halves(x), x.astype(np.float16))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (3, 130), (129, 3), (64, 64)])
def test_two_axes_and_a_row(target: str, shape: tuple[int, int]) -> None:
    m = module(ELEMENTWISE, target)
    x, v = random(*shape), random(shape[1], seed=1)
    assert np.array_equal(m.rows(x, v), x * v)
    out = np.full(shape, np.nan, np.float32)
    m.add(x, x, out)
    assert np.array_equal(out, x + x)


def test_arrays_in_any_layout(target: str) -> None:
    m = module(ELEMENTWISE, target)
    big = random(60, 80)
    one = random(30, 40, seed=1)
    for x in (big[:30, :40], big[::2, ::2], big[29::-1, :40], big.T[:30, :40],
              np.broadcast_to(big[0, :40], (30, 40))):  # fmt: skip
        out = np.full((30, 40), np.nan, np.float32)
        m.add(x, one, out)
        assert np.array_equal(out, x + one)
    out = np.full((40, 60), np.nan, np.float32)
    m.add(one, one, out.T[::2, :])
    assert np.array_equal(out.T[::2], one + one) and np.isnan(out.T[1::2]).all()


def test_written_arguments_do_not_overlap(target: str) -> None:
    m = module(ELEMENTWISE, target)
    x = random(10)
    with pytest.raises(tessera.TesseraError, match="shares memory"):
        m.add(x[:9], x[:9], x[1:])


# --- products --------------------------------------------------------------------------------

PRODUCTS = """
@op.kernel
def plain(A, B):
    return A @ B

@op.kernel
def with_sum(A, B, C):
    return A @ B + C

@op.kernel
def transposed(A, B):
    return A @ B.T

@op.kernel
def linear[BM: int = 32, BN: int = 64, BK: int = 16](x: T[m, k], w: T[n, k], bias: T[n]) -> T[m, n]:
    y = op.empty((m, n), T)
    for i, j in op.tile_range(m, n, step=(BM, BN)):
        acc = op.zeros((BM, BN), f32)
        for p in op.tile_range(k, step=BK):
            acc += x[i:i+BM, p:p+BK] @ w[j:j+BN, p:p+BK].T
        y[i:i+BM, j:j+BN] = op.gelu(acc + bias[j:j+BN][None, :]).to(T)
    return y
""".replace("BK: int = 16]", "BK: int = 16, T: dtype = f32]")

SIZES = [
    (0, 4, 5), (4, 0, 5), (4, 5, 0), (1, 1, 1), (1, 7, 3), (2, 3, 2), (31, 32, 33), (64, 64, 64),
    (100, 130, 70), (129, 65, 257),
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16, np.float64])
@pytest.mark.sample(1)
def test_products(target: str, size: tuple[int, int, int], dtype: Any) -> None:
    m, n, k = size
    a, b, c = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1), random(m, n, seed=2)
    c = c.astype(dtype)
    rtol = {np.float32: 1e-5, np.float16: 2e-3, np.float64: 1e-12}.get(dtype, 2e-2)
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    scale = float(np.linalg.norm(np.abs(a64) @ np.abs(b64)))
    kernels = module(PRODUCTS, target)
    near(kernels.plain(a, b), a64 @ b64, rtol, scale)
    near(kernels.with_sum(a, b, c), a64 @ b64 + c.astype(np.float64), rtol, scale + 1)
    near(kernels.transposed(a, np.ascontiguousarray(b.T)), a64 @ b64, rtol, scale)
    near(kernels.plain(np.asfortranarray(a), b.T.copy().T), a64 @ b64, rtol, scale)


@pytest.mark.parametrize("size", [(1, 1, 1), (33, 65, 17), (64, 128, 48), (50, 70, 0)])
@pytest.mark.sample(1)
def test_a_product_with_its_epilogue(target: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    x, w, bias = random(m, k), random(n, k, seed=1), random(n, seed=2)
    kernels = module(PRODUCTS, target)
    z = x.astype(np.float64) @ w.T.astype(np.float64) + bias
    want = _gelu(z)
    near(kernels.linear(x, w, bias), want, 1e-3)
    near(kernels.linear(x, w, bias, BM=16, BN=48), want, 1e-3)


def _gelu(z: Array) -> Array:
    from math import erf

    return z * 0.5 * (1 + np.vectorize(erf, otypes=[float])(z / 2**0.5))


# --- rows ------------------------------------------------------------------------------------

ROWS = """
@op.kernel
def softmax(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=1):
        row = x[i, :]
        e = exp(row - op.max(row))
        y[i, :] = e / op.sum(e)
    return y

@op.kernel
def totals(x: f32[m, n]):
    s = op.empty((m,), f32)
    t = op.empty((m,), f32)
    for i in op.tile_range(m, step=4):
        s[i:i+4] = op.sum(x[i:i+4, :], axis=1)
        t[i:i+4] = op.max(x[i:i+4, :], axis=1)
    return s, t
"""


@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (33, 1025), (4, 127), (5, 128), (2, 9000)])
@pytest.mark.sample(2)
def test_softmax(target: str, shape: tuple[int, int]) -> None:
    x = random(*shape)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    near(module(ROWS, target).softmax(x), e / e.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("shape", [(1, 1), (5, 100), (9, 129), (4, 1)])
@pytest.mark.sample(2)
def test_two_results(target: str, shape: tuple[int, int]) -> None:
    x = random(*shape)
    s, t = module(ROWS, target).totals(x)
    near(s, x.sum(axis=1, dtype=np.float64), 1e-5, float(np.abs(x).sum()))
    assert np.array_equal(t, x.max(axis=1))


ATTENTION = """
@op.kernel
def attention[BM: int = 32, BN: int = 32](
    q: f32[b, h, s, d], k: f32[b, h, t, d], v: f32[b, h, t, d], scale: f32, causal: bool = False
) -> f32[b, h, s, d]:
    o = op.empty_like(q)
    for bi, hi, i in op.tile_range(b, h, s, step=(1, 1, BM)):
        top = op.full((BM,), -inf, f32)
        total = op.zeros((BM,), f32)
        acc = op.zeros((BM, d), f32)
        for j in op.tile_range(t, step=BN):
            logits = (q[bi, hi, i:i+BM, :] @ k[bi, hi, j:j+BN, :].T) * scale
            if causal:
                logits = op.causal(logits, row=i, column=j, offset=t - s)
            new_top = max(top, op.max(logits, axis=1))
            p = exp(logits - new_top[:, None])
            shrink = exp(top - new_top)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p @ v[bi, hi, j:j+BN, :]
            top = new_top
        o[bi, hi, i:i+BM, :] = (acc / total[:, None])
    return o
"""


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(1, 1, 1, 1, 8), (2, 2, 33, 65, 16), (1, 2, 64, 64, 32)])
@pytest.mark.sample(1)
def test_attention(target: str, size: tuple[int, ...], causal: bool) -> None:
    b, h, s, t, d = size
    q, k, v = random(b, h, s, d), random(b, h, t, d, seed=1), random(b, h, t, d, seed=2)
    z = np.einsum("bhsd,bhtd->bhst", q, k, dtype=np.float64) * 0.25
    if causal:
        z = np.where(np.tri(s, t, t - s, dtype=bool), z, -np.inf)
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    want = np.einsum("bhst,bhtd->bhsd", e / e.sum(axis=-1, keepdims=True), v)
    near(module(ATTENTION, target).attention(q, k, v, 0.25, causal=causal), want)


# --- programs, functions, signatures -----------------------------------------------------------

PROGRAM = """
@op.kernel
def matmul(A, B):
    return A @ B

def twice(x, w):
    return matmul(matmul(x, w), w)

@test
def a_product_of_ones():
    y = matmul(op.ones((3, 4)), op.ones((4, 5)))
    assert y.shape == (3, 5)
    assert op.all(y == 4)

x = op.random((5, 7), seed=1)
w = op.random((7, 7), seed=2)
y = twice(x, w)
assert y.shape == (5, 7)
print(y.shape, y.dtype)
"""


def ran(source: str) -> str:
    from tessera_backend.runtime.host_environment import HostWorld

    session = Session(overlay={"p.tessera": source})
    assert not session.check("p.tessera")
    said: list[str] = []
    session.run("p.tessera", HostWorld(session, "cpu", said.append))
    for function in session.tests("p.tessera"):
        session.run_test("p.tessera", function, HostWorld(session, "cpu", said.append))
    return "".join(said)


def test_a_program_and_its_tests() -> None:
    assert ran(PROGRAM).strip() == "(5, 7) f32"


def test_a_plain_function_from_python(target: str) -> None:
    x, w = random(5, 7), random(7, 7, seed=1)
    want = x.astype(np.float64) @ w @ w
    near(module(PROGRAM, target).twice(x, w), want, 1e-5, 20)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("matmul(op.zeros((3, 4)), op.zeros((5, 6)))", "T0838"),
        ("matmul(op.zeros((3, 4)), 3)", ""),
        ("y = matmul(op.zeros((3, 4)), op.zeros((4, 6)))\nz: f32[3, 5] = y", "T0834"),
        ("matmul[4](op.zeros((3, 4)), op.zeros((4, 6)))", "T0839"),
    ],
)
def test_wrong_calls_are_found_by_the_check(call: str, code: str) -> None:
    head = PROGRAM.split("def twice")[0]
    found = Session(overlay={"p.tessera": f"{head}{call}\n"}).check("p.tessera")
    assert [d.code for d in found][:1] == [code] if code else found


def test_a_built_tile_kernel_runs(tmp_path: Any) -> None:
    from tessera_lang.target.backend import TargetOptions, backend_named

    session = Session(overlay={"p.tessera": PROGRAM})
    options = TargetOptions("cpu", backend_named("cpu").default_arch())
    artifacts = [
        session.compile_kernel(
            "p.tessera", "matmul", session.signature("p.tessera", "matmul", text), options
        )
        for text in ("A: f32[m, k], B: f32[k, n]", "A: f32[64, 64], B: f32[64, 64]")
    ]
    from tessera_backend.runtime.build_folder import write_build

    write_build(tmp_path, artifacts)
    built: Any = tessera.load_built(tmp_path)
    for size in (64, 5):
        a, b = random(size, size), random(size, size, seed=1)
        near(built.matmul(a, b), a.astype(np.float64) @ b, 1e-5, size)


def test_many_signatures_are_a_warning_that_names_what_varies() -> None:
    m = module("@op.kernel\ndef added(a, b):\n    return a + b\n", "cpu")

    def calls() -> None:
        for shape in product((1, 4, 40), (1, 4, 40), (1, 4, 40)):
            m.added(random(*shape), random(*shape))

    with pytest.warns(TesseraWarning, match="17th signature.*what varies most is the"):
        calls()


def test_many_signatures_of_a_call_name_the_call() -> None:
    text = "def f(x):\n    s = 0.0\n    for i in range(1, 40):\n"
    m = module(f"{text}        s += op.cummax(x[:i * i])[-1]\n    return s\n", "cpu")
    with pytest.warns(TesseraWarning, match=r"the kernel of `op.cummax\(x\)` .* axis 0 of `x`"):
        assert m.f(random(2000)) > 0


SUMS_WITH_HELPERS = """
def rows(a):
    return a.shape[0]

def scaled(a, x):
    return x * f32(rows(a))

def first(a):
    return op.sum(a[0:4])

@op.kernel
def sums(out: mut f32[m], a: f32[m, n]):
    for i, j in op.tile_range(m, n, step=16):
        out[i:i+16] += op.sum(scaled(out, a[i:i+16, j:j+16]), axis=1) * {}
"""


def test_an_array_that_is_summed_into_is_given_to_functions(target: str) -> None:
    """Only what a function reads of an argument counts as read."""
    a, out = random(37, 50), random(37, seed=1)
    want = out + a.astype(np.float64).sum(1) * 37
    module(SUMS_WITH_HELPERS.format("1.0"), target).sums(out, a)
    near(out, want, 1e-5, 50 * 37)


def test_a_function_that_reads_what_is_summed_into() -> None:
    source = SUMS_WITH_HELPERS.format("first(out)")
    found = Session(overlay={"p.tessera": source}).check("p.tessera")
    assert [d.code for d in found] == ["T0621"]


ZEROS = """
@op.kernel
def columns(a: f32[m, n]) -> f32[n]:
    y = op.zeros((n,), f32)
    for i, j in op.tile_range(m, n, step=16):
        y[j:j+16] += op.sum(a[i:i+16, j:j+16], axis=0)
    return y

@op.kernel
def corner(a: f32[m, n]) -> (f32[m, n], i32[m]):
    y = op.zeros((m, n), f32)
    z = op.zeros((m,), i32)
    y[0:2, 0:3] = a[0:2, 0:3]
    return y, z

def both(a):
    return columns(a), columns(a)
"""


def test_results_that_begin_as_zeros(target: str) -> None:
    """Whatever lay in the memory they are given."""
    m = module(ZEROS, target)
    a = random(37, 50)
    want = np.zeros((37, 50), np.float32)
    want[:2, :3] = a[:2, :3]
    for _ in range(3):
        y, z = m.corner(a)
        assert np.array_equal(y, want) and not z.any()
        y[...] = z[...] = 7
        sums = m.columns(a)
        near(sums, a.astype(np.float64).sum(0), 1e-5, 37)
        sums[...] = 7
        del y, z, sums
    for sums in m.both(a):
        near(sums, a.astype(np.float64).sum(0), 1e-5, 37)
    assert not m.columns(np.zeros((0, 5), np.float32)).any()


def test_a_sum_into_zeros_is_spread_over_groups() -> None:
    session = Session(overlay={"p.tessera": ZEROS})
    assert not session.check("p.tessera")
    signature = session.signature("p.tessera", "columns")
    _, plan = session.tile("p.tessera", "columns", signature)
    assert plan.results[0].zeroed and str(plan.grid) != "(1,)"
    assert type(plan).from_json(plan.to_json()) == plan
