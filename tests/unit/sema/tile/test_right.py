"""Tile kernels that are right: their types, extents, conversions and what the launch checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera_lang.types.shape import DimOp, Sym
from tessera_lang.types.type import Tile
from tests.unit.sema.tile.programs import asked, check, kernel

CONFORMANCE = Path(__file__).resolve().parents[5] / "shared" / "conformance"
V = "x: f32[n], y: mut f32[n]"
VECTORS = ("f32 n", "f32 n")

SOFTMAX = """
@op.kernel
def k(x: f32[m, n]) -> f32[m, n]:
    y = op.empty_like(x)
    for i in op.tile_range(m, step=1):
        row = x[i, :]
        e = exp(row - op.max(row))
        y[i, :] = e / op.sum(e)
    return y
"""

ATTENTION = """
@op.kernel
def k[BM: int = 128, BN: int = 128](q: bf16[b, h, s, d], k: bf16[b, h, t, d], v: bf16[b, h, t, d],
                                    scale: f32, causal: bool = False) -> bf16[b, h, s, d]:
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
        o[bi, hi, i:i+BM, :] = (acc / total[:, None]).to(bf16)
    return o
"""
HEADS = "bf16 b h s 64"

TILED = """
@op.kernel
def k(A, B, C, t: int = 32):
    a = op.shared((t, t), dtype=A.dtype)
    b = op.shared((t, t), dtype=A.dtype)
    for i, j, k in op.tile_range(A.shape[0], B.shape[1], A.shape[1], step=t):
        a[:] = A[i:i+t, k:k+t]
        b[:] = B[k:k+t, j:j+t]
        C[i:i+t, j:j+t] += op.matmul(a, b)
