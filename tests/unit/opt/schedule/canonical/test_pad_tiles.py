"""Tiles whose sizes no matrix unit takes: what they grow to, and what is told of it."""

from __future__ import annotations

import pytest

from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation, TileType
from tessera_lang.opt.schedule.decide import tile_coarsening
from tessera_lang.opt.schedule.query.kernel_facts import DOT, LOAD, facts_of
from tessera_lang.opt.schedule.query.tile_access import access_of
from tests.unit.opt.schedule.decided import from_source

PRODUCT = """
@op.kernel
def kernel(A: {dtype}[{left}], B: {dtype}[k, n]) -> f32[m, n]:
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=({m}, {n})):
        acc = op.zeros(({m}, {n}), f32)
        for p in op.tile_range(k, step={k}):
            acc += {a} @ B[p:p+{k}, j:j+{n}]
        out[i:i+{m}, j:j+{n}] = acc
    return out
"""
ROWS = "A[i:i+{m}, p:p+{k}]"
TURNED = "A[p:p+{k}, i:i+{m}].T"


def product(m: int, n: int, k: int, dtype: str = "bf16", turned: bool = False) -> str:
    a = (TURNED if turned else ROWS).format(m=m, k=k)
    left = "k, m" if turned else "m, k"
    return PRODUCT.format(m=m, n=n, k=k, dtype=dtype, a=a, left=left)


def named(made: ForMachine, name: str) -> list[Operation]:
    return [o for o in made.schedule.walk() if o.name == name]


def sizes(operation: Operation) -> tuple[int, ...]:
    t = operation.result.type
    assert isinstance(t, TileType)
    return t.sizes


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles are as the programs say, for once."""
    monkeypatch.setattr(tile_coarsening, "WIDER_WORTH", 0.0)


@pytest.mark.parametrize(
    ("tile", "arch", "accumulator"),
    [
        ((16, 16, 16), "sm_90a", (64, 16)),
        ((24, 40, 32), "sm_90a", (64, 48)),
        ((80, 24, 64), "sm_90a", (128, 32)),
        ((96, 96, 48), "sm_90a", (128, 96)),
        ((64, 64, 64), "sm_90a", (64, 64)),
        ((24, 20, 64), "sm_80", (32, 24)),
        ((1, 8, 64), "sm_80", (16, 8)),
    ],
)
def test_rows_and_columns(
    tile: tuple[int, int, int], arch: str, accumulator: tuple[int, int]
) -> None:
    made = from_source(product(*tile), "A: bf16[1024, 1024], B: bf16[1024, 1024]", arch)
    (dot,) = named(made, DOT)
    assert sizes(dot) == accumulator
    assert dot.attributes["unit"] == ("wgmma" if arch == "sm_90a" else "mma")


def test_loads_bring_what_lies_behind_rows() -> None:
    """So that the copy engine, which knows no extents, can bring them."""
    made = from_source(product(24, 40, 64), "A: bf16[1024, 1024], B: bf16[1024, 1024]")
    assert {o.attributes["copy"] for o in named(made, LOAD)} == {"tma"}
    assert made.schedule.operations[0].attributes["roles"] == (4, 4)


@pytest.mark.parametrize("turned", [False, True])
def test_loads_end_where_a_contraction_does(turned: bool) -> None:
    """Behind it zeros count: lanes bring them, no copy engine."""
    shapes = "A: bf16[1024, 1024], B: bf16[1024, 1024]"
    made = from_source(product(64, 64, 24, turned=turned), shapes)
    facts = facts_of(made.schedule.operations[0])
    (dot,) = facts.dots
    assert dot.shape == (64, 64, 32)
    assert "roles" in facts.kernel.attributes
    for load in facts.loads:
        axis = load.tile.sizes.index(32)
        extent = facts.definitions[access_of(load.operation).extents[axis]]
        assert 24 in [facts.constant(v) for v in extent.operands]
        assert load.operation.attributes["copy"] != "tma"


COMPUTED = """
@op.kernel
def kernel(A: bf16[m, d], B: bf16[k, d], C: bf16[k, e]) -> f32[m, e]:
    out = op.empty((m, e), f32)
    for i in op.tile_range(m, step=64):
        acc = op.zeros((64, e), f32)
        q = A[i:i+64, :]
        for p in op.tile_range(k, step=24):
            s = q @ B[p:p+24, :].T
            acc += exp(s) @ C[p:p+24, :]
        out[i:i+64, :] = acc
    return out
"""


def test_a_size_that_is_columns_and_contraction() -> None:
    """Both grow together: the second product masks what the first has too much."""
    made = from_source(COMPUTED, "A: bf16[1024, 64], B: bf16[1024, 64], C: bf16[1024, 64]")
    shapes = [d.shape for d in facts_of(made.schedule.operations[0]).dots]
    assert {s[1] for s in shapes} == {32, 64}
    assert {s[2] for s in shapes if s[1] == 64} == {32}
    assert {o.attributes["unit"] for o in named(made, DOT)} == {"wgmma"}


def test_what_has_no_room_stays() -> None:
    """Rows of 144 would be 192: the accumulators of three products do not fit."""
    source = """
@op.kernel
def kernel(A: bf16[m, k], B: bf16[k, n], C: bf16[k, n], D: bf16[k, n]) -> f32[m, n]:
    out = op.empty((m, n), f32)
    for i, j in op.tile_range(m, n, step=(144, 96)):
        x = op.zeros((144, 96), f32)
        y = op.zeros((144, 96), f32)
        z = op.zeros((144, 96), f32)
        for p in op.tile_range(k, step=64):
            x += A[i:i+144, p:p+64] @ B[p:p+64, j:j+96]
            y += A[i:i+144, p:p+64] @ C[p:p+64, j:j+96]
            z += A[i:i+144, p:p+64] @ D[p:p+64, j:j+96]
        out[i:i+144, j:j+96] = x * y * z
    return out
"""
    arrays = ", ".join(f"{name}: bf16[1024, 1024]" for name in "ABCD")
    made = from_source(source, arrays)
    assert {sizes(o)[0] for o in named(made, DOT)} == {144}
    assert any("no multiple of 64" in d.message for d in made.remarks)


def test_exact_products_keep_their_tiles() -> None:
    made = from_source(product(24, 20, 12, "f32"), "A: f32[1024, 1024], B: f32[1024, 1024]")
    (dot,) = named(made, DOT)
    assert sizes(dot) == (24, 20)
