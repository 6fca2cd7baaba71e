"""Loops of a number of steps, as one region of a graph: over a range that the function computes,
and long ones over a range or an array whose length is known.

A loop whose length is known is traced once with the number of its step as a number that is not
known. Where the body needs that number, or does in one step what it does not do in another, nothing
of this stays, and the caller goes through the loop step by step. Owns that decision. Must not know
how an expression is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from tessera_lang.diagnostics import TesseraError
from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.assigned_names import targets
from tessera_lang.evaluate.fault import HostFault, fault
from tessera_lang.evaluate.host import Outcome
from tessera_lang.evaluate.value import Scope
from tessera_lang.ir.core import TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.ir.graph.regions import Counted
from tessera_lang.lower.ast_to_graph.appended_lists import AppendedList, appended_lists
from tessera_lang.lower.ast_to_graph.control_flow import GraphRange, Held, Part, regions_of
from tessera_lang.lower.ast_to_graph.leaves import leaves, matched, rebuilt
from tessera_lang.lower.ast_to_graph.loop_counters import Counter, Frame, inside
from tessera_lang.lower.ast_to_graph.values import (
    GraphArray,
    GraphNumber,
    is_double,
    is_number,
    not_here,
    number_dtype,
)
from tessera_lang.opt.graph.control_flow_derivatives import built
from tessera_lang.record import dataclass, field
from tessera_lang.syntax import ast
from tessera_lang.target.host_world import WorldFault
from tessera_lang.target.tuned_constants import STEPS_OF_A_LOOP
from tessera_lang.types.dtype import BOOL, F64, I64, DType

if TYPE_CHECKING:
    from tessera_lang.lower.ast_to_graph.world import GraphWorld

Run = Callable[[], Outcome]
ATTEMPTS = 2
"""A loop is tried from its first step on, and once more from the second: what the first one finds
may have another type."""


@dataclass(slots=True)
class _Leaf:
    """An array or number that a loop carries. ``known``: a number that the body has not changed
    by what data say, so far."""

    before: object
    type: TensorType
    double: bool
    known: bool

    def argument(self, world: GraphWorld, value: Value, loop: object) -> object:
        if self.known:
            return Counter(value, self.double, loop)
        return GraphNumber(value, self.double) if is_number(self.before) else GraphArray(value)


@dataclass(slots=True)
class _Name:
    """A variable that a loop carries, by its form and what stands in it."""

    name: str
    template: object
    leaves: list[_Leaf]


@dataclass(slots=True)
class CountedLoop:
    """One attempt. ``steps``: how many, None where ``count`` says it; ``first`` is the value of the
    variable in the first step, and ``step`` what it grows by; ``sequence``: the array that is gone
    through, None of a range."""

    world: GraphWorld
    s: ast.For
    scope: Scope
    names: Sequence[str]
    assign: Callable[[object], None]
    run: Run
    steps: int | None
    first: object
    step: int
    count: Value | None = None
    sequence: object = None
    carried: list[_Name] = field(default_factory=list["_Name"])
    frame: Frame | None = None

    # --- what is carried ---------------------------------------------------------------------

    def _is_leaf(self, value: object) -> bool:
        return is_number(value) or self.world.is_array(value)

    def _carry(self, name: str, value: object, made_inside: bool) -> _Name:
        found: list[_Leaf] = []
        for leaf in leaves(value, self._is_leaf):
            if is_number(leaf):
                known = self.steps is not None and not isinstance(leaf, GraphNumber)
                kind = _dtype(leaf)
                found.append(_Leaf(leaf, TensorType(kind, ()), is_double(leaf), known))
                continue
            if self.world.is_of_numbers(leaf):
                raise not_here("a loop that carries an array of a dtype that is not known yet")
            found.append(_Leaf(leaf, self.world.lifted(leaf).tensor_type, False, known=False))
        if not made_inside and not found:
            raise not_here(f"a loop that changes `{name}`, which is {kind_of(value)}")
        return _Name(name, value, found)

    def _every(self) -> list[_Leaf]:
        return [leaf for one in self.carried for leaf in one.leaves]

    # --- the attempt -------------------------------------------------------------------------

    def made(self) -> None:
        """The loop, and the variables behind it. Raises WorldFault and the like where it cannot be
        one region; then nothing has changed."""
        before = dict(self.scope.values)
        lists = appended_lists(self.s, self.scope) if self.steps is not None else []
        held = Held(self.scope, [x.items for x in lists])
        try:
            for name in dict.fromkeys(self.names):
                if self.steps is not None and name in targets(self.s.target):
                    continue  # each step sets it first
                if name in before and self._is_changeable(before[name]):
                    self.carried.append(self._carry(name, before[name], made_inside=False))
            while (part := self._traced(before, lists, held)) is None:
                self.scope.values.clear()
                self.scope.values.update(before)
                held.restore()
        except BaseException:
            self.scope.values.clear()
            self.scope.values.update(before)
            held.restore()
            raise
        appended = [x.new() for x in lists]
        inner = dict(self.scope.values)
        self.scope.values.clear()
        self.scope.values.update(before)
        held.restore()
        self._built(part, before, inner, lists, appended)

    def _is_changeable(self, value: object) -> bool:
        return self._is_leaf(value) or isinstance(value, tuple | list | dict)

    def _traced(
        self, before: dict[str, object], lists: Sequence[AppendedList], held: Held
    ) -> Part | None:
        """The body, of a step; None where it has to be traced again, with other types."""
        world, every = self.world, self._every()
        number = Value(TensorType(I64, ()), "step")
        arguments = [Value(leaf.type, "carried") for leaf in every]
        part = Part(GraphBuilder(OPERATORS), [number, *arguments], [])
        frame = self.frame = Frame(part.builder, {number, *arguments}, self.steps)
        with inside(world, frame):
            given = iter([leaf.argument(world, v, frame)
                          for leaf, v in zip(every, arguments, strict=True)])  # fmt: skip
            for one in self.carried:
                self.scope.values[one.name] = rebuilt(one.template, self._is_leaf,
                                                      lambda _: next(given))  # fmt: skip
            self.assign(self._variable(number, frame))
            outcome = self.run()
            if outcome is not None:
                raise not_here("leaving a loop before its end")
            held.check(self.s.span)
            again = self._compare(part, arguments)
            self._check_others(before)
            for one in lists:
                for leaf in one.new_leaves(world):
                    if isinstance(leaf, Counter) or world.is_of_numbers(leaf):
                        raise not_here("a list of numbers that are known")
                    part.results.append(world.lifted(leaf))
        return None if again else part

    def _variable(self, number: Value, frame: Frame) -> object:
        """What the variable of the loop is in a step."""
        counter = Counter(number, False, frame, 1, 0)
        if self.steps is not None:
            scaled = self.world.binary("*", counter, self.step)
            place = self.world.binary("+", scaled, self.first)
            if self.sequence is None:
                return place
            return self.world.read(self.sequence, (cast("slice", place),))
        b = self.world.builder
        value = number if self.step == 1 else b.times(number, self.step)
        start = self.world.lifted(self.first)
        zero = b.number_of(start) == 0.0
        return GraphNumber(value if zero else b.add(value, start), double=False)

    def _compare(self, part: Part, arguments: list[Value]) -> bool:
        """Adds what a step gives of what is carried; whether types or numbers have to be other
        ones. Raises WorldFault where a step changes what a region cannot carry."""
        again, world = False, self.world
        for one in self.carried:
            found = matched(one.template, self.scope.values[one.name], self._is_leaf)
            for leaf, now in zip(one.leaves, found, strict=True):
                if not self._is_leaf(now) or is_number(now) != is_number(leaf.before):
                    raise not_here(f"`{one.name}`, which is no array or number in each step")
                if is_number(now):
                    again |= self._number(part, one.name, leaf, now)
                    continue
                if world.is_of_numbers(now) or world.lifted(now).tensor_type != leaf.type:
                    raise self._other_type(one.name, leaf, now)
                part.results.append(world.lifted(now))
        return again

    def _number(self, part: Part, name: str, leaf: _Leaf, now: object) -> bool:
        if leaf.known and (isinstance(now, Counter) or not isinstance(now, GraphNumber)):
            argument = part.arguments[1 + len(part.results)]
            if isinstance(now, GraphNumber) and now.value is argument:
                part.results.append(argument)
                return False
            if not isinstance(now, GraphNumber) and type(now) is type(leaf.before) and (
                now == leaf.before
            ):  # fmt: skip
                part.results.append(argument)
                return False
            if self.steps is not None:
                raise not_here(f"`{name}`, a number that is known in each step")
        wanted = number_dtype(leaf.type.dtype, _dtype(now))
        double = leaf.double or is_double(now)
        again = leaf.known or wanted != leaf.type.dtype or double != leaf.double
        leaf.known, leaf.double, leaf.type = False, double, TensorType(wanted, ())
        part.results.append(self.world.builder.cast(self.world.lifted(now), wanted))
        return again

    def _other_type(self, name: str, leaf: _Leaf, now: object) -> WorldFault:
        found = self.world.lifted(now).tensor_type
        return WorldFault(f"`{name}` is {leaf.type} before the loop, and {found} behind a step of"
                          " it: what a loop carries keeps its type", code="T0834")  # fmt: skip

    def _check_others(self, before: dict[str, object]) -> None:
        carried = {one.name for one in self.carried}
        for name, value in before.items():
            if name not in carried and name not in self.names and (
                self.scope.values.get(name) is not value
            ):  # fmt: skip
                raise not_here(f"a loop that changes `{name}`")
        own = set(targets(self.s.target)) if self.steps is not None else set[str]()
        for name in self.names:
            if name in before and name not in carried and name not in own and (
                self.scope.values.get(name) is not before[name]
            ):  # fmt: skip
                raise not_here(f"a loop that changes `{name}`, which is {kind_of(before[name])}")

    # --- the operation -----------------------------------------------------------------------

    def _built(
        self, part: Part, before: dict[str, object], inner: dict[str, object],
        lists: Sequence[AppendedList], appended: Sequence[Sequence[object]],
    ) -> None:  # fmt: skip
        world, every, frame = self.world, self._every(), self.frame
        assert frame is not None
        fresh = self._fresh(before, inner)
        own = [world.lifted(v) for one in fresh for v in leaves(one.template, self._is_leaf)]
        at = 1 + len(every)
        part.arguments[at:at] = (Value(v.type, "last") for v in own)
        part.results[len(every) : len(every)] = own
        part.arguments += [v for _, v in frame.sliced]
        world.builder.span = self.s.span
        captured, (region,) = regions_of(world.builder, [part])
        starts = [world.builder.cast(world.lifted(x.before), x.type.dtype) for x in every]
        starts += [world.builder.zeros(v) for v in own]
        loop = Counted(self.steps, tuple(starts), tuple(v for v, _ in frame.sliced),
                       tuple(captured), region, count=self.count)  # fmt: skip
        found = iter(built(world.builder, loop))
        for one in (*self.carried, *fresh):
            given = iter([leaf.before if leaf.known else leaf.argument(world, value, None)
                          for leaf, value in zip(one.leaves, found, strict=False)])  # fmt: skip
            value = rebuilt(one.template, self._is_leaf, lambda _, given=given: next(given))
            self.scope.values[one.name] = value
        for one, new in zip(lists, appended, strict=True):
            one.extend(world, new, found, cast("int", self.steps))
        if self.steps is not None:
            last = cast("int", self.first) + (self.steps - 1) * self.step
            own = last if self.sequence is None else world.read(self.sequence, (last,))
            self.assign(own)

    def _fresh(self, before: dict[str, object], inner: dict[str, object]) -> list[_Name]:
        """Variables that a loop makes, of which there is a last value. Behind a loop that may have
        no step there is none."""
        if self.steps is None:
            return []
        found: list[_Name] = []
        own = set(targets(self.s.target))
        for name, value in inner.items():
            if name in before or name in own:
                continue
            one = _Name(name, value, [])
            for leaf in leaves(value, self._is_leaf):
                if isinstance(leaf, Counter) or self.world.is_of_numbers(leaf):
                    raise not_here(f"`{name}`, which is known behind the loop")
                known = is_number(leaf) and not isinstance(leaf, GraphNumber)
                kind = _dtype(leaf) if is_number(leaf) else F64
                t = TensorType(kind, ()) if known else self.world.lifted(leaf).tensor_type
                one.leaves.append(_Leaf(leaf, t, is_double(leaf), known))
            if not one.leaves and value is not None and not isinstance(value, str | DType):
                raise not_here(f"`{name}`, which is {kind_of(value)}, made in a loop")
            found.append(one)
        return found


def _dtype(number: object) -> DType:
    if isinstance(number, GraphNumber):
        return number.type.dtype
    return BOOL if isinstance(number, bool) else I64 if isinstance(number, int) else F64


def over_data(
    world: GraphWorld, s: ast.For, values: GraphRange, scope: Scope, names: Sequence[str],
    assign: Callable[[object], None], run: Run,
) -> None:  # fmt: skip
    """A loop over a range whose limits data decide. Raises HostFault."""
    if not isinstance(s.target, ast.Name) or not isinstance(values.step, int) or not values.step:
        raise fault("T0760", "a range of data has one variable, and a step that is known and not 0",
                    s.span)  # fmt: skip
    if any(_dtype(v) != I64 for v in (values.start, values.stop)):
        raise fault("T0760", "the limits of a range are whole numbers", s.iterable.span)
    b, size = world.builder, abs(values.step)
    low, high = (world.lifted(v) for v in (values.start, values.stop))
    length = b.sub(high, low) if values.step > 0 else b.sub(low, high)
    steps = b.op("floordiv", b.plus(length, size - 1), b.like(length, size))
    count = b.op("max", steps, b.zeros(steps))
    loop = CountedLoop(world, s, scope, (*names, s.target.id), assign, run, None, values.start,
                       values.step, count)  # fmt: skip
    loop.made()


def over_known(
    world: GraphWorld, s: ast.For, values: object, left: range, scope: Scope,
    names: Sequence[str], assign: Callable[[object], None], run: Run,
) -> bool:  # fmt: skip
    """The steps ``left`` of a loop over a range, or over the rows of an array by these places, as
    one region; whether that is possible."""
    if len(left) < STEPS_OF_A_LOOP:
        return False
    sequence = None if isinstance(values, range) else values
    names = (*names, *targets(s.target))
    loop = CountedLoop(world, s, scope, names, assign, run, len(left), left.start, left.step,
                       sequence=sequence)  # fmt: skip
    try:
        loop.made()
    except (HostFault, WorldFault, TesseraError):
        return False
    return True


def places_of(world: GraphWorld, values: object) -> range | None:
    """The places of what a long loop goes through, a range or an array; None of anything else."""
    if isinstance(values, range):
        return values
    if not world.is_array(values) or is_number(values):
        return None
    shape = cast("tuple[object, ...]", world.shape(values))
    return range(shape[0]) if shape and isinstance(shape[0], int) else None
