"""``tessera.bench``: whose clock, what it gives, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera_lang as tessera

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tuning.md"
SOURCE = """
def twice(x):
    return x + x


@kernel tile[(128,)] grid[(ceil_div(n, 128),)]
def scale(x: mut f32[n], factor: f32):
    i = grid_tile_linear_id()
    if i < n:
        x[i] = x[i] * factor
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return tessera.compile(SOURCE, target="cpu")


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_functions_kernels_and_callables(module: Any, cache: Any) -> None:
    x = np.ones(1000, np.float32)
    found = tessera.bench(
        module.twice, x, peers={"numpy": lambda x: x + x, "own": module.twice},
        cache=cache, seconds=0.02,
    )  # fmt: skip
    assert found.own.name == "twice"
    assert list(found.peers) == ["numpy", "own"]
    assert found.own.clock == "monotonic clock"
    for m in (found.own, *found.peers.values()):
        assert 0 < m.least <= m.low <= m.seconds <= m.high <= max(m.samples)
        assert m.cache == cache
        assert not m.host_bound
    assert found.speedup("numpy") == found.peers["numpy"].seconds / found.seconds
    assert json.loads(json.dumps(found.as_dict()))["own"]["samples"] == list(found.own.samples)
    assert len(str(found).splitlines()) == 3
    kernel = tessera.bench(module.scale, x, 1.0, cache=cache, seconds=0.02)
    assert kernel.own.name == "scale"
    assert kernel.peers == {}


@pytest.mark.parametrize(
    "named",
    [{"cache": "flushed"}, {"seconds": 0}, {"seconds": -1.0}, {"precision": 0.0},
     {"precision": 1.5}, {"seconds": float("nan")}, {"seconds": 4000}],
)  # fmt: skip
def test_numbers_and_words_outside_are_refused(module: Any, named: Any) -> None:
    with pytest.raises(tessera.TesseraError, match="T0859"):
        tessera.bench(module.twice, np.ones(4, np.float32), **named)


@pytest.mark.parametrize(
    "named",
    [{"peers": [1]}, {"peers": {"a": 1}}, {"peers": {1: len}}, {"seconds": "1"},
     {"precision": None}, {"device": "gpu"}, {"device": True}],
)  # fmt: skip
def test_arguments_of_other_types_are_refused(module: Any, named: Any) -> None:
    with pytest.raises(TypeError):
        tessera.bench(module.twice, np.ones(4, np.float32), **named)


def test_something_that_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="can be called"):
        tessera.bench(1)  # type: ignore[arg-type]


def test_what_the_call_refuses_is_told_as_by_the_call(module: Any) -> None:
    with pytest.raises(tessera.TesseraError, match="T0830"):
        tessera.bench(module.scale, np.ones(4, np.float32))


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    exec(block, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"# prints (.*)$", block, re.M)


@pytest.mark.gpu
@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_on_a_device(cache: Any) -> None:
    module = tessera.compile(SOURCE, target="auto")
    x = tessera.to_device(np.ones(1 << 24, np.float32))
    found = tessera.bench(module.scale, x, 1.0, cache=cache, seconds=0.1)
    assert found.own.clock == "events of device 0"
    assert 1e-6 < found.own.least <= found.seconds < 1e-2
    assert not found.own.host_bound


@pytest.mark.gpu
def test_a_short_launch_is_the_time_of_the_host() -> None:
    module = tessera.compile(SOURCE, target="cuda")
    x = tessera.to_device(np.ones(4, np.float32))
    assert tessera.bench(module.scale, x, 1.0, seconds=0.1).own.host_bound
