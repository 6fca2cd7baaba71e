"""Several matrices of a stack in one tile become one matrix in each iteration of the loop.

A loop ``for z`` in steps of 2 whose tiles hold ``z:z+2`` along an axis that products carry along
is the loop in steps of 1 over tiles of one, which ``squeeze_axes`` makes matrices: what units and
copy engines take. That holds where every tile with that axis begins at the variable, nothing looks
at the axis (a reduction along it, coordinates), and the variable has no other use. Must not know
machines.
"""

from __future__ import annotations

from tessera_lang.ir.core import Operation, Program, Region, TileType, Value, ViewType
from tessera_lang.ir.definitions import BOXES, INDEXED
from tessera_lang.ir.schedule.ops import PREFIX
from tessera_lang.opt.schedule.canonical.squeeze_axes import Axes, Axis
from tessera_lang.opt.schedule.query.decision_context import Context, rewrites
from tessera_lang.opt.schedule.query.def_use import users_of
from tessera_lang.record import dataclass, field, replace
from tessera_lang.types.dtype import INDEX


@rewrites
def unbatch(program: Program, context: Context) -> Program:
    """One matrix of each stack at a time; on a CPU it does not matter."""
    return program if context.machine.target == "cpu" else narrow(program)


def narrow(program: Program) -> Program:
    """The program with one matrix of each stack at a time; itself where it has none."""
    (kernel,) = program.operations
    axes = _Stacks(kernel)
    for stack in axes.stacks():
        found = _Class(axes, stack, kernel)
        if found.narrows():
            made = replace(program, operations=(_Rewriter(found).operation(kernel),))
            return narrow(made)
    return program


class _Stacks(Axes):
    """Axes that meet, where a mask looks at none: it fills what is beyond the extent."""

    def _mask(self, operation: Operation) -> None:
        self._same(operation.operands[0], operation.result)

    def stacks(self) -> list[Axis]:
        """Axes that products carry along, that nothing looks at, one of each class."""
        kept = {self.find(a) for a in self._kept}
        found = dict.fromkeys(self.find(a) for a in self._wanted)
        return [a for a in found if a not in kept and self.size(a) > 1]

    def size(self, stack: Axis) -> int:
        """The elements of all axes of a class; 0 where they differ or are open."""
        sizes = {v.type.shape[i] for v, i in self.members(stack) if isinstance(v.type, TileType)}
        size = sizes.pop() if len(sizes) == 1 else 0
        return size if isinstance(size, int) else 0

    def members(self, stack: Axis) -> list[Axis]:
        return [
            (v, i)
            for v in self._values
            if isinstance(v.type, TileType)
            for i in range(len(v.type.shape))
            if self.find((v, i)) == stack
        ]


