"""Launches whose code is the same text but for the name of the function: compiled once.

A program of whole arrays repeats itself: the sums over an axis of two gradients, the same product
in parts. Must not know what the text says. Needs ``locks.COMPILER``, like all that compiles.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.elf import renamed
from tessera_backend.cpu.entry import CpuModule
from tessera_backend.cpu.llvm_codegen import compile_text
from tessera_backend.cpu.precompiled_functions import with_embedded
from tessera_backend.llvm.background import begin

MOST = 64
"""Objects of a process that are kept; the last ones used stay."""
_NAME = "kernel"
_made: OrderedDict[tuple[bytes, CodeTarget, int], Callable[[], bytes]] = OrderedDict()


def compiled_once(
    module: CpuModule, entry: str, target: CodeTarget, level: int
) -> Callable[[], bytes]:
    """What waits for the object of a module whose function is ``entry``: LLVM works on it
    meanwhile. Both raise MachineError."""
    text = module.text
    if module.entries and level > 1:
        text = with_embedded(module.apart, module.shared, module.entries, target, level) or text
    text = text.replace(f'@"{entry}"', f'@"{_NAME}"')
    key = sha256(text.encode()).digest(), target, level
    code = _made.pop(key, None)
    if code is None:
        code = begin(lambda: compile_text(text, target, level, ()).code, ends=True)
        while len(_made) >= MOST:
            _made.popitem(last=False)
    _made[key] = wait = code
    return lambda: renamed(wait(), _NAME, entry)
