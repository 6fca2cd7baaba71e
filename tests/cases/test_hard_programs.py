"""Programs made to be hard: the analyses answer within two seconds of the processor."""

from __future__ import annotations

import time

import pytest

from tessera_lang.analysis import check_shared, unproved_arrays
from tests.unit.lowering import lower_source

HEAD = """
@kernel tile[({lanes},)] grid[(m,)]
def k(x: f32[m, {lanes}], out: mut f32[m, {lanes}]):
    s = tshared.alloc(({lanes},), f32)
    t = tile_linear_id()
    s[t] = x[group_id(0), t]
    tbarrier()
    a: index = 0
{body}    out[group_id(0), t] = s[t]
"""
SECONDS = 2.0


def kernel(body: list[str], lanes: int = 64) -> str:
    return HEAD.format(lanes=lanes, body="".join(f"    {line}\n" for line in body))


def nested(depth: int, count: str, body: list[str]) -> str:
    heads = ["    " * d + f"for i{d} in range({count}):" for d in range(depth)]
    return kernel([*heads, *("    " * depth + line for line in body)])


def functions(depth: int) -> str:
    """Each calls the one before twice."""
    made = ["def f0(v): return v * 3 % 7"]
    made += [f"def f{d}(v): return f{d - 1}(v) + f{d - 1}(v + 1)" for d in range(1, depth)]
    return "\n".join(made) + kernel([f"s[f{depth - 1}(t) % 64] = 1.0", "tbarrier()"])


SHIFTED = ["s[(t + a) % 64] = 1.0", "tbarrier()", "a += 1"]
MODULI = [
    "i = ((((t * 7 % 251) * 5 % 241) * 3 % 239) * 11 % 233) % 256",
    "j = ((((t * 13 % 199) * 17 % 193) * 19 % 191) * 23 % 181) % 256",
    "for k in range(64):", "    s[(i * k + j) % 256] = s[(j * k + i) % 256]", "    tbarrier()",
]  # fmt: skip
SCATTERED = """
@kernel tile[(256,)] grid[(64,)]
def k(x: f32[16384], out: mut f32[16384]):
    i = grid_tile_linear_id()
    for k in range(4096):
        out[(i * (2 * k + 1) + k * k % 97) % 16384] = x[i]
"""
COLLATZ = """
@kernel tile[(256,)] grid[(4,)]
def k(out: mut i32[1024]):
    i = grid_tile_linear_id()
    v = i + 1
    c = 0
    while v != 1:
        if v % 2 == 0: v = v // 2
        else: v = 3 * v + 1
        c += 1
    out[(i + c) % 1024] = i32(c)
"""
HARD = {
    "nested moduli": kernel(MODULI, 256),
    "20 nested loops": nested(20, "2", SHIFTED),
    "20 nested loops of a size": nested(20, "m", SHIFTED),
    "20 nested loops without a barrier": nested(20, "2", ["s[t] += 1.0"]),
    "4096 iterations": nested(1, "4096", SHIFTED),
    "4096 iterations with products": nested(1, "4096", [
        "s[(t * i0 + a) % 64] = 1.0", "tbarrier()", "s[(t + i0 * 3) % 64] += 1.0", "tbarrier()",
        "a += i0",
    ]),
    "60 barriers": kernel([
        line for i in range(60)
        for line in (f"s[(t + {i}) % 256] += s[(t * {2 * i + 1}) % 256]", "tbarrier()")
    ], 256),
    "200 barriers": kernel([
        line for i in range(200) for line in (f"s[(t + {i}) % 1024] += 1.0", "tbarrier()")
    ], 1024),
    "400 conditions": kernel([
        f"if t % {i + 2} == {i % 3}: s[t] += {i}.0" for i in range(400)
    ], 256),
    "functions of functions": functions(9),
    "elements far apart": SCATTERED,
    "loops of any length": COLLATZ,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", HARD)
def test_an_answer_in_time(name: str) -> None:
    begin = time.process_time()
    program, plan, _ = lower_source(HARD[name])
    check_shared(program.operations[0], plan)
    unproved_arrays(program.operations[0], plan)
    assert time.process_time() - begin < SECONDS
