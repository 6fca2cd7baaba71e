"""The compile cache on disk: entries found by the hash of everything they depend on.

One file an entry: magic, header (JSON), payload, digest of all of it. Whatever is not
exactly that is a miss and is written anew; nothing in an entry is ever executed before its
digest agrees, and nothing is unpickled. Many processes may share a folder: an entry appears
by one rename. Must not know what is cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tessera_backend.runtime.call_diagnostics import diagnostic, tell_once
from tessera_lang.locks import free_lock
from tessera_lang.record import dataclass

MAGIC = b"TESSERA cache 1\n"
DEFAULT_LIMIT = 1 << 30
_MAX_ENTRY = 256 << 20
_MAX_HEADER = 64 << 20
_SUFFIX = ".entry"
_LENGTHS = struct.Struct("<QQ")
_STALE_SECONDS = 3600.0
_SCAN_EVERY = 32  # writes of one process
_SCAN_SECONDS = 60.0  # between two scans, whichever processes make them
_SCANNED = "last-scan"
_TRIES = 8  # to make a folder that others remove


def key_of(parts: Iterable[str]) -> str:
    """SHA-256 over the parts, each with its length before it."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    header: dict[str, Any]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Stats:
    """``limit`` and ``size`` in bytes; ``problem`` says why nothing is kept, if so."""

    directory: str
    entries: int
    size: int
    limit: int
    problem: str = ""


def pack_entry(key: str, header: dict[str, Any], payload: bytes) -> bytes:
    """The bytes of a file."""
    text = json.dumps({"key": key, **header}, separators=(",", ":"), sort_keys=True).encode()
    body = MAGIC + _LENGTHS.pack(len(text), len(payload)) + text + payload
    return body + hashlib.sha256(body).digest()


def unpack_entry(key: str, data: bytes) -> Entry | None:
    """The entry in the bytes of a file, or None for anything but a whole entry of the key."""
    start = len(MAGIC) + _LENGTHS.size
    if not data.startswith(MAGIC) or len(data) < start + 32:
        return None
    header_size, payload_size = _LENGTHS.unpack_from(data, len(MAGIC))
    if header_size > _MAX_HEADER or start + header_size + payload_size + 32 != len(data):
        return None
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        return None
    try:
        header = json.loads(data[start : start + header_size])
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict) or header.get("key") != key:  # type: ignore[union-attr]
        return None
    return Entry(header, data[start + header_size : -32])  # type: ignore[arg-type]


