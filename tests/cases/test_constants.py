"""``const`` arrays: constant memory where a launch on a GPU gets a small one from the host, the
same values everywhere, and never those of another call."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.advice import remarks_of
from tessera_lang.driver.session import Session
from tessera_lang.sema.side_tables import Signature, TensorArgument
from tessera_lang.target.array_facts import constants_by_value
from tessera_lang.types.dtype import BF16, F32
from tests.unit.lowering import lower_source, optimized

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
Array = np.ndarray[Any, Any]

SOURCE = """
@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def smooth(taps: const f32[9], table: const bf16[4, 8], x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        acc: f32 = 0.0
        for k in range(9):
            acc += taps[k] * x[i]
        out[i] = acc + taps[i % 9] + table[i % 4, (i // 4) % 8].to(f32)
"""


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def expected(taps: Array, table: Array, x: Array) -> Array:
    i = np.arange(x.size)
    acc = np.zeros(x.size, np.float32)
    for tap in taps:
        acc += tap * x
    return acc + taps[i % 9] + table.astype(np.float32)[i % 4, i // 4 % 8]


def given(seed: int = 0) -> tuple[Array, Array, Array]:
    r = np.random.default_rng(seed)
    table = r.integers(-8, 8, (4, 8)).astype(ml_dtypes.bfloat16)
    taps, x = (r.integers(-8, 8, n).astype(np.float32) for n in (9, 1000))
    return taps, table, x


def on_device(x: Array, target: Any) -> Any:
    return tessera.to_device(x) if target == "cuda" else x


def back(x: Any) -> Array:
    return x.numpy() if hasattr(x, "numpy") else x


def test_host_and_device_arrays_in_any_mixture(target: Any) -> None:
    """One kernel, called with its constants in each memory, in turn, twice."""
    f = tessera.compile(SOURCE, target=target).smooth
    taps, table, x = given()
    want = expected(taps, table, x)
    for turn in range(2):
        for first in (taps, on_device(taps, target)):
            for second in (table, on_device(table, target)):
                for near in (False, True):
                    out = np.zeros_like(x)
                    there = out if near else on_device(out, target)
                    f(first, second, x if near else on_device(x, target), there)
                    assert np.array_equal(back(there), want), turn


def test_a_launch_sees_what_the_array_held_at_the_call(target: Any) -> None:
    """The caller writes to it at once, while launches wait on two streams."""
    f = tessera.compile(SOURCE, target=target).smooth
    taps, table, x = given()
    near = on_device(x, target)
    outs = [on_device(np.zeros_like(x), target) for _ in range(40)]
    wants: list[Array] = []
    for at, out in enumerate(outs):
        taps[:] = at
        table[:] = at % 16
        wants.append(expected(taps, table, x))
        f(taps, table, near, out)
        taps[:] = -1
    for out, want in zip(outs, wants, strict=True):
        assert np.array_equal(back(out), want)


def test_layouts_and_dtypes(target: Any) -> None:
    """Steps, reversed and column-major arrays; every dtype."""
    f = tessera.compile(SOURCE, target=target).smooth
    taps, table, x = given()
    want, out = expected(taps, table, x), np.zeros_like(x)
    for first in (np.repeat(taps, 2)[::2], taps[::-1].copy()[::-1]):
        for second in (np.asfortranarray(table), np.repeat(table, 3, axis=1)[:, ::3]):
            out[:] = 0
            f(first, second, x, out)
            assert np.array_equal(out, want)
    names = "f64 f32 f16 bf16 f8e4m3 f8e5m2 i8 u8 i16 u16 i32 u32 i64 u64 bool"
    for dtype in names.split():
        source = f"""
@kernel tile[(64,)] grid[(1,)]
def f(table: const {dtype}[64], out: mut {dtype}[64]):
    out[tile_linear_id()] = table[63 - tile_linear_id()]
"""
        special = {"bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn,
                   "f8e5m2": ml_dtypes.float8_e5m2, "bool": np.bool_}  # fmt: skip
        plain = {"f": "float", "i": "int", "u": "uint"}
        kind = special.get(dtype) or np.dtype(plain[dtype[0]] + dtype[1:]).type
        table = np.arange(64).astype(kind)
        out = np.zeros(64, kind)
        tessera.compile(source, target=target).f(table, out)
        assert np.array_equal(out, table[::-1]), dtype


def test_large_arrays_and_sizes_of_the_call(target: Any) -> None:
    """What does not fit is read like any other array; a guard compares as elsewhere."""
    source = """
@kernel tile[(64,)] grid[(1,)]
def f(
    near: const f32[500], second: const f32[400], far: const f32[5000], any: const f32[k],
    out: mut f32[64],
):
    i = tile_linear_id()
    out[i] = near[i] + second[i * 2] + far[i * 50] + any[i]

@kernel tile[(64,)] grid[(1,)]
def outside(near: const f32[50], out: mut f32[64], first: i32):
    out[tile_linear_id()] = near[tile_linear_id() + first]

@op.kernel
def tiles(near: const f32[64], out: mut f32[64]):
    out[:] = near * 2
"""
    m = tessera.compile(source, target=target)
    arrays = [np.arange(n, dtype=np.float32) for n in (500, 400, 5000, 64)]
    out = np.zeros(64, np.float32)
    m.f(*arrays, out)
    assert np.array_equal(out, np.arange(64, dtype=np.float32) * 54)
    m.tiles(arrays[3], out)
    assert np.array_equal(out, arrays[3] * 2)
    out[:] = -1
    found = ""
    try:
        m.outside(arrays[0][:50], out, 0)
        tessera.synchronize()
    except tessera.TesseraError as fault:
        found = str(fault)
    assert "index" in found and "0 to 49 are inside" in found
    with pytest.raises(tessera.TesseraError, match="has size 49"):
        m.outside(arrays[0][:49], out, 0)


def test_a_recorded_function_sees_its_constants(target: Any) -> None:
    """Functions that run again from a record keep no host memory; of host arrays they see what is
    there at each call."""
    source = (
        SOURCE
        + """
def run(taps, table, x):
    out = op.zeros_like(x)
    smooth(taps, table, x, out)
    return out
"""
    )
    run = tessera.compile(source, target=target).run
    for seed in range(4):
        taps, table, x = given(seed)
        near = [on_device(a, target) for a in (taps, table, x)]
        assert np.array_equal(back(run(*near)), expected(taps, table, x))
        assert np.array_equal(back(run(taps, table, x)), expected(taps, table, x))
        taps[:] = 7
        assert np.array_equal(back(run(taps, table, x)), expected(taps, table, x))


# --- what is compiled, without a device ----------------------------------------------------------

BY_VALUE = TensorArgument(F32, 1, True, True, small=True, value=True)
NEAR = TensorArgument(F32, 1, True, True, small=True)
SIGNATURE: Signature = (
    BY_VALUE, TensorArgument(BF16, 2, True, True, small=True, value=True), NEAR, NEAR
)  # fmt: skip


def test_an_array_by_value_is_read_from_the_bank_of_parameters() -> None:
    """With any index, without local memory; ptxas takes it."""
    from tessera_backend.nvptx.backend import BACKEND

    from tessera_lang.target.backend import TargetOptions

    plan = lower_source(SOURCE, SIGNATURE)[1]
    assert [s.kind for s in plan.slots] == ["bytes", "bytes", "data", "data", "symbol"]
    program = optimized(SOURCE, SIGNATURE)
    for arch in ("sm_80", "sm_90a"):
        options = TargetOptions(target="cuda", arch=arch)
        made = BACKEND.compile(program, plan, options, ("ptx",))
        text = made.texts["ptx"]
        assert "_param_0[36]" in text and "_param_1[64]" in text and ".local" not in text
        assert made.resources.local_bytes == 0


def test_what_fits() -> None:
    assert constants_by_value([1, 1, 1], [256, 0, 64]) == (True, False, True)
    assert constants_by_value([1, 1, 1], [2000, 2000, 64]) == (True, False, True)
    assert constants_by_value([1], [4096]) == (False,)
    assert constants_by_value([2] * 60, [16] * 60) == (True,) * 60
    assert constants_by_value([2] * 99, [16] * 99)[-1] is False


REMARKS = """
@kernel tile[(64,)]
def lanes(a: const f32[64], b: const f32[n], c: const f64[4000], out: mut f32[grid_groups]):
    out[group_linear_id()] = a[0] + b[0]

@op.kernel
def tiles(d: const f32[64], out: mut f32[64]):
    out[:] = d
"""


def test_a_remark_says_where_each_is_read() -> None:
    session = Session()
    session.set_text("c.tessera", REMARKS, 1)
    said = remarks_of(session, "c.tessera", session.machine("cuda", "sm_90"))
    found = {d.message.split("`")[1]: (d.message, *d.notes) for d in said if d.code == "P1006"}
    assert "constant memory" in found["a"][0] and "256 bytes" in found["a"][1]
    for name, why in (("b", "sizes are not numbers"), ("c", "32000 bytes"), ("d", "tile kernel")):
        assert "read where it is" in found[name][0] and why in found[name][1]


@pytest.mark.parametrize("body", ["x[0] = 1.0", "x[0] += 1.0", "atomic_add(x[0], 1.0)"])
def test_writes_are_refused(body: str) -> None:
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(f"@kernel tile[(32,)] grid[(1,)]\ndef f(x: const f32[4]):\n    {body}\n")
    assert "T0111" in {d.code for d in caught.value.diagnostics}


# --- numbers of the program ----------------------------------------------------------------------

TABLES = """
W = (0.25, 0.5, -0.75)
N = (3, -1, 4, 1, -5)
P = ((1, 2), (3, 4))

def tap(k):
    return W[k]

@kernel tile[(32,)] grid[(1,)]
def f(out: mut f32[32], whole: mut i8[32], h: mut bf16[32], d: mut f64[32]):
    i = tile_linear_id()
    s: f32 = 0.0
    for j in range(3):
        s += W[j] * tap(j)
    out[i] = W[i % 3] + s
    whole[i] = N[i % 5]
    t = N[i % 5]
    whole[i] += t + P[1][i % 2]
    h[i] = W[i % 3] + h[i]
    d[i] = N[i % 5] + W[2 - i % 3]
"""


def test_the_run_chooses_a_number_of_the_program(target: Any) -> None:
    """A tuple of numbers of the module is a table of the code; its numbers take the dtype they
    meet, as literals do."""
    m = tessera.compile(TABLES, target=target)
    out, whole, d = np.zeros(32, np.float32), np.zeros(32, np.int8), np.zeros(32)
    h = np.ones(32, ml_dtypes.bfloat16)
    m.f(out, whole, h, d)
    i = np.arange(32)
    w, n = np.array([0.25, 0.5, -0.75]), np.array([3, -1, 4, 1, -5])
    assert np.array_equal(out, w[i % 3] + 0.875)
    assert np.array_equal(whole, n[i % 5] * 2 + np.array([3, 4])[i % 2])
    assert np.array_equal(h.astype(np.float64), w[i % 3] + 1)
    assert np.array_equal(d, n[i % 5] + w[2 - i % 3])


def test_a_table_is_guarded(target: Any) -> None:
    source = """
W = (1.0, 2.0, inf, nan)
@kernel tile[(32,)] grid[(1,)]
def f(out: mut f32[32], k: i32):
    out[tile_linear_id()] = W[tile_linear_id() % 4 + k]
"""
    f = tessera.compile(source, target=target).f
    out = np.zeros(32, np.float32)
    f(out, 0)
    assert np.array_equal(out[:4], [1, 2, np.inf, np.nan], equal_nan=True)
    found = ""
    try:
        f(out, 2)
        tessera.synchronize()
    except tessera.TesseraError as fault:
        found = str(fault)
    assert "0 to 3 are inside" in found


def test_tables_are_in_constant_memory_and_said_to_be() -> None:
    from tessera_backend.nvptx.backend import BACKEND

    from tessera_lang.target.backend import TargetOptions

    plan = lower_source(TABLES)[1]
    options = TargetOptions(target="cuda", arch="sm_90a")
    text = BACKEND.compile(optimized(TABLES), plan, options, ("ptx",)).texts["ptx"]
    assert text.count(".const ") == 6 and "ld.const.b32" in text and ".local" not in text
    session = Session()
    session.set_text("c.tessera", TABLES, 1)
    assert not session.check("c.tessera")
    said = remarks_of(session, "c.tessera", session.machine("cuda", "sm_90"))
    assert {d.message.split("`")[1] for d in said if d.code == "P1006"} >= {"W", "N"}


@pytest.mark.parametrize(
    ("table", "use", "code"),
    [
        ("(1.5, 2.0)", "out[i] = out[i] + W[i]", "T0208"),
        ("(1, 300)", "small[i] = W[i]", "T0202"),
        ("(1, 2)", "out[i] = W[i:2]", "T0302"),
        ("(1, 2)", "out[i] = W[5]", "T0302"),
        ("(1, True)", "out[i] = W[i]", "T0302"),
        ("(1, 2)", "out[i] = W[1.5]", "T0215"),
    ],
)
def test_what_is_no_table(table: str, use: str, code: str) -> None:
    head = "@kernel tile[(32,)] grid[(1,)]\ndef f(out: mut i32[32], small: mut i8[32]):\n"
    source = f"W = {table}\n{head}    i = tile_linear_id()\n    {use}\n"
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(source, target="cpu")
    assert code in {d.code for d in caught.value.diagnostics}, caught.value


SHARED = """
T = (10, -33, 76, 5)

def turned(x):
    s = tshared.alloc((64,), i32)
    s[tile_linear_id()] = x + T[tile_linear_id() % 4]
    tbarrier()
    return s[63 - tile_linear_id()]

@kernel tile[(64,)] grid[(1,)]
def k(x: i32[64], out: mut i32[64]):
    i = tile_linear_id()
    a = x[i] + T[i % 4]
    T2 = tshared.alloc((64,), i32)
    c = tlocal.alloc((4,), i32)
    for j in range(4): c[j] = T[3 - j]
    T2[i] = turned(a)
    tbarrier()
    out[i] = turned(T2[i ^ 1]) + c[i % 4] + group_max(a) + i32(warp_match(u8(i % 8)) % 97)
"""


def test_tables_beside_memory_of_the_group_and_of_lanes(target: Any) -> None:
    """What is allocated behind a table: in the kernel, in a function, by an operation of the
    group, by a match of 8 bits."""
    x = np.random.default_rng(3).integers(-1000, 1000, 64).astype(np.int32)
    out = np.zeros(64, np.int32)
    tessera.compile(SHARED, target=target).k(x, out)
    tessera.synchronize()
    i, table = np.arange(64), np.array([10, -33, 76, 5])
    a = x + table[i % 4]
    two = (a + table[i % 4])[::-1]
    three = (two[i ^ 1] + table[i % 4])[::-1]
    match = np.array([sum(1 << k for k in range(32) if k % 8 == t % 8) for t in range(64)])
    assert out.tolist() == (three + table[::-1][i % 4] + a.max() + match % 97).tolist()
