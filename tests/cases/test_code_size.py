"""How much text a program gives to LLVM on the CPU: its time grows with that, and a count has no
noise. The bounds are about a quarter above what was found; 10,000 lines take a second or two."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

import numpy as np
import pytest
from tessera_backend.cpu import code_deduplication, precompiled_functions
from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.entry import CpuModule
from tessera_backend.cpu.llvm_codegen import Compiled, code_target, compile_text
from tessera_backend.cpu.loader import load_object

import tessera_lang as tessera

MLP = """
@op.kernel
def f(x: f32[n, d], y: i32[n], w1: f32[d, k], b1: f32[k], w2: f32[k, c], b2: f32[c], lr: f32):
    z = x @ w1 + b1[None, :]
    h = op.maximum(z, 0.0)
    p = op.softmax(h @ w2 + b2[None, :], axis=1)
    loss = -op.mean(op.log(p[op.arange(n), y]))
    g = (p - (y[:, None] == op.arange(c)[None, :]).to(f32)) / n
    gh = (g @ w2.T) * (z > 0.0).to(f32)
    n1, n2 = w1 - lr * (x.T @ gh), w2 - lr * (h.T @ g)
    return loss, n1, b1 - lr * op.sum(gh, axis=0), n2, b2 - lr * op.sum(g, axis=0)
"""
BODIES = """
def acceleration(x, m):
    d = x[None, :, :] - x[:, None, :]
    r2 = op.sum(d * d, axis=2) + 0.01
    return op.sum(m[None, :, None] * d / (r2 ** 1.5)[:, :, None], axis=1)

@op.kernel
def f(x: f32[n, 3], v: f32[n, 3], m: f32[n], dt: f32):
    vh = v + 0.5 * dt * acceleration(x, m)
    x2 = x + dt * vh
    v2 = vh + 0.5 * dt * acceleration(x2, m)
    return x2, v2, 0.5 * op.sum(m * op.sum(v2 * v2, axis=1))
"""
DEEP = """
@op.kernel
def f(x: f32[n, d], y: f32[n], w1: f32[d, k], w2: f32[k, m], w3: f32[m], lr: f32):
    h1 = op.tanh(x @ w1)
    h2 = op.tanh(h1 @ w2)
    p = op.sigmoid(h2 @ w3)
    loss = -op.mean(y * op.log(p + 1e-7) + (1.0 - y) * op.log(1.0 - p + 1e-7))
    g = (p - y) / n
    gh2 = g[:, None] * w3[None, :] * (1.0 - h2 * h2)
    gh1 = (gh2 @ w2.T) * (1.0 - h1 * h1)
    return loss, w1 - lr * (x.T @ gh1), w2 - lr * (h1.T @ gh2), w3 - lr * (g @ h2)
"""


def normal(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


LABELS = np.arange(64, dtype=np.int32) % 5
PROGRAMS: dict[str, tuple[str, tuple[Any, ...], int]] = {
    "a training step": (
        MLP, (normal(64, 20), LABELS, normal(20, 32), normal(32), normal(32, 5), normal(5), 0.05),
        14_000,
    ),
    "bodies, two forces": (BODIES, (normal(50, 3), normal(50, 3), normal(50), 0.01), 6_000),
    "a deeper net": (
        DEEP,
        (normal(60, 20), normal(60), normal(20, 32), normal(32, 16), normal(16), 0.1),
        15_000,
    ),
}  # fmt: skip


def given(monkeypatch: pytest.MonkeyPatch, text: str, arguments: tuple[Any, ...]) -> list[str]:
    """The texts that LLVM gets for a call of ``f``, with nothing kept from before."""
    texts: list[str] = []

    def counted(text: str, target: CodeTarget, level: int, stages: tuple[str, ...]) -> Compiled:
        texts.append(text)
        return compile_text(text, target, level, stages)

    for module in (code_deduplication, precompiled_functions):
        monkeypatch.setattr(module, "compile_text", counted)
        module._made.clear()
    text += f"# {uuid.uuid4()}\n"  # no code of an earlier test
    tessera.compile(text, target="cpu").f(*arguments)
    return texts


@pytest.mark.parametrize("name", list(PROGRAMS))
@pytest.mark.sample(1)
def test_lines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, arguments, most = PROGRAMS[name]
    found = given(monkeypatch, text, arguments)
    lines = sum(t.count("\n") for t in found)
    assert found and lines <= most, lines


@pytest.mark.optimized
def test_the_code_of_products_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text, arguments, _ = PROGRAMS["a deeper net"]
    precompiled_functions._made.clear()
    found = given(monkeypatch, text, arguments)
    inner = [t for t in found if 'define internal void @"dot.' in t]
    calling = [t for t in found if ".byte" in t]
    assert len(calling) > len(inner) >= 1
    assert all('define internal void @"dot.' not in t for t in calling)


def test_equal_text_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    target, made = code_target("native"), list[str]()

    def counted(text: str, target: CodeTarget, level: int, stages: tuple[str, ...]) -> Compiled:
        made.append(text)
        return compile_text(text, target, level, stages)

    monkeypatch.setattr(code_deduplication, "compile_text", counted)
    code_deduplication._made.clear()
    form = (
        'target triple = "{}"\ndefine i64 @"{}"(i64 %x) {{\n  %y = add i64 %x, {}\n'
        "  ret i64 %y\n}}\n"
    )
    found: dict[str, int] = {}
    for name, number in (("sum", 3), ("sum__2", 3), ("sum__3", 4)):
        module = CpuModule(form.format(target.triple, name, number), 0, 0)
        code = code_deduplication.compiled_once(module, name, target, 2)()
        loaded = load_object(code, name)
        convention = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
        found[name] = convention(loaded.address)(10)
    assert found == {"sum": 13, "sum__2": 13, "sum__3": 14}
    assert len(made) == 2
