"""Schedule IR to Tile IR of lane operations: tiles become loops over their elements.

Right for every tile program on every target; the way of the CPU, where the one lane of a group
runs loops that LLVM vectorizes, and the way of a GPU for what has no register tiles. Element-wise
work is not stored: it is done element by element inside the loop that uses it.
"""

from tessera_lang.lower.schedule_to_lanes.directive_notes import notes_on_directives
from tessera_lang.lower.schedule_to_lanes.kernel import lower_to_lanes

__all__ = ["lower_to_lanes", "notes_on_directives"]