"""


def test_softmax() -> None:
    found = check(SOFTMAX, "f32 m n")
    assert found.codes == []
    tile = found.table.tile
    assert tile is not None
    assert tile.results[0][1] == (Sym("m"), Sym("n"))
    assert tile.agreements == ()
    assert tile.whole == (("x", 1),)
    assert found.variable("row") == "f32[n] tile"


def test_softmax_of_bf16_is_rounded_once() -> None:
    found = check(SOFTMAX.replace("f32", "bf16"), "bf16 m n")
    assert found.codes == []
    assert found.types("op.max(row)") == ["wide bf16[] tile"]
    assert found.variable("e") == "wide bf16[n] tile"
    assert found.coerced("e / op.sum(e)") == ["bf16[n] tile"]


def test_attention() -> None:
    found = check(ATTENTION, "=128", "=128", HEADS, HEADS, HEADS, "f32", "=True")
    assert found.codes == []
    assert found.variable("acc") == "f32[min(128, (s - i)) of 128, 64] tile"
    assert found.coerced("p") == ["bf16[min(128, (s - i)) of 128, min(128, (t - j)) of 128] tile"]


def test_attention_asks_for_the_head_size() -> None:
    found = check(ATTENTION, "=128", "=128", *["bf16 b h s d"] * 3, "f32", "=False")
    assert found.codes == ["T0650"]
    needed, _ = asked(ATTENTION, "=128", "=128", *["bf16 b h s d"] * 3, "f32", "=False")
    assert needed == (("q", 3),)


def test_a_tiled_product() -> None:
    found = check(TILED, "bf16 m k", "bf16 k n", "bf16 m n", "=32")
    assert found.codes == []
    assert found.agreements == [
        "A.shape[1] == B.shape[0]", "A.shape[0] == C.shape[0]", "B.shape[1] == C.shape[1]",
    ]  # fmt: skip
    assert found.types("op.matmul(a, b)") == [
        "wide bf16[min(32, (A.shape[0] - i)) of 32, min(32, (B.shape[1] - j)) of 32] tile"
    ]
    assert found.coerced("op.matmul(a, b)") == []


def test_whole_arrays_have_no_capacity() -> None:
    found = check(kernel("y[:] = x + x", "x, y"), "f32 m n", "f32 m n")
    assert found.codes == []
    [tile] = [t for e, t in found.table.types.items() if found.text(e) == "x + x"]
    assert isinstance(tile, Tile)
    assert [a.capacity for a in tile.axes] == [None, None]
    assert len(found.coerced("x")) == 2


def test_a_returned_expression() -> None:
    found = check(kernel("return a @ b + c", "a, b, c"), *["f16 m n"] * 3)
    assert found.codes == []
    tile = found.table.tile
    assert tile is not None
    assert tile.results[0][0].name == "f16"
    assert found.coerced("a @ b + c") == ["f16[a.shape[0], b.shape[1]] tile"]
    assert found.coerced("c") == ["wide f16[a.shape[0], b.shape[1]] tile"]


RIGHT: dict[str, tuple[str, tuple[str, ...], str]] = {
    "stepped": ("x: f32[n], y: mut f32[n]", VECTORS, "y[0:n:2] = x[0:n:2]"),
    "literal ends": (V, VECTORS, "y[:-1] = x[1:] - x[:-1]"),
    "last": (V, VECTORS, "y[-4:] = x[-4:]"),
    "last element": (V, VECTORS, "y[0] = x[-1]"),
    "open rows": ("x: f32[m, n], y: mut f32[m, n]", ("f32 m n", "f32 m n"),
                  "for i in op.tile_range(m, step=8):\n    y[i:i+8] = x[i:i+8]"),
    "gather": ("x: f32[m, n], i: i32[t], y: mut f32[t, n]", ("f32 m n", "i32 t", "f32 t n"),
               "for r in op.tile_range(t, step=8):\n    y[r:r+8, :] = x[i[r:r+8], :]"),
    "gather by an array": (
        "x: f32[m, n], i: i32[t]", ("f32 m n", "i32 t"), "return x[i, :]"
    ),
    "row by number": ("x: f32[m, n], i: i32[t], y: mut f32[t, n]", ("f32 m n", "i32 t", "f32 t n"),
                      "for r in op.tile_range(t):\n    y[r, :] = x[i[r], :]"),
    "window": (V, VECTORS, "for i in op.tile_range(n, step=8):\n"
               "    y[i:i+8] = op.window(x, i - 1, 8) + x[i:i+8]"),
    "bounded start": (V, VECTORS, "for i in op.tile_range(n, step=8):\n"
                      "    a = max(i - 1, 0)\n    y[i] = op.sum(x[a:i+2])"),
    "width by min": (V, VECTORS, "for i in range(0, n, 8):\n"
                     "    y[i:min(i + 8, n)] = x[i:min(i + 8, n)]"),
    "counter": (V, VECTORS, "i = 0\nwhile i < n:\n    y[i:i+8] = x[i:i+8]\n    i += 8"),
    "backward": (V, VECTORS, "for i in range(n - 1, -1, -1):\n    y[i:i+1] = x[i:i+1]"),
    "unsigned start": ("x: u32[n], y: mut u32[n]", ("u32 n", "u32 n"),
                       "a = x[0]\ny[a:a+8] = 0"),
    "condition of a run": (V, VECTORS, "if n > 8:\n    y[0:8] = x[0:8]\nelse:\n    y[:] = 0.0"),
    "made before a branch": (V, VECTORS, "a = op.zeros((8,), f32)\nif n > 8:\n    a = x[0:8]\n"
                             "y[0:8] = a"),
    "outer accumulator": ("x: f32[n], y: mut f32[8]", ("f32 n", "f32 8"),
                          "acc = op.zeros((8,), f32)\nfor i in range(0, n, 8):\n"
                          "    acc += x[i:i+8]\ny[:] = acc"),
    "sum over rows": ("x: bf16[m, n], y: mut bf16[n]", ("bf16 m n", "bf16 n"),
                      "for i in op.tile_range(m, step=8):\n"
                      "    y[:] += op.sum(x[i:i+8, :], axis=0)"),
    "matrix and column": ("x: f32[m, n], b: f32[m], y: mut f32[m, n]",
                          ("f32 m n", "f32 m", "f32 m n"), "y[:] = x * b[:, None]"),
    "reductions": ("x: f32[m, n], y: mut f32[m]", ("f32 m n", "f32 m"),
                   "for i in op.tile_range(m, step=8):\n    t = x[i:i+8, :]\n"
                   "    y[i:i+8] = op.sum(t, axis=1) + op.mean(t, axis=-1) + op.var(t, axis=1)"),
    "positions": ("x: f32[m, n], y: mut i32[m]", ("f32 m n", "i32 m"),
                  "for i in op.tile_range(m, step=8):\n"
                  "    y[i:i+8] = op.argmax(x[i:i+8, :], axis=1).to(i32)"),
    "mask by positions": (V, VECTORS, "for i in op.tile_range(n, step=8):\n"
                          "    at = i + op.arange(8)\n"
                          "    y[i:i+8] = op.where(at % 2 == 0, x[i:i+8], 0.0)"),
    "any and all": ("x: f32[n], y: mut bool[2]", ("f32 n", "bool 2"),
                    "y[0] = op.any(x > 0)\ny[1] = op.all((x > 0) & (x < 1))"),
    "functions": (V, VECTORS, "y[:] = op.silu(x) + rsqrt(abs(x) + 1) + tanh(x) + op.relu(x)"),
    "functions of math": (V, VECTORS, "y[:] = math.exp(x) + math.sqrt(abs(x)) + math.pow(x, x)"),
    "clamp": (V, VECTORS, "y[:] = op.clamp(x, 0.0, 1.0) ** 2"),
    "casts": ("x: f32[n], y: mut bf16[n]", ("f32 n", "bf16 n"),
              "y[:] = bf16(x) + x.to(bf16) + op.cast(x, bf16)"),
    "conditional": (V + ", p: bool = True", (*VECTORS, "=True"), "y[:] = x if p else -x"),
    "conditional of a run": (V + ", s: i32", (*VECTORS, "i32"), "y[:] = x if s > 0 else -x"),
    "two products": ("q: bf16[s, 64], k: bf16[t, 64], o: mut bf16[s, 64]",
                     ("bf16 s 64", "bf16 t 64", "bf16 s 64"), "o[:] = op.softmax(q @ k.T) @ k"),
    "batch": ("a: f16[b, m, k], w: f16[b, n, k], y: mut f16[b, m, n]",
              ("f16 b m k", "f16 b n k", "f16 b m n"), "y[:] = a @ w.mT"),
    "integers": ("a: i8[m, k], b: i8[k, n], y: mut i32[m, n]", ("i8 m k", "i8 k n", "i32 m n"),
                 "y[:] = a @ b"),
    "f32 meets bf16": ("a: f32[m, k], b: bf16[k, n], y: mut bf16[m, n]",
                       ("f32 m k", "bf16 k n", "bf16 m n"), "y[:] = a @ b"),
    "precision": ("a: f32[m, k], b: f32[k, n], y: mut f32[m, n]",
                  ("f32 m k", "f32 k n", "f32 m n"), 'y[:] = op.matmul(a, b, precision="tf32")'),
    "buffer without dtype": (V, VECTORS, "a = op.shared((8,))\nfor i in op.tile_range(n, step=8):\n"
                             "    a[:] = x[i:i+8]\n    y[i:i+8] = a"),
    "parts of a buffer": (V, VECTORS, "a = op.shared((16,), dtype=f32)\na[0:8] = x[0:8]\n"
                          "a[8:16] = 1.0\ny[0:16] = a"),
    "directives": (V, VECTORS, "schedule.tile(128)\nschedule.use_shared_memory(True, padding=1)\n"
                   "schedule.async_copy(False)\nschedule.pipeline_stages(3)\nschedule.unroll(2)\n"
                   "schedule.vectorize(4)\nschedule.warps(4)\nschedule.warp_specialize(True)\n"
                   "schedule.cluster((2, 1))\nschedule.persistent(True)\nschedule.swizzle(128)\n"
                   "y[:] = x"),
    "promise": (V, VECTORS, 'for i in op.tile_range(n, step=8, independent=("i",)):\n'
                "    y[i:i+8] = x[i:i+8]"),
    "several results": ("x: f32[m, n]", ("f32 m n",),
                        "return op.sum(x, axis=0), op.max(x, axis=1)"),
    "scalar result": ("x: f32[n]", ("f32 n",), "return op.sum(x)"),
    "rank 0": ("x: f32[n]", ("f32 n",), "a = 0.0\na = max(a, op.max(x))\nreturn a"),
    "cumulative": (V, VECTORS, "y[:] = op.cumsum(x)"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    parameters, arguments, body = RIGHT[name]
    found = check(kernel(body, parameters), *arguments)
    assert found.codes == [], found.diagnostics
    assert found.table.complete
    unresolved = [str(t) for t in found.table.types.values() if "?" in str(t)]
    assert unresolved == []


def test_what_the_launch_checks() -> None:
    body = "acc = op.zeros((8,), f32)\nfor i in range(0, n, 8):\n    acc += x[i:i+8]\ny[:] = acc"
    found = check(kernel(body, "x: f32[n], y: mut f32[8]"), "f32 n", "f32 8")
    assert found.agreements == ["x.shape[0] % 8 == 0"]


def test_conditions_are_facts() -> None:
    body = "acc = op.zeros((8,), f32)\nfor i in range(0, n, 8):\n    acc += x[i:i+8]\ny[:] = acc"
    text = kernel(body, "x: f32[n], y: mut f32[8]").replace("]):", "]) where n % 8 == 0:")
    found = check(text, "f32 n", "f32 8")
    assert found.codes == []
    assert found.agreements == []


def test_a_hand_made_pipeline() -> None:
    body = """
    a = op.shared((t, t), dtype=A.dtype)
    for i, j in op.tile_range(A.shape[0], B.shape[1], step=t):
        acc = op.zeros((t, t), f32)
        a[:] = A[i:i+t, 0:t]
        for k in range(0, A.shape[1], t):
            acc += a @ B[k:k+t, j:j+t]
            a[:] = A[i:i+t, k+t:k+2*t]
        C[i:i+t, j:j+t] = acc
    """
    found = check(kernel(body, "A, B, C, t: int = 32"), *["f32 m n"] * 3, "=32")
    assert found.codes == []
    assert found.agreements[0] == "A.shape[1] == B.shape[0]"


def test_functions_are_inlined() -> None:
    text = """
    def leaky(x, slope):
        return op.where(x > 0, x, x * slope)

    def half(n):
        return n // 2

    @op.kernel
    def k(x: f32[n], y: mut f32[n]):
        for i in op.tile_range(half(n), step=8):
            y[i:i+8] = leaky(x[i:i+8], 0.1)
    """
    found = check(text, "f32 n", "f32 n")
    assert found.codes == []
    assert len(found.table.calls) == 2


def test_a_fault_in_an_inlined_function_names_the_call() -> None:
    text = """
    def wrong(a, b):
        return a + b

    @op.kernel
    def k(x: f32[n], y: mut f32[n]):
        y[:] = wrong(x, x[1:])
    """
    found = check(text, "f32 n", "f32 n")
    assert found.codes == ["T0601"]
    assert "in the call with" in found.diagnostics[0].labels[-1].text


def test_dtypes_of_open_accumulators() -> None:
    body = """
    for i in op.tile_range(m, step=8):
        acc = op.zeros((8, 8))
        acc += x[i:i+8, 0:8] @ x[i:i+8, 0:8].T
        y[i:i+8, 0:8] = acc
    """
    found = check(kernel(body, "x: bf16[m, 8], y: mut bf16[m, 8]"), "bf16 m 8", "bf16 m 8")
    assert found.codes == []
    assert found.variable("acc").startswith("wide bf16")


def test_an_extent_is_an_expression_of_sizes() -> None:
    found = check(kernel("y[0:n:3] = x[1:n:3]", "x, y: mut f32[n]"), "f32 n", "f32 n")
    tile = found.table.tile
    assert found.codes == []
    assert tile is not None
    [agreement] = tile.agreements
    assert isinstance(agreement.left, DimOp)
    assert "x.shape[0]" in agreement.text
    assert "y.shape[0]" in agreement.text


CASES: dict[str, tuple[str, tuple[str, ...], list[str]]] = {
    "vec_add": ("vec_add", ("f32 n",) * 3, []),
    "matmul_schedule": ("matmul", ("bf16 m k",) * 3, []),
    "tiled_matmul": ("tiled_matmul", (*("f16 m k",) * 3, "=32"), []),
    "pipelined_attention": ("pipelined_attention", (*("bf16 s 64",) * 3, "=128"), ["T0615"]),
}


@pytest.mark.parametrize("case", CASES)
def test_conformance(case: str) -> None:
    file = CONFORMANCE / case / "block.tessera"
    if not file.exists():
        pytest.skip("the documents are not here")
    name, arguments, codes = CASES[case]
    found = check(file.read_text(encoding="utf-8"), *arguments, name=name)
    assert found.codes == codes, found.diagnostics
