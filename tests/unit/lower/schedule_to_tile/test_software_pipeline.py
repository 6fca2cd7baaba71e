"""Programs whose products depend on each other, on the asynchronous machine: peeled and skewed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tessera_backend.cpu.interpreter import launch as machine

from tessera_lang.driver.tile_compilation import for_machine, schedule
from tessera_lang.record import replace
from tessera_lang.target.machine import machine_named
from tests.unit.lower.ast_to_schedule.lowering import lower_source, tensor

ATTENTION = """
@op.kernel
def attention(q: bf16[h, s, 64], k: bf16[h, t, 64], v: bf16[h, t, 64], o: mut bf16[h, s, 64]):
    for hi, i in op.tile_range(h, s, step=(1, ROWS)):
        top = op.full((ROWS,), -inf, f32)
        total = op.zeros((ROWS,), f32)
        acc = op.zeros((ROWS, 64), f32)
        for j in op.tile_range(t, step=64):
            logits = q[hi, i:i+ROWS, :] @ k[hi, j:j+64, :].T
            higher = max(top, op.max(logits, axis=1) * 0.25)
            p = fast.exp2(logits * 0.25 - higher[:, None])
            shrink = fast.exp2(top - higher)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p @ v[hi, j:j+64, :]
            top = higher
        o[hi, i:i+ROWS, :] = (acc / total[:, None]).to(bf16)
"""


@pytest.mark.parametrize("t", [1, 64, 65, 200])
@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.sample(1)
def test_attention(rows: int, t: int) -> None:
    rng = np.random.default_rng(t)
    q, k, v = (rng.uniform(-1, 1, (2, n, 64)).astype(ml_dtypes.bfloat16) for n in (150, t, t))
    out = np.full(q.shape, np.nan, q.dtype)
    arrays: list[Any] = [q, k, v, out]
    signature = tuple(
        replace(tensor(x, aligned=True), divisors=(1, 1, 64), hints=(8, 8000, 64)) for x in arrays
    )
    source = ATTENTION.replace("ROWS", str(rows))
    program, plan, _ = lower_source(source, *arrays, signature=signature)
    program, _ = schedule(program)
    found = for_machine(program, plan, machine_named("cuda", "sm_90a"))
    said = [d.message for d in found.remarks if d.code == "T0748"]
    assert [m.split(":")[0] for m in said] == [
        "the last iteration of this loop stands apart", "the products of this loop overlap",
        "the products of this loop overlap with those of the loop before it, and with each other",
    ], said  # fmt: skip
    assert found.lowered is not None
    lowered, finished = found.lowered
    assert any(o.name == "tile.roles" for o in lowered.operations[0].walk())
    machine.launch(lowered, finished, *arrays)
    scores = np.exp2(0.25 * q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1))
    wanted = scores / scores.sum(-1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(out.astype(np.float64), wanted, atol=1e-2)


BOTH_READ = """
@op.kernel
def gradient(q: bf16[s, 64], k: bf16[t, 64], v: bf16[t, 64], o: mut f32[s, 64]):
    for i in op.tile_range(s, step=128):
        acc = op.zeros((128, 64), f32)
        for j in RANGE:
            keys = k[j:j+64, :]
            z = (q[i:i+128, :] @ keys.T).to(f32)
            w = (q[i:i+128, :] @ v[j:j+64, :].T).to(f32)
            MASK
            acc += (z * w).to(bf16) @ keys
        o[i:i+128, :] = acc
