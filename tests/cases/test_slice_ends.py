"""Slices that may stop below 0: from the end, refused, or looked at by the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS, agree, results_of

C = np.arange(1, 21, dtype=np.float32)
M = np.arange(60, dtype=np.float32).reshape(3, 20)
Y = np.zeros(20, np.float32)

FROM_THE_END = (
    "s = 0.0\nfor k in range(1, 4):\n    s += op.sum(c[:-k])\nreturn s",
    "s = 0.0\nfor k in range(1, 30):\n    s += op.sum(c[-k:])\nreturn s",
    "s = 0.0\nfor k in range(1, 9):\n    s += op.sum(c[k:] * c[:-k])\nreturn s",
    "s = 0.0\nfor k in range(2, 9):\n    s += op.sum(c[-k:-1])\nreturn s",
    "s = 0.0\nfor k in range(1, 9):\n    s += op.sum(m[1:, :-k])\nreturn s",
    "s = 0.0\nfor k in range(1, 9):\n    s += op.sum(c[2:-k:3])\nreturn s",
    "for k in range(3, 5):\n    y[:-k] = c[k:] + k\nreturn y",
    "for k in range(3, 5):\n    y[-k:] = c[:k] + k\nreturn y",
    "r = op.zeros(8, f32)\nfor k in range(1, 8):\n    r[k] = op.sum(c[:-k])\nreturn r",
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", FROM_THE_END)
@pytest.mark.sample(5)
def test_certainly_below_0_counts_from_the_end(body: str, target: str) -> None:
    given = {"c": C, "m": M, "y": Y}
    names: dict[str, Any] = {"op": np, "f32": np.float32}
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    exec(f"def f(c, m, y):\n{lines}", names)
    want = names["f"](*(value.copy() for value in given.values()))
    agree(results_of(body, given, target), want if np.ndim(want) else np.float32(want))


REFUSED = {
    "def f(c, w: i32):\n    return op.sum(c[:-w])": ":c.shape[0] - w",
    "def f(c, y, w: i32):\n    y[:-w] = 0.0": ":y.shape[0] - w",
    "def f(m, w: i32):\n    return op.sum(m[:, 2:-w])": ":m.shape[1] - w",
    "def f(c, w: i32):\n    return op.sum(c[-(w + 1):])": "max(c.shape[0] - (w+1), 0):",
    "def f(c, y):\n    for k in range(4):\n        y[k] = op.sum(c[:-k])": ":c.shape[0] - k",
    "def f(c, y):\n    for k in range(4):\n        y[k] = op.sum(c[:k - 2])": "max(k-2, 0)",
}


@pytest.mark.parametrize("text", REFUSED)
def test_perhaps_below_0_is_refused(text: str) -> None:
    given = {"c": C, "m": M, "y": Y, "w": 3}
    with pytest.raises(Exception, match="T0605") as caught:
        results_of(text, given, "cpu")
    assert REFUSED[text] in str(caught.value)


@pytest.mark.parametrize("store", [False, True])
def test_a_bound_of_an_array_has_the_name_that_was_given(store: bool) -> None:
    """The number is known to the run only; a place that is stored into is no window."""
    use = "y[w:] = 0.0" if store else "y[0] = op.sum(c[w:])"
    text = f"def f(c, y, k):\n    for i in range(3):\n        w = k[i] * 2 - 1\n        {use}"
    with pytest.raises(Exception, match="T0605") as caught:
        results_of(text, {"c": C, "y": Y, "k": np.arange(3, dtype=np.int32)}, "cpu")
    said = str(caught.value)
    assert "`w` is not proved" in said and "@" not in said and "`max(w, 0)`" in said
    assert ("op.window" in said) != store


TAKEN = {
    "def f(c, w: i32):\n    return op.sum(c[:c.shape[0] - w])": C[:-3].sum(),
    "def f(c, w: i32):\n    return op.sum(c[max(c.shape[0] - w, 0):])": C[-3:].sum(),
    "def f(c, w: i32):\n    return op.sum(c[:w])": C[:3].sum(),
    "def f(c, w: i32):\n    return op.sum(c[1:w + 2])": C[1:5].sum(),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", TAKEN)
def test_the_forms_of_the_help(text: str, target: str) -> None:
    agree(results_of(text, {"c": C, "w": 3}, target), TAKEN[text])


LOOKED_AT = (
    "def f(c, w: i32):\n    return op.sum(c[:w])",
    "def f(y, w: i32):\n    y[:w] = 1.0",
    "def f(c, w: i32):\n    t = c * 2.0\n    return op.sum(t[1:w])",
    "def f(y, w: i32):\n    for i in range(2):\n        y[i:w + i] = 1.0",
)


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize("text", LOOKED_AT)
def test_the_run_looks_at_a_number(text: str, target: str) -> None:
    with pytest.raises(Exception, match="T0845"):
        results_of(text, {"c": C, "y": Y, "w": -3}, target)


HOST = ("c[:-w]", "c[-w:]", "c[w:] - c[:-w]", "m[:, 1:-w]", "c[:-(w + 1)]", "c[-w:-1]")


@pytest.mark.parametrize("w", [0, 1, 3, 7])
@pytest.mark.parametrize("text", HOST)
def test_a_minus_in_the_host_program_is_what_it_is_in_numpy(text: str, w: int) -> None:
    if w == 0 and " - c" in text:
        return  # of unequal sizes
    module = tessera.compile(f"def f(c, m, w):\n    return {text}\n", target="cpu")
    agree(module.f(C, M, w), eval(text, {"c": C, "m": M, "w": w}))


def test_another_number_below_0_in_the_host_program_counts_from_the_end_too() -> None:
    module = tessera.compile("def f(c, w):\n    return c[:w]\n", target="cpu")
    agree(module.f(C, -3), C[:-3])
