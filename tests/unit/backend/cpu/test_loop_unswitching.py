"""Conditions that a warp shares are asked once for it: what each lane does stays the same."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tessera_backend.cpu.emit_group import GroupEmitter

import tessera_lang as tessera

pytestmark = pytest.mark.optimized

KERNEL = """
@kernel tile[({lanes},)] grid[(ceil_div(n, {lanes}),)] shared(2_KiB)
def k(x: i32[n], out: mut i32[n], d: index):
    s = tshared.alloc(({lanes},), i32)
    t = tile_linear_id()
    i = grid_tile_linear_id()
    lane = lane_id()
    warp = warp_id()
    a = x[min(i, n - 1)]
    b = i32(0)
    s[t] = a
    tbarrier()
{body}
    if i < n: out[i] = b
"""
CONDITIONS = [
    "warp == 0", "warp == 1 and lane < 7", "warp == d", "warp > 0 and a > 0", "lane == 3",
    "warp * 2 == d and lane > d", "warp != 0", "not (warp == 1)", "warp == 0 or a > 3",
    "index(u8(lane)) - lane == 0", "a > 0 and warp < 2", "warp % 2 == 0", "t // 32 == 1",
]  # fmt: skip
SHARED = {"warp == 0", "warp == 1 and lane < 7", "warp == d", "warp > 0 and a > 0"}


def statements(choose: Random, depth: int) -> list[str]:
    out: list[str] = []
    for _ in range(choose.randrange(1, 4)):
        match choose.randrange(7):
            case 0:
                out.append(f"b += a * {choose.randrange(1, 5)}")
            case 1:
                out.append(f"for j in range({choose.choice([3, 4])}): b += s[(t + j) % {{lanes}}]")
            case 2:
                out.append("b = b ^ s[t]")
            case 3:
                out.append("for j in range(d): b += i32(j) * a")
            case 4 if not depth:
                out.append("b -= 1")
            case _ if depth:
                out.append(f"if {choose.choice(CONDITIONS)}:")
                out += ["    " + line for line in statements(choose, depth - 1)]
                if choose.random() < 0.4:
                    out.append("else:")
                    out += ["    " + line for line in statements(choose, depth - 1)]
            case _:
                out.append("b += 7")
    return out


def check(body: list[str], lanes: int) -> None:
    text = "\n".join("    " + line for line in body).format(lanes=lanes)
    kernel = tessera.compile(KERNEL.format(lanes=lanes, body=text), target="cpu").k
    code = compile("\n".join(body).format(lanes=lanes), "body", "exec")
    for n, d in ((1, 0), (lanes, 1), (3 * lanes + 5, 2)):
        x = np.random.default_rng(n).integers(-9, 10, n).astype(np.int32)
        out = np.zeros_like(x)
        kernel(x, out, d)
        for i in range(n):
            t = i % lanes
            s = [int(x[min(j, n - 1)]) for j in range(i - t, i - t + lanes)]
            scope = {"a": int(x[i]), "b": 0, "s": s, "t": t, "d": d,
                     "lane": t % 32, "warp": t // 32, "i32": int, "index": int,
                     "u8": lambda v: v % 256}  # fmt: skip
            exec(code, scope)
            assert out[i] == (scope["b"] + 2**31) % 2**32 - 2**31, (i, d, text)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.sample(2)
def test_one_condition(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a side and without, with loops inside that all lanes run together and that one runs."""
    asked: list[object] = []
    answer = GroupEmitter._when
    monkeypatch.setattr(
        GroupEmitter, "_when", lambda own, *given: asked.append(answer(own, *given)) or asked[-1]
    )
    body = [f"if {condition}: b += a", f"if {condition}:", "    for j in range(3): b += s[j] * a",
            "else: b -= a", "b = b * 3 + 1"]  # fmt: skip
    check([*body, f"# {condition}"], 96)
    if condition in SHARED:
        assert any(found is not None for found in asked)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(1)
def test_random_conditions(seed: int) -> None:
    choose = Random(seed)
    check(statements(choose, 3) + statements(choose, 3), choose.choice([64, 96, 40]))
