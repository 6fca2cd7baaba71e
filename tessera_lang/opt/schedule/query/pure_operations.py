"""Operations that only compute: what may be done again, or moved."""

from __future__ import annotations

from tessera_lang.ir.core import Operation
from tessera_lang.ir.schedule.ops import SCHEDULE_OPS
from tessera_lang.ir.tile.ops import TILE_OPS
from tessera_lang.types.dtype import DType


def is_pure(o: Operation) -> bool:
    definition = TILE_OPS.get(o.name) or SCHEDULE_OPS.get(o.name)
    assert definition is not None
    known = o.name in ("tile.floordiv", "tile.mod") and o.attributes.get("site") == -1
    return definition.pure or known


def is_number(o: Operation) -> bool:
    """Whether an operation does nothing but compute numbers."""
    return is_pure(o) and all(isinstance(v.type, DType) for v in o.results)
