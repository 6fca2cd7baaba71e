"""Values that cannot be computed where they are used: they are stored into an array of the call.

Scans in larger expressions, values that are moved or looked up in, and stores of what needs other
elements of the same array. NumPy in f64 is what is compared with.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests import on_device
from tests.cases.test_scratch_arrays import TARGETS, module_for

Array = np.ndarray[Any, np.dtype[Any]]
Values = dict[str, Array]

# What is scanned, and what is done with it: every pair is a program.
SCANS: dict[str, tuple[str, Callable[[Values], Array]]] = {
    "first": ("op.cumsum(a, axis=0)", lambda v: np.cumsum(v["a"], 0)),
    "last": ("op.cumsum(a * 2.0, axis=1)", lambda v: np.cumsum(v["a"] * 2, 1)),
    "back": (
        "op.cumsum(a, axis=1, reverse=True)",
        lambda v: np.cumsum(v["a"][:, ::-1], 1)[:, ::-1],
    ),
    "product": ("op.cumprod(a + 0.5, axis=0)", lambda v: np.cumprod(v["a"] + 0.5, 0)),
    "of_rows": (
        "op.cumsum(op.softmax(a, axis=1), axis=0)",
        lambda v: np.cumsum(softmax(v["a"]), 0),
    ),
    "of_scan": (
        "op.cumsum(op.cumsum(a, axis=0), axis=1)",
        lambda v: np.cumsum(np.cumsum(v["a"], 0), 1),
    ),
}
USES: dict[str, tuple[str, Callable[[Array, Values], Array]]] = {
    "concat": (
        "return op.concat((op.zeros((2, 7), f32), {s}[:, :7]), axis=0)",
        lambda s, v: np.concatenate((np.zeros((2, 7)), s[:, :7])),
    ),
    "rows": ("return {s}[1:, :] - {s}[:-1, :]", lambda s, v: s[1:] - s[:-1]),
    "named": (
        "c = {s}\nreturn c[:, 2:] + c[:, :-2] * c[:, 1:-1]",
        lambda s, v: s[:, 2:] + s[:, :-2] * s[:, 1:-1],
    ),
    "flip": ("return op.flip({s}, 1) - {s}[::-1, :]", lambda s, v: s[:, ::-1] - s[::-1]),
    "roll": ("return op.roll({s}, 1, axis=0) + a", lambda s, v: np.roll(s, 1, 0) + v["a"]),
    "scan": ("return op.cumsum({s}, axis=1)", lambda s, v: np.cumsum(s, 1)),
    "scans": (
        "c = {s}\nreturn op.cumsum(c, axis=0) + op.cumsum(c, axis=1)",
        lambda s, v: np.cumsum(s, 0) + np.cumsum(s, 1),
    ),
    "sums": ("return op.sum({s}, axis=1)[:, None] + a", lambda s, v: s.sum(1)[:, None] + v["a"]),
    "number": (
        "t = op.sum(op.cumsum({s}, axis=0), axis=1)\nu = op.max(t)\nreturn a * u",
        lambda s, v: v["a"] * np.cumsum(s, 0).sum(1).max(),
    ),
    "sorted": ("return op.sort({s}, axis=0)", lambda s, v: np.sort(s, 0)),
    "outer": (
        "return {s}[:, :, None] - {s}[:, None, :]",
        lambda s, v: s[:, :, None] - s[:, None, :],
    ),
    "last": ("c = {s}\nreturn c / c[-1, :][None, :]", lambda s, v: s / s[-1:]),
    "product": ("return {s} @ a.T", lambda s, v: s @ v["a"].T),
    "take": (
        "return op.take({s}, op.array([0, 2, 1]), axis=1)",
        lambda s, v: s[:, [0, 2, 1]],
    ),
    "window": ("return op.window({s}, (-1, 2), (4, 4), fill=3.0)", lambda s, v: windowed(s)),
    "where": (
        "c = {s}\nreturn op.where(c > op.roll(c, 2, axis=1), c, -a)",
        lambda s, v: np.where(s > np.roll(s, 2, 1), s, -v["a"]),
    ),
    "stored": (
        "t = op.zeros((m, n), f32)\nt[1:, :] = {s}[:-1, :]\nreturn t + a",
        lambda s, v: np.concatenate((0 * s[:1], s[:-1])) + v["a"],
    ),
}


def softmax(a: Array) -> Array:
    e = np.exp(a - a.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def windowed(s: Array) -> Array:
    wide = np.pad(s, ((1, 8), (0, 8)), constant_values=3.0)
    return wide[0:4, 2:6]


PAIRS = list(itertools.product(SCANS, USES))


def source(scan: str, use: str) -> str:
    lines = USES[use][0].format(s=SCANS[scan][0]).splitlines()
    body = "".join(f"    {line}\n" for line in lines)
    return f"@op.kernel\ndef {scan}_{use}(a: f32[m, n]):\n{body}\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.sample(1)
def test_scans_in_expressions(scan: str, target: str, whole: bool) -> None:
    """Each scan with each use; if not ``whole``, each use with one scan on the CPU."""
    at = list(SCANS).index(scan)
    if whole:
        uses = list(USES) if target == "cpu" else list(USES)[at % 3 :: 3]
    else:
        uses = list(USES)[at :: len(SCANS) if target == "cpu" else 9]
    module = module_for(target, "\n".join(source(scan, use) for use in uses))
    for shape in ((5, 9), (70, 33)) if target in ("cpu", "cuda") else ((5, 9),):
        values = {"a": np.random.default_rng(3).uniform(0, 1, shape).astype(np.float32)}
        wide = {k: v.astype(np.float64) for k, v in values.items()}
        for use in uses:
            right = USES[use][1](SCANS[scan][1](wide), wide)
            given = tuple(values.values())
            found = np.asarray(on_device.call(getattr(module, f"{scan}_{use}"), given, target))
            assert found.shape == right.shape, use
            scale = np.abs(right).max() or 1.0
            assert np.abs(found - right).max() <= 1e-4 * scale, (scan, use, shape)


# --- stores of what needs other elements ---------------------------------------------------------

OWN: dict[str, tuple[str, Callable[[Array], None]]] = {
    "shifted": ("x[1:, :] = x[1:, :] + x[:-1, :]", lambda x: np.copyto(x[1:], x[1:] + x[:-1])),
    "turned": ("x[:] = x[::-1, :]", lambda x: np.copyto(x, x[::-1].copy())),
    "rolled": (
        "x[:] = x + 0.25 * (op.roll(x, 1, axis=0) - 2.0 * x + op.roll(x, -1, axis=0))",
        lambda x: np.copyto(x, x + 0.25 * (np.roll(x, 1, 0) - 2 * x + np.roll(x, -1, 0))),
    ),
    "summed": ("x[1:, :] += x[:-1, :]", lambda x: np.add(x[1:], x[:-1].copy(), out=x[1:])),
    "scaled": (
        "x[:, 1:] *= x[:, :-1]",
        lambda x: np.multiply(x[:, 1:], x[:, :-1].copy(), out=x[:, 1:]),
    ),
    "scanned": (
        "x[:] = op.cumsum(x, axis=1)[:, ::-1]",
        lambda x: np.copyto(x, np.cumsum(x, 1)[:, ::-1]),
    ),
    "normal": ("x[:] = x / op.sum(x)", lambda x: np.copyto(x, x / x.sum())),
    "columns": ("x[:] = x - op.mean(x, axis=0)[None, :]", lambda x: np.copyto(x, x - x.mean(0))),
    "product": ("x[:] = (x @ x.T) @ x", lambda x: np.copyto(x, (x @ x.T) @ x)),
    "rows": (
        "x[at, :] = x[0:3, :] * 2.0 + x[2:5, :]",
        lambda x: x.__setitem__([4, 0, 2], x[:3] * 2 + x[2:5]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(1)
def test_a_store_reads_what_was_there_before(target: str) -> None:
    text = "\n".join(
        f"@op.kernel\ndef {name}(x: mut f32[m, n], at: i32[3]):\n    {line}\n"
        for name, (line, _) in OWN.items()
    )
    module, at = module_for(target, text), np.array([4, 0, 2], np.int32)
    for shape in ((9, 12), (70, 300)) if target in ("cpu", "cuda") else ((9, 12),):
        for name, (_, by_numpy) in OWN.items():
            x = np.random.default_rng(1).uniform(0.5, 1, shape).astype(np.float32)
            right = x.astype(np.float64)
            by_numpy(right)
            on_device.call(getattr(module, name), (x, at), target)
            assert np.abs(x - right).max() <= 1e-4 * np.abs(right).max(), (name, shape)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.sample(1)
def test_such_stores_in_loops_run_in_order(target: str) -> None:
    """Every store of the table, several times, and a scan in parts of each iteration. (``+=`` in a
    loop is one sum over its iterations.)"""
    text = "\n".join(
        f"@op.kernel\ndef {name}(x: mut f32[m, n], at: i32[3]):\n"
        f"    for t in range(3):\n        {line}\n"
        for name, (line, _) in OWN.items()
        if line.partition("=")[0][-1] == " "
    )
    text += (
        "@op.kernel\ndef scans(x: mut f32[m, n], at: i32[3]):\n"
        "    for i in range(2):\n        c = op.cumsum(x, axis=0)\n"
        "        x[:] = op.flip(c, 0) - op.cumsum(c, axis=1) * 0.5\n"
    )
    module, at = module_for(target, text), np.array([4, 0, 2], np.int32)
    names = [name for name, (line, _) in OWN.items() if line.partition("=")[0][-1] == " "]
    for name in (*names[:: 1 if target in ("cpu", "cuda") else 3], "scans"):
        x = np.random.default_rng(1).uniform(0.5, 1, (9, 12)).astype(np.float32)
        right = x.astype(np.float64)
        for _ in range(2 if name == "scans" else 3):
            if name == "scans":
                c = np.cumsum(right, 0)
                right = c[::-1] - np.cumsum(c, 1) * 0.5
            else:
                OWN[name][1](right)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            on_device.call(getattr(module, name), (x, at), target)
        assert np.abs(x - right).max() <= 1e-4 * np.abs(right).max(), name


# --- what stays refused ---------------------------------------------------------------------------


def refusal(body: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.compile(f"@op.kernel\ndef k(x: mut f32[m, n], c: i32):\n{lines}", target="cpu")
    return str(caught.value)


def test_iterations_that_may_run_at_once_share_no_array() -> None:
    text = refusal("for i in op.tile_range(m, step=1):\n    x[:] = x.T + f32(i)")
    assert "T0701" in text and "store the result into another array" in text


def test_an_array_that_was_written_since() -> None:
    """Iterations that may run at once have no array for what each of them keeps."""
    loop = "for i in op.tile_range(m, step=1):\n    {}\n    x[i, :] = 0.0\n    y[i, :] = v[i, :]"
    head = "y = op.empty((m, n), f32)\n{}"
    text = refusal(head.format(loop.format("v = x + 1.0")) + "\nreturn y")
    assert "T0702" in text and "used here" in text
    assert "use the value in front of the write" in text
    works = "v = x + 1.0\n" + head.format(loop.format("pass")) + "\nreturn y"
    lines = "".join(f"    {line}\n" for line in works.splitlines())
    source = f"@op.kernel\ndef k(x: mut f32[m, n]) -> f32[m, n]:\n{lines}"
    x = np.ones((3, 4), np.float32)
    assert (tessera.compile(source, target="cpu").k(x) == 2.0).all() and not x.any()
