"""Whether an instance can be lowered: nothing in it is unknown.

Owns the look over the tables and for holes that the parser left. Must not know why.
"""

from __future__ import annotations

from tessera_lang.sema.bound_names import expressions, statement_expressions, statements, targets
from tessera_lang.sema.side_tables import TypedFunction
from tessera_lang.syntax import ast
from tessera_lang.types.type import ErrorType


def is_whole(typed: TypedFunction) -> bool:
    """Whether the parser and the checks left nothing unknown."""
    for s in statements(typed.declaration.body):
        if isinstance(s, ast.ErrorStmt):
            return False
        for root in (*targets(s), *statement_expressions(s)):
            if any(isinstance(e, ast.ErrorExpr) for e in expressions(root)):
                return False
    unknown = any(isinstance(t, ErrorType) for t in typed.types.values())
    return not unknown and not isinstance(typed.returns, ErrorType)
