"""``grad``, ``value_and_grad``, ``vjp``, ``jvp`` and ``fused``: functions of functions.

Owns how they are asked for. Must not know how a gradient is made (``Library.differentiated``).
"""

from __future__ import annotations

from typing import cast

from tessera_lang.evaluate.arguments import Arguments, bind
from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.value import Derivative, HostFunction, Pullback, Unknown
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType


def _derivative(name: str, with_value: bool) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        bound = bind(arguments, name, ("f", "wrt", "memory_budget"), 1)
        bytes_ = budget_of(bound.get("memory_budget"), arguments.span_of("memory_budget", 2))
        of = bound["f"]
        if isinstance(of, Unknown):
            return Unknown()
        if not isinstance(of, HostFunction | Derivative):
            message = f"`{name}` takes a plain function, not {kind_of(of)}"
            raise fault("T0761", message, arguments.span_of("f", 0),
                        helps=("write a plain function of what it computes",))  # fmt: skip
        wrt, single = named(bound.get("wrt"), arguments.span_of("wrt", 1))
        return derivative_of(of, wrt, single, with_value, name, arguments.call.span, bytes_)

    return function


def derivative_of(
    of: HostFunction | Derivative, wrt: tuple[str | int, ...], single: bool, with_value: bool,
    name: str, span: Span, budget: int = 0,
) -> Derivative:  # fmt: skip
    """A derivative by parameters that the function has, by name or number. Raises HostFault."""
    inner = of.innermost if isinstance(of, Derivative) else of
    known = [p.name for p in inner.declaration.parameters]
    names: list[str] = []
    for parameter in wrt:
        is_number = isinstance(parameter, int)
        if parameter not in (range(-len(known), len(known)) if is_number else known):
            what = f"number {parameter}" if is_number else f"`{parameter}`"
            helps = (f"it has {', '.join(f'`{p}`' for p in known)}",) if known else ()
            raise fault("T0761", f"`{inner.name}` has no parameter {what}", span, helps=helps)
        names.append(known[parameter] if isinstance(parameter, int) else parameter)
    if not wrt and not known:
        raise fault("T0761", f"`{name}` of a function without parameters", span)
    _check_inner(of, span)
    return Derivative(of, tuple(names) or (known[0],), single, with_value, budget=budget)


def budget_of(given: object, span: Span) -> int:
    """Bytes that ``memory_budget=`` says, 0 where it is left out. Raises HostFault."""
    if given is None or isinstance(given, Unknown):
        return 0
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    bytes_ = float(cast("float", given)) if is_number else 0.0
    if bytes_ <= 0 or bytes_ != bytes_ // 1:
        raise fault("T0762", "`memory_budget=` is a number of bytes above 0", span,
                    helps=("write it as a number: `memory_budget=8e9`",))  # fmt: skip
    return int(bytes_)


def _check_inner(of: HostFunction | Derivative, span: Span) -> None:
    if isinstance(of, Derivative) and of.budget:
        message = f"`{of.name}` has a memory budget, and is part of another function here"
        raise fault("T0762", message, span,
                    helps=("say `memory_budget=` of the outermost function",))  # fmt: skip


def named(given: object, span: Span) -> tuple[tuple[str | int, ...], bool]:
    """The parameters that ``wrt=`` says, by name or number, and whether it says one alone."""
    if given is None:
        return (), True
    if _is_parameter(given):
        return (cast("str", given),), True
    names = cast("tuple[object, ...]", given) if isinstance(given, tuple | list) else ()
    if not names or not all(map(_is_parameter, names)):
        message = "`wrt=` names parameters: a string or a number, or a tuple of these"
        raise fault("T0761", message, span)
    return tuple(cast("tuple[str, ...]", names)), False


