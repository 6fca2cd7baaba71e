"""Wrong tile kernels: each gives exactly the diagnostics listed and no others."""

from __future__ import annotations

import pytest

from tests.unit.sema.tile.programs import check, kernel

V = "x: f32[n], y: mut f32[n]"
M = "x: f32[m, n], y: mut f32[m, n]"
VECTORS = ("f32 n", "f32 n")
MATRICES = ("f32 m n", "f32 m n")

WRONG: dict[str, tuple[str, tuple[str, ...], str, list[str]]] = {
    "shifted": (V, VECTORS, "for i in op.tile_range(n, step=8):\n"
                "    y[i:i+8] = x[i:i+8] + x[i+1:i+9]", ["T0601"]),
    "constant extents": ("x: f32[8], z: f32[4], y: mut f32[8]", ("f32 8", "f32 4", "f32 8"),
                         "y[:] = x + z", ["T0601"]),
    "inner axes": ("x: f32[8, 4], z: f32[5, 8], y: mut f32[8, 8]",
                   ("f32 8 4", "f32 5 8", "f32 8 8"), "y[:] = x @ z", ["T0601"]),
    "one more": (V, VECTORS, "y[:] = x[1:]", ["T0601"]),
    "widths": (V, VECTORS, "for i in op.tile_range(n, step=8):\n    y[i:i+8] = x[i:i+16]",
               ["T0601"]),
    "rank": ("x: f32[m, n], y: mut f32[n]", ("f32 m n", "f32 n"), "y[:] = x", ["T0604"]),
    "rank of operands": ("x: f32[m, n], b: f32[m], y: mut f32[m, n]",
                         ("f32 m n", "f32 m", "f32 m n"), "y[:] = x + b", ["T0604"]),
    "product of a number": (V, VECTORS, "y[:] = x @ op.sum(x)", ["T0206"]),
    "transpose of a vector": (V, VECTORS, "y[:] = x.T", ["T0604"]),
    "too many indices": (V, VECTORS, "y[:] = x[0, :]", ["T0301"]),
    "negative start": (V, VECTORS, "for i in op.tile_range(n, step=8):\n"
                       "    y[i:i+8] = x[i-1:i+7]", ["T0605"]),
    "negative variable": (V, VECTORS, "i = 0\nwhile i < n:\n    y[i:i+8] = 0.0\n    i -= 8",
                          ["T0605"]),
    "data start": ("x: i32[n], y: mut i32[n]", ("i32 n", "i32 n"), "a = x[0] - x[1]\ny[a:a+8] = 0",
                   ["T0605"]),
    "step of a slice": (V, VECTORS, "y[:] = x[::-2]", ["T0606"]),
    "step of a loop": (V + ", t: i32", (*VECTORS, "i32"),
                       "for i in op.tile_range(n, step=t):\n    y[i:i+8] = 0.0", ["T0606"]),
    "steps of a loop": (M, MATRICES, "for i, j in op.tile_range(m, n, step=(8, 8, 8)):\n"
                        "    y[i:i+8, j:j+8] = 0.0", ["T0606"]),
    "axes of a loop": (M, MATRICES,
                       "for i, j in op.tile_range(m, n, m, step=8):\n    pass", ["T0212"]),
    "independent": (V, VECTORS, 'for i in op.tile_range(n, step=8, independent=("j",)):\n'
                    "    y[i:i+8] = 0.0", ["T0606"]),
    "keyword of a loop": (V, VECTORS, "for i in op.tile_range(n, steps=8):\n    y[i:i+1] = 0.0",
                          ["T0106"]),
    "loop over an array": (V, VECTORS, "for i in x:\n    pass", ["T0118"]),
    "lane id": (V, VECTORS, "i = tile_linear_id()\ny[i] = 0.0", ["T0607"]),
    "atomic": ("y: mut f32[n]", ("f32 n",), "atomic_add(y[0], 1.0)", ["T0607"]),
    "barrier": (V, VECTORS, "y[:] = x\ntbarrier()", ["T0607"]),
    "range as a value": (V, VECTORS, "y[:] = op.tile_range(n)", ["T0607"]),
    "capacity": (V + ", t: i32", (*VECTORS, "i32"),
                 "a = op.zeros((t,), f32)\ny[:] = a", ["T0608"]),
    "no elements": (V, VECTORS, "a = op.shared((0,), f32)\na[:] = x[0:0]", ["T0608"]),
    "size": (V, VECTORS, "a = op.zeros((n,), f32)\ny[:] = a", ["T0650"]),
    "store into a value": (V, VECTORS, "t = x[0:8]\nt[0:4] = 0.0\ny[0:8] = t", ["T0609"]),
    "second name": (V, VECTORS, "a = op.shared((8,), f32)\na[:] = x[0:8]\nb = a\ny[0:8] = b",
                    ["T0609"]),
    "prefetch into a value": (V, VECTORS, "a = x[0:8]\nop.prefetch(a, x[0:8])\ny[0:8] = a",
                              ["T0609"]),
    "no directive": (V, VECTORS, "schedule.vectorise(4)\ny[:] = x", ["T0610"]),
    "value of a directive": (V, VECTORS, "schedule.vectorize(3)\ny[:] = x", ["T0610"]),
    "flag of a directive": (V, VECTORS, "schedule.async_copy(1)\ny[:] = x", ["T0610"]),
    "unknown value": (V + ", t: i32", (*VECTORS, "i32"), "schedule.warps(t)\ny[:] = x", ["T0610"]),
    "nothing said": (V, VECTORS, "schedule.warps()\ny[:] = x", ["T0105"]),
    "directive in a loop": (V, VECTORS, "for i in op.tile_range(n, step=8):\n"
                            "    schedule.warps(4)\n    y[i:i+8] = 0.0", ["T0611"]),
    "directive twice": (V, VECTORS, "schedule.warps(4)\nschedule.warps(4)\ny[:] = x", ["T0612"]),
    "tile axes": (V, VECTORS, "schedule.tile((8, 8))\ny[:] = x", ["T0614"]),
    "double buffer": (V, VECTORS, "with schedule.pipeline(double_buffer=2):\n    y[:] = x",
                      ["T0610"]),
    "with": (V, VECTORS, "with x:\n    y[:] = x", ["T0118"]),
    "unused": (V, VECTORS, "a = x[0:8]\ny[:] = x", ["T0615"]),
    "product with integers": ("x: i32[m, m], y: mut f32[m, m]", ("i32 m m", "f32 m m"),
                              "y[:] = x @ y", ["T0620"]),
    "product of f16 and bf16": ("x: f16[m, m], z: bf16[m, m], y: mut f32[m, m]",
                                ("f16 m m", "bf16 m m", "f32 m m"), "y[:] = x @ z", ["T0201"]),
    "f16 with bf16": ("x: f16[n], z: bf16[n], y: mut f32[n]", ("f16 n", "bf16 n", "f32 n"),
                      "y[:] = x + z", ["T0201"]),
    "narrowing": ("x: f32[n], y: mut bf16[n]", ("f32 n", "bf16 n"), "y[:] = x", ["T0208"]),
    "wide with f32": ("x: bf16[m, m], s: f32, y: mut bf16[m, m]", ("bf16 m m", "f32", "bf16 m m"),
                      "y[:] = (x @ x) * s", ["T0208"]),
    "read while summed": (V, VECTORS, "for i in op.tile_range(n, step=8):\n"
                          "    y[0:8] += x[i:i+8]\n    y[0:8] = y[0:8]",
                          ["T0601", "T0621", "T0621"]),
    "division accumulates": (M, MATRICES, "for i in op.tile_range(m, step=1):\n"
                             "    y[0:1, :] /= x[i:i+1, :]", ["T0622"]),
    "condition": (V, VECTORS, "if x > 0:\n    y[:] = x", ["T0205"]),
    "and of tiles": (V, VECTORS, "y[:] = op.where((x > 0) and (x < 1), x, 0.0)", ["T0205"]),
    "not of a tile": (V, VECTORS, "y[:] = op.where(not (x > 0), x, 0.0)", ["T0205"]),
    "chain": (V, VECTORS, "y[:] = op.where(0 < x < 1, x, 0.0)", ["T0205"]),
    "axis": (M, MATRICES, "y[:] = op.sum(x, axis=2)[:, None]", ["T0311"]),
    "exp of integers": ("x: i32[n], y: mut f32[n]", ("i32 n", "f32 n"), "y[:] = exp(x)",
                        ["T0207"]),
    "undefined": (V, VECTORS, "y[:] = expp(x)", ["T0101"]),
    "no member": (V, VECTORS, "y[:] = op.expp(x)", ["T0104"]),
    "literal does not fit": ("x: i32[n], y: mut i32[n]", ("i32 n", "i32 n"), "y[:] = x + 0.5",
                             ["T0208"]),
    "division of integers": ("x: i32[n], y: mut i32[n]", ("i32 n", "i32 n"), "y[:] = x / 2",
                             ["T0208"]),
    "two types": ("x: f32[n], z: i32[n], y: mut f32[n]", ("f32 n", "i32 n", "f32 n"),
                  "a = x[0:8]\nif n > 8:\n    a = z[0:8]\ny[0:8] = a", ["T0203"]),
    "two capacities": (V, VECTORS, "a = x[0:8]\na = x[0:16]\ny[0:8] = a", ["T0603"]),
    "tile to number": (V, VECTORS, "a = 1.0\nif n > 8:\n    a = x[0:8]\ny[0:8] = x[0:8] + a",
                       ["T0203"]),
    "not mut": ("x: f32[n], y: f32[n]", VECTORS, "y[:] = x", ["T0111"]),
    "narrow accumulator": ("x: bf16[n], y: mut bf16[8]", ("bf16 n", "bf16 8"),
                           "acc = op.zeros((8,))\nfor i in range(0, n, 8):\n"
                           "    acc += x[i:i+8]\ny[:] = acc", ["T0210"]),
    "sum into a name": ("A, B", ("f32 n", "f32 n"), "A += B", ["T0609"]),
    "break outside": (V, VECTORS, "y[0] = 0.0\nbreak", ["T0107"]),
    "sum into rows": ("x: i32[n], y: mut i32[n]", ("i32 n", "i32 n"), "y[x[0:8]] += 1", ["T0622"]),
    "scatter by floats": (V, VECTORS, "y[x[0:8]] = x[0:8]", ["T0215"]),
    "rows and columns": ("x: i32[n], y: mut i32[n, n]", ("i32 n", "i32 n n"),
                         "y[x[0:8], x[0:8]] = 0", ["T0215"]),
    "rows and columns read": ("x: i32[n], z: i32[n, n, n], y: mut i32[8, 8]",
                              ("i32 n", "i32 n n n", "i32 8 8"), "y[:] = z[x[0:8], :, x[0:8]]",
                              ["T0215"]),
    "gather by floats": (V, VECTORS, "y[0:8] = x[x[0:8]]", ["T0215"]),
    "size of a result": ("x: f32[n], t: i32", ("f32 n", "i32"),
                         "y = op.empty((t,), f32)\ny[:] = 0.0\nreturn y", ["T0613"]),
    "two dtypes returned": ("x: f32[n], z: i32[n], k: i32", ("f32 n", "i32 n", "i32"),
                            "if k > 0:\n    return x\nreturn z", ["T0208"]),
    "one and two returned": ("x: f32[n], k: i32", ("f32 n", "i32"),
                             "if k > 0:\n    return x, x\nreturn x", ["T0208"]),
    "two ranks returned": ("x: f32[n], k: i32", ("f32 n", "i32"),
                           "if k > 0:\n    return x\nreturn op.sum(x)", ["T0604"]),
    "two lengths returned": ("x: f32[n], k: i32", ("f32 n", "i32"),
                             "if k > 0:\n    return op.zeros((8,), f32)\n"
                             "return op.zeros((9,), f32)", ["T0601"]),
    "a way without a value": ("x: f32[n], k: i32", ("f32 n", "i32"), "if k > 0:\n    return x",
                              ["T0108"]),
    "array made twice": ("x: f32[n], k: i32", ("f32 n", "i32"),
                         "if k > 0:\n    y = op.empty((8,), f32)\nelse:\n"
                         "    y = op.zeros((8,), f32)\ny[:] = x[0:8]\nreturn y", ["T0609"]),
    "f-string": (V, VECTORS, 'y[:] = f"{n}"', ["T0118"]),
    "list": (V, VECTORS, "a = [1, 2]\ny[:] = x", ["T0118"]),
    "buffer too small": (V, VECTORS, "a = op.shared((4,), f32)\na[:] = x[0:8]\ny[0:4] = a",
                         ["T0603"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    parameters, arguments, body, codes = WRONG[name]
    found = check(kernel(body, parameters), *arguments)
    assert found.codes == codes, found.diagnostics


def test_both_operands_and_the_axis_are_named() -> None:
    text = kernel("y[:] = x @ z", "x: f32[8, 4], z: f32[5, 8], y: mut f32[8, 8]")
    found = check(text, "f32 8 4", "f32 5 8", "f32 8 8")
    message = found.diagnostics[0].message
    assert message == ("a product takes equal extents: axis 1 of `x` is 4, not 5, axis 0 of `z`")


def test_the_supported_pairs_are_listed() -> None:
    text = kernel("y[:] = x @ y", "x: i32[m, m], y: mut f32[m, m]")
    found = check(text, "i32 m m", "f32 m m")
    assert "`bf16 @ bf16`" in found.diagnostics[0].notes[0]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("@op.kernel(1)\ndef k(x):\n    x[:] = 0.0\n", ["T0113"]),
        ("@op.kernel\n@kernel tile[8]\ndef k(x):\n    x[0] = 0.0\n", ["T0113"]),
        ("@op.kernel\n@test\ndef k():\n    pass\n", ["T0123"]),
    ],
)
def test_heads(text: str, codes: list[str]) -> None:
    found = check(text, *["f32 n"] * text.count("(x)"))
    assert codes[0] in found.codes
