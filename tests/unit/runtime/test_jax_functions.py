"""``tessera.jax.op``: functions and kernels as foreign function calls of JAX, with the real JAX."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tests.operator_functions import TEXT

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax: Any = pytest.importorskip("jax", reason="JAX is not installed")
jnp: Any = jax.numpy


@pytest.fixture(scope="module")
def file(tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("functions") / "ops.tessera"
    path.write_text(TEXT)
    return str(path)


def _made(*shape: int, seed: int = 1) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def _attend(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T * 0.125, axis=1) @ v


def _near(mine: Any, theirs: Any, by: float = 1e-4) -> bool:
    pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
    return all(jnp.allclose(a, b, rtol=by, atol=by) for a, b in pairs)


def _squared(f: Any) -> Any:
    return lambda *given: (f(*given).astype(jnp.float32) ** 2).sum()


def test_a_call_gives_what_jax_gives(file: str) -> None:
    attend = tessera.jax.op(f"{file}::attend")
    given = _made(20, 16), _made(24, 16, seed=2), _made(24, 16, seed=3)
    assert _near(attend(*given), _attend(*given))
    assert _near(jax.jit(attend)(*given), _attend(*given))
    shape = jax.eval_shape(attend, *given)
    assert shape.shape == (20, 16) and shape.dtype == jnp.float32
    for places in ((0, 1, 2), 1):
        mine = jax.jit(jax.grad(_squared(attend), argnums=places))(*given)
        assert _near(mine, jax.grad(_squared(_attend), argnums=places)(*given), 1e-3)
    narrow = tuple(x.astype(jnp.bfloat16) for x in given)
    assert attend(*narrow).dtype == jnp.bfloat16
    assert _near(attend(*narrow).astype(jnp.float32), _attend(*given), 0.05)


def test_batches_are_called_one_after_the_other(file: str) -> None:
    attend = tessera.jax.op(f"{file}::attend")
    given = _made(3, 5, 4), _made(3, 6, 4, seed=2), _made(3, 6, 4, seed=3)
    assert _near(jax.jit(jax.vmap(attend))(*given), jax.vmap(_attend)(*given))
    mine, theirs = (jax.vmap(jax.grad(_squared(f)))(*given) for f in (attend, _attend))
    assert _near(mine, theirs, 1e-3)


def test_a_state_of_dicts_and_tuples_has_gradients(file: str) -> None:
    loss = tessera.jax.op(f"{file}::loss")
    p = {"w": (_made(3, 4), _made(4, 2)), "b": _made(4)}
    x, y = _made(5, 3), _made(5, 2)

    def reference(p: Any, x: Any, y: Any) -> Any:
        return ((jax.nn.relu(x @ p["w"][0] + p["b"]) @ p["w"][1] - y) ** 2).mean()

    mine = jax.jit(jax.value_and_grad(loss))(p, x, y)
    assert mine[0].dtype == jnp.float32 and _near(mine, jax.value_and_grad(reference)(p, x, y))


def test_several_results_keep_their_form(file: str) -> None:
    several = tessera.jax.op(f"{file}::several")
    a, b = _made(3, 3), _made(3, 3, seed=2)
    found = jax.jit(lambda a, b: several((a, b), 2.0))(a, b)
    assert _near(found["a"], a * 2) and _near(found["b"][1], a.T)
    assert found["c"] is None and _near(found["d"], a.max())
    rows = tessera.jax.op(f"{file}::rows")
    mine = jax.grad(lambda x: rows(x, jnp.asarray([1, 2]))[0].sum())(a)
    assert mine.sum() == 6


def test_kernels_are_functions_too(file: str) -> None:
    product = tessera.jax.op(f"{file}::product")
    a, b = _made(5, 7), _made(7, 3)
    assert _near(jax.jit(product)(a, b), a @ b)
    assert _near(jax.grad(_squared(product))(a, b), jax.grad(_squared(jnp.matmul))(a, b), 1e-3)
    odd = tessera.jax.op(f"{file}::odd")
    assert jax.grad(lambda x: odd(x).sum())(jnp.ones(4)).tolist() == [3.0] * 4


def test_what_a_kernel_writes_is_returned(file: str) -> None:
    scale = tessera.jax.op(f"{file}::scale")
    x, out = jnp.arange(5.0), jnp.zeros(5)
    assert scale(x, 2.0, out, TIMES=3).tolist() == [0, 8, 16, 24, 32]
    assert jax.jit(lambda x, out: scale(x, 2.0, out))(x, out).tolist() == [0, 2, 4, 6, 8]
    assert out.tolist() == [0] * 5
    batch = jax.vmap(lambda x, out: scale(x, 2.0, out))(jnp.ones((2, 5)), jnp.zeros((2, 5)))
    assert batch.tolist() == [[2.0] * 5] * 2
    with pytest.raises(tessera.TesseraError, match=r"T0761.*writes into its arguments"):
        jax.grad(lambda x: scale(x, 2.0, out).sum())(x)
    untyped = tessera.jax.op(tessera.load(file).untyped[2])
    assert untyped(jnp.arange(4.0), jnp.zeros(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda f, x: f("attend")(x, x[:, :3], x), "T0834.*matmul"),
        (lambda f, x: jax.jit(f("attend"))(x, x[:, :3], x), "T0834.*matmul"),
        (lambda f, x: f("attend")(x.astype(jnp.uint32), x.astype(jnp.int32), x), "T0818"),
        (lambda f, x: f("attend")(x.astype(jnp.complex64), x, x), "T0832.*`q`.*complex64"),
        (lambda f, x: f("attend")(x, object(), x), "T0831.*`k` holds a `object`"),
        (lambda f, x: f("attend")(x, x), "T0804.*lacks `v`"),
        (lambda f, x: f("shown")(x), "T0760"),
        (lambda f, x: jax.jit(f("scale"))(x[0], 2.0, x[0]), "T0831.*`factor`"),
        (lambda f, x: tessera.jax.op("attend"), "T0858"),
    ],
)
def test_what_does_not_fit_is_refused(file: str, call: Any, said: str) -> None:
    with pytest.raises(tessera.TesseraError, match=said):
        call(lambda function: tessera.jax.op(f"{file}::{function}"), _made(4, 4))


def test_a_fault_of_a_run_is_one_of_xla(file: str) -> None:
    checked = tessera.jax.op(f"{file}::checked")
    f = jax.jit(checked)
    assert f(jnp.asarray([1.0, 2.0]), jnp.asarray([1, 0])).tolist() == [2.0, 1.0]
    with pytest.raises(Exception, match="place"):
        f(jnp.asarray([1.0, 2.0]), jnp.asarray([1, 7])).block_until_ready()
