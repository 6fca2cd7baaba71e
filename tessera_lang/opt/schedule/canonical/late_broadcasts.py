"""Work on a row or a column that is stretched over a tile is done before it is stretched.

``f(expand(x))`` is ``expand(f(x))`` where ``f`` works element by element on nothing else. The
smaller tile takes its layout from the larger one then, so that it is read as it is needed, and a
lane does the work once. Owns the rewriting of kernels with products, whose layouts the products
fix. Must not know machines.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, TileType, Value
from tessera_lang.ir.rewrite import Replacement, rewrite_operation
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.ir.tile.tile_ops import TILE_LEVEL_OPS
from tessera_lang.opt.schedule.parallel.dead_code import tidy
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites, with_kernel
from tessera_lang.opt.schedule.query.kernel_facts import DOT, kernel_of
from tessera_lang.record import replace

_EXPAND = PREFIX + "expand"
_OF_TILES = frozenset(o.name for o in TILE_LEVEL_OPS)


@rewrites
def late_broadcasts(program: Program, context: Context) -> Program:
    """Work on a row done before the row is stretched; on a CPU it does not matter."""
    return program if context.machine.target == "cpu" else expand_late(program)


def expand_late(program: Program) -> Program:
    """The program with such work in front; itself where there is none."""
    kernel = kernel_of(program)
    if not kernel.holds(DOT):
        return program
    expands: dict[Value, Operation] = {}

    def step(operation: Operation) -> Replacement | None:
        if operation.name == _EXPAND:
            expands[operation.result] = operation
        made = _before(operation, expands)
        if made is None:
            return None
        expands[made[1].result] = made[1]
        return Replacement(made, made[1].results)

    made = rewrite_operation(kernel, step)
    return tidy(with_kernel(program, made)) if made is not kernel else program


def _before(
    operation: Operation, expands: dict[Value, Operation]
) -> tuple[Operation, Operation] | None:
    """The same work on what is stretched, and its expansion."""
    tiles = [v for v in operation.operands if isinstance(v.type, TileType)]
    sources = [expands[v] for v in tiles if v in expands]
    if not sources or len(sources) != len(tiles) or not _is_by_elements(operation):
        return None
    first = sources[0]
    small, result = first.operands[0].tile_type, operation.result.tile_type
    if any(s.attributes["axis"] != first.attributes["axis"] for s in sources):
        return None
    behind = {s.result: s.operands[0] for s in sources}
    value = Value(replace(small, dtype=result.dtype), operation.result.name)
    operands = tuple(behind.get(v, v) for v in operation.operands)
    work = replace(operation, operands=operands, results=(value,))
    whole = Value(result, operation.result.name)
    return work, replace(first, operands=(value,), results=(whole,))


def _is_by_elements(operation: Operation) -> bool:
    definition = TILE_OPS.get(operation.name)
    if definition is None or operation.name in _OF_TILES or operation.regions:
        return False
    single = len(operation.results) == 1 and isinstance(operation.results[0].type, TileType)
    return single and definition.pure
