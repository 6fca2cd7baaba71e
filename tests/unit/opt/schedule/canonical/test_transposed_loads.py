"""Products of lanes whose factors lie the other way: from copies along which lanes read vectors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

WAYS = {"a @ b": (0, 0), "a.T @ b": (1, 0), "a @ b.T": (0, 1), "a.T @ b.T": (1, 1)}
PRODUCT = """\
@op.kernel
def kernel(a: f32[am, ak], b: f32[bk, bn]):
    SAID
    return BODY
"""


def text_of(way: str, said: str = "schedule.tile((128, 256, 16))", behind: str = "") -> str:
    return PRODUCT.replace("SAID", said).replace("BODY", way + behind)


def given(way: str, m: int, n: int, k: int) -> list[Any]:
    g, (left, right) = np.random.default_rng(m), WAYS[way]
    a, b = (g.integers(-4, 5, s).astype(np.float32) for s in ((m, k), (k, n)))
    return [np.ascontiguousarray(x.T) if t else x for x, t in ((a, left), (b, right))]


@pytest.mark.parametrize("target", ["sm_90a", GPU])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes", [(256, 512, 48), (300, 260, 36)])
@pytest.mark.sample(2)
def test_products(way: str, sizes: tuple[int, int, int], target: str) -> None:
    arrays = given(way, *sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = loaded(text_of(way), target).kernel(*arrays)
    a, b = (x.T if t else x for x, t in zip(arrays, WAYS[way], strict=True))
    assert np.array_equal(np.asarray(got), a @ b)


def shapes(way: str, m: int, n: int, k: int) -> str:
    a, b = ((y, x) if t else (x, y) for (x, y), t in zip(((m, k), (k, n)), WAYS[way], strict=True))
    return f"a: f32[{a[0]}, {a[1]}], b: f32[{b[0]}, {b[1]}]"


@pytest.mark.parametrize("way", WAYS)
def test_large_products_have_roles(way: str) -> None:
    """Whichever way they lie; what lies as lanes read it is not copied."""
    made = from_source(text_of(way, "pass"), shapes(way, 4096, 4096, 4096))
    kernel = made.schedule.operations[0]
    assert "roles" in kernel.attributes
    loads = [o for o in kernel.walk() if o.name.endswith(".load")]
    assert [o.attributes["copy"] for o in loads] == ["tma", "tma"]
    assert sum("repack" in o.attributes for o in loads) == sum(WAYS[way])
    said = [r.message for r in made.remarks if "lanes read vectors along it" in r.message]
    assert len(said) == sum(WAYS[way])


def test_both_uses_of_an_array() -> None:
    """A tile that is a factor as it lies, too, is not turned."""
    text = text_of("a @ a.T", "pass").replace(", b: f32[bk, bn]", "")
    kernel = from_source(text, "a: f32[4096, 4096]").schedule.operations[0]
    assert "roles" in kernel.attributes


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_few_reads_are_not_copied(arch: str) -> None:
    """Of few rows each element of the second factor is read once."""
    kernel = from_source(text_of("a @ b.T", "pass"), shapes("a @ b.T", 64, 4096, 4096), arch)
    loads = [o for o in kernel.schedule.operations[0].walk() if o.name.endswith(".load")]
    assert not any("repack" in o.attributes for o in loads)


def test_a_directive_against_roles() -> None:
    way = "a.T @ b.T"
    text = text_of(way, "schedule.warp_specialize(False)")
    loads = [o for o in from_source(text, shapes(way, 4096, 4096, 4096)).schedule.operations[0]
             .walk() if o.name.endswith(".load")]  # fmt: skip
    assert not any("repack" in o.attributes for o in loads)
