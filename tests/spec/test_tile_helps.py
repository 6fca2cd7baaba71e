"""What a tile kernel is told about results, loops in order and dtypes: followed literally, the
program is right."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tessera_lang as tessera
from tests.spec.test_fixes import found_in

X = np.arange(20, dtype=np.float32).reshape(4, 5)
RETURNS = ["", " -> (f32[m, 3], index[m, 3])"]


@pytest.mark.parametrize("returns", RETURNS)
@pytest.mark.parametrize("call", ["op.topk(x, 3, axis=1)", "op.topk(x, 3, largest=False)"])
def test_a_call_that_gives_several_values(call: str, returns: str) -> None:
    source = f"@op.kernel\ndef k(x: f32[m, n]){returns}:\n    return {call}\n"
    wrong = f"{source}\n\nv, p = k(op.zeros((4, 5), dtype=f32))\n"
    help = next(h for d in found_in(wrong) if d.severity == "error" for h in d.helps)
    given, returned = re.findall(r"`([^`]*)`", help)
    right = source.replace(f"return {call}", f"{given}\n    {returned}")
    values, _ = tessera.compile(right, target="cpu").k(X)
    ordered = np.sort(X, axis=1)
    wanted = ordered[:, :3] if "False" in call else ordered[:, ::-1][:, :3]
    np.testing.assert_array_equal(np.asarray(values), wanted)


@pytest.mark.parametrize("step", [1, 2])
def test_a_result_that_is_not_returned(step: int) -> None:
    source = f"""@op.kernel
def k(x: f32[m, n]):
    y = op.zeros((m, n), f32)
    for i in op.tile_range(m, step={step}):
        y[i:i+{step}, :] = x[i:i+{step}, :] * 2.0
"""
    (d,) = found_in(source)
    assert d.code == "T0615"
    assert "not returned" in d.message
    (line,) = re.findall(r"`(return \w+)`", d.helps[0])
    right = f"{source}    {line}\n"
    assert not found_in(right)
    np.testing.assert_array_equal(np.asarray(tessera.compile(right, target="cpu").k(X)), X * 2)


@pytest.mark.parametrize("value", ["out[:] + x[i, :]", "x[i, :] + out[:]"])
def test_a_sum_that_runs_in_order(value: str) -> None:
    """`independent=` is refused here (T0606), and is not offered."""
    source = f"""@op.kernel
def k(x: f32[m, n], out: mut f32[n]):
    for i in op.tile_range(m, step=1):
        out[:] = {value}
"""
    (d,) = (d for d in found_in(source) if d.code == "T0706")
    assert "independent" not in str(d.helps)
    (form,) = re.findall(r"`(out\[\.\.\.\] \+= \.\.\.)`", d.helps[0])
    assert form
    right = source.replace(f"out[:] = {value}", "out[:] += x[i, :]")
    assert not found_in(right)
    out = np.zeros(5, np.float32)
    tessera.compile(right, target="cpu").k(X, out)
    np.testing.assert_array_equal(out, X.sum(0))


@pytest.mark.parametrize("declared", ["f16", "f32", "f64", "i8", "i32", "i64", "u8", "u32", "bool"])
def test_an_array_of_another_dtype(declared: str) -> None:
    source = f"@op.kernel\ndef k(x: {declared}[n], out: mut {declared}[n]):\n    out[:] = x\n"
    kernel = tessera.compile(source, target="cpu").k
    x = np.arange(4, dtype=np.int16)
    with pytest.raises(tessera.TesseraError, match="T0832") as error:
        kernel(x, x.copy())
    conversions = dict(re.findall(r"`(\w+)\.astype\(np\.(\w+)\)`", str(error.value)))
    assert set(conversions) == {"x", "out"}
    out = np.zeros_like(x).astype(getattr(np, conversions["out"]))
    kernel(x.astype(getattr(np, conversions["x"])), out)
    np.testing.assert_array_equal(out, x.astype(out.dtype))


@pytest.mark.parametrize(
    ("shapes", "body", "places"),
    [
        ("x: f32[m, n], w: f32[m]", "x * w[None, :]", ["axis 0 of `w`", "axis 1 of `x`"]),
        ("x: f32[m, n], w: f32[n]", "x * w[:, None]", ["axis 0 of `w`", "axis 0 of `x`"]),
    ],
)
def test_sizes_that_disagree_name_both_arrays(shapes: str, body: str, places: list[str]) -> None:
    source = f"@op.kernel\ndef k({shapes}) -> f32[m, n]:\n    return {body}\n"
    w = np.ones(4 if "w: f32[m]" in shapes else 5, np.float32)
    with pytest.raises(tessera.TesseraError, match="T0838") as error:
        tessera.compile(source, target="cpu").k(X, w)
    call = f"\n\ny = k(op.zeros((4, 5), dtype=f32), op.zeros(({len(w)},), dtype=f32))\n"
    (d,) = found_in(source + call)
    for said in (str(error.value), " ".join(d.notes)):
        assert all(place in said for place in places)


def test_a_grid_that_the_call_says_otherwise() -> None:
    source = """@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def g(x: f32[n], out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n: out[i] = x[i]
"""
    g = tessera.compile(source, target="cpu").g
    x, out = X[0].copy(), np.zeros(5, np.float32)
    with pytest.raises(tessera.TesseraError, match="T0834") as error:
        g[3](x, out)
    assert ":2:" in str(error.value)
    assert "`g(...)`" in str(error.value)
    g(x, out)
    np.testing.assert_array_equal(out, x)
