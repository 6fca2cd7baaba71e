"""Fused functions and their gradients on a device, beside NumPy in float64; the same functions on
the CPU where the test is slow."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.ir.core import Operation
from tests.on_device import call
from tests.unit.graph import cascades, reference

TEXT = cascades.TEXT + cascades.RANGES + cascades.STORED
NAMES: list[str] = re.findall(r"def (\w+)", TEXT)
_NEAR = {"f64": 1e-9, "f32": 1e-2}
"""Of the largest element; products of f32 may be those of tf32."""
Target = Literal["cpu", "cuda"]


def _inputs(function: Operation, count: int, dtype: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    made: list[Any] = []
    for value in function.regions[0].arguments[:count]:
        shape = value.tensor_type.shape
        if value.tensor_type.dtype.is_float:
            made.append(rng.uniform(-1.0, 1.0, shape).astype(dtype))
        else:
            made.append(rng.integers(0, cascades.SIZES["t"], shape))
    return made


def _check(found: Any, wanted: list[Any], near: float) -> None:
    several: Any = found if isinstance(found, tuple) else (found,)
    for a, b in zip(several, wanted, strict=True):
        limit = near * max(1e-30, float(np.abs(b).max()))
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=0.0, atol=limit)


def _check_fused(name: str, dtype: str, target: Target) -> None:
    function = cascades.graph_of(name, "f64", with_gradient=False)
    kind = np.float64 if dtype == "f64" else np.float32
    inputs = _inputs(function, len(function.regions[0].arguments), kind)
    fused = tessera.fused(getattr(tessera.compile(TEXT, target=target), name))
    _check(call(fused, inputs, target), reference.run(function, inputs), _NEAR[dtype])


def _check_gradient(name: str, target: Target) -> None:
    """By the arrays of floats, of random cotangents (the rows of a softmax have none of ones)."""
    function = cascades.graph_of(name, "f64", with_gradient=True)
    names = function.strings("parameters")
    forward = cascades.graph_of(name, "f64", with_gradient=False).regions[0]
    inputs = _inputs(function, len(forward.arguments), np.float64)
    rng = np.random.default_rng(5)
    results = [v.tensor_type.shape for v in forward.terminator.operands]
    seeds = [rng.uniform(0.5, 1.5, shape) if shape else np.ones(shape) for shape in results]
    wrt = tuple(n for n, x in zip(names, inputs, strict=False) if x.dtype.kind == "f")
    if len(seeds) > 1 and target == "cuda":
        pytest.skip("cotangents of several results are no arguments beside device arrays")
    given: Any = seeds[0] if len(seeds) == 1 else tuple(seeds)
    own = getattr(tessera.compile(TEXT, target=target), name)
    gradient = tessera.grad(own, wrt=wrt)
    if seeds[0].ndim or len(seeds) > 1:
        found = call(gradient, inputs, target, cotangent=given)
    else:
        found = call(gradient, inputs, target)
    wanted = reference.run(function, [*inputs, *seeds])
    _check(found, wanted[len(seeds) :], _NEAR["f64"])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", NAMES)
def test_fused_functions_on_a_device(name: str, dtype: str) -> None:
    _check_fused(name, dtype, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_gradients_on_a_device(name: str) -> None:
    _check_gradient(name, "cuda")


@pytest.mark.parametrize("name", NAMES[::6])
@pytest.mark.slow
def test_the_same_on_the_cpu(name: str) -> None:
    _check_fused(name, "f32", "cpu")
    _check_gradient(name, "cpu")
