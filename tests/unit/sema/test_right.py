"""Right programs: no diagnostics, and the types that lowering relies on."""

from __future__ import annotations

import pytest

from tessera_lang.sema import examine_function
from tessera_lang.sema.side_tables import (
    Builtin,
    Constant,
    ConstantArgument,
    FunctionSymbol,
    Local,
    ScalarArgument,
    TensorArgument,
)
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F16, F32, F64, I32, U32
from tessera_lang.types.shape import DimOp, Sym
from tests.unit.sema.program import Program, check, kernel

SUM_REDUCE = """
@kernel tile[(128,)] shared(16_KiB)
def sum_reduce(x: f32[n], out: mut f32[grid_groups]):
    smem = tshared.alloc
    i = tile_linear_id()
    acc = 0.0
    for k in range(i, n, group_tile_count()):
        acc += x[k]
    smem[i] = acc
    tbarrier()
    s = 64
    while s > 0:
        if i < s: smem[i] += smem[i + s]
        tbarrier()
        s //= 2
    if i == 0:
        atomic_add(out[group_linear_id()], smem[0])
"""

HISTOGRAM = """
@kernel tile[(256,)] shared(4_KiB) grid[(min(ceil_div(n, 4096), 1056),)]
def histogram[BINS: int = 256](x: u8[n], counts: mut i32[BINS]):
    local = tshared.alloc((BINS,), i32)
    for b in range(tile_linear_id(), BINS, group_tile_count()):
        local[b] = 0
    tbarrier()
    for i in range(grid_tile_linear_id(), n, grid_tile_count()):
        atomic_add(local[x[i]], 1, scope="group")
    tbarrier()
    for b in range(tile_linear_id(), BINS, group_tile_count()):
        atomic_add(counts[b], local[b])
"""


def right(text: str, **more: object) -> Program:
    program = check(text, **more)  # type: ignore[arg-type]
    assert program.diagnostics == ()
    return program


def test_sum_reduce() -> None:
    p = right(SUM_REDUCE)
    t = p.instances["sum_reduce"]
    assert t.kernel is not None
    assert t.kernel.group == (128,)
    assert t.kernel.shared_budget == 16384
    assert t.kernel.grid == (Sym("grid_groups"),)
    assert [s.name for s in t.kernel.sizes] == ["n", "grid_groups"]
    assert p.variable("sum_reduce", "smem") == "f32[4096] @shared"
    assert p.variable("sum_reduce", "acc") == "f32"
    assert p.variable("sum_reduce", "s") == "index"
    assert p.types("sum_reduce", "0.0") == ["f32"]
    assert p.types("sum_reduce", "64") == ["index"]
    assert t.coercions == {}


def test_histogram() -> None:
    p = right(HISTOGRAM)
    t = p.instances["histogram"]
    assert t.kernel is not None
    assert str(t.parameter_types[1]) == "mut i32[256]"
    assert t.kernel.grid == (DimOp("min", DimOp("ceil_div", Sym("n"), 4096), 1056),)
    assert p.types("histogram", "local[x[i]]") == ["i32"]
    assert p.types("histogram", "1") == ["i32"]


