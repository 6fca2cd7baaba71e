"""Whole values that a loop changes: element by element, from other elements, and from each other.

All loops are what NumPy gives, on both targets, as code of a GPU on the CPU and in checked mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.cli import run as tesserac
from tests import on_device
from tests.cases.test_scratch_arrays import TARGETS, module_for

Array = np.ndarray[Any, np.dtype[Any]]


def laplacian(u: Array) -> Array:
    moved = [np.roll(u, by, axis) for axis in (0, 1) for by in (1, -1)]
    return np.asarray(sum(moved) - 4 * u)


def heat(u: Array, w: Array, k: int) -> Array:
    for _ in range(k):
        u = u + 0.1 * laplacian(u)
    return u


def wave(u: Array, w: Array, k: int) -> Array:
    v = w * 0.5
    for _ in range(k):
        u, v = 2 * u - v + 0.1 * laplacian(u), u
    return u + v


def until(u: Array, w: Array, k: int) -> Array:
    d = 1.0
    while d > 0.01:
        v = u + 0.125 * laplacian(u)
        d = float(np.abs(v - u).max())
        u = v
    return u


def power(u: Array, w: Array, k: int) -> Array:
    v = w.sum(1) / np.linalg.norm(w.sum(1))
    for _ in range(k):
        t = u @ (u.T @ v)
        v = t / np.linalg.norm(t)
    return np.asarray(v)


def swapped(u: Array, w: Array, k: int) -> Array:
    a, b = u, w
    for _ in range(k):
        a, b = b, a + b
    return a * 10 + b


def rotated(u: Array, w: Array, k: int) -> Array:
    a, b, c = u, w, u + w
    for _ in range(k):
        a, b, c = b, c, a
    return a + 10 * b + 100 * c


def nested(u: Array, w: Array, k: int) -> Array:
    for _ in range(2):
        old = u
        for j in range(k):
            u = np.roll(u, 1, 0) + j * w
        u = u * 0.5 + old
    return u


def branches(u: Array, w: Array, k: int) -> Array:
    for _ in range(k):
        u = u * 0.5 if u.sum() > 30 else np.roll(u, 1, 1) + w
    return u


def left(u: Array, w: Array, k: int) -> Array:
    for _ in range(20):
        if u.sum() > 400:
            break
        u = u * 1.5
    return u


def scans(u: Array, w: Array, k: int) -> Array:
    s = 0.0
    for _ in range(k):
        u = np.cumsum(u, 0)
        s += float(u.max())
        u = u / u.max()
    return u * s


def stored(u: Array, w: Array, k: int) -> Array:
    t = np.zeros_like(u)
    for _ in range(k):
        u = u + w
        t[1:] = t[:-1] + u[1:]
    return t


def counted(u: Array, w: Array, k: int) -> Array:
    n = np.zeros(u.shape, np.int32)
    z = u * 0
    for _ in range(k):
        z = z * z * 0.5 + u
        n = n + (z < 0.9)
    return n


LAP = (
    "op.roll({0}, 1, axis=0) + op.roll({0}, -1, axis=0) + op.roll({0}, 1, axis=1)"
    " + op.roll({0}, -1, axis=1) - 4.0 * {0}"
)
CASES: dict[str, tuple[str, Callable[[Array, Array, int], Array]]] = {
    "heat": (
        f"v = u\nfor t in range(k):\n    v = v + 0.1 * ({LAP.format('v')})\nreturn v", heat
    ),
    "wave": (
        f"a = u\nb = w * 0.5\nfor t in range(k):\n    old = a\n"
        f"    a = 2.0 * a - b + 0.1 * ({LAP.format('a')})\n    b = old\nreturn a + b", wave
    ),
    "until": (
        f"a = u\nd = 1.0\nwhile d > 0.01:\n    v = a + 0.125 * ({LAP.format('a')})\n"
        "    d = op.max(abs(v - a))\n    a = v\nreturn a", until
    ),
    "power": (
        "v = op.sum(w, axis=1)\nv = v / op.norm(v)\nfor t in range(k):\n    t2 = u @ (u.T @ v)\n"
        "    v = t2 / op.norm(t2)\nreturn v", power
    ),
    "swapped": (
        "a = u\nb = w\nfor t in range(k):\n    a, b = b, a + b\nreturn a * 10.0 + b", swapped
    ),
    "rotated": (
        "a = u\nb = w\nc = u + w\nfor t in range(k):\n    a, b, c = b, c, a\n"
        "return a + 10.0 * b + 100.0 * c", rotated
    ),
    "nested": (
        "a = u\nfor i in range(2):\n    old = a\n    for j in range(k):\n"
        "        a = op.roll(a, 1, axis=0) + f32(j) * w\n    a = a * 0.5 + old\nreturn a", nested
    ),
    "branches": (
        "a = u\nfor i in range(k):\n    if op.sum(a) > 30.0:\n        a = a * 0.5\n    else:\n"
        "        a = op.roll(a, 1, axis=1) + w\nreturn a", branches
    ),
    "left": (
        "a = u * 1.0\nfor i in range(20):\n    if op.sum(a) > 400.0: break\n    a = a * 1.5\n"
        "return a", left
    ),
    "scans": (
        "a = u\ns = 0.0\nfor i in range(k):\n    a = op.cumsum(a, axis=0)\n    s += op.max(a)\n"
        "    a = a / op.max(a)\nreturn a * s", scans
    ),
    "stored": (
        "a = u\nt = op.zeros((m, n), f32)\nfor i in range(k):\n    a = a + w\n"
        "    t[1:, :] = t[:-1, :] + a[1:, :]\nreturn t * 1.0", stored
    ),
    "counted": (
        "z = u * 0.0\nc = (u * 0.0).to(i32)\nfor i in range(k):\n    z = z * z * 0.5 + u\n"
        "    c = c + (z < 0.9).to(i32)\nreturn c", counted
    ),
}  # fmt: skip


def kernel(name: str, body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"@op.kernel\ndef {name}(u: f32[m, n], w: f32[m, n], k: i32):\n{lines}\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(1)
def test_loops_are_those_of_numpy(target: str, whole: bool) -> None:
    names = list(CASES) if whole and target in ("cpu", "cuda") else list(CASES)[::2]
    module = module_for(target, "".join(kernel(name, CASES[name][0]) for name in names))
    shapes = [(7, 9), (40, 140)] if target in ("cpu", "cuda") else [(7, 9)]
    for shape, k in [(shape, k) for shape in shapes for k in (0, 1, 4)]:
        numbers = np.random.default_rng(5)
        u, w = (numbers.uniform(0, 1, shape).astype(np.float32) for _ in range(2))
        for name in names:
            right = CASES[name][1](u.astype(np.float64), w.astype(np.float64), k)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such a loop runs in one group
                found = on_device.call(getattr(module, name), (u, w, k), target)
            scale = float(np.abs(right).max()) or 1.0
            assert np.abs(found - right).max() <= 1e-3 * scale, (name, shape, k)


def test_the_condition_of_a_while_is_carried() -> None:
    """Also where the body gives it a new value before it reads it, and nothing behind does."""
    text = """