def _is_parameter(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _fused(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "fused", ("f", "memory_budget"), 1)
    budget = budget_of(bound.get("memory_budget"), arguments.span_of("memory_budget", 1))
    of = bound["f"]
    if isinstance(of, Unknown):
        return Unknown()
    return fused_of(of, arguments.span_of("f", 0), budget)


def fused_of(of: object, span: Span, budget: int = 0) -> Derivative:
    """A plain function as one graph. Raises HostFault."""
    if not isinstance(of, HostFunction | Derivative):
        message = f"`fused` takes a plain function, not {kind_of(of)}"
        raise fault("T0761", message, span, helps=("write a plain function of what it computes",))
    _check_inner(of, span)
    return Derivative(of, (), single=True, with_value=True, budget=budget)


def _vjp(host: Host, arguments: Arguments, path: str) -> object:
    """``value, pull = vjp(f, x, y)``."""
    of = _function_of("vjp", arguments)
    if of is None:
        return Unknown()
    _check_inner(of, arguments.call.span)
    call = ast.Call(arguments.call.span, arguments.call.function, arguments.call.arguments[1:],
                    arguments.call.keywords)  # fmt: skip
    given = Arguments(call, arguments.values[1:], arguments.keywords)
    fused = Derivative(of, (), single=True, with_value=True)
    values = host.arguments_of(fused, given)
    names = [p.name for p in fused.innermost.declaration.parameters][: len(given.values)]
    if not names or given.keywords:
        raise fault("T0761", "`vjp` takes a function and its arguments, by position", call.span)
    places = tuple([_holds_floats(host, values[n]) for n in names])
    wrt = tuple([n for n, has in zip(names, places, strict=True) if has])
    if not wrt:
        raise fault("T0761", f"no argument of `{of.name}` holds floats", call.span)
    value = host.modules.library.differentiated(host, fused, values, call, None)
    return value, Pullback(Derivative(of, wrt, False, False), values, places)


def pulled(host: Host, function: Pullback, arguments: Arguments) -> object:
    """The gradients of the arguments of a function, by the gradient of its value."""
    cotangent = bind(arguments, f"vjp({function.derivative.function.name})", ("cotangent",), 1)
    found = host.modules.library.differentiated(
        host, function.derivative, function.values, arguments.call, cotangent["cotangent"]
    )
    if isinstance(found, Unknown):
        return found
    gradients = iter(cast("tuple[object, ...]", found))
    return tuple([next(gradients) if has else None for has in function.places])


def _jvp(host: Host, arguments: Arguments, path: str) -> object:
    """``value, tangent = jvp(f, (x, y), (dx, dy))``."""
    bound = bind(arguments, "jvp", ("f", "primals", "tangents"), 3)
    of = _function_of("jvp", arguments)
    if of is None:
        return Unknown()
    _check_inner(of, arguments.call.span)
    primals, tangents = (
        _listed(bound[n], n, arguments.span_of(n, i)) for i, n in ((1, "primals"), (2, "tangents"))
    )
    if primals is None or tangents is None:
        return Unknown()
    call = ast.Call(arguments.call.span, arguments.call.function, (), ())
    if len(primals) != len(tangents):
        raise fault("T0761", f"`jvp` has {len(primals)} primals and {len(tangents)} tangents",
                    call.span, helps=("give `None` for what does not change",))  # fmt: skip
    forward = Derivative(of, (), False, with_value=True, forward=True)
    values = host.arguments_of(forward, Arguments(call, primals, {}))
    names = [p.name for p in forward.innermost.declaration.parameters]
    moved = {n: t for n, t in zip(names, tangents, strict=False) if t is not None}
    forward = Derivative(of, tuple(moved), False, with_value=True, forward=True)
    given = tuple(moved.values())
    return host.modules.library.differentiated(host, forward, values, call, given)


def _function_of(name: str, arguments: Arguments) -> HostFunction | Derivative | None:
    """The function that is the first argument; None for one that is not known."""
    of = arguments.values[0] if arguments.values else arguments.keywords.get("f")
    if isinstance(of, Unknown):
        return None
    if not isinstance(of, HostFunction | Derivative):
        message = f"`{name}` takes a plain function, not {kind_of(of)}"
        raise fault("T0761", message, arguments.span_of("f", 0),
                    helps=("write a plain function of what it computes",))  # fmt: skip
    return of


def _listed(value: object, name: str, span: Span) -> tuple[object, ...] | None:
    if isinstance(value, Unknown):
        return None
    if not isinstance(value, tuple | list):
        raise fault("T0761", f"`{name}=` of `jvp` is a tuple, not {kind_of(value)}", span,
                    helps=("one argument is a tuple too: `(x,)`",))  # fmt: skip
    return tuple(cast("tuple[object, ...]", value))


def _holds_floats(host: Host, value: object) -> bool:
    """Whether an argument, or an array in it, holds floats."""
    if isinstance(value, tuple | list):
        return any(_holds_floats(host, v) for v in cast("tuple[object, ...]", value))
    if isinstance(value, dict):
        return any(_holds_floats(host, v) for v in cast("dict[object, object]", value).values())
    if host.world.is_array(value):
        dtype = host.world.dtype(value)
        return not isinstance(dtype, DType) or dtype.is_float
    return isinstance(value, float) or (isinstance(value, Unknown) and value.kind == "float")


def _profile(host: Host, arguments: Arguments, path: str) -> object:
    host.profiled(arguments, path)
    return None


DERIVATIVES: dict[str, Function] = {
    "grad": _derivative("grad", False), "value_and_grad": _derivative("value_and_grad", True),
    "fused": _fused, "vjp": _vjp, "jvp": _jvp, "graph.profile": _profile,
}  # fmt: skip


def check_returned(value: object, name: str, span: Span) -> None:
    """What a function hands to Python is no function of the host program, which Python could not
    call, nor has parts that are. Raises HostFault."""
    if isinstance(value, dict):
        value = tuple(cast("dict[object, object]", value).values())
    if isinstance(value, (tuple, list)):
        for part in cast("tuple[object, ...]", value):
            check_returned(part, name, span)
    if not isinstance(value, (Derivative, HostFunction, Pullback)):
        return
    helps = ("call it in the function, and return what it gives",)
    if isinstance(value, Pullback):
        of = value.derivative.innermost.name
        helps += (f"in Python: `value, pullback = tessera.vjp(module.{of}, ...)`",)
    raise fault(
        "T0818", f"`{name}` returns a function of the program, which Python cannot call", span,
        helps=helps,
    )  # fmt: skip
