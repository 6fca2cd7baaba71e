"""What floats are that nothing gives a dtype.

Owns the search of a function's text for dtypes. Must not know calls.
"""

from __future__ import annotations

from functools import lru_cache

from tessera_lang.sema.bound_names import assigned_names
from tessera_lang.sema.tree_transforms import nodes
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import F32, F64, DType, dtype_named


@lru_cache(maxsize=512)
def float_alone(function: ast.FunctionDef) -> DType:
    """What a float of Python's is in a call of ``function`` without an array of floats: f64, so
    that no bit of it is lost, or f32 where the function names a narrower dtype, to which it would
    not be converted without a cast. Variables and parameters by such a name (``half``) are none."""
    own = {p.name for p in function.parameters} | set(assigned_names(function))
    for node in nodes(function):
        if isinstance(node, ast.Name) and node.id in own:
            continue
        dtype = dtype_named(_word(node))
        if dtype is not None and dtype.is_float and dtype != F64:
            return F32
    return F64


def _word(node: object) -> str:
    match node:
        case ast.Name(id=word) | ast.StringLit(value=word) | ast.Attribute(name=word):
            return word
        case _:
            return ""
