"""Launches whose code is the same text but for the name of the function: compiled once.

A program of whole arrays repeats itself: the sums over an axis of two gradients, the same product
in parts. Must not know what the text says. Needs ``locks.COMPILER``, like all that compiles.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256

from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.elf import renamed
from tessera_backend.cpu.llvm_codegen import compile_text

MOST = 64
"""Objects of a process that are kept; the last ones used stay."""
_NAME = "kernel"
_made: OrderedDict[tuple[bytes, CodeTarget, int], bytes] = OrderedDict()


def compiled_once(text: str, entry: str, target: CodeTarget, level: int) -> bytes:
    """The object of a module whose function is ``entry``. Raises MachineError."""
    text = text.replace(f'@"{entry}"', f'@"{_NAME}"')
    key = sha256(text.encode()).digest(), target, level
    code = _made.pop(key, None)
    if code is None:
        code = compile_text(text, target, level, ()).code
        while len(_made) >= MOST:
            _made.popitem(last=False)
    _made[key] = code
    return renamed(code, _NAME, entry)
