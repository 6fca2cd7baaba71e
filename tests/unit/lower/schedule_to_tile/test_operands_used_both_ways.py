"""A tile that products read as it is and as its transpose lies in shared memory once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.runtime.api import Module
from tessera_backend.runtime.compiler import SessionProvider, options_from_environment

from tessera_lang.driver.session import Session
from tessera_lang.record import replace

TEXT = """
@op.kernel
def kernel(q: {t}[m, {d}], k: {t}[n, {d}]) -> f32[m, {d}]:
    y = op.empty((m, {d}), f32)
    for i in op.tile_range(m, step=64):
        acc = op.zeros((64, {d}), f32)
        for j in op.tile_range(n, step=64):
            keys = {tile}
            s = {first}
            acc += {second}
        y[i:i+64, :] = acc
    return y
"""
FIRST = "op.matmul(q[i:i+64, :], keys.T{tf32})"
SECOND = "op.matmul(s.to({t}), keys{tf32})"
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}


def _text(dtype: str, d: int, *, order: str) -> str:
    tf32 = ', precision="tf32"' if dtype == "f32" else ""
    text = TEXT.replace("{first}", FIRST).replace("{second}", SECOND)
    if order == "transposed first":
        # The tile that is named is a transpose; its own transpose is the array's order.
        text = text.replace("{tile}", "k[j:j+64, :].T").replace("keys.T", "keys#")
        text = text.replace("(t), keys{tf32}", "(t), keys.T{tf32}").replace(
            "{t}), keys{", "{t}), keys.T{"
        )
        text = text.replace("keys#", "keys")
    else:
        text = text.replace("{tile}", "k[j:j+64, :]")
    for name, value in (("{t}", dtype), ("{d}", str(d)), ("{tf32}", tf32)):
        text = text.replace(name, value)
    return text


def _module(text: str, where: str) -> Module:
    options = options_from_environment()
    if where == "cuda":
        options = replace(options, target="cuda")
    else:
        options = replace(options, target="cpu", arch_as=where)
    target = "cuda" if where == "cuda" else "cpu"
    return Module("<source>", SessionProvider("<source>", options, text=text), target)


@pytest.mark.parametrize("order", ["as it is first", "transposed first"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", ["sm_80", "sm_120", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.sample
def test_once_in_memory_and_right(dtype: str, where: str, order: str) -> None:
    d = 64
    text = _text(dtype, d, order=order)
    if where != "cuda":
        session = Session(overlay={"kernel.tessera": text})
        given = f"q: {dtype}[256, {d}], k: {dtype}[320, {d}]"
        wanted = session.signature("kernel.tessera", "kernel", given)
        made = session.for_machine("kernel.tessera", "kernel", wanted,
                                   session.machine("cuda", where))  # fmt: skip
        assert made.lowered is not None
        kernel = made.lowered[0].operations[0]
        names = [o.attributes["name"] for o in kernel.walk() if o.name == "tile.shared.alloc"]
        assert len([n for n in names if str(n).startswith("k_tile")]) == 1
    rng = np.random.default_rng(7)
    q = rng.integers(-2, 3, (100, d)).astype(DTYPES[dtype])
    k = rng.integers(-1, 2, (90, d)).astype(DTYPES[dtype])
    got = np.asarray(_module(text, where).kernel(q, k))
    a, b = q.astype(np.float64), k.astype(np.float64)
    np.testing.assert_array_equal(got, (a @ b.T) @ b)
