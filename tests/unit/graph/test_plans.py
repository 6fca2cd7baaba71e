"""Which kernels a plan has where loops need results of each other, and what it says of them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tessera_lang.lower.graph_to_kernels.clusters import computed_by
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tests.unit.graph import by_numpy, cascades, reference

NAMES: list[str] = re.findall(r"def (\w+)", cascades.STORED)
REASONS = {
    "other_axis": "it goes along another axis",
    "several_axes": "it goes along several axes",
    "scan": "`cumsum` is no reduction that a loop carries on",
    "product": "`prod` is no reduction that a loop carries on",
    "nested": "a factor of it is a product itself",
    "cosine": "what follows it needs other results of the same loop",
}
PRODUCTS = {"read_again": 1, "switched": 2, "normalised": 2, "cosine": 2}
"""Products that kernels compute, in all: of scores and of what they weigh."""


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_plans_give_what_operators_give(name: str) -> None:
    rng = np.random.default_rng(0)
    sizes = {n: int(rng.integers(2, 150)) for n in ("s", "t", "d", "e")}
    function = cascades.graph_of(name, "f64", with_gradient=False, sizes=sizes)
    inputs = [rng.uniform(-1.0, 1.0, v.tensor_type.shape) for v in function.regions[0].arguments]
    wanted = reference.run(function, inputs)
    for a, b in zip(by_numpy.run(function, inputs), wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10 * max(1e-30, float(np.abs(b).max())))


@pytest.mark.parametrize("name", REASONS)
def test_reasons(name: str) -> None:
    function = cascades.graph_of(name, "f32", with_gradient=False)
    found = [r.why for r in plan_of(function, ()).refusals]
    assert any(why.startswith(REASONS[name]) for why in found), found
    assert len(set(found)) == len(found) or name == "other_axis"


@pytest.mark.parametrize("name", ["of_projections", "of_averages"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_factors_of_scores_are_in_memory_and_scores_are_not(name: str, dtype: str) -> None:
    """A product that is larger than what its factors are made of: these have kernels before the
    loop."""
    function = cascades.graph_of(
        name, dtype, with_gradient=False, sizes={**cascades.SIZES, "s": 300, "t": 400}
    )
    given = [v.tensor_type.shape for k in plan_of(function, ()).kernels for v in k.results]
    assert (300, 400) not in given and (400, 300) not in given


@pytest.mark.parametrize("name", PRODUCTS)
def test_no_product_is_computed_twice(name: str) -> None:
    """But for scores where storing them takes longer."""
    function = cascades.graph_of(name, "f32", with_gradient=False)
    kernels = plan_of(function, ()).kernels
    made = [o for k in kernels for o in computed_by(function, k) if o.name == "graph.matmul"]
    assert len(made) == PRODUCTS[name]
