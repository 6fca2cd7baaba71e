"""The architectures that the CUDA target makes code for: one row each.

Owns their names, the PTX version and the shared memory of each. Must not know LLVM or the driver.
"""

from __future__ import annotations

from tessera_lang.diagnostics import Diagnostic, TesseraError
from tessera_lang.record import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """``ptx`` is the lowest PTX ISA with this target and with what tile kernels use (hints of
    loads: 7.4; messages between groups of a cluster: 8.1), ten times its number: 78 is 7.8.

    ``shared_limit`` is the shared memory that one group can have, in bytes.
    """

    name: str
    capability: tuple[int, int]
    ptx: int
    shared_limit: int

    @property
    def specific(self) -> bool:
        """Whether code for it runs on this very architecture only (``sm_90a``)."""
        return self.name.endswith("a")

    @property
    def features(self) -> str:
        """LLVM's feature string."""
        return f"+ptx{self.ptx}"


ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (
        Architecture("sm_80", (8, 0), 74, 163 << 10),
        Architecture("sm_86", (8, 6), 74, 99 << 10),
        Architecture("sm_87", (8, 7), 74, 163 << 10),
        Architecture("sm_89", (8, 9), 78, 99 << 10),
        Architecture("sm_90", (9, 0), 78, 227 << 10),
        Architecture("sm_90a", (9, 0), 81, 227 << 10),
        Architecture("sm_100", (10, 0), 86, 227 << 10),
        Architecture("sm_100a", (10, 0), 86, 227 << 10),
        Architecture("sm_103", (10, 3), 88, 227 << 10),
        Architecture("sm_120", (12, 0), 87, 99 << 10),
        Architecture("sm_121", (12, 1), 88, 99 << 10),
    )
}


def architecture_named(name: str) -> Architecture:
    """The row of that name. Raises TesseraError with the names there are."""
    found = ARCHITECTURES.get(name)
    if found is None:
        raise TesseraError(
            (
                Diagnostic(
                    "T0880",
                    f"`{name}` is no architecture of the CUDA target",
                    notes=("it makes code for " + ", ".join(ARCHITECTURES),),
                    helps=("`tesserac devices` shows the architecture of each device",),
                ),
            )
        )
    return found


def architecture_of(capability: tuple[int, int]) -> Architecture:
    """The newest row whose code a device of that compute capability runs.

    Machine code runs on later devices of the same major number. Raises TesseraError.
    """
    fitting = [
        a
        for a in ARCHITECTURES.values()
        if not a.specific and a.capability[0] == capability[0] and a.capability <= capability
    ]
    if not fitting:
        major, minor = capability
        remedy = "update Tessera" if capability > (12, 1) else "the oldest that is served is sm_80"
        raise TesseraError(
            (
                Diagnostic(
                    "T0880",
                    f"a device of compute capability {major}.{minor} is not served",
                    helps=(remedy, "run with `--target cpu`"),
                ),
            )
        )
    return max(fitting, key=lambda a: a.capability)