class Cache:
    """A folder of entries, or memory only where there is none to be had."""

    def __init__(self, directory: Path | None, limit: int = DEFAULT_LIMIT) -> None:
        self.directory = directory
        self.limit = limit
        self.problem = "" if directory is not None else "switched off by TESSERA_CACHE"
        self._checked = False
        self._memory: dict[str, Entry] = {}
        self._lock = free_lock()
        self._writes = 0

    # --- reading --------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        """The entry of a key, or None. Never raises."""
        known = self._memory.get(key)
        if known is not None:
            return known
        if not self._usable():
            return None
        path = self._path(key)
        try:
            data = _read_own_file(path)
        except OSError:
            return None
        entry = unpack_entry(key, data)
        if entry is not None:
            with contextlib.suppress(OSError):
                os.utime(path)  # the eviction goes by last use
        return entry

    def put(self, key: str, header: dict[str, Any], payload: bytes) -> None:
        """Keep an entry; on disk where that works. Never raises."""
        if not self._usable():
            self._remember(key, Entry({"key": key, **header}, payload))
            return
        try:
            self._write(self._path(key), pack_entry(key, header, payload))
        except OSError as fault:
            self._remember(key, Entry({"key": key, **header}, payload))
            self._give_up(f"{self.directory}: {fault.strerror or fault}")
            return
        self._writes += 1
        if self._writes % _SCAN_EVERY == 1 and self._scan_is_due():
            self.prune(self.limit)

    def _remember(self, key: str, entry: Entry) -> None:
        with self._lock:
            if len(self._memory) >= 256:
                self._memory.clear()
            self._memory[key] = entry

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / key[:2] / (key[2:] + _SUFFIX)

    def _new_file(self, folder: Path) -> tuple[int, str]:
        """An open file in a folder that another process may remove meanwhile: it clears."""
        import tempfile

        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                folder.mkdir(mode=0o700, exist_ok=True)
                return tempfile.mkstemp(prefix=".new-", dir=folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        return tempfile.mkstemp(prefix=".new-", dir=folder)

    def _write(self, path: Path, data: bytes) -> None:
        handle, name = self._new_file(path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    # --- the folder -----------------------------------------------------------------------

    def _usable(self) -> bool:
        if not self._checked:
            with self._lock:
                if not self._checked:
                    problem = self.problem or _prepare(self.directory)
                    if problem and not self.problem:
                        self._give_up(problem)
                    self._checked = True
        return not self.problem

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        tell_once("cache", diagnostic(
            "T0848", f"compiled kernels are kept in memory only: {problem}", severity="note",
            helps=("name a folder of your own in TESSERA_CACHE_DIR, or set TESSERA_CACHE=off",),
        ))  # fmt: skip

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """(last use, bytes, path) of every file in the folder."""
        if self.directory is None:
            return
        for folder in _subfolders(self.directory):
            with contextlib.suppress(OSError), os.scandir(folder) as found:
                for file in found:
                    with contextlib.suppress(OSError):
                        status = file.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            yield status.st_mtime, status.st_size, file.path

    def _scan_is_due(self) -> bool:
        """Whether no process has looked at the whole folder lately. A folder of a GiB may hold
        200,000 entries, which take a second: too much for each process that writes one."""
        assert self.directory is not None
        mark = self.directory / _SCANNED
        with contextlib.suppress(OSError):
            if 0 <= time.time() - mark.stat().st_mtime < _SCAN_SECONDS:
                return False
        with contextlib.suppress(OSError):
            mark.touch(mode=0o600)
        return True

    def stats(self) -> Stats:
        entries = size = 0
        for _, bytes_, path in self._files():
            entries += path.endswith(_SUFFIX)
            size += bytes_
        self._usable()
        return Stats(str(self.directory or ""), entries, size, self.limit, self.problem)

    def clear(self) -> int:
        """Remove every entry, and the folders that hold nothing then; the bytes freed."""
        self._memory.clear()
        freed = _remove(self._files())
        if self.directory is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.directory / _SCANNED)
            for folder in _subfolders(self.directory):
                with contextlib.suppress(OSError):  # another process wrote into it meanwhile
                    os.rmdir(folder)
        return freed

    def prune(self, limit: int) -> int:
        """Remove what was not used for longest until ``limit`` bytes are left; bytes freed."""
        now = time.time()
        files = sorted(self._files())
        stale = [f for f in files if not f[2].endswith(_SUFFIX) and now - f[0] > _STALE_SECONDS]
        freed = _remove(stale)
        entries = [f for f in files if f[2].endswith(_SUFFIX)]
        excess = sum(size for _, size, _ in entries) - limit
        for file in entries:
            if excess <= 0:
                break
            excess -= file[1]
            freed += _remove([file])
        return freed


def _remove(files: Iterable[tuple[float, int, str]]) -> int:
    freed = 0
    for _, size, path in list(files):
        with contextlib.suppress(OSError):
            os.unlink(path)
            freed += size
    return freed


def _subfolders(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as found:
            return sorted(
                f.path for f in found if len(f.name) == 2 and f.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def _read_own_file(path: Path) -> bytes:
    """The bytes of a regular file of ours. Raises OSError for a link or somebody else's."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_ENTRY:
            raise OSError("not an entry")
        if _foreign(status):
            raise OSError("not ours")
        return file.read(_MAX_ENTRY)


def _foreign(status: os.stat_result) -> bool:
    get_user = getattr(os, "geteuid", None)
    return get_user is not None and status.st_uid != get_user()


def _prepare(directory: Path | None) -> str:
    """Make the folder and look whose it is; why it cannot be used, or ""."""
    if directory is None:
        return "switched off"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.stat(directory)
    except OSError as fault:
        return f"{directory}: {fault.strerror or fault}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{directory} is not a folder"
    if os.name == "posix":
        if _foreign(status):
            return f"{directory} belongs to another user"
        if status.st_mode & 0o022:
            return f"{directory} can be written by other users"
    return "" if os.access(directory, os.R_OK | os.X_OK) else f"{directory} cannot be read"


# --- the cache of this process -------------------------------------------------------------

_shared: list[Cache] = []
_shared_lock = free_lock()


def configured_directory() -> Path | None:
    """Where entries are kept by the environment; None where the cache is switched off."""
    if os.environ.get("TESSERA_CACHE", "").lower() in ("off", "0", "no"):
        return None
    named = os.environ.get("TESSERA_CACHE_DIR", "")
    if named:
        return Path(named).absolute()
    if sys.platform == "linux":  # what platformdirs would say, without its import
        base = os.environ.get("XDG_CACHE_HOME", "").strip()
        base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
        if os.path.isabs(base):
            return Path(base) / "tessera" / "compiled"
    import platformdirs

    return Path(platformdirs.user_cache_dir("tessera", appauthor=False)) / "compiled"


def configured_limit() -> int:
    """Bytes the folder may hold: TESSERA_CACHE_SIZE in MiB, 1 GiB by default."""
    text = os.environ.get("TESSERA_CACHE_SIZE", "")
    if text.isdecimal() and len(text) < 10:
        return int(text) << 20
    if text:
        most = DEFAULT_LIMIT >> 20
        tell_once("cache size", diagnostic(
            "T0848", f"TESSERA_CACHE_SIZE is {text[:40]!r}, no number of MiB: {most} MiB count",
            severity="note",
        ))  # fmt: skip
    return DEFAULT_LIMIT


def shared_cache() -> Cache:
    """The cache of this process, as the environment was when it was first asked for."""
    with _shared_lock:
        if not _shared:
            _shared.append(Cache(configured_directory(), configured_limit()))
        return _shared[0]


def forget_shared_cache() -> None:
    """Read the environment again at the next use."""
    with _shared_lock:
        _shared.clear()


class CachedProofs:
    """Texts that a check found right, as entries without a payload; see
    ``tessera_lang.target.runtime.Proofs``. The sources of the compiler are part of each key."""

    def __init__(self, compiler: str) -> None:
        self._compiler = compiler

    def has(self, text: str) -> bool:
        return shared_cache().get(self._key(text)) is not None

    def add(self, text: str) -> None:
        shared_cache().put(self._key(text), {}, b"")

    def _key(self, text: str) -> str:
        return key_of(("proof", self._compiler, text))
