"""Short rows of which a group takes several: as one row an iteration has them, at any count of
rows, whole and masked, with operands that all rows share; what is no such row stays as it is."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

import tessera_lang as tessera
from tests.unit.lower.ast_to_schedule.test_early_exits import loaded
from tests.unit.opt.schedule.decided import from_source

Array = np.ndarray[Any, np.dtype[Any]]

HEAD = "@op.kernel\ndef kernel({}):\n    for i in op.tile_range(m, step=1):\n"
ROWS = {
    "softmax": (
        "x: f32[m, n], y: mut f32[m, n]",
        "        y[i, :] = op.softmax(x[i, :])\n",
    ),
    "norm": (
        "x: f32[m, n], g: f32[n], y: mut f32[m, n]",
        "        v = x[i, :]\n"
        "        d = v - op.mean(v)\n"
        "        y[i, :] = d * op.rsqrt(op.mean(d * d) + 1e-5) * g[:]\n",
    ),
    "numbers": (
        "x: f32[m, n], y: mut f32[m], z: mut f32[m]",
        "        v = x[i, :]\n        y[i] = op.sum(v)\n        z[i] = op.max(v) - op.min(v)\n",
    ),
    "scaled": (
        "x: f32[m, n], s: f32[m], y: mut f32[m, n]",
        "        v = x[i, :]\n        y[i, :] = v / (op.sum(abs(v)) + 1.0) + op.max(v)\n",
    ),
}
OTHERS = {
    "the number of the row": (
        "x: f32[m, n], y: mut f32[m, n]",
        "        v = x[i, :]\n        y[i, :] = v * op.sum(v) + f32(i)\n",
    ),
    "another row": (
        "x: f32[m, n], y: mut f32[m, n]",
        "        y[i, :] = x[i, :] * op.sum(x[max(i - 1, 0), :])\n",
    ),
    "columns": (
        "x: f32[m, n], y: mut f32[n, m]",
        "        v = x[i, :]\n        y[:, i] = v * op.sum(v)\n",
    ),
    "a loop": (
        "x: f32[m, n], y: mut f32[m, n]",
        "        v = x[i, :]\n        for k in range(3):\n            v = v / op.sum(v)\n"
        "        y[i, :] = v\n",
    ),
    "a place": (
        "x: f32[m, n], y: mut i64[m]",
        "        y[i] = op.argmax(x[i, :]).to(i64)\n",
    ),
}


def arrays(head: str, m: int, n: int) -> list[Array]:
    rng = np.random.default_rng(m * n)
    found: list[Array] = []
    for p in head.split("], "):
        shape = tuple({"m": m, "n": n}[c] for c in p.split("[")[1].rstrip("]").split(", "))
        dtype = np.int64 if "i64" in p else np.float32
        drawn = rng.integers(-4, 5, shape)
        found.append(drawn.astype(dtype) if "mut" not in p else np.zeros(shape, dtype))
    return found


def decided(head: str, body: str, m: int, n: int) -> Any:
    sizes = {"m": str(m), "n": str(n)}
    shapes = head
    for name, size in sizes.items():
        shapes = shapes.replace(f"[{name}", f"[{size}").replace(f" {name}]", f" {size}]")
    return from_source(HEAD.format(head) + body, shapes)


def rows_of(made: Any) -> int:
    kernel = made.schedule.operations[0]
    loads = [o.result.tile_type.sizes for o in kernel.walk() if o.name.endswith("schedule.load")]
    return max(s[0] if len(s) == 2 else 1 for s in loads)


def compare(head: str, body: str, made: Any, m: int, n: int) -> None:
    ours, theirs = arrays(head, m, n), arrays(head, m, n)
    assert made.lowered is not None
    machine.launch(*made.lowered, *ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tessera.compile(HEAD.format(head) + body, target="cpu").kernel(*theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("large", "n"), [(65536, 128), (100001, 256), (65536, 512), (50000, 200)])
@pytest.mark.sample(2)
def test_rows(name: str, large: int, n: int) -> None:
    head, body = ROWS[name]
    made = decided(head, body, large, n)
    rows = rows_of(made)
    assert rows >= 4
    for m in (rows, 3 * rows) if large % 2 == 0 else (1, rows - 1, rows, 2 * rows + 3):
        compare(head, body, made, m, n)


@pytest.mark.parametrize("name", OTHERS)
def test_other_iterations(name: str) -> None:
    head, body = OTHERS[name]
    made = decided(head, body, 65536, 256)
    assert rows_of(made) == 1
    compare(head, body, made, 5, 256)


@pytest.mark.parametrize(("m", "n", "rows"), [
    (65536, 256, 8), (65536, 128, 16), (65536, 512, 4), (65536, 2048, 1),
    (1000, 256, 1), (9000, 256, 4),
])  # fmt: skip
def test_how_many(m: int, n: int, rows: int) -> None:
    assert rows_of(decided(*ROWS["softmax"], m, n)) == rows


@pytest.mark.gpu
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("m", "n"), [(65536, 128), (40001, 256), (65536, 512), (50000, 200)])
def test_on_a_gpu(name: str, m: int, n: int) -> None:
    head, body = ROWS[name]
    ours, theirs = arrays(head, m, n), arrays(head, m, n)
    loaded(HEAD.format(head) + body, "cuda").kernel(*ours)
    loaded(HEAD.format(head) + body).kernel(*theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
