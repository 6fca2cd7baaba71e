"""The rule table of lane code, and the emitter that has it.

Owns constants, ids, ``select`` and ``assert``; the other rules stand in ``arithmetic``,
``division``, ``cast``, ``memory``, ``atomics`` and ``control_flow``.
"""

from __future__ import annotations

from tessera_backend.llvm import (
    arithmetic,
    atomics,
    cast,
    control_flow,
    division,
    fault_reports,
    memory,
    printing,
)
from tessera_backend.llvm.emitter import Dialect, LaneEmitter, Rule, scalar_type
from tessera_backend.llvm.text import FunctionText, ModuleText
from tessera_backend.llvm.types import float_constant, integer_constant, register_type
from tessera_lang.ir.core import Operation, Region
from tessera_lang.types.dtype import DType


def lane_emitter(
    module: ModuleText, function: FunctionText, dialect: Dialect, kernel: str
) -> LaneEmitter:
    """An emitter that knows every operation of a lane."""
    return LaneEmitter(module, function, dialect, kernel, rules=RULES)


def emit_kernel_body(e: LaneEmitter, region: Region, exit_label: str) -> None:
    """The operations of a kernel's region; every return branches to ``exit_label``."""
    e.targets.append(control_flow.ReturnTarget(exit_label))
    e.emit_all(region.operations)
    e.targets.pop()


def _constant(e: LaneEmitter, op: Operation) -> None:
    dtype = scalar_type(op.result)
    value = op.attributes["value"]
    if isinstance(value, (str, tuple, DType)):
        raise TypeError("a constant holds a number")
    if dtype.kind == "bool":
        e.bind(op.result, "true" if value else "false")
    elif dtype.is_float:
        e.bind(op.result, float_constant(float(value), dtype))
    else:
        e.constants[op.result] = int(value)
        e.bind(op.result, integer_constant(int(value), dtype.bits))


def _axis(op: Operation) -> int:
    axis = op.attributes["axis"]
    if not isinstance(axis, int):
        raise TypeError("an axis is an integer")
    return axis


def _lane_linear(e: LaneEmitter, op: Operation) -> None:
    e.bind(op.result, e.dialect.lane_linear(e))


def _lane_index(e: LaneEmitter, op: Operation) -> None:
    e.bind(op.result, e.dialect.lane_index(e, _axis(op)))


def _group_linear(e: LaneEmitter, op: Operation) -> None:
    e.bind(op.result, e.dialect.group_linear(e))


def _group_index(e: LaneEmitter, op: Operation) -> None:
    e.bind(op.result, e.dialect.group_index(e, _axis(op)))


def _group_count(e: LaneEmitter, op: Operation) -> None:
    e.bind(op.result, e.dialect.group_count(e, _axis(op)))


def _select(e: LaneEmitter, op: Operation) -> None:
    condition, a, b = map(e.operand, op.operands)
    kind = register_type(scalar_type(op.result))
    e.bind(op.result, e.f.value(f"select i1 {condition}, {kind} {a}, {kind} {b}"))


def _assert(e: LaneEmitter, op: Operation) -> None:
    fails = e.f.value(f"xor i1 {e.operand(op.operands[0])}, true")
    fault_reports.report_if(e, fails, op, axis="0", index="0", bound="-1")  # no element is named


def _assume(e: LaneEmitter, op: Operation) -> None:
    """For analyses only; LLVM drops what is computed for it."""


RULES: dict[str, Rule] = {
    "tile.assert": _assert,
    "tile.assume": _assume,
    "tile.constant": _constant,
    "tile.lane_linear": _lane_linear,
    "tile.lane_index": _lane_index,
    "tile.group_linear": _group_linear,
    "tile.group_index": _group_index,
    "tile.group_count": _group_count,
    "tile.select": _select,
    **arithmetic.RULES,
    **division.RULES,
    **cast.RULES,
    **memory.RULES,
    **atomics.RULES,
    **control_flow.RULES,
    **printing.RULES,
}
