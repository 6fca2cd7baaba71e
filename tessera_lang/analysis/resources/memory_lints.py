"""Lints of memory accesses: bank conflicts in shared memory, sectors of global memory.

Owns P1001 and P1002, both estimates from tables of the hardware, warp by warp. Must not know
a target: the numbers are those of all NVIDIA architectures that Tessera has.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera_lang.analysis.lanes.lane_forms import Space
from tessera_lang.analysis.lanes.lane_walk import ArrayAccess, array_accesses
from tessera_lang.analysis.lanes.shared_access_log import BUFFER_AT
from tessera_lang.analysis.ranges.integer_ranges import Ranges, ranges
from tessera_lang.analysis.ranges.linear import Linear
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity, uniformity
from tessera_lang.cancellation import pause
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.diagnostics.diagnostic import Severity
from tessera_lang.ir.core import BufferType, Operation, ViewType
from tessera_lang.ir.definitions import ELEMENT_ACCESSES
from tessera_lang.record import dataclass
from tessera_lang.target.arch.isa_constants import BANK_BYTES, BANKS, SECTOR_BYTES, WARP


@dataclass(frozen=True, slots=True)
class BankConflict:
    """``degree`` different words of ``bank`` wanted at once, by ``lanes``."""

    degree: int
    bank: int
    lanes: tuple[int, ...]


def bank_conflict(lanes: Sequence[int], cells: Sequence[int], element: int) -> BankConflict:
    """The worst bank for lanes of one warp that touch these cells at once. Elements of eight
    bytes are served half a warp at a time."""
    part = WARP * BANK_BYTES // max(BANK_BYTES, element)
    worst = BankConflict(1, 0, tuple(lanes[:1]))
    for half in range(0, WARP, part):
        banks: dict[int, dict[int, int]] = {}
        for lane, cell in zip(lanes, cells, strict=True):
            if half <= lane % WARP < half + part:
                for word in range(
                    cell * element // BANK_BYTES, (cell + 1) * element // BANK_BYTES or 1
                ):
                    banks.setdefault(word % BANKS, {}).setdefault(word, lane)
                if element < BANK_BYTES:
                    word = cell * element // BANK_BYTES
                    banks.setdefault(word % BANKS, {}).setdefault(word, lane)
        for bank, words in banks.items():
            if len(words) > worst.degree:
                worst = BankConflict(len(words), bank, tuple(words.values()))
    return worst


def sectors(rows: Sequence[tuple[int, ...]], cells: Sequence[int], element: int) -> int:
    """Sectors that lanes of one warp touch: rows are taken to be far apart."""
    return len({
        (row, (cell * element + offset) // SECTOR_BYTES)
        for row, cell in zip(rows, cells, strict=True)
        for offset in (0, element - 1)
    })  # fmt: skip


def check_performance(
    kernel: Operation, uniform: Uniformity | None = None, known: Ranges | None = None
) -> tuple[Diagnostic, ...]:
    """At most one lint an access: the worst case of the warps and iterations looked at."""
    space, accesses = array_accesses(kernel, uniform or uniformity(kernel), known or ranges(kernel))
    conflicts: dict[Operation, BankConflict] = {}
    requests: dict[Operation, tuple[int, int]] = {}
    for access in accesses:
        pause()
        t = access.operation.operands[BUFFER_AT[access.operation.name]].type
        if isinstance(t, BufferType):
            if t.space == "local":
                continue
            found = _worst_bank(space, access, t)
            known_worst = conflicts.get(access.operation)
            if found is not None and (known_worst is None or found.degree > known_worst.degree):
                conflicts[access.operation] = found
        elif isinstance(t, ViewType) and t.contiguous and access.operation.name in ELEMENT_ACCESSES:
            request = _worst_request(space, access, t)
            if request is not None and request > requests.get(access.operation, (0, 0)):
                requests[access.operation] = request
    return (
        *(_conflict(o, c) for o, c in conflicts.items() if c.degree > 1),
        *(_request(o, *r) for o, r in requests.items() if r[0] >= 2 * r[1]),
    )


def _warps(space: Space, mask: int) -> list[tuple[int, ...]]:
    return [
        lanes
        for first in range(0, space.lanes, WARP)
        if (lanes := space.members(mask & ((1 << WARP) - 1) << first))
    ]


def _values(space: Space, access: ArrayAccess) -> list[tuple[int, ...]] | None:
    """Of each axis what each lane adds to what is the same in all."""
    values: list[tuple[int, ...]] = []
    for form in access.indices:
        if not isinstance(form, Linear):
            return None
        values.append(space.split(form)[1])
    return values


def _worst_bank(space: Space, access: ArrayAccess, t: BufferType) -> BankConflict | None:
    values = _values(space, access)
    if values is None:
        return None
    cells = [0] * space.lanes
    for axis, extent in zip(values, t.shape, strict=True):
        cells = [c * extent + v for c, v in zip(cells, axis, strict=True)]
    found = [
        bank_conflict(lanes, [cells[i] for i in lanes], t.dtype.bytes)
        for lanes in _warps(space, access.mask.may)
    ]
    return max(found, key=lambda c: c.degree, default=None)


def _worst_request(space: Space, access: ArrayAccess, t: ViewType) -> tuple[int, int] | None:
    """Sectors of the worst request, and how many its data would fill."""
    values = _values(space, access)
    if not values:
        return None
    worst = (0, 1)
    for lanes in _warps(space, access.mask.may):
        rows = [tuple(axis[i] for axis in values[:-1]) for i in lanes]
        cells = [values[-1][i] for i in lanes]
        least = -(-len(set(zip(rows, cells, strict=True))) * t.dtype.bytes // SECTOR_BYTES)
        worst = max(worst, (sectors(rows, cells, t.dtype.bytes), least))
    return worst


def _severity(factor: float) -> Severity:
    return "warning" if factor >= 8 else "hint"


def _conflict(operation: Operation, found: BankConflict) -> Diagnostic:
    buffer = operation.operands[BUFFER_AT[operation.name]]
    lanes = ", ".join(str(lane) for lane in found.lanes[:4])
    more = ", ..." if len(found.lanes) > 4 else ""
    helps = ("pad the last axis by one element, so that rows start in other banks",)
    return Diagnostic(
        "P1001",
        f"a {found.degree}-way bank conflict in `{buffer.name}`: lanes {lanes}{more} touch "
        f"different words of bank {found.bank}",
        operation.span, f"takes {found.degree} passes over the banks", _severity(found.degree),
        helps=helps if len(found.lanes) > 1 else (), certainty="estimated",
    )  # fmt: skip


def _request(operation: Operation, touched: int, least: int) -> Diagnostic:
    array = operation.operands[BUFFER_AT[operation.name]]
    plural = "s" if least > 1 else ""
    return Diagnostic(
        "P1002",
        f"a warp touches {touched} sectors of `{array.name}` at once, for data of {least}",
        operation.span, f"{touched} sectors of {SECTOR_BYTES} bytes, "
        f"{least} sector{plural} of data",
        _severity(2 * touched / least),
        helps=("let neighbouring lanes touch neighbouring elements of the last axis",),
        certainty="estimated",
    )  # fmt: skip
