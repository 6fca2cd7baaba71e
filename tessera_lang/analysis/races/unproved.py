"""What `--strict` tells: what is neither proved nor an error.

Must not know how it is found.
"""

from __future__ import annotations

from tessera_lang.analysis.races.array_races import unproved_arrays
from tessera_lang.analysis.races.hand_over_races import Runs
from tessera_lang.analysis.races.lane_bounds import unproved_bounds
from tessera_lang.analysis.races.shared_check import check_shared
from tessera_lang.analysis.ranges.integer_ranges import ranges
from tessera_lang.analysis.uniformity.lane_uniformity import uniformity
from tessera_lang.diagnostics import Diagnostic
from tessera_lang.ir.core import Operation
from tessera_lang.target.launch_plan import LaunchPlan


def unproved(kernel: Operation, plan: LaunchPlan) -> list[Diagnostic]:
    """Of shared memory, of arrays, and of indices that are outside in every launch tried."""
    uniform, known = uniformity(kernel), ranges(kernel)
    runs = Runs(kernel, plan, uniform)
    return [
        *check_shared(kernel, plan, uniform, known, runs).unproved,
        *unproved_arrays(kernel, plan, uniform, runs),
        *unproved_bounds(kernel, known, plan),
    ]
