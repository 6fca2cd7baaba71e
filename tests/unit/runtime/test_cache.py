from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tessera_backend.runtime.cache import MAGIC, Cache, key_of, pack_entry, unpack_entry
from tessera_backend.runtime.call_diagnostics import TesseraWarning

KEY = key_of(["some", "parts"])
posix = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def file_of(cache: Cache) -> Path:
    assert cache.directory is not None
    return next(cache.directory.glob("*/*.entry"))


def test_key_depends_on_where_parts_end() -> None:
    assert key_of(["ab", "c"]) != key_of(["a", "bc"]) != key_of(["abc"])
    assert key_of(["a", ""]) != key_of(["a"])


def test_what_is_put_is_got(cache: Cache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, {"plan": [1, {"a": None}]}, b"\x00code")
    found = Cache(cache.directory).get(KEY)
    assert found is not None
    assert (found.header["plan"], found.payload) == ([1, {"a": None}], b"\x00code")


@posix
def test_folder_is_the_users_own(cache: Cache) -> None:
    cache.put(KEY, {}, b"")
    assert cache.directory is not None
    assert cache.directory.stat().st_mode & 0o777 == 0o700
    assert file_of(cache).stat().st_mode & 0o077 == 0


class Hostile:
    def __reduce__(self) -> object:
        return (os.abort, ())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"x",
        lambda data: b"TESSERA cache 0\n" + data[len(MAGIC) :],
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: data[:-33] + bytes([data[-33] ^ 1]) + data[-32:],
        lambda data: pickle.dumps(Hostile()),
        lambda data: MAGIC + b"\xff" * 64,
        lambda data: MAGIC + b"\0" * (1 << 20),
        lambda data: pack_entry(key_of(["other"]), {}, b"other"),
        lambda data: pack_entry(KEY, {}, b"")[:16] + b"{" * 5000,
    ],
)
def test_anything_else_is_a_miss_and_written_anew(cache: Cache, damage: object) -> None:
    """B158 security: tilelang#2817. Nothing in an entry is executed."""
    cache.put(KEY, {"a": 1}, b"payload")
    path = file_of(cache)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    fresh = Cache(cache.directory)
    assert fresh.get(KEY) is None
    fresh.put(KEY, {"a": 1}, b"payload")
    found = fresh.get(KEY)
    assert found is not None and found.payload == b"payload"


def test_every_single_bit_counts() -> None:
    data = pack_entry(KEY, {"a": 1}, b"pay")
    assert unpack_entry(KEY, data) is not None
    for at in range(len(data)):
        garbled = bytearray(data)
        garbled[at] ^= 1 << (at % 8)
        assert unpack_entry(KEY, bytes(garbled)) is None


@posix
def test_links_and_pipes_are_not_followed(cache: Cache, tmp_path: Path) -> None:
    cache.put(KEY, {}, b"x")
    path = file_of(cache)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert cache.get(KEY) is None
    path.unlink()
    os.mkfifo(path)
    assert cache.get(KEY) is None
    path.unlink()
    path.mkdir()
    assert cache.get(KEY) is None


@posix
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    cache = Cache(folder)
    with pytest.warns(TesseraWarning, match="T0848") if not _told() else _nothing():
        cache.put(KEY, {}, b"x")
    assert "other users" in cache.problem
    assert list(folder.iterdir()) == []
    found = cache.get(KEY)
    assert found is not None and found.payload == b"x"


def _told() -> bool:
    from tessera_backend.runtime import call_diagnostics

    return "cache" in call_diagnostics._told


def _nothing() -> object:
    import contextlib

    return contextlib.nullcontext()


@pytest.mark.parametrize("kind", ["file", "below a file", "full"])
def test_unusable_places_leave_memory(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    from tessera_backend.runtime import call_diagnostics

    monkeypatch.setattr(call_diagnostics, "_told", set())
    place = tmp_path / "place"
    if kind != "full":
        place.write_bytes(b"")
    cache = Cache(place / "deeper" if kind == "below a file" else place)
    if kind == "full":

        def write(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", write)
    for _ in range(3):
        cache.put(KEY, {"n": 1}, b"x")
        found = cache.get(KEY)
        assert found is not None and found.payload == b"x"
    notes = [w for w in recwarn if issubclass(w.category, TesseraWarning)]
    assert len(notes) == 1 and "T0848" in str(notes[0].message)
    assert not list(tmp_path.rglob(".new-*"))


def test_switched_off() -> None:
    cache = Cache(None)
    cache.put(KEY, {}, b"x")
    assert cache.stats().entries == 0
    assert cache.get(KEY) is not None


def test_eviction_goes_by_last_use(cache: Cache) -> None:
    keys = [key_of([str(i)]) for i in range(8)]
    for i, key in enumerate(keys):
        cache.put(key, {}, bytes(1000))
        then = time.time() - 1000 + i
        os.utime(cache._path(key), (then, then))
    assert cache.get(keys[0]) is not None  # used now
    size = cache.stats().size // 8
    cache.prune(3 * size + 10)
    left = [key for key in keys if Cache(cache.directory).get(key) is not None]
    assert left == [keys[0], keys[6], keys[7]]
    assert cache.clear() > 0 and cache.stats().entries == 0


def test_clear_leaves_an_empty_folder_that_may_be_written_meanwhile(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put(KEY, {}, b"code")
    assert cache.directory is not None
    assert cache.clear() > 0 and not list(cache.directory.iterdir())
    made = tempfile.mkstemp

    def cleared_before(*args: object, **options: object) -> object:
        monkeypatch.setattr(tempfile, "mkstemp", made)
        cache.clear()
        return made(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(tempfile, "mkstemp", cleared_before)
    cache.put(KEY, {}, b"code")
    assert file_of(cache) and not cache.problem


def test_left_over_files_go_after_an_hour(cache: Cache) -> None:
    cache.put(KEY, {}, b"x")
    stale = file_of(cache).parent / ".new-abc"
    stale.write_bytes(b"half")
    cache.prune(cache.limit)
    assert stale.exists()
    os.utime(stale, (1, 1))
    cache.prune(cache.limit)
    assert not stale.exists() and file_of(cache).exists()


def test_processes_that_write_share_a_scan(cache: Cache) -> None:
    """Each begins with a write. A scan for each would cost more than what most of them compile."""
    assert cache.directory is not None
    for i in range(8):  # a limit that holds one entry
        Cache(cache.directory, 1500).put(key_of([str(i)]), {}, bytes(1000))
    assert cache.stats().entries == 8
    (mark,) = (p for p in cache.directory.iterdir() if p.is_file())
    for then in (time.time() - 61, time.time() + 1000):  # a clock may have been set back
        os.utime(mark, (then, then))
        for i in range(3):
            Cache(cache.directory, 1500).put(key_of(["more", str(i)]), {}, bytes(1000))
        assert cache.stats().entries == 3


WRITER = """
import sys
from pathlib import Path
from tessera_backend.runtime.cache import Cache, key_of
cache = Cache(Path(sys.argv[1]), 200_000)
for i in range(150):
    key = key_of([str(i % 20)])
    found = cache.get(key)
    if found is not None:
        assert found.payload == bytes([i % 20]) * 5000, "mixed up"
    cache.put(key, {"i": i % 20}, bytes([i % 20]) * 5000)
    if i % 50 == 49:
        cache.prune(60_000)
"""


def test_eight_processes_write_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "shared")]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(8)]
    for process in running:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors.decode()
        assert not errors
    cache = Cache(tmp_path / "shared")
    assert cache.stats().entries > 0
