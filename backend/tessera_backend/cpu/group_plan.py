"""How a group runs on one thread: lane loops, and what stands outside them.

A kernel's body becomes a tree. A ``Piece`` is barrier-free code that a loop runs for one lane
after the other; the rest is done once for the group: scalars that all lanes share, control
flow around barriers, and loops that are interchanged (steps outside, lanes inside) because
their lanes go over memory side by side. A barrier only separates pieces.

Lanes that leave a construct of the group early (a ``return`` under a varying condition, say)
are switched off by a mask where anything follows. Must not know LLVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from tessera_backend.cpu.interchange import Interchange, LaneStrides
from tessera_backend.cpu.uniform_values import Scalars
from tessera_lang.analysis.uniformity.lane_uniformity import Uniformity, uniformity
from tessera_lang.ir.core import Operation, Region, Value
from tessera_lang.ir.definitions import (
    LEAVES,
    LOOPS,
)
from tessera_lang.ir.tile.ops import WARP_OPS
from tessera_lang.record import dataclass, field

COLLECTIVE = ("tile.barrier", *WARP_OPS)


class Divergent(Exception):
    """A barrier or warp operation, or control around one, that some lanes may not get to."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        super().__init__(f"{operation.name} around a barrier differs between lanes")


@dataclass(eq=False)
class Piece:
    """Operations that every active lane runs; then (value, slot owner) pairs are kept."""

    operations: list[Operation] = field(default_factory=list[Operation])
    stores: list[tuple[Value, Value]] = field(default_factory=list[tuple[Value, Value]])

    def gives(self, op: Operation) -> bool:
        """Whether ``op`` uses a result of the piece."""
        results = {r for own in self.operations for r in own.results}
        return any(v in results for inner in op.walk() for v in inner.operands)


@dataclass(eq=False)
class Meet:
    """A warp operation, or a barrier where lanes are counted: done for the whole group, between
    lane loops."""

    operation: Operation


@dataclass(eq=False)
class Once:
    """An operation that gives the same in every lane: done once."""

    operation: Operation


@dataclass(eq=False)
class Keep:
    """Scalars handed to carried values or results: (value, slot owner)."""

    stores: list[tuple[Value, Value]]


@dataclass(eq=False)
class Leave:
    """All lanes that are here leave the construct ``target``."""

    operation: Operation
    target: Operation


@dataclass(eq=False)
class Control:
    """A construct of the group. ``masked``: lanes may leave it before its end.

    ``divergent``: an ``if`` whose condition, or a loop whose trip count, varies.
    """

    operation: Operation
    regions: tuple[list[Node], ...]
    divergent: bool = False
    masked: bool = False
    nested: bool = False  # a loop with varying trips inside


Node = Piece | Meet | Once | Keep | Leave | Control


@dataclass(eq=False)
class _Frame:
    operation: Operation
    kind: Literal["loop", "scope", "kernel", "if"]
    divides: bool
    exited: bool = False
    masked: bool = False


@dataclass
class GroupPlan:
    """The tree of a kernel, and where its values live.

    ``spilled``: varying values that live across pieces and need an array, in order.
    """

    kernel: Operation
    uniform: Uniformity
    strides: LaneStrides
    scalars: Scalars
    root: Control
    spilled: dict[Value, None]


