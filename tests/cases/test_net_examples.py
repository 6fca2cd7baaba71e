"""The nets and the filter of the examples, on arrays that are made here: short trainings, and the
filter beside sums in NumPy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera_lang.driver.cli import run

EXAMPLES = Path(__file__).parents[2] / "examples"


def _smaller(name: str, **sizes: int) -> str:
    """The program with other numbers at its top."""
    text = (EXAMPLES / name / f"{name}.tessera").read_text(encoding="utf-8")
    for one, size in sizes.items():
        text, count = re.subn(rf"^{one} = \d+", f"{one} = {size}", text, flags=re.M)
        assert count == 1
    return text


def _digits(folder: Path) -> None:
    """Pictures that differ in where they are bright."""
    folder.mkdir(exist_ok=True)
    labels = np.arange(100, dtype=np.int32) % 10
    images = np.random.default_rng(1).uniform(0.0, 0.3, (100, 1, 8, 8)).astype(np.float32)
    images.reshape(100, 64)[np.arange(100), labels * 6] += 0.7
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)


@pytest.mark.slow
def test_the_net_learns_digits(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _digits(tmp_path)
    (tmp_path / "digits.tessera").write_text(_smaller("digits", STEPS=40, BATCH=20))
    assert run(["run", str(tmp_path / "digits.tessera"), "--target=cpu"]) == 0
    losses = np.load(tmp_path / "losses.npy")
    assert losses.shape == (40,) and losses[-5:].mean() < losses[:5].mean() - 0.5
    assert "% right" in capfd.readouterr().out


@pytest.mark.slow
def test_the_net_learns_to_take_noise_away(tmp_path: Path) -> None:
    _digits(tmp_path / "digits")
    (tmp_path / "denoise").mkdir()
    file = tmp_path / "denoise" / "denoise.tessera"
    file.write_text(_smaller("denoise", STEPS=12, BATCH=8, WIDTH=4))
    assert run(["run", str(file), "--target=cpu"]) == 0
    losses = np.load(file.parent / "losses.npy")
    assert losses[-3:].mean() < 0.7 * losses[:3].mean()
    assert np.load(file.parent / "shown.npy").shape == (36, 1, 8, 8)


@pytest.mark.slow
def test_the_filter_is_a_sum_over_a_disc(tmp_path: Path) -> None:
    x = np.random.default_rng(2).uniform(0.1, 1.0, (3, 17, 23)).astype(np.float32)
    np.save(tmp_path / "picture.npy", x)
    (tmp_path / "blur.tessera").write_text(_smaller("blur", RADIUS=3))
    assert run(["run", str(tmp_path / "blur.tessera"), "--target=cpu"]) == 0
    light = np.pad(x.astype(np.float64) ** 2.2, ((0, 0), (3, 3), (3, 3)), mode="reflect")
    parts: list[Any] = [
        light[:, 3 + a : 20 + a, 3 + b : 26 + b]
        for a in range(-3, 4) for b in range(-3, 4) if a * a + b * b <= 9
    ]  # fmt: skip
    wanted = np.mean(parts, axis=0) ** (1.0 / 2.2)
    np.testing.assert_allclose(np.load(tmp_path / "blurred.npy"), wanted, rtol=0.0, atol=1e-5)
