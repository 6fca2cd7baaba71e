"""Schedule IR to Tile IR with register tiles: the way of a GPU.

``lower_to_tile`` chooses a layout for every tile, and builds what the schedule decides: buffers,
copies that run ahead of the work, roles; ``checked_memory`` refuses what does not fit.
``NotTiled`` says what has no such form.
"""

from tessera_lang.lower.schedule_to_tile.common.errors import (
    NotHonoured,
    NotTiled,
    TooLarge,
    TooLong,
)
from tessera_lang.lower.schedule_to_tile.lowering import checked_memory, lower_to_tile

__all__ = [
    "NotHonoured", "NotTiled", "TooLarge", "TooLong", "checked_memory", "lower_to_tile",
]  # fmt: skip
