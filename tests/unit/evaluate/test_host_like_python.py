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


@pytest.mark.parametrize("body", [
    "a = [3, 1, k, 1]; b = a; b.reverse(); return a",
    "a = [3, 1, k, 1]; b = a.copy(); b.append(k); b.reverse(); return a + b",
    "a = [3, 1, k, 1]; a.insert(k, 9); a.insert(-1, 8); a.insert(99, 7); return a",
    "a = [3, 1, k, 1]; b = a.pop(); c = a.pop(0); return a + [b, c, a.pop(-k)] + a",
    "a = [3, 1, k, 1]; b = a; a.sort(); return b + [a.index(k), a.count(1), a.count(7)]",
    "a = [3, 1, k, 1]; a.sort(key=lambda v: -v); b = a[:]; b.sort(reverse=True); return a + b",
    "a = [3, 1, k, 1]; b = a; a.remove(1); a.remove(k); a.clear(); a.extend([k]); return b",
    "a = [(1, 2), (k, 5)]; return [a.index((k, 5)), a.count((1, 2)), ['a', 'b'].index('b')]",
    "a = [x[0], x[1]]; a.insert(1, x[2]); b = a.pop(); a.reverse(); return op.array(a) - b",
    "a = [0]; b = []; [b.append(a.pop()) or a.insert(0, i) for i in range(4)]; return b + a",
    "a = [x[0, 0], x[1, 1]]; a.sort(reverse=True); return a.pop() + a.index(x[1, 1])",
])  # fmt: skip
def test_lists_change(body: str) -> None:
    _both(body, M, 2)


@pytest.mark.parametrize(("body", "code", "words"), [
    ("[].pop()", "T0807", "`pop` of an empty list"), ("[1].pop(1)", "T0807", "of a list of 1"),
    ("[1].index(2)", "T0807", "no item of the list equals 2"),
    ("[1].remove(k)", "T0807", "equals 4"),
    ("[1].sort(k)", "T0804", "by name alone"), ("[1].insert(1)", "T0804", "lacks `value`"),
    ("[1].pop(0.5)", "T0818", "is an integer, not a float"), ("[1].reverse(1)", "T0804", "takes 0"),
])  # fmt: skip
def test_what_a_list_does_not_have_is_refused_as_in_python(
    body: str, code: str, words: str
) -> None:
    f = tessera.compile(f"def f(k):\n    return {body}\n", target="cpu").f
    with pytest.raises(tessera.TesseraError, match=f"(?s){code}.*{words}"):
        f(4)


def test_a_check_does_not_guess_what_is_left_in_a_list() -> None:
    text = """def f(x, n: i32):
    a = [0, 1, 2]
    b = a
    for i in range(n):
        if op.sum(x) > 3.0:
            a.insert(0, i)
        else:
            a.reverse()
    while len(a) > 3 and a[-1] > 0: a.pop()
    c = [n, 1]
    c.sort()
    return b[4], c[0], a.index(n), op.array(b) + op.array([1, 2])
x = op.ones((4,))
print(f(x, 3))
"""
    assert Session(overlay={"h.tessera": text}).check("h.tessera") == ()


def test_lists_that_change_in_graphs() -> None:
    text = """def f(x):
    a = []
    for i in range(5):
        a.append(x[i] * (i + 1.0))
        if i % 2: a.reverse()
    first = a.pop(0)
    a.insert(1, op.sum(x))
    return op.sum(op.array(a) * op.array([1.0, 2.0, 3.0, 4.0, 5.0])) * first
"""
    module = tessera.compile(text, target="cpu")
    x = np.linspace(0.5, 1.5, 5)
    g = tessera.grad(module.f)(x)
    for i in range(5):
        step = np.eye(5)[i] * 1e-6
        near = (module.f(x + step) - module.f(x - step)) / 2e-6
        np.testing.assert_allclose(g[i], near, rtol=1e-5)


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
    f = tessera.compile("def f():\n    a = [1]\n    a.popleft()\n", target="cpu").f
    with pytest.raises(tessera.TesseraError, match="it has `append`, `clear`, `copy`"):
        f()


@pytest.mark.parametrize(
    "line",
    [
        "a.append(a)", "a.append([a])", "a.insert(0, (1, a))", "a.extend([a])", "a += [a]",
        "a[0] = a", "b = [a]; a.append(b)", 'd = {}; d["k"] = [d]', 'd = {"a": a}; a[0] = d',
    ],
)  # fmt: skip
def test_nothing_is_an_item_of_itself(line: str) -> None:
    m = tessera.compile(f"def f():\n    a = [1]\n    {line}\n    return a\n", target="cpu")
    with pytest.raises(tessera.TesseraError, match=r"T0818[\s\S]*an item of itself"):
        m.f()


@pytest.mark.parametrize("items", ['[1, "a"]', "[x, x + 1]", "[(1,), 2]", "[None, 1]"])
def test_what_has_no_order_is_told_at_the_sort(items: str) -> None:
    text = f"def f(x):\n    a = {items}\n    a.sort()\n    return a\n"
    with pytest.raises(tessera.TesseraError, match=r"T08\d\d[\s\S]*a\.sort\(\)"):
        tessera.compile(text, target="cpu").f(np.ones(2))
