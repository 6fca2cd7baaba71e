"""Schedule IR to Tile IR with register tiles: the way of a GPU.

``lower_to_tile`` chooses a layout for every tile, stages operands in shared memory, and
builds loops whose copies run ahead of the work. ``NotTiled`` says what has no such form.
"""

from tessera_lang.lower.schedule_to_tile.common.errors import NotTiled
from tessera_lang.lower.schedule_to_tile.lowering import lower_to_tile

__all__ = ["NotTiled", "lower_to_tile"]
