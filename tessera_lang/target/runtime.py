"""What a runtime is to the command line: a protocol, and discovery by entry point.

The module that the entry point ``tessera.runtime`` names has these functions; the compiler
never imports it by name. Must not know syntax or a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from tessera_lang.target.installed import entry_points

if TYPE_CHECKING:
    from pathlib import Path

    from tessera_lang.target.backend import Artifact
    from tessera_lang.target.host_world import KernelCompiler, World


class Proofs(Protocol):
    """What was found right, kept from process to process: texts that hold all that a check looks
    at, which gave no diagnostic to this compiler."""

    def has(self, text: str) -> bool: ...

    def add(self, text: str) -> None: ...


class Runtime(Protocol):
    """The functions of a runtime module that the driver calls."""

    def host_world(
        self, session: KernelCompiler, target: str, write: Callable[[str], None], arch_as: str = "",
        checked: bool = False, check_nan: bool = False,
    ) -> World:  # fmt: skip
        """A world whose kernels run on ``target``; ``write`` takes what ``print`` says.
        ``arch_as``: the architecture whose code of tile kernels the CPU runs.
        ``checked``: whether the CPU looks at every access of lanes. ``check_nan``: whether it stops
        where something gives NaN and takes none."""
        ...

    def use_lane_order(self, order: str, seed: int) -> None:
        """``all``, ``forward``, ``reverse`` or ``random``: how checked mode runs lanes from here
        on, whatever the environment says."""
        ...

    def set_num_threads(self, count: int | None) -> None:
        """Threads of launches on the CPU, from here on; None: as the environment says. Raises
        TesseraError for what is no integer from 1 to 256."""
        ...

    def checked_report(self) -> tuple[str, ...]:
        """What was run in checked mode, and what that says."""
        ...

    def asynchronous_report(self, arch_as: str) -> tuple[str, ...]:
        """What was run with ``arch_as``, and what that says."""
        ...

    def write_build(
        self, directory: Path, artifacts: Sequence[Artifact], root: str = "",
        prefix: str = "tessera",
    ) -> tuple[Path, ...]:  # fmt: skip
        """Code, manifest and C header of each kernel; the files written. ``root``: the folder of
        the source, to which places are relative; ``prefix`` begins the names of C."""
        ...

    def stub_of(self, file: str, folders: Sequence[str]) -> str:
        """The text of a type stub of a file, or of a module of the standard library; ``folders``
        are those of its imports. Raises TesseraError where the file is wrong."""
        ...

    def proofs(self) -> Proofs: ...

    def cache_directory(self) -> Path: ...

    def cache_stats(self) -> Mapping[str, object]: ...

    def cache_clear(self) -> int:
        """Empty the cache; the number of bytes freed."""
        ...

    def devices(self) -> Sequence[Mapping[str, object]]:
        """One mapping a device: ``index``, ``name``, ``arch``, ``memory_bytes``."""
        ...


class InstalledProofs:
    """Those of the installed runtime, if one works, for a process that checks many programs: to
    load the runtime takes about as long as to look at the ``first`` ones."""

    def __init__(self, first: int = 2) -> None:
        self._left = first
        self._proofs: Proofs | None = None
        self._tried = False

    def has(self, text: str) -> bool:
        if self._left > 0:
            self._left -= 1
            return False
        if not self._tried:
            self._tried = True
            with suppress(Exception):  # a check does without
                self._proofs = runtime().proofs()
        return self._proofs is not None and self._proofs.has(text)

    def add(self, text: str) -> None:
        if self._proofs is not None:
            self._proofs.add(text)


def runtime() -> Runtime:
    """The installed runtime. Raises LookupError where there is none."""
    for entry in entry_points("tessera.runtime"):
        module: Runtime = entry.load()
        return module
    raise LookupError("no runtime is installed")
