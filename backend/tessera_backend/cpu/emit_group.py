"""Emits the tree of a group: pieces as lane loops, control of the group around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from tessera_backend.cpu.corner_tests import Corners
from tessera_backend.cpu.divergent_trip_counts import TripCounter
from tessera_backend.cpu.group_plan import (
    Control,
    Keep,
    Leave,
    Meet,
    Node,
    Once,
    Piece,
    carried_owners,
    lane_exits,
)
from tessera_backend.cpu.group_versions import Version, Versions
from tessera_backend.cpu.lane_loops import Array, LaneLoops, Mask, When
from tessera_backend.cpu.liveness import piece_inputs
from tessera_backend.cpu.loop_unswitching import RowConditions
from tessera_backend.cpu.vectorization_hints import LaneLoopCosts
from tessera_backend.cpu.warp import emit_warp
from tessera_backend.llvm.control_flow import trip_count
from tessera_backend.llvm.emitter import LaneEmitter, Rule, scalar_type
from tessera_backend.llvm.types import register_type
from tessera_lang.ir.core import Operation, Value
from tessera_lang.ir.definitions import ATOMICS
from tessera_lang.ir.tile.ops import WARP_OPS
from tessera_lang.record import dataclass, field
from tessera_lang.types.dtype import BOOL

ORDERED = ATOMICS | {"tile.fence", "tile.print"}


@dataclass(eq=False)
class GroupTarget:
    """A construct of the group as the target of an exit that one lane takes."""

    group: GroupEmitter
    operation: Operation
    kind: Literal["loop", "scope", "kernel"]
    masked: bool
    depth: int  # number of masks outside
    labels: dict[str, str]

    def leave(self, e: LaneEmitter, values: tuple[str, ...], how: str) -> None:
        if how != "return":
            owners = carried_owners(self.operation)
            for owner, value in zip(owners, values, strict=True):
                if not (how == "break" and self.group.plan.scalars.is_kept_twice(owner)):
                    self.group.keep(owner, value)
                self.group.keep_lane(owner, value)
        if self.masked:
            self.group.switch_off(self.depth)
        e.f.branch(self.group.next_lane)


@dataclass
class GroupEmitter(LaneLoops):
    """State of the emission of one group's code."""

    targets: dict[Operation, GroupTarget] = field(default_factory=dict[Operation, GroupTarget])

    def __post_init__(self) -> None:
        scalars = self.plan.scalars
        self._versions = Versions(self.plan.kernel, scalars)
        self._corners = Corners(self.e, self.dialect, scalars, self._versions, self.steps)
        self._trips = TripCounter(self, self._corners, self._versions)
        self._costs = LaneLoopCosts(self.plan)
        self._rows = RowConditions(self.plan)
        self._sides: dict[Operation, bool] = {}
        plain_if = self.e.rules["tile.if"]
        self.e.rules = {**self.e.rules, "tile.if": self._lane_if(plain_if)}

    def _lane_if(self, plain: Rule) -> Rule:
        """An ``if`` of one lane: one side only where all lanes are known to take it."""

        def rule(e: LaneEmitter, op: Operation) -> None:
            side = self._sides.get(op)
            if side is None:
                plain(e, op)
                return
            region = op.regions[0 if side else 1]
            e.emit_all(region.operations[:-1])
            if not e.f.open:
                return
            if region.terminator.name != "tile.yield":
                e.emit(region.terminator)
                return
            for result, value in zip(op.results, region.terminator.operands, strict=True):
                e.bind(result, e.operand(value))

        return rule

    def emit(self, end: str) -> None:
        """The whole group; ends by falling into the block ``end``, which it places."""
        for value in self.plan.spilled:
            if self._is_from_warps(value):
                continue  # the warp operation makes its own
            self.arrays[value] = self.new_array(scalar_type(value))
        root = self.plan.root
        self._under_target(root, "kernel", {"return": end}, root.regions[0], end)
        self.e.f.place(end)

    def _is_from_warps(self, value: Value) -> bool:
        op = self.plan.scalars.definition(value)
        return op is not None and op.name in WARP_OPS

    # --- nodes ------------------------------------------------------------------------------

    def _nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            match node:
                case Piece():
                    self._piece(node)
                    if self.masks and lane_exits(node.operations):
                        self.skip_if_idle(self.masks[-1])
                case Meet() if node.operation.name == "tile.barrier":
                    self.met(node.operation)
                case Meet():
                    result = node.operation.result
                    self.arrays[result] = emit_warp(self, node.operation)
                    if self.plan.scalars.is_scalar(result):  # the group is one warp
                        self.e.bind(result, self.read(self.arrays[result]))
                case Once():
                    self.once(node.operation)
                case Keep():
                    values = [self.e.operand(value) for value, _ in node.stores]
                    for (_, owner), value in zip(node.stores, values, strict=True):
                        self.keep(owner, value)
                case Leave():
                    how = node.operation.name.removeprefix("tile.")
                    self.e.f.branch(self.targets[node.target].labels[how])
                    return
                case Control():
                    self._control(node)

    def _piece(self, piece: Piece) -> None:
        mask = self.mask

        def body() -> None:
            f = self.e.f
            active = self.active(mask)
            if active:
                work = f.label("active")
                f.branch_if(active, work, self.next_lane)
                f.place(work)
            for value in piece_inputs(piece):
                self.lane_value(value)
            self.runs(piece.operations)
            if not f.open:
                return
            values = [self.e.operand(value) for value, _ in piece.stores]
            for (_, owner), value in zip(piece.stores, values, strict=True):
                self.keep_lane(owner, value)
            for op in piece.operations:
                for result in op.results:
                    if result in self.plan.spilled:
                        self.write(self.arrays[result], self.e.operand(result))
                    elif result in self.slots:
                        self.keep(result, self.e.operand(result))

        shared = [
            result
            for op in piece.operations
            for result in op.results
            if self.plan.scalars.is_from_lanes(result)
        ]
        self.make_slots(shared)
        self.run_lanes(piece, body)
        self.bind_scalars(shared)

    def runs(self, operations: Sequence[Operation]) -> None:
        """What active lanes do in a piece."""
        self.e.emit_all(operations)

    def once(self, op: Operation) -> None:
        self.e.emit(op)

    def met(self, op: Operation) -> None:
        """All lanes have come to a barrier: the pieces around it stand apart."""

    def run_lanes(self, piece: Piece, body: Callable[[], None]) -> None:
        """``body`` for every lane, where that pays in two versions."""
        ordered = any(top.holds(ORDERED) for top in piece.operations)
        version = self._versions.of_piece(piece.operations) if self.mask is None else None
        rolled = not ordered and self._costs.stays_a_loop(piece)
        if version is None or self.lanes_count < 4:
            straight, when = self.mask is None, self._when(piece, body)
            self.lanes(body, independent=not ordered, rolled=rolled, straight=straight, when=when)
        else:
            self._two_versions(version, body, not ordered, rolled)

    def _when(self, piece: Piece, body: Callable[[], None]) -> When | None:
        """What a row of lanes asks once: whether its mask is off, or all of them skip an ``if``."""
        if self.mask is not None:
            return None if self.mask.when is None else When(self.mask.when)
        asked, skipped = self._rows.of_piece(piece.operations)
        if asked is None:
            return None

        def otherwise() -> None:
            before = self._sides
            self._sides = {**before, **dict.fromkeys(skipped, False)}
            body()
            self._sides = before

        return When(asked, otherwise)

    def _two_versions(
        self, version: Version, body: Callable[[], None], independent: bool, rolled: bool
    ) -> None:
        f = self.e.f
        fast, slow, join = f.label("all"), f.label("some"), f.label("versions")
        f.branch_if(self._corners.all_hold(version.tests), fast, slow)
        f.place(fast)
        self._sides, self.dialect.inside = version.sides, frozenset(version.inside)
        self.lanes(body, independent=independent, rolled=rolled, straight=True)
        self._sides, self.dialect.inside = {}, frozenset()
        f.branch(join)
        f.place(slow)
        self.lanes(body, independent=independent, straight=True)
        f.place(join)

    def _control(self, node: Control) -> None:
        match node.operation.name:
            case "tile.for":
                self._for(node)
            case "tile.while":
                self._while(node)
            case "tile.if":
                self._if(node)
            case _:
                self._scope(node)

    def _under_target(
        self, node: Control, kind: Literal["loop", "scope", "kernel"], labels: dict[str, str],
        nodes: Sequence[Node], end: str,
    ) -> None:  # fmt: skip
        """Nodes of a construct that exits may leave."""
        depth = len(self.masks)
        if node.masked:
            self.masks.append(self.copy_mask(end))
        target = GroupTarget(self, node.operation, kind, node.masked, depth, labels)
        self.targets[node.operation] = target
        self.e.targets.append(target)
        self._nodes(nodes)
        self.e.targets.pop()
        del self.masks[depth:]

    def _initial(self, values: Sequence[Value], owners: Sequence[Value]) -> None:
        """Carried values begin."""
        pairs = list(zip(values, owners, strict=True))
        for value, owner in pairs:
            if owner in self.slots:
                self.keep(owner, self.e.operand(value))
        varying = [p for p in pairs if p[1] in self.arrays]
        if varying:
            self._piece(Piece([], varying))

    # --- constructs -------------------------------------------------------------------------

    def _scope(self, node: Control) -> None:
        end = self.e.f.label("endscope")
        self.make_slots(node.operation.results)
        self._under_target(node, "scope", {"leave": end}, node.regions[0], end)
        self.e.f.place(end)
        self.bind_scalars(node.operation.results)

    def _if(self, node: Control) -> None:
        f, op = self.e.f, node.operation
        self.make_slots(op.results)
        join = f.label("endif")
        if node.divergent:
            self._divergent_if(node, join)
        else:
            then, otherwise = f.label("then"), f.label("else")
            f.branch_if(self.e.operand(op.operands[0]), then, otherwise)
            for label, nodes in zip((then, otherwise), node.regions, strict=True):
                f.place(label)
                self._nodes(nodes)
                if f.open:
                    f.branch(join)
        f.place(join)
        self.bind_scalars(op.results)

    def _unmasked_side(self, node: Control, join: str) -> None:
        """The one side that does anything, without a mask where all lanes take it."""
        f, side = self.e.f, bool(node.regions[0])
        tests = self._versions.condition(node.operation.operands[0], side)
        if tests is None:
            return
        every, some = f.label("all"), f.label("some")
        f.branch_if(self._corners.all_hold(tests), every, some)
        f.place(every)
        self._nodes(node.regions[0 if side else 1])
        if f.open:
            f.branch(join)
        f.place(some)

    def _divergent_if(self, node: Control, join: str) -> None:
        f, outer = self.e.f, self.mask
        condition = node.operation.operands[0]
        if outer is None and not (node.regions[0] and node.regions[1]):
            self._unmasked_side(node, join)
        sides = [self.new_array(BOOL), self.new_array(BOOL)]
        some = [f.slot("i1"), f.slot("i1")]
        for slot in some:
            f.line(f"store i1 false, ptr {slot}")

        def body() -> None:
            chosen = self.lane_value(condition)
            other = f.value(f"xor i1 {chosen}, true")
            active = self.active(outer)
            for array, slot, takes in zip(sides, some, (chosen, other), strict=True):
                runs = f.value(f"and i1 {takes}, {active}") if active else takes
                self.write(array, runs)
                before = f.value(f"load i1, ptr {slot}")
                f.line(f"store i1 {f.value(f'or i1 {before}, {runs}')}, ptr {slot}")

        self.lanes(body)
        whens = [next(iter(self._rows.parts(condition)), None), None]
        for array, slot, nodes, when in zip(sides, some, node.regions, whens, strict=True):
            if not nodes:
                continue
            run, skip = f.label("side"), f.label("side.done")
            f.branch_if(f.value(f"load i1, ptr {slot}"), run, skip)
            f.place(run)
            self.masks.append(Mask(skip, array, when=when or (outer.when if outer else None)))
            self._nodes(nodes)
            self.masks.pop()
            f.place(skip)

    def _while(self, node: Control) -> None:
        f, op = self.e.f, node.operation
        before, region = op.regions
        self.make_slots(before.arguments, region.arguments, op.results)
        self._initial(op.operands, before.arguments)
        head, check, body, done = (
            f.label(x) for x in ("while", "while.check", "while.body", "endwhile")
        )
        each_turn = self.dialect.counted(self.e, op)
        f.place(head)
        self.bind_scalars(before.arguments)
        self._nodes(node.regions[0])
        f.place(check)
        f.branch_if(each_turn(self.e.operand(before.terminator.operands[0])), body, done)
        f.place(body)
        self.bind_scalars(region.arguments)
        labels = {"break": done, "continue": head}
        end = f.label("while.next")
        self._under_target(node, "loop", labels, node.regions[1], end)
        f.place(end)
        f.branch(head)
        f.place(done)
        self.bind_scalars(op.results)

    def _for(self, node: Control) -> None:
        op = node.operation
        carried = op.regions[0].arguments[1:]
        self.make_slots(carried, op.results)
        self._initial(op.operands[3:], carried)
        done = self.e.f.label("endfor")
        if node.divergent:
            self._varying_steps(node, done)
        else:
            lower, upper, step = map(self.e.operand, op.operands[:3])
            known = self.e.constant(op.operands[2])
            trips = trip_count(self.e, lower, upper, step, scalar_type(op.operands[0]), known, op)
            self._steps(node, "0", trips, done)
        self.e.f.place(done)
        self.bind_scalars(op.results)

    def _varying_steps(self, node: Control, done: str) -> None:
        """Steps that every active lane makes, then those that some make, under a mask."""
        f = self.e.f
        trips = self._trips.count(node.operation, self.mask, each=node.nested)
        first = "0"
        if not node.nested:
            kind = register_type(trips.each.dtype)
            fits = f.value(f"icmp ult {kind} {trips.fewest}, {trips.most}")
            first = f.value(f"select i1 {fits}, {kind} {trips.fewest}, {kind} {trips.most}")
            rest = f.label("for.rest")
            self._steps(node, "0", first, rest)
            f.place(rest)
        self._steps(node, first, trips.most, done, trips.each)

    def _steps(
        self, node: Control, first: str, last: str, done: str, trips: Array | None = None
    ) -> None:
        """Steps ``first`` to ``last`` of a loop; ``trips``: only lanes that have them."""
        f, op = self.e.f, node.operation
        region = op.regions[0]
        variable = region.arguments[0]
        kind = register_type(scalar_type(variable))
        count = f.slot(kind)
        f.line(f"store {kind} {first}, ptr {count}")
        head, body, latch = f.label("for"), f.label("for.body"), f.label("for.next")
        f.place(head)
        step = f.value(f"load {kind}, ptr {count}")
        f.branch_if(f.value(f"icmp ult {kind} {step}, {last}"), body, done)
        f.place(body)
        self.steps.pop(variable, None)
        if self.plan.scalars.is_scalar(variable):
            moved = f.value(f"mul {kind} {step}, {self.e.operand(op.operands[2])}")
            start = self.e.operand(op.operands[0])
            self.e.bind(variable, f.value(f"add {kind} {start}, {moved}"))
        else:
            self.steps[variable] = (op, step)
        self.bind_scalars(region.arguments[1:])
        depth = len(self.masks)
        if trips is not None:
            outer = self.mask
            when = outer.when if outer else None
            self.masks.append(Mask(latch, None, outer, trips, step, when))
        labels = {"break": done, "continue": latch}
        self._under_target(node, "loop", labels, node.regions[0], latch)
        del self.masks[depth:]
        f.place(latch)
        f.line(f"store {kind} {f.value(f'add nuw {kind} {step}, 1')}, ptr {count}")
        f.branch(head, "" if self._costs.unrolls(node) else self.stays_a_loop())
