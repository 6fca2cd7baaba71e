"""Products of whole arrays that are used several times: multiplied once, and read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session

Array = np.ndarray[Any, np.dtype[Any]]
TARGETS = [
    "cpu", pytest.param("as sm_90a", marks=pytest.mark.slow),
    pytest.param("cuda", marks=pytest.mark.gpu),
]  # fmt: skip


def softmax(z: Array, axis: int) -> Array:
    e = np.exp(z - z.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normal(z: Array) -> Array:
    return (z - z.mean(1, keepdims=True)) / z.std(1, keepdims=True)


AGAIN: dict[str, Callable[[Array, Array], Array]] = {
    "op.softmax(x @ y.T, axis=1)": lambda x, y: softmax(x @ y.T, 1),
    "op.softmax(op.relu(x @ y.T) + 1.0, axis=0)": lambda x, y: softmax(np.maximum(x @ y.T, 0), 0),
    "op.softmax(x @ y.T * 0.25, axis=1) @ y": lambda x, y: softmax(x @ y.T / 4, 1) @ y,
    "op.var(x @ y.T, axis=1)": lambda x, y: (x @ y.T).var(1),
    "(x @ y.T) / op.norm(x @ y.T, axis=1)[:, None]": lambda x, y: (
        (x @ y.T) / np.linalg.norm(x @ y.T, axis=1)[:, None]
    ),
}
"""What goes over a product several times."""
ONCE: dict[str, Callable[[Array, Array], Array]] = {
    "op.sum(x @ y.T, axis=1)": lambda x, y: (x @ y.T).sum(1),
    "op.relu(x @ y.T) * 2.0": lambda x, y: np.maximum(x @ y.T, 0) * 2,
    "op.tril(x @ y.T)": lambda x, y: np.tril(x @ y.T),
    "op.where(op.arange(x.shape[0])[:, None] >= op.arange(y.shape[0])[None, :], x @ y.T, 0.0)":
        lambda x, y: np.tril(x @ y.T),
    "x @ y.T @ y": lambda x, y: x @ y.T @ y,
}  # fmt: skip


def kernel(expression: str) -> str:
    return f"@op.kernel\ndef f(x: f32[m, k], y: f32[n, k]):\n    z = {expression}\n    return z\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("expression", [*AGAIN, *ONCE])
@pytest.mark.sample(1)
def test_values(expression: str, target: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tessera"
    path.write_text(kernel(expression))
    how = {"target": "cpu", "arch_as": target[3:]} if target[:2] == "as" else {"target": target}
    f = tessera.load(str(path), **how).f
    for m, n, k in ((70, 90, 60), (1, 5, 3), (130, 128, 64)):
        rng = np.random.default_rng(m)
        x, y = (rng.normal(size=(rows, k)).astype(np.float32) for rows in (m, n))
        wanted = {**AGAIN, **ONCE}[expression](x.astype(np.float64), y.astype(np.float64))
        np.testing.assert_allclose(np.asarray(f(x, y)), wanted, rtol=2e-4, atol=2e-4)


def scheduled(expression: str, sizes: str, arch: str) -> tuple[list[str], list[int]]:
    """The units of the products of a call, and the tiles that are multiplied in each launch."""
    session = Session(overlay={"k.tessera": kernel(expression).replace("f32[", "bf16[")})
    machine = session.machine("cuda", arch)
    made = session.for_machine(
        "k.tessera", "f", session.signature("k.tessera", "f", sizes), machine
    )
    dots = [
        [o for o in one.schedule.operations[0].walk() if o.name.endswith("schedule.dot")]
        for one in made.launches
    ]
    return [str(o.attributes["unit"]) for found in dots for o in found], [len(x) for x in dots]


@pytest.mark.parametrize("expression", list(AGAIN)[:2])
def test_a_product_that_is_used_again_is_one_of_tensor_cores(expression: str) -> None:
    units, launches = scheduled(expression, "x: bf16[1024, 512], y: bf16[2048, 512]", "sm_90a")
    assert units == ["wgmma"] and launches[0] == 1 and len(launches) > 1


@pytest.mark.parametrize("expression", list(ONCE)[1:4])
def test_a_product_that_is_used_once_is_one_launch(expression: str) -> None:
    units, launches = scheduled(expression, "x: bf16[1024, 512], y: bf16[1024, 512]", "sm_90a")
    assert units == ["wgmma"] and launches == [1]


def test_what_is_too_large_is_computed_again() -> None:
    """An array of more than 4 GiB is not made unasked."""
    sizes = "x: bf16[65536, 64], y: bf16[65536, 64]"
    assert len(scheduled("op.softmax(x @ y.T, axis=1)", sizes, "sm_80")[1]) == 1
    smaller = sizes.replace("65536", "16384")
    assert len(scheduled("op.softmax(x @ y.T, axis=1)", smaller, "sm_80")[1]) == 2
