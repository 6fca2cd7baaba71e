"""Which unit of the machine does each product, and what it asks for.

Owns the legality of matrix units. The choice is written on the ``dot``; where the best unit
of the machine cannot do it, a remark says why.
"""

from __future__ import annotations

from tessera_lang.ir.core import IRType, TileType
from tessera_lang.ir.layout import SharedLayout
from tessera_lang.opt.schedule.query.computed_tile_source import source_axis
from tessera_lang.opt.schedule.query.copy_rules import (
    contiguous_axis,
    shared_layout,
)
from tessera_lang.opt.schedule.query.kernel_facts import (
    Dot,
    Facts,
    Operand,
)
from tessera_lang.opt.schedule.query.producer_lane_copies import lanes_reason
from tessera_lang.opt.schedule.query.tile_access import access_of
from tessera_lang.target.machine import Machine
from tessera_lang.target.tuned_constants import ACCUMULATOR_AND_HALVES, TWO_ACCUMULATORS
from tessera_lang.types.dtype import DTYPES, F32, DType

_MATRIX = [d for d in DTYPES.values() if d.matrix]
SIXTEEN = tuple(d for d in _MATRIX if d.bits == 16)
_EIGHT = tuple(d for d in _MATRIX if d.bits == 8)


def unit_of(dot: Dot, facts: Facts, machine: Machine) -> tuple[str, str]:
    """The unit, and why it is not the best of the machine (empty where it is)."""
    if not machine.has("mma"):
        return "fma", ""
    reason = mma_reason(dot)
    if reason:
        return "fma", reason
    if not machine.has("wgmma"):
        return "mma", ""
    reason = wgmma_reason(dot, facts)
    return ("mma", reason) if reason else ("wgmma", "")


def mma_reason(dot: Dot) -> str:
    """Why no matrix unit can do a product; empty where one can."""
    a, b = _dtypes(dot)
    tf32 = a == F32 and b == F32 and dot.operation.attributes["precision"] == "tf32"
    if a != b and not (a in _EIGHT and b in _EIGHT):
        return f"its operands are {a} and {b}"
    if a not in (*SIXTEEN, *_EIGHT) and not tf32:
        return f"matrix units have no exact {a}"
    if len(_type(dot.a).shape) != 2 or len(_type(dot.b).shape) != 2:
        return "its operands have further axes"
    m, n, k = (int(s) for s in dot.shape)
    deep = 256 // a.bits
    if m % 16 or n % 8 or k % deep:
        return f"{m} x {n} x {k} is no multiple of 16 x 8 x {deep}"
    return ""


def wgmma_reason(dot: Dot, facts: Facts) -> str:
    """Why the asynchronous matrix unit cannot do a product that ``mma`` can."""
    if facts.kernel.attributes.get("use_shared_memory") is False:
        return "`schedule.use_shared_memory(False)` keeps its first operand out of shared memory"
    a, _ = _dtypes(dot)
    m, n, k = (int(s) for s in dot.shape)
    if m % 64:
        return f"its {m} rows are no multiple of 64"
    if n > 256 or (n % 16 and n != 8):
        return f"its {n} columns are no multiple of 16 up to 256"
    if k * a.bits % 256:
        return f"its contraction of {k} is no multiple of 32 bytes"
    for operand, contraction, which in ((dot.a, -1, "first"), (dot.b, -2, "second")):
        if operand.load is None:
            if through_shared(dot, operand, facts) and computed_layout(dot, operand, facts) is None:
                return f"its {which} operand is computed, and has no place in shared memory"
        elif operand is dot.a and by_registers(dot, facts):
            continue
        elif a not in SIXTEEN and not contiguous_along(operand, contraction, facts):
            reason = lanes_reason(operand.load, facts)
            if reason:
                needs = f"the contraction of its {which} operand is not contiguous, and {a}"
                return f"{needs} needs it; lanes cannot transpose it: {reason}"
    return ""


def through_shared(dot: Dot, operand: Operand, facts: Facts) -> bool:
    """Whether a computed operand is written to shared memory: every second one, and a first one
    whose registers do not lie as the unit takes them: those of another product's result do."""
    if operand.load is not None:
        return False
    if operand is dot.b or _type(operand).dtype not in SIXTEEN:
        return True
    return (
        bool(source_axis(operand.value, facts)) and computed_layout(dot, operand, facts) is not None
    )


SHARED, REGISTERS, WRITTEN = "shared", "registers", "written"
"""Where the asynchronous unit reads an operand: from the buffer that it was brought to, from
registers, or from a buffer that the lanes which compute it write it to."""


