"""Numbers of the program of which a lane chooses one: tables that are part of the code.

Each stands once in a kernel for each dtype that it is read as. Must not know targets.
"""

from __future__ import annotations

from tessera_lang.ir.core import PointerType, Value
from tessera_lang.lower.ast_to_tile import access
from tessera_lang.lower.ast_to_tile.context import Lowering, Unsupported
from tessera_lang.syntax import ast
from tessera_lang.types.dtype import DType

Numbers = tuple[int | float, ...]


def load(lowering: Lowering, node: ast.Subscript, numbers: Numbers) -> Value:
    """``W[k]``, guarded like an element of an array."""
    if not lowering.lanes:
        what = "a number that a tile kernel chooses of several of the program"
        raise Unsupported(node.span, what, "give the kernel an array of them")
    array = _table(lowering, node, numbers, lowering.dtype_of(node))
    index = access.index_of(lowering, array, 0, node.items[0])
    return access.load(lowering, access.element(lowering, array, [index], node.span))


def _table(lowering: Lowering, node: ast.Subscript, numbers: Numbers, dtype: DType) -> Value:
    key = (numbers, dtype)
    if key not in lowering.tables:
        b = lowering.builder
        name = node.value.id if isinstance(node.value, ast.Name) else "table"
        text = " ".join(repr(float(v) if dtype.is_float else v) for v in numbers)
        with b.region() as top:
            made = b.emit(
                "tile.table", (), (PointerType(dtype, "constant"),), {"name": name, "values": text}
            )
            size = b.index(len(numbers))
            view = b.view(
                made.result, [size], shape=[len(numbers)], mut=False, aligned=True, name=name
            )
        lowering.allocations.extend(top.operations)
        lowering.sizes[view] = (size,)
        lowering.tables[key] = view
    return lowering.tables[key]
