"""Arrays of a lane that all lanes may share: which ones, and that each lane still sees its own."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from tessera_backend.cpu import array_contraction
from tessera_backend.cpu.interchange import Interchange

import tessera_lang as tessera

pytestmark = pytest.mark.optimized

BEGIN = """
@kernel tile[(64,)] grid[(ceil_div(n, 64),)] shared(1_KiB)
def k(x: i32[n], out: mut i32[n]):
    s = tshared.alloc((64,), i32)
    v = tlocal.alloc((2, 4), i32)
    t = tile_linear_id()
    i = grid_tile_linear_id()
    a = x[min(i, n - 1)]
    total = i32(0)
    for d in range(2):
        for j in range(4): v[d, j] = 0
"""
END = """
    if i < n: out[i] = total
"""
# What a kernel does, whether its lanes share the array, and the total of a lane.
BODIES = {
    "filled by a loop": ("""
    for j in range(4): v[1, j] = a + i32(j)
    for j in range(4): total += v[1, j]
""", True),
    "in the same step": ("""
    for j in range(4):
        v[0, j] = a * i32(j)
        total += v[0, j]
""", True),
    "filled by constants": ("""
    v[0, 0] = a
    v[0, 1] = a * 2
    for j in range(2): total += v[0, j] * 3
""", True),
    "under a condition": ("""
    if a > 3:
        v[1, 2] = a
        total += v[1, 2]
""", True),
    "written by some": ("""
    if a > 3: v[1, 2] = a
    total += v[1, 2]
""", False),
    "a later step": ("""
    for j in range(4):
        total += v[1, 3]
        v[1, j] = a + i32(j)
""", False),
    "one more than was written": ("""
    for j in range(3): v[1, j] = a
    for j in range(4): total += v[1, j]
""", False),
    "a loop that may end": ("""
    for j in range(4):
        if a + i32(j) > 5: break
        v[1, j] = a
    for j in range(4): total += v[1, j]
""", False),
    "an index of the data": ("""
    for j in range(4): v[1, j] = a + i32(j)
    total += v[1, index(a & 3)]
""", False),
    "across a barrier": ("""
    for j in range(4): v[1, j] = a + i32(j)
    s[t] = a
    tbarrier()
    for j in range(4): total += v[1, j] + s[63 - t]
""", False),
}  # fmt: skip


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """What each lane gives, the array being 0 at first."""
    n = len(x)
    lanes = np.zeros(-(-n // 64) * 64, np.int32)
    lanes[:n] = x
    lanes[n:] = x[n - 1]
    lines = BODIES[name][0].replace("i32", "int").splitlines()
    lines = [line[4:] for line in lines if "tbarrier" not in line and line.strip() != "s[t] = a"]
    code = compile("\n".join(lines), name, "exec")
    out = np.zeros(n, np.int32)
    for i in range(n):
        group = lanes[i // 64 * 64 :][:64]
        v = {(d, j): 0 for d in range(2) for j in range(4)}
        scope = {"a": int(lanes[i]), "v": v, "t": i % 64, "s": group, "total": 0, "index": int}
        exec(code, scope)
        out[i] = scope["total"]
    return out


CLEARED = ["for d in range(2):", "    for j in range(4): v[d, j] = 0"]


def source(body: list[str], cleared: str) -> str:
    """A kernel whose array is 0 at first: as all lanes do it together, as a lane does it under a
    condition together with the body, or under one of its own."""
    begin = BEGIN.split("    for d")[0].splitlines()
    condition = "    if a > -100:"
    zeros = ["        " + line for line in CLEARED]
    inner = ["        " + line for line in body]
    match cleared:
        case "together":
            lines = BEGIN.splitlines() + ["    " + line for line in body]
        case "in a lane":
            lines = [*begin, condition, *zeros, *inner]
        case _:
            lines = [*begin, condition, *zeros, condition, *inner]
    return "\n".join(lines) + END


def body_of(name: str) -> list[str]:
    return [line[4:] for line in BODIES[name][0].splitlines() if line.strip()]


@pytest.mark.parametrize("cleared", ["together", "apart"])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.sample(4)
def test_each_lane_sees_its_own(name: str, cleared: str) -> None:
    if name == "across a barrier" and cleared == "apart":
        cleared = "together"
    kernel = tessera.compile(source(body_of(name), cleared), target="cpu").k
    for n in (1, 64, 200):
        x = np.random.default_rng(n).integers(-9, 10, n).astype(np.int32)
        out = np.zeros_like(x)
        kernel(x, out)
        np.testing.assert_array_equal(out, reference(name, x))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.sample(4)
def test_those_that_are_shared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the zeros are written says nothing where a lane may not write them."""
    monkeypatch.setattr(Interchange, "wanted", lambda own, op: False)
    found: list[int] = []
    answer = array_contraction.find_own_arrays
    monkeypatch.setattr(
        "tessera_backend.cpu.entry.find_own_arrays",
        lambda plan: found.append(len(answer(plan))) or answer(plan),
    )
    cleared = "together" if name == "across a barrier" else "apart"
    made = source(body_of(name), cleared) + f"# {name}\n"
    tessera.compile(made, target="cpu").k(*(np.zeros(64, np.int32) for _ in range(2)))
    assert found == [int(BODIES[name][1])]


def statements(choose: Random, depth: int, names: list[str]) -> list[str]:
    """Loops, conditions, stores and loads with indices that are known and such that are not."""
    out: list[str] = []
    for _ in range(choose.randrange(1, 4)):
        index = choose.choice([*names, *map(str, range(4)), "index(a & 3)"])
        row = choose.choice(["0", "1", *[x for x in names if x.startswith("r")]])
        match choose.randrange(6):
            case 0 | 1:
                out.append(f"v[{row}, {index}] = a + total")
            case 2 | 3:
                out.append(f"total += v[{row}, {index}] * 3 + 1")
            case 4 if depth:
                name = f"{choose.choice('rj')}{len(names)}"
                most = 2 if name[0] == "r" else choose.choice([2, 4])
                inner = statements(choose, depth - 1, [*names, name])
                out += [f"for {name} in range({most}):", *("    " + x for x in inner)]
            case _ if depth:
                out.append(f"if (a + total) & {choose.choice([1, 2, 3])} == 1:")
                out += ["    " + x for x in statements(choose, depth - 1, names)]
            case _:
                out.append("total += a")
    return out


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(1)
def test_random_uses(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Random(seed)
    if seed % 3:  # loops over the elements stay within a lane
        monkeypatch.setattr(Interchange, "wanted", lambda own, op: False)
    body = statements(choose, 3, [])
    for _ in range(3):
        body += statements(choose, 2, [])
    text = source(body, choose.choice(["together", "in a lane", "in a lane", "apart"]))
    kernel = tessera.compile(f"{text}# {seed}\n", target="cpu").k
    x = np.random.default_rng(seed).integers(-5, 6, 100).astype(np.int32)
    out = np.zeros_like(x)
    kernel(x, out)
    code = compile("\n".join(body), "body", "exec")
    for i in range(len(x)):
        v = {(d, j): 0 for d in range(2) for j in range(4)}
        scope = {"a": int(x[i]), "v": v, "total": 0, "index": int}
        exec(code, scope)
        assert out[i] == (scope["total"] + 2**31) % 2**32 - 2**31, (i, text)
