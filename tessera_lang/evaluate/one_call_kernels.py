"""Calls that only tile kernels have, on arrays of the host program: each is a kernel of its own.

Owns the text of that kernel, and that its faults stand at the call. Must not know what a call
computes: the compiler says what it takes.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import cast

from tessera_grammar.keywords import MODULE_MEMBERS

from tessera_lang.diagnostics import Diagnostic
from tessera_lang.evaluate.arguments import Arguments
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.double import Double
from tessera_lang.evaluate.expansion_texts import OF_ELEMENTS
from tessera_lang.evaluate.fault import HostFault, fault, located
from tessera_lang.evaluate.value import Scope, Unknown
from tessera_lang.record import replace
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.syntax.dump import source_text
from tessera_lang.syntax.view_mutation_help import is_view
from tessera_lang.target.host_world import KernelReference, World
from tessera_lang.types.dtype import BOOL, F32, F64, I64, DType

KERNEL = "call"
_PARAMETER = "argument"
IN_KERNELS_ALONE = (
    "tile_range", "shared", "prefetch", "barrier", "window", "causal", "iota",
)  # fmt: skip
"""Members of ``op`` that say something of the kernel that they stand in."""
_NO_CALLS = (*IN_KERNELS_ALONE, "kernel", "autotunable")

_PAIRS = ("op.topk",)
"""What gives two arrays."""
_OF_KNOWN_NUMBERS = ("op.quantile", "op.percentile", "op.var", "op.std")
"""What takes floats that a kernel must know when it is compiled."""
_TO_SHAPES = ("op.broadcast_to",)
"""What stretches an array, though it meets no other."""
_MAKERS = ("op.eye", "op.linspace")
"""What makes an array of numbers."""
_OF_PLACES = ("op.take", "op.take_along_axis", "op.repeat")
"""What takes an array of places, which meets no other."""
_OF_NUMBERS = ("op.where", "op.isclose", "op.power", "op.hypot", "op.sinc", "op.nan_to_num",
               "op.isposinf", "op.isneginf", "op.round", "op.sign")  # fmt: skip
"""What takes numbers alone, besides functions of each element."""
_OF_FLOATS = ("op.cbrt", "op.copysign", "op.logaddexp", "op.heaviside", "op.sinc", "op.deg2rad",
              "op.rad2deg", "op.rint", "op.fabs")  # fmt: skip
"""What takes floats alone, where NumPy takes integers too."""
_MEANS = ("op.mean", "op.var", "op.std", "op.norm", "op.median", "op.quantile", "op.percentile")
_ONE_RESULT = ("return {}",)
_TWO_RESULTS = ("first, second = {}", "return first, second")


class _Unknown(Exception):
    """An argument that is not known before the program runs."""


class _Text:
    """A call as text: arrays by names, everything else by its value. ``floats``: the dtype that
    numbers with a point take as parameters, so that a program that changes them compiles once."""

    def __init__(self, host: Host, floats: DType | None = None) -> None:
        self._host = host
        self._floats = floats
        self.arrays: dict[str, object] = {}
        self.parameters: list[str] = []
        self.written: dict[str, str] = {}  # arguments, by the names of their parameters

    def say_axes_of_one(self, name: str) -> None:
        """Arrays that meet are typed with their axes of one element, which are stretched."""
        world = self._host.world
        arrays = [n for n, v in self.arrays.items() if world.is_array(v)]
        if len(arrays) < 2 and name not in _TO_SHAPES:
            return
        for i, parameter in enumerate(self.parameters):
            if parameter in arrays:
                self.parameters[i] += _axes_of_one(world, parameter, self.arrays[parameter])

    def of(self, value: object, e: ast.Expr | None) -> str:
        """Raises _Unknown, and HostFault for what no kernel takes."""
        if self._host.world.is_array(value):
            return self._name(value, e)
        match value:
            case Unknown():
                raise _Unknown
            case tuple() | list():
                return self._sequence(cast("tuple[object, ...] | list[object]", value), e)
            case float() if self._floats is not None:
                name = f"number{len(self.arrays)}"
                self.arrays[name] = value
                self.parameters.append(f"{name}: {self._floats.name}")
                return name
            case float() if not math.isfinite(value):
                return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
            case bool() | int() | float() | None:
                return repr(value)
            case str():
                return json.dumps(value, ensure_ascii=False)
            case DType():
                return value.name
            case _:
                raise _Unknown

    def _sequence(self, values: tuple[object, ...] | list[object], e: ast.Expr | None) -> str:
        inner = e.items if isinstance(e, ast.TupleExpr | ast.ListExpr) else ()
        items = inner if len(inner) == len(values) else (None,) * len(values)
        texts = [self.of(v, item) for v, item in zip(values, items, strict=True)]
        if isinstance(values, list):
            return f"[{', '.join(texts)}]"
        return f"({', '.join(texts)}{',' * (len(texts) == 1)})"

    def _name(self, array: object, e: ast.Expr | None) -> str:
        for name, known in self.arrays.items():
            if known is array:
                return name
        count = len(self.arrays)
        name = f"{_PARAMETER}{count}"  # the same for all calls, which share a kernel
        if e is None:
            self.written[name] = written(name)
        else:
            self.written[name] = source_text(e)
        self.arrays[name] = array
        self.parameters.append(name)
        return name


def _axes_of_one(world: World, name: str, array: object) -> str:
    """The type of an array that has an axis of one element: `: f32[x_axis0, 1]`."""
    shape, dtype = world.shape(array), world.dtype(array)
    sizes = cast("tuple[object, ...]", shape) if isinstance(shape, tuple) else ()
    if 1 not in sizes or not isinstance(dtype, DType):
        return ""
    axes = ("1" if n == 1 else f"{name}_axis{axis}" for axis, n in enumerate(sizes))
    return f": {dtype.name}[{', '.join(axes)}]"


def _by_kernel(name: str) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        return call_by_kernel(host, name, arguments)

    return function


def call_by_kernel(host: Host, name: str, arguments: Arguments) -> object:
    """``name(...)`` of arrays, as tile kernels compute it."""
    arguments = _met(host, name, arguments)
    arguments = _means_in_f64(host.world, name, arguments)
    arguments, weak = in_64_bits(host.world, name, arguments)
    of_numbers = _is_of_numbers(host, name, arguments)
    floats = None if name in _OF_KNOWN_NUMBERS else _dtype_of_floats(host, arguments)
    if of_numbers and name == "op.where":
        floats = F64
    text = _Text(host, floats)
    call = arguments.call
    try:
        given = [
            *map(text.of, arguments.values, call.arguments),
            *(f"{k.name}={text.of(arguments.keywords[k.name], k.value)}" for k in call.keywords),
        ]
    except _Unknown:
        return Unknown()
    if not text.arrays and name not in _MAKERS:
        member = name.removeprefix("op.")
        if member in MODULE_MEMBERS["math"]:
            return _of_number(host, member, arguments)
        if member in OF_ELEMENTS or name in _OF_NUMBERS:
            return _of_numbers_alone(host, name, arguments)
        raise fault("T0818", f"`{name}` takes an array, not numbers alone", call.span)
    if of_numbers and name == "op.linspace":
        given.append("dtype=f64")
    text.say_axes_of_one(name)
    found = _launched(host, f"{name}({', '.join(given)})", text, call.span,
                      name in _PAIRS)  # fmt: skip
    if of_numbers and host.world.is_array(found):
        if not _is_float(host.world, found) or host.world.dtype(found) == host.world.floats:
            return host.world.of_numbers(found)
        return host.world.of_numbers(host.world.convert(found, host.world.floats), found)
    if weak is not None:
        found = of_numbers_again(host.world, found, weak)
    elif host.world.is_array(found) and _counts(host, name, arguments):
        found = host.world.of_numbers(found)
    if is_view(name) and host.world.is_array(found):
        return host.world.viewed(found, next(iter(text.arrays.values())))
    return found


def _is_of_numbers(host: Host, name: str, arguments: Arguments) -> bool:
    """Whether a call makes an array of numbers of the program, which says no dtype."""
    numbers = arguments.values[1:] if name == "op.where" else arguments.values
    if name not in (*_MAKERS, "op.where") or "dtype" in arguments.keywords or not numbers:
        return False
    numbers = (*numbers, *arguments.keywords.values())
    return all(isinstance(n, (int, float)) and not isinstance(n, (bool, Double)) for n in numbers)


def _met(host: Host, name: str, arguments: Arguments) -> Arguments:
    """Arrays of numbers in the dtype of the arrays that they meet in a call."""
    if name in _OF_PLACES:
        return arguments
    world, given = host.world, (*arguments.values, *arguments.keywords.values())
    arrays = [v for v in _flat(given) if world.is_array(v)]
    if not any(world.is_of_numbers(v) for v in arrays):
        return arguments
    dtypes = [world.dtype(v) for v in arrays if not world.is_of_numbers(v)]
    known = [d for d in dtypes if isinstance(d, DType) and d != BOOL]
    known.sort(key=lambda d: not d.is_float)
    if not known:
        return arguments

    def beside(value: object) -> object:
        if isinstance(value, (tuple, list)):
            items = map(beside, cast("tuple[object, ...]", value))
            return list(items) if isinstance(value, list) else tuple(items)
        return world.beside(value, known[0]) if world.is_array(value) else value

    return Arguments(
        arguments.call, tuple(map(beside, arguments.values)),
        {n: beside(v) for n, v in arguments.keywords.items()},
    )  # fmt: skip


def in_64_bits(world: World, name: str, arguments: Arguments) -> tuple[Arguments, DType | None]:
    """Arrays of numbers that meet no other array, with all bits of their numbers; and the dtype of
    floats that they have alone. None: there are other arrays, or none."""
    given = (*arguments.values, *arguments.keywords.values())
    arrays = [v for v in _flat(given) if world.is_array(v)]
    if not arrays or not all(world.is_of_numbers(v) for v in arrays):
        return arguments, None
    dtypes = [d for v in arrays if isinstance(d := world.dtype(v), DType)]
    floats = [d for d in dtypes if d.is_float]
    if not floats or len(dtypes) < len(arrays):
        return arguments, F32 if len(dtypes) == len(arrays) else None

    def wide(value: object) -> object:
        if isinstance(value, (tuple, list)):
            items = map(wide, cast("tuple[object, ...]", value))
            return list(items) if isinstance(value, list) else tuple(items)
        if not world.is_array(value) or name in _OF_PLACES and not _is_float(world, value):
            return value
        return world.beside(value, F64)

    return Arguments(
        arguments.call, tuple(map(wide, arguments.values)),
        {n: wide(v) for n, v in arguments.keywords.items()},
    ), F64 if F64 in floats else F32  # fmt: skip


def _means_in_f64(world: World, name: str, arguments: Arguments) -> Arguments:
    """Integers of which a mean is taken, in f64 where floats are f64: the kernel of one call sees
    no other array."""
    given = arguments.values
    first = world.dtype(given[0]) if given and world.is_array(given[0]) else None
    narrow = isinstance(first, DType) and not first.is_float and first.bits < 32
    if name not in _MEANS or world.floats != F64 or not narrow:
        return arguments
    converted = world.convert(given[0], F64)
    return Arguments(arguments.call, (converted, *given[1:]), arguments.keywords)


def _counts(host: Host, name: str, arguments: Arguments) -> bool:
    """Whether a call gives places, or sums of bools, which meet floats."""
    if name in ("op.argsort", "op.count_nonzero", "op.searchsorted", "op.digitize"):
        return True
    first = arguments.values[0] if arguments.values else None
    return name == "op.cumsum" and host.world.is_array(first) and host.world.dtype(first) == BOOL


def _is_float(world: World, array: object) -> bool:
    dtype = world.dtype(array)
    return isinstance(dtype, DType) and dtype.is_float


def of_numbers_again(world: World, found: object, floats: DType) -> object:
    """What was computed of arrays of numbers: numbers again, which alone have the dtype
    ``floats``."""
    if isinstance(found, tuple):
        return tuple(of_numbers_again(world, v, floats) for v in cast("tuple[object, ...]", found))
    if not world.is_array(found):
        return float(found) if isinstance(found, Double) else found
    dtype = world.dtype(found)
    if dtype == F64 and floats != F64:
        return world.of_numbers(world.convert(found, floats), found)
    return found if dtype == BOOL else world.of_numbers(found)


def _flat(values: Sequence[object]) -> Iterator[object]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(cast("Sequence[object]", value))
        else:
            yield value


def _of_number(host: Host, member: str, arguments: Arguments) -> object:
    """``op.sqrt`` of a number is ``math.sqrt``."""
    call, span = arguments.call, arguments.call.function.span
    function = ast.Attribute(span, ast.Name(span, "math"), member, span)
    names = tuple(ast.Name(e.span, f"x{i}") for i, e in enumerate(call.arguments))
    given = {n.id: v for n, v in zip(names, arguments.values, strict=True)}
    return host.value(ast.Call(call.span, function, names, call.keywords), Scope("", given))


def _of_numbers_alone(host: Host, name: str, arguments: Arguments) -> object:
    """A function of each element, of numbers: of arrays of one element with 64 bits."""

    def as_array(value: object) -> object:
        if not isinstance(value, (bool, int, float)):
            return value
        dtype = BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else F64
        return host.world.fill("full", (1,), dtype, value)

    numbers = (*arguments.values, *arguments.keywords.values())
    floats = any(isinstance(n, float) for n in numbers) or name in _OF_FLOATS
    given = tuple(float(v) if floats and isinstance(v, int) and not isinstance(v, bool) else v
                  for v in arguments.values)  # fmt: skip
    made = Arguments(arguments.call, tuple(map(as_array, given)), arguments.keywords)
    found = call_by_kernel(host, name, made)
    number = host.world.read(found, (0,)) if host.world.is_array(found) else found
    if isinstance(number, Double) and not any(isinstance(n, Double) for n in numbers):
        return float(number)
    return number


def _dtype_of_floats(host: Host, arguments: Arguments) -> DType | None:
    """The dtype of the first array of floats; None where there is none."""
    given = (*arguments.values, *arguments.keywords.values())
    if not any(host.world.is_array(v) for v in given) and any(isinstance(v, Double) for v in given):
        return F64
    dtypes = (host.world.dtype(v) for v in given if host.world.is_array(v))
    return next((d for d in dtypes if isinstance(d, DType) and d.is_float and d.bytes > 1), None)


def product(
    host: Host, a: object, b: object, span: Span,
    operands: tuple[ast.Expr, ast.Expr] | None = None,
) -> object:  # fmt: skip
    """``a @ b`` of two arrays; ``operands``: as they are written."""
    text = _Text(host)
    left, right = operands or (None, None)
    dtypes = [host.world.dtype(x) for x in (a, b)]
    a, b = (
        host.world.beside(x, d) if isinstance(d, DType) and not host.world.is_of_numbers(y) else x
        for x, y, d in ((a, b, dtypes[1]), (b, a, dtypes[0]))
    )
    weak: DType | None = None
    if all(host.world.is_of_numbers(x) for x in (a, b)) and any(
        isinstance(d, DType) and d.is_float for d in dtypes
    ):
        weak = F64 if F64 in dtypes else F32
        a, b = (host.world.beside(x, F64) for x in (a, b))
    found = _launched(host, f"{text.of(a, left)} @ {text.of(b, right)}", text, span)
    return found if weak is None else of_numbers_again(host.world, found, weak)


def chosen(host: Host, array: object, items: Sequence[object], span: Span) -> object:
    """``array[items]``, where arrays of integers choose rows or elements."""
    weak: DType | None = None
    if host.world.is_of_numbers(array):
        weak = F64 if host.world.dtype(array) == F64 else F32
        if _is_float(host.world, array):
            array = host.world.beside(array, F64)
    text = _Text(host)
    name = text.of(array, None)
    axes = itertools.count()
    try:
        shown = [_place(host, text, name, i, axes) for i in items]
    except _Unknown:
        return Unknown()
    text.say_axes_of_one("x[...]")
    found = _launched(host, f"{name}[{', '.join(shown)}]", text, span, shown="x[...]")
    return found if weak is None else of_numbers_again(host.world, found, weak)


def _place(host: Host, text: _Text, name: str, item: object, axes: Iterator[int]) -> str:
    """One item of an index; ``axes``: the numbers of the axes from its own on. Places that are
    below 0 count from the end."""
    if item is None:
        return "None"
    axis = next(axes)
    if isinstance(item, slice):
        return _slice(cast("slice[object, object, object]", item))
    place, dtype = (
        text.of(item, None),
        host.world.dtype(item) if host.world.is_array(item) else None,
    )
    if not isinstance(dtype, DType) or dtype.kind != "int":
        return place
    return f"op.where({place} < 0, {place} + {name}.shape[{axis}], {place})"


def _slice(found: slice[object, object, object]) -> str:
    step = "" if found.step is None else f":{found.step}"
    first, last = ("" if b is None else str(b) for b in (found.start, found.stop))
    return f"{first}:{last}{step}"


def written(name: str) -> str:
    """A parameter of such a kernel as messages call it: `x`, `y`, `z`, `x3`."""
    if not name.startswith(_PARAMETER) or not name[len(_PARAMETER) :].isdigit():
        return name
    number = int(name[len(_PARAMETER) :])
    return "xyz"[number] if number < len("xyz") else f"x{number}"


def call_of(path: str) -> str:
    """The call that a kernel of such a text is for; empty of another path."""
    head, found, call = path.partition(") ")
    if not (found and head.startswith("<(") and call.endswith(">")):
        return ""
    return re.sub(rf"\b{_PARAMETER}\d+\b", lambda m: written(m[0]), call[:-1])


def _launched(
    host: Host, call: str, text: _Text, span: Span, two: bool = False, shown: str = ""
) -> object:
    shown = shown or ("@" if " @ " in call else call.partition("(")[0])
    parameters = ", ".join(text.parameters)
    path = f"<({parameters}) {call}>"  # one text for each: runtimes keep kernels by the path
    body = "".join(f"    {line}\n" for line in (_TWO_RESULTS if two else _ONE_RESULT))
    source = f"@op.kernel\ndef {KERNEL}({parameters}):\n{body.format(call)}"
    host.modules.add_text(path, source, span)
    try:
        with located(span):
            kernel = KernelReference(path, KERNEL, pure=True)
            found = host.world.launch(kernel, tuple(text.arrays.values()), {}, None)
    except HostFault as error:
        raise HostFault(
            tuple(_at_call(d, path, shown, span, text.written) for d in error.diagnostics)
        ) from None
    if isinstance(found, tuple):
        return tuple(_value(host, v) for v in cast("tuple[object, ...]", found))
    return _value(host, found)


def _value(host: Host, found: object) -> object:
    """A number where an array has no axes."""
    is_number = host.world.is_array(found) and host.world.shape(found) == ()
    return host.world.read(found, ()) if is_number else found


def _at_call(
    d: Diagnostic, path: str, shown: str, span: Span, written: dict[str, str]
) -> Diagnostic:
    """Nobody wrote the kernel: what is wrong with it is wrong with the call."""
    labels = tuple(x for x in d.labels if x.span.file != path and x.span != span)
    inside = d.span is None or d.span.file == path
    return replace(
        d,
        message=_as_written(d.message.replace(f"`{KERNEL}`", f"`{shown}`"), written),
        notes=tuple(_as_written(n, written) for n in d.notes if "_axis" not in n),
        helps=tuple(_as_written(h, written) for h in d.helps),
        span=span if inside else d.span,
        label="" if inside else d.label,
        labels=labels,
        fixes=(),
    )


def _as_written(message: str, written: dict[str, str]) -> str:
    """A message with the arguments as the program has them, not the parameters of the kernel."""
    message = re.sub(r"\b(\w+)_axis(\d+)\b", r"\1.shape[\2]", message)
    return re.sub(r"\bargument\d+\b", lambda m: written.get(m[0], m[0]), message)


ONE_CALL_KERNELS: dict[str, Function] = {
    f"op.{name}": _by_kernel(f"op.{name}")
    for name in MODULE_MEMBERS["op"] if name not in _NO_CALLS
}  # fmt: skip
