"""What earlier processes found right is not looked at again, and all else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tessera_backend.runtime.cache import CachedProofs, forget_shared_cache

from tessera_lang.driver.session import Session
from tessera_lang.lower.ast_to_tile import kernel as lanes
from tessera_lang.target import runtime

RIGHT = """
@kernel tile[(64,)] grid[(4,)]
def k(x: f32[n], out: mut f32[n]):
    held = tshared.alloc((64,), f32)
    t = tile_linear_id()
    i = grid_tile_linear_id()
    held[t] = x[i] if i < n else 0.0
    tbarrier()
    if i < n: out[i] = held[63 - t]
"""
WITHOUT_BARRIER = RIGHT.replace("    tbarrier()\n", "")
NEIGHBOURS = (
    RIGHT.replace("64", "32").replace("63", "31"), RIGHT.replace("grid[(4,)]", "grid[(5,)]"),
    RIGHT.replace("f32", "f64"), RIGHT.replace("63 - t", "t"), WITHOUT_BARRIER,
)  # fmt: skip


class Kept:
    """Proofs in memory."""

    def __init__(self) -> None:
        self.texts = set[str]()

    def has(self, text: str) -> bool:
        return text in self.texts

    def add(self, text: str) -> None:
        self.texts.add(text)


def check(source: str, proofs: Kept | CachedProofs) -> list[str]:
    session = Session(overlay={"k.tessera": source})
    session.proofs = proofs
    return [d.code for d in session.check("k.tessera")]


def test_a_program_that_was_right_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs, looked = Kept(), list[int]()
    whole = lanes._checks  # pyright: ignore[reportPrivateUsage]

    def looking(*given: Any) -> Any:
        looked.append(1)
        return whole(*given)

    monkeypatch.setattr(lanes, "_checks", looking)
    for _ in range(3):
        assert check(RIGHT, proofs) == []
    assert len(looked) == len(proofs.texts) == 1


def test_what_is_found_is_found_again() -> None:
    proofs = Kept()
    assert check(RIGHT, proofs) == []
    first = check(WITHOUT_BARRIER, proofs)
    assert first and check(WITHOUT_BARRIER, proofs) == first
    assert len(proofs.texts) == 1


@pytest.mark.parametrize("source", NEIGHBOURS)
def test_no_proof_stands_for_another_program(source: str) -> None:
    proofs, alone = Kept(), Kept()
    check(RIGHT, proofs)
    before = set(proofs.texts)
    assert check(source, proofs) == check(source, alone)
    assert not alone.texts & before


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    forget_shared_cache()
    yield tmp_path / "cache"
    forget_shared_cache()


def test_proofs_are_kept_on_disk_for_one_compiler(folder: Path) -> None:
    assert check(RIGHT, CachedProofs("one")) == []
    (entry,) = folder.rglob("*.entry")
    forget_shared_cache()
    again = Kept()
    check(RIGHT, again)
    (text,) = again.texts
    assert CachedProofs("one").has(text)
    assert not CachedProofs("another").has(text)
    entry.write_bytes(entry.read_bytes()[:-1])
    assert not CachedProofs("one").has(text)


def test_the_runtime_is_loaded_for_many_programs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, kept = list[int](), Kept()

    class Installed:
        def proofs(self) -> Kept:
            return kept

    monkeypatch.setattr(runtime, "runtime", lambda: loaded.append(1) or Installed())
    proofs = runtime.InstalledProofs(first=2)
    found = False
    for text in ("a", "b", "c", "c"):
        found = proofs.has(text)
        proofs.add(text)
    assert found and len(loaded) == 1 and kept.texts == {"c"}


def test_a_check_does_without_a_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise LookupError

    monkeypatch.setattr(runtime, "runtime", none)
    proofs = runtime.InstalledProofs(first=0)
    proofs.add("a")
    assert not proofs.has("a")