@op.kernel
def k(x: f32[n], y: mut f32[n]):
    d = 1.0
    while d > 0.25:
        y[:] = y * 0.5
        d = op.max(y)
"""
    y = np.ones(5, np.float32)
    tessera.compile(text, target="cpu").k(y.copy(), y)
    assert y.tolist() == [0.25] * 5


def test_what_is_said_of_such_a_loop_names_the_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k.tessera"
    file.write_text(kernel("k", CASES["heat"][0]))
    signature = "u: f32[1000, 1000], w: f32[1000, 1000], k: i32"
    code = tesserac(["check", str(file), "--target", "cuda", "--signature", signature])
    assert code == 0
    said = capsys.readouterr()
    assert "`v` may be read and written in two of its iterations" in said.out + said.err


def test_of_what_the_sizes_change_is_refused() -> None:
    text = kernel("k", "a = u\nfor i in range(3):\n    a = a[1:, :]\nreturn op.sum(a)")
    with pytest.raises(tessera.TesseraError, match="whose sizes are not the same in each round"):
        tessera.compile(text, target="cpu")


def test_a_loop_over_tiles_says_what_to_write() -> None:
    body = "a = u\nfor i in op.tile_range(3, step=1):\n    a = a + w\nreturn a"
    with pytest.raises(tessera.TesseraError, match="or loop over `range`"):
        tessera.compile(kernel("k", body), target="cpu")
    works = kernel("k", body.replace("op.tile_range(3, step=1)", "range(3)"))
    u = np.ones((3, 4), np.float32)
    assert np.allclose(tessera.compile(works, target="cpu").k(u, u, 1), 4.0)
