"""Tiles that a program says, taken together: the same results, and only where nothing looks."""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.opt.schedule.decide import tile_coarsening
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

NAMES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}

PRODUCT = """\
@op.kernel
def kernel(a: T[m, k], b: T[k, n], bias: f32[n]) -> f32[m, n]:
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(ROWS, COLUMNS)):
        acc = op.zeros((ROWS, COLUMNS), f32)
        for p in op.tile_range(k, step=64):
            acc += a[i:i+ROWS, p:p+64] @ b[p:p+64, j:j+COLUMNS]
        out[i:i+ROWS, j:j+COLUMNS] = BEHIND
    return out
"""
BEHIND = {
    "acc": lambda p, bias: p,
    "acc + bias[j:j+COLUMNS][None, :]": lambda p, bias: p + bias,
    "op.causal(acc, row=i, column=j)": lambda p, bias: np.where(np.tri(*p.shape), p, -np.inf),
    "max(acc, 0.0) - bias[j:j+COLUMNS][None, :]": lambda p, bias: np.maximum(p, 0) - bias,
}


def product(seed: int) -> tuple[str, list[Any], Any]:
    r = Random(seed)
    m, n, k = r.choice([128, 200, 321]), r.choice([128, 192, 200]), r.choice([64, 128, 104])
    name = r.choice(list(NAMES))
    rows, columns = r.choice([32, 64]), r.choice([32, 64])
    behind = r.choice(list(BEHIND))
    text = PRODUCT.replace("BEHIND", behind).replace("T[", f"{name}[")
    text = text.replace("ROWS", str(rows)).replace("COLUMNS", str(columns))
    g = np.random.default_rng(seed)
    a, b = (g.integers(-3, 4, s).astype(NAMES[name]) for s in ((m, k), (k, n)))
    bias = g.integers(-9, 9, n).astype(np.float32)
    want = BEHIND[behind](a.astype(float) @ b.astype(float), bias)
    return text, [a, b, bias], want


