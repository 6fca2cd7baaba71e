"""Instructions that compiled code may use, and those that this machine has.

Owns the table of both machines' features by LLVM's names, and the question to the processor. Needs
no LLVM: what LLVM gives a processor by its name is asked in ``llvm_codegen.py``. Must not know
code.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import lru_cache

from tessera_backend.cpu.executable_memory import CodeMemory
from tessera_backend.cpu.host_cpu import host_machine

_EAX, _EBX, _ECX, _EDX = range(4)
# Leaf, subleaf, register and bit of cpuid. Only what LLVM may use of its own accord is here: that
# a machine has no enclaves, say, keeps no code from running.
_X86: dict[str, tuple[int, int, int, int]] = {
    "sse3": (1, 0, _ECX, 0), "pclmul": (1, 0, _ECX, 1), "ssse3": (1, 0, _ECX, 9),
    "fma": (1, 0, _ECX, 12), "cx16": (1, 0, _ECX, 13), "sse4.1": (1, 0, _ECX, 19),
    "sse4.2": (1, 0, _ECX, 20), "movbe": (1, 0, _ECX, 22), "popcnt": (1, 0, _ECX, 23),
    "avx": (1, 0, _ECX, 28), "f16c": (1, 0, _ECX, 29), "bmi": (7, 0, _EBX, 3),
    "avx2": (7, 0, _EBX, 5), "bmi2": (7, 0, _EBX, 8), "avx512f": (7, 0, _EBX, 16),
    "avx512dq": (7, 0, _EBX, 17), "adx": (7, 0, _EBX, 19), "avx512ifma": (7, 0, _EBX, 21),
    "avx512cd": (7, 0, _EBX, 28), "avx512bw": (7, 0, _EBX, 30), "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1), "avx512vbmi2": (7, 0, _ECX, 6), "gfni": (7, 0, _ECX, 8),
    "vpclmulqdq": (7, 0, _ECX, 10), "avx512vnni": (7, 0, _ECX, 11),
    "avx512bitalg": (7, 0, _ECX, 12), "avx512vpopcntdq": (7, 0, _ECX, 14),
    "avx512fp16": (7, 0, _EDX, 23), "avxvnni": (7, 1, _EAX, 4), "avx512bf16": (7, 1, _EAX, 5),
    "avxifma": (7, 1, _EAX, 23), "avxvnniint8": (7, 1, _EDX, 4),
    "avxneconvert": (7, 1, _EDX, 5), "avxvnniint16": (7, 1, _EDX, 10),
    "lzcnt": (0x80000001, 0, _ECX, 5), "sse4a": (0x80000001, 0, _ECX, 6),
    "xop": (0x80000001, 0, _ECX, 11), "fma4": (0x80000001, 0, _ECX, 16),
    "tbm": (0x80000001, 0, _ECX, 21),
}  # fmt: skip
_OSXSAVE = (1, 0, _ECX, 27)
_NO_AVX = frozenset(("f16c", "fma", "vpclmulqdq", "xop", "fma4"))
_YMM, _ZMM = 0x6, 0xE6
"""Bits of XCR0: the system saves the wide registers of a thread."""

# The names of Linux for those of LLVM.
_ARM: dict[str, str] = {
    "neon": "asimd", "fp-armv8": "fp", "lse": "atomics", "crc": "crc32", "rdm": "asimdrdm",
    "fullfp16": "asimdhp", "dotprod": "asimddp", "fp16fml": "asimdfhm", "jsconv": "jscvt",
    "complxnum": "fcma", "rcpc": "lrcpc", "rcpc-immo": "ilrcpc", "lse2": "uscat", "sve": "sve",
    "sve2": "sve2", "bf16": "bf16", "i8mm": "i8mm", "sha3": "sha3", "altnzcv": "flagm2",
    "flagm": "flagm", "fptoint": "frint", "cssc": "cssc", "mops": "mops", "lse128": "lse128",
}  # fmt: skip

# cpuid: rdi (rcx on Windows) is the address of eax, ecx as given, and of four words to fill.
_CPUID = bytes.fromhex(
    "53"  # push rbx: it belongs to the caller
    "4989f8"  # mov r8, rdi
    "418b00"  # mov eax, [r8]
    "418b4804"  # mov ecx, [r8+4]
    "0fa2"  # cpuid
    "418900"  # mov [r8], eax
    "41895804"  # mov [r8+4], ebx
    "41894808"  # mov [r8+8], ecx
    "4189500c"  # mov [r8+12], edx
    "5b"  # pop rbx
    "c3"  # ret
)
_XGETBV = bytes.fromhex(
    "4989f8"  # mov r8, rdi
    "31c9"  # xor ecx, ecx
    "0f01d0"  # xgetbv
    "418900"  # mov [r8], eax
    "c3"  # ret
)
_WINDOWS = bytes.fromhex("4889cf")
"""mov rdi, rcx, in front of both. rdi belongs to the caller there: it is kept in r9."""


def known_features(machine: str) -> tuple[str, ...]:
    """LLVM's names of the features that code of a machine may need, in the order of the table."""
    return tuple(_X86 if machine == "x86_64" else _ARM)


