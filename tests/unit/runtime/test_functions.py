"""Plain functions called from Python, on the host; on a device see test_gpu.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tessera_backend.runtime import cache

import tessera_lang as tessera
from tessera_lang.diagnostics import TesseraError

TEXT = """\
@kernel tile[(64,)] grid[(ceil_div(n, 64),)]
def scale(x: f32[n], a: f32, out: mut f32[n]):
    i = grid_tile_linear_id()
    if i < n:
        out[i] = x[i] * a

def doubled(x, times=1):
    for k in range(times):
        out = op.zeros(x.shape, f32)
        scale(x, 2.0, out)
        x = out
    return x

def both(x):
    return doubled(x), x.shape[0]

def wrong(x):
    return x[99]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    cache.forget_shared_cache()
    (tmp_path / "f.tessera").write_text(TEXT)
    yield tessera.load(tmp_path / "f.tessera", target="cpu")
    cache.forget_shared_cache()


def test_functions_take_and_give_arrays(module: Any) -> None:
    x = np.arange(5, dtype=np.float32)
    assert module.doubled(x).tolist() == [0, 2, 4, 6, 8]
    assert module.doubled(x, times=3).tolist() == [0, 8, 16, 24, 32]
    assert x.tolist() == [0, 1, 2, 3, 4]
    first, size = module.both(x)
    assert first.tolist() == [0, 2, 4, 6, 8] and size == 5
    assert {"doubled", "both", "scale"} <= set(dir(module))


def test_faults_show_the_line(module: Any) -> None:
    x = np.zeros(5, np.float32)
    with pytest.raises(TesseraError, match=r"x\[99\]"):
        module.wrong(x)
    with pytest.raises(TesseraError):
        module.doubled()
    with pytest.raises(TesseraError):
        module.doubled(x, nothing=1)


def test_standard_library_by_name(module: Any) -> None:
    reduce = tessera.load("std.reduce", target="cpu")
    x = np.random.default_rng(2).random((30, 40), np.float32)
    assert np.allclose(reduce.sum(x), x.sum(), rtol=1e-5)
    assert reduce.max(x, axis=1).tolist() == x.max(1).tolist()


def test_a_workspace_that_is_left_dirty_is_reported() -> None:
    """At the launch that did it, each time; the next call has zeros again."""
    module = tessera.compile(
        """\
@kernel tile[(32,)] grid[(1,)]
def leave(w: mut i32[4], value: i32, out: mut i32[1]):
    if tile_linear_id() == 0:
        out[0] = w[1]
        w[1] = value

def run(value):
    out = op.zeros((1,), i32)
    leave(op.workspace((4,), dtype=i32), value, out)
    return out
""",
        target="cpu",
    )
    for value in (0, 7, 0, -1, 0):
        if not value:
            assert module.run(np.int32(0)).tolist() == [0]
            continue
        with pytest.raises(TesseraError) as caught:
            module.run(np.int32(value))
        (found,) = caught.value.diagnostics
        assert found.code == "T0854"
        assert "leave" in found.message and found.span is not None


def test_what_a_call_shows_ends_with_its_line() -> None:
    """The text of a condition may be longer than what stands in the source."""
    text = (
        "@op.kernel\ndef f(x: f32[m, n], out: mut f32[m, k]):\n    out[:, 0:4:2] = x\n\n\n# more\n"
    )
    with pytest.raises(TesseraError) as caught:
        tessera.compile(text, target="cpu").f(
            np.ones((3, 4), np.float32), np.ones((3, 4), np.float32)
        )
    (found,) = caught.value.diagnostics
    assert found.code == "T0838" and found.span is not None
    assert "\n" not in text[found.span.start : found.span.end]


def test_what_a_function_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The same in the first call and in later ones, and no line more than the program says."""
    text = 'def f(x):\n    print("sum", 1, sep="-", end=";")\n    print(op.sum(x))\n'
    module = tessera.compile(text, target="cpu")
    for _ in range(3):
        module.f(np.ones(3, np.float32))
        assert capsys.readouterr().out == "sum-1;3.0\n"
