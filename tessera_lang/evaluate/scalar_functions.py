"""Functions of the language on host values that need no array: ``print``, ``range``, ``math.*``.

Must not know statements or how functions of the program are called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_lang.evaluate import arithmetic
from tessera_lang.evaluate.arguments import Arguments, bind, integer_of, wrong_count
from tessera_lang.evaluate.arithmetic import ArithmeticFault
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.fault import fault, located
from tessera_lang.evaluate.foreign_names import counted
from tessera_lang.evaluate.number_functions import NUMBERS_TAKEN, function_of_numbers
from tessera_lang.evaluate.value import Unknown, is_unknown
from tessera_lang.target.host_world import Reduction

_UNKNOWN = {
    "int": Unknown("int"), "float": Unknown("float"),
    "str": Unknown("str"),
}  # fmt: skip


# --- scalars -------------------------------------------------------------------------------


def _print(host: Host, arguments: Arguments, path: str) -> object:
    unknown = set(arguments.keywords) - {"sep", "end"}
    if unknown:
        name = min(unknown)
        raise fault("T0804", f"`print` has no parameter `{name}`", arguments.span_of(name, 0))
    separator, end = arguments.keywords.get("sep", " "), arguments.keywords.get("end", "\n")
    if is_unknown((separator, end, *arguments.values)):
        return None
    if not (isinstance(separator, str) and isinstance(end, str)):
        raise fault("T0804", "`sep` and `end` are strings", arguments.call.span)
    texts = [
        host.text(value, e.span)
        for value, e in zip(arguments.values, arguments.call.arguments, strict=True)
    ]
    host.world.print(separator.join(texts) + end)
    return None


def _range(host: Host, arguments: Arguments, path: str) -> object:
    values = arguments.values
    if not 1 <= len(values) <= 3 or arguments.keywords:
        given = len(values) + len(arguments.keywords)
        raise wrong_count("range", "one to three integers", given, arguments.call.span)
    if is_unknown(values):
        return Unknown()
    if any(isinstance(v, float) for v in values):
        at = arguments.call.span
        raise fault("T0818", "`range` counts in integers", at, helps=(counted(values),))
    numbers = [
        integer_of(v, e.span, "a bound of `range`")
        for v, e in zip(values, arguments.call.arguments, strict=True)
    ]
    if len(numbers) == 3 and numbers[2] == 0:
        raise fault("T0804", "the step of `range` is 0", arguments.call.arguments[2].span)
    return range(*numbers)


def _len(host: Host, arguments: Arguments, path: str) -> object:
    value = bind(arguments, "len", ("x",), 1)["x"]
    if host.world.is_array(value):
        shape = host.world.shape(value)
        if shape == ():
            raise ArithmeticFault("an array of rank 0 has no length")
        value = cast("tuple[object, ...]", shape)[0] if isinstance(shape, tuple) else shape
        return Unknown("int") if isinstance(value, Unknown) else value
    if isinstance(value, Unknown):
        return Unknown("int")
    if isinstance(value, (tuple, list, str, dict, range)):
        return len(cast("tuple[object, ...]", value))
    raise ArithmeticFault(f"{arithmetic.kind_of(value)} has no length")


def _extreme(name: str) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        values = arguments.values
        if arguments.keywords or not values:
            raise wrong_count(name, "one or more values", len(values), arguments.call.span)
        if len(values) == 1 and host.world.is_array(values[0]):
            return host.world.reduce(cast("Reduction", name), values[0], None)
        if len(values) == 1 and isinstance(values[0], (tuple, list, range)):
            values = tuple(cast("tuple[object, ...]", values[0]))
        if any(host.world.is_array(v) for v in values):
            result = values[0]
            for value in values[1:]:
                result = host.world.binary(name, result, value)
            return result
        return _unknown_number(values) if is_unknown(values) else arithmetic.extreme(name, values)

    return function


def _unknown_number(values: tuple[object, ...]) -> Unknown:
    whole = all(isinstance(v, int) or (isinstance(v, Unknown) and v.kind == "int") for v in values)
    return Unknown("int" if whole else "any")


def _abs(host: Host, arguments: Arguments, path: str) -> object:
    value = bind(arguments, "abs", ("x",), 1)["x"]
    if host.world.is_array(value):
        return host.world.unary("abs", value)
    if isinstance(value, Unknown):
        return value
    with located(arguments.call.span, "T0802"):
        return arithmetic.int64(arithmetic.absolute(value))


def _ceil_div(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "ceil_div", ("a", "b"), 2)
    if is_unknown((bound["a"], bound["b"])):
        return Unknown("int")
    with located(arguments.call.span, "T0802"):
        return arithmetic.int64(arithmetic.ceil_div(bound["a"], bound["b"]))


def _scalar(name: str, make: Callable[[object], object]) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        value = bind(arguments, name, ("x",), 1)["x"]
        if isinstance(value, Unknown):
            return _UNKNOWN[name]
        if name == "str":
            return host.text(value, arguments.call.span)
        if not isinstance(value, (int, float, str)):
            raise ArithmeticFault(f"`{name}` does not take {arithmetic.kind_of(value)}")
        try:
            made = make(value)
        except (ValueError, OverflowError):
            raise ArithmeticFault(f"{value!r} is no {name}") from None
        with located(arguments.call.span, "T0802"):
            return arithmetic.int64(made)

    return function


def _math(name: str, count: int) -> Function:
    def builtin(host: Host, arguments: Arguments, path: str) -> object:
        names = ("x", "y", "z")[:count]
        bound = bind(arguments, f"math.{name}", names, count)
        values = tuple(bound[n] for n in names)
        return Unknown("float") if is_unknown(values) else function_of_numbers(name, values)

    return builtin


SCALAR_FUNCTIONS: dict[str, Function] = {
    "op.abs": _abs, "abs": _abs, "print": _print, "range": _range, "len": _len,
    "min": _extreme("min"), "max": _extreme("max"), "ceil_div": _ceil_div,
    "int": _scalar("int", lambda v: int(cast("float", v))),
    "float": _scalar("float", lambda v: float(cast("float", v))),
    "str": _scalar("str", str),
    **{f"math.{name}": _math(name, count) for name, count in NUMBERS_TAKEN.items()},
}  # fmt: skip
