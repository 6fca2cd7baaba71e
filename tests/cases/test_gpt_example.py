"""The GPT of the examples: its loss and gradient beside NumPy in float64, and a short training."""

from __future__ import annotations

import re
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera
from tessera_lang.driver.cli import run

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "examples" / "gpt" / "gpt.tessera").read_text(encoding="utf-8")
CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 12, 16, 2, 1, 3


def smaller(steps: int = 0) -> str:
    """The program with fewer of everything; without its training for 0 steps."""
    text = TEXT if steps else TEXT[: TEXT.index('text = op.load("text.npy")')]
    sizes = {"CONTEXT": CONTEXT, "WIDTH": WIDTH, "HEADS": HEADS, "LAYERS": LAYERS, "BATCH": BATCH,
             "STEPS": steps}  # fmt: skip
    for name, size in sizes.items():
        text = re.sub(rf"^{name} = \d+", f"{name} = {size}", text, flags=re.M)
    return text


def _norm(x: Any, gain: Any) -> Any:
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * gain


def _softmax(z: Any) -> Any:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _gelu(v: float) -> float:
    return 0.5 * v * (1.0 + erf(v / sqrt(2.0)))


def loss_by_numpy(p: dict[str, Any], letters: Any, following: Any) -> float:
    gelu: Any = np.vectorize(_gelu)
    x = p["letters"][letters] + p["places"]
    b, t, d = x.shape
    hidden = np.triu(np.full((t, t), -np.inf), 1)
    for i in range(LAYERS):
        y = _norm(x, p[f"before attention {i}"])
        q, k, v = (
            (y @ p[f"{n}{i}"]).reshape(b, t, HEADS, d // HEADS).swapaxes(1, 2) for n in "qkv"
        )
        s = _softmax(q @ k.swapaxes(2, 3) / np.sqrt(d // HEADS) + hidden)
        x = x + (s @ v).swapaxes(1, 2).reshape(b, t, d) @ p[f"o{i}"]
        x = x + gelu(_norm(x, p[f"before mlp {i}"]) @ p[f"up{i}"]) @ p[f"down{i}"]
    z = _norm(x, p["end"]) @ p["letters"].T
    top = z.max(-1, keepdims=True)
    total = np.log(np.exp(z - top).sum(-1)) + top[..., 0]
    return float(np.mean(total - np.take_along_axis(z, following[..., None], 2)[..., 0]))


@pytest.mark.slow
def test_loss_and_gradient_beside_numpy() -> None:
    module = tessera.compile(smaller(), target="cpu")
    rng: Any = np.random.default_rng(1)
    d = WIDTH
    shapes: dict[str, tuple[int, ...]] = {"letters": (96, d), "places": (CONTEXT, d), "end": (d,)}
    for i in range(LAYERS):
        shapes |= {f"before attention {i}": (d,), f"before mlp {i}": (d,), f"up{i}": (d, 4 * d),
                   f"down{i}": (4 * d, d), **{f"{n}{i}": (d, d) for n in "qkvo"}}  # fmt: skip
    p = {n: rng.uniform(-0.5, 0.5, s) + (len(s) == 1) for n, s in shapes.items()}
    letters = rng.integers(0, 96, (BATCH, CONTEXT)).astype(np.int32)
    following = rng.integers(0, 96, (BATCH, CONTEXT)).astype(np.int32)
    value, g = tessera.value_and_grad(module.loss)(p, letters, following)
    np.testing.assert_allclose(value, loss_by_numpy(p, letters, following), rtol=1e-10)
    moves = {n: rng.uniform(-1.0, 1.0, v.shape) for n, v in p.items()}
    for names in (list(p), ["letters"], ["q0", "k0"], ["up0", "before mlp 0"]):
        sides = [
            loss_by_numpy({n: v + h * moves[n] * (n in names) for n, v in p.items()},
                          letters, following) for h in (1e-5, -1e-5)
        ]  # fmt: skip
        there = sum(float(np.sum(g[n] * moves[n])) for n in names)
        np.testing.assert_allclose(there, (sides[0] - sides[1]) / 2e-5, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_the_loss_falls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpt.tessera").write_text(smaller(25).replace(", 200))", ", 3))"))
    np.save(tmp_path / "text.npy", np.resize(np.arange(40, 52, dtype=np.uint8), 600))
    assert run(["run", str(tmp_path / "gpt.tessera"), "--target=cpu"]) == 0
    losses = np.load(tmp_path / "losses.npy")
    assert losses.shape == (25,) and losses[0] > 4.0 and losses[-1] < losses[0] - 0.3, (
        capfd.readouterr()
    )
