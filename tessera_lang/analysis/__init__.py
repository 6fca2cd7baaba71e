"""Analyses of Tile IR: ranges, uniformity, and the checks made of them."""

from tessera_lang.analysis.lanes.alike_conditions import alike_conditions
from tessera_lang.analysis.races.array_races import check_arrays, unproved_arrays
from tessera_lang.analysis.races.hand_over_races import Runs
from tessera_lang.analysis.races.lane_out_of_bounds import check_lane_bounds
from tessera_lang.analysis.races.lane_owned_arrays import owned
from tessera_lang.analysis.races.shared_check import SharedMemoryCheck, check_shared
from tessera_lang.analysis.races.unproved import unproved
from tessera_lang.analysis.ranges.certain_faults import check_bounds
from tessera_lang.analysis.ranges.integer_ranges import BoundsVerdict, Ranges, ranges
from tessera_lang.analysis.uniformity.barriers import check_barriers
from tessera_lang.analysis.uniformity.lane_uniformity import Level, Uniformity, uniformity

__all__ = [
    "BoundsVerdict",
    "Level",
    "Ranges",
    "Runs",
    "SharedMemoryCheck",
    "Uniformity",
    "alike_conditions",
    "check_arrays",
    "check_barriers",
    "check_bounds",
    "check_lane_bounds",
    "check_shared",
    "owned",
    "ranges",
    "uniformity",
    "unproved",
    "unproved_arrays",
]
