"""A builder of Schedule IR that computes each index value once, as far out as it can.

Owns the arithmetic of starts and extents: two extents that are written the same are the same
value, so that a tile carried through a loop need not carry its extents. Must not know syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from tessera_lang.ir.core import IRType, Value
from tessera_lang.ir.schedule.builder import ScheduleBuilder
from tessera_lang.ir.tile.builder import RegionBuilder
from tessera_lang.source import Span
from tessera_lang.types.dtype import INDEX, DType
from tessera_lang.types.shape import Dim, Sym, apply_operator

Key = tuple[object, ...]
_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}
_FLOOR = 1  # the kernel's region: nothing is computed outside of it


class Emitter(ScheduleBuilder):
    """``number`` and ``arithmetic`` give index values; ``dim`` those of a symbolic size."""

    def __init__(self, span: Span | None = None) -> None:
        super().__init__(span)
        self._known: list[dict[Key, Value]] = [{}]
        self._with_other_sizes: set[Value] = set()
        self._depth: dict[Value, int] = {}
        self._numbers: dict[Value, int] = {}
        self._made: dict[Value, tuple[str, Value, Value]] = {}
        self.carried: set[Value] = set()  # extents that a loop or branch hands on
        self._sums: dict[Value, tuple[Value, int]] = {}
        self._pointers: dict[Value, Value] = {}

    # --- regions ----------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """How many regions are open around what is built now."""
        return len(self._stack) - 1

    @property
    def in_kernel_body(self) -> bool:
        """Whether no loop and no condition is around what is built now."""
        return self.depth == _FLOOR

    @contextmanager
    def region(self, *arguments: tuple[str, IRType]) -> Generator[RegionBuilder]:
        self._known.append({})
        try:
            with super().region(*arguments) as inner:
                for value in inner.arguments:
                    self._depth[value] = self.depth
                yield inner
        finally:
            self._known.pop()

    def defined_here(self, value: Value) -> None:
        """Say that a value can be seen from the current region on."""
        self._depth.setdefault(value, self.depth)

    def depth_of(self, value: Value) -> int:
        return min(self._depth.get(value, self.depth), self.depth)

    def is_of_kernel(self, value: Value) -> bool:
        """Whether a number is the same in all iterations of all loops."""
        return self._depth.get(value, self.depth) <= _FLOOR

    def _placed(self, key: Key, operands: tuple[Value, ...]) -> Value | None:
        for depth in range(self.depth, _FLOOR - 1, -1):
            found = self._known[depth].get(key)
            if found is not None:
                return found
        return None

    def _outermost(
        self, key: Key, op: str, operands: tuple[Value, ...], number: int | None = None
    ) -> Value:
        """The operation in the outermost region that sees its operands."""
        depth = max([_FLOOR, *(self.depth_of(v) for v in operands)])
        inner, self._stack = self._stack, self._stack[: depth + 1]
        before, self.span = self.span, None
        try:
            if number is not None:
                value = self.constant(number, INDEX)
            elif op in ("floordiv", "mod"):
                value = self.binary(op, operands[0], operands[1], -1)
            elif op == "select":
                value = self.select(operands[0], operands[1], operands[2])
            else:
                value = self.binary(op, operands[0], operands[1])
        finally:
            self._stack, self.span = inner, before
        self._known[depth][key] = value
        self._depth[value] = depth
        if len(operands) == 2:
            self._made[value] = op, operands[0], operands[1]
        return value

    def made_of(self, value: Value) -> tuple[str, Value, Value] | None:
        """The operation and operands that ``arithmetic`` made an index value of."""
        return self._made.get(value)

    def recall(self, key: Key) -> Value | None:
        """What ``remember`` keeps under a key, where it can be seen."""
        return self._placed(("kept", *key), ())

    def remember(self, key: Key, value: Value) -> Value:
        self._known[-1][("kept", *key)] = value
        return value

    def size(self, size: int | str) -> Value:
        """A size of a tile as a value: a number, or the parameter of that name."""
        if isinstance(size, int):
            return self.number(size)
        key: Key = ("parameter", size)
        found = self._placed(key, ())
        if found is None:
            found = self.of_kernel(lambda: self.parameter(size))
            self._known[_FLOOR][key] = found
        return found

    def view(
        self, pointer: Value, sizes: Sequence[Value], strides: Sequence[Value] = (), *,
        shape: Sequence[int | None] = (), mut: bool = False, aligned: bool = False,
        name: str = "", reshaped: bool = False, merged: Sequence[int] = (),
    ) -> Value:  # fmt: skip
        made = super().view(pointer, sizes, strides, shape=shape, mut=mut, aligned=aligned,
                            name=name, reshaped=reshaped, merged=merged)  # fmt: skip
        self._pointers[made] = pointer
        if reshaped and not merged:
            self._with_other_sizes.add(made)
        return made

    def merged(self, view: Value, sizes: Sequence[Value], axes: Sequence[int]) -> Value:
        """A row-major array with fewer axes, each of them ``axes`` neighbouring ones of its own;
        made once, where arrays are. Of one that has other sizes than its array that says nothing of
        the array's axes."""
        of_array = () if view in self._with_other_sizes else axes
        key: Key = ("merged", view, *axes)
        found = self._placed(key, ())
        if found is None:
            t = view.view_type
            found = self.of_kernel(lambda: self.view(
                self._pointers[view], sizes, shape=[self.known(n) for n in sizes], mut=t.mut,
                aligned=t.aligned, name=view.name, reshaped=True, merged=of_array,
            ))  # fmt: skip
            self._known[_FLOOR][key] = found
        return found

    def reshaped(self, view: Value, pointer: Value, sizes: Sequence[Value]) -> Value:
        """The memory of an array with other sizes, row by row; made once, where arrays are."""
        key: Key = ("reshaped", view, *sizes)
        found = self._placed(key, ())
        if found is None:
            found = self.of_kernel(lambda: self.view(
                pointer, sizes, shape=[self.known(n) for n in sizes], name=view.name,
                mut=view.view_type.mut, aligned=view.view_type.aligned, reshaped=True,
            ))  # fmt: skip
            self._known[_FLOOR][key] = found
        return found

    def of_kernel(self, build: Callable[[], Value]) -> Value:
        """What is built in the kernel's region, in front of the loops around."""
        inner, self._stack = self._stack, self._stack[: _FLOOR + 1]
        try:
            found = build()
        finally:
            self._stack = inner
        self._depth[found] = _FLOOR
        return found

    def cast(self, a: Value, dtype: DType, hint: str = "") -> Value:
        """A number is made an index once, so that equal bounds are one value."""
        if dtype != INDEX or a.type == INDEX or not isinstance(a.type, DType):
            return super().cast(a, dtype, hint)
        kept = self.recall(("index", a))
        return kept if kept is not None else self.remember(("index", a), super().cast(a, dtype))

    # --- index values -------------------------------------------------------------------------

    def index(self, value: int, name: str = "") -> Value:
        return self.number(value)

    def number(self, value: int) -> Value:
        key = ("number", value)
        found = self._placed(key, ())
        if found is None:
            found = self._outermost(key, "constant", (), value)
            self._numbers[found] = value
        return found

    def known(self, value: Value) -> int | None:
        """The number that an index value is, where it is one."""
        return self._numbers.get(value)

    def arithmetic(self, op: str, a: Value, b: Value) -> Value:
        """``add sub mul floordiv mod min max``; a division by 0 gives 0."""
        x, y = self.known(a), self.known(b)
        if x is not None and y is not None and not (op in ("floordiv", "mod") and y == 0):
            return self.number(_fold(op, x, y))
        if a is b:
            if op in ("min", "max"):
                return a
            if op == "sub":
                return self.number(0)
        if (y == 0 and op in ("add", "sub")) or (y == 1 and op in ("mul", "floordiv")):
            return a
        if (x == 0 and op == "add") or (x == 1 and op == "mul"):
            return b
        key = (op, a, b)
        if op in ("add", "mul", "min", "max") and id(a) > id(b):
            key = (op, b, a)
        found = self._placed(key, (a, b))
        if found is None:
            found = self._outermost(key, op, (a, b))
        if op == "add" and (x is not None or y is not None):
            self._sums[found] = (b, x) if x is not None else (a, y or 0)
        return found

    def chosen(self, condition: Value, a: Value, b: Value) -> Value:
        """``select`` of index values, made once."""
        kept = self.recall(("select", condition, a, b))
        if kept is not None:
            return kept
        return self.remember(("select", condition, a, b), self.select(condition, a, b))

    def both(self, a: Value, b: Value) -> Value:
        """``and`` of conditions, made once."""
        kept = self.recall(("and", a, b))
        return kept if kept is not None else self.remember(("and", a, b), self.binary("and", a, b))

    def apart(self, a: Value, b: Value) -> int | None:
        """``a - b``, where ``a`` was made of ``b`` by adding a number."""
        of, number = self._sums.get(a, (a, 0))
        return number if of is b else None

    def add(self, a: Value, b: Value) -> Value:
        return self.arithmetic("add", a, b)

    def clip(self, start: Value, stop: Value, step: int = 1) -> Value:
        """``max(0, stop - start)``, in steps: the length of a range."""
        width = self.arithmetic("max", self.number(0), self.arithmetic("sub", stop, start))
        if step == 1:
            return width
        up = self.add(width, self.number(step - 1))
        return self.arithmetic("floordiv", up, self.number(step))

    def room(self, size: Value, start: Value, capacity: Value) -> Value:
        """``max(0, min(capacity, size - start))``: what is left of an axis from ``start``."""
        rest = self.arithmetic("min", capacity, self.arithmetic("sub", size, start))
        return self.arithmetic("max", self.number(0), rest)

    def dim(self, dim: Dim, names: dict[str, Value]) -> Value:
        """The value of a size; each of its names is in ``names``."""
        if isinstance(dim, int):
            return self.number(dim)
        if isinstance(dim, Sym):
            return names[dim.name]
        a, b = self.dim(dim.left, names), self.dim(dim.right, names)
        if dim.operator == "ceil_div":
            # The sizes that are divided are never negative: no quotient rounds towards 0.
            up = self.add(a, self.arithmetic("sub", b, self.number(1)))
            return self.arithmetic("floordiv", up, b)
        return self.arithmetic(_OPERATIONS.get(dim.operator, dim.operator), a, b)


def _fold(op: str, a: int, b: int) -> int:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "floordiv":
            return apply_operator("//", a, b)
        case "mod":
            return apply_operator("%", a, b)
        case "min":
            return min(a, b)
        case _:
            return max(a, b)