@dataclass(slots=True, eq=False)
class _Class:
    """One class of axes; ``variable``: of the loop whose steps it is as wide as; ``extents``:
    operands that say how much of the axis is there."""

    axes: _Stacks
    stack: Axis
    kernel: Operation
    variable: Value | None = None
    users: dict[Value, list[Operation]] = field(default_factory=dict[Value, list[Operation]])

    def axis_of(self, tile: Value) -> int | None:
        """The axis of a tile that is in the class; None where none is."""
        rank = len(tile.type.shape) if isinstance(tile.type, TileType) else 0
        found = [i for i in range(rank) if self.axes.find((tile, i)) == self.stack]
        return found[0] if len(found) == 1 else None

    def narrows(self) -> bool:
        self.users = users_of(self.kernel)
        if not all(self._fits(o) for o in self.kernel.walk()):
            return False
        return self.variable is not None and self._is_step() and self._has_no_other_use()

    def _fits(self, o: Operation) -> bool:
        """Whether an operation does the same for each element of the axis."""
        tiles = [v for v in (*o.operands, *o.results) if isinstance(v.type, TileType)]
        name = o.name.removeprefix(PREFIX)
        if not any(self._has(v) for v in tiles):
            return True
        if any(self._has(v) and self.axis_of(v) is None for v in tiles):
            return False  # two of its axes meet
        if name == "iota":
            return self.axis_of(o.result) != o.attributes["axis"]
        if o.name not in BOXES:
            return o.name not in INDEXED
        at, _ = self.access(o)
        start = o.operands[at]
        if self.variable is None:
            self.variable = start
        loop = self.axes.loops.get(start)
        return start is self.variable and loop is not None and loop[1] is self._size(o)

    def _has(self, tile: Value) -> bool:
        rank = len(tile.type.shape) if isinstance(tile.type, TileType) else 0
        return any(self.axes.find((tile, i)) == self.stack for i in range(rank))

    def access(self, o: Operation) -> tuple[int, int]:
        """The operands that are the start and the extent along the axis."""
        at, axis, dim = self._along(o)
        view = o.operands[at].view_type
        return at + 1 + dim, at + 1 + len(view.shape) + axis

    def _size(self, o: Operation) -> Value | None:
        """The size of the array along the axis; None where the tile leaves elements out."""
        at, axis, dim = self._along(o)
        steps, made = o.integers("steps"), self.axes.definitions.get(o.operands[at])
        if steps[axis] != 1 or made is None or made.name != "tile.view":
            return None
        return made.operands[1 + dim]

    def _along(self, o: Operation) -> tuple[int, int, int]:
        """The operand that is the view, the axis of the tile, and that of the view."""
        tile = o.results[0] if o.results else o.operands[0]
        at = next(i for i, v in enumerate(o.operands) if isinstance(v.type, ViewType))
        axis, dims = self.axis_of(tile), o.integers("dims")
        assert axis is not None
        dim = dims[axis]
        return at, axis, dim

    def _is_step(self) -> bool:
        """Whether the loop moves on by as much as the tiles hold."""
        assert self.variable is not None
        step = self.axes.definitions.get(self.axes.loops[self.variable][2])
        known = None if step is None else step.attributes.get("value")
        return known == self.axes.size(self.stack)

    def _has_no_other_use(self) -> bool:
        """Whether the variable says only where tiles start and how much of them is there."""
        assert self.variable is not None
        todo, seen = [self.variable], {self.variable}
        while todo:
            value = todo.pop()
            for user in self.users.get(value, ()):
                if not self._is_own_use(user, value):
                    plain = user.name.startswith("tile.") and not user.regions
                    numbers = [r for r in user.results if r.type == INDEX]
                    if not plain or len(numbers) != 1 or user.name == "tile.load":
                        return False
                    if numbers[0] not in seen:
                        seen.add(numbers[0])
                        todo.append(numbers[0])
        return True

    def _is_own_use(self, user: Operation, value: Value) -> bool:
        name = user.name.removeprefix(PREFIX)
        tile = user.results[0] if name == "load" else user.operands[0] if user.operands else None
        axis = None if tile is None else self.axis_of(tile)
        if axis is None:
            return False
        if name == "mask":
            allowed = [2 + axis]
        elif user.name in BOXES:
            start, extent = self.access(user)
            allowed = [start, extent]
        else:
            return False
        return all(i in allowed for i, v in enumerate(user.operands) if v is value)


class _Rewriter:
    """Writes the kernel anew: tiles of one along the axis, steps of one."""

    def __init__(self, found: _Class) -> None:
        self._found = found
        self._values: dict[Value, Value] = {}
        self._one = Value(INDEX)

    def _new(self, value: Value) -> Value:
        axis = self._found.axis_of(value)
        if axis is None or not isinstance(value.type, TileType):
            return value
        shape = tuple(1 if i == axis else n for i, n in enumerate(value.type.shape))
        made = self._values[value] = Value(replace(value.type, shape=shape), value.name)
        return made

    def operation(self, o: Operation) -> Operation:
        operands = [self._values.get(v, v) for v in o.operands]
        name = o.name.removeprefix(PREFIX)
        tile = o.results[0] if name == "load" else o.operands[0] if o.operands else None
        axis = None if tile is None else self._found.axis_of(tile)
        if axis is not None and o.name in BOXES:
            operands[self._found.access(o)[1]] = self._one
        elif axis is not None and name == "mask":
            operands[2 + axis] = self._one
        if name == "for" and self._found.variable in o.regions[0].arguments:
            axes = o.strings("axes")
            assert self._found.variable is not None
            at = o.regions[0].arguments.index(self._found.variable)
            operands[2 * len(axes) + at] = self._one
        regions = tuple(self._region(r) for r in o.regions)
        if name == "kernel":
            one = Operation("tile.constant", (), (self._one,), {"value": 1})
            regions = (replace(regions[0], operations=(one, *regions[0].operations)),)
        results = tuple(self._new(v) for v in o.results)
        return replace(o, operands=tuple(operands), results=results, regions=regions)

    def _region(self, region: Region) -> Region:
        arguments = tuple(self._new(v) for v in region.arguments)
        return Region(arguments, tuple(self.operation(o) for o in region.operations))
