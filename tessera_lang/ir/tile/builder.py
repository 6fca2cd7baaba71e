"""Builds Tile operations one after the other; results get the types the table says.

Owns the current list of operations and the current span. Must not know syntax or passes.
Nothing is checked here beyond what a Python type says: ``verify.py`` does that.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from tessera_lang.ir.core import (
    Attribute,
    BarrierType,
    BufferType,
    IRType,
    Operation,
    PointerType,
    Program,
    Region,
    Value,
    ViewType,
)
from tessera_lang.record import dataclass, field
from tessera_lang.source import Span
from tessera_lang.types.dtype import BOOL, INDEX, U32, DType


def element_type(value: Value) -> DType:
    """The dtype of a scalar, or of the elements of a pointer, view or buffer."""
    t = value.type
    assert not isinstance(t, BarrierType)
    return t if isinstance(t, DType) else t.dtype


@dataclass(slots=True, eq=False)
class RegionBuilder:
    """A region that is being filled; ``region`` is there once its block is left."""

    arguments: tuple[Value, ...]
    operations: list[Operation] = field(default_factory=list[Operation])
    _done: Region | None = None

    @property
    def region(self) -> Region:
        if self._done is None:
            raise ValueError("the region is still being built")
        return self._done

    @property
    def terminated(self) -> bool:
        """Whether the last operation so far ends the region."""
        return bool(self.operations) and self.operations[-1].name in TERMINATORS

    def close(self) -> None:
        self._done = Region(self.arguments, tuple(self.operations))


TERMINATORS = frozenset(
    f"tile.{name}" for name in ("yield", "condition", "break", "continue", "leave", "return")
)


class Builder:
    """Appends operations to the innermost open region, or to the top of a program.

    ``span`` is given to every operation built while it is set.
    """

    def __init__(self, span: Span | None = None) -> None:
        self.span = span
        self._stack: list[RegionBuilder] = [RegionBuilder(())]

    # --- regions and programs ---------------------------------------------------------------

    @property
    def current(self) -> RegionBuilder:
        return self._stack[-1]

    @property
    def terminated(self) -> bool:
        """Whether the current region has ended: what follows could not be reached."""
        return self.current.terminated

    @contextmanager
    def region(self, *arguments: tuple[str, IRType]) -> Generator[RegionBuilder]:
        """Operations built inside go to a new region with these (name, type) arguments."""
        inner = RegionBuilder(tuple(Value(t, name) for name, t in arguments))
        self._stack.append(inner)
        try:
            yield inner
        finally:
            self._stack.pop()
            inner.close()

    @contextmanager
    def at(self, span: Span | None) -> Generator[None]:
        """Operations built inside carry ``span`` (None keeps the span there is)."""
        before = self.span
        self.span = span or before
        try:
            yield
        finally:
            self.span = before

    def program(self) -> Program:
        """What stands at the top so far."""
        return Program("tile", tuple(self._stack[0].operations))

    def emit(
        self,
        name: str,
        operands: Sequence[Value] = (),
        results: Sequence[IRType] = (),
        attributes: Mapping[str, Attribute] | None = None,
        regions: Sequence[Region] = (),
        names: Sequence[str] = (),
    ) -> Operation:
        """Append any operation; ``names`` are hints for its results."""
        values = tuple(Value(t, names[i] if i < len(names) else "") for i, t in enumerate(results))
        operation = Operation(
            name, tuple(operands), values, dict(attributes or {}), tuple(regions), self.span
        )
        self.current.operations.append(operation)
        return operation

    def append(self, operation: Operation) -> Operation:
        """Append an operation that was built elsewhere."""
        self.current.operations.append(operation)
        return operation

    def _one(
        self,
        op: str,
        operands: Sequence[Value],
        result: IRType,
        hint: str,
        /,
        **attributes: Attribute,
    ) -> Value:
        return self.emit(op, operands, (result,), attributes, (), (hint,)).result

    # --- values -----------------------------------------------------------------------------

    def constant(self, value: bool | float, dtype: DType, name: str = "") -> Value:
        """A scalar; the Python value is converted to the kind of the dtype, not rounded."""
        held = (
            float(value) if dtype.is_float else bool(value) if dtype.kind == "bool" else int(value)
        )
        return self._one("tile.constant", (), dtype, name, value=held)

    def index(self, value: int, name: str = "") -> Value:
        return self.constant(value, INDEX, name)

    def lane_linear(self, name: str = "") -> Value:
        return self._one("tile.lane_linear", (), INDEX, name)

    def lane_index(self, axis: int, name: str = "") -> Value:
        return self._one("tile.lane_index", (), INDEX, name, axis=axis)

    def group_linear(self, name: str = "") -> Value:
        return self._one("tile.group_linear", (), INDEX, name)

    def group_index(self, axis: int, name: str = "") -> Value:
        return self._one("tile.group_index", (), INDEX, name, axis=axis)

    def group_count(self, axis: int = -1, name: str = "") -> Value:
        return self._one("tile.group_count", (), INDEX, name, axis=axis)

    def unary(self, name: str, a: Value, hint: str = "") -> Value:
        """``neg not abs sqrt exp2 floor ceil trunc round``."""
        return self._one(f"tile.{name}", (a,), a.type, hint)

    def approx(self, kind: str, a: Value, exact: Value) -> Value:
        return self._one("tile.approx", (a, exact), a.type, "", kind=kind)

    def either(self, exact: Value, quick: Value) -> Value:
        return self._one("tile.either", (exact, quick), exact.type, "")

    def binary(self, name: str, a: Value, b: Value, site: int = -1, hint: str = "") -> Value:
        """``add sub mul div floordiv mod min max and or xor shl shr``; ``site`` for the two
        that can divide by zero."""
        if name in ("floordiv", "mod"):
            return self._one(f"tile.{name}", (a, b), a.type, hint, site=site)
        return self._one(f"tile.{name}", (a, b), a.type, hint)

    def fma(self, a: Value, b: Value, c: Value, hint: str = "") -> Value:
        return self._one("tile.fma", (a, b, c), a.type, hint)

    def cmp(self, predicate: str, a: Value, b: Value, hint: str = "") -> Value:
        return self._one("tile.cmp", (a, b), BOOL, hint, predicate=predicate)

    def select(self, condition: Value, a: Value, b: Value, hint: str = "") -> Value:
        return self._one("tile.select", (condition, a, b), a.type, hint)

    def cast(self, a: Value, dtype: DType, hint: str = "") -> Value:
        """``a`` as ``dtype``; ``a`` itself where it has that dtype."""
        return a if a.type == dtype else self._one("tile.cast", (a,), dtype, hint)

    def bitcast(self, a: Value, dtype: DType, hint: str = "") -> Value:
        return a if a.type == dtype else self._one("tile.bitcast", (a,), dtype, hint)

    # --- memory -----------------------------------------------------------------------------

    def view(
        self,
        pointer: Value,
        sizes: Sequence[Value],
        strides: Sequence[Value] = (),
        *,
        shape: Sequence[int | None] = (),
        mut: bool = False,
        aligned: bool = False,
        name: str = "",
        reshaped: bool = False,
        merged: Sequence[int] = (),
    ) -> Value:
        """The array at ``pointer``; contiguous where no strides are given. ``reshaped``: its sizes
        are not those that the call gives it. ``merged``: how many axes of the array each axis is.

        ``shape`` holds the sizes known now; without it none is.
        """
        if not isinstance(pointer.type, PointerType):
            raise TypeError("a view is made of a pointer")
        known = tuple(shape) or (None,) * len(sizes)
        contiguous = not strides
        t = ViewType(pointer.type.dtype, known, pointer.type.space, mut, contiguous, aligned)
        more: dict[str, Attribute] = {"reshaped": True} if reshaped else {}
        if merged:
            more["merged"] = tuple(merged)
        return self._one("tile.view", (pointer, *sizes, *strides), t, name, **more)

    def shared_alloc(self, dtype: DType, shape: Sequence[int], name: str) -> Value:
        t = BufferType(dtype, tuple(shape))
        return self._one("tile.shared.alloc", (), t, name, name=name)

    def load(
        self, array: Value, indices: Sequence[Value], bounds: str = "guarded", site: int = -1,
        hint: str = "",
    ) -> Value:  # fmt: skip
        t = element_type(array)
        return self._one("tile.load", (array, *indices), t, hint, bounds=bounds, site=site)

    def store(
        self, value: Value, array: Value, indices: Sequence[Value], bounds: str = "guarded",
        site: int = -1,
    ) -> None:  # fmt: skip
        self.emit("tile.store", (value, array, *indices), (), {"bounds": bounds, "site": site})

    def atomic(
        self, kind: str, value: Value, array: Value, indices: Sequence[Value], *,
        scope: str = "device", order: str = "relaxed", bounds: str = "guarded", site: int = -1,
        hint: str = "",
    ) -> Value:  # fmt: skip
        return self._one(
            "tile.atomic", (value, array, *indices), element_type(array), hint,
            kind=kind, scope=scope, order=order, bounds=bounds, site=site,
        )  # fmt: skip

    def atomic_cas(
        self, expected: Value, desired: Value, array: Value, indices: Sequence[Value], *,
        scope: str = "device", order: str = "relaxed", bounds: str = "guarded", site: int = -1,
        hint: str = "",
    ) -> Value:  # fmt: skip
        return self._one(
            "tile.atomic_cas", (expected, desired, array, *indices), element_type(array), hint,
            scope=scope, order=order, bounds=bounds, site=site,
        )  # fmt: skip

    def atomic_load(
        self, array: Value, indices: Sequence[Value], *, scope: str = "device",
        order: str = "relaxed", bounds: str = "guarded", site: int = -1, hint: str = "",
    ) -> Value:  # fmt: skip
        return self._one(
            "tile.atomic_load", (array, *indices), element_type(array), hint,
            scope=scope, order=order, bounds=bounds, site=site,
        )  # fmt: skip

    def atomic_store(
        self, value: Value, array: Value, indices: Sequence[Value], *, scope: str = "device",
        order: str = "relaxed", bounds: str = "guarded", site: int = -1,
    ) -> None:  # fmt: skip
        attributes: dict[str, Attribute] = {
            "scope": scope, "order": order, "bounds": bounds, "site": site
        }  # fmt: skip
        self.emit("tile.atomic_store", (value, array, *indices), (), attributes)

    def fence(self, scope: str) -> None:
        self.emit("tile.fence", attributes={"scope": scope})

    def barrier(self) -> None:
        self.emit("tile.barrier")

    def assertion(self, condition: Value, site: int) -> None:
        self.emit("tile.assert", (condition,), (), {"site": site})

    def assume(self, predicate: str, a: Value, b: Value) -> None:
        self.emit("tile.assume", (a, b), (), {"predicate": predicate})

    def print(self, values: Sequence[Value], text: int) -> None:
        self.emit("tile.print", tuple(values), (), {"text": text})

    # --- warps ------------------------------------------------------------------------------

    def warp_reduce(self, kind: str, a: Value) -> Value:
        return self._one("tile.warp_reduce", (a,), a.type, "", kind=kind)

    def warp_shuffle(self, a: Value, lane: Value) -> Value:
        return self._one("tile.warp_shuffle", (a, lane), a.type, "")

    def warp_vote(self, kind: str, a: Value) -> Value:
        return self._one("tile.warp_vote", (a,), BOOL, "", kind=kind)

    def warp_ballot(self, a: Value) -> Value:
        return self._one("tile.warp_ballot", (a,), U32, "")

    def warp_match(self, a: Value, scratch: Sequence[Value] = ()) -> Value:
        return self._one("tile.warp_match", (a, *scratch), U32, "")

    # --- control ----------------------------------------------------------------------------

    def kernel(
        self, sym_name: str, body: Region, *, group: Sequence[int], grid_rank: int,
        parameters: Sequence[str], shared_budget: int = -1, registers: int = 0,
        sizes: Sequence[int] = (), small: bool = False,
    ) -> Operation:  # fmt: skip
        attributes: dict[str, Attribute] = {
            "sym_name": sym_name, "group": tuple(group), "grid_rank": grid_rank,
            "shared_budget": shared_budget, "parameters": tuple(parameters),
        }  # fmt: skip
        if registers:
            attributes["registers"] = registers
        if sizes:
            attributes["sizes"] = tuple(sizes)
        if small:
            attributes["small"] = True
        return self.emit("tile.kernel", (), (), attributes, (body,))

    def for_(
        self, lower: Value, upper: Value, step: Value, carried: Sequence[Value], body: Region,
        site: int = -1, names: Sequence[str] = (),
    ) -> tuple[Value, ...]:  # fmt: skip
        """The carried values at the end; ``body`` takes (iv, carried...)."""
        types = [v.type for v in carried]
        operands = (lower, upper, step, *carried)
        return self.emit("tile.for", operands, types, {"site": site}, (body,), names).results

    def while_(
        self, carried: Sequence[Value], condition: Region, body: Region, names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        types = [v.type for v in carried]
        return self.emit("tile.while", carried, types, None, (condition, body), names).results

    def if_(
        self, condition: Value, then: Region, otherwise: Region, names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        """The values of the side that falls out; types are read off its ``tile.yield``."""
        types = yielded_types((then, otherwise), "tile.yield")
        return self.emit("tile.if", (condition,), types, None, (then, otherwise), names).results

    def scope(
        self, body: Region, results: Sequence[IRType], names: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        return self.emit("tile.scope", (), results, None, (body,), names).results

    def yield_(self, *values: Value) -> None:
        self.emit("tile.yield", values)

    def condition(self, condition: Value, *carried: Value) -> None:
        self.emit("tile.condition", (condition, *carried))

    def break_(self, *carried: Value) -> None:
        self.emit("tile.break", carried)

    def continue_(self, *carried: Value) -> None:
        self.emit("tile.continue", carried)

    def leave(self, *values: Value) -> None:
        self.emit("tile.leave", values)

    def return_(self) -> None:
        self.emit("tile.return")


def yielded_types(regions: Sequence[Region], terminator: str) -> tuple[IRType, ...]:
    """Types that the first region ending in ``terminator`` hands out; none if none does."""
    for region in regions:
        if region.operations and region.terminator.name == terminator:
            return tuple(v.type for v in region.terminator.operands)
    return ()
