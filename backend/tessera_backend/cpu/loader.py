"""Maps an object of the CPU backend into this process. Needs no LLVM."""

from __future__ import annotations

from tessera_backend.cpu.elf import ElfError, ElfObject
from tessera_backend.cpu.executable_memory import CodeMemory
from tessera_backend.cpu.host_cpu import host_machine
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Code in memory; it stays as long as this is held by anybody, and beyond."""

    memory: CodeMemory
    address: int


def load_object(code: bytes, entry: str) -> LoadedCode:
    """The address of ``entry``. Raises ElfError, or OSError where the system refuses."""
    image = ElfObject(code, host_machine()).image()
    if entry not in image.entries:
        raise ElfError(f"the object has no function {entry}")
    memory = CodeMemory(len(image.content))
    content = bytearray(image.content)
    image.resolve(content, memory.address)
    memory.seal(content, image.code_size)
    return LoadedCode(memory, memory.address + image.entries[entry])
