"""Arrays that meet annotations of a plain function: ``def f(x: f32[n])`` called by the host.

Owns what such a call binds and refuses. Must not know how arguments meet parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tessera_lang.evaluate.arithmetic import kind_of
from tessera_lang.evaluate.fault import HostFault, fault
from tessera_lang.evaluate.value import HostFunction, Scope, Unknown
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.world import World
from tessera_lang.types.dtype import DTYPES, DType

Evaluate = Callable[[ast.Expr, Scope], object]


@dataclass(frozen=True, slots=True)
class _Axis:
    """One size of an annotation and what the array has there."""

    title: str
    number: int
    declared: ast.Expr
    found: object


def bind_sizes(
    world: World, evaluate: Evaluate, function: HostFunction, values: dict[str, object], call: Span
) -> None:
    """Adds the sizes that annotations name to ``values``. Raises HostFault where an argument
    does not fit its annotation."""
    axes: list[_Axis] = []
    for parameter in function.declaration.parameters:
        annotation = parameter.annotation
        if annotation is not None and annotation.shape is not None:
            title = f"argument `{parameter.name}` of `{function.name}`"
            value = values[parameter.name]
            found = _shape(world, title, annotation, annotation.shape, value, values, call)
            axes += [
                _Axis(title, i, declared, size)
                for i, (declared, size) in enumerate(zip(annotation.shape, found, strict=True))
            ]
    # Names first: `f32[n + 1]` may stand in front of `f32[n]`. A name that is no parameter is a
    # size of this call, as in kernels, whatever the module means by it.
    for axis in axes:
        if isinstance(axis.declared, ast.Name):
            _agree(axis, values.setdefault(axis.declared.id, axis.found), call)
    scope = Scope(function.scope.path, values, function.scope)
    for axis in axes:
        if not isinstance(axis.declared, ast.Name):
            _agree(axis, evaluate(axis.declared, scope), call)


def _shape(
    world: World, title: str, annotation: ast.TypeExpr, declared: tuple[ast.Expr, ...],
    value: object, values: dict[str, object], call: Span,
) -> tuple[object, ...]:  # fmt: skip
    """The sizes of an argument, as many as are declared."""
    unknown = (Unknown("int"),) * len(declared)
    if isinstance(value, Unknown):
        return unknown
    if not world.is_array(value):
        message = f"{title} is {kind_of(value)}, and an array is expected"
        raise fault("T0831", message, call)
    base, dtype = annotation.base, world.dtype(value)
    wanted = DTYPES.get(base.id, values.get(base.id)) if isinstance(base, ast.Name) else None
    if isinstance(wanted, DType) and isinstance(dtype, DType) and wanted != dtype:
        raise fault(
            "T0832", f"{title} has {dtype} elements, and {wanted} is expected", call,
            helps=(f"convert it before the call: `.to({wanted})`",),
        )  # fmt: skip
    shape = world.shape(value)
    if isinstance(shape, Unknown):
        return unknown
    sizes = cast("tuple[object, ...]", shape)
    if len(sizes) != len(declared):
        raise _wrong_rank(title, len(sizes), len(declared), call)
    return sizes


def _wrong_rank(title: str, found: int, wanted: int, call: Span) -> HostFault:
    has = "1 axis" if found == 1 else f"{found} axes"
    wants = "1 axis is" if wanted == 1 else f"{wanted} axes are"
    return fault("T0833", f"{title} has {has}, and {wants} expected", call)


def _agree(axis: _Axis, wanted: object, call: Span) -> None:
    if isinstance(wanted, int) and isinstance(axis.found, int) and wanted != axis.found:
        raise fault(
            "T0834", f"{axis.title} has size {axis.found} along axis {axis.number}, and {wanted} "
            "is expected", call,
        )  # fmt: skip