class Planner:
    """Builds the tree. Raises Divergent. ``counted``: a barrier is a node, where lanes are counted;
    so an ``if`` or a ``for`` that differs between them may stand around it."""

    def __init__(self, kernel: Operation, *, counted: bool = False) -> None:
        self._counted = counted
        self.kernel = kernel
        self.uniform = uniformity(kernel)
        self.interchange = Interchange(kernel, self.uniform)
        self._frames: list[_Frame] = []
        self._group: dict[Operation, bool] = {}
        self.scalars = Scalars(kernel, self.uniform, self.is_group)

    def plan(self) -> GroupPlan:
        frame = _Frame(self.kernel, "kernel", False)
        self._frames.append(frame)
        nodes = self._region(self.kernel.regions[0], ())
        self._frames.pop()
        root = Control(self.kernel, (nodes,), masked=frame.masked)
        strides = self.interchange.strides
        return GroupPlan(self.kernel, self.uniform, strides, self.scalars, root, {})

    def is_group(self, op: Operation) -> bool:
        """Whether a construct stands outside the lane loops, if what is around it does."""
        if op not in self._group:
            self._group[op] = self._leaves_together(op) or any(
                inner.name in COLLECTIVE or self.interchange.wanted(inner) for inner in op.walk()
            )
        return self._group[op]

    def _leaves_together(self, op: Operation) -> bool:
        """Whether all lanes take one side of an ``if`` that leaves what is around it."""
        if op.name != "tile.if" or not self.uniform.is_uniform(op.operands[0]):
            return False
        return bool(lane_exits((op,)))

    # --- regions ----------------------------------------------------------------------------

    def _region(self, region: Region, owners: Sequence[Value]) -> list[Node]:
        """Nodes of a region whose ``yield`` (or condition) hands values to ``owners``."""
        nodes: list[Node] = []
        piece = Piece()
        for op in region.operations[:-1]:
            if op.name == "tile.barrier":
                piece = self._flush(nodes, piece)
                if self._counted:
                    self._append(nodes, Meet(op))
            elif op.name in WARP_OPS:
                piece = self._flush(nodes, piece)
                self._append(nodes, Meet(op))
            elif self.scalars.is_scalar_op(op):
                if piece.operations and (self.scalars.has_effect(op) or piece.gives(op)):
                    piece = self._flush(nodes, piece)
                    self._append(nodes, Once(op))
                else:
                    nodes.append(Once(op))
            elif op.regions and self.is_group(op):
                piece = self._flush(nodes, piece)
                self._append(nodes, self._control(op))
            else:
                piece.operations.append(op)
        self._terminator(nodes, piece, region.terminator, owners)
        return nodes

    def _append(self, nodes: list[Node], node: Node) -> None:
        """Adds what only the lanes still here may run."""
        for frame in self._frames:
            frame.masked |= frame.exited
        nodes.append(node)

    def _flush(self, nodes: list[Node], piece: Piece) -> Piece:
        if piece.operations or piece.stores:
            self._append(nodes, piece)
            self._note_exits(piece.operations)
            return Piece()
        return piece

    def _note_exits(self, operations: Iterable[Operation]) -> None:
        for target in lane_exits(operations):
            self._target(target).exited = True

    def _target(self, exit_name: str) -> _Frame:
        kind = {"tile.leave": "scope", "tile.return": "kernel"}.get(exit_name, "loop")
        return next(f for f in reversed(self._frames) if f.kind == kind)

    def _terminator(
        self, nodes: list[Node], piece: Piece, op: Operation, owners: Sequence[Value]
    ) -> None:
        if op.name in LEAVES:
            target = self._target(op.name)
            if self._is_collective(op):
                if target.kind != "kernel":
                    pairs = self._exit_pairs(op, target.operation)
                    self._hand(nodes, piece, pairs, final=op.name == "tile.break")
                else:
                    self._flush(nodes, piece)
                self._append(nodes, Leave(op, target.operation))
            else:
                piece.operations.append(op)
                self._flush(nodes, piece)
            return
        values = op.operands[1:] if op.name == "tile.condition" else op.operands
        self._hand(nodes, piece, list(zip(values, owners, strict=True)))

    def _exit_pairs(self, op: Operation, target: Operation) -> list[tuple[Value, Value]]:
        return list(zip(op.operands, carried_owners(target), strict=True))

    def _hand(
        self, nodes: list[Node], piece: Piece, pairs: Sequence[tuple[Value, Value]], *,
        final: bool = False,
    ) -> None:  # fmt: skip
        """Values go to their owners' slots: per lane behind the piece, scalars after it.

        ``final``: only the results of a loop see them.
        """
        pairs = [(value, owner) for value, owner in pairs if value is not owner]
        scalars = self.scalars
        varying = [p for p in pairs if not scalars.is_scalar(p[1]) or scalars.is_kept_twice(p[1])]
        scalar = [
            p for p in pairs
            if scalars.is_scalar(p[1]) and not (final and scalars.is_kept_twice(p[1]))
        ]  # fmt: skip
        piece.stores.extend(varying)
        self._flush(nodes, piece)
        if scalar:
            self._append(nodes, Keep(scalar))

    def _is_collective(self, op: Operation) -> bool:
        """Whether all lanes that entered the target of an exit take it together."""
        target = self._target(op.name)
        for frame in reversed(self._frames):
            if frame is target:
                return target.kind != "loop" or not frame.exited
            if frame.divides or frame.exited:
                return False
        raise ValueError(f"{op.name} has no target")

    # --- constructs -------------------------------------------------------------------------

    def _control(self, op: Operation) -> Control:
        match op.name:
            case "tile.if":
                varying = not self.scalars.is_scalar(op.operands[0])
                frame = _Frame(op, "if", varying)
                owners: Sequence[Value] = op.results
            case "tile.for" | "tile.while":
                varying = not all(map(self.scalars.is_scalar, self._loop_controls(op)))
                frame = _Frame(op, "loop", varying)
                owners = carried_owners(op)
            case _:
                varying, owners = False, op.results
                frame = _Frame(op, "scope", False)
        if varying and op.holds(self._together(op)):
            raise Divergent(op)
        self._frames.append(frame)
        regions = tuple(self._region(region, owners) for region in op.regions)
        self._frames.pop()
        return Control(op, regions, varying, frame.masked, _has_varying_loop(regions))

    def _together(self, op: Operation) -> tuple[str, ...]:
        """What no lane may miss inside a construct that differs between lanes."""
        return WARP_OPS if self._counted and op.name != "tile.while" else COLLECTIVE

    def _loop_controls(self, op: Operation) -> tuple[Value, ...]:
        if op.name == "tile.for":
            return op.operands[:3]
        return (op.regions[0].terminator.operands[0],)


def _has_varying_loop(regions: Iterable[Sequence[Node]]) -> bool:
    for nodes in regions:
        for node in nodes:
            if isinstance(node, Control):
                if node.divergent and node.operation.name == "tile.for":
                    return True
                if _has_varying_loop(node.regions):
                    return True
    return False


def carried_owners(op: Operation) -> tuple[Value, ...]:
    """The values whose slots a construct's exits write: carried arguments, or results."""
    if op.name == "tile.for":
        return op.regions[0].arguments[1:]
    return op.regions[0].arguments if op.name == "tile.while" else op.results


def lane_exits(operations: Iterable[Operation]) -> list[str]:
    """Names of exits in ``operations`` that leave them."""
    found: list[str] = []

    def visit(op: Operation, loops: int, scopes: int) -> None:
        if op.name in LEAVES:
            inner = {"tile.leave": scopes, "tile.return": 0}.get(op.name, loops)
            if not inner and op.name not in found:
                found.append(op.name)
        loops += op.name in LOOPS
        scopes += op.name == "tile.scope"
        for region in op.regions:
            for nested in region.operations:
                visit(nested, loops, scopes)

    for op in operations:
        visit(op, 0, 0)
    return found
