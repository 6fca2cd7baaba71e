"""Typed lane kernels -> Tile IR and the launch plan.

Owns the plan; slots, views and sizes are those of ``kernel_parameters.py``. Statements and
expressions are in their own files. Must not know targets.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.analysis import (
    Runs,
    alike_conditions,
    check_arrays,
    check_barriers,
    check_bounds,
    check_lane_bounds,
    check_shared,
    owned,
    uniformity,
)
from tessera_lang.analysis.kept_findings import Findings, Places
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation, Program, Region
from tessera_lang.ir.printer import print_program
from tessera_lang.ir.tile.builder import Builder
from tessera_lang.lower.ast_to_tile import launch_conditions
from tessera_lang.lower.ast_to_tile.context import Frame, Lowering
from tessera_lang.lower.ast_to_tile.cooperative_reductions import share_loops
from tessera_lang.lower.ast_to_tile.expressions import lower_expression
from tessera_lang.lower.ast_to_tile.inlined_locations import at_calls
from tessera_lang.lower.ast_to_tile.kernel_parameters import KernelFrame, slot_name, without_unused
from tessera_lang.lower.ast_to_tile.premises import assume_conditions, assume_grid
from tessera_lang.lower.ast_to_tile.statements import lower_block
from tessera_lang.lower.ast_to_tile.uniform_conditions import settle_conditions
from tessera_lang.opt.tile.shared_allocation import check_shared_budget, shared_bytes
from tessera_lang.record import dataclass, replace
from tessera_lang.sema.side_tables import TensorArgument, TypedFunction
from tessera_lang.source import SourceFile
from tessera_lang.target.launch_plan import Condition, LaunchPlan
from tessera_lang.target.runtime import Proofs
from tessera_lang.types.shape import Dim


@dataclass(frozen=True, slots=True, eq=False)
class KernelBody:
    """What lowering found beside the program: where reductions may be shared, and what the plan
    needs."""

    typed: TypedFunction
    lowering: Lowering
    entry: KernelFrame
    conditions: tuple[Condition, ...]
    grid_rank: int

    @property
    def has_errors(self) -> bool:
        """Whether the program is one with holes, that only its diagnostics are good for."""
        return self.lowering.sink.has_errors

    def shared(self, program: Program) -> Program:
        """The program whose reductions that all lanes run alike are those of the group, and whose
        conditions around barriers are those of lane 0 where all lanes have the same."""
        return settle_conditions(share_loops(program, self.lowering.element_loops))


def lower_kernel(
    typed: TypedFunction, sources: Mapping[str, SourceFile] | None = None, grid_rank: int = 0
) -> tuple[Program, LaunchPlan, tuple[Diagnostic, ...]]:
    """``lower_body`` and ``finish_kernel`` of a kernel that sema found no error in."""
    program, body = lower_body(typed, sources, grid_rank)
    return finish_kernel(body.shared(program), body)


def lower_body(
    typed: TypedFunction, sources: Mapping[str, SourceFile] | None = None, grid_rank: int = 0
) -> tuple[Program, KernelBody]:
    """The program of a kernel that sema found no error in.

    ``grid_rank``: axes of the grid of a launch, where the call says how many groups there are; 0
    for as many as the kernel asks for.
    ``sources`` (files by path) give fault sites their line and text.
    """
    info = typed.kernel
    if info is None:
        raise ValueError(f"{typed.declaration.name} is no kernel")
    lowering = Lowering(
        Frame(typed, "kernel"), sources or {}, lower_expression, lower_block, group=info.group,
        lanes=True,
    )  # fmt: skip
    entry = KernelFrame(lowering, typed, info.sizes)
    lowering.builder.span = typed.declaration.name_span
    with lowering.builder.region() as top:
        entry.open()
        if info.grid is not None:
            assume_grid(lowering, info.grid)
        kept = launch_conditions.conditions(lowering, info.conditions)
        if not lowering.sink.has_errors:
            assume_conditions(lowering, kept)
    with lowering.builder.region() as body:
        lower_block(lowering, typed.declaration.body)
        if not lowering.builder.terminated:
            lowering.builder.return_()
    operations = (*top.operations, *lowering.allocations, *body.operations)
    region = without_unused(entry, operations)
    rank = _grid_rank(lowering, info.grid, region, grid_rank)
    kernel, name = Builder(typed.declaration.name_span), typed.declaration.name
    kernel.kernel(
        name,
        region,
        group=info.group,
        grid_rank=rank,
        parameters=[slot_name(typed, slot) for slot in entry.slots],
        shared_budget=-1 if info.shared_budget is None else info.shared_budget,
        sizes=[i for i, slot in enumerate(entry.slots) if slot.kind in ("size", "symbol")],
        small=_all_small(typed),
        registers=info.registers or 0,
    )
    return kernel.program(), KernelBody(typed, lowering, entry, tuple(kept), rank)


def finish_kernel(
    program: Program, body: KernelBody, known: Findings | None = None,
    proofs: Proofs | None = None,
) -> tuple[Program, LaunchPlan, tuple[Diagnostic, ...]]:  # fmt: skip
    """The program with its plan and what the checks on the IR found; with an error among that the
    program is not to be compiled. ``known``: what the same checks found in other programs, which
    grows. ``proofs``: programs that earlier processes found right."""
    typed, lowering = body.typed, body.lowering
    info = typed.kernel
    assert info is not None
    plan = LaunchPlan(
        kernel=typed.declaration.name,
        parameters=body.entry.parameters(),
        brackets=body.entry.brackets(),
        slots=tuple(body.entry.slots),
        group=info.group,
        grid=info.grid,
        shared_bytes=shared_bytes(program.operations[0]),
        sites=tuple(lowering.sites),
        prints=tuple(lowering.prints),
        conditions=(*body.conditions, *lowering.conditions),
        grid_rank=body.grid_rank,
    )
    return program, plan, _found(typed, lowering, program, plan, known, proofs)


def _found(
    typed: TypedFunction, lowering: Lowering, program: Program, plan: LaunchPlan,
    known: Findings | None, proofs: Proofs | None,
) -> tuple[Diagnostic, ...]:  # fmt: skip
    if lowering.sink.has_errors:
        return tuple(lowering.sink.items)
    text, places = _looked_at(program, plan)
    found = None if known is None else known.get(text, places)
    if found is None:
        found = _checks_once(program, plan, f"{text}{places!r}{plan!r}", proofs)
        if known is not None:
            known.put(text, places, found)
    return (*lowering.sink.items, *at_calls(typed, found))


def _checks_once(
    program: Program, plan: LaunchPlan, text: str, proofs: Proofs | None
) -> tuple[Diagnostic, ...]:
    """What is found, unless a process before found nothing where all that the checks are given,
    ``text``, was the same."""
    if proofs is None:
        return _checks(program.operations[0], plan)
    if proofs.has(text):
        return ()
    found = _checks(program.operations[0], plan)
    if not found:
        proofs.add(text)
    return found


def _looked_at(program: Program, plan: LaunchPlan) -> tuple[str, Places]:
    """All that the checks look at, and where it stands. Where arrays begin is not among it, and of
    arrays with gaps only that they have strides: a launch differs from the declaration mostly in
    that. Of the conditions only the sizes count that they allow."""
    text = print_program(program).replace(", contiguous", "").replace(", aligned", "")
    allowed = [(c.left, c.comparison, c.right, c.others) for c in plan.conditions]
    places = tuple([operation.span for operation in program.walk()])
    return f"{text}{plan.grid!r}{plan.slots!r}{allowed!r}", places


def _all_small(typed: TypedFunction) -> bool:
    """Whether the launch says that all arrays are small, of which there is one."""
    arrays = [a for a in typed.signature if isinstance(a, TensorArgument)]
    return bool(arrays) and all(a.small for a in arrays)


def _checks(kernel: Operation, plan: LaunchPlan) -> tuple[Diagnostic, ...]:
    """What is surely wrong and shows only in the IR."""
    uniform = uniformity(kernel)
    own, known = owned(kernel, grid=plan.grid or ())
    barriers = check_barriers(kernel, uniform)
    bounds = (*check_bounds(kernel, known), *check_lane_bounds(kernel, known, plan))
    found = (*barriers, *bounds, *check_shared_budget(kernel))
    if barriers:
        parted = alike_conditions(kernel, uniform, known).parted
        return (*check_barriers(kernel, uniform, parted), *found[len(barriers) :])
    runs = Runs(kernel, plan, uniform)
    shared = check_shared(kernel, plan, uniform, known, runs).errors
    arrays = (*check_arrays(kernel, plan, uniform, own, runs), *runs.waits())
    # A write that is always outside writes nothing: that is said once.
    return (*found, *(d for d in shared if not (bounds and d.code == "T0411")), *arrays)


def finish_plan(program: Program, plan: LaunchPlan) -> LaunchPlan:
    """The plan with what the passes made of the program: the shared memory it takes."""
    return replace(plan, shared_bytes=shared_bytes(program.operations[0]))


_GROUP_AXES = {"tile.group_index": "group_id", "tile.group_count": "group_count"}


def _grid_rank(
    lowering: Lowering, grid: tuple[Dim, ...] | None, region: Region, launched: int
) -> int:
    """The axes of the grid. A clause has all that the kernel asks for, which is reported; of a
    grid that the call gives they are those of the launch, and at least those asked for."""
    used = [
        (axis, inner)
        for operation in region.operations
        for inner in operation.walk()
        if inner.name in _GROUP_AXES and isinstance(axis := inner.attributes["axis"], int)
    ]
    if not grid:
        return max(launched, 1, *(axis + 1 for axis, _ in used))
    for axis, inner in used:
        if axis >= len(grid):
            last = f" to {len(grid) - 1}" if len(grid) > 1 else ""
            lowering.sink.add(Diagnostic(
                "T0311", f"`{_GROUP_AXES[inner.name]}` has no axis {axis}: the kernel's grid has "
                f"{'1 axis' if len(grid) == 1 else f'{len(grid)} axes'}", inner.span,
                f"the axes are 0{last}",
            ))  # fmt: skip
    return len(grid)