def feature_row(name: str) -> tuple[int, int, int, int, int] | None:
    """Leaf, subleaf, register and bit of cpuid, and the bits of XCR0 that must be set, where x86-64
    has a feature of that name."""
    place = _X86.get(name)
    return None if place is None else (*place, _state(name))


def enabled(machine: str, features: str) -> tuple[str, ...]:
    """Those of a list as LLVM writes it, ``+avx2,-xop``, that code may need."""
    on = {word[1:] for word in features.split(",") if word.startswith("+")}
    return tuple(name for name in known_features(machine) if name in on)


@lru_cache(maxsize=1)
def host_features() -> frozenset[str] | None:
    """What this processor and its system have of ``known_features``; None where nobody says."""
    try:
        if host_machine() == "x86_64":
            return _x86_features(*_x86_questions())
        return _arm_features(_linux_words("features"))
    except OSError:
        return None


def missing(machine: str, needs: tuple[str, ...]) -> tuple[str, ...]:
    """What code needs and this machine lacks; nothing where the machine cannot be asked."""
    if machine != host_machine():
        return (f"a processor of {machine}",)
    here = host_features()
    return () if here is None else tuple(name for name in needs if name not in here)


def baseline() -> str:
    """What runs here, in the words of the command line."""
    older = "--arch x86-64-v2" if host_machine() == "x86_64" else "--arch generic"
    return f"`--arch native`, or `{older}` for older ones too"


# --- x86-64 --------------------------------------------------------------------------------

Ask = Callable[[int, int], tuple[int, int, int, int]]


def _x86_features(cpuid: Ask, xgetbv: Callable[[], int]) -> frozenset[str]:
    last = {0: cpuid(0, 0)[_EAX], 0x80000000: cpuid(0x80000000, 0)[_EAX]}
    answers: dict[tuple[int, int], tuple[int, int, int, int]] = {}

    def has(leaf: int, subleaf: int, register: int, bit: int) -> bool:
        if leaf > last[leaf & 0x80000000]:
            return False
        if subleaf and subleaf > cpuid(leaf, 0)[_EAX]:
            return False
        if (leaf, subleaf) not in answers:
            answers[leaf, subleaf] = cpuid(leaf, subleaf)
        return bool(answers[leaf, subleaf][register] >> bit & 1)

    saved = xgetbv() if has(*_OSXSAVE) else 0
    return frozenset(
        name for name, place in _X86.items() if has(*place) and saved & _state(name) == _state(name)
    )


def _state(name: str) -> int:
    """The registers that the system must save for a feature to be of use."""
    if name.startswith("avx512"):
        return _ZMM
    return _YMM if name.startswith("avx") or name in _NO_AVX else 0


def _x86_questions() -> tuple[Ask, Callable[[], int]]:
    """``cpuid`` and ``xgetbv`` as functions. Raises OSError where no code can be put anywhere."""
    codes: list[tuple[CodeMemory, Callable[[object], None]]] = []
    for code in (_CPUID, _XGETBV):
        if sys.platform == "win32":
            # mov r9, rdi; mov rdi, rcx; ...; mov rdi, r9; ret
            code = bytes.fromhex("4989f9") + _WINDOWS + code[:-1] + bytes.fromhex("4c89cfc3")
        memory = CodeMemory(1 << 16)
        memory.seal(bytearray(code.ljust(1 << 16, b"\xcc")), 1 << 16)
        codes.append((memory, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(memory.address)))

    def cpuid(leaf: int, subleaf: int) -> tuple[int, int, int, int]:
        words = (ctypes.c_uint32 * 4)(leaf, subleaf, 0, 0)
        codes[0][1](ctypes.addressof(words))
        return words[0], words[1], words[2], words[3]

    def xgetbv() -> int:
        word = ctypes.c_uint32(0)
        codes[1][1](ctypes.addressof(word))
        return word.value

    return cpuid, xgetbv


# --- aarch64 -------------------------------------------------------------------------------


def _arm_features(words: frozenset[str] | None) -> frozenset[str] | None:
    if words is None:
        return None
    return frozenset(name for name, word in _ARM.items() if word in words)


def _linux_words(key: str) -> frozenset[str] | None:
    """The words behind a key of the first processor in /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip().lower() == key:
                    return frozenset(value.split())
    except OSError:
        pass
    return None
