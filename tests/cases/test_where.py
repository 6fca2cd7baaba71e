"""``where``: facts of a call, checked once before the launch, joined as in Python."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tessera_lang as tessera

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
HEADS = ("@kernel tile[(32,)] grid[(1,)]", "@op.kernel")

SIZES: dict[str, Callable[[int, int], bool]] = {
    "n % 4 == 0 or m == 1": lambda n, m: n % 4 == 0 or m == 1,
    "not n % 4 == 0": lambda n, m: n % 4 != 0,
    "not (n < m or n > 2 * m)": lambda n, m: not (n < m or n > 2 * m),
    "(n == m and n > 4) or (n == 1 and m == 2) or m == 9": lambda n, m: (
        (n == m > 4) or (n, m) == (1, 2) or m == 9
    ),
    "1 < n <= m < 10 or n == 1": lambda n, m: 1 < n <= m < 10 or n == 1,
    "not 1 < n < 8": lambda n, m: not 1 < n < 8,
    "n == 0 or m % n == 0": lambda n, m: n == 0 or m % n == 0,
    "not (n == 0 or m % n != 0)": lambda n, m: n != 0 and m % n == 0,
    "min(n, m) > 3 and (n != 5 or m != 5)": lambda n, m: min(n, m) > 3 and (n, m) != (5, 5),
    "x.shape[0] == y.shape[0] or y.shape[-1] > 7": lambda n, m: n == m or m > 7,
}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def kernel(condition: str, head: str, arguments: str = "x: f32[n], y: f32[m]") -> str:
    body = "out[0] = 1.0" if head == HEADS[0] else "out[0:1] = 1.0"
    return f"{head}\ndef f({arguments}, out: mut f32[1]) where {condition}:\n    {body}\n"


@pytest.mark.parametrize("head", HEADS, ids=["lanes", "tiles"])
@pytest.mark.parametrize("condition", SIZES)
@pytest.mark.sample(8)
def test_sizes(target: str, head: str, condition: str) -> None:
    """What holds runs; what does not is refused with the condition and the sizes."""
    f = tessera.compile(kernel(condition, head), target=target).f
    for n, m in ((1, 1), (1, 2), (4, 4), (5, 5), (3, 9), (8, 4), (6, 5), (2, 1), (0, 3), (10, 30)):
        x, y, out = np.zeros(n, np.float32), np.zeros(m, np.float32), np.zeros(1, np.float32)
        if SIZES[condition](n, m):
            f(x, y, out)
            assert out[0] == 1
            continue
        with pytest.raises(tessera.TesseraError) as caught:
            f(x, y, out)
        found = caught.value.diagnostics
        assert {d.code for d in found} <= {"T0838", "T0846"}, found
        assert out[0] == 0


def test_the_sizes_are_named() -> None:
    f = tessera.compile(kernel("n % 4 == 0 or not m > 3", HEADS[0]), target="cpu").f
    with pytest.raises(tessera.TesseraError) as caught:
        f(np.zeros(6, np.float32), np.zeros(5, np.float32), np.zeros(1, np.float32))
    (found,) = caught.value.diagnostics
    assert found.code == "T0838" and "`n % 4 == 0 or not m > 3`" in found.message
    assert found.notes == ("in this call m = 5, n = 6",)


@pytest.mark.parametrize("head", HEADS, ids=["lanes", "tiles"])
def test_dtypes_and_ranks(target: str, head: str) -> None:
    """Known when the call is compiled, alone and beside sizes."""
    condition = "(x.dtype == f32 or x.dtype == f16) and (x.dtype != f16 or x.shape[0] % 2 == 0)"
    f = tessera.compile(kernel(condition, head, "x"), target=target).f
    for dtype, n, good in (
        (np.float32, 3, True), (np.float16, 4, True), (np.float16, 3, False),
        (np.float64, 4, False), (np.int32, 4, False),
    ):  # fmt: skip
        out = np.zeros(1, np.float32)
        if good:
            f(np.zeros(n, dtype), out)
            assert out[0] == 1
            continue
        with pytest.raises(tessera.TesseraError) as caught:
            f(np.zeros(n, dtype), out)
        assert [d.code for d in caught.value.diagnostics] == ["T0838"]
        if dtype != np.float16:
            assert f"`x.dtype` is `{'f64' if dtype == np.float64 else 'i32'}`" in str(caught.value)


def test_compile_time_parameters(target: str) -> None:
    source = """
