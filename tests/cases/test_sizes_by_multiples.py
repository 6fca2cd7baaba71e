"""Sizes that an axis says as a multiple of them: ``u8[m, 3*k]``. The launch divides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime.build_folder import write_build

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.numpy_style import TARGETS, agree, assembled, results_of

Array = np.ndarray[Any, np.dtype[Any]]
PROGRAMS: dict[str, Callable[..., Any]] = {
    "def f(x: f32[3*k]) -> f32[k]:\n    return x[:k] + x[k:2*k] * x[2*k:]":
        lambda x: x[: len(x) // 3] + x[len(x) // 3 : -len(x) // 3] * x[-(len(x) // 3) :],
    "def f(b: f32[m, 2*k]) -> f32[m, 2*k]:\n    return op.concat((b[:, k:], b[:, :k]), axis=1)":
        lambda b: np.roll(b, b.shape[1] // 2, 1),
    "def f(b: f32[m, k*2], y: f32[k + 1]) -> f32[m, k]:\n"
    "    return op.sum(op.reshape(b, (m, k, 2)), axis=2) * y[0]":
        lambda b, y: b.reshape(len(b), -1, 2).sum(2) * y[0],
    "def f(x: f32[6*k], u: f32[6*k], w: f32[12*k]) -> f32[]:\n"
    "    return op.sum(x * u) + op.sum(w) * k":
        lambda x, u, w: np.float32((x * u).sum() + w.sum() * (len(x) // 6)),
    "def f(x: f32[2*k]) -> f32[2*k]:\n    y = op.empty((2*k,), f32)\n    for i in range(k):\n"
    "        y[i] = x[2*i] + x[2*i+1]\n        y[k+i] = x[2*i] - x[2*i+1]\n    return y":
        lambda x: np.concatenate((x[::2] + x[1::2], x[::2] - x[1::2])),
    "def f(x: f32[2*k]) -> f32[k]:\n    t = op.zeros((k,), f32)\n    t += x[:k]\n"
    "    return t + op.arange(k)": lambda x: x[: len(x) // 2] + np.arange(len(x) // 2, dtype="f4"),
    "def f(b: f32[m, 2*k], v: f32[k, n]) -> f32[m, n]:\n    return b[:, :k] @ v + b[:, k:] @ v":
        lambda b, v: (b[:, : len(v)] + b[:, len(v) :]) @ v,
    "def f(x: f32[4*k]) -> (f32[k], f32[2*k]):\n"
    "    return op.sum(op.reshape(x, (k, 4)), axis=1), x[::2]":
        lambda x: (x.reshape(-1, 4).sum(1), x[::2]),
    "def f(b: f32[m, 2*k], c: f32[k, m]) -> f32[m]:\n    s = op.zeros((m,), f32)\n"
    "    for j in range(k):\n        s[:] = s + b[:, 2*j] * c[j, :] - b[:, 2*j+1]\n    return s":
        lambda b, c: (b[:, ::2] * c.T - b[:, 1::2]).sum(1),
}  # fmt: skip


def given(k: int, m: int) -> dict[str, Array]:
    shapes = {"x": (12 * k,), "u": (12 * k,), "w": (24 * k,), "b": (m, 2 * k), "v": (k, 3),
              "y": (k + 1,), "c": (k, m)}  # fmt: skip
    rng = np.random.default_rng(k)
    return {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", PROGRAMS)
@pytest.mark.sample(2)
def test_values(source: str, target: str) -> None:
    for k, m in ((4, 3), (1, 1), (33, 20)):
        arrays = given(k, m)
        names = [n for n in arrays if f"{n}: " in source.split("->")[0]]
        want = PROGRAMS[source](*(arrays[n] for n in names))
        agree(results_of(source, arrays, target), want, 1e-3, 1e-4)


@pytest.mark.parametrize("source", [s for s in PROGRAMS if "(x: f32" in s and "u:" not in s])
def test_what_does_not_divide_is_refused(source: str) -> None:
    arrays = {**given(4, 3), "x": np.zeros(49, np.float32)}
    with pytest.raises(tessera.TesseraError, match=r"T0838.*requires `x.shape\[0\] % \d == 0`"):
        results_of(source, arrays, "cpu")


def test_other_axes_agree_with_it() -> None:
    source = next(s for s in PROGRAMS if "y: f32[k + 1]" in s)
    with pytest.raises(tessera.TesseraError, match="T0834"):
        results_of(source, {**given(4, 3), "y": np.zeros(7, np.float32)}, "cpu")


@pytest.mark.slow
def test_code_for_gpus() -> None:
    for source in PROGRAMS:
        assembled(source, given(32, 16))


def test_a_built_folder_divides_too(tmp_path: Path) -> None:
    source = next(iter(PROGRAMS))
    session = Session(overlay={"k.tessera": f"@op.kernel\n{source}\n"})
    signature = session.signature("k.tessera", "f")
    write_build(tmp_path, [
        session.compile_kernel("k.tessera", "f", signature, TargetOptions("cpu", "native"))
    ])  # fmt: skip
    f: Any = tessera.load_built(tmp_path)
    x = given(4, 3)["x"]
    agree(f.f(x), PROGRAMS[source](x))
    with pytest.raises(tessera.TesseraError, match="T0838"):
        f.f(x[1:].copy())


@pytest.mark.parametrize("head", [
    "@kernel tile[(64,)]\ndef f(x: f32[2*k], y: mut f32[m]):\n    y[0] = x[0]",
    "@op.kernel\ndef f(x: f32[2*k + 1], y: mut f32[m]):\n    y[0] = x[0]",
    "@op.kernel\ndef f(x: f32[k*n], y: mut f32[n]):\n    y[0] = x[0]",
    "@op.kernel\ndef f(x: f32[0*k], y: mut f32[n]):\n    y[0] = x[0]",
])  # fmt: skip
def test_what_is_no_multiple_by_a_number_is_refused(head: str) -> None:
    found = Session(overlay={"k.tessera": head + "\n"}).check("k.tessera")
    assert "T0312" in [d.code for d in found]
