"""Operators as tile kernels, against their reference: the source column of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.ir.core import Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.opt.graph.decompose import decompose
from tests.unit.graph import on_cpu, reference
from tests.unit.graph.samples import sample_of

_RTOL = {"exact": 0.0, "rounded": 1e-15, "few ulp": 1e-12, "sum": 1e-13}


@pytest.mark.parametrize("name", sorted(OPERATORS))
@pytest.mark.sample(3)
def test_kernels_are_the_reference(name: str) -> None:
    row = OPERATORS[name]
    for seed in range(2):
        rng = np.random.default_rng([*name.encode(), seed])
        operands, attributes = sample_of(row, rng)
        builder = GraphBuilder(OPERATORS)
        parameters = [Value(t, f"x{i}") for i, (_, t) in enumerate(operands)]
        function = builder.function(
            "f", parameters, [builder.op(row.name, *parameters, **attributes)]
        )
        if callable(row.source):  # what has a kernel of its own may need others before it
            function = decompose(function)
        inputs: list[Any] = [v for v, _ in operands]
        (found,) = on_cpu.run(function, inputs)
        (wanted,) = reference.run(function, inputs)
        assert found.shape == wanted.shape
        result = function.regions[0].terminator.operands[0].tensor_type
        assert found.dtype.itemsize * 8 == max(8, result.dtype.bits)
        scale = _RTOL[row.tolerance]
        np.testing.assert_allclose(found, wanted, rtol=scale, atol=scale)
