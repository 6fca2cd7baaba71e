"""Values that meet annotations on the host: ``def f(x: f32[n], s: i32)`` called, ``y: f32 = 2``.

Owns what such a meeting binds and refuses. Must not know how arguments meet parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from tessera_lang.evaluate.arithmetic import is_number, kind_of
from tessera_lang.evaluate.fault import HostFault, fault
from tessera_lang.evaluate.value import Deferred, HostFunction, Scope, Unknown
from tessera_lang.record import dataclass
from tessera_lang.source import Span
from tessera_lang.syntax import ast
from tessera_lang.target.host_world import World
from tessera_lang.types.dtype import DTYPES, DType, integer_range

Evaluate = Callable[[ast.Expr, Scope], object]
_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "dtype": DType}


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
    scope = Scope(function.scope.path, values, function.scope)
    declaration = function.declaration
    brackets = declaration.brackets if isinstance(declaration, ast.FunctionDef) else ()
    for parameter in (*brackets, *declaration.parameters):
        annotation = parameter.annotation
        if annotation is None:
            continue
        title = f"argument `{parameter.name}` of `{function.name}`"
        value = values[parameter.name]
        if annotation.shape is None:
            _check_number(world, title, annotation, value, scope, call)
        else:
            found = _shape(world, title, annotation, annotation.shape, value, scope, call)
            axes += [
                _Axis(title, i, declared, size)
                for i, (declared, size) in enumerate(zip(annotation.shape, found, strict=True))
            ]
    # Names first: `f32[n + 1]` may stand in front of `f32[n]`. A name that is no parameter is a
    # size of this call, as in kernels, whatever the module means by it.
    for axis in axes:
        if isinstance(axis.declared, ast.Name):
            _agree(axis, values.setdefault(axis.declared.id, axis.found), call)
    for axis in axes:
        if not isinstance(axis.declared, ast.Name):
            _agree(axis, evaluate(axis.declared, scope), call)


def check_variable(
    world: World, evaluate: Evaluate, s: ast.AnnotatedAssign, value: object, scope: Scope
) -> None:
    """Raises HostFault where a value does not fit the annotation of its variable. The sizes of
    an annotation are values of the program here: it binds none."""
    title = f"`{s.target.id}`" if isinstance(s.target, ast.Name) else "the value"
    annotation, place = s.annotation, s.span if s.value is None else s.value.span
    if annotation.shape is None:
        _check_number(world, title, annotation, value, scope, place)
        return
    found = _shape(world, title, annotation, annotation.shape, value, scope, place)
    for i, (declared, size) in enumerate(zip(annotation.shape, found, strict=True)):
        _agree(_Axis(title, i, declared, size), evaluate(declared, scope), place)


def _wanted(annotation: ast.TypeExpr, scope: Scope) -> DType | str:
    """What an annotation names: a dtype, or the kind of a compile-time value."""
    base = annotation.base
    name = base.id if isinstance(base, ast.Name) else ""
    inner: Scope | None = scope
    while inner is not None:
        if isinstance(named := inner.values.get(name), (DType, Unknown)):
            return named if isinstance(named, DType) else ""
        inner = inner.parent
    if name in DTYPES:
        return DTYPES[name]
    if name in _KINDS:
        return name
    raise fault(
        "T0217", f"`{name}` is no type" if name else "this is no type", base.span,
        helps=(f"the types are {', '.join(DTYPES)}",),
    )  # fmt: skip


def _check_number(
    world: World, title: str, annotation: ast.TypeExpr, value: object, scope: Scope, place: Span
) -> None:
    """Raises HostFault where a value is not one that an annotation without a shape takes."""
    wanted = _wanted(annotation, scope)
    if isinstance(value, Unknown | Deferred) or wanted == "":
        return
    if isinstance(wanted, str):
        fits = isinstance(value, _KINDS[wanted]) or (wanted == "float" and isinstance(value, int))
        if not fits or (isinstance(value, bool) and wanted in ("int", "float")):
            message = f"{title} is {kind_of(value)}, and {_a(wanted)} is expected"
            raise fault("T0831", message, place)
        return
    if world.is_array(value) or not is_number(value):
        raise fault("T0831", f"{title} is {kind_of(value)}, and {_a(wanted.name)} is expected",
                    place)  # fmt: skip
    reason = _misfit(cast("float", value), wanted)
    if reason:
        raise fault("T0843", f"{title} is {reason}", place)


def _misfit(value: float, dtype: DType) -> str:
    """Why a number is no value of a dtype; empty where it is. As the arguments of kernels."""
    if isinstance(value, bool) != (dtype.kind == "bool"):
        return f"{kind_of(value)}, and {_a(dtype.name)} is expected"
    if dtype.is_integer:
        if isinstance(value, float):
            return f"a float, and {_a(dtype.name)} is expected"
        low, high = integer_range(dtype)
        return "" if low <= value <= high else f"{value}, outside of {dtype}: {low} to {high}"
    if dtype.is_float:
        largest = dtype.largest
        if not math.isinf(value) and abs(value) > largest and not _rounds_down(value, dtype):
            return f"{value!r}, larger than the largest {dtype}, {largest!r}"
        if math.isinf(value) and not dtype.infinite:
            return f"infinite, and {dtype} has no infinity"
    return ""


def _rounds_down(value: float, dtype: DType) -> bool:
    """Whether a number above the largest of a dtype is less than half a last place above it."""
    return dtype.bits < 64 and abs(value) < dtype.largest * (1 + 2.0**-dtype.mantissa / 2)


def _a(name: str) -> str:
    return f"an {name}" if name[0] in "aeiof" and name not in ("float",) else f"a {name}"


def _shape(
    world: World, title: str, annotation: ast.TypeExpr, declared: tuple[ast.Expr, ...],
    value: object, scope: Scope, call: Span,
) -> tuple[object, ...]:  # fmt: skip
    """The sizes of an argument, as many as are declared."""
    unknown = (Unknown("int"),) * len(declared)
    if isinstance(value, Unknown):
        return unknown
    if not world.is_array(value):
        message = f"{title} is {kind_of(value)}, and an array is expected"
        raise fault("T0831", message, call)
    wanted, dtype = _wanted(annotation, scope), world.dtype(value)
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
