"""The graph of a plain function by the types of its parameters, without a call.

Owns what parameters are where their annotations alone say it: sizes may be names. Must not know who
asks.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera_lang.evaluate.annotations import bind_sizes
from tessera_lang.evaluate.fault import fault
from tessera_lang.evaluate.host import Host
from tessera_lang.evaluate.value import HostFunction
from tessera_lang.ir.core import Program, TensorType, Value
from tessera_lang.lower.ast_to_graph.leaves import graph_of, is_value, leaves, rebuilt
from tessera_lang.lower.ast_to_graph.tracing import TracingHost, traced
from tessera_lang.lower.ast_to_graph.values import GraphArray, GraphNumber, NotKnown
from tessera_lang.lower.ast_to_graph.world import GraphWorld
from tessera_lang.sema.float_dtypes import float_alone
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import BOOL, F64, I64, DType, dtype_named, float_beside
from tessera_lang.types.shape import Dim, DimOperator, Sym, dim_op

_OPERATORS: dict[str, DimOperator] = {"+": "+", "-": "-", "*": "*", "//": "//", "%": "%"}


def function_graph(
    host: Host, function: HostFunction, annotations: Mapping[str, ast.TypeExpr]
) -> Program:
    """The graph of a function, not verified. ``annotations``: of parameters, in the place of their
    own. Raises HostFault."""
    world = GraphWorld()
    tracer = TracingHost(world, host)
    declaration = function.declaration
    assert isinstance(declaration, ast.FunctionDef)
    span = declaration.name_span
    values: dict[str, object] = {}
    named: list[tuple[str, Value]] = []
    for p in (*declaration.brackets, *declaration.parameters):
        annotation = annotations.get(p.name, p.annotation)
        t = None if annotation is None else _type(annotation)
        if t is not None:
            value = Value(t, p.name)
            named.append((p.name, value))
            is_array = annotation is not None and annotation.shape is not None
            values[p.name] = (
                GraphArray(value, is_given=True) if is_array else GraphNumber(value, False)
            )
        elif p.default is not None:
            values[p.name] = tracer.value(p.default, function.scope)
        else:
            raise fault(
                "T0815", f"nothing says what `{p.name}` of `{declaration.name}` is", p.span,
                helps=(f"say it in the signature: `--signature '{p.name}: f32[n]'`",),
            )  # fmt: skip
    arrays = [v.type for v in values.values() if isinstance(v, GraphArray)]
    world.floats = float_beside((t.dtype for t in arrays), float_alone(declaration))
    call = ast.Call(span, ast.Name(span, declaration.name), ())
    bind_sizes(world, tracer.value, function, values, span)
    try:
        result = traced(tracer, function, values, call)
    except NotKnown:
        raise fault("T0760", "what a run alone knows is not possible in a graph", span) from None
    result = rebuilt(
        result, lambda v: world.is_array(v) or isinstance(v, float),
        lambda v: v if is_value(v) else GraphNumber(world.lifted(v), double=False),
    )  # fmt: skip
    if not leaves(result, is_value):
        message = f"`{declaration.name}` gives no array and no float, so it has no graph"
        raise fault("T0760", message, span)
    return Program("graph", (graph_of(world, declaration.name, named, result),))


def _type(annotation: ast.TypeExpr) -> TensorType | None:
    """The type of a parameter; None where a call has to give its value."""
    base = annotation.base
    dtype = dtype_named(base.id) if isinstance(base, ast.Name) else None
    if dtype is None:
        return None
    if annotation.shape is None:
        return TensorType(_number(dtype), ())
    dims = tuple(map(_dim, annotation.shape))
    return None if None in dims else TensorType(dtype, tuple(d for d in dims if d is not None))


def _number(dtype: DType) -> DType:
    """The dtype of a number of the host program."""
    return BOOL if dtype == BOOL else F64 if dtype.is_float else I64


def _dim(e: ast.Expr) -> Dim | None:
    """A size of an annotation; None for what no size is made of."""
    if isinstance(e, ast.IntLit):
        return e.value
    if isinstance(e, ast.Name):
        return Sym(e.id)
    if isinstance(e, ast.Binary) and e.operator in _OPERATORS:
        left, right = _dim(e.left), _dim(e.right)
        if left is not None and right is not None:
            return dim_op(_OPERATORS[e.operator], left, right)
    return None
