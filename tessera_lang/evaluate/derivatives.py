"""``grad``, ``value_and_grad`` and ``fused``: functions of functions.

Owns how they are asked for. Must not know how a gradient is made (``Library.differentiated``).
"""

from __future__ import annotations

from typing import cast

from tessera_lang.evaluate.arguments import Arguments, bind
from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.builtin_protocol import Function, Host
from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.value import Derivative, HostFunction, Unknown
from tessera_lang.source import Span


def _derivative(name: str, with_value: bool) -> Function:
    def function(host: Host, arguments: Arguments, path: str) -> object:
        bound = bind(arguments, name, ("f", "wrt"), 1)
        of = bound["f"]
        if isinstance(of, Unknown):
            return Unknown()
        if not isinstance(of, HostFunction | Derivative):
            message = f"`{name}` takes a plain function, not {kind_of(of)}"
            raise fault("T0761", message, arguments.span_of("f", 0),
                        helps=("write a plain function of what it computes",))  # fmt: skip
        wrt, single = named(bound.get("wrt"), arguments.span_of("wrt", 1))
        return derivative_of(of, wrt, single, with_value, name, arguments.call.span)

    return function


def derivative_of(
    of: HostFunction | Derivative, wrt: tuple[str, ...], single: bool, with_value: bool,
    name: str, span: Span,
) -> Derivative:  # fmt: skip
    """A derivative by parameters that the function has. Raises HostFault."""
    made = Derivative(of, wrt, single, with_value)
    known = [p.name for p in made.innermost.declaration.parameters]
    for parameter in wrt:
        if parameter not in known:
            message = f"`{made.innermost.name}` has no parameter `{parameter}`"
            helps = (f"it has {', '.join(f'`{p}`' for p in known)}",) if known else ()
            raise fault("T0761", message, span, helps=helps)
    if not wrt and not known:
        raise fault("T0761", f"`{name}` of a function without parameters", span)
    return Derivative(of, wrt or (known[0],), single, with_value)


def named(given: object, span: Span) -> tuple[tuple[str, ...], bool]:
    """The parameters that ``wrt=`` names, and whether it names one alone."""
    if given is None:
        return (), True
    if isinstance(given, str):
        return (given,), True
    names = cast("tuple[object, ...]", given) if isinstance(given, tuple | list) else ()
    if not names or not all(isinstance(n, str) for n in names):
        raise fault("T0761", "`wrt=` names parameters: a string, or a tuple of strings", span)
    return tuple(cast("tuple[str, ...]", names)), False


def _fused(host: Host, arguments: Arguments, path: str) -> object:
    bound = bind(arguments, "fused", ("f",), 1)
    of = bound["f"]
    if isinstance(of, Unknown):
        return Unknown()
    return fused_of(of, arguments.span_of("f", 0))


def fused_of(of: object, span: Span) -> Derivative:
    """A plain function as one graph. Raises HostFault."""
    if not isinstance(of, HostFunction | Derivative):
        message = f"`fused` takes a plain function, not {kind_of(of)}"
        raise fault("T0761", message, span, helps=("write a plain function of what it computes",))
    return Derivative(of, (), single=True, with_value=True)


def _profile(host: Host, arguments: Arguments, path: str) -> object:
    host.profiled(arguments, path)
    return None


DERIVATIVES: dict[str, Function] = {
    "grad": _derivative("grad", False), "value_and_grad": _derivative("value_and_grad", True),
    "fused": _fused, "graph.profile": _profile,
}  # fmt: skip