@kernel tile[(32,)] grid[(1,)]
def f[T: dtype, N: int](x: T[n], out: mut f32[1]) where T != f64 and (N == 4 or n % N == 0):
    out[0] = f32(N)
"""
    f = tessera.compile(source, target=target).f
    out = np.zeros(1, np.float32)
    f(np.zeros(5, np.float32), out, T="f32", N=4)
    f(np.zeros(5, np.float32), out, T="f32", N=5)
    assert out[0] == 5
    for dtype, n, said in (("f64", 5, "`T` is `f64`"), ("f32", 7, "n = 7")):
        with pytest.raises(tessera.TesseraError, match=said):
            f(np.zeros(n, f"float{dtype[1:]}"), out, T=dtype, N=5)


@pytest.mark.parametrize(
    "condition",
    ["n", "n + 1", "x[0] > 1.0", "n == 1 or x", "not n", "n in (1, 2)", "n == 1 if m else 2 == n"],
)
def test_what_is_no_condition(condition: str) -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(kernel(condition, HEADS[0]), target="cpu")
    assert "T0313" in {d.code for d in caught.value.diagnostics}, caught.value


def test_too_many_alternatives_are_refused() -> None:
    pairs = " or ".join(f"(n == {i} and m == {i})" for i in range(8))
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(kernel(pairs, HEADS[0]), target="cpu")
    assert "so many alternatives" in str(caught.value)


def test_a_plan_keeps_its_alternatives() -> None:
    from tessera_lang.target.launch_plan import LaunchPlan
    from tests.unit.lowering import lower_source

    plan = lower_source(kernel("n == 1 or (m > 2 and not n == m)", HEADS[0]))[1]
    assert LaunchPlan.from_json(plan.to_json()) == plan
    assert [len(c.alternatives) for c in plan.conditions] == [2, 2]


CALLED = """
def half(x: f32[n], k: index) where n % 2 == 0 or n > 100:
    return x[n // 2] + f32(i32(k))

@kernel tile[(32,)] grid[(1,)]
def lanes(y: f32[m], out: mut f32[1]):
    out[0] = half(y, 0)

def doubled(x: f32[n]) where n % 2 == 0 or n > 100:
    return x * 2

@op.kernel
def tiles(y: f32[m], out: mut f32[m]):
    out[:] = doubled(y)

def host(x: f32[n], k: index) where n % 2 == 0 and not k < 3 and x.dtype == f32:
    return op.sum(x)

def plain(x):
    return host(x, 4)
"""


def test_functions_that_kernels_call(target: str) -> None:
    """What a called function requires of sizes is seen to by the launch of the kernel."""
    m = tessera.compile(CALLED, target=target)
    for f, whole in ((m.lanes, False), (m.tiles, True)):
        for n in (4, 101):
            f(np.ones(n, np.float32), np.zeros(n if whole else 1, np.float32))
        with pytest.raises(tessera.TesseraError) as caught:
            f(np.ones(5, np.float32), np.zeros(5 if whole else 1, np.float32))
        assert [d.code for d in caught.value.diagnostics] == ["T0838"]
        assert "m = 5" in str(caught.value)


def test_functions_of_the_host_program() -> None:
    m = tessera.compile(CALLED, target="cpu")
    assert m.host(np.ones(4, np.float32), 3) == 4 and m.plain(np.ones(4, np.float32)) == 4
    for n, k, said in ((5, 3, "`n` is 5"), (4, 2, "`k` is 2")):
        with pytest.raises(tessera.TesseraError, match=said) as caught:
            m.host(np.ones(n, np.float32), k)
        assert [d.code for d in caught.value.diagnostics] == ["T0838"]
