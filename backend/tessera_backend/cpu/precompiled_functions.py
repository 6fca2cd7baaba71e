"""Functions that many modules have just so: compiled once a process, and put into each as bytes.

The micro-kernels of products are half of the text of a program of small products, and the same in
each of its launches. The object of a kernel holds all that it calls, as before. Must not know what
the functions do. Needs ``locks.COMPILER``, like all that compiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tessera_backend.cpu.code_target import CodeTarget
from tessera_backend.cpu.elf import ElfError, ElfObject
from tessera_backend.cpu.llvm_codegen import compile_text

_LINE = 64  # bytes of a directive
_made: dict[tuple[str, CodeTarget, int], str | None] = {}


def with_embedded(
    text: str, shared: str, entries: Sequence[str], target: CodeTarget, level: int
) -> str | None:
    """A module that calls ``entries`` of the module ``shared``, with those as bytes; None where
    they depend on where they stand. Two functions of one name are the same function."""
    found = [_embedded(shared, name, target, level) for name in entries]
    held = [x for x in found if x is not None]
    if len(held) < len(found):
        return None
    head, _, rest = text.partition("\n")  # the target
    return "\n".join([head, *held, rest])


def _embedded(shared: str, name: str, target: CodeTarget, level: int) -> str | None:
    key = name, target, level
    if key not in _made:
        _made[key] = _assembled(shared, name, target, level)
    return _made[key]


def _assembled(shared: str, name: str, target: CodeTarget, level: int) -> str | None:
    """The function and what it calls as directives of the assembler, in a module."""
    internal = f"define internal void {name}("
    code = compile_text(shared.replace(internal, f"define void {name}("), target, level, ()).code
    machine, plain = target.triple.partition("-")[0], name.strip('@"')
    try:
        content, places = ElfObject(code, machine).flat()
    except ElfError:
        return None
    cuts = sorted({0, places[plain], len(content)})
    lines = [".text", ".p2align 6"]
    for begin, end in itertools.pairwise(cuts):
        if begin == places[plain]:
            lines.append(f"{plain}:")
        lines += [
            ".byte " + ",".join(map(str, content[at : min(at + _LINE, end)]))
            for at in range(begin, end, _LINE)
        ]
    return "\n".join(f'module asm "{line}"' for line in (*lines, ".p2align 4"))
