"""The world of a function that becomes a graph: arrays are its values, and nothing runs.

Owns what arrays do in the host program (dtypes that meet, axes of one element that are stretched,
numbers of 64 bits), said in operators. Must not know statements, or how a graph is run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.value import is_unknown
from tessera_lang.ir.core import Attribute, Operation, TensorType, Value
from tessera_lang.ir.graph.builder import GraphBuilder
from tessera_lang.ir.graph.operator import OperandError, Shape
from tessera_lang.ir.graph.operators import OPERATORS
from tessera_lang.lower.ast_to_graph.integer_operands import compared_exactly
from tessera_lang.lower.ast_to_graph.loop_counters import (
    Counter,
    Frame,
    counted_too,
    is_known,
    part_at_step,
)
from tessera_lang.lower.ast_to_graph.powers import known_power
from tessera_lang.lower.ast_to_graph.size_notes import size_notes
from tessera_lang.lower.ast_to_graph.subscripts import chosen, with_part
from tessera_lang.lower.ast_to_graph.values import (
    BY_VALUE,
    GraphArray,
    GraphNumber,
    NotKnown,
    View,
    compared_in,
    fitting,
    is_double,
    is_number,
    not_here,
    number_dtype,
    strong,
)
from tessera_lang.target.arange_count import arange_count
from tessera_lang.target.host_world import (
    Filling,
    Index,
    KernelReference,
    Reduction,
    ViewKind,
    World,
    WorldFault,
    common_of,
    mixing_help,
)
from tessera_lang.types.dtype import BOOL, F32, F64, I32, I64, DType, float_of_integers
from tessera_lang.types.shape import Dim

_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "**": "pow",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "&": "and", "|": "or",
    "^": "xor", "min": "min", "max": "max", "and": "and", "or": "or",
}  # fmt: skip
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_REDUCTIONS = {"min": "reduce_min", "max": "reduce_max"}


_OUTSIDE = "do it outside of the function, and pass what comes of it"


class GraphWorld:
    """Answers as a ``World`` does. Arrays of ``outer`` that the function reads are further
    parameters of the graph: ``captured``."""

    def __init__(self, outer: World | None = None) -> None:
        self.outer = outer
        self.floats: DType = F32 if outer is None else outer.floats
        self.builder = self.function_builder = GraphBuilder(OPERATORS)
        self.frames: list[Frame] = []
        self.captured: list[tuple[object, Value]] = []
        self.differentiates = False
        """Whether gradients may be asked for of what is computed here."""

    # --- values ------------------------------------------------------------------------

    def op(self, name: str, *operands: Value, **attributes: Attribute) -> Value:
        """An operator, whose refusals are the program's faults."""
        try:
            return self.builder.op(name, *operands, **attributes)
        except OperandError as error:
            notes = size_notes(self.builder, name, operands)
            raise WorldFault(str(error), code="T0834", notes=notes) from None

    def lifted(self, array: object) -> Value:
        """The value of an array, or of a number as one of rank 0. Raises NotKnown."""
        if isinstance(array, GraphArray | GraphNumber):
            return array.value
        if isinstance(array, bool | int | float):
            dtype = BOOL if isinstance(array, bool) else I64 if isinstance(array, int) else F64
            return self.builder.full((), dtype, array)
        for known, value in self.captured:
            if known is array:
                return value
        if self.outer is None or not self.outer.is_array(array):
            raise WorldFault(f"an array is expected here, not {kind_of(array)}", code="T0818")
        value = Value(self.type_of(array), f"captured{len(self.captured)}")
        self.captured.append((array, value))
        return value

    def type_of(self, array: object) -> TensorType:
        """The type of an array of the world around. Raises NotKnown."""
        outer = self._outer()
        if isinstance(outer, GraphWorld):
            return outer.lifted(array).tensor_type
        dtype, shape = outer.dtype(array), outer.shape(array)
        if not isinstance(dtype, DType) or not isinstance(shape, tuple):
            raise NotKnown
        sizes = cast("tuple[object, ...]", shape)
        if is_unknown(sizes):
            raise NotKnown
        return TensorType(dtype, cast("Shape", sizes))

    def inlined(self, function: Operation, inputs: Sequence[object]) -> list[Value]:
        """The results of a function of Graph IR, built here."""
        (body,) = function.regions
        values = {v: self.lifted(g) for v, g in zip(body.arguments, inputs, strict=True)}
        for o in body.operations[:-1]:
            made = self.builder.repeated(o, [values[v] for v in o.operands])
            values.update(zip(o.results, made, strict=True))
        return [values[v] for v in body.terminator.operands]

    def number(self, value: Value) -> GraphNumber:
        """A value of rank 0 as a number of the host program."""
        dtype = value.tensor_type.dtype
        if dtype != BOOL:
            value = self.builder.cast(value, F64 if dtype.is_float else I64)
        return GraphNumber(value, dtype == F64)

    def is_array(self, value: object) -> bool:
        if isinstance(value, GraphArray | GraphNumber):
            return True
        return self.outer is not None and self.outer.is_array(value)

    def is_own(self, value: object) -> bool:
        """Whether the graph computes a value."""
        if isinstance(value, tuple | list):
            return any(map(self.is_own, cast("tuple[object, ...]", value)))
        return isinstance(value, GraphArray | GraphNumber)

    def base(self) -> World | None:
        """The world around all graphs, which runs; None where there is none."""
        outer = self.outer
        return outer.base() if isinstance(outer, GraphWorld) else outer

    def _outer(self) -> World:
        if self.outer is None:
            raise not_here("what a run alone knows", _OUTSIDE)
        return self.outer

    # --- facts -------------------------------------------------------------------------

    def dtype(self, array: object) -> object:
        if isinstance(array, GraphArray | GraphNumber):
            return array.type.dtype
        return self._outer().dtype(array)

    def shape(self, array: object) -> object:
        if not isinstance(array, GraphArray | GraphNumber):
            return self._outer().shape(array)
        shape = array.type.shape
        return tuple(n if isinstance(n, int) else self._size(array, i) for i, n in enumerate(shape))

    def _size(self, array: GraphArray | GraphNumber, axis: int) -> GraphNumber:
        return GraphNumber(self.op("size", array.value, axis=axis), double=False)

    def device(self, array: object) -> object:
        raise not_here("asking for the device", _OUTSIDE)

    # --- making ------------------------------------------------------------------------

    def fill(
        self, kind: Filling, shape: tuple[int, ...], dtype: DType, value: object = None
    ) -> object:
        if kind == "workspace":
            raise not_here("`op.workspace`", _OUTSIDE)
        sizes = tuple(map(self._dim, shape))
        if isinstance(value, GraphNumber):
            filled = self.builder.cast(value.value, dtype)
            return GraphArray(self.builder.broadcast(filled, sizes))
        number = 1.0 if kind == "ones" else cast("float", value) if kind == "full" else 0.0
        return GraphArray(self.builder.full(sizes, dtype, fitting(number, dtype)))

    def _dim(self, size: object) -> Dim:
        """A size of a shape: a number, or the size of an axis, which may be a name."""
        made = self.builder.origin(size.value) if isinstance(size, GraphNumber) else None
        if made is not None and made.name == "graph.size":
            return made.operands[0].tensor_type.shape[made.integer("axis")]
        if not isinstance(size, int):
            raise not_here("an array of a size that the function computes")
        return size

    def of_numbers(self, array: object, numbers: object = None) -> object:
        if not isinstance(array, GraphArray):
            return self._outer().of_numbers(array, numbers)
        exact = array.value
        if self.is_array(numbers):
            exact = self.lifted(numbers)
        elif isinstance(numbers, int | float):
            dtype = F64 if isinstance(numbers, float) else I64
            exact = self.builder.full(array.type.shape, dtype, numbers)
        return GraphArray(array.value, exact)

    def beside(self, array: object, dtype: DType) -> object:
        if not isinstance(array, GraphArray):
            return self._outer().beside(array, dtype) if self.is_of_numbers(array) else array
        if array.numbers is None or BOOL in (dtype, array.type.dtype):
            return array
        return GraphArray(self.builder.cast(array.numbers, dtype))

    def is_of_numbers(self, array: object) -> bool:
        if isinstance(array, GraphArray):
            return array.numbers is not None
        return (
            self.outer is not None
            and not self.is_own(array)
            and (self.outer.is_array(array) and self.outer.is_of_numbers(array))
        )

    def met(self, *arrays: object) -> tuple[object, ...]:
        """Arrays that meet: those of numbers in the dtype of the others."""
        own = [v for v in arrays if not self.is_of_numbers(v)]
        dtypes = [self.dtype(v) for v in own if self.is_array(v) and not is_number(v)]
        known = sorted((d for d in dtypes if isinstance(d, DType) and d != BOOL),
                       key=lambda d: not d.is_float)  # fmt: skip
        return tuple(self.beside(v, known[0]) for v in arrays) if known else arrays

    def arange(self, start: float, stop: float, step: float, dtype: DType) -> object:
        shape = (arange_count(start, stop, step, dtype),)
        exact = F64 if dtype.is_float else I64
        places = self.op("arange", shape=tuple(map(str, shape)), dtype=exact)
        if step != 1:
            places = self.builder.mul(places, self.builder.like(places, step))
        if start:
            places = self.builder.add(places, self.builder.like(places, start))
        return GraphArray(self.builder.cast(places, dtype))

    def random(
        self, shape: tuple[int, ...], dtype: DType | None, seed: int, low: float, high: float
    ) -> object:
        return self._outer().random(shape, dtype, seed, low, high)

    def load(self, path: str, key: str | None, dtype: DType | None) -> object:
        return self._outer().load(path, key, dtype)

    def save(self, path: str, arrays: dict[str, object]) -> None:
        raise not_here("`op.save`", _OUTSIDE)

    # --- items -------------------------------------------------------------------------

    def read(self, array: object, items: tuple[Index, ...]) -> object:
        if any(isinstance(i, Counter) for i in items):
            return part_at_step(self, array, items)
        if any(map(self.is_array, items)):
            raise not_here("choosing elements by bools", BY_VALUE)
        if not self.is_own(array):
            return self._outer().read(array, items)
        value = self.lifted(array)
        axes = [i for i in items if i is not None]
        rank = value.tensor_type.rank
        if len(axes) > rank:
            raise WorldFault(f"{len(axes)} indices for an array of {rank} axes", code="T0807")
        found = chosen(self, value, items)
        if len(axes) == rank and all(isinstance(i, int) for i in items):
            return self.number(found)
        if not isinstance(array, GraphArray):
            return GraphArray(found)
        exact = array.numbers
        numbers = None if exact is None else chosen(self, exact, items)
        part, put = partial(chosen, self, items=items), partial(with_part, self, axes=axes)
        return GraphArray(found, numbers, View(array, part, put), is_slice=True)

    def write(self, array: object, items: tuple[Index, ...], value: object) -> None:
        raise not_here(
            "a store into an array", BY_VALUE, "put parts together: `op.concat((a, b), axis=0)`"
        )

    def named(self, array: object) -> object:
        if isinstance(array, GraphArray) and array.is_slice:
            return GraphArray(array.value, array.numbers, is_value=True)
        return array if self.is_own(array) else self._outer().named(array)

    def value_of(self, array: object) -> object:
        if self.outer is None or self.is_own(array):
            return None
        return self.outer.value_of(array)

    def release(self, array: object) -> None:
        if self.outer is not None and not self.is_own(array):
            self.outer.release(array)

    def viewed(self, array: object, of: object) -> object:
        return array

    def shares(self, a: object, b: object) -> bool:
        if self.is_own(a) or self.is_own(b):
            return a is b
        return self._outer().shares(a, b)

    # --- arithmetic --------------------------------------------------------------------

    def unary(self, operator: str, a: object) -> object:
        exact = self.numbers(a)
        if exact is not None and operator != "not":
            found, numbers = (
                self.lifted(self.unary(operator, GraphArray(v))) for v in (self.lifted(a), exact)
            )
            return GraphArray(found, numbers)
        value, like = self.lifted(a), self.like(a)
        dtype = value.tensor_type.dtype
        if operator == "+" and dtype != BOOL:
            return like(value)
        if operator in ("not", "~") and dtype == BOOL:
            return like(self.op("not", value))
        if operator == "not":
            return like(self.op("eq", value, self.builder.zeros(value)))
        if dtype == BOOL or (operator == "~" and dtype.is_float):
            raise WorldFault(f"`{operator}` does not take an array of {dtype}")
        return like(self.op({"-": "neg", "abs": "abs", "~": "not"}[operator], value))

    def like(self, *operands: object) -> Callable[[Value], GraphArray | GraphNumber]:
        """What is made of operands: a number of numbers, else an array."""
        if not all(isinstance(o, GraphNumber | bool | int | float) for o in operands):
            return GraphArray
        double = any(map(is_double, operands))
        return lambda value: GraphNumber(value, double and value.tensor_type.dtype == F64)

    def binary(self, operator: str, a: object, b: object) -> object:
        if operator not in _OPERATORS:
            raise not_here(f"`{operator}` of arrays")
        for other in (a, b):
            if not (self.is_array(other) or isinstance(other, bool | int | float)):
                raise WorldFault(f"`{operator}` does not take an array and {kind_of(other)}",
                                 code="T0818")  # fmt: skip
        if is_known(a) and is_known(b):
            return counted_too(operator, a, b, self._binary(operator, a, b))
        a, b = self.met(a, b)
        numbers = self.like(a, b) is not GraphArray
        counted = operator in "+-*/%//" and any(isinstance(v, int | float) for v in (a, b))
        weak = [self._exact(v, counted) for v in (a, b)]
        if all(v is not None for v in weak) and operator not in _COMPARISONS and not numbers:
            exact = cast("GraphArray", self._binary(operator, *weak)).value
            if exact.tensor_type.dtype.is_float and self._are_whole(a, b):
                return GraphArray(self.builder.cast(exact, self.floats), exact)
            found = self._binary(operator, strong(a), strong(b))
            return GraphArray(cast("GraphArray", found).value, exact)
        return self._binary(operator, a, b)

    def _binary(self, operator: str, a: object, b: object) -> object:
        """Of dtypes as they are."""
        like = self.like(a, b)
        exact = operator in _COMPARISONS and compared_exactly(self, _OPERATORS[operator], a, b)
        if exact:
            return like(exact)
        numbers = like is not GraphArray
        if operator == "**" and isinstance(b, int | float) and not isinstance(b, bool):
            power = known_power(self.builder, self.lifted(a), b)
            if power is not None:
                return like(power)
        x, y, dtype = self._operands(operator, a, b)
        name = _OPERATORS[operator]
        if operator == "/" and not dtype.is_float:
            if not numbers and dtype == BOOL:
                raise WorldFault("`/` does not take arrays of bool")
            x, y = self.builder.cast(x, F64), self.builder.cast(y, F64)
        if dtype == BOOL and name in ("min", "max"):
            name = "and" if name == "min" else "or"
        x, y = self.stretched(x, y)
        return like(self.op(name, x, y))

    def _exact(self, value: object, counted: bool) -> object:
        """What is made of numbers, in 64 bits: floats, where one has a point; None of another.
        ``counted``: bools are 0 and 1, as beside a number."""
        if isinstance(value, int | float):
            return value
        exact = self.numbers(value)
        if counted and isinstance(value, GraphArray) and value.type.dtype == BOOL:
            exact = value.value
        if exact is None:
            return None
        return GraphArray(self.builder.cast(exact, F64))

    def _are_whole(self, *values: object) -> bool:
        """Whether operands are arrays of integers and a number that is none."""
        arrays = [v for v in values if self.is_array(v)]
        points = any(isinstance(v, float) for v in values)
        return points and not any(self.lifted(v).tensor_type.dtype.is_float for v in arrays)

    def numbers(self, value: object) -> Value | None:
        """The numbers that an array was made of; None of another."""
        if isinstance(value, GraphArray):
            return value.numbers
        if not self.is_of_numbers(value) or self.dtype(value) == BOOL:
            return None
        return self.lifted(self.beside(value, F64))

    def _operands(self, operator: str, a: object, b: object) -> tuple[Value, Value, DType]:
        """Two operands, of the dtype in which they meet."""
        number_a, number_b = (isinstance(v, GraphNumber | bool | int | float) for v in (a, b))
        x, y = self.lifted(a), self.lifted(b)
        left, right = x.tensor_type.dtype, y.tensor_type.dtype
        if number_a == number_b:
            common = number_dtype(left, right) if number_a else common_of(operator, left, right)
            if operator in _COMPARISONS and left.is_integer and right.is_integer:
                common = common or I64
            if common is None:
                raise WorldFault(f"arrays of {left} and {right} do not mix without a cast",
                                 code="T0818", helps=mixing_help(left, right))  # fmt: skip
            return self.builder.cast(x, common), self.builder.cast(y, common), common
        array, number, given = (y, x, a) if number_a else (x, y, b)
        dtype = array.tensor_type.dtype
        if dtype.is_integer and number.tensor_type.dtype.is_float:
            dtype = float_of_integers(dtype, self.floats, is_double(given))
        if dtype == BOOL and operator in ("+", "-", "*", "/"):
            dtype = (
                I32 if not number.tensor_type.dtype.is_float and operator != "/" else self.floats
            )
        if operator in _COMPARISONS and isinstance(given, int) and not dtype.is_float:
            dtype = compared_in(dtype, given)
        made = self._meeting(number, given, dtype)
        wide = self.builder.cast(array, dtype)
        return (made, wide, dtype) if number_a else (wide, made, dtype)

    def _meeting(self, number: Value, given: object, dtype: DType) -> Value:
        """A number of the dtype of the array that it meets."""
        if not isinstance(given, GraphNumber):
            return self.builder.full((), dtype, fitting(cast("float", given), dtype))
        return self.builder.cast(number, dtype)

    def meet(self, a: object, b: object) -> tuple[Value, ...]:
        """Two operands of one dtype and shape."""
        x, y, _ = self._operands("", *self.met(a, b))
        return self.stretched(x, y)

    def stretched(self, *values: Value) -> tuple[Value, ...]:
        """Values of one shape, lined up along their last axes: axes of one element are stretched,
        and numbers to all axes."""
        shapes = [v.tensor_type.shape for v in values if v.tensor_type.rank]
        if not shapes:
            return values
        rank = max(map(len, shapes))
        lined = [(1,) * (rank - len(s)) + s for s in shapes]
        shape = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*lined, strict=True))
        try:
            return tuple(self.builder.broadcast(v, shape) for v in values)
        except OperandError:
            shown = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            notes = size_notes(self.builder, "", [v for v in values if v.tensor_type.rank])
            raise WorldFault(f"arrays of shapes {shown} do not fit together",
                             code="T0834", notes=notes) from None  # fmt: skip

    def convert(self, array: object, dtype: DType) -> object:
        found = self.builder.cast(self.lifted(array), dtype)
        if not isinstance(array, GraphNumber):
            return GraphArray(found)
        made = self.number(found)
        return GraphNumber(made.value, made.double and array.double)

    # --- axes --------------------------------------------------------------------------

    def axis(self, name: str, axis: int, rank: int) -> int:
        """An axis that may be counted from the end."""
        if not -rank <= axis < rank:
            raise WorldFault(f"`{name}`: there is no axis {axis} in an array of {rank} axes",
                             code="T0807")  # fmt: skip
        return axis % rank

    def reduce(self, kind: Reduction, array: object, axis: int | None) -> object:
        if not self.is_own(array):
            try:
                return self._outer().reduce(kind, array, axis)
            except WorldFault as refused:
                if refused.code != "T0809":
                    raise  # a world that computes nothing has kernels do it
        return self.reduced(kind, array, None if axis is None else (axis,), False)

    def reduced(
        self, kind: str, array: object, axes: tuple[int, ...] | None, keepdims: bool
    ) -> object:
        """A reduction; a number where no axis is left. Sums of all elements of narrow floats are
        not rounded to them."""
        value = self.lifted(array)
        rank, dtype = value.tensor_type.rank, value.tensor_type.dtype
        if not rank:
            value, rank = self.builder.reshape(value, (1,)), 1
        over = tuple(range(rank)) if axes is None else axes
        over = tuple(sorted(self.axis(f"op.{kind}", a, rank) for a in over))
        to_number = len(over) == rank and not keepdims
        if kind in ("any", "all") and dtype != BOOL:
            value = self.op("ne", value, self.builder.zeros(value))
        if kind == "prod" and not dtype.is_float:
            raise not_here(f"`op.prod` of {dtype}")
        if to_number and dtype.is_float and dtype.bits < 32 and kind in ("sum", "mean", "prod"):
            value = self.builder.cast(value, F32)
        if kind in ("argmin", "argmax"):
            found = self._placed(kind, value, over, rank)
        else:
            name = _REDUCTIONS.get(kind, kind)
            found = self.op(name, value, axes=over, keepdims=keepdims)
        return self.number(found) if to_number else GraphArray(found)

    def _placed(self, kind: str, value: Value, over: tuple[int, ...], rank: int) -> Value:
        if len(over) == rank:
            sizes = value.tensor_type.shape
            if not all(isinstance(n, int) for n in sizes):
                raise not_here(f"`op.{kind}` of axes whose sizes are names")
            value, over = self.builder.reshape(value, (math.prod(cast("tuple[int, ...]", sizes)),
                                                       )), (0,)  # fmt: skip
        (axis,) = over
        return self.op(kind, value, axis=axis)

    def view(self, kind: ViewKind, array: object, shape: tuple[int, ...] = ()) -> object:
        if not self.is_own(array):
            return self._outer().view(kind, array, shape)
        if not isinstance(array, GraphArray):
            return GraphArray(self._viewed(self.lifted(array), kind, shape))
        if kind == "contiguous":
            if array.has_no_gaps:
                return array
            view = View(array)
            return GraphArray(array.value, array.numbers, view, is_slice=array.is_slice)
        part = partial(self._viewed, kind=kind, shape=shape)
        exact = None if array.numbers is None else part(array.numbers)
        view = self._view_of(array, kind, part)
        return GraphArray(part(array.value), exact, view, is_slice=array.is_slice)

    def _view_of(self, array: GraphArray, kind: str, part: Callable[[Value], Value]) -> View:
        """How an array with other axes shares memory with the one that it is made of."""
        if kind != "reshape":
            return View(array, part, lambda _, found: self.builder.swapped(found))
        if not array.has_no_gaps:
            return View(array)
        back = self.builder.reshape
        return View(array, part, lambda old, found: back(found, old.tensor_type.shape))

    def _viewed(self, value: Value, kind: str, shape: tuple[int, ...]) -> Value:
        """A value with other axes."""
        rank = value.tensor_type.rank
        if kind == "contiguous":
            return value
        if kind == "reshape":
            return self.op("reshape", value, shape=self._sizes(value, shape))
        if rank < 2 or (kind == "T" and rank != 2):
            needs = "rank 2" if kind == "T" else "rank 2 or more"
            raise WorldFault(f"`.{kind}` takes an array of {needs}, not {value.tensor_type}",
                             code="T0833")  # fmt: skip
        return self.builder.swapped(value)

    def _sizes(self, value: Value, shape: tuple[int, ...]) -> tuple[str, ...]:
        """A shape as an attribute, with the size that is to be inferred."""
        have = value.tensor_type.shape
        if -1 in shape:
            known = -math.prod(shape)
            if not all(isinstance(n, int) for n in have):
                raise not_here("a reshape that infers a size, of an array whose sizes are names")
            total = math.prod(cast("tuple[int, ...]", have))
            if shape.count(-1) > 1 or not known or total % known:
                raise WorldFault(f"{total} elements do not make an array of shape {shape}",
                                 code="T0834")  # fmt: skip
            shape = tuple(total // known if n == -1 else n for n in shape)
        return tuple(map(str, shape))

    # --- what a graph does not do --------------------------------------------------------

    def truth(self, array: object) -> bool:
        if not self.is_own(array):
            return self._outer().truth(array)
        raise not_here("a decision by what the function computes", BY_VALUE)

    def text(self, array: object, format: str = "") -> str:
        if not self.is_own(array):
            return self._outer().text(array, format)
        raise not_here("showing what the function computes", "return it, and show it outside")

    def launch(
        self, kernel: KernelReference, arguments: tuple[object, ...],
        constants: Mapping[str, object], groups: tuple[int, ...] | None,
    ) -> object:  # fmt: skip
        if any(map(self.is_own, arguments)):
            raise not_here(f"a call of {kernel.description}",
                           "write what it computes with `op.*`")  # fmt: skip
        return self._outer().launch(kernel, arguments, constants, groups)

    def print(self, text: str) -> None:
        if self.frames:
            raise not_here("showing something where data decide", "return it, and show it outside")
        self._outer().print(text)

    def finish(self) -> None:
        return None
