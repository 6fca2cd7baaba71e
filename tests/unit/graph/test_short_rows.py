"""Kernels of short rows that a product computes fit into a group of every target."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import tessera_lang as tessera
from tessera_lang.driver.commands.emit import command
from tessera_lang.driver.function_graphs import graph_program, plain_functions
from tessera_lang.driver.session import Session
from tessera_lang.ir.core import Value
from tessera_lang.lower.graph_to_kernels.fusion import plan_of
from tests.on_device import call
from tests.unit.graph import cascades
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded

TEXT = """
def f(x, y): return op.softmax(x @ y.T, axis=1)
def g(x, y):
    p = x @ y.T
    return (p - op.mean(p, axis=1)[:, None]) / (op.std(p, axis=1)[:, None] + 1.0)
"""
DTYPES = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16}


def _softmax(p: Any) -> Any:
    e = np.exp(p - p.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _norm(p: Any) -> Any:
    return (p - p.mean(axis=1)[:, None]) / (p.std(axis=1)[:, None] + 1.0)


@pytest.mark.parametrize("target", ["cpu", "sm_90a", "sm_80", GPU])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 2, 3, 8, 16, 17, 64, 130])
@pytest.mark.sample(2)
def test_values(columns: int, dtype: str, target: str) -> None:
    m: Any = loaded(TEXT, target)
    rng = np.random.default_rng(columns)
    for rows in (2, 70, 600):
        x = rng.standard_normal((rows, 4)).astype(DTYPES[dtype])
        y = rng.standard_normal((columns, 4)).astype(DTYPES[dtype])
        p = x.astype(np.float64) @ y.astype(np.float64).T
        for name, wanted in (("f", _softmax(p)), ("g", _norm(p))):
            with warnings.catch_warnings():
                # Tiles that do not fit would be said to be on a slow path, or be refused; three
                # tiles of f64 do not fit into the smaller memory of sm_80.
                told = "ignore" if target == "sm_80" else "error"
                warnings.simplefilter(told, tessera.TesseraWarning)
                found = call(tessera.fused(getattr(m, name)), (x, y), target)
            exact = 1e-12 if dtype == "f64" else 1e-5 if dtype == "f32" else 3e-2
            np.testing.assert_allclose(np.asarray(found, np.float64), wanted, exact, exact)


MANY = """
def f(x, a):
    t = x * op.atan2(x, a * a + 0.5)
    u = t + 0.125
    return op.softmax(op.floor(u) + u * 0.5, axis=1), op.acos(op.sin(t) * 0.875)
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("length", [2, 3, 17, 100])
@pytest.mark.sample(1)
def test_many_operators_of_short_rows_fit(length: int, dtype: str, arch: str) -> None:
    signature = f"x: {dtype}[17, {length}], a: {dtype}[]"
    session = Session(overlay={"a.tessera": MANY})
    (function,) = plain_functions(session, "a.tessera")
    (graph,) = graph_program(session, "a.tessera", function, signature).operations
    for k in plan_of(cascades.prepared(graph), ()).kernels:
        assert isinstance(k.arguments[0], Value)
        given = ", ".join(
            f"x{i}: {v.tensor_type.dtype}[{', '.join(map(str, v.tensor_type.shape))}]"
            for i, v in enumerate(k.arguments) if isinstance(v, Value)
        )  # fmt: skip
        done = CliRunner().invoke(
            command, ["-", "--stage=ptx", f"--arch={arch}", "--signature", given], input=k.source
        )
        assert done.exit_code == 0, done.output
