"""Executable memory: written first, then executed, never both (where the system allows).

Owns the system calls of Linux, macOS and Windows for it. Must not know objects.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import lru_cache
from typing import Any

_MAP_JIT = 0x800


class CodeMemory:
    """A mapping that begins writable at ``address``; ``seal`` makes it code and constants."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.address = _windows_map(size) if sys.platform == "win32" else _posix_map(size)

    def seal(self, content: bytes | bytearray, code_size: int) -> None:
        """Fills the mapping; ``code_size`` bytes (whole pages) may run, the rest be read."""
        if len(content) != self.size:
            raise ValueError("the content has another size")
        if _is_apple_silicon():
            write_protect = _libc().pthread_jit_write_protect_np
            write_protect(0)
            ctypes.memmove(self.address, bytes(content), self.size)
            write_protect(1)
            _libc().sys_icache_invalidate(ctypes.c_void_p(self.address), self.size)
            return
        ctypes.memmove(self.address, bytes(content), self.size)
        if sys.platform == "win32":
            _windows_seal(self.address, self.size, code_size)
        else:
            _posix_seal(self.address, self.size, code_size)


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc: Any = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    ]  # fmt: skip
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _is_apple_silicon() -> bool:
    import platform

    return sys.platform == "darwin" and platform.machine() == "arm64"


def _fail(what: str) -> OSError:
    import os

    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def _posix_map(size: int) -> int:
    access = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if _is_apple_silicon():
        access |= mmap.PROT_EXEC
        flags |= _MAP_JIT
    address = _libc().mmap(None, size, access, flags, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise _fail("no memory for code")
    return int(address)


def _posix_seal(address: int, size: int, code_size: int) -> None:
    libc = _libc()
    parts = ((address, code_size, mmap.PROT_READ | mmap.PROT_EXEC),
             (address + code_size, size - code_size, mmap.PROT_READ))  # fmt: skip
    for start, length, access in parts:
        if length and libc.mprotect(start, length, access) != 0:
            raise _fail("the system does not let memory become code")


def _kernel32() -> Any:
    return getattr(ctypes, "WinDLL")("kernel32", use_last_error=True)  # noqa: B009


def _windows_map(size: int) -> int:
    kernel = _kernel32()
    kernel.VirtualAlloc.restype = ctypes.c_void_p
    kernel.VirtualAlloc.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_uint32
    ]  # fmt: skip
    address = kernel.VirtualAlloc(None, size, 0x3000, 0x04)  # reserve and commit, read-write
    if not address:
        raise OSError("no memory for code")
    return int(address)


def _windows_seal(address: int, size: int, code_size: int) -> None:
    kernel = _kernel32()
    kernel.VirtualProtect.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32, ctypes.c_void_p
    ]  # fmt: skip
    before = ctypes.c_uint32()
    for start, length, access in (
        (address, code_size, 0x20), (address + code_size, size - code_size, 0x02)
    ):  # fmt: skip
        if length and not kernel.VirtualProtect(start, length, access, ctypes.byref(before)):
            raise OSError("the system does not let memory become code")
    kernel.FlushInstructionCache(
        ctypes.c_void_p(kernel.GetCurrentProcess()), ctypes.c_void_p(address), size
    )
