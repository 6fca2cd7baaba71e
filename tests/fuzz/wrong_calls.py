"""Programs of calls, operators and subscripts that mostly are wrong: every name of the language
gets whatever there is, in the host program, a function that Python calls, a graph, kernels and
tests."""

from __future__ import annotations

import random

from tessera_lang.sema import builtins

_MATH = [f"math.{n}" for n in "exp sqrt sin floor log pow atan2 isnan hypot".split()]
OPS = sorted({*(f"op.{n}" for n in builtins.OP_BUILT), *builtins.TILE_FUNCTIONS, *_MATH})
BARE = """len sum min max abs range print float int bool str list sorted enumerate zip any all round
divmod pow tuple dict reversed map isinstance grad vjp jvp value_and_grad fused set repr
type""".split()
METHODS = """sum mean max min reshape astype to T copy argmax clip round transpose dot sort append
keys get items join shape size var cumsum flatten fill tolist pop insert extend index values dtype
real item""".split()
VALUES = (
    *("x q b m u 1 -1 0 2.5 True None 'a' [] [x] () {} op f inf ... f32 i32 bool".split()),
    "[1, 2]", "[1.5]", "[x, x]", "(x, m)", "[[1, 2], [3, 4]]", "(1,)", "(2, 2)", "{'a': x}",
    "{1: 2}", "lambda v: v", "op.exp", "nothing", "x[0]", "x[1:3]", "m.T", "m[:, 0]", "len(x)",
    "x.shape", "x > 0", "10 ** 18", "2 ** 63", "-2 ** 63", "1e308", "op.nan", "slice",
    "'ij,jk->ik'", "x.dtype", "range(3)", "(i for i in range(2))", "[[], [1]]", "[[1], [1, 2]]",
    "[None]", "['a', 1]", "x if x[0] > 0 else m", "op.zeros((0,), f32)", "op.zeros((2, 0), f32)",
    "op.ones((), f32)", "u8(3)", "f64(1.0)",
)  # fmt: skip
KEYWORDS = """axis keepdims dtype out mode n k shape stride padding correction ddof seed low high
weights bins side fill start stop step""".split()
OPERATORS = [*"+ - * / // % ** @ & | ^ << >> == < >= != in is and or".split(), "not in"]
DATA = """x = op.ones((4,), f32)
q = op.arange(5)
b = x > 0.0
m = op.ones((2, 3), f64)
u = op.zeros((3,), u8)
"""


def expression(r: random.Random, depth: int = 0) -> str:
    def one(more: int = 1) -> str:
        return expression(r, depth + more)

    chance = r.random()
    if depth > 2 or chance < 0.35:
        return r.choice(VALUES)
    if chance < 0.72:
        function = r.choice(OPS if r.random() < 0.85 else BARE)
        given = [one() for _ in range(r.choice((0, 1, 1, 1, 2, 2, 2, 3, 4)))]
        if r.random() < 0.3:
            given.append(f"{r.choice(KEYWORDS)}={one()}")
        return f"{function}({', '.join(given)})"
    if chance < 0.8:
        given = [one() for _ in range(r.choice((0, 1, 1, 2)))]
        call = "" if r.random() < 0.2 else f"({', '.join(given)})"
        return f"({one()}).{r.choice(METHODS)}{call}"
    if chance < 0.92:
        return f"({one()} {r.choice(OPERATORS)} {one()})"
    if chance < 0.98:
        places = (one(), ":", "1:", "None", "::2", "::-1", f"{r.choice(VALUES)}:")
        return f"({one()})[{', '.join(r.choice(places) for _ in range(r.choice((1, 1, 2, 3))))}]"
    return f"({r.choice(('-', 'not ', '~', '+'))}{one()})"


def statements(r: random.Random, indent: str) -> str:
    found: list[str] = []
    for _ in range(r.choice((1, 1, 2, 3))):
        e = expression(r)
        found.append(r.choice((
            f"y = {e}", f"print({e})", f"x[{expression(r, 2)}] = {e}",
            f"m[{expression(r, 2)}] += {e}", f"y, z = {e}", f"for i in {e}:\n{indent}    y = i",
            f"if {e}:\n{indent}    y = x", f"x = {e}", f"x {r.choice(OPERATORS[:12])}= {e}",
        )))  # fmt: skip
    return "".join(f"{indent}{line}\n" for line in found)


def program(r: random.Random) -> str:
    inside, after = "def f(v):\n    return v\n", f"{DATA}print(k(x, q, b, m, u))\n"
    heads = "x: f32[n], q: i64[p], b: bool[n], m: f64[r, c], u: u8[w]"
    match r.randrange(7):
        case 0:
            return inside + DATA + statements(r, "")
        case 1:
            result = r.choice(("op.sum(x)", expression(r), f"op.sum({expression(r)})"))
            body = f"def loss(x, q, b, m, u):\n{statements(r, '    ')}    return {result}\n"
            name = r.choice(("grad", "value_and_grad", "fused"))
            return f"{inside}{body}k = {name}(loss)\n{after}"
        case 2:
            body = f"{statements(r, '    ')}    return {expression(r)}\n"
            return f"{inside}@op.kernel\ndef k({heads}):\n{body}{after}"
        case 3:
            heads = heads.replace("x: ", "x: mut ").replace("m: ", "m: mut ")
            body = f"{inside}@kernel\ndef k({heads}):\n{statements(r, '    ')}{DATA}"
            return f"{body}k[(1,)](x, q, b, m, u)\n"
        case 4:
            body = f"{statements(r, '    ')}    return {expression(r)}\n"
            return f"def k(x, q, b, m, u):\n{body}{after}"
        case 5:
            data = "".join(f"    {line}\n" for line in DATA.splitlines())
            return f"{inside}@test\ndef t():\n{data}{statements(r, '    ')}"
        case _:
            return f"{DATA}{inside}x = nothing(2)\n{statements(r, '')}m = x\n{statements(r, '')}"
