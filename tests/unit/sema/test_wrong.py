"""Wrong programs: each gives exactly the diagnostics listed and no others."""

from __future__ import annotations

import pytest

from tests.unit.sema.program import check, kernel
from tests.unit.sema.tile import programs as tiles

X = "x: f32[n], out: mut f32[n]"
U = "x: u32[n], out: mut i32[n]"

LANES: dict[str, tuple[str, str, list[str]]] = {
    "undefined": (X, "out[i] = y", ["T0101"]),
    "undefined twice": (X, "out[i] = y + y", ["T0101"]),
    "two undefined": (X, "out[i] = y + z", ["T0101", "T0101"]),
    "misspelt builtin": (X, "tbarier()", ["T0101"]),
    "misspelt member": (X, "s = tshared.aloc((4,), f32)", ["T0104"]),
    "misspelt math": (X, "out[i] = math.sqt(x[i])", ["T0104"]),
    "builtin arity": (X, "out[i] = f32(tile_id())", ["T0105"]),
    "builtin too many": (X, "tbarrier(1)", ["T0105"]),
    "cas arity": (U, "atomic_cas(out[i], 1)", ["T0105"]),
    "unknown keyword": (U, 'atomic_add(out[i], 1, scop="group")', ["T0106"]),
    "keyword twice": (U, "atomic_add(out[i], 1, value=2)", ["T0106"]),
    "break outside": (X, "break", ["T0107"]),
    "continue outside": (X, "if i < n:\n    continue", ["T0107"]),
    "kernel returns": (X, "return x[i]", ["T0212"]),
    "unset after if": (X, "if i < 4:\n    a = x[i]\nout[i] = a", ["T0109"]),
    "unset after loop": (X, "for k in range(1, 1):\n    a = x[k]\nout[i] = a", ["T0109"]),
    "unset before": (X, "out[i] = a\na = 1.0", ["T0109"]),
    "unset loop variable": (X, "for k in range(n):\n    pass\nout[k] = 1.0", ["T0109"]),
    "not mut": ("x: f32[n], out: f32[n]", "out[i] = x[i]", ["T0111"]),
    "not mut atomic": ("x: f32[n], out: f32[n]", "atomic_add(out[i], 1.0)", ["T0111"]),
    "const": ("x: f32[n], out: const f32[n]", "out[i] = x[i]", ["T0111"]),
    "fixed": (X + ", K: int = 4", "K = 5", ["T0112"]),
    "size assigned": (X, "n = 5", ["T0112"]),
    "array chosen": (X, "y = x if i > 3 else out\nout[0] = y[0]", ["T0118"]),
    "buffer chosen": (
        X, "s = tshared.alloc((4,), f32)\ns[0] = 1.0\nout[0] = (s if i > 3 else s)[0]", ["T0118"],
    ),
    "tuple chosen": (X, "a, b = (x[0], x[1]) if i > 3 else (x[1], x[0])\nout[i] = a", ["T0118"]),
    "warp of a bool": (X, "out[i] = f32(warp_sum(i > 0))", ["T0206"]),
    "vote of a number": (X, "a = warp_any(x[i])", ["T0207"]),
    "shuffle by a float": (X, "out[i] = warp_shuffle(x[i], 1.0)", ["T0215"]),
    "shuffle without a lane": (X, "out[i] = warp_shuffle(x[i])", ["T0105"]),
    "print of an array": (X, "print(x)", ["T0207"]),
    "assert text": (X, 'assert x[i] > 0, f"at {i}"', ["T0114"]),
    "assert never": (X, "assert x.ndim == 2", ["T0224"]),
    "assert number": (X, "assert i", ["T0205"]),
    "tile op later": (X, "out[i] = op.softmax(x[0:8])", ["T0114"]),
    "slice": (X, "a = x[0:8]", ["T0114"]),
    "product": (X, "out[i] = x[i] @ x[i]", ["T0114"]),
    "schedule": (X, "schedule.unroll(4)", ["T0114"]),
    "list": (X, "a = [1, 2]", ["T0118"]),
    "dict": (X, "a = {1: 2}", ["T0118"]),
    "string": (X, 'a = "text"', ["T0118"]),
    "f-string": (X, 'a = f"{n}"', ["T0118"]),
    "lambda": (X, "a = lambda v: v", ["T0118"]),
    "comprehension": (X, "a = [k for k in range(3)]", ["T0118"]),
    "nested function": (X, "def inner():\n    pass", ["T0118"]),
    "loop over array": (X, "for v in x:\n    pass", ["T0118"]),
    "with": (X, "with x:\n    pass", ["T0118"]),
    "import": (X, "import other", ["T0118"]),
    "unreachable": (X, "return\nout[i] = x[i]", ["T0119"]),
    "not called": (X, "tbarrier", ["T0121"]),
    "function as value": (X, "a = tile_linear_id\nout[i] = x[a]", ["T0216"]),
    "i32 with f32": ("x: f32[n], y: i32[n], out: mut f32[n]", "out[i] = x[i] + y[i]", ["T0201"]),
    "i32 with u32": (U, "out[i] = out[i] + x[i]", ["T0201"]),
    "f16 with bf16": ("x: f16[n], y: bf16[n], out: mut f32[n]", "out[i] = x[i] * y[i]", ["T0201"]),
    "f64 with f32": ("x: f32[n], y: f64[n], out: mut f64[n]", "out[i] = x[i] + y[i]", ["T0201"]),
    "f32 compared with i32": (
        "x: f32[n], y: i32[n], out: mut f32[n]",
        "if x[i] > y[i]:\n    out[i] = 1.0",
        ["T0201"],
    ),
    "shift count": ("x: u8[n], y: u32[n], out: mut u8[n]", "out[i] = x[i] << y[i]", ["T0201"]),
    "literal too big": ("x: u8[n], out: mut u8[n]", "out[i] = x[i] + 300", ["T0202"]),
    "negative literal": (U, "a = x[i] + -1", ["T0202"]),
    "float literal on integer": (U, "out[i] = out[i] + 0.5", ["T0208"]),
    "float literal stored": (U, "out[i] = 0.5", ["T0202"]),
    "inexact literal": (X, "out[i] = x[i] + 16777217", ["T0202"]),
    "too big a float": ("x: f16[n], out: mut f16[n]", "out[i] = x[i] * 1e6", ["T0202"]),
    "infinite f8": ("out: mut f8e4m3[n]", "out[i] = inf", ["T0202"]),
    "two types": (X + ", y: i32[n]", "a = y[i]\nif i < 4:\n    a = x[i]", ["T0203"]),
    "open then two": (
        "x: f32[n], y: f64[n], out: mut f64[n]",
        "acc = 0.0\nacc += x[i]\nacc += y[i]",
        ["T0201"],
    ),
    "index into i32 variable": (U, "a = out[i]\na = i + out[i]", ["T0203"]),
    "array renamed": (X, "a = x\na = out", ["T0203"]),
    "slash": (U, "out[i] = out[i] / 2", ["T0204"]),
    "slash on data": (U, "a = (i + out[i]) / 2", ["T0204"]),
    "slash assigned": (U, "out[i] /= 2", ["T0204"]),
    "integer condition": (U, "if out[i]:\n    out[i] = 1", ["T0205"]),
    "integer and": (U, "if i < n and x[i]:\n    out[i] = 1", ["T0205"]),
    "not integer": (X, "if not i:\n    out[i] = 1.0", ["T0205"]),
    "while integer": (X, "while n:\n    pass", ["T0124", "T0205"]),
    "bool sum": (X, "a = (i < 4) + (i < 8)", ["T0206"]),
    "bits of a float": (X, "a = x[i] & x[i]", ["T0206"]),
    "array sum": (X, "a = x + 1", ["T0206"]),
    "order of bools": (X, "if (i < 4) < (i < 5):\n    pass", ["T0206"]),
    "inverted float": (X, "a = ~x[i]", ["T0206"]),
    "bad scope": (X, 'tfence("world")', ["T0207"]),
    "bad order": (U, 'atomic_load(out[i], order="release")', ["T0207"]),
    "atomic on a value": (X, "atomic_add(1.0, 2.0)", ["T0207"]),
    "sqrt of integer": (U + ", y: f32[n]", "a = math.sqrt(out[i]) * y[i]", ["T0207"]),
    "index stored": (U, "out[i] = i + out[i]", ["T0208"]),
    "f32 into f16": ("x: f32[n], out: mut f16[n]", "out[i] = x[i]", ["T0208"]),
    "f32 added to f16": ("x: f32[n], out: mut f16[n]", "out[i] += x[i]", ["T0208"]),
    "atomic value": (U, "atomic_add(out[i], x[i])", ["T0208"]),
    "power": (U, "out[i] = x[i] ** x[i]", ["T0209"]),
    "negative power": (U, "out[i] = x[i] ** -1", ["T0209"]),
    "narrow accumulator": (
        "x: f16[n], out: mut f16[n]",
        "acc = 0.0\nfor k in range(n):\n    acc += x[k]\nout[i] = acc",
        ["T0210"],
    ),
    **{
        f"narrow accumulator of {t}": (
            f"x: {t}[n], out: mut {t}[n]",
            "acc = 0\nfor k in range(n):\n    acc += x[k]\nout[i] = acc",
            ["T0210"],
        )
        for t in ("i8", "u8", "i16", "u16")
    },
    "atomic f8": ("out: mut f8e4m3[n]", "atomic_add(out[i], 1)", ["T0211"]),
    "atomic bool": ("out: mut bool[n]", "atomic_max(out[i], True)", ["T0211"]),
    "atomic or on f32": (X, "atomic_or(out[i], 1)", ["T0211"]),
    "unpack": (X, "a, b = x[i], x[i], x[i]", ["T0212"]),
    "attribute": (X, "a = x.shap[0]", ["T0213"]),
    "element of a scalar": (X, "a = i[0]", ["T0213"]),
    "shift by the width": ("x: u8[n], out: mut u8[n]", "out[i] = x[i] << 8", ["T0214"]),
    "float index": (X, "out[i] = x[x[i]]", ["T0215"]),
    "float range": (X, "for k in range(x[i]):\n    pass", ["T0215"]),
    "bool index": (X, "out[i] = x[i < 4]", ["T0215"]),
    "called value": (X, "a = i(3)", ["T0216"]),
    "type of a variable": (X, "a: float32 = 0.0", ["T0217"]),
    "to nothing": (X, "a = x[i].to(n)", ["T0218"]),
    "bitcast": (X, "a = bitcast(x[i], u8)", ["T0220"]),
    "step 0": (X, "for k in range(0, n, 0):\n    pass", ["T0221"]),
    "constant fault": (X, "out[i] = x[i] + (1 // 0)", ["T0222"]),
    "by zero": (U, "out[i] = out[i] // 0", ["T0223"]),
    "rank": ("x: f32[m, n], out: mut f32[n]", "out[i] = x[i]", ["T0301"]),
    "rank of a buffer": (X, "s = tshared.alloc((4, 4), f32)\ns[0] = 1.0", ["T0301"]),
    "outside": ("x: f32[n, 8], out: mut f32[n]", "out[i] = x[i, 8]", ["T0302"]),
    "outside from the end": ("x: f32[n, 8], out: mut f32[n]", "out[i] = x[i, -9]", ["T0302"]),
    "axis of the shape": (X, "a = x.shape[1]", ["T0302"]),
    "shape by a variable": (X, "a = x.shape[i]", ["T0302"]),
    "shared by size": (X, "s = tshared.alloc((n,), f32)", ["T0309"]),
    "bare without budget": (X, "s = tshared.alloc\ns[0] = x[i]", ["T0310"]),
    "axis of a group": (X, "a = tile_id(1)", ["T0311"]),
    "axis of the grid": (X, "a = group_id(3)", ["T0311"]),
    "axis by a variable": (X, "a = group_id(i)", ["T0311"]),
    "assigned list": (X, "[i] = x[0]", ["T0118"]),
    "assigned shape": (X, "x.shape = x[0]", ["T0118"]),
    "shape added to": (X, "x.shape += 1", ["T0118"]),
    "declared element": (X, "out[i]: f32 = x[0]", ["T0118"]),
    "tuple of a type": (X, "a = (x[0], f32)", ["T0118"]),
    "a type alone": (X, "f32", ["T0121"]),
    "independent": (
        X,
        "out[i] = y\nbreak\nout[i] = i[0]\nif i:\n    pass",
        ["T0101", "T0107", "T0205", "T0213"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LANES)
def test_wrong_body(name: str) -> None:
    parameters, body, codes = LANES[name]
    program = check(kernel(body, parameters))
    unreachable = [] if name != "independent" else ["T0119"]
    assert program.codes == sorted(codes + unreachable), program.diagnostics
    if codes not in (["T0210"], ["T0119"]):
        assert "k" not in program.instances


FILES: dict[str, tuple[str, list[str]]] = {
    "no tile": ("@kernel\ndef k(out: mut f32[n]):\n    out[0] = 1.0\n", ["T0304"]),
    "too many lanes": ("@kernel tile[(2048,)]\ndef k(x: f32[n]):\n    pass\n", ["T0304"]),
    "too many axes": ("@kernel tile[(2, 2, 2, 2)]\ndef k(x: f32[n]):\n    pass\n", ["T0304"]),
    "no lanes": ("@kernel tile[(0,)]\ndef k(x: f32[n]):\n    pass\n", ["T0304"]),
    "lanes by variable": ("@kernel tile[(n,)]\ndef k(x: f32[n]):\n    pass\n", ["T0304"]),
    "clause twice": ("@kernel tile[8] tile[8]\ndef k(x: f32[n]):\n    pass\n", ["T0113"]),
    "unknown decorator": ("@kernl\ndef k(x: f32[n]):\n    pass\n", ["T0113"]),
    "budget": ('@kernel tile[8] shared("a")\ndef k(x: f32[n]):\n    pass\n', ["T0305"]),
    "budget of two": ("@kernel tile[8] shared(1, 2)\ndef k(x: f32[n]):\n    pass\n", ["T0305"]),
    "grid twice": (
        "@kernel tile[8] grid[(n,)]\ndef k(x: f32[n], o: mut f32[grid_groups]):\n    pass\n",
        ["T0308"],
    ),
    "grid of a scalar": ("@kernel tile[8] grid[(c,)]\ndef k(c: i32):\n    pass\n", ["T0303"]),
    "grid of nothing": ("@kernel tile[8] grid[(zz,)]\ndef k(c: i32):\n    pass\n", ["T0303"]),
    "unbound size": ("@kernel tile[8]\ndef k(x: f32[2*n]):\n    pass\n", ["T0312"]),
    "size of a parameter": (
        "@kernel tile[8]\ndef k(n: index, x: f32[n]):\n    pass\n", ["T0303"],
    ),
    "bad size": ("@kernel tile[8]\ndef k(x: f32[1.5]):\n    pass\n", ["T0303"]),
    "unknown type": ("@kernel tile[8]\ndef k(x: float32[n]):\n    pass\n", ["T0217"]),
    "mut scalar": ("@kernel tile[8]\ndef k(x: mut f32):\n    pass\n", ["T0217"]),
    "two parameters": ("@kernel tile[8]\ndef k(x: f32, x: f32):\n    pass\n", ["T0102"]),
    "default order": ("def f(x=1, y):\n    return y\n", ["T0122"]),
    "where": ("@kernel tile[8]\ndef k(x: f32[n]) where n:\n    pass\n", ["T0313"]),
    "where of a comparison with a scalar": (
        "@kernel tile[8]\ndef k(x: f32[n], c: i32) where n % 4 == c:\n    pass\n", ["T0313"],
    ),
    "where of a scalar": (
        "@kernel tile[8]\ndef k(x: f32[n], c: i32) where c > 0:\n    pass\n", ["T0313"],
    ),
    "kernel result": ("@kernel tile[8]\ndef k(x: f32[n]) -> f32:\n    pass\n", ["T0212"]),
    "function twice": ("def f():\n    pass\ndef f():\n    pass\n", ["T0102"]),
    "unknown module": ("import nothing\n", ["T0130"]),
    "unknown member": ("from tessera import opp\n", ["T0104"]),
    "module variable": (
        "scale = op.zeros(3)\n@kernel tile[8]\ndef k(out: mut f32[n]):\n    out[0] = scale\n",
        ["T0115"],
    ),
    "missing return": ("def f(v):\n    if v > 0:\n        return 1\n", ["T0108"]),
    "return without value": (
        "def f(v):\n    if v > 0:\n        return\n    return 1\n", ["T0108"],
    ),
    "missing annotated return": ("def f(v) -> f32:\n    v = 1\n", ["T0108"]),
    "recursion": (
        "def f(v):\n    return f(v)\n@kernel tile[8]\ndef k(o: mut f32[n]):\n    o[0] = f(1.0)\n",
        ["T0110"],
    ),
    "mutual recursion": (
        ("def f(v):\n    return g(v)\ndef g(v):\n    return f(v)\n"
        "@kernel tile[8]\ndef k(o: mut f32[n]):\n    o[0] = f(1.0)\n"),
        ["T0110"],
    ),
    "kernel called": (
        ("@kernel tile[8]\ndef a(o: mut f32[n]):\n    o[0] = 1.0\n"
        "@kernel tile[8]\ndef k(o: mut f32[n]):\n    a(o)\n"),
        ["T0216"],
    ),
    "callee writes": (
        ("def put(a, v):\n    a[0] = v\n"
        "@kernel tile[8]\ndef k(o: f32[n]):\n    put(o, 1.0)\n"),
        ["T0111"],
    ),
    "argument count": (
        ("def f(a, b):\n    return a + b\n"
        "@kernel tile[8]\ndef k(o: mut f32[n]):\n    o[0] = f(1.0)\n"),
        ["T0105"],
    ),
    "argument type": (
        ("def f(a: f32):\n    return a\n"
        "@kernel tile[8]\ndef k(o: mut f32[n], j: i32):\n    o[0] = f(j)\n"),
        ["T0207"],
    ),
    "compile-time argument": (
        ("def f[N: int](a):\n    return a * N\n"
        "@kernel tile[8]\ndef k(o: mut f32[n], j: i32):\n    o[0] = f[j](1.0)\n"),
        ["T0218"],
    ),
    "sizes of a callee": (
        ("def f(a: f32[m], b: f32[m]):\n    return a[0] + b[0]\n"
        "@kernel tile[8]\ndef k(o: mut f32[n], p: f32[q]):\n    o[0] = f(o, p)\n"),
        ["T0306"],
    ),
    "error in the callee": (
        ("def f(a):\n    return a & 1\n"
        "@kernel tile[8]\ndef k(o: mut f32[n]):\n    o[0] = f(o[1])\n"),
        ["T0206"],
    ),
    "rank of a callee": (
        (
            "def f(a: f32[m]):\n    return a[0]\n"
            "@kernel tile[8]\ndef k(o: mut f32[n, 2]):\n    o[0, 0] = f(o)\n"
        ),
        ["T0307"],
    ),
    "tile kernel": ("@op.kernel\ndef k(x):\n    y = z\n", ["T0101"]),
    "autotunable": ("@op.autotunable(params={})\ndef k(x):\n    y = z\n", ["T0114"]),
    "fewer groups than none": (
        "N = 3\n@kernel tile[8] grid[(2, N - 4)]\ndef k(x: f32[n]):\n    a = x[0]\n", ["T0304"],
    ),
    "bare never stored": (
        "@kernel tile[8] shared(64)\ndef k(x: f32[n]):\n    a = tshared.alloc\n", ["T0219"],
    ),
    "graph": ("def f(x):\n    return op.scan(x)\n", ["T0114"]),
    "distribution": ("def f(x):\n    return dist.all_reduce(x)\n", ["T0114"]),
    "misspelt op": ("def f():\n    return op.zeross((2, 2))\n", ["T0104"]),
    "two bare": (
        ("@kernel tile[8] shared(1_KiB)\ndef k(x: f32[n]):\n"
        "    a = tshared.alloc\n    b = tshared.alloc\n    a[0] = x[0]\n    b[0] = x[0]\n"),
        ["T0310"],
    ),
    "bare of two types": (
        ("@kernel tile[8] shared(1_KiB)\ndef k(x: f32[n], y: i32[n]):\n"
        "    a = tshared.alloc\n    a[0] = x[0]\n    a[1] = y[0]\n"),
        ["T0219"],
    ),
    "no room": (
        ("@kernel tile[8] shared(64)\ndef k(x: f32[n]):\n"
        "    b = tshared.alloc((16,), f32)\n    a = tshared.alloc\n    a[0] = x[0]\n"),
        ["T0310"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_wrong_file(name: str) -> None:
    text, codes = FILES[name]
    program = check(text)
    assert program.codes == codes, program.diagnostics


UNSET = {
    "a break": "while True:\n    if x[i] > 3: break\n    a = x[i]\nout[i] = a",
    "a break beside one that sets": (
        "while True:\n    if x[i] > 3:\n        a = x[i]\n        break\n"
        "    if i > 5: break\nout[i] = a"
    ),
    "a branch that returns": "if x[i] > 1:\n    a = 1.0\n    return\nout[i] = a",
    "a branch that goes on": (
        "for k in range(9):\n    if x[i] > 1:\n        a = 1.0\n        continue\n    out[i] = a"
    ),
    "the other branch returns": (
        "if x[i] > 1: out[i] = 2.0\nelse:\n    a = 1.0\n    return\nout[i] = a"
    ),
    "a loop that may not run": "for k in range(i):\n    a = x[k]\nout[i] = a",
}


@pytest.mark.parametrize("name", UNSET)
def test_a_path_that_sets_nothing_is_shown(name: str) -> None:
    """Where the variable is set on another path, it is not said to be set later on."""
    (found,) = check(kernel(UNSET[name], X)).diagnostics
    assert found.code == "T0109" and "may have no value" in found.message
    assert len(found.labels) == 2 and "not set" in found.labels[1].text


@pytest.mark.parametrize(("written", "right"), [
    ("x.sum()", "`op.sum(x)`"), ("x[i].abs()", "`abs(x)`"), ("x[i].size", "`len(x)`"),
    ("x[i].astype(f32)", "`x.to(f32)`"), ("x[i].exp()", "`math.exp(x)`"), ("x.shap[0]", "`shape`"),
])  # fmt: skip
def test_what_arrays_have_elsewhere(written: str, right: str) -> None:
    """Methods of NumPy and others, in lanes and in tile kernels: what is written instead."""
    in_tiles = tiles.kernel(f"v = {written.replace('[i]', '[0]')}", "x")
    for found in (
        check(kernel(f"v = {written}", X)).diagnostics, tiles.check(in_tiles, "f32 n").diagnostics
    ):  # fmt: skip
        assert [d.code for d in found] == ["T0213"]
        assert any(right in h for h in found[0].helps)


def test_a_number_of_the_run_for_a_compile_time_parameter() -> None:
    for kind, given in (("bool", "i > 3"), ("int", "i"), ("float", "x[i]")):
        text = f"def f(a: {kind}):\n    return a\n" + kernel("v = f(" + given + ")", X)
        (found,) = check(text).diagnostics
        assert found.code == "T0218" and "without an annotation" in found.helps[0]
