"""NumPy's functions at their edges: NaN, ends, integers, wrong lengths, words without effect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import GPU

HEADS = {"host": "", "kernel": "@op.kernel\n"}
W = np.array([-1, 0, 1, 2, 4], np.float32)
V = np.array([1, -2, 3, 0.5, 2], np.float32)
ODD = np.array([1, np.nan, np.inf, -np.inf, -0.0], np.float32)
WHOLE = np.arange(4, dtype=np.int32)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
VALUES: dict[str, tuple[str, Any, Any, Any]] = {
    "at the last knot": ("op.interp(v, op.array([0.0, 1.0]), op.array([0.1, 1e-9]))", V, W,
                         np.interp(V, [0, 1], [0.1, 1e-9])),
    "a knot that stands twice": ("op.interp(v, op.array([0.0, 1, 1]), op.array([1.0, 2, 3]))",
                                 V, W, np.interp(V, [0, 1, 1], [1, 2, 3])),
    "beside an infinity": ("op.interp(v, op.array([0.0, 1.0, 2.0]), op.array([1.0, inf, 3.0]))",
                           np.array([0, 2, np.nan], np.float32), W, [1, 3, np.nan]),
    "nan behind all": ("op.searchsorted(w, v)", ODD, W, np.searchsorted(W, ODD)),
    "nan behind all, right": ('op.searchsorted(a=w, v=v, side="right")', ODD, W,
                              np.searchsorted(W, ODD, side="right")),
    "integers": ("op.searchsorted(w, v)", WHOLE, WHOLE, np.searchsorted(WHOLE, WHOLE)),
    "bins that fall": ("op.digitize(v, w)", V, W[::-1].copy(), np.digitize(V, W[::-1])),
    "bins by name": ("op.digitize(v, bins=w, right=True)", V, W, np.digitize(V, W, right=True)),
    "rows in bins": ("op.digitize(v, w)", ROWS, W, np.digitize(ROWS, W)),
    "lists by name": ("op.average([1.0, 2.0], weights=[3.0, 1.0]) + v", V, W, 1.25 + V),
    "x by name": ("op.sum(x=v, where=w > 0)", V, W, V[W > 0].sum()),
    "nan_to_num of integers": ("op.nan_to_num(v)", WHOLE, W, WHOLE),
    "nanmax of integers": ("op.nanmax(v)", WHOLE, W, 3),
    "nanmin of integers": ("op.nanmin(v)", WHOLE, W, 0),
    "isposinf of integers": ("op.isposinf(v)", WHOLE, W, np.zeros(4, bool)),
    "isneginf": ("op.isneginf(v)", ODD, W, np.isneginf(ODD)),
    "cross of rows": ("op.cross(v, w)", ROWS, ROWS[::-1].copy(), np.cross(ROWS, ROWS[::-1])),
}  # fmt: skip
REFUSED = {
    "op.cross(v, w)": "", "op.pad(v, 1, mode='edge', constant_values=3)": "says nothing",
}  # fmt: skip
CALLED = """
def fill(x, out=None):
    if out is not None: out[:] = x * 2.0
    return x

def f(v):
    y = op.zeros((5,))
    {call}
    return y
"""


@pytest.mark.parametrize("target", ["cpu", GPU])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.sample(3)
def test_values(name: str, head: str, target: str) -> None:
    call, v, w, want = VALUES[name]
    text = f"{HEADS[head]}def f(v, w):\n    return {call}\n"
    found = tessera.compile(text, target=target).f(v, w)
    np.testing.assert_allclose(np.asarray(found), want, 1e-6)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("call", REFUSED)
def test_what_numpy_refuses(call: str, head: str) -> None:
    text = f"{HEADS[head]}def f(v, w):\n    return {call}\n"
    with pytest.raises(tessera.TesseraError, match=REFUSED[call]) as caught:
        tessera.compile(text, target="cpu").f(V, W)
    assert not any(d.code.startswith("T09") for d in caught.value.diagnostics)


@pytest.mark.parametrize(("call", "want"), [
    ("fill(v, out=y)", V * 2), ("op.exp(v, out=y)", np.exp(V)), ("op.add(v, 1.0, out=y)", V + 1),
])  # fmt: skip
def test_out_is_the_parameter_of_who_has_one(call: str, want: Any) -> None:
    m: Any = tessera.compile(CALLED.format(call=call), target="cpu")
    np.testing.assert_allclose(m.f(V), want, 1e-6)


def test_out_of_a_reduction_is_refused() -> None:
    with pytest.raises(tessera.TesseraError, match="no parameter `out`"):
        tessera.compile(CALLED.format(call="op.sum(v, out=y)"), target="cpu").f(V)


def test_out_of_a_kernel_of_another_file(tmp_path: Any) -> None:
    (tmp_path / "lib.tessera").write_text(
        "@op.kernel\ndef scale(x: f32[n], out: mut f32[n]):\n    out[:] = x * 2.0\n"
    )
    main = tmp_path / "main.tessera"
    main.write_text("import lib\ndef f(v, w):\n    lib.scale(v, out=w)\n    return w\n")
    found = tessera.load(str(main), target="cpu").f(V.copy(), W.copy())
    np.testing.assert_array_equal(found, V * 2)
