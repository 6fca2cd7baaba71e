"""Bodies of tile kernels that compute with whole arrays, and say by no loop how.

Owns which bodies these are, by their text alone. Must not know what becomes of them.
"""

from __future__ import annotations

from tessera_lang.sema.side_tables import FunctionSymbol
from tessera_lang.sema.tree_transforms import nodes
from tessera_lang.syntax import ast


def is_of_arrays(symbol: FunctionSymbol) -> bool:
    """Whether a kernel may be one loop: its body is directives, assignments to names and a result
    in which there are products, and no loop says how it is computed."""
    body = symbol.declaration.body
    rest = [s for s in body if not directive_of(s)]
    if symbol.declaration.brackets or not rest or not isinstance(rest[-1], ast.Return):
        return False
    return all(map(_names_values, rest[:-1])) and any(
        map(_is_product, (n for s in rest for n in nodes(s)))
    )


def _names_values(s: ast.Stmt) -> bool:
    """Whether a statement gives names to values."""
    if not isinstance(s, ast.Assign):
        return False
    targets = s.target.items if isinstance(s.target, ast.TupleExpr) else (s.target,)
    return all(isinstance(t, ast.Name) for t in targets)


def _is_product(node: object) -> bool:
    if isinstance(node, ast.Binary):
        return node.operator == "@"
    return isinstance(node, ast.Attribute) and node.name in ("matmul", "einsum")


def directive_of(s: ast.Stmt) -> str:
    """The directive that a statement is; "" of others."""
    call = s.value if isinstance(s, ast.ExprStmt) else None
    called = call.function if isinstance(call, ast.Call) else None
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return called.name if called.value.id == "schedule" else ""
    return ""
