"""Which axes of a result become tiles: those of the products below it, and all that a slice leaves
open. Otherwise each product is one row high, or a whole array is summed by one group."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions

TARGETS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SM_90A = TargetOptions("cuda", "sm_90a")


def ptx_of(text: str, signature: str = "") -> list[str]:
    """The PTX of each launch."""
    session = Session(overlay={"p.tessera": text})
    made = session.compile_kernel(
        "p.tessera", "k", session.signature("p.tessera", "k", signature), SM_90A, ("ptx",)
    )
    return [launch.texts["ptx"] for launch in (made, *made.then)]


def contraction(seed: int) -> tuple[str, dict[str, int]]:
    """An einsum of two arrays with batch, rows, columns and sums, its result in any order."""
    r = random.Random(seed)
    names = r.sample("cdefghijlmnoprst", 5)
    batch, (m, n, k) = names[: r.randint(0, 2)], names[2:]
    a, b, out = [*batch, m, k], [*batch, k, n], [*batch, m, n]
    for axes in (a, b, out):
        r.shuffle(axes)
    sizes = {x: r.choice((1, 2, 3, 5, 17, 33)) for x in names}
    return f"{''.join(a)},{''.join(b)}->{''.join(out)}", sizes


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(4)
def test_einsum_in_any_order(seed: int, target: str) -> None:
    spec, sizes = contraction(seed)
    sides, out = spec.split("->")
    a, b = sides.split(",")

    def dims(axes: str) -> str:
        return ", ".join(axes)

    text = (
        f"@op.kernel\ndef k(a: f32[{dims(a)}], b: f32[{dims(b)}]) -> f32[{dims(out)}]:\n"
        f'    return op.einsum("{spec}", a, b)\n'
    )
    rng = np.random.default_rng(seed)
    given = [rng.standard_normal([sizes[x] for x in axes]).astype(np.float32) for axes in (a, b)]
    want = np.einsum(spec, *(x.astype(np.float64) for x in given))
    found = np.asarray(tessera.compile(text, target=target).k(*given))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


PRODUCTS = {
    "heads behind rows": (
        "a: bf16[4, 16, 512, 512], b: bf16[4, 512, 16, 64]) -> bf16[4, 512, 16, 64]",
        'op.einsum("bhst,bthd->bshd", a, b).to(bf16)',
    ),
    "channels before rows": (
        "a: bf16[4, 64, 32, 64], b: bf16[128, 64]) -> bf16[4, 128, 32, 64]",
        'op.einsum("nchw,oc->nohw", a, b).to(bf16)',
    ),
    "transposed afterwards": (
        "a: bf16[4, 16, 512, 512], b: bf16[4, 16, 512, 64]) -> bf16[4, 512, 16, 64]",
        "(a @ b).transpose(0, 2, 1, 3).to(bf16)",
    ),
    "rows first": (
        "a: bf16[8, 256, 128], b: bf16[8, 128, 64]) -> bf16[256, 8, 64]",
        "op.relu(a @ b).transpose(1, 0, 2).to(bf16)",
    ),
    "columns first": (
        "a: bf16[8, 256, 128], b: bf16[8, 128, 64]) -> bf16[64, 8, 256]",
        "(a @ b).transpose(2, 0, 1).to(bf16)",
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.sample(2)
def test_products_whose_result_is_permuted_use_wgmma(name: str) -> None:
    parameters, value = PRODUCTS[name]
    (text,) = ptx_of(f"@op.kernel\ndef k({parameters}:\n    return {value}\n")
    assert "wgmma.mma_async" in text


SUMS = (
    "op.sum(x[:, 1:])",
    "op.sum(x[:, :-1] * x[:, 1:])",
    "op.max(x[1:, :])",
    "op.sum(abs(x[:, 1:] - x[:, :-1])) + op.sum(abs(x[1:, :] - x[:-1, :]))",
    "op.sum(x[:, 1:], axis=1)",
    "op.sum(x[1:, :], axis=0)",
    "op.mean(x[:, ::2], axis=0)",
    "op.cumsum(x[:, 1:], axis=1)",
    "op.softmax(x[:, 1:], axis=0)",
    "x[:, 1:] - op.mean(x[:, 1:], axis=1)[:, None]",
)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("value", SUMS)
@pytest.mark.sample(3)
def test_values_of_open_slices(value: str, target: str) -> None:
    text = f"@op.kernel\ndef k(x: f32[h, w]):\n    return {value}\n"

    class Named:  # what NumPy has under no name, or another
        sum, max, mean, cumsum = np.sum, np.max, np.mean, np.cumsum

        @staticmethod
        def softmax(x: np.ndarray, axis: int) -> np.ndarray:
            e = np.exp(x - x.max(axis=axis, keepdims=True))
            return e / e.sum(axis=axis, keepdims=True)

    for h, w in ((5, 7), (40, 130), (1, 2)):
        if h == 1 and "1:, :" in value:
            continue  # of no elements there is no greatest
        x = np.random.default_rng(h).standard_normal((h, w)).astype(np.float32)
        want = eval(value, {"op": Named, "x": x.astype(np.float64)})
        found = np.asarray(tessera.compile(text, target=target).k(x))
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", SUMS[:7])
@pytest.mark.sample(2)
def test_sums_of_open_slices_are_spread(value: str) -> None:
    session = Session()
    text = f"@op.kernel\ndef k(x: f32[4096, 4096]):\n    return {value}\n"
    session.set_text("p.tessera", text, 1)
    assert not session.check("p.tessera")
    machine = session.machine("cuda", "sm_90a")
    made = session.for_machines("p.tessera", machine)
    assert made
    assert "T0750" not in [d.code for launch in made for d in launch.remarks]