RIGHT: dict[str, tuple[str, str]] = {
    "first negative": (
        "x: f32[n], out: mut i64[1]",
        ("found = -1\nfor k in range(n):\n    if x[k] < 0:\n        found = k\n        break\n"
        "out[0] = i64(found)"),
    ),
    "nested loops": (
        "x: f32[n], out: mut f32[n]",
        ("for a in range(3):\n    for b in range(4):\n        if b == 2: continue\n"
        "        if b == 3: break\n        out[i] += x[a * 4 + b]"),
    ),
    "rebound loop variable": (
        "x: f32[n], out: mut f32[n]",
        "acc = 0.0\nfor k in range(0, n, 4):\n    k = k + 1\n    acc += x[k]\nout[i] = acc",
    ),
    "set on both sides": (
        "x: f32[n], out: mut f32[n]",
        "if x[i] > 0:\n    a = 1.0\nelse:\n    a = 2.0\nout[i] = a",
    ),
    "set before break": (
        "x: f32[n], out: mut f32[n]",
        "k = i\nwhile True:\n    a = x[k]\n    if a > 0:\n        break\n    k += 1\nout[i] = a",
    ),
    "set or returned": (
        "x: f32[n], out: mut f32[n]",
        "if i < n:\n    a = x[i]\nelse:\n    return\nout[i] = a",
    ),
    "floor division": ("x: i64[n], out: mut i64[n]", "out[i] = x[i] // -2 + x[i] % -2"),
    "shifts": ("x: i8[n], out: mut i8[n]", "out[i] = (x[i] << 4) >> 4"),
    "mixed comparison": ("x: u32[n], out: mut i32[n]", "if x[i] > out[i]:\n    out[i] = 1"),
    "u64 and literals": ("x: u64[n], y: u64[n], out: mut u8[n]",
                         "out[i] = u8(x[i] >= y[i] + 5000)"),
    "range of i32": ("x: i32[n], out: mut i32[n]",
                     "for k in range(x[0], x[1], 4):\n    out[i] += 1"),
    "lossless float": ("x: bf16[n], out: mut f32[n]", "out[i] = x[i] + out[i]"),
    "small id stored": ("out: mut i32[n]", "out[i] = tile_linear_id() % 8 + lane_id()"),
    "literal index": ("x: f32[n], out: mut f32[n]", "out[i] = x[0] + x[-1]"),
    "shape": ("x: f32[m, 8], out: mut f32[n]", "if i < x.shape[0]: out[i] = x[i, x.shape[-1] - 1]"),
    "shape unpacked": ("x: f32[m, n], out: mut f32[n]", "a, b = x.shape\nif i < a * b: out[i] = 1"),
    "swap": ("x: f32[n], out: mut f32[n]", "a = x[0]\nb = x[1]\na, b = b, a\nout[i] = a - b"),
    "declared": ("x: bf16[n], out: mut f32[n]", "acc: f32 = 0.0\nacc += x[i]\nout[i] = acc"),
    "conditional": ("x: f32[n], out: mut f32[n]", "out[i] = x[i] if x[i] > 0 else 0"),
    "conditional literals": ("x: f32[n], out: mut f32[n]", "out[i] = 1 if x[i] > 0 else -1"),
    "mathematics": (
        "x: f32[n], out: mut f32[n]",
        "out[i] = math.sqrt(abs(x[i])) + min(x[i], 1, 2.5) + math.fma(x[i], 2, 1) + x[i] ** 2",
    ),
    "infinities": ("x: f32[n], out: mut f32[n]", "top = -inf\ntop = max(top, x[i])\nout[i] = top"),
    "literal quotient": ("x: f32[n], out: mut f32[n]", "out[i] = x[i] * (1 / 3)"),
    "bitcast": ("x: f32[n], out: mut u32[n]", "out[i] = bitcast(x[i], u32) & 0x7fffffff"),
    "wrapping cast": ("out: mut u32[n]", "out[i] = u32(-1)"),
    "to": ("x: f32[n], out: mut f16[n]", "out[i] = x[i].to(f16)"),
    "bools": ("x: f32[n], out: mut f32[n]",
              "p = x[i] > 0 and not x[i] > 1 or False\nif p == True: out[i] = f32(p)"),
    "chain of comparisons": ("x: f32[n], out: mut f32[n]", "if 0 <= i < n: out[i] = x[i]"),
    "atomics": (
        "x: i32[n], out: mut i32[n]",
        ('old = atomic_cas(out[0], 0, 1, scope="device", order="acq_rel")\n'
        'atomic_store(out[1], old, order="release")\n'
        'out[i] = atomic_load(out[1], order="acquire")\natomic_max(out[2], x[i])'),
    ),
    "fence": ("out: mut f32[n]", 'tfence("device")\nout[i] = 1'),
    "docstring": ("out: mut f32[n]", '"""Fills."""\nout[i] = 1'),
    "inferred mut": ("x: f32[n], out", "pass"),
    "true loop": ("out: mut f32[n]", "while True:\n    if i > 3: return\n    i += 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_body(name: str) -> None:
    parameters, body = RIGHT[name]
    right(kernel(body, parameters))


def test_literal_takes_the_first_type_it_meets() -> None:
    p = right(kernel("a = 0\nb = a\nb += x[i]\nout[i] = b", "x: i32[n], out: mut i32[n]"))
    assert p.variable("k", "a") == "i32"
    assert p.variable("k", "b") == "i32"


def test_literals_that_meet_nothing() -> None:
    p = right(kernel("a = 1\nb = 1.5", "out: mut f32[n]"))
    assert (p.variable("k", "a"), p.variable("k", "b")) == ("index", "f32")


def test_integer_literal_variable_becomes_float() -> None:
    p = right(kernel("a = 0\na = a + x[i]\nout[i] = a"))
    assert p.variable("k", "a") == "f32"


def test_coercions() -> None:
    p = right(kernel("out[i] = x[i] + y[i]", "x: bf16[n], y: f32[n], out: mut f32[n]"))
    assert p.coerced("k") == {"x[i]": "f32"}
    p = right(kernel("if x[i] < y[i]: x[i] = 0", "x: mut u8[n], y: i64[n]"))
    assert p.coerced("k") == {}  # comparisons of integers are exact as they are


def test_range_bounds_are_converted() -> None:
    p = right(kernel("for k in range(x[0], x[1]):\n    pass", "x: i32[n]"))
    assert p.coerced("k") == {"x[0]": "index", "x[1]": "index"}


def test_constants_are_recorded() -> None:
    p = right(
        "LANES = 32\nSCALE = LANES * 2.0\n"
        "@kernel tile[(LANES,)]\ndef k[N: int = 4](out: mut f32[n]):\n    out[N + 1] = SCALE\n"
    )
    t = p.instances["k"]
    values = {p.text(e): v for e, v in t.constants.items()}
    assert values["N + 1"] == 5
    assert values["SCALE"] == 64.0
    assert t.kernel is not None and t.kernel.group == (32,)
    names = {p.text(e): s for e, s in t.symbols.items()}
    assert isinstance(names["SCALE"], Constant)


def test_where() -> None:
    p = right(
        "@kernel tile[8]\n"
        "def k[N: int = 4](x: mut f32[n]) where n % N == 0 and 2 < n < 100, x.shape[0] > 1:\n"
        "    x[0] = 1\n"
    )
    info = p.instances["k"].kernel
    assert info is not None
    assert [p.text(e) for e in info.conditions] == [
        "n % N == 0 and 2 < n < 100", "x.shape[0] > 1"
    ]  # fmt: skip


def test_tables_of_a_function_with_faults() -> None:
    p = check(kernel("a = x[i]\nout[i] = a + b"))
    symbol = p.scope.names["k"]
    assert isinstance(symbol, FunctionSymbol)
    signature = (TensorArgument(F32, 1), TensorArgument(F32, 1))
    typed, _ = examine_function(symbol, signature, lambda path: p.scope)
    assert typed is not None and not typed.complete
    assert {x.name: str(t) for x, t in typed.variables.items()}["a"] == "f32"


def test_symbols() -> None:
    p = right(kernel("out[i] = math.sqrt(x[i])"))
    names = {p.text(e): s for e, s in p.instances["k"].symbols.items()}
    assert names["math.sqrt"] == Builtin("math.sqrt")
    assert isinstance(names["x"], Local) and names["x"].kind == "parameter"
    assert isinstance(names["i"], Local)


HELPERS = """
def clamp(v, low, high):
    return min(max(v, low), high)

def half(v):
    return v // 2

def scale[K: int](v, by: f32 = 2.0):
    return v * by * K

def put(a, j, v):
    a[j] = v

def rows(a: f32[r, c]):
    return r * c

def twice(v: f32) -> f32:
    if v > 0:
        return v * 2
    return 0
"""


def test_helper_takes_literals_as_what_they_meet() -> None:
    p = right(HELPERS + kernel("out[i] = clamp(x[i], 0, 1)"))
    t = p.instances["k"]
    (callee,) = t.calls.values()
    assert [str(x) for x in callee.parameter_types] == ["f32", "f32", "f32"]
    assert p.types("k", "clamp(x[i], 0, 1)") == ["f32"]
    assert p.types("k", "1") == ["f32"]


def test_helper_is_checked_per_type() -> None:
    body = "x[i] = half(x[i])\ny[i] = half(y[i])\nx[0] = half(x[1])"
    p = right(HELPERS + kernel(body, "x: mut i32[n], y: mut u32[n]"))
    instances = list(p.instances["k"].calls.values())
    assert [str(i.returns) for i in instances] == ["i32", "u32", "i32"]
    assert instances[0] is instances[2]


def test_helper_brackets_keywords_defaults() -> None:
    p = right(HELPERS + kernel("out[i] = scale[3](by=0.5, v=x[i]) + scale[2](x[i])"))
    t = p.instances["k"]
    first, second = t.calls
    assert [None if a is None else p.text(a) for a in t.arguments[first]] == ["x[i]", "0.5"]
    assert [None if a is None else p.text(a) for a in t.arguments[second]] == ["x[i]", None]
    assert t.calls[first] is not t.calls[second]


def test_helper_keeps_dims_and_needs_mut() -> None:
    p = right(HELPERS + kernel("put(out, i, x[i, 0])\na = rows(x)", "x: f32[m, 8], out"),
              signatures={"k": (TensorArgument(F32, 2), TensorArgument(F32, 1))})  # fmt: skip
    t = p.instances["k"]
    put, rows = t.calls.values()
    assert str(put.parameter_types[0]) == "mut f32[out.shape[0]]"
    assert str(t.parameter_types[1]) == "mut f32[out.shape[0]]"
    assert {local.name: dim for local, dim in rows.sizes.items()} == {"r": Sym("m"), "c": 8}


def test_helper_with_annotated_result() -> None:
    p = right(HELPERS + kernel("out[i] = twice(x[i])"))
    (callee,) = p.instances["k"].calls.values()
    assert str(callee.returns) == "f32"


def test_open_variable_given_to_a_helper() -> None:
    p = right(HELPERS + kernel("a = 0.0\nb = 0\nb += half(7)\nout[i] = clamp(a, 0.0, 1.0)"))
    assert p.variable("k", "a") == "f32"
    assert p.variable("k", "b") == "index"


def test_helper_fills_a_buffer() -> None:
    body = "s = tshared.alloc((8,), f32)\nput(s, 0, x[i])\nout[i] = s[0]"
    p = right(HELPERS + kernel(body))
    (callee,) = p.instances["k"].calls.values()
    assert str(callee.parameter_types[0]) == "f32[8] @shared"


GENERIC = """
@kernel tile[8]
def k[T: dtype, N: int](x: T[n], out: mut T[N], bias: f32 = 1.0, on: bool = True):
    if on:
        a = T(0)
    if T == f16:
        out[0] = a + f16(bias)
    elif on and N > 2:
        out[0] = a + x[0]
"""


def test_compile_time_parameters() -> None:
    signature = (
        ConstantArgument(F16), ConstantArgument(4), TensorArgument(F16, 1),
        TensorArgument(F16, 1), ScalarArgument(F32), ConstantArgument(True),
    )  # fmt: skip
    p = right(GENERIC, signatures={"k": signature})
    t = p.instances["k"]
    assert [str(x) for x in t.parameter_types] == ["f16[n]", "mut f16[4]", "f32"]
    tests = {p.text(e): v for e, v in t.constants.items()}
    assert tests["T == f16"] is True
    assert tests["on"] is True


def test_compile_time_branch_not_taken_is_not_typed() -> None:
    signature = (
        ConstantArgument(F64), ConstantArgument(4), TensorArgument(F64, 1),
        TensorArgument(F64, 1), ScalarArgument(F32), ConstantArgument(True),
    )  # fmt: skip
    right(GENERIC, signatures={"k": signature})
    unset = (*signature[:5], ConstantArgument(False))
    assert check(GENERIC, signatures={"k": unset}).codes == []
    taken = (ConstantArgument(F16), signature[1], TensorArgument(F16, 1), TensorArgument(F16, 1))
    program = check(GENERIC, signatures={"k": (*taken, ScalarArgument(F32), unset[5])})
    assert program.codes == ["T0109"]


def test_unannotated_parameters_take_the_signature() -> None:
    text = "@kernel tile[8]\ndef k(x, y, c):\n    y[0] = x[0] * c\n"
    signature = (TensorArgument(F32, 1), TensorArgument(F32, 1), ScalarArgument(F32))
    p = right(text, signatures={"k": signature})
    assert [str(t) for t in p.instances["k"].parameter_types] == [
        "f32[x.shape[0]]", "mut f32[y.shape[0]]", "f32",
    ]  # fmt: skip


def test_signature_that_does_not_fit() -> None:
    text = "@kernel tile[8]\ndef k(x: f32[n], c: i32):\n    pass\n"
    wrong = {
        "T0207": (TensorArgument(F64, 1), ScalarArgument(I32)),
        "T0307": (TensorArgument(F32, 2), ScalarArgument(I32)),
        "T0105": (TensorArgument(F32, 1),),
    }
    for code, signature in wrong.items():
        assert check(text, signatures={"k": signature}).codes == [code]
    both = (ScalarArgument(U32), ScalarArgument(U32))
    assert check(text, signatures={"k": both}).codes == ["T0207", "T0207"]


def test_modules() -> None:
    modules = {
        "tools": "WIDTH = 4\ndef square(v):\n    return v * v\n",
        "std.math": "def exp(x):\n    return x * 2.0\n",
        "std.reduce": "def total(x):\n    return x[0]\n",
    }
    p = right(
        "import tools\nimport std.reduce as r\nimport std.reduce\nfrom tools import square as sq\n"
        "from tessera import op\n"
        "@kernel tile[8]\ndef k(x: f32[n], out: mut f32[n]):\n"
        "    out[0] = tools.square(x[0]) + sq(x[1]) + math.exp(x[2]) + tools.WIDTH\n"
        "    out[1] = r.total(x) + std.reduce.total(x)\n",
        modules=modules,
    )
    assert len(p.instances["k"].calls) == 5
    exp = next(c for e, c in p.instances["k"].calls.items() if p.text(e).startswith("math"))
    assert exp.module == "std.math"


def test_error_in_a_callee_has_a_label_at_the_call() -> None:
    p = check("def f(a):\n    return a & 1\n" + kernel("out[i] = f(x[i])"))
    (d,) = p.diagnostics
    assert d.code == "T0206" and p.lines("T0206") == [2]
    assert any("in the call with (f32)" in label.text for label in d.labels)


def test_long_chains_do_not_recurse() -> None:
    chain = " + ".join(["x[i]"] * 5000)
    literals = " + ".join(["1"] * 5000)
    p = right(kernel(f"out[i] = {chain}\nout[i] = x[i] * ({literals})"))
    assert p.types("k", literals) == ["f32"]


def test_cast_is_offered() -> None:
    p = check(kernel("out[i] = x[i] + y[i]", "x: f32[n], y: i32[n], out: mut f32[n]"))
    (d,) = p.diagnostics
    assert d.helps == ("convert explicitly: `f32(y[i])`",)
    text = p.file.text
    for edit in sorted(d.fixes[0].edits, key=lambda e: -e.span.lo):
        text = text[: edit.span.lo] + edit.replacement + text[edit.span.hi :]
    assert check(text).codes == []


def test_mut_is_offered() -> None:
    p = check(kernel("out[i] = x[i]", "x: f32[n], out: f32[n]"))
    (edit,) = p.diagnostics[0].fixes[0].edits
    text = p.file.text[: edit.span.lo] + edit.replacement + p.file.text[edit.span.hi :]
    assert check(text).codes == []


def test_bare_buffer_takes_what_is_left() -> None:
    p = right(kernel("a = tshared.alloc\nb = tshared.alloc((3,), f32)\na[0] = f16(1)\nb[0] = 2",
                     clauses="shared(64)"))  # fmt: skip
    assert p.variable("k", "a") == "f16[24] @shared"


def test_bare_buffer_of_an_open_accumulator() -> None:
    p = right(kernel("s = tshared.alloc\nacc = 0\ns[0] = acc\nacc += x[i]\nout[i] = s[0]",
                     clauses="shared(64)"))  # fmt: skip
    assert p.variable("k", "s") == "f32[16] @shared"


def test_host_code_is_checked_for_names_only() -> None:
    right(
        "x = op.zeros((3,), dtype='f32')\n"
        "f = lambda v: v + 1\n"
        "ys = [f(v) for v in range(3) if v > 0]\n"
        "def main(n):\n    names = {'a': n}\n    with x:\n        print(f'{names}', len(ys))\n"
        "    def inner(k):\n        return k + n\n    return inner(2)\n"
        "for a, b in [(1, 2)]:\n    print(a, b)\nmain(3)\n"
    )


def test_each_function_symbol_is_its_declaration() -> None:
    p = right(SUM_REDUCE)
    symbol = p.scope.names["sum_reduce"]
    assert isinstance(symbol, FunctionSymbol)
    assert isinstance(symbol.declaration, ast.FunctionDef)