def run(text: str, given: list[Any], target: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(loaded(text, target).kernel(*given)).astype(float)


def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles are taken together whenever that has room, whatever it costs."""
    prices = iter(range(10**6, 0, -1))
    monkeypatch.setattr(tile_coarsening, "_price", lambda facts, machine: next(prices))
    monkeypatch.setattr(tile_coarsening, "WIDER_WORTH", 1.0)


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "sm_80", GPU])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(2)
def test_products(seed: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    text, given, want = product(seed)
    assert np.array_equal(run(text, given, target), want), text


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", GPU])
@pytest.mark.parametrize("seed", range(4, 40))
def test_more_products(seed: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    text, given, want = product(seed)
    assert np.array_equal(run(text, given, target), want), text


ATTENTION = """\
@op.kernel
def kernel(q: bf16[h, n, 64], k: bf16[h, m, 64], v: bf16[h, m, 64]) -> f32[h, n, 64]:
    out = op.empty((h, n, 64), f32)
    for y, i in op.tile_range(h, n, step=(1, 64)):
        top = op.full((64,), -inf, f32)
        total = op.zeros((64,), f32)
        acc = op.zeros((64, 64), f32)
        for j in op.tile_range(m, step=64):
            s = q[y, i:i+64, :] @ k[y, j:j+64, :].T
            new = max(top, op.max(s, axis=1))
            p = exp(s - new[:, None])
            shrink = exp(top - new)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p.to(bf16) @ v[y, j:j+64, :]
            top = new
        out[y, i:i+64, :] = acc / total[:, None]
    return out
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_90a", GPU])
@pytest.mark.parametrize("n", [128, 200])
def test_rows_are_the_same_bits(n: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows do not meet, whatever is reduced along the others."""
    g = np.random.default_rng(0)
    q, k, v = (g.standard_normal((1, x, 64)).astype(ml_dtypes.bfloat16) for x in (n, 160, 160))
    with monkeypatch.context() as one:
        one.setattr(tile_coarsening, "WIDER_WORTH", 0.0)
        alone = run(ATTENTION, [q, k, v], target)
    always(monkeypatch)
    assert np.array_equal(run(ATTENTION, [q, k, v], target), alone)


def shapes(text: str, sizes: str, arch: str = "sm_90a") -> list[tuple[int, ...]]:
    made = from_source(text, sizes, arch)
    return [o.result.tile_type.sizes for p in made.launches
            for o in p.schedule.operations[0].walk() if o.name.endswith(".dot")]  # fmt: skip


SMALL = PRODUCT.replace("ROWS", "64").replace("COLUMNS", "64").replace("T[", "bf16[")
ALONE = SMALL.replace("BEHIND", "acc")
LARGE = "a: bf16[4096, 4096], b: bf16[4096, 4096], bias: f32[4096]"


def test_large_products() -> None:
    """Cubes of 64 wait for the cache."""
    ((rows, columns),) = shapes(ALONE, LARGE)
    assert rows * columns >= 128 * 128


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_lanes_have_more_sums(arch: str) -> None:
    """Those of 64 x 64 wait for their factors."""
    found = shapes(ALONE.replace("bf16[", "f32["), LARGE.replace("bf16", "f32"), arch)
    assert all(rows * columns >= 128 * 128 for rows, columns in found)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_few_tiles_are_left_apart(arch: str) -> None:
    few = "a: bf16[256, 4096], b: bf16[4096, 256], bias: f32[256]"
    assert shapes(ALONE, few, arch) == [(64, 64)]


@pytest.mark.parametrize(("what", "instead"), [
    ("acc", "acc + op.sum(acc, axis=0)[None, :]"),
    ("acc", "acc + op.cumsum(acc, axis=0)"),
    ("acc", "acc + f32(i)"),
    ("for p in op.tile_range(k, step=64)", "for p in range(0, min(i + 64, k), 64)"),
    ("a[i:i+64, p:p+64]", "a[64:128, p:p+64]"),
])  # fmt: skip
def test_what_looks_across_tiles(what: str, instead: str) -> None:
    """Sums along the axis, numbers of tiles and other beginnings keep rows apart."""
    if what == "acc":
        text = SMALL.replace("BEHIND", instead)
    else:
        text = ALONE.replace(what, instead)
    assert all(rows == 64 for rows, _ in shapes(text, LARGE)), text


def test_a_directive_says_the_schedule() -> None:
    text = ALONE.replace("    for i, j", "    schedule.pipeline_stages(2)\n    for i, j")
    assert shapes(text, LARGE) == [(64, 64)]


def test_it_is_said() -> None:
    said = [r for p in from_source(ALONE, LARGE).launches for r in p.remarks if r.code == "T0748"]
    assert any("neighbouring tiles are computed as one" in r.message for r in said)


COMPUTED = """\
@op.kernel
def kernel(a: f16[m, k], q: i8[k, n], p: i8[m, k]) -> f16[m, n]:
    out = op.empty((m, n), f16)
    for i, j in op.tile_range(m, n, step=(64, 128)):
        acc = op.zeros((64, 128), f32)
        for l in op.tile_range(k, step=DEPTH):
            w = q[l:l+DEPTH, j:j+128]
            PRODUCTS
        out[i:i+64, j:j+128] = acc.to(f16)
    return out
"""
FACTORS = {
    "one": ["a[i:i+64, l:l+DEPTH] @ w.to(f16)"],
    "two": ["a[i:i+64, l:l+DEPTH] @ (w >> 4).to(f16)", "a[i:i+64, l:l+DEPTH] @ (w & 15).to(f16)"],
    "three": [f"a[i:i+64, l:l+DEPTH] @ (w >> {x}).to(f16)" for x in (2, 4, 6)],
    "both": ["(p[i:i+64, l:l+DEPTH] >> 4).to(f16) @ w.to(f16)"],
}


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("what", FACTORS)
@pytest.mark.sample
def test_rings_stay_rings(what: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken together wherever that has room, tiles that a loop brings have two places where
    they had them alone: lanes write computed factors to two buffers."""
    lines = "\n            ".join(f"acc += {x}" for x in FACTORS[what])
    text = COMPUTED.replace("PRODUCTS", lines).replace("DEPTH", str(depth))

    def fewest() -> int:
        made = from_source(text, "a: f16[4096, 4096], q: i8[4096, 4096], p: i8[4096, 4096]")
        loads = [o for x in made.launches for o in x.schedule.walk()
                 if o.attributes.get("stage") == "shared"]  # fmt: skip
        return min((o.integer("stages", 1) for o in loads), default=0)

    with monkeypatch.context() as one:
        one.setattr(tile_coarsening, "WIDER_WORTH", 0.0)
        alone = fewest()
    always(monkeypatch)
    assert fewest() >= min(alone, 2)
