"""The axis of lanes along which memory lies side by side is the innermost loop, whichever it is."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tessera_lang as tessera
from tessera_lang.driver.commands import group

COPY = """
@kernel tile[{sizes}] grid[(ceil_div(m, {rows}), ceil_div(n, {columns}))]
def k(x: f32[m, n], out: mut f32[m, n]):
    i = group_id(0) * {rows} + tile_id({row})
    j = group_id(1) * {columns} + tile_id({column})
    {body}
"""
PLAIN = "if i < m and j < n: out[i, j] = x[i, j] + f32(i * 3 - j)"
# What a program does, and the axes that the group has then.
BODIES = {
    "along axis 0": (COPY, (32, 8), 1, 0, PLAIN, "8, 32"),
    "along axis 1": (COPY, (8, 32), 0, 1, PLAIN, "8, 32"),
    "too few along axis 0": (COPY, (4, 8), 1, 0, PLAIN, "4, 8"),
    "counted in a row": (COPY, (32, 8), 1, 0, PLAIN + " + 0.0 * f32(tile_linear_id())", "32, 8"),
    "printed": (COPY, (32, 8), 1, 0, PLAIN + "\n    if i < 0: print(i)", "32, 8"),
    "one lane": (COPY, (32, 1), 0, 1, PLAIN, "32, 1"),
}  # fmt: skip


def text(name: str) -> str:
    form, sizes, row, column, body, _ = BODIES[name]
    return form.format(
        sizes=sizes, row=row, column=column, rows=sizes[row], columns=sizes[column], body=body
    )


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.sample(3)
def test_axes_of_the_group(name: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tessera"
    path.write_text(text(name), encoding="utf-8")
    asked = ["emit", str(path), "--stage=llvm", "--target=cpu", "--print-after=order_lane_axes"]
    done = CliRunner().invoke(group, asked)
    assert done.exit_code == 0, done.output
    found = re.search(r"group = \[([^\]]*)\]", str(done.output).replace(" : i64", ""))
    assert found is not None and found[1] == BODIES[name][-1]
    kernel = tessera.compile(text(name), target="cpu").k
    for m, n in ((1, 1), (5, 70), (33, 65)):
        x = np.random.default_rng(m).standard_normal((m, n), dtype=np.float32)
        out = np.zeros_like(x)
        kernel(x, out)
        i, j = np.indices((m, n))
        np.testing.assert_array_equal(out, x + (i * 3 - j).astype(np.float32))


def turned(seed: int) -> tuple[str, tuple[int, ...]]:
    """A kernel of three axes of lanes that reads, exchanges and stores along any of them."""
    choose = Random(seed)
    sizes = [choose.choice((1, 2, 4, 8, 16)) for _ in range(3)]
    a, b, c = choose.choice(list(permutations(range(3))))
    p, q, r = choose.choice(list(permutations("abc")))
    shape = ", ".join(str(sizes[{"a": a, "b": b, "c": c}[x]]) for x in (p, q, r))
    return (
        f"""
@kernel tile[{tuple(sizes)}] shared(16_KiB) grid[(2,)]
def k(x: f32[2, {sizes[a]}, {sizes[b]}, {sizes[c]}], out: mut f32[2, {shape}]):
    held = tshared.alloc(({sizes[a]}, {sizes[b]}, {sizes[c]}), f32)
    a = tile_id({a})
    b = tile_id({b})
    c = tile_id({c})
    g = group_id(0)
    held[a, b, c] = x[g, a, b, c]
    tbarrier()
    total = 0.0
    for s in range({choose.choice((1, 3))}):
        total += held[{sizes[a]} - 1 - a, b, {sizes[c]} - 1 - c] + f32(s * a)
    out[g, {p}, {q}, {r}] = total + f32(b)
""",
        tuple("abc".index(x) for x in (p, q, r)),
    )


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sample(2)
def test_random_axes(seed: int) -> None:
    made, order = turned(seed)
    kernel: Any = tessera.compile(made, target="cpu").k
    shape = tuple(map(int, re.findall(r"\d+", made.split("x: f32")[1].split("]")[0])))
    x = np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)
    steps = int(made.split("for s in range(")[1].split(")")[0])
    _, a, b, _ = np.indices(shape)
    want = x[:, ::-1, :, ::-1] * steps + a * sum(range(steps)) + b
    want = np.ascontiguousarray(want.transpose(0, *(1 + axis for axis in order)), np.float32)
    out = np.full(want.shape, np.nan, np.float32)
    kernel(x, out)
    np.testing.assert_array_equal(out, want)
