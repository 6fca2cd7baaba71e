"""Slices of tiles at places of the run and in steps, windows of a length that the run knows, and
axes read backwards: as NumPy has them, on the CPU and as the code of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

Array = np.ndarray[Any, np.dtype[Any]]
ARCHS = ["", "sm_90a", "sm_80"]


def compiled(text: str) -> Any:
    return tessera.compile(f"@op.kernel\n{text}", target="cpu")


def called(text: str, *arguments: Any) -> None:
    compiled(text).k(*arguments)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("n", [10, 100, 300])
@pytest.mark.sample(1)
def test_a_window_of_a_length_of_the_run(
    arch: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    m = compiled(
        "def k(x: f32[n], y: mut f32[n], r: i32):\n"
        "    for i in op.tile_range(n, step=1):\n"
        "        y[i] = op.sum(op.window(x, i - r, min(2 * r + 1, 33), fill=1.0))\n"
    )
    x = numbers(n)
    for r in (-2, -1, 0, 1, 5, 16, 17, 40):
        y = np.zeros_like(x)
        m.k(x, y, r)
        count = max(0, min(2 * r + 1, 33))
        right = [
            sum(x[j] if 0 <= j < n else 1.0 for j in range(i - r, i - r + count)) for i in range(n)
        ]
        np.testing.assert_array_equal(y, np.asarray(right, np.float32))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("n", [33, 128, 300])
@pytest.mark.parametrize("made", ["op.cumsum(x[i, :])", "x[i, :] * 2.0"])
@pytest.mark.sample(6)
def test_a_slice_from_a_place_of_the_run(
    arch: str, n: int, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    m = compiled(
        "def k(x: f32[m, n], y: mut f32[m], at: u32):\n"
        "    for i in op.tile_range(m, step=1):\n"
        f"        t = {made}\n"
        "        y[i] = op.sum(t[at:at+16]) + op.sum(t[at:])\n"
    )
    x = numbers(3, n)
    t = np.cumsum(x, 1) if "cumsum" in made else 2 * x
    for at in (0, 1, n - 20, n - 16, n - 15, n - 1, n, n + 1, n + 500):
        y = np.zeros(3, np.float32)
        m.k(x, y, at)
        np.testing.assert_array_equal(y, t[:, at : at + 16].sum(1) + t[:, at:].sum(1))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("part", ["::2", "1::3", "5:100:7", "3:128:2", "::-1", "100:300:4"])
@pytest.mark.parametrize("made", ["op.cumsum(x[i, :])", "x[i, :] * 2.0"])
@pytest.mark.sample(6)
def test_a_slice_in_steps(arch: str, part: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_ARCH_AS", arch)
    m = compiled(
        "def k(x: f32[m, 128], y: mut f32[m]):\n"
        "    for i in op.tile_range(m, step=1):\n"
        f"        t = {made}\n"
        f"        s = t[{part}]\n"
        "        y[i] = op.sum(s * op.arange(s.shape[0]).to(f32))\n"
    )
    x = numbers(3, 128)
    t = np.cumsum(x, 1) if "cumsum" in made else 2 * x
    found = eval(f"t[:, {part}]", {"t": t})
    y = np.zeros(3, np.float32)
    m.k(x, y)
    np.testing.assert_array_equal(y, (found * np.arange(found.shape[1])).sum(1))


REFUSED = [
    ("y[0:8] = x[0:64:s]", "T0606", "op.arange(32)"),
    ("y[::-1] = x[:]", "T0606", "op.flip"),
    ("y[0:8] = x[20:4:-2]", "T0606", "op.flip"),
    ("y[0] = op.sum(op.window(x, 0, s))", "T0608", "min(s, 64)"),
    (
        "for i in op.tile_range(1):\n        y[:] = op.cumsum(x[0:8192])[::2]",
        "T0700",
        "store it into an array",
    ),
]


@pytest.mark.parametrize(("line", "code", "says"), REFUSED)
def test_what_is_refused_says_what_works(line: str, code: str, says: str) -> None:
    text = f"def k(x: f32[n], y: mut f32[h], s: i32):\n    {line}\n"
    with pytest.raises(tessera.TesseraError) as caught:
        called(text, np.zeros(8192, np.float32), np.zeros(4096, np.float32), 2)
    assert [d.code for d in caught.value.diagnostics] == [code]
    assert says in str(caught.value)
