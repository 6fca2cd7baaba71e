"""What the host program takes of Python and NumPy: indices below 0, rows that are stored by their
places, lists that grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

M = np.arange(12.0).reshape(4, 3)
C = np.arange(8.0).cumsum()


def _both(body: str, given: Any, k: int) -> None:
    """A function means in the host program what it means in Python with NumPy."""
    text = "def f(x, k):\n" + "".join(f"    {line}\n" for line in body.split("; "))
    assert Session(overlay={"h.tessera": text}).check("h.tessera") == ()
    names: dict[str, Any] = {"np": np}
    exec(text.replace("op.", "np."), names)
    x, wanted_x = given.copy(), given.copy()
    found = np.asarray(tessera.compile(text, target="cpu").f(x, k))
    wanted = np.asarray(names["f"](wanted_x, k))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted)
    np.testing.assert_allclose(x, wanted_x)


@pytest.mark.parametrize("k", [-9, -8, -3, -1, 0, 1, 3, 7, 8, 9])
@pytest.mark.parametrize("part", ["k:", ":k", "-k:", ":-k", "k:-1", "k-8:k", "::2", "-k:k"])
def test_bounds_of_slices(part: str, k: int) -> None:
    _both(f"return x[{part}]", C, k)


@pytest.mark.parametrize("body", [
    "return x[k]", "x[k] = 99.0; return x[k - 2]", "x[k:] += 1.0; return x[:k]",
    "x[-3:k] = x[k:-1] * 2.0; return x", "a = [1, 2, 3, 4]; return a[k] + a[k - 1]",
    "return x[-k:] - x[:k]",
])  # fmt: skip
def test_elements_from_the_end(body: str) -> None:
    _both(body, C, -2)


def test_an_index_outside_is_refused() -> None:
    f = tessera.compile("def f(x, k):\n    return x[k]\n", target="cpu").f
    for k in (-9, 8):
        with pytest.raises(tessera.TesseraError, match="T0807"):
            f(C, k)


@pytest.mark.parametrize("body", [
    "x[[0, k]] = x[[k, 0]]; return x", "x[op.array([3, k, 1])] = x[1:4] * 2.0; return x",
    "x[[k, k, k]] = x[:3] * 2.0; return x", "x[:, [k, 0]] = x[:, [0, k]]; return x",
    "x[[0, k], [k, 1]] = 5.0; return x", "x[[0, k]] += 100.0; return x",
    "x[1:3, [k]] = 7.0; return x", "x[k, [0, 2]] = x[0, [2, 0]]; return x",
    "x[op.argsort(x[:, k])] = x[::-1] * 1.0; return x",
])  # fmt: skip
def test_rows_are_stored_by_their_places(body: str) -> None:
    _both(body, M, 2)


@pytest.mark.parametrize(("body", "code"), [
    ("x[[0, 4]] = 1.0", "T0807"), ("x[[-9]] = 1.0", "T0843"), ("x[:, [3]] = 1.0", "T0807"),
    ("x[[0, 1]] = x[:3]", "T0834"), ("x[op.array([0.5])] = 1.0", "T0807"),
])  # fmt: skip
def test_places_outside_are_refused(body: str, code: str) -> None:
    f = tessera.compile(f"def f(x):\n    {body}\n", target="cpu").f
    with pytest.raises(tessera.TesseraError, match=code):
        f(M.copy())


@pytest.mark.parametrize("body", [
    "a = []; a.append(k); a.append(3); return a",
    "a = [k]; b = a; b.append(4); return a", "a = [k]; b = a; a += [4, 5]; a += a; return b",
    "a = []; [a.append(i * k) for i in range(4)]; return op.array(a)",
    "a = [1]; a.extend([2, 3]); a.extend(range(k)); return len(a)",
    "a = {1: []}; a[1].append(k); return a[1]",
    "a = []; g = lambda e: a.append(e); g(1); g(k); return a",
])  # fmt: skip
def test_lists_grow(body: str) -> None:
    _both(body, M, 2)


def test_a_check_does_not_guess_how_far_a_list_grows() -> None:
    text = """def add(a, v):
    a.append(v)

def f(x, n: i32):
    a = []
    for i in range(n):
        if op.sum(x) > 3.0:
            a.append(i)
    b = [0]
    if op.sum(x) > 1.0:
        add(b, 2)
    return a[2], b[1], op.array(b) + op.array([1, 2])
x = op.ones((4,))
print(f(x, 3))
while op.sum(x) < 3.0:
    x[0] += 1.0
"""
    assert Session(overlay={"h.tessera": text}).check("h.tessera") == ()


def test_what_lists_have_is_said() -> None:
    f = tessera.compile("def f():\n    a = [1]\n    a.pop()\n", target="cpu").f
    with pytest.raises(tessera.TesseraError, match="it has `append` and `extend`"):
        f()
