"""The vector unit of a CPU, as far as hand-blocked code depends on it.

Owns ``VectorUnit``, how it is read off the features of a processor, and which vectors LLVM makes.
"""

from __future__ import annotations

from tessera_backend.cpu.code_target import CodeTarget
from tessera_lang.record import dataclass
from tessera_lang.types.dtype import DType


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """``bytes`` of a register, ``registers`` of them; a block of accumulators is ``rows`` rows of
    ``columns`` vectors. ``attributes``: of a function that uses them."""

    bytes: int
    registers: int
    rows: int
    columns: int
    has_fma: bool
    attributes: str

    def lanes(self, dtype: DType) -> int:
        return self.bytes // dtype.bytes


_WHOLE = ("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d")


def vector_width(target: CodeTarget) -> str:
    """The attribute of functions that may have vectors as wide as the registers, "" where LLVM
    knows best. It takes half of the width for every processor of Intel, because the first ones
    with AVX-512 lowered their clock for it; cores from Golden Cove on do not, and loops over lanes
    take down to half of the time."""
    whole = target.cpu in _WHOLE and "avx512f" in target.needs
    return '"prefer-vector-width"="512" ' if whole else ""


def vector_unit(target: CodeTarget) -> VectorUnit:
    """Accumulators enough to hide a multiply-add's latency on two units, with registers left for
    a row of b and one broadcast element of a."""
    if not target.triple.startswith("x86_64"):
        return VectorUnit(16, 32, 8, 2, target.has_fma, "#0")
    if "avx512f" in target.needs:
        return VectorUnit(64, 32, 8, 3, target.has_fma, '#0 "min-legal-vector-width"="512"')
    if "avx2" in target.needs:
        return VectorUnit(32, 16, 6, 2, target.has_fma, '#0 "min-legal-vector-width"="256"')
    return VectorUnit(16, 16, 6, 2, target.has_fma, "#0")
