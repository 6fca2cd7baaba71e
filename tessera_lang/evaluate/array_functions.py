"""``op.*`` of the host program: making, loading, reshaping and reducing arrays.

Owns how their arguments are read; the arrays are the ``World``'s. Must not know statements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import cast

from tessera_lang.evaluate import arithmetic
from tessera_lang.evaluate.arguments import Arguments, bind, integer_of, wrong_count
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.double import Double
from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.one_call_kernels import call_by_kernel
from tessera_lang.evaluate.value import Deferred, Scope, Unknown, is_unknown
from tessera_lang.source import Span
from tessera_lang.syntax.substitute import substituted
from tessera_lang.target.host_world import Filling, Reduction
from tessera_lang.types.dtype import BOOL, F64, I32, I64, DType, dtype_named

MAX_RANK = 16


# --- reading arguments ---------------------------------------------------------------------


def dtype_of(value: object, span: Span) -> DType:
    """A dtype, or the name of one in a string."""
    if isinstance(value, (DType, Unknown)):
        return cast("DType", value)
    if isinstance(value, str):
        named = dtype_named(value)
        if named is not None:
            return named
        raise fault("T0818", f'there is no dtype "{value}"', span)
    raise fault("T0818", f"{arithmetic.kind_of(value)} is no dtype", span)


def shape_of(value: object, span: Span, inferred: bool = False) -> tuple[int, ...]:
    """A shape: one size or a tuple of sizes (unknown ones pass); -1 where it is inferred."""
    if isinstance(value, Unknown) and value.kind != "int":
        return cast("tuple[int, ...]", value)
    sizes: tuple[object, ...] = (value,)
    if isinstance(value, (tuple, list)):
        sizes = tuple(cast("tuple[object, ...]", value))
    if len(sizes) > MAX_RANK:
        raise fault("T0818", f"an array has at most {MAX_RANK} axes, not {len(sizes)}", span)
    for size in sizes:
        if isinstance(size, Unknown):
            continue
        if not isinstance(size, int) or isinstance(size, bool):
            raise fault("T0818", f"a size is an integer, not {arithmetic.kind_of(size)}", span)
        if size < (-1 if inferred else 0):
            raise fault("T0818", f"a size of {size}", span)
    return cast("tuple[int, ...]", sizes)


def _array(host: Host, value: object, span: Span, name: str) -> object:
    if not host.world.is_array(value):
        raise fault("T0818", f"`{name}` takes an array, not {arithmetic.kind_of(value)}", span)
    return value


# --- arrays --------------------------------------------------------------------------------


def _fill(kind: Filling) -> Function:
    parameters = ("shape", "value", "dtype") if kind == "full" else ("shape", "dtype")

    def function(host: Host, arguments: Arguments, path: str) -> object:
        bound = bind(arguments, f"op.{kind}", parameters, len(parameters) - 1)
        shape = shape_of(bound["shape"], arguments.span_of("shape", 0))
        at = arguments.span_of("dtype", len(parameters) - 1)
        value = bound.get("value")
        own = _dtype_of_numbers(host, [value]) if kind == "full" else host.world.floats
        dtype = dtype_of(bound.get("dtype", own), at)
        if kind == "full" and not (
            arithmetic.is_number(value) or isinstance(value, Unknown | Deferred)
        ):
            message = f"an array cannot be filled with {arithmetic.kind_of(value)}"
            raise fault("T0818", message, arguments.span_of("value", 1))
        no_infinity = not is_unknown(dtype) and not dtype.infinite
        if kind == "full" and no_infinity and value in (math.inf, -math.inf):
            raise fault("T0818", f"{dtype} has no infinity", arguments.span_of("value", 1))
        made = host.world.fill(kind, shape, dtype, value)
        if "dtype" in bound or kind == "workspace" or isinstance(value, Double):
            return made
        return host.world.of_numbers(made, value)

    return function


def _fill_like(kind: Filling) -> Function:
    parameters = ("x", "value", "dtype") if kind == "full" else ("x", "dtype")

    def function(host: Host, arguments: Arguments, path: str) -> object:
        name = f"op.{kind}_like"
        bound = bind(arguments, name, parameters, len(parameters) - 1)
        x = _array(host, bound["x"], arguments.span_of("x", 0), name)
        at = arguments.span_of("dtype", len(parameters) - 1)
        dtype = dtype_of(bound["dtype"] if "dtype" in bound else host.world.dtype(x), at)
        shape = cast("tuple[int, ...]", host.world.shape(x))
        return host.world.fill(kind, shape, dtype, bound.get("value"))

    return function


def _arange(host: Host, arguments: Arguments, path: str) -> object:
    dtype = arguments.keywords.get("dtype")
    numbers = arguments.values
    if not 1 <= len(numbers) <= 3 or set(arguments.keywords) - {"dtype"}:
        given = len(numbers) + len(arguments.keywords)
        takes = "one to three numbers and a `dtype=`"
        raise wrong_count("op.arange", takes, given, arguments.call.span)
    for number, e in zip(numbers, arguments.call.arguments, strict=True):
        if not (arithmetic.is_number(number) or isinstance(number, Unknown)):
            raise fault("T0818", f"{arithmetic.kind_of(number)} is no number", e.span)
    start, stop = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
    step = numbers[2] if len(numbers) == 3 else 1
    if step == 0:
        raise fault("T0818", "the step is 0", arguments.call.span)
    whole = all(isinstance(n, int) or (isinstance(n, Unknown) and n.kind == "int") for n in numbers)
    given_dtype = dtype_of(dtype, arguments.span_of("dtype", 3)) if dtype is not None else None
    floats = F64 if any(isinstance(n, Double) for n in numbers) else host.world.floats
    kind = given_dtype or (I64 if whole else floats)
    bounds = cast("float", start), cast("float", stop), cast("float", step)
    made = host.world.arange(*bounds, kind)
    if dtype is not None or kind == F64:
        return made
    return host.world.of_numbers(made, None if whole else host.world.arange(*bounds, F64))


def array_of(host: Host, items: object, at: Span, given: DType | Unknown | None = None) -> object:
    """An array of numbers, by the axes that their lists make; ``given``: its dtype."""
    numbers: list[object] = []
    shape = _nested(items, numbers, at)
    if any(isinstance(n, Unknown) and n.kind == "any" for n in numbers):
        return Unknown()  # it may be a list
    own = _dtype_of_numbers(host, numbers)
    dtype = cast("DType", own if given is None else given)
    made = host.world.fill("empty", shape, dtype)
    for place, number in zip(itertools.product(*map(range, shape)), numbers, strict=True):
        host.world.write(made, place, number)
    if given is not None or own == BOOL or any(isinstance(n, Double) for n in numbers):
        return made
    return host.world.of_numbers(made, numbers)


def _array_of(host: Host, arguments: Arguments, path: str) -> object:
    """``op.array([[1.0, 2.0], [3.0, 4.0]])``."""
    bound = bind(arguments, "op.array", ("x", "dtype"), 1)
    given = bound.get("dtype")
    dtype = None if given is None else dtype_of(given, arguments.span_of("dtype", 1))
    if host.world.is_array(bound["x"]):  # of arrays, or one: its elements of now
        e = substituted("op.copy(x)", {}, arguments.call.span, lambda _, x: x)
        found = host.value(e, Scope(path, {"x": bound["x"]}))
        return found if dtype is None else host.world.convert(found, dtype)
    return array_of(host, bound["x"], arguments.span_of("x", 0), dtype)


def _dtype_of_numbers(host: Host, numbers: Sequence[object]) -> DType | Unknown:
    """The dtype of an array of numbers: of whole ones i32, of bools bool, and f64 if one of them
    comes from an array of f64. Literals with a point, and no numbers, are f32."""
    kinds = {n.kind if isinstance(n, Unknown) else None for n in numbers}
    if kinds & {"any", "float"}:
        return Unknown()
    if numbers and all(isinstance(n, bool) for n in numbers):
        return BOOL
    if numbers and all(isinstance(n, (int, Unknown)) for n in numbers):
        return Unknown() if "bool" in kinds else I32
    return F64 if any(isinstance(n, Double) for n in numbers) else host.world.floats


def _nested(value: object, numbers: list[object], at: Span) -> tuple[int, ...]:
    """The shape of lists in lists; the numbers in order go to ``numbers``."""
    if not isinstance(value, (tuple, list)):
        if not (arithmetic.is_number(value) or isinstance(value, Unknown)):
            raise fault("T0818", f"`op.array` takes numbers, not {arithmetic.kind_of(value)}", at)
        numbers.append(value)
        return ()
    items = cast("tuple[object, ...] | list[object]", value)
    shapes = [_nested(item, numbers, at) for item in items]
    if any(shape != shapes[0] for shape in shapes):
        raise fault("T0818", "the lists of `op.array` have one length along each axis", at)
    return (len(items), *(shapes[0] if shapes else ()))


def _random(host: Host, arguments: Arguments, path: str) -> object:
    parameters = ("shape", "dtype", "seed", "low", "high")
    bound = bind(arguments, "op.random", parameters, 1)
    shape = shape_of(bound["shape"], arguments.span_of("shape", 0))
    said = dtype_of(bound["dtype"], arguments.span_of("dtype", 1)) if "dtype" in bound else None
    dtype = host.world.floats if said is None else said
    seed = bound.get("seed", 0)
    if not isinstance(seed, Unknown):
        seed = integer_of(seed, arguments.span_of("seed", 2), "a seed")
    if not is_unknown(dtype) and not dtype.is_float and not {"low", "high"} <= set(bound):
        message = f"`op.random` of {dtype} needs `low=` and `high=`"
        raise fault("T0804", message, arguments.call.span)
    low, high = bound.get("low", -1.0), bound.get("high", 1.0)
    for value, name, position in ((low, "low", 3), (high, "high", 4)):
        if not (arithmetic.is_number(value) or isinstance(value, Unknown)):
            message = f"`{name}` is a number, not {arithmetic.kind_of(value)}"
            raise fault("T0818", message, arguments.span_of(name, position))
    return host.world.random(
        shape, said, cast("int", seed), cast("float", low), cast("float", high)
    )


def _load(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "op.load", ("path", "key", "column", "dtype"), 1)
    file, at = bound["path"], arguments.span_of("path", 0)
    key = bound.get("key", bound.get("column"))
    dtype = None
    if bound.get("dtype") is not None:
        dtype = dtype_of(bound["dtype"], arguments.span_of("dtype", 3))
    if isinstance(file, Unknown):
        return host.world.load("", None, dtype)
    if not isinstance(file, str):
        raise fault("T0818", f"a file name is a string, not {arithmetic.kind_of(file)}", at)
    if not (key is None or isinstance(key, str)):
        raise fault("T0818", "a key is a string", arguments.call.span)
    return host.world.load(host.file(file, path), key, dtype)


def _save(host: Host, arguments: Arguments, path: str) -> object:
    file = arguments.values[0] if arguments.values else None
    if isinstance(file, Unknown):
        return None
    if not isinstance(file, str):
        raise fault("T0804", "`op.save` takes a file name first", arguments.call.span)
    if len(arguments.values) > 2:
        message = "`op.save` takes one array by position; give the others names: `x=x, y=y`"
        raise fault("T0804", message, arguments.call.span)
    arrays: dict[str, object] = dict(arguments.keywords)
    if len(arguments.values) == 2:
        arrays[""] = arguments.values[1]
    if not arrays:
        raise fault("T0804", "`op.save` has nothing to save", arguments.call.span)
    if len(arrays) > 1 and not file.endswith(".npz"):
        raise fault("T0804", "several arrays go into an `.npz` file only", arguments.call.span)
    if is_unknown(tuple(arrays.values())):
        return None
    for name, array in arrays.items():
        _array(host, array, arguments.span_of(name, 1), "op.save")
    host.world.save(host.file(file, path), arrays)
    return None


def _reshape(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "op.reshape", ("x", "shape"), 2)
    x = _array(host, bound["x"], arguments.span_of("x", 0), "op.reshape")
    shape = shape_of(bound["shape"], arguments.span_of("shape", 1), inferred=True)
    return host.world.view("reshape", x, shape)


def _ravel(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "op.ravel", ("x",), 1)
    x = _array(host, bound["x"], arguments.span_of("x", 0), "op.ravel")
    return host.world.view("reshape", x, (-1,))


def _contiguous(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "op.contiguous", ("x",), 1)
    x = _array(host, bound["x"], arguments.span_of("x", 0), "op.contiguous")
    return host.world.view("contiguous", x)


def _cast(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "op.cast", ("x", "dtype"), 2)
    x = _array(host, bound["x"], arguments.span_of("x", 0), "op.cast")
    return host.world.convert(x, dtype_of(bound["dtype"], arguments.span_of("dtype", 1)))


def _reduce(kind: Reduction) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        bound = bind(arguments, f"op.{kind}", ("x", "axis", "keepdims"), 1)
        x = _array(host, bound["x"], arguments.span_of("x", 0), f"op.{kind}")
        axis = bound.get("axis")
        if isinstance(axis, tuple) or bound.get("keepdims", False) is not False:
            found = call_by_kernel(host, f"op.{kind}", arguments)
        else:
            if axis is not None and not isinstance(axis, Unknown):
                axis = integer_of(axis, arguments.span_of("axis", 1), "an axis")
            found = host.world.reduce(kind, x, cast("int | None", axis))
        counts = kind in ("argmin", "argmax") or kind == "sum" and host.world.dtype(x) == BOOL
        if counts and host.world.is_array(found):
            return host.world.of_numbers(found)  # which meet floats, as in kernels
        return found

    return function


def convert(host: Host, value: object, dtype: DType) -> object:
    """``dtype(value)`` of a number or an array."""
    if host.world.is_array(value):
        return host.world.convert(value, dtype)
    if isinstance(value, Unknown):
        return Unknown("bool" if dtype.kind == "bool" else "float" if dtype.is_float else "int")
    found = arithmetic.convert(value, dtype)
    if not isinstance(found, float):
        return found
    return Double(found) if dtype == F64 else float(found)


_REDUCTIONS: tuple[Reduction, ...] = (
    "sum", "min", "max", "mean", "all", "any", "argmin", "argmax",
)  # fmt: skip
OF_ARRAYS = frozenset((
    *(f"op.{k}" for k in _REDUCTIONS),
    *(f"op.{k}_like" for k in ("zeros", "ones", "empty", "full")),
    "op.reshape", "op.ravel", "op.contiguous", "op.cast", "op.abs",
))  # fmt: skip
"""Functions whose first argument is an array; of an unknown value their result is unknown."""

ARRAY_FUNCTIONS: dict[str, Function] = {
    **{f"op.{k}": _fill(k) for k in ("zeros", "ones", "empty", "full", "workspace")},
    **{f"op.{k}_like": _fill_like(k) for k in ("zeros", "ones", "empty", "full")},
    "op.array": _array_of, "op.arange": _arange, "op.random": _random, "op.load": _load,
    "op.save": _save,
    "op.reshape": _reshape, "op.ravel": _ravel, "op.contiguous": _contiguous, "op.cast": _cast,
    **{f"op.{k}": _reduce(k) for k in _REDUCTIONS},
}  # fmt: skip