"""
TRIANGLE = "(i + op.arange(128))[:, None] >= (j + op.arange(64))[None, :]"
FORMS = {
    "all": ("op.tile_range(t, step=64)", "z = z"),
    "lanes read it too": (
        "op.tile_range(t, step=64)",
        "z += 0.25 * op.sum(keys.to(f32), axis=1)[None, :]",
    ),
    "triangle": ("range(0, min(t, i + 128), 64)", f"z = op.where({TRIANGLE}, z, 0.0)"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("t", [64, 200, 1000])
@pytest.mark.sample(1)
def test_both_parts_read_one_tile(form: str, t: int) -> None:
    """The late one reads it where it lies, and frees its place: it is brought once."""
    rng = np.random.default_rng(t)
    q, k, v = (rng.uniform(-1, 1, (n, 64)).astype(ml_dtypes.bfloat16) for n in (300, t, t))
    out = np.full(q.shape, np.nan, np.float32)
    arrays: list[Any] = [q, k, v, out]
    signature = tuple(
        replace(tensor(x, aligned=True), divisors=(1, 64), hints=(16896, 64)) for x in arrays
    )
    text = BOTH_READ.replace("RANGE", FORMS[form][0]).replace("MASK", FORMS[form][1])
    program, plan, _ = lower_source(text, *arrays, signature=signature)
    program, _ = schedule(program)
    found = for_machine(program, plan, machine_named("cuda", "sm_90a"))
    said = [d.message for d in found.remarks if d.code == "T0748"]
    assert any(m.startswith("the products of this loop overlap") for m in said), said
    loads = [o for o in found.schedule.walk() if o.attributes.get("stage") == "shared"]
    again = [o for o in loads if o.attributes.get("reread")]
    assert again and {o.result.name for o in again} == {"k"}
    assert found.lowered is not None
    program, plan = found.lowered
    copies = [o for o in program.walk() if o.name == "tma.load"]
    assert len(copies) == len(loads) - len(again)
    machine.launch(program, plan, *arrays)
    a, b, c = (x.astype(np.float64) for x in (q, k, v))
    z = a @ b.T
    if form == "lanes read it too":
        z += 0.25 * b.sum(1)
    if form == "triangle":
        z = np.where(np.arange(300)[:, None] >= np.arange(t)[None, :], z, 0.0)
    np.testing.assert_allclose(out, (z * (a @ c.T)) @ b, atol=1.0, rtol=2e-2)


STORING = """
@op.kernel
def storing(
    q: bf16[s, 64], k: bf16[t, 64], v: bf16[t, 64], w: f32[t], o: mut f32[s, 64],
    kept: mut bf16[s, t]
):
    for i in op.tile_range(s, step=128):
        acc = op.zeros((128, 64), f32)
        for j in op.tile_range(t, step=64):
            z = (q[i:i+128, :] @ k[j:j+64, :].T).to(f32) * w[j:j+64][None, :]
            kept[i:i+128, j:j+64] = z.to(bf16)
            acc += z.to(bf16) @ v[j:j+64, :]
        o[i:i+128, :] = acc
"""


@pytest.mark.parametrize("t", [8, 64, 200])
@pytest.mark.sample(1)
def test_what_an_iteration_stores_leaves_beside_the_next(t: int) -> None:
    """The copy engine stores it, and numbers of the next iteration are read behind the work of
    this one."""
    rng = np.random.default_rng(t)
    q, k, v = (rng.uniform(-1, 1, (n, 64)).astype(ml_dtypes.bfloat16) for n in (300, t, t))
    w = rng.uniform(-1, 1, t).astype(np.float32)
    out, kept = np.full(q.shape, np.nan, np.float32), np.full((300, t), np.nan, q.dtype)
    arrays: list[Any] = [q, k, v, w, out, kept]
    divisors = ((4, 64), (8, 64), (8, 64), (8,), (4, 64), (4, 8))
    signature = tuple(
        replace(tensor(x, aligned=True), divisors=d, hints=(16896, 4096)[: x.ndim])
        for x, d in zip(arrays, divisors, strict=True)
    )
    program, plan, _ = lower_source(STORING, *arrays, signature=signature)
    program, _ = schedule(program)
    found = for_machine(program, plan, machine_named("cuda", "sm_90a"))
    said = [d.message for d in found.remarks if d.code == "T0748"]
    assert any(m.startswith("the products of this loop overlap") for m in said), said
    stores = [o for o in found.schedule.walk() if o.attributes.get("apart")]
    assert stores and all(o.attributes["leaves"] == "tma" for o in stores)
    loops = [o for o in found.schedule.walk() if o.name == "tessera.schedule.for" and o.results]
    assert any(str(v.type) == "64xf32" or v.name == "w" for o in loops for v in o.results)
    assert found.lowered is not None
    lowered = found.lowered[0].operations[0]
    waits = [o for o in lowered.walk() if o.name == "tile.mma.wait"]
    assert any(o.attributes.get("computed") for o in waits)
    machine.launch(*found.lowered, *arrays)
    a, b, c, d = (x.astype(np.float64) for x in (q, k, v, w))
    z = a @ b.T * d
    np.testing.assert_allclose(kept.astype(np.float64), z, atol=1e-2, rtol=1e-2)
    np.testing.assert_allclose(out, z @ c, atol=0.5, rtol=2e-2)


def test_what_loads_see_is_not_stored_beside_them() -> None:
    """A loop that reads what it stores waits for its products."""
    text = STORING.replace("* w[j:j+64][None, :]", "+ kept[i:i+128, j:j+64].to(f32)")
    arrays: list[Any] = [np.zeros((300, 64), ml_dtypes.bfloat16) for _ in range(3)]
    arrays += [np.zeros(300, np.float32), np.zeros((300, 64), np.float32)]
    arrays += [np.zeros((300, 300), ml_dtypes.bfloat16)]
    program, plan, _ = lower_source(text, *arrays)
    program, _ = schedule(program)
    found = for_machine(program, plan, machine_named("cuda", "sm_90a"))
    assert not any(o.attributes.get("apart") for o in found.schedule.walk())
    assert not any("overlap" in d.message for d in found.remarks)