def operand_places(dot: Dot, facts: Facts) -> tuple[str, str]:
    """Where the asynchronous unit reads the operands of a product."""
    first = REGISTERS
    if through_shared(dot, dot.a, facts):
        first = WRITTEN
    elif dot.a.load is not None and not by_registers(dot, facts):
        first = SHARED
    return first, SHARED if dot.b.load is not None else WRITTEN


def said_places(dot: Dot) -> tuple[str, str]:
    """What a schedule says of that."""
    said = dot.operation.attributes.get("operands")
    assert isinstance(said, tuple), "a product of the asynchronous unit whose operands are decided"
    first, second = map(str, said)
    return first, second


def computed_layout(dot: Dot, operand: Operand, facts: Facts) -> SharedLayout | None:
    """How a computed operand lies in shared memory: along the contraction where the unit asks for
    it, else as what it is computed from if it fits; None where it has no place."""
    t = _type(operand)
    if t.dtype not in SIXTEEN:
        return shared_layout(t, 0 if operand is dot.b else 1)
    first = 0 if source_axis(operand.value, facts) == -2 else 1
    return shared_layout(t, first) or shared_layout(t, 1 - first)


def contiguous_along(operand: Operand, axis: int, facts: Facts) -> bool:
    """Whether the array behind an operand is contiguous along this axis of the operand."""
    assert operand.load is not None
    unit = contiguous_axis(access_of(operand.load.operation), facts)
    last = unit == len(operand.load.tile.shape) - 1
    return (axis == -1) == (last != operand.swapped)


def _dtypes(dot: Dot) -> tuple[DType, DType]:
    return _type(dot.a).dtype, _type(dot.b).dtype


def _type(operand: Operand) -> TileType:
    return operand.value.tile_type


def element_bits(dot: Dot) -> int:
    return _dtypes(dot)[0].bits


def has_matrix_dtype(dot: Dot) -> bool:
    """Whether a matrix unit knows these operands, whatever the sizes."""
    a, b = _dtypes(dot)
    tf32 = a == F32 and dot.operation.attributes["precision"] == "tf32"
    return tf32 or (a in (*SIXTEEN, *_EIGHT) and (a == b or b in _EIGHT))


def by_registers(dot: Dot, facts: Facts) -> bool:
    """Whether lanes read the first operand of an asynchronous product from its buffer: it lies
    in another order than the unit reads from memory, and registers may lie in any."""
    return (
        dot.a.load is not None and has_matrix_dtype(dot) and _dtypes(dot)[0] not in SIXTEEN
        and not contiguous_along(dot.a, -1, facts)
    )  # fmt: skip


def is_better_swapped(dot: Dot, facts: Facts) -> bool:
    """Whether the transpose of a product suits the asynchronous unit better: only a first operand
    may be in registers, where it lies in another order than the unit reads from memory or is
    computed of other products. What is computed of a matrix in memory goes back there as it
    lies."""
    a, b = dot.a, dot.b
    if a.load is None or len(_type(a).shape) != 2 or not has_matrix_dtype(dot):
        return False
    if _dtypes(dot)[0] in SIXTEEN:
        return b.load is None and not source_axis(b.value, facts)
    return (
        b.load is not None and contiguous_along(a, -1, facts)
        and not contiguous_along(b, -2, facts)
    )  # fmt: skip


def needs_first(dot: Dot, facts: Facts) -> bool:
    """Whether the first operand of a product must stay the first: see ``by_registers``."""
    return dot.a.load is not None and by_registers(dot, facts)


def is_imprecise(dot: Dot) -> bool:
    """Whether the asynchronous unit adds these products less exactly than f32 does."""
    return is_imprecise_dtype(_type(dot.a)) and is_imprecise_dtype(_type(dot.b))


def is_imprecise_dtype(t: IRType) -> bool:
    return isinstance(t, TileType) and t.dtype.is_float8


def accumulator_registers(m: int, n: int, machine: Machine) -> int:
    """Registers of a lane that hold an accumulator of m x n, with the most groups there are."""
    if machine.has("wgmma") and m % 64 == 0:
        return m * n // (128 * consumer_groups(m))
    return m * n // 256


def promoted_parts(m: int, n: int) -> tuple[int, int]:
    """In how many parts, by columns, a product is added up outside the unit, and how many of them
    are on their way while one is added: registers hold its accumulator and these parts."""
    held = m * n // (128 * consumer_groups(m))
    if 2 * held <= TWO_ACCUMULATORS or n % 32:
        return 1, 0
    return (2, 1) if 2 * held <= ACCUMULATOR_AND_HALVES else (2, 0)


def consumer_groups(m: int) -> int:
    """Warp groups that share an accumulator by rows, 64 of them at a time: two or three where
    the rows can be shared evenly."""
    blocks = m // 64
    return next((g for g in (2, 3) if blocks % g == 0), 1)
