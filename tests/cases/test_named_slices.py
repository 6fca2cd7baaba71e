"""A slice that has a name is a value, in a kernel as in the host program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.numpy_style import TARGETS

M = np.arange(1, 13, dtype=np.float32).reshape(3, 4)

BODIES = (
    "r = M[0, :]\nM[0, :] = 7.0\nreturn r * 1.0",
    "r = M[0]\nq = r\nM[0, 1] = 7.0\nreturn q + r",
    "M[0], M[1] = M[1], M[0]\nreturn M * 1.0",
    "M[0, :], M[2, :] = M[2, :], M[0, :]\nreturn M * 1.0",
    "M[:, 0], M[:, 1] = M[:, 1], M[:, 0]\nreturn M * 1.0",
    "a, b = M[0, :], M[1, :]\nM[0, :] = b\nM[1, :] = a\nreturn M * 1.0",
    "for i in range(2):\n    t = M[i, :]\n    M[i, :] = M[2, :]\n    M[2, :] = t\nreturn M * 1.0",
    "for i in range(len(M)):\n    M[i] /= op.sum(M[i])\nreturn M * 1.0",
    "r = M[0, :].copy()\nr[0] = 9.0\nM[0, 1] = 5.0\nreturn r * 1.0",
    "r = M[0, :]\nr = r + 1.0\nr += 1.0\nreturn r",
)  # fmt: skip
REFUSED = {
    "r = M[0, :]\nr += 1.0\nreturn r": "`M[0, :] += ...`",
    "r = M[0]\nr *= 2.0\nreturn r": "`M[0] *= ...`",
    "r = M[:, 1:]\nr -= 1.0\nreturn r": "`M[:, 1:] -= ...`",
    "for row in M:\n    row /= op.sum(row)\nreturn M * 1.0": "range(len(M)):` and `M[i] /= ...`",
    "r = M[0, :]\nr[0] = 9.0\nreturn r * 1.0": "r = M[0, :].copy()",
    "for row in M:\n    row[0] = 9.0\nreturn M * 1.0": ".copy()",
}


def _run(kernel: bool, body: str, target: Any) -> tuple[Any, Any]:
    """What the function gives, and its array afterwards."""
    head = "@op.kernel\n" if kernel else ""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    given = M.copy()
    result = tessera.compile(f"{head}def f(M):\n{lines}", target=target).f(given)
    return np.asarray(result), given


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.sample(5)
def test_the_same_in_a_kernel_and_in_the_host_program(body: str, target: Any) -> None:
    names: dict[str, Any] = {"op": np}
    mine = M.copy()
    lines = "".join(f"    {line}\n" for line in _as_values(body).split("\n"))
    exec(f"def f(M):\n{lines}", names)
    want: Any = np.asarray(names["f"](mine))
    for kernel in (True, False):
        result, given = _run(kernel, body, target)
        np.testing.assert_allclose(result, want, 1e-6)
        np.testing.assert_allclose(given, mine, 1e-6)


def _as_values(body: str) -> str:
    """The body for NumPy: each slice on the right is copied."""
    made: list[str] = []
    for line in body.split("\n"):
        left, sign, right = line.partition(" = ")
        parts = [p if not p.endswith("]") else f"{p}.copy()" for p in _items(right)]
        made.append(f"{left}{sign}{', '.join(parts)}")
    return "\n".join(made)


def _items(text: str) -> list[str]:
    """What commas outside of brackets separate."""
    found, depth = [""], 0
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [item.strip() for item in found]


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("body", REFUSED)
def test_what_would_change_the_array_in_numpy_is_refused(body: str, kernel: bool) -> None:
    with pytest.raises(tessera.TesseraError, match="T0609" if kernel else "T0818") as caught:
        _run(kernel, body, "cpu")
    assert REFUSED[body] in str(caught.value)


HOST = {
    "l = [M[0, :], M[1, :]]\nM[0, :] = 7.0\nreturn l[0] * 1.0": M[0],
    "l = [M[i] for i in range(2)]\nM[1, :] = 7.0\nreturn l[1] * 1.0": M[1],
    "l = [row for row in M]\nM[1, :] = 7.0\nreturn l[1] * 1.0": M[1],
    "l = []\nl.append(M[1])\nl.extend([M[2]])\nM[:, :] = 7.0\nreturn l[0] + 0.0": M[1],
    "l = []\nl += [M[1]]\nM[:, :] = 7.0\nreturn l[0] * 1.0": M[1],
    "d = {1: M[1]}\nM[1, :] = 7.0\nreturn d[1] * 1.0": M[1],
    "l = [0.0]\nl[0] = M[1]\nM[1, :] = 7.0\nreturn l[0] * 1.0": M[1],
    "r = g(M)\nM[1, :] = 7.0\nreturn r": M[1],
    "r = M[1]\nreturn r[1:]": M[1, 1:],
    "r = M[1:, 1]\nM[:, 1] = 7.0\nreturn r * 1.0": M[1:, 1],  # T0702 in a kernel
    "N = M[:]\nM[0, 0] = 7.0\nreturn N * 1.0": M,
}


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sm_90a"])
@pytest.mark.parametrize("body", HOST)
def test_what_only_the_host_program_names(body: str, target: Any) -> None:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    text = f"def g(M):\n    return M[1]\n\ndef f(M):\n{lines}"
    result = np.asarray(tessera.compile(text, target=target).f(M.copy()))
    np.testing.assert_array_equal(result, HOST[body])
    assert result.flags.writeable


def test_a_slice_without_a_name_is_a_part_of_its_array() -> None:
    text = "def g(r):\n    r[0] = 9.0\n\ndef f(M):\n    g(M[1])\n"
    given = M.copy()
    tessera.compile(text, target="cpu").f(given)
    assert given[1, 0] == 9


def test_a_kernel_does_not_write_into_the_value_of_a_slice() -> None:
    text = "@op.kernel\ndef k(y):\n    y[:] = 1.0\n\ndef f(M):\n    r = M[0, :]\n    k(r)\n"
    with pytest.raises(tessera.TesseraError, match="T0835"):
        tessera.compile(text, target="cpu").f(M.copy())
