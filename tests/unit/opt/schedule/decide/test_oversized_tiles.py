"""Tiles with no room are taken in parts: the same results, where the parts are independent."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera_lang.opt.schedule.decide import oversized_tiles
from tessera_lang.opt.schedule.query.kernel_facts import Facts
from tests.unit.lower.ast_to_schedule.test_early_exits import GPU, loaded
from tests.unit.opt.schedule.decided import from_source

NAMES = {"bf16": ml_dtypes.bfloat16, "f32": np.float32}

ATTENTION = """\
@op.kernel
def kernel(q: T[h, n, d], k: T[h, m, d], v: T[h, m, d]) -> f32[h, n, d]:
    out = op.empty((h, n, d), f32)
    for y, i in op.tile_range(h, n, step=(1, 64)):
        top = op.full((64,), -inf, f32)
        total = op.zeros((64,), f32)
        acc = op.zeros((64, d), f32)
        for j in op.tile_range(m, step=64):
            s = (q[y, i:i+64, :] @ k[y, j:j+64, :].T) * 0.125
            new = max(top, op.max(s, axis=1))
            p = exp(s - new[:, None])
            shrink = exp(top - new)
            total = total * shrink + op.sum(p, axis=1)
            acc = acc * shrink[:, None] + p.to(T) @ v[y, j:j+64, :]
            top = new
        out[y, i:i+64, :] = acc / total[:, None]
    return out
"""


def of(name: str, text: str = ATTENTION) -> str:
    return text.replace("T[", f"{name}[").replace("to(T)", f"to({name})")


def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for factors and sums of 64 columns and no more."""

    def has_room(facts: Facts, machine: object, stages: int, sums: bool = True) -> bool:
        return all(max(map(int, d.shape)) <= 64 for d in facts.dots)

    monkeypatch.setattr(oversized_tiles, "_has_room", has_room)


def run(text: str, given: list[Any], target: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(loaded(text, target).kernel(*given)).astype(float)


def attention(q: Any, k: Any, v: Any, name: str) -> Any:
    q, k, v = (x.astype(float) for x in (q, k, v))
    s = q @ k.swapaxes(1, 2) * 0.125
    e = np.exp(s - s.max(2, keepdims=True))
    return e / e.sum(2, keepdims=True) @ v


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", GPU])
@pytest.mark.parametrize(("name", "d"), [("bf16", 192), ("bf16", 200), ("f32", 128), ("f32", 84)])
@pytest.mark.sample(1)
def test_attention(name: str, d: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    little_room(monkeypatch)
    g = np.random.default_rng(d)
    q, k, v = (g.standard_normal((2, n, d)).astype(NAMES[name]) for n in (100, 130, 130))
    got, want = run(of(name), [q, k, v], target), attention(q, k, v, name)
    assert np.linalg.norm(got - want) <= (4e-3 if name == "bf16" else 1e-6) * np.linalg.norm(want)


def sizes(heads: int, n: int, d: int, name: str) -> str:
    return ", ".join(f"{x}: {name}[{heads}, {n}, {d}]" for x in "qkv")


def dots(text: str, signature: str, arch: str = "sm_90a") -> list[Any]:
    made = from_source(text, signature, arch)
    return [o for o in made.schedule.operations[0].walk() if o.name.endswith(".dot")]


@pytest.mark.parametrize("d", [512, 768, 1000, 1024, 2048])
@pytest.mark.sample(1)
def test_long_rows_are_products_of_the_asynchronous_unit(d: int) -> None:
    """Whose operands come in rings of two places or more."""
    made = from_source(of("bf16"), sizes(32, 512, d, "bf16"))
    kernel = made.schedule.operations[0]
    assert "roles" in kernel.attributes
    units = [o.attributes["unit"] for o in kernel.walk() if o.name.endswith(".dot")]
    assert units == ["wgmma", "wgmma"]
    staged = [o.attributes["stages"] for o in kernel.walk() if "stages" in o.attributes]
    assert all(isinstance(n, int) and n >= 2 for n in staged)
    said = [r.message for r in made.remarks if r.code == "T0748"]
    assert any("taken in parts" in message for message in said)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["bf16", "f32"])
@pytest.mark.sample(1)
def test_long_rows_have_room(name: str, arch: str) -> None:
    made = from_source(of(name), sizes(32, 512, 1024, name), arch)
    assert not [r for r in made.remarks if r.severity != "note"]


def test_rows_that_fit_are_whole() -> None:
    assert [o.result.tile_type.sizes for o in dots(of("bf16"), sizes(32, 512, 128, "bf16"))][-1][
        1
    ] == 128


@pytest.mark.sample(1)
@pytest.mark.parametrize(("what", "instead"), [
    ("acc / total[:, None]", "acc / op.sum(acc, axis=1)[:, None]"),
    ("acc / total[:, None]", "op.cumsum(acc, axis=1)"),
    ("        out[y", "        best[y, i:i+64] = top\n        out[y"),
])  # fmt: skip
def test_columns_that_meet_are_not_parts(what: str, instead: str) -> None:
    """Sums along them, and what each neighbour would store again."""
    text = of("bf16").replace(what, instead)
    head = "v: bf16[h, m, d]"
    text = text.replace(head, head + (", best: mut f32[h, n]" if "best" in text else ""))
    signature = sizes(32, 512, 1024, "bf16")
    signature += ", best: f32[32, 512]" if "best" in text else ""
    assert all(o.result.tile_type.sizes[1] in (64, 1024) for o in dots(text, signature))
