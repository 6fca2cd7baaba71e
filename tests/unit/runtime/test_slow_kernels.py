"""What a launch and a build tell of the form of a kernel: once, also where code comes from the
cache, and not for a CPU."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from tessera_backend.runtime import call_diagnostics
from tessera_backend.runtime import signature as signatures
from tessera_backend.runtime.cache import Cache
from tessera_backend.runtime.call_diagnostics import TesseraWarning
from tessera_backend.runtime.compiler import SessionProvider

from tessera_lang.driver.cli import run as tesserac
from tessera_lang.driver.options import from_environment
from tessera_lang.target.backend import TargetOptions

SOURCE = """
@op.kernel
def scan(x: f32[n], y: mut f32[n]):
    acc = 0.0
    for i in op.tile_range(n, step=1024):
        y[i:i+1024] = x[i:i+1024] + acc
        acc += op.sum(x[i:i+1024])


@op.kernel
def spread(x: f32[n], y: mut f32[n]):
    for i in op.tile_range(n, step=1024):
        y[i:i+1024] = x[i:i+1024] * 2.0
"""
TAKEN = (signatures.tensor("f32", 1, True, True), signatures.tensor("f32", 1, True, True))
PTX = TargetOptions("cuda", "sm_90")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "slow.tessera"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def told(provider: SessionProvider, name: str, options: TargetOptions) -> list[str]:
    """The warnings of compiling a kernel, in a process that was told nothing yet."""
    call_diagnostics._told.clear()  # pyright: ignore[reportPrivateUsage]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            provider.compile(name, TAKEN, options)
    assert all(w.category is TesseraWarning for w in seen)
    return [str(w.message) for w in seen]


def test_python_is_told_once_also_from_the_cache(file: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")

    def provider() -> SessionProvider:
        return SessionProvider(str(file), from_environment(), cache=cache)

    first = told(provider(), "scan", PTX)
    assert len(first) == 1 and "T0750" in first[0] and "from the one before" in first[0]
    assert "slow.tessera:5" in first[0] and "for i in op.tile_range" in first[0]
    assert told(provider(), "scan", PTX) == first
    assert told(provider(), "spread", PTX) == []


def test_a_cpu_is_told_nothing(file: Path, tmp_path: Path) -> None:
    provider = SessionProvider(str(file), from_environment(), cache=Cache(tmp_path / "cache"))
    assert told(provider, "scan", TargetOptions("cpu", "native")) == []


def test_a_build_says_it(file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for target, count in ((["--target", "cuda", "--arch", "sm_90"], 1), (["--target", "cpu"], 0)):
        assert tesserac(["build", str(file), "-o", str(tmp_path / "out"), *target]) == 0
        assert capfd.readouterr().err.count("T0750") == count


def test_a_check_says_it_where_a_machine_is_named(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for options, count in (([], 0), (["--arch", "sm_90"], 1), (["--target", "cuda"], 1),
                           (["--target", "cpu"], 0), (["--remarks"], 1)):  # fmt: skip
        assert tesserac(["check", str(file), *options]) == 0
        assert capfd.readouterr().err.count("T0750") == count, options


def test_the_example_of_a_sum_into_one_place_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A loop in order is a warning of its own (T0706); what `check` has printed, a build does not
    repeat but for what it adds."""
    path = tmp_path / "once.tessera"
    path.write_text(
        "@op.kernel\ndef k(x: f32[n], y: mut f32[n]):\n    for i in op.tile_range(n, step=32):\n"
        "        y[i:i+64] = x[i:i+64]\n", encoding="utf-8",
    )  # fmt: skip
    target = ["--target", "cuda", "--arch", "sm_90"]
    assert tesserac(["build", str(path), "-o", str(tmp_path / "out"), *target]) == 0
    said = capfd.readouterr().err
    assert said.count("T0706") == 1 and said.count("T0750") == 1


@pytest.mark.gpu
def test_a_launch_on_a_device_tells_it_once() -> None:
    import tessera_lang as tessera

    module = tessera.compile(SOURCE, target="cuda")
    x, y = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    call_diagnostics._told.clear()  # pyright: ignore[reportPrivateUsage]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            module.scan(x, y)
            module.spread(x, y)
    said = [str(w.message) for w in seen if "T07" in str(w.message)]
    assert len(said) == 1 and "`scan` runs in one group" in said[0]
    assert Path(seen[0].filename).name == Path(__file__).name  # the caller's line
