"""Rows written as ``x[i, :]`` and as ``x[i:i+1, :]`` are the same rows: equal decisions, equal
results in the asynchronous model."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as model

from tessera_lang.driver.session import Session
from tessera_lang.driver.tile_compilation import ForMachine
from tessera_lang.ir.core import Operation
from tests.run.emitted import signature_of_a_launch
from tests.run.emitted_cases import TileCase

# `sum(a)` and `max(a)` are a number of a row, `weight` is an array of one axis, `[i]` is the row.
KERNELS = {
    "softmax": ("", """
        e = op.exp(row - max(row))
        out = e / sum(e)"""),
    "log_softmax": ("", """
        below = row - max(row)
        out = below - op.log(sum(op.exp(below)))"""),
    "masked_softmax": ("", """
        seen = op.where(place <= i, row, -inf)
        e = op.exp(seen - max(seen))
        out = e / sum(e)"""),
    "rmsnorm": ("w", """
        out = row * op.rsqrt(sum(row * row) / n.to(f32) + 1e-6) * weight_w"""),
    "two_weights": ("wv", """
        scaled = row * op.rsqrt(sum(row * row) / n.to(f32) + 1e-6)
        out = scaled * weight_w + scaled * scaled * weight_v"""),
    "layernorm": ("wv", """
        centred = row - sum(row) / n.to(f32)
        scale = op.rsqrt(sum(centred * centred) / n.to(f32) + 1e-5)
        out = centred * scale * weight_w + weight_v"""),
    "residual": ("wvr", """
        both = row + other
        centred = both - sum(both) / n.to(f32)
        scale = op.rsqrt(sum(centred * centred) / n.to(f32) + 1e-5)
        out = centred * scale * weight_w + weight_v"""),
    "scaled": ("s", "\n        out = row * factor / sum(op.abs(row))"),
}  # fmt: skip


def text_of(name: str, wide: bool) -> str:
    """The kernel with rows of two axes (``wide``) or of one."""
    more, body = KERNELS[name]
    shapes = {"w": "n", "v": "n", "r": "m, n", "s": "m"}
    given = "".join(f", {x}: bf16[{shapes[x]}]" for x in more)
    row = "i:i+1" if wide else "i"
    number, whole = (", axis=1)[:, None]", "[None, :]") if wide else (")", "")
    body = re.sub(r"\b(sum|max)(\((?:[^()]|\([^()]*\))*)\)", rf"op.\1\2{number}", body)
    body = re.sub(r"weight_(\w)", rf"\1[:].to(f32){whole}", body)
    body = body.replace("other", f"r[{row}, :].to(f32)").replace("place", f"op.arange(0, n){whole}")
    factor = "s[i:i+1].to(f32)[:, None]" if wide else "s[i].to(f32)"
    return (
        f"@op.kernel\ndef k(x: bf16[m, n]{given}, y: mut bf16[m, n]):\n"
        f"    for i in range(m):\n        row = x[{row}, :].to(f32)"
        f"{body.replace('factor', factor)}\n        y[{row}, :] = out.to(bf16)\n"
    )


def made(name: str, wide: bool, m: int, n: int, arch: str) -> ForMachine:
    sizes = {"w": f"{n}", "v": f"{n}", "r": f"{m}, {n}", "s": f"{m}"}
    given = "".join(f", {x}: bf16[{sizes[x]}]" for x in KERNELS[name][0])
    text = text_of(name, wide)
    case = TileCase("", "k", f"x: bf16[{m}, {n}]{given}, y: bf16[{m}, {n}]", text=text)
    session = Session(overlay={"rows.tessera": text})
    signature = signature_of_a_launch(session, "rows.tessera", case, arch)
    return session.for_machine("rows.tessera", "k", signature, session.machine("cuda", arch))


def decisions(found: ForMachine) -> Any:
    """What is decided about the kernel and about each access, and the tiles there are."""
    (kernel,) = found.schedule.operations

    def said(o: Operation) -> Any:
        told = {k: v for k, v in o.attributes.items() if k != "site"}
        return o.name, told, [v.type for v in o.results]

    accesses = [said(o) for o in kernel.walk() if o.name.endswith((".load", ".store", ".reduce"))]
    return kernel.attributes, accesses, found.lowered is not None and found.lowered[1].cluster


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("n", "arch"),
    [(129, "sm_90a"), (4095, "sm_120"), (8192, "sm_80"), (32768, "sm_90a"), (131072, "sm_90a")],
)
@pytest.mark.parametrize("name", KERNELS)
def test_both_ways_are_decided_alike(name: str, n: int, arch: str) -> None:
    one, two = (decisions(made(name, wide, 1024, n, arch)) for wide in (False, True))
    assert one == two


@pytest.mark.sample(2)
@pytest.mark.parametrize("n", [129, 40000])
@pytest.mark.parametrize("name", KERNELS)
def test_both_ways_compute_the_same(name: str, n: int) -> None:
    import ml_dtypes

    m, random = 3, np.random.default_rng(7)
    shapes = {"w": (n,), "v": (n,), "r": (m, n), "s": (m,)}
    arrays = [random.standard_normal(shape).astype(ml_dtypes.bfloat16)
              for shape in ((m, n), *(shapes[x] for x in KERNELS[name][0]))]  # fmt: skip
    results: list[Any] = []
    for wide in (False, True):
        found = made(name, wide, m, n, "sm_90a").lowered
        assert found is not None
        y = np.full((m, n), np.nan, ml_dtypes.bfloat16)
        model.launch(*found, *arrays, y)
        results.append(y.astype(np.float32))
    assert not np.isnan(results[0]).any()
    np.testing.assert_array_equal(*results)
