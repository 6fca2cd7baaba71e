"""The number of threads of the CPU target: the variable, the option, the function."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tessera_backend.cpu import thread_count, thread_pool

import tessera_lang as tessera
from tessera_lang.driver.cli import run as tesserac

SLOW = """
@kernel tile[(64,)] grid[(64,)]
def count(out: mut i64[64]):
    total = i64(0)
    for k in range(200000): total = total * 3 + i64(k)
    if tile_linear_id() == 0: out[group_linear_id()] = total
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    thread_count.set_thread_count(None)


def helpers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many threads each launch that wakes any wants."""
    asked: list[int] = []
    run = thread_pool._Pool.run

    def noted(self: thread_pool._Pool, work: object, threads: int) -> float:
        asked.append(threads)
        return run(self, work, threads)  # type: ignore[arg-type]

    monkeypatch.setattr(thread_pool._Pool, "run", noted)
    return asked


def test_a_launch_has_the_threads_that_were_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was prepared before: the number may change between two launches."""
    kernel = tessera.compile(SLOW, target="cpu").count
    asked, out = helpers(monkeypatch), np.zeros(64, np.int64)
    for number in (3, 1, 5, 2):
        tessera.set_num_threads(number)
        assert tessera.get_num_threads() == number
        asked.clear()
        out[:] = 0
        kernel(out)
        kernel(out)
        assert asked == [number] * len(asked) and bool(asked) == (number > 1)
        assert len(set(out.tolist())) == 1 and out[0] != 0


@pytest.mark.parametrize(
    "text", ["0", "-1", "257", "two", "1.5", "1e2", "\u0662", "9" * 5000, "000000256999"]
)
def test_a_variable_that_is_no_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NUM_THREADS", text)
    tessera.set_num_threads(None)
    kernel = tessera.compile(SLOW, target="cpu").count
    for call in (tessera.get_num_threads, lambda: kernel(np.zeros(64, np.int64))):
        with pytest.raises(tessera.TesseraError, match="TESSERA_NUM_THREADS") as caught:
            call()
        assert [d.code for d in caught.value.diagnostics] == ["T0856"]


@pytest.mark.parametrize("value", [0, -3, 257, 10**30, 1.5, "2", True])
def test_a_value_that_is_no_number(value: object) -> None:
    tessera.set_num_threads(2)
    with pytest.raises(tessera.TesseraError) as caught:
        tessera.set_num_threads(value)  # type: ignore[arg-type]
    assert [d.code for d in caught.value.diagnostics] == ["T0856"]
    assert tessera.get_num_threads() == 2


@pytest.mark.parametrize(("text", "number"), [("1", 1), (" 7 ", 7), ("256", 256)])
def test_the_variable(text: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NUM_THREADS", text)
    tessera.set_num_threads(None)
    assert tessera.get_num_threads() == number


def test_another_thread_sees_the_number() -> None:
    tessera.set_num_threads(4)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(tessera.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [4]


@pytest.mark.parametrize(("number", "status"), [("3", 0), ("0", 3), ("257", 3), ("x", 2)])
def test_the_option(
    number: str, status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "count.tessera"
    path.write_text(SLOW + "out = op.zeros((64,), dtype=i64)\ncount(out)\n", encoding="utf-8")
    found = tesserac(["run", str(path), "--target", "cpu", "--threads", number])
    said = capfd.readouterr().err
    assert found == status, said
    if status == 3:
        assert "T0856" in said
    elif status == 0:
        assert tessera.get_num_threads() == 3


def test_the_option_is_not_for_a_gpu(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "count.tessera"
    path.write_text(SLOW, encoding="utf-8")
    assert tesserac(["run", str(path), "--target", "cuda", "--threads", "2"]) == 2
    assert "--threads is for kernels on the CPU" in capfd.readouterr().err
    monkeypatch.setattr("tessera_lang.driver.commands.run.decided_target", lambda _: ("cuda", ""))
    monkeypatch.setattr("tessera_lang.driver.commands.run.refusal", lambda _: None)
    tesserac(["run", str(path), "--threads", "2"])
    assert "target: cuda (--threads is for kernels on the CPU)" in capfd.readouterr().err
