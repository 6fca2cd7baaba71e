"""Built-in functions of Python in the host program: ``sum``, ``sorted``, ``list``, ``round``.

Owns what they do with numbers, lists and arrays. Must not know statements, or how functions of the
program are called.
"""

from __future__ import annotations

import functools

from tessera_lang.evaluate import arithmetic
from tessera_lang.evaluate.arguments import Arguments, bind, integer_of
from tessera_lang.evaluate.arithmetic import ArithmeticFault
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.value import Scope, Unknown, is_unknown
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted


def _items(host: Host, arguments: Arguments, name: str) -> list[object] | None:
    """The items of the first argument; None where they are not known."""
    if not arguments.values:
        raise fault("T0804", f"the call of `{name}` lacks what it goes through",
                    arguments.call.span)  # fmt: skip
    value = arguments.values[0]
    unknown = isinstance(value, Unknown) or (
        host.world.is_array(value) and is_unknown(host.world.shape(value))
    )
    return None if unknown else list(host.iterate(value, arguments.span_of("", 0)))


def _evaluated(host: Host, text: str, given: dict[str, object], call: ast.Call) -> object:
    """An expression of the program on values by name."""
    return host.value(substituted(text, {}, call.span, lambda _, x: x), Scope("", given))


def _sum(host: Host, arguments: Arguments, path: str) -> object:
    start = bind(arguments, "sum", ("x", "start"), 1).get("start", 0)
    value = arguments.values[0] if arguments.values else None
    if host.world.is_array(value):
        along = host.world.reduce("sum", value, 0)
        return _evaluated(host, "a + b", {"a": along, "b": start}, arguments.call)
    items = _items(host, arguments, "sum")
    if items is None:
        return Unknown()
    for item in items:
        start = _evaluated(host, "a + b", {"a": start, "b": item}, arguments.call)
    return start


def _quantified(name: str) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        bind(arguments, name, ("x",), 1)
        items = _items(host, arguments, name)
        if items is None:
            return Unknown("bool")
        for item in items:
            if isinstance(item, Unknown):
                return Unknown("bool")
            if host.truth(item, arguments.call.span) == (name == "any"):
                return name == "any"
        return name == "all"

    return function


def _sorted(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "sorted", ("x", "key", "reverse"), 1)
    items, key = _items(host, arguments, "sorted"), bound.get("key")
    backwards = bound.get("reverse", False)
    if items is None or isinstance(backwards, Unknown):
        return Unknown()
    keys = items
    if key is not None:
        keys = [_evaluated(host, "f(x)", {"f": key, "x": i}, arguments.call) for i in items]
    if is_unknown(keys):
        return Unknown()

    def order(a: int, b: int) -> int:
        if arithmetic.compare("<", keys[a], keys[b]):
            return -1
        return int(arithmetic.compare("<", keys[b], keys[a]))

    places = sorted(range(len(items)), key=functools.cmp_to_key(order),
                    reverse=host.truth(backwards, arguments.call.span))  # fmt: skip
    return [items[i] for i in places]


def _made(name: str) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        bind(arguments, name, ("x",), 0)
        items = _items(host, arguments, name) if arguments.values else []
        if items is None:
            return Unknown()
        items = list(reversed(items)) if name == "reversed" else items
        return tuple(items) if name == "tuple" else items

    return function


def _enumerate(host: Host, arguments: Arguments, path: str) -> object:
    start = bind(arguments, "enumerate", ("x", "start"), 1).get("start", 0)
    items = _items(host, arguments, "enumerate")
    if items is None or isinstance(start, Unknown):
        return Unknown()
    first = integer_of(start, arguments.span_of("start", 1), "the start of `enumerate`")
    return [(first + i, item) for i, item in enumerate(items)]


def _zip(host: Host, arguments: Arguments, path: str) -> object:
    bind(arguments, "zip", tuple(f"x{i}" for i in range(len(arguments.values))), 0)
    columns = [
        _items(host, Arguments(arguments.call, (value,), {}), "zip") for value in arguments.values
    ]
    known = [c for c in columns if c is not None]
    if len(known) < len(columns):
        return Unknown()
    return [tuple(row) for row in zip(*known, strict=False)]


def _round(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "round", ("x", "digits"), 1)
    value, digits = bound["x"], bound.get("digits")
    if host.world.is_array(value):
        text = "op.round(x)" if digits is None else "op.round(x, digits)"
        return _evaluated(host, text, {"x": value, "digits": digits}, arguments.call)
    if is_unknown((value, digits)):
        return Unknown("any" if digits is not None else "int")
    if not isinstance(value, (int, float)):
        raise ArithmeticFault(f"`round` does not take {arithmetic.kind_of(value)}")
    if digits is not None:
        places = integer_of(digits, arguments.span_of("digits", 1), "the second of `round`")
        return round(value, places)
    try:
        return arithmetic.int64(round(value))
    except (ValueError, OverflowError):
        raise ArithmeticFault(f"{value!r} has no integer near it") from None


def _chr(host: Host, arguments: Arguments, path: str) -> object:
    value = bind(arguments, "chr", ("x",), 1)["x"]
    if is_unknown(value):
        return Unknown("str")
    number = integer_of(value, arguments.span_of("x", 0), "what `chr` takes")
    if not 0 <= number < 0x110000:
        raise ArithmeticFault(f"there is no character {number}")
    return chr(number)


def _ord(host: Host, arguments: Arguments, path: str) -> object:
    value = bind(arguments, "ord", ("x",), 1)["x"]
    if is_unknown(value):
        return Unknown("int")
    if not isinstance(value, str) or len(value) != 1:
        raise ArithmeticFault(f"`ord` takes one character, not {arithmetic.kind_of(value)}")
    return ord(value)


def _operators(name: str, parameters: tuple[str, ...], text: str) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        bound = bind(arguments, name, parameters, len(parameters))
        return _evaluated(host, text, bound, arguments.call)

    return function


PYTHON_FUNCTIONS: dict[str, Function] = {
    "sum": _sum, "any": _quantified("any"), "all": _quantified("all"), "sorted": _sorted,
    "list": _made("list"), "tuple": _made("tuple"), "reversed": _made("reversed"),
    "enumerate": _enumerate, "zip": _zip, "round": _round,
    "divmod": _operators("divmod", ("a", "b"), "(a // b, a % b)"),
    "chr": _chr, "ord": _ord, "pow": _operators("pow", ("a", "b"), "a ** b"),
}  # fmt: skip
"""By name; kernels have other forms of some."""
