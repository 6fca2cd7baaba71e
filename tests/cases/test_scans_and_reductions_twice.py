"""Scans that both factors of a product are made of, and reductions made of other reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.session import Session
from tessera_lang.target.backend import TargetOptions
from tests.cases.test_scratch_arrays import module_for
from tests.fuzz.array_programs import tried
from tests.numpy_style import TARGETS

PRODUCTS = ["b @ c.T", "b @ b.T", "c @ b.T", "y @ c.T", "(b + c) @ (c - b).T"]
STORES = [
    "return {}",
    "t[:, :] = {}\n    return t[:17, :]",
    "t[1:52:3, :] = {}\n    return t[1:52:3, :]",
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_of_scans(product: str, store: str, target: str) -> None:
    rows = 17 if "[:, :] =" in store else 54
    y: Any = np.random.default_rng(0).integers(-3, 3, (17, 9)).astype(np.float32)
    made = f"    t = op.zeros(({rows}, 17), f32)\n" if "t[" in store else ""
    text = (
        "@op.kernel\ndef f(y: f32[p, m]):\n    b = op.cumsum(y, axis=1)\n"
        f"    c = op.cumsum(b, axis=1)\n{made}    {store.format(product)}\n"
    )
    b: Any = np.cumsum(y, axis=1)
    want = eval(product, {"b": b, "c": np.cumsum(b, axis=1), "y": y})
    np.testing.assert_array_equal(np.asarray(module_for(target, text).f(y)), want)


CHAINS = [
    """a = op.where(op.max(x) < 9.0, x, 2.0)
    b = op.max(a)
    return op.where(b != 1.0, a, b)""",
    """m = op.where(op.min(x, axis=1, keepdims=True) >= 1.0, op.max(x), 2.0)
    a = op.where(m < 1.0, op.flip(x, 1), 2.0)
    b = op.max(a)
    return op.where(b != 1.0, op.sort(a, axis=0), 2.0)""",
    """a = op.where(x < op.max(x), x, 0.0)
    b = op.where(a < op.max(a), a, 1.0)
    return op.where(b < op.max(b), b, op.min(a))""",
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("body", CHAINS)
def test_reductions_of_reductions(body: str, target: str) -> None:
    x: Any = np.random.default_rng(0).integers(-3, 7, (3, 7, 7, 7)).astype(np.float32)
    text = f"def f(x):\n    {body}\n"
    scope: dict[str, Any] = {"op": np}
    exec(text, scope)
    found = module_for(target, f"@op.kernel\n{text}").f(x)
    np.testing.assert_array_equal(np.asarray(found), scope["f"](x))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("body", CHAINS)
@pytest.mark.sample(1)
def test_reductions_of_reductions_have_room_on_a_gpu(body: str, arch: str) -> None:
    """Tiles of axes that a loop goes along take what smaller tiles of the grid leave, and no more
    than a group has room for where they are part of other tiles."""
    session = Session(overlay={"m.tessera": f"@op.kernel\ndef f(x):\n    {body}\n"})
    for shape in ("3, 7, 7, 7", "40, 3, 5, 7"):
        signature = session.signature("m.tessera", "f", f"x: f32[{shape}]")
        made = session.compile_kernel(
            "m.tessera", "f", signature, TargetOptions("cuda", arch), ("ptx",)
        )  # fmt: skip
        assert made.texts["ptx"]


BROADCAST = [
    "(x[:1, :] @ x.T) + op.sort(x @ x.T, axis=0)",
    "op.sort(x[:, :5], axis=0) + x[:1] @ y",
    "(x @ y[:, :1]) + op.sort(x[:, :5], axis=0)",
    "op.sort(x[:, :5], axis=0) + x[1:2] @ y",
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", BROADCAST)
def test_a_product_of_one_row_beside_many(text: str, target: str) -> None:
    r: Any = np.random.default_rng(0)
    x, y = (r.integers(-3, 3, shape).astype(np.float32) for shape in ((5, 7), (7, 5)))
    found = module_for(target, f"@op.kernel\ndef f(x, y):\n    return {text}\n").f(x, y)
    np.testing.assert_array_equal(np.asarray(found), eval(text, {"op": np, "x": x, "y": y}))


@pytest.mark.parametrize(
    ("seed", "arch"),
    [(60476, "sm_90a"), (80124, "sm_80"), (80658, "sm_80"), (100725, "sm_90a")],
)
@pytest.mark.slow
def test_found_by_the_generator(seed: int, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    assert tried(seed)[0] == "right"
