"""``int(x)`` and ``float(x)`` of kernels, in the language's own words.

Owns which they are. Must not know types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera_lang.record import replace
from tessera_lang.syntax import ast


def casts_of_python(kernel: ast.FunctionDef) -> Callable[[Any], Any]:
    """``int(x)`` of a kernel as its ``index``, and ``float(x)`` as the floats of its arrays; where
    these are not written, a quotient is a float in their place."""
    bases = [p.annotation.base for p in kernel.parameters if p.annotation is not None]
    floats = [
        b.id for b in bases if isinstance(b, ast.Name) and b.id in ("f16", "bf16", "f32", "f64")
    ]
    dtype = "f64" if "f64" in floats else "f32"

    def of(node: Any) -> Any:
        plain = isinstance(node, ast.Call) and len(node.arguments) == 1 and not node.keywords
        if not plain or not isinstance(node.function, ast.Name):
            return node
        if node.function.id == "int":
            return replace(node, function=ast.Name(node.function.span, "index"))
        if node.function.id == "float" and floats:
            return replace(node, function=ast.Name(node.function.span, dtype))
        if node.function.id == "float":
            return ast.Binary(
                node.span, "/", node.span, node.arguments[0], ast.IntLit(node.span, 1)
            )
        return node

    return of
