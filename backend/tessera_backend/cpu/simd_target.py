"""The vector unit of a CPU, as far as hand-blocked code depends on it.

Owns ``VectorUnit`` and how it is read off the features of a processor.
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
