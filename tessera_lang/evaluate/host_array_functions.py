"""Names of array libraries in the host program: each stands for an expression of the program.

Owns which of them the host program can evaluate. Must not know how (``expression.py``).
"""

from __future__ import annotations

from tessera_grammar.array_function_names import ARRAY_NAMES

from tessera_lang.evaluate.arguments import Arguments, bind
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.expansion_texts import text_of
from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.value import Scope
from tessera_lang.syntax import ast
from tessera_lang.syntax.substitute import substituted
from tessera_lang.types.dtype import F32, I64, DType

_NAMES = (
    "positive", "copy", "negative", "square", "reciprocal", "isnan", "isinf", "isfinite",
    "logical_not", "bitwise_invert", "add", "subtract", "multiply", "divide", "floor_divide",
    "remainder",
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and",
    "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "clip", "astype",
)  # fmt: skip
_PAIRS = {"maximum": "max", "minimum": "min"}


def _derived(name: str) -> Function:
    one = ARRAY_NAMES[name]
    parameters = tuple(one.parameters.split())

    def function(host: Host, arguments: Arguments, path: str) -> object:
        bound = bind(arguments, f"op.{name}", parameters, one.required)
        needed = parameters[: one.required]
        given = {n: v for n, v in bound.items() if v is not None or n in needed}
        if name == "clip" and len(given) == 1:
            raise fault("T0804", "`op.clip` needs `min=`, `max=` or both", arguments.call.span)
        text = text_of(name, given, _dtype(host, given[parameters[0]]))
        e = substituted(text, {}, arguments.call.span, lambda _, argument: argument)
        return host.value(e, Scope(path, given))

    return function


def _pair(name: str) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        given = bind(arguments, f"op.{name}", ("a", "b"), 2)
        span = arguments.call.span
        names = tuple(ast.Name(span, n) for n in given)
        e = ast.Call(span, ast.Name(span, _PAIRS[name]), names)
        return host.value(e, Scope(path, given))

    return function


def _clamp(host: Host, arguments: Arguments, path: str) -> object:
    given = bind(arguments, "op.clamp", ("x", "low", "high"), 3)
    e = substituted("min(max(x, low), high)", {}, arguments.call.span, lambda _, x: x)
    return host.value(e, Scope(path, given))


def _dtype(host: Host, value: object) -> DType:
    found = host.world.dtype(value) if host.world.is_array(value) else None
    if isinstance(found, DType):
        return found
    return I64 if isinstance(value, int) else F32


HOST_NAMES: dict[str, Function] = {
    **{f"op.{name}": _derived(name) for name in _NAMES},
    **{f"op.{name}": _pair(name) for name in _PAIRS}, "op.clamp": _clamp,
}  # fmt: skip
